"""Logs and metrics of jobs in the object store: a server that loses its disk, or another one in its place, has every line, once and in order."""
import os
import shutil
import signal
import subprocess

import pytest
from conftest import CALL_S, STOKER, until
from postgres import server, target  # noqa: F401
from s3 import PREFIX, flags, minio, store  # noqa: F401

LINES = 1500


def counting(gate, first, last):
    """Prints lines as a job does, some at once, some slowly, and waits in the middle."""
    return f"for i in $(seq {first} {last}); do echo line $i; [ $((i % 50)) -ne 0 ] || sleep 0.1; done; until test -e /tmp/{gate}; do sleep 0.1; done"


def stored(store, job, file=""):
    return store.keys(f"{PREFIX}/logs/{job['id']}/{file}")


def api_lines(c, job):
    """By pages, as a client of the API reads."""
    path = f"/v1/training_projects/{job['training_project']['id']}/jobs/{job['id']}/logs"
    lines, start = [], 0
    while True:
        status, page = c.api("POST", path, {"direction": "asc", "limit": 400, **({"start_epoch_millis": start} if start else {})})
        assert status == 200, page
        new = page["logs"]
        if not new:
            return [x["message"] for x in lines]
        lines += new
        start = int(new[-1]["timestamp"]) // 1000000 + 1


def whole(c, job, last=LINES):
    said = c.user_lines(job)
    assert said == [f"line {i}" for i in range(1, last + 1)]
    by_api = api_lines(c, job)
    assert [x for x in by_api if x.startswith("line ")] == said
    assert len(by_api) == len(c.logs(job).splitlines())


def lose_logs(c):
    shutil.rmtree(c.data / "logs")


def lose_machine(c):
    """The server's: another one goes on with what is in the store."""
    c.kill()
    lose_logs(c)
    c.restart()


def test_the_folder_of_a_quiet_job_is_lost(empty_cluster, store):
    """Its lines were taken, and not stored yet when the server's machine was lost: they are there again before it prints another one."""
    c = empty_cluster.start(*flags(empty_cluster, store))
    for last in (40, 80):
        job = c.push([counting("one", 1, last)])
        until(lambda: f"line {last}" in c.user_lines(job))
        lose_machine(c)
        until(lambda: f"line {last}" in c.user_lines(job))
        c.release(job, "one")
        c.wait(job, "TRAINING_JOB_COMPLETED")
        whole(c, job, last)


