"""The unmodified truss client on jobs that are there: view, stop, recreate, update, download, metrics, capacity, teams."""
import tarfile

from conftest import until
from truss_client import Client, document, latest, truss  # noqa: F401 (a fixture)

WHOLE = 'cpu_count=4, memory="256Mi"'  # the machine: a second such job waits


def test_view_in_all_its_forms(truss):
    assert "No queued or active" in truss.train("view")
    running = truss.push(["sleep 600"], compute=WHOLE)
    waiting = truss.push(["true"], "--priority", "3", compute=WHOLE)
    out = truss.train("view")
    assert "Queued Training Jobs" in out and "Active Training Jobs" in out and running["id"] in out and waiting["id"] in out
    project = running["training_project"]
    for flags in ["--project", "demo"], ["--project-id", project["id"]], ["--project", project["id"]]:
        out = truss.train("view", *flags)
        assert running["id"] in out and waiting["id"] in out
    out = truss.train("view", "--job-id", waiting["id"])
    assert "TRAINING_JOB_PENDING" in out and "admin" in out and "demo" in out
    assert "No training jobs found" in truss.train("view", "--job-id", "nothere", code=2)
    assert "nothere" in truss.train("view", "--project", "nothere", code=None)
    page = truss.cluster.api("GET", f"/training/{project['id']}/logs/{running['id']}", token="", raw=True)
    assert page[0] == 200


def test_stop_by_id_by_project_and_twice(truss):
    first = truss.push(["sleep 600"])
    assert "successfully" in truss.train("stop", "--job-id", first["id"], "--project", "demo")
    truss.cluster.wait(first, "TRAINING_JOB_STOPPED")
    assert "No queued or running jobs" in truss.train("stop", "--job-id", first["id"], code=2)
    second = truss.push(["sleep 600"])
    code, out = truss.typed("train", "stop", "--project", "demo", prompt="Are you sure", answer="y")
    assert code == 0 and "successfully" in out
    truss.cluster.wait(second, "TRAINING_JOB_STOPPED")


def test_stop_all_also_what_waits(truss):
    jobs = [truss.push(["sleep 600"], compute=WHOLE) for _ in range(3)]
    code, out = truss.typed("train", "stop", "--all", prompt="stop 3 active jobs", answer="y")
    assert code == 0 and "stopped successfully" in out
    for job in jobs:
        truss.cluster.wait(job, "TRAINING_JOB_STOPPED")
    assert "No queued or active" in truss.train("stop", "--all")


def test_recreate_and_download(truss):
    folder = truss.project(["cat data.txt"], files={"data.txt": "again\n"})
    first = truss.push(None, cwd=folder)
    truss.cluster.wait(first, "TRAINING_JOB_COMPLETED")
    assert "again" in truss.train("recreate", "--job-id", first["id"], "--tail")
    second = latest(truss.cluster)
    assert second["id"] != first["id"] and second["recreated_from"] == first["id"]
    code, _ = truss.typed("train", "recreate", prompt="Recreate training job", answer="y")
    assert code == 0
    third = latest(truss.cluster)
    truss.cluster.wait(third, "TRAINING_JOB_COMPLETED")
    assert third["recreated_from"] == second["id"] and truss.cluster.user_lines(third) == ["again"]
    target = truss.cluster.folder / "target"
    truss.train("download", "--job-id", third["id"], "--target-directory", target)
    truss.train("download", "--job-id", third["id"], "--target-directory", target, "--no-unzip")
    assert (target / f"demo_{third['id']}/data.txt").read_text() == "again\n"
    with tarfile.open(target / f"demo_{third['id']}.tgz") as tar:
        assert sorted(tar.getnames()) == ["config.py", "data.txt"]
    assert "No training job found" in truss.train("download", "--job-id", "nothere", code=1)


