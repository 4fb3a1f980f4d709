"""Who is meant: jobs, projects, teams and checkpoints by id, start of an id, name or @; what is mine and what is others'."""
import csv
import io
import json
import sqlite3
import urllib.parse

import pytest
from conftest import until

MANY = 1010  # more than a page of the API holds
ACTIVE = 300  # more than `stop --all` once took


def token(cluster, name, *flags):
    return cluster.cli("tokens", "create", name, *flags, "-q").out.strip()


def resolve(cluster, what, word, status=200, as_token=None, **more):
    query = urllib.parse.urlencode({"what": what, "word": word, **more})
    got, reply = cluster.api("GET", f"/v1/resolve?{query}", token=as_token)
    assert got == status, reply
    return reply


def resolved_id(reply):
    return reply["training_job" if "training_job" in reply else "training_project" if "training_project" in reply else "team"]["id"]


def push_as(cluster, as_token, commands, *flags, **kw):
    folder = cluster.job_folder(commands, **kw)
    return json.loads(cluster.cli("push", folder / "train.yaml", *flags, "-o", "json", token=as_token).out)


def copies(cluster, job, count, later_ms=1000, **columns):
    """Rows like the job's own, made while no server runs: a thousand pushes take minutes."""
    cluster.stop()
    db = sqlite3.connect(cluster.data / "stoker.db")
    names = [row[1] for row in db.execute("PRAGMA table_info(jobs)")]
    for i in range(count):
        values = {**{n: n for n in names}, "id": f"'c{i:06d}'", "name": f"'copy-{i}'", "created_ms": f"created_ms + {later_ms + i}", **columns}
        db.execute(f"INSERT INTO jobs ({', '.join(names)}) SELECT {', '.join(str(values[n]) for n in names)} FROM jobs WHERE id = ?",
                   (job["id"],))
    db.execute(f"UPDATE job_counts SET n = n + {count} WHERE (project_id, team_id, user, state) = "
               "(SELECT project_id, team_id, user, state FROM jobs WHERE id = ?)", (job["id"],))
    db.commit()
    db.close()
    cluster.restart()


def test_a_job_is_found_however_many_came_after_it(cluster):
    job = cluster.push(["true"], "--name", "the-first")
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    copies(cluster, job, MANY)
    for word in job["id"], job["id"][:6], "the-first":
        assert cluster.json("view", word)["id"] == job["id"]
        assert cluster.error("stop", word, code=5) == "job_ended"
    listed = cluster.cli("ps", "-a", "-o", "json")
    assert len(json.loads(listed.out)) == 1000
    assert "1,000 of 1,011" in listed.err
    everything = cluster.cli("ps", "-a", "--limit", 5000, "-o", "json")
    ids = [j["id"] for j in json.loads(everything.out)]
    assert len(ids) == len(set(ids)) == MANY + 1 and ids[-1] == job["id"] and " of " not in everything.err
    assert [j["id"] for j in cluster.json("ps", "-a", "--limit", 3)] == ids[:3]
    assert cluster.json("checkpoints", "ls", "-p", "p") == []
    assert cluster.json("view", "@")["id"] == ids[0]


