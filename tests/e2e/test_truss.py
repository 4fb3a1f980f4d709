"""The unmodified truss client, from its registry, drives the server: how it gets here, pushes, logs."""
import hashlib
import json
import os
import sqlite3
import subprocess
import time

from conftest import CALL_S, STOKER
from truss_client import OLDER, PYTHON, TRUSS, latest, messages, truss  # noqa: F401 (a fixture)


def user_lines(truss, text, job=None):
    """What the client printed without the platform's own lines; each of those must be there, once, in order."""
    system = [line.removeprefix("stoker: ") for line in truss.cluster.logs(job or latest(truss.cluster), "--system").splitlines()]
    shown, wanted = [], iter(system)
    waiting = next(wanted, None)
    for message in messages(text):
        if message == waiting:
            waiting = next(wanted, None)
        else:
            shown.append(message)
    assert waiting is None, f"not shown: {waiting}"
    return shown


def test_whoami_by_key_by_bearer_and_by_environment(truss):
    assert "admin" in truss.run("whoami")
    (truss.home / ".trussrc").write_text((truss.home / ".trussrc").read_text() + "api_key_use_bearer = true\n")
    assert "admin" in truss.run("whoami")
    assert "demo" not in truss.train("view")
    (truss.home / ".trussrc").unlink()
    env = {"BASETEN_TRUSS_AUTH_REMOTE_URL": "http://localhost:8000", "BASETEN_TRUSS_AUTH_API_KEY": truss.cluster.token}
    assert "admin" in truss.run("whoami", env=env)
    env["BASETEN_TRUSS_AUTH_API_KEY"] = "stoker_wrong"
    out = truss.run("whoami", env=env, code=1)
    assert "token" in out and "Traceback" not in out