def test_update_of_what_waits_only(truss):
    first = truss.push(["sleep 600"], compute=WHOLE)
    low, high = (truss.push([f"echo {name}"], "--job-name", name, compute=WHOLE) for name in ("low", "high"))
    assert f"{high['id']} updated" in truss.train("update", "--job-id", high["id"], "--priority", "5")
    assert "pending job" in truss.train("update", "--job-id", first["id"], "--priority", "5", code=1)
    out = truss.train("push", "config.py", cwd=truss.project(["true"], compute=WHOLE))
    spot = latest(truss.cluster)
    assert "pending" in out
    until(lambda: truss.cluster.job(spot)["reason"])
    spot = truss.cluster.job(spot)
    assert spot["error_message"] == spot["reason"]  # the client shows why

    def reason_in_reply():
        reply = truss.train("push", "config.py", cwd=truss.project(["true"], compute=WHOLE))
        waits = latest(truss.cluster)
        truss.train("stop", "--job-id", waits["id"])
        return waits["reason"] and waits["reason"] in " ".join(reply.split())

    until(reason_in_reply)
    assert truss.train("update", "--job-id", spot["id"], "--availability-model", "spot")
    assert truss.cluster.job(spot)["availability_model"] == "spot"
    assert truss.cluster.json("recreate", spot["id"])["availability_model"] == "spot"
    assert "availability_model" in truss.train("update", "--job-id", first["id"], "--availability-model", "spot", code=1)
    truss.train("stop", "--job-id", first["id"])
    high, low = (truss.cluster.wait(job, "TRAINING_JOB_COMPLETED") for job in (high, low))
    assert high["priority"] == 5 and high["started_at"] < low["started_at"]


def test_sessions_are_refused_with_the_way_to_go(truss):
    job = truss.push(["sleep 600"])
    assert "No auth codes" in truss.train("isession", "--job-id", job["id"])
    for change in ["--trigger", "on_startup"], ["--timeout-minutes", "5"]:
        out = " ".join(truss.train("update_session", job["id"], *change, code=None).split())
        assert "Client error: " in out and f"stoker exec {job['id']}" in out, out
    # what the ProxyCommand of `truss ssh` asks; it shows the message
    status, reply = truss.cluster.api("POST", f"/v1/training_projects/{job['training_project']['id']}/jobs/{job['id']}/ssh/sign",
                                      {"public_key": "ssh-ed25519 A", "replica_id": "0"})
    assert status == 404 and f"stoker exec {job['id']}" in reply["message"]


def test_metrics(truss):
    job = truss.push(["sleep 600"])
    until(lambda: truss.cluster.api("POST", f"/v1/training_projects/{job['training_project']['id']}/jobs/{job['id']}/metrics", {})[1]
          ["per_node_metrics"])
    truss.cluster.cli("stop", job["id"], "--now")
    truss.cluster.wait(job, "TRAINING_JOB_STOPPED")
    # of a job that is over: one table; the client draws it only on a terminal
    code, out = truss.typed("train", "metrics", "--job-id", job["id"], prompt="\0", answer="")
    assert code == 0 and "CPU memory" in out, out


def test_capacity(empty_cluster):
    empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--images", "host", "--gpus", "H100:2")
    truss = Client(empty_cluster)
    view = lambda: truss.run("--non-interactive", "train", "capacity", "view")
    assert "H100" in view()
    team = empty_cluster.api("GET", "/v1/teams")[1]["teams"][0]["name"]
    out = truss.run("--non-interactive", "train", "capacity", "update", "--team", team, "--gpu-type", "H100", "--capacity", "1")
    assert f"Updated {team}'s H100 capacity to 1." in out
    job = truss.push(["echo $BT_NUM_GPUS"], "--accelerator", "H100:1")
    empty_cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert empty_cluster.user_lines(job) == ["1"]
    folder = truss.project(["true"])
    assert "H100" in truss.train("push", "config.py", "--accelerator", "H100:8", cwd=folder, code=1)
    assert "nobody" in truss.run("--non-interactive", "train", "capacity", "update", "--team", "nobody", "--gpu-type", "H100",
                                 "--capacity", "1", code=None)


def test_the_template_as_it_comes_is_refused_by_name(truss):
    truss.train("init", "--target-directory", "mine")
    out = truss.train("push", "config.py", cwd=truss.home / "mine", code=1)
    assert "H100" in out and "Client error" in out
    assert truss.cluster.json("ps", "-a") == []