def test_lists_go_on_from_a_cursor(cluster):
    job = cluster.push(["true"])
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    copies(cluster, job, 9, created_ms="created_ms")  # of one millisecond
    project = job["training_project"]["id"]
    for order, path in (("desc", None), ("asc", None), ("desc", f"/v1/training_projects/{project}/jobs")):
        seen, cursor = [], None
        while True:
            if path:
                _, page = cluster.api("GET", f"{path}?limit=4" + (f"&cursor={cursor}" if cursor else ""))
            else:
                body = {"limit": 4, "cursor": cursor, "order_by": [{"field": "created_at", "order": order}]}
                _, page = cluster.api("POST", "/v1/training_jobs/search", body)
            assert page["total"] == 10 and len(page["training_jobs"]) <= 4
            seen += [j["id"] for j in page["training_jobs"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert len(seen) == len(set(seen)) == 10
        assert seen[-1 if order == "desc" else 0] == job["id"]
    for bad in "x", "1", "1.", "-1.2", "1.2.3", "":
        assert cluster.api("POST", "/v1/training_jobs/search", {"cursor": bad})[0] == 400
    assert cluster.api("POST", "/v1/training_jobs/search", {"limit": 0})[0] == 400


def test_id_then_name_then_prefix(cluster):
    first = cluster.push(["true"], "--name", "run-it")
    second = cluster.push(["true"], "--name", first["id"])  # a name that is another's id
    third = cluster.push(["true"], "--name", second["id"][:4])  # a name that starts another's id
    assert resolved_id(resolve(cluster, "job", first["id"])) == first["id"]
    assert resolved_id(resolve(cluster, "job", second["id"][:4])) == third["id"]
    assert resolved_id(resolve(cluster, "job", second["id"][:6])) == second["id"]
    again = cluster.push(["true"], "--name", "run-it")
    reply = resolve(cluster, "job", "run-it", 409)
    assert reply["error"]["id"] == "name_ambiguous"
    assert [c["id"] for c in reply["candidates"]] == [again["id"], first["id"]]
    assert all(c["name"] == "run-it" and c["project"] == "p" and c["created_at"] for c in reply["candidates"])
    assert cluster.error("stop", "run-it", code=5) == "name_ambiguous"
    for word in "%", "_" * 7, "no\x01thing", "zzzzzzz", "RUN-IT", "run-", "a/b":  # no id has a hyphen
        assert resolve(cluster, "job", word, 404)["error"]["id"] == "job_not_found"
    for query in "what=job", "word=x", "what=job&word=", "what=shoe&word=x":
        assert cluster.api("GET", f"/v1/resolve?{query}")[0] == 400
    assert cluster.api("GET", "/v1/resolve?what=job&word=x", token="none")[0] == 401


def test_a_name_of_several_jobs_is_read_but_not_changed(cluster):
    """The only active one, else the newest; what changes something is told exactly what to change."""
    old, held = cluster.push(["echo old"], "--name", "run"), cluster.push([cluster.hold()], "--name", "run")
    new = cluster.push(["echo new; mkdir $BT_CHECKPOINT_DIR/checkpoint-1; echo 1 > $BT_CHECKPOINT_DIR/checkpoint-1/a"],
                       "--name", "run", runtime={"checkpointing_config": {"enabled": True}})
    for job in old, new:
        cluster.wait(job, "TRAINING_JOB_COMPLETED")
    cluster.wait(held, "TRAINING_JOB_RUNNING")
    reply = resolve(cluster, "job", "run", several="newest")
    assert resolved_id(reply) == held["id"] and reply["taken"] == {"jobs": 3, "as": "active"}
    assert resolved_id(resolve(cluster, "job", "run", several="active")) == held["id"]
    assert resolve(cluster, "job", "run", 409)["error"]["id"] == "name_ambiguous"
    assert "taken" not in resolve(cluster, "job", held["id"], several="newest")
    assert cluster.cli("exec", "run", "--", "sh", "-c", "echo $BT_TRAINING_JOB_ID").out.strip() == held["id"]
    cluster.cli("stop", held["id"], "--now")
    cluster.wait(held, "TRAINING_JOB_STOPPED")
    reply = resolve(cluster, "job", "run", several="newest")
    assert resolved_id(reply) == new["id"] and reply["taken"] == {"jobs": 3, "as": "newest"}
    assert resolve(cluster, "job", "run", 409, several="active")["error"]["id"] == "name_ambiguous"
    assert cluster.api("GET", "/v1/resolve?what=job&word=run&several=all")[0] == 400
    for words in (["view", "run"], ["logs", "run"], ["metrics", "run"], ["events", "run"], ["checkpoints", "ls", "run"],
                  ["checkpoints", "show", "run/latest"], ["checkpoints", "show", "latest", "-j", "run"]):
        said = cluster.cli(*words).err.splitlines()
        assert len(said) == 1 and "3 jobs" in said[0] and new["id"] in said[0], words
    for words in (["stop", "run"], ["recreate", "run"], ["update", "run", "--priority", "1"], ["exec", "run", "--", "true"],
                  ["checkpoints", "rm", "run/latest", "-y"], ["checkpoints", "pin", "run/latest"]):
        assert cluster.error(*words, code=5) == "name_ambiguous", words


def test_at_and_all_are_mine(cluster):
    bob = token(cluster, "bob")
    job = cluster.push([cluster.hold()])
    assert cluster.error("stop", "@", token=bob, code=3) == "job_not_found"
    assert cluster.error("view", token=bob, code=3) == "job_not_found"
    assert cluster.error("cache", "ls", token=bob, code=3) == "project_not_found"
    cluster.wait(job, "TRAINING_JOB_RUNNING")
    bobs = push_as(cluster, bob, [cluster.hold()], project="bobs")
    assert cluster.json("view", "@")["id"] == job["id"]
    assert cluster.json("view", "@", token=bob)["id"] == bobs["id"]
    assert resolved_id(resolve(cluster, "project", "@", as_token=bob)) == bobs["training_project"]["id"]
    assert resolved_id(resolve(cluster, "project", "@")) == job["training_project"]["id"]
    assert cluster.api("GET", f"/v1/resolve?what=job&word={job['id'][:6]}", token=bob)[0] == 200  # theirs are named, not guessed
    cluster.cli("stop", "-a", "-y", "--now", token=bob)
    cluster.wait(bobs, "TRAINING_JOB_STOPPED")
    assert cluster.job(job)["current_status"] == "TRAINING_JOB_RUNNING"
    cluster.cli("stop", "-a", "-y", "--now", token=bob)  # there is none of bob's
    assert cluster.job(job)["current_status"] == "TRAINING_JOB_RUNNING"
    cluster.cli("stop", "-a", "-y", "--now", "--everyone", token=bob)
    cluster.wait(job, "TRAINING_JOB_STOPPED")


def test_ps_shows_whose_and_filters(cluster):
    bob = token(cluster, "bob")
    mine = cluster.push([cluster.hold()])
    done = cluster.push(["true"])
    bobs = push_as(cluster, bob, ["exit 3"])
    cluster.wait(done, "TRAINING_JOB_COMPLETED")
    cluster.wait(bobs, "TRAINING_JOB_FAILED")

    def ids(*flags, as_token=None):
        return {j["id"] for j in cluster.json("ps", *flags, token=as_token)}
    assert ids() == {mine["id"]} and ids(as_token=bob) == set()
    assert ids("-a") == {mine["id"], done["id"]}
    assert ids("-a", "--everyone") == {mine["id"], done["id"], bobs["id"]}
    assert ids("--user", "bob", "-a") == ids("-a", as_token=bob) == {bobs["id"]}
    assert ids("--everyone") == ids("--user", "admin") == {mine["id"]}
    assert ids("--status", "failed", "--everyone") == {bobs["id"]}  # a status that is asked for needs no -a
    undeployed = cluster.push(["true"], runtime={"python": {"requirements": ["x"], "version": "3.4"}})
    cluster.wait(undeployed, "TRAINING_JOB_DEPLOY_FAILED")
    assert ids("--status", "failed", "--everyone") == {bobs["id"], undeployed["id"]}  # as in `notify`
    assert ids("--status", "deploy_failed") == {undeployed["id"]}
    assert ids("--status", "COMPLETED", "--status", "training_job_running") == {mine["id"], done["id"]}
    assert cluster.error("ps", "--status", "sleeping", code=2) == "usage"
    assert cluster.error("ps", "--limit", "0", code=2) == cluster.error("ps", "--user", "bob", "--everyone", code=2) == "usage"
    rows = list(csv.DictReader(io.StringIO(cluster.cli("ps", "-a", "--everyone", "-o", "csv").out)))
    expected = {(mine["id"], "admin"), (done["id"], "admin"), (undeployed["id"], "admin"), (bobs["id"], "bob")}
    assert {(r["JOB"], r["USER"]) for r in rows} == expected
    assert "--everyone" in cluster.cli("ps", token=bob).err  # others' jobs are not hidden without a word
    cluster.release(mine)


def test_all_means_all(cluster):
    held = cluster.push([cluster.hold()], compute={"cpu_count": 4})
    cluster.wait(held, "TRAINING_JOB_RUNNING")
    waits = cluster.push(["true"], compute={"cpu_count": 4})
    assert waits["current_status"] == "TRAINING_JOB_PENDING"
    copies(cluster, waits, ACTIVE)
    assert len(cluster.json("ps", "--status", "pending")) == ACTIVE + 1
    said = cluster.cli("stop", "--all", "--now", "-y").err
    assert str(ACTIVE + 2) in said
    cluster.wait(held, "TRAINING_JOB_STOPPED")
    until(lambda: not cluster.json("ps"))
    assert len(cluster.json("ps", "--status", "stopped")) == ACTIVE + 2


@pytest.fixture
def teams(cluster):
    cluster.cli("teams", "create", "lab")
    return {"lab": token(cluster, "ann", "--team", "lab"), "Default": token(cluster, "dan", "--team", "Default")}


def renamed(cluster, projects):
    """Names with a slash, as a server once took them."""
    cluster.stop()
    db = sqlite3.connect(cluster.data / "stoker.db")
    for project, name in projects:
        db.execute("UPDATE projects SET name = ? WHERE id = ?", (name, project["id"]))
    db.commit()
    db.close()
    cluster.restart()


def test_a_job_file_names_a_team_and_its_project(cluster, teams):
    def pushed(project, **more):
        return cluster.push(["true"], *[f"--set={k}={v}" for k, v in more.items()], project=project)["training_project"]["id"]

    def refused(project, *flags, code, token=None):
        return cluster.error("push", cluster.job_folder(["true"], project=project) / "train.yaml", *flags, code=code, token=token)
    made = pushed("lab/hello")
    assert [(p["id"], p["team_name"], p["name"]) for p in cluster.json("projects", "ls")] == [(made, "lab", "hello")]
    assert pushed("lab/hello") == pushed("hello", team="lab") == made
    assert pushed("hello") != made
    # code is uploaded for the team that the job belongs to
    assert push_as(cluster, teams["lab"], ["true"], project="lab/hello", files={"f": "x"})["training_project"]["id"] == made
    assert refused("nobody/hello", code=3) == refused("lab/new", code=3, token=teams["Default"]) == "team_not_found"
    assert refused("lab/deep/net", code=2) == refused("Default/lab/new", code=2) == refused("lab/", code=2) == "invalid"
    assert refused("lab/new", "--set", "team=Default", code=2) == "invalid"
    assert refused("/hello", code=2) == "usage"
    assert {p["name"] for p in cluster.json("projects", "ls")} == {"hello"}
    assert cluster.error("teams", "create", "lab/more", code=2) == "invalid"


def test_the_api_takes_a_team_and_its_project_too(cluster, teams):
    ids = {t["name"]: t["id"] for t in cluster.api("GET", "/v1/teams")[1]["teams"]}

    def post(name, team_name=None, path="", as_token=None):
        body = {"name": name, **({"team_name": team_name} if team_name else {})}
        status, reply = cluster.api("POST", f"/v1{path}/training_projects", {"training_project": body}, token=as_token)
        return (status, reply["error"]["id"]) if status != 200 else (reply["training_project"]["team_name"], reply["training_project"]["name"])
    assert post("lab/hello") == post("lab/hello") == post("lab/hello", "lab") == post("lab/hello", path=f"/teams/{ids['lab']}") == ("lab", "hello")
    assert post("lab/hello", as_token=teams["lab"]) == post("hello", as_token=teams["lab"]) == ("lab", "hello")
    assert post("hello") == ("Default", "hello") and len(cluster.json("projects", "ls")) == 2
    assert post("lab/hello", as_token=teams["Default"]) == post("lab/new", as_token=teams["Default"]) == (404, "team_not_found")
    assert post("nobody/hello") == post("hello", "nobody") == (404, "team_not_found")
    for name, team_name, path in (("lab/hello", "Default", ""), ("lab/hello", None, f"/teams/{ids['Default']}"), ("lab/deep/net", None, ""),
                                  ("lab/", None, ""), ("/hello", None, "")):
        assert post(name, team_name, path) == (400, "invalid"), name
    # the dry run of a job takes the same words
    job = {"compute": {"cpu_count": 1, "memory": "256Mi"}, "runtime": {"start_commands": ["true"]}}
    status, reply = cluster.api("POST", "/v1/training_jobs/check", {"training_project": {"name": "lab/hello"}, "training_job": job})
    assert status == 200 and reply["training_job"]["team"]["name"] == "lab" and reply["training_job"]["training_project"]["name"] == "hello"
    assert len(cluster.json("projects", "ls")) == 2


def test_an_old_project_with_a_slash_in_its_name_is_still_there(cluster, teams):
    old = cluster.push(["true"], project="old")["training_project"]
    renamed(cluster, [(old, "lab/hello")])
    assert cluster.push(["true"], project="lab/hello")["training_project"]["id"] == old["id"]
    status, reply = cluster.api("POST", "/v1/training_projects", {"training_project": {"name": "lab/hello"}})
    assert status == 200 and reply["training_project"]["id"] == old["id"]
    twin = cluster.push(["true"], "--set", "team=lab", project="hello")["training_project"]
    folder = cluster.job_folder(["true"], project="lab/hello")
    assert cluster.error("push", folder / "train.yaml", code=5) == "name_ambiguous"
    status, reply = cluster.api("POST", "/v1/training_projects", {"training_project": {"name": "lab/hello"}})
    assert status == 409 and reply["error"]["id"] == "name_ambiguous"
    for team, project in (("lab", twin["id"]), ("Default", old["id"])):
        job = cluster.push(["true"], "--set", f"team={team}", project="hello" if team == "lab" else "lab/hello")
        assert job["training_project"]["id"] == project


def test_a_project_of_a_team(cluster, teams):
    jobs = {team: push_as(cluster, t, ["true"], project="hello") for team, t in teams.items()}
    made = {team: job["training_project"] for team, job in jobs.items()}
    slash = push_as(cluster, teams["Default"], ["true"], project="slash")["training_project"]
    twin = push_as(cluster, teams["lab"], ["true"], project="twin")["training_project"]
    renamed(cluster, [(slash, "lab/deep/net")])
    reply = resolve(cluster, "project", "hello", 409)
    assert {c["team"] for c in reply["candidates"]} == set(teams) and {c["id"] for c in reply["candidates"]} == {p["id"] for p in made.values()}
    for team, project in made.items():
        assert resolved_id(resolve(cluster, "project", f"{team}/hello")) == project["id"]
        assert resolved_id(resolve(cluster, "project", "hello", as_token=teams[team])) == project["id"]
        assert len(cluster.json("ps", "-a", "--everyone", "-p", f"{team}/hello")) == 1
        assert cluster.json("checkpoints", "ls", "-p", f"{team}/hello") == []
    for word in "lab/deep/net", "Default/lab/deep/net":
        assert resolved_id(resolve(cluster, "project", word)) == slash["id"]
    # what another team has is not there, whatever it is called
    for word in "lab/hello", made["lab"]["id"], made["lab"]["id"][:6]:
        assert resolve(cluster, "project", word, 404, as_token=teams["Default"])["error"]["id"] == "project_not_found"
    assert resolve(cluster, "team", "lab", 404, as_token=teams["Default"])["error"]["id"] == "team_not_found"
    assert resolve(cluster, "project", "lab/", 404) and resolve(cluster, "project", "/hello", 404)
    renamed(cluster, [(twin, "deep/net")])
    both = resolve(cluster, "project", "lab/deep/net", 409)
    assert {c["id"] for c in both["candidates"]} == {slash["id"], twin["id"]}
    cluster.wait(jobs["lab"], "TRAINING_JOB_COMPLETED")  # before it ends its project cannot be deleted
    cluster.cli("projects", "rm", "lab/hello", "--confirm", "hello")
    assert resolved_id(resolve(cluster, "project", "hello")) == made["Default"]["id"]


def test_writes_name_their_project(cluster, teams):
    job = cluster.push(["true"])
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.error("cache", "quota", "10GB", code=2) == cluster.error("cache", "rm", "x", "-y", code=2) == "usage"
    quota = [p["cache_quota_bytes"] for p in cluster.json("projects", "ls")]
    assert cluster.error("cache", "quota", "10", "-p", "p", code=2) == "unit_missing"  # ten bytes
    assert [p["cache_quota_bytes"] for p in cluster.json("projects", "ls")] == quota
    assert "Default/p" in cluster.cli("cache", "quota", "10GB", "-p", "p").err
    assert [p["cache_quota_bytes"] for p in cluster.json("projects", "ls")] == [10**10]


def test_a_checkpoint(cluster):
    job = cluster.push(["for i in 1 2; do mkdir -p $BT_CHECKPOINT_DIR/checkpoint-$i; echo $i > $BT_CHECKPOINT_DIR/checkpoint-$i/a; done"],
                       "--name", "with/slash", runtime={"checkpointing_config": {"enabled": True, "settle": "1s"}})
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    for word in f"{job['id']}/checkpoint-1", f"{job['id'][:6]}/checkpoint-1", "with/slash/checkpoint-1", "@/checkpoint-1", "checkpoint-1":
        reply = resolve(cluster, "checkpoint", word)
        assert reply["checkpoint"]["checkpoint_id"] == "checkpoint-1" and reply["training_job"]["id"] == job["id"]
    assert resolve(cluster, "checkpoint", "latest")["checkpoint"]["state"] == "COMPLETE"
    assert resolve(cluster, "checkpoint", "checkpoint-2", job="with/slash")["training_job"]["id"] == job["id"]
    assert resolve(cluster, "checkpoint", "@/nosuch", 404)["error"]["id"] == "checkpoint_not_found"
    assert resolve(cluster, "checkpoint", "nosuch/checkpoint-1", 404)["error"]["id"] == "job_not_found"
    assert resolve(cluster, "checkpoint", "a/b", 404, job="nosuch")["error"]["id"] == "job_not_found"
    bare = cluster.push(["true"])
    cluster.wait(bare, "TRAINING_JOB_COMPLETED")
    assert resolve(cluster, "checkpoint", "latest", 404)["error"]["id"] == "checkpoint_not_found"
    assert cluster.error("checkpoints", "show", "checkpoint-1", code=3) == "checkpoint_not_found"
    assert cluster.json("checkpoints", "show", f"{job['id']}/latest")["training_job_id"] == job["id"]