def test_the_folder_of_a_running_job_is_lost(empty_cluster, store):
    c = empty_cluster.start(*flags(empty_cluster, store))
    job = c.push([counting("one", 1, 900), counting("two", 901, LINES)])
    until(lambda: "line 900" in c.user_lines(job))
    until(lambda: stored(store, job, "node-0.log"))
    platform = [x for x in c.logs(job).splitlines() if x.startswith("stoker:")]
    follower = subprocess.Popen([STOKER, "logs", "-f", job["id"]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=c.cli_environment())
    c.release(job, "one")
    until(lambda: "line 1000" in c.user_lines(job))
    lose_machine(c)
    until(lambda: f"line {LINES}" in c.user_lines(job))
    c.release(job, "two")
    c.wait(job, "TRAINING_JOB_COMPLETED")
    whole(c, job)
    followed, _ = follower.communicate(timeout=CALL_S)
    assert [x for x in followed.splitlines() if x.startswith("line ")] == c.user_lines(job)
    assert [x for x in c.logs(job).splitlines() if x.startswith("stoker:")][:len(platform)] == platform
    until(lambda: len(stored(store, job, "node-0.log")) == 1)  # one object, once it has settled
    c.stop()
    lose_logs(c)
    assert c.cli("server", "--data", c.data, "--check", "--log-level", "error", *c.flags).out.endswith(": 0 faults\n")
    c.restart()
    whole(c, job)
    assert c.json("metrics", job["id"])["per_node_metrics"][0]["metrics"]["cpu_usage"]
    assert c.api("DELETE", f"/v1/training_projects/{job['training_project']['id']}/jobs/{job['id']}")[0] == 200
    until(lambda: not stored(store, job))


def test_the_store_goes_away(empty_cluster, minio):
    """Lines wait in the data folder, and are read from there."""
    c = empty_cluster.start(*flags(empty_cluster, minio))
    job = c.push([counting("one", 1, 900), counting("two", 901, LINES)])
    until(lambda: "line 900" in c.user_lines(job))
    minio.kill()
    c.release(job, "one")
    until(lambda: f"line {LINES}" in c.user_lines(job))
    until(lambda: "job logs wait in the data folder" in c.log.read_text())
    c.kill()
    c.restart()
    minio.start()
    c.release(job, "two")
    c.wait(job, "TRAINING_JOB_COMPLETED")
    whole(c, job)
    c.stop()
    lose_logs(c)
    c.restart()
    whole(c, job)


@pytest.mark.parametrize("how", ["kill", "freeze"])
def test_a_server_starts_without_its_store(empty_cluster, minio, how):
    """What an earlier server left in the folder is read from there, of a job that ended and of one that runs."""
    c = empty_cluster.start(*flags(empty_cluster, minio))
    over, runs = c.push([counting("one", 1, 900)]), c.push([counting("one", 1, 900), counting("two", 901, LINES)])
    for job in (over, runs):
        until(lambda job=job: "line 900" in c.user_lines(job))
    c.release(over, "one")
    c.wait(over, "TRAINING_JOB_COMPLETED")
    said, metrics = c.logs(over), c.json("metrics", over["id"])["per_node_metrics"]
    c.kill()
    (minio.kill if how == "kill" else minio.freeze)()
    c.restart()
    assert c.logs(over) == said and c.json("metrics", over["id"])["per_node_metrics"] == metrics
    whole(c, over, 900)
    assert c.user_lines(runs)[:900] == [f"line {i}" for i in range(1, 901)]
    c.release(runs, "one")
    (minio.start if how == "kill" else minio.thaw)()
    c.release(runs, "two")
    c.wait(runs, "TRAINING_JOB_COMPLETED")
    whole(c, runs)
    assert c.logs(over) == said
    lose_machine(c)
    whole(c, runs)
    assert c.logs(over) == said


def test_a_dead_runner_is_swept_without_the_store(empty_cluster, minio):
    """What the server has of its log lies in the store only, which hangs: the sweep waits and asks again, and the job ends with all of it."""
    c = empty_cluster.start(*flags(empty_cluster, minio))
    job = c.push(["for i in $(seq 1 900); do echo line $i; done; until test -e $BT_SCRATCH_DIR/go; do sleep 0.1; done",
                  f"for i in $(seq 901 {LINES}); do echo line $i; done; exit 7"])
    until(lambda: "line 900" in c.user_lines(job))
    until(lambda: stored(minio, job, "node-0.log"))
    folder, = (c.data / "runs").glob("*-0")
    c.kill()
    (folder / "scratch/go").touch()
    until(lambda: (folder / "exit.json").exists())
    runner, = (line for line in c.processes() if f"runner {c.data}" in line and "--sandbox-exec" not in line)
    os.kill(int(runner.split()[0]), signal.SIGKILL)
    lose_logs(c)
    minio.freeze()
    c.restart()
    until(lambda: "had not sent is still being sent" in c.log.read_text())
    assert c.job(job)["current_status"] == "TRAINING_JOB_RUNNING"
    minio.thaw()
    assert "exit code 7" in c.wait(job, "TRAINING_JOB_FAILED")["error_message"]
    whole(c, job)


def test_a_store_that_hangs_ends_no_job_late(empty_cluster, minio):
    c = empty_cluster.start(*flags(empty_cluster, minio))
    jobs = [c.push([counting("one", 1, LINES)]) for _ in range(2)]
    for job in jobs:
        until(lambda: f"line {LINES}" in c.user_lines(job))
    minio.freeze()
    for job in jobs:
        c.release(job, "one")
    for job in jobs:
        c.wait(job, "TRAINING_JOB_COMPLETED")
    minio.thaw()
    until(lambda: all(len(stored(minio, job, "node-0.log")) == 1 for job in jobs))
    lose_machine(c)
    for job in jobs:
        whole(c, job)


def test_a_job_that_has_just_ended(empty_cluster, minio):
    """Its runner is gone, and so is the folder: what was said to be over is stored."""
    c = empty_cluster.start(*flags(empty_cluster, minio))
    for _ in range(3):
        job = c.push([f"for i in $(seq 1 {LINES}); do echo line $i; done"])
        c.wait(job, "TRAINING_JOB_COMPLETED")
        c.kill()
        shown = (c.data / "logs" / job["id"] / "node-0.log").read_text()
        lose_logs(c)
        c.restart()
        whole(c, job)
        assert len(c.logs(job).splitlines()) == len(shown.splitlines())
    c.stop()
    check = ("server", "--data", c.data, "--check", "--log-level", "error", *c.flags)
    assert c.cli(*check).out.endswith(": 0 faults\n")
    key = stored(minio, job, "node-0.log")[0]
    minio.client.put_object(Bucket="data", Key=key, Body=minio.body(key)[:-1] + b"?")
    assert f"log of job {job['id']}: " in c.cli(*check, code=None).out


def test_another_server(empty_cluster, minio, server, target):  # noqa: F811
    """The same database and objects, and a folder that has nothing but the master key."""
    c = empty_cluster
    args = [*flags(c, minio), "--database", target]
    c.start(*args, env=server.env)
    job = c.push([f"for i in $(seq 1 {LINES}); do echo line $i; done"])
    c.wait(job, "TRAINING_JOB_COMPLETED")
    whole(c, job)
    shown = c.logs(job)
    until(lambda: not list((c.data / "runs").iterdir()))  # while a runner lives, the port is kept for this folder's server
    c.stop()
    first, c.data = c.data, c.folder / "other"
    c.data.mkdir()
    for name in ("master.key", "admin-token"):
        shutil.copy(first / name, c.data / name)
    c.start(*args, env=server.env)
    whole(c, job)
    assert c.logs(job) == shown
    again = c.push(["echo again"])
    c.wait(again, "TRAINING_JOB_COMPLETED")
    c.stop()
    c.data = first  # which knows nothing of the second job
    c.start(*args, env=server.env)
    assert c.user_lines(again) == ["again"]
    whole(c, job)


def test_one_machine_keeps_one_copy(empty_cluster):
    c = empty_cluster.start()
    job = c.push(["echo hello"])
    c.wait(job, "TRAINING_JOB_COMPLETED")
    c.stop()
    assert (c.data / "logs" / job["id"] / "node-0.log").exists()
    assert not list((c.data / "objects").glob("logs/*")) and not list((c.data / "logs").rglob("*.sent"))