def test_loops_exec(truss):
    folder = truss.cluster.folder / "loop"
    folder.mkdir()
    (folder / "client.sh").write_text("echo key ${#BASETEN_API_KEY}; exit $1\n")
    exec_ = ["loops", "exec", "--non-interactive", "--cpu-count", "1", "--memory", "256Mi"]
    truss.run(*exec_, "--tail", "--", "sh", "client.sh", "0", cwd=folder)
    job = latest(truss.cluster)
    assert job["training_project"]["name"] == "loop" and truss.cluster.user_lines(job) == ["key 50"]
    assert f"stoker exec {job['id']}" in truss.cluster.logs(job, "--system")
    truss.run(*exec_, "--tail", "--no-ssh", "--no-api-key", "--", "sh", "client.sh", "3", cwd=folder, code=1)
    out = document(truss.run(*exec_, "-o", "json", "--", "true", cwd=folder))
    assert out["job_id"] == latest(truss.cluster)["id"]
    truss.cluster.wait(latest(truss.cluster), "TRAINING_JOB_COMPLETED")
    out = truss.run("loops", "exec", "--non-interactive", "--", "true", cwd=folder, code=1)
    assert "16" in out and "CPU" in out
    out = truss.run(*exec_, "--secret", "A=nothere", "--", "true", cwd=folder, code=None)
    assert "nothere" in out


def test_two_teams(truss):
    c = truss.cluster
    c.cli("teams", "create", "blue")
    both = {t["name"]: t["id"] for t in c.api("GET", "/v1/teams")[1]["teams"]}
    default = next(name for name in both if name != "blue")
    c.cli("secrets", "set", "s", "--team", "blue", stdin="blue-secret")
    kw = dict(runtime='environment_variables={"S": SecretReference(name="s")}, cache_config=CacheConfig(enabled=True)', name="p")
    command = ["test $S = blue-secret; echo $? > $BT_TEAM_CACHE_DIR/ok; cat $BT_TEAM_CACHE_DIR/ok"]
    folder = truss.project(command, **kw)
    assert "team" in truss.train("push", "config.py", cwd=folder, code=None).lower()
    assert c.json("ps", "-a") == []  # which team? it asks, and cannot
    job = truss.push(None, "--team", "blue", cwd=folder)
    assert c.wait(job, "TRAINING_JOB_COMPLETED")["team"]["name"] == "blue" and c.user_lines(job) == ["0"]
    refused = truss.train("push", "config.py", "--team", default, cwd=folder, code=1)  # the secret is blue's
    assert "Client error: " in refused and "stoker secrets set" in refused, refused
    job2 = truss.push(["ls $BT_TEAM_CACHE_DIR | wc -l"], "--team", default, name="q", runtime="cache_config=CacheConfig(enabled=True)")
    assert c.wait(job2, "TRAINING_JOB_COMPLETED")["team"]["name"] == default and c.user_lines(job2) == ["0"]
    slash = truss.push(["true"], "--team", "blue", name="blue/p", files={"f": "x"})  # as a job file of the stoker command has it
    assert slash["training_project"] == job["training_project"]
    assert "/" in truss.train("push", "config.py", "--team", default, cwd=truss.project(["true"], name="blue/p"), code=1)
    token = c.json("tokens", "create", "bluebird", "--team", "blue")["api_key"]
    blue = Client(c, token=token, name="blue-home")
    assert job["id"] in blue.train("view", "--job-id", job["id"])
    assert "No training jobs found" in blue.train("view", "--job-id", job2["id"], code=2)
    assert "No queued or running" in blue.train("stop", "--job-id", job2["id"], code=2)
    assert blue.push(["true"], name="blue/p")["training_project"] == job["training_project"]
    third = blue.push(["true"], name="r")  # the only team it sees
    assert c.wait(third, "TRAINING_JOB_COMPLETED")["team"]["name"] == "blue"
    project = job2["training_project"]["id"]
    for method, path in ("GET", ""), ("POST", "/stop"), ("GET", "/download"), ("POST", "/logs"), ("GET", "/checkpoint_files"), ("POST", "/recreate"):
        body = {} if method == "POST" else None
        assert c.api(method, f"/v1/training_projects/{project}/jobs/{job2['id']}{path}", body, token=token)[0] == 404