def test_recipe_a_port_8000_and_a_line_in_hosts(empty_cluster):
    """As the documentation says, in a network namespace of its own: nothing but 127.0.0.1 is there to leak a key to."""
    c = empty_cluster
    (c.folder / "hosts").write_text("127.0.0.1 localhost api.localhost\n")
    script = f"""
        {STOKER} server --data {c.data} > {c.folder}/out & server=$!
        until grep -q listening {c.folder}/out; do sleep 0.1; done
        STOKER_URL=http://127.0.0.1:8000 STOKER_TOKEN=$(cat {c.data}/admin-token) {STOKER} login --print-trussrc > $HOME/.trussrc
        {TRUSS} whoami && {TRUSS} train view --non-interactive; code=$?
        kill $server; wait $server; exit $code"""
    done = subprocess.run(["bwrap", "--dev-bind", "/", "/", "--ro-bind", c.folder / "hosts", "/etc/hosts", "--unshare-net", "--unshare-user",
                           "sh", "-c", script], env=c.environment(TRUSS_NO_UPDATE_CHECK="1", BASETEN_TRUSS_AUTH_KEYRING_DISABLED="1"),
                          capture_output=True, text=True, timeout=CALL_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "admin" in done.stdout and "Training Projects" in done.stdout


def test_print_trussrc_never_names_another_url(truss):
    done = truss.cluster.cli("login", "--print-trussrc")
    assert "remote_url = http://localhost:8000\n" in done.out and f"api_key = {truss.cluster.token}\n" in done.out
    assert f"http_proxy={truss.cluster.url}" in done.err and "USER_TRUSSRC_PATH" not in done.err


def test_print_trussrc_says_when_the_section_is_there(truss):
    """Appended to it, the client would read neither; a file of its own works."""
    env = {"USER_TRUSSRC_PATH": str(truss.home / ".trussrc")}
    done = truss.cluster.cli("login", "--print-trussrc", env=env)
    assert str(truss.home / ".trussrc") in done.err and "USER_TRUSSRC_PATH" in done.err
    (truss.home / "own").write_text(done.out)
    assert "admin" in truss.run("whoami", env={"USER_TRUSSRC_PATH": str(truss.home / "own")})


def test_push_tail(truss):
    folder = truss.project(["cat data.txt", "echo from $BT_TRAINING_PROJECT_NAME"], files={"data.txt": "pushed\n"})
    out = truss.train("push", "config.py", "--tail", cwd=folder)
    assert "pushed" in out and "from demo" in out
    assert truss.cluster.wait(latest(truss.cluster))["current_status"] == "TRAINING_JOB_COMPLETED"
    assert "--images host" in truss.cluster.logs(latest(truss.cluster), "--system")


def test_the_release_before_it(truss):
    """The one that the contract was written from: the same server does for both."""
    truss.env["PYTHONPATH"] = str(OLDER)
    assert OLDER.name.removeprefix("truss-") in truss.run("--version")
    out = truss.train("push", "config.py", "--tail", cwd=truss.project(["cat data.txt"], files={"data.txt": "pushed\n"}))
    job = latest(truss.cluster)
    assert "pushed" in out and job["id"] in truss.train("view", "--project", "demo")
    assert truss.cluster.wait(job)["current_status"] == "TRAINING_JOB_COMPLETED"
    assert user_lines(truss, truss.train("logs", "--job-id", job["id"]), job) == ["pushed"]


def test_overrides_of_push(truss):
    folder = truss.project(["false"])
    job = truss.push(None, "--job-name", "named", "--priority", "7", "--entrypoint", "echo other", "--spot", cwd=folder)
    assert (job["name"], job["priority"], job["availability_model"]) == ("named", 7, "spot")
    truss.cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert truss.cluster.user_lines(job) == ["other"]
    assert "availability_model spot" in truss.cluster.logs(job, "--system")
    for flags, word in [(["--accelerator", "H200:8"], "H200"), (["--node-count", "30"], "node"), (["--interactive", "on_startup"], "interactive_session")]:
        assert word in truss.train("push", "config.py", *flags, cwd=folder, code=1)


def test_every_line_of_a_burst_once_and_in_order(truss):
    """Thousands of lines in a millisecond, and more than one page of them."""
    job = truss.push(["seq 30000"])
    truss.cluster.wait(job, "TRAINING_JOB_COMPLETED")
    wanted = [str(i) for i in range(1, 30001)]
    assert user_lines(truss, truss.train("logs", "--job-id", job["id"]), job) == wanted
    assert user_lines(truss, truss.train("logs", "--job-id", job["id"], "--tail"), job) == wanted


def test_tail_of_a_burst_while_it_is_printed(truss):
    folder = truss.project(["seq 10000", "sleep 3", "seq 10001 20000"])
    out = truss.train("push", "config.py", "--tail", cwd=folder)
    assert user_lines(truss, out) == [str(i) for i in range(1, 20001)]


def test_equal_lines_are_all_shown(truss):
    job = truss.push(["seq 1500 | sed s/.*/again/"])
    truss.cluster.wait(job, "TRAINING_JOB_COMPLETED")
    for flags in [], ["--tail"]:
        assert user_lines(truss, truss.train("logs", "--job-id", job["id"], *flags), job) == ["again"] * 1500


def test_a_silent_job_ends_its_tail(truss):
    out = truss.train("push", "config.py", "--tail", cwd=truss.project(["true"]))
    assert "completed" in out.lower() and user_lines(truss, out) == []


def test_a_failed_job_ends_its_tail(truss):
    out = truss.train("push", "config.py", "--tail", cwd=truss.project(["echo before", "exit 3"]))
    assert user_lines(truss, out) == ["before"] and "failed" in out.lower()


def test_a_job_stopped_while_pending_ends_its_tail(truss):
    big = 'cpu_count=4, memory="256Mi"'
    first = truss.push(["sleep 600"], compute=big)
    second = truss.push(["echo never"], compute=big)
    assert second["current_status"] == "TRAINING_JOB_PENDING"
    tail = subprocess.Popen([TRUSS, "train", "logs", "--tail", "--non-interactive", "--job-id", second["id"]], env=truss.env,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=truss.home)
    time.sleep(3)  # it waits for the job to start by then, or finds it stopped: both must be fine
    truss.train("stop", "--job-id", second["id"])
    out, _ = tail.communicate(timeout=CALL_S)
    assert tail.returncode == 0 and "stopped" in out.lower() and "never" not in out
    assert messages(truss.train("logs", "--job-id", second["id"]))
    truss.train("stop", "--job-id", first["id"])
    truss.cluster.wait(first, "TRAINING_JOB_STOPPED")


def test_a_job_that_fails_to_deploy_ends_its_tail(truss):
    folder = truss.project(["true"], job='weights=[WeightsSource(source="https://localhost:1/x", mount_location="/w")]')
    out = truss.train("push", "config.py", "--tail", cwd=folder)
    assert "allow-source-network" in out


def test_a_job_that_finished_yesterday(truss):
    """Its lines are where they were, a day after it was made: also what a silence of many hours looks like."""
    job = truss.push(["seq 1500"])
    truss.cluster.wait(job, "TRAINING_JOB_COMPLETED")
    truss.cluster.stop()
    with sqlite3.connect(truss.cluster.data / "stoker.db") as db:
        db.execute("UPDATE jobs SET created_ms = created_ms - 86400000")
    db.close()
    truss.cluster.restart()
    wanted = [str(i) for i in range(1, 1501)]
    assert user_lines(truss, truss.train("logs", "--job-id", job["id"]), job) == wanted
    assert user_lines(truss, truss.train("logs", "--job-id", job["id"], "--tail"), job) == wanted


def test_sdk_push_of_a_large_archive(truss):
    folder = truss.project(["sha256sum < big.bin"])
    data = os.urandom(20 << 20)
    (folder / "big.bin").write_bytes(data)
    script = "import json, pathlib, truss_train; print(json.dumps(truss_train.push(pathlib.Path('config.py'))['id']))"
    done = subprocess.run([PYTHON, "-c", script], env=truss.env, cwd=folder, capture_output=True, text=True, timeout=CALL_S)
    assert done.returncode == 0, done.stderr
    job = truss.cluster.json("view", json.loads(done.stdout.splitlines()[-1]))
    truss.cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert truss.cluster.user_lines(job)[-1].split()[0] == hashlib.sha256(data).hexdigest()
