"""Every labelled step of the server and of the runner, as the last thing that the process does.

After the restart a job ends properly, its user code ran at most once an attempt (each run appends a line to a file
in the project cache), and nothing is left behind: no process, no mount (the fixture), no attempt folder, no upload.
"""
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import signal
import sqlite3
import subprocess
import time

import pytest
from conftest import CALL_S, DEADLINE_S, FINAL, ROOT, STOKER, until

LABEL = re.compile(r'(app|run)_crash_at\("([a-z:-]+)"\)')
CACHE = {"cache_config": {"enabled": True}, "checkpointing_config": {"enabled": True, "settle": "1s"}}
ORACLE = ["echo attempt $BT_RETRY_COUNT >> $BT_PROJECT_CACHE_DIR/ran",
          "mkdir $BT_CHECKPOINT_DIR/checkpoint-1; echo weights > $BT_CHECKPOINT_DIR/checkpoint-1/model.txt"]


def labels(kind):
    found = set()
    for path in (ROOT / "src").rglob("*.c"):
        found.update(name for which, name in LABEL.findall(path.read_text()) if which == kind)
    assert found
    return sorted(found)


def runs(cluster, job):
    path = cluster.data / "cache/projects" / job["training_project"]["id"] / "ran"
    return path.read_text().splitlines() if path.exists() else []


def push_in_background(cluster, folder):
    return subprocess.Popen([STOKER, "push", str(folder / "train.yaml"), "-o", "json"], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=cluster.cli_environment())


def nothing_left(cluster, job):
    """What an ended job keeps: its rows, its log, its checkpoints, its code."""
    assert not list((cluster.data / "cache").rglob("*.tmp*"))
    until(lambda: not list((cluster.data / "runs").iterdir()))
    objects = cluster.data / "objects"
    kept = [str(p.relative_to(objects)) for p in objects.rglob("*") if p.is_file()]
    strange = [k for k in kept if not re.match(r"stoker\.json$|uploads/[^/]+\.tgz$|training_projects/[^/]+/jobs/[^/]+/rank-0/", k)]
    assert not strange, (job["id"], strange)


def log_is_whole(cluster, job):
    lines = cluster.logs(job, "--system").splitlines()
    assert "pushed by" in lines[0] and "stoker: job " in lines[-1], lines
    assert len(lines) == len(set(lines)) or job["attempt"] > 1, lines


# Those of maintenance, of several nodes (test_nodes.py), of deployments (test_serving.py) and of objects elsewhere (test_object_weights.py) have tests of their own: the life of this job does not reach them.
@pytest.mark.parametrize("label", [x for x in labels("app") if not x.startswith(("gc:", "verify:", "union:", "evict:", "weights:", "hub:", "repo:", "artifact:", "deployment:"))])
def test_server_dies(empty_cluster, label):
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi", env={"STOKER_CRASH_AT": label})
    c.cli("secrets", "set", "ops", stdin="https://127.0.0.1:9/nobody-is-there")
    folder = c.job_folder(ORACLE, runtime=CACHE, notify=[{"webhook": "ops", "on": ["running"]}])
    push = push_in_background(c, folder)
    try:
        code = c.process.wait(DEADLINE_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"never reached {label}: {push.communicate(timeout=CALL_S)}")
    assert code == 9, label
    c.restart()
    out, words = push.communicate(timeout=CALL_S)
    assert push.returncode == 0, words
    job = json.loads(out)
    done = c.wait(job, "TRAINING_JOB_COMPLETED")
    assert [j["id"] for j in c.json("ps", "-a")] == [job["id"]]
    assert runs(c, job) == ["attempt 0"]
    assert [k["checkpoint_id"] for k in c.json("checkpoints", "ls", job["id"])] == ["checkpoint-1"]
    until(lambda: [e for e in c.json("events", job["id"]) if e["kind"] == "notify"])
    log_is_whole(c, done)
    nothing_left(c, job)
    c.stop()
    assert c.cli("server", "--data", c.data, "--check", "--log-level", "error").out.endswith(": 0 faults\n")


OUTCOME = {"claimed": ("DEPLOY_FAILED", 0), "staged": ("DEPLOY_FAILED", 0), "ready": ("DEPLOY_FAILED", 0),
           "started": ("FAILED", 1), "exited": ("FAILED", 1), "recorded": ("COMPLETED", 1), "synced": ("COMPLETED", 1),
           "reported": ("COMPLETED", 1)}


@pytest.mark.parametrize("label", labels("run"))
def test_runner_dies(empty_cluster, label):
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi", env={"STOKER_CRASH_AT": label})
    job = json.loads(c.cli("push", c.job_folder(ORACLE, runtime=CACHE) / "train.yaml", "-o", "json").out)
    done = c.wait(job, *FINAL)
    status, most = OUTCOME[label]
    assert done["current_status"] == "TRAINING_JOB_" + status, done
    assert len(runs(c, job)) <= most and (most == 0 or status == "FAILED" or runs(c, job) == ["attempt 0"])
    if status != "COMPLETED":
        assert done["error_message"], done
    if label in ("recorded", "synced", "reported"):
        assert [k["checkpoint_id"] for k in c.json("checkpoints", "ls", job["id"])] == ["checkpoint-1"]
    elif label == "exited":  # nobody knows how it ended, nor whether all was written
        assert [k["checkpoint_id"] for k in c.json("checkpoints", "ls", job["id"], "--all")] == ["checkpoint-1"]
    log_is_whole(c, done)
    nothing_left(c, job)


@pytest.mark.parametrize("how", ["killed", "ended"])
def test_what_a_dead_runner_had_not_told(empty_cluster, how):
    """The server was away for the end of a runner: a sweep brings megabytes of log, and the exit record where there is one."""
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi")
    c.cli("secrets", "set", "key", stdin="a-word-of-ours")
    job = c.push(["until test -e $BT_SCRATCH_DIR/go; do sleep 0.1; done",
                  f"seq -f 'line %.0f of many that only a folder knows' {MANY}; echo key=$KEY; echo last",
                  "exit 7" if how == "ended" else "sleep 600"],
                 runtime={"environment_variables": {"KEY": {"name": "key"}}})
    c.wait(job, "TRAINING_JOB_RUNNING")
    folder, = (c.data / "runs").glob("*-0")
    c.kill()
    (folder / "scratch/go").touch()
    until(lambda: b" o last\n" in (folder / "log").read_bytes() and (how == "killed" or (folder / "exit.json").exists()))
    runner, = (line for line in c.processes() if f"runner {c.data}" in line and "--sandbox-exec" not in line)
    os.kill(int(runner.split()[0]), signal.SIGKILL)
    with (folder / "log").open("ab") as log:
        log.write(b"1790000000000000000 o a record that was cut")
    c.restart()
    done = c.wait(job, "TRAINING_JOB_FAILED")
    assert {"killed": "exited without a record of its job", "ended": "exit code 7"}[how] in done["error_message"], done
    log = c.logs(job)
    assert log.count(" of many that only ") == MANY and log.count("key=[redacted]") == 1
    assert "a-word-of-ours" not in log and "was cut" not in log
    assert log.index("stoker: job failed") > log.index("key=[redacted]") > log.rindex(" of many that only "), log[-1000:]
    nothing_left(c, job)


MANY = 100_000
LARGE = 600_000_000
SLOW_S, PIECE_S = 0.5, 0.01


def slowed(pids):
    """A process gets so little of the machine that a large file takes it a minute."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    time.sleep(SLOW_S)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    time.sleep(PIECE_S)


def parent(pid):
    with contextlib.suppress(OSError):
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


def test_a_large_file_outlasts_a_sweep(empty_cluster):
    """What a killed runner had not sent is sent, however long one file of it takes: the next attempt begins with it."""
    c = empty_cluster.start("--cpus", "4", "--memory", "8Gi")
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({LARGE},), }}".ljust(117) + "\n"
    array = f"printf '\\x93NUMPY\\1\\0\\x76\\0'; cat header; head -c {LARGE} /dev/urandom"
    job = c.push(["test -z \"$STOKER_RESUME_FROM\" || exit 0", f"({array}) > $BT_CHECKPOINT_DIR/large.npy; echo written; sleep 600"],
                 files={"header": header}, compute={"cpu_count": 1, "memory": "2Gi"}, retry={"on": ["node_fail"]},
                 runtime={"checkpointing_config": {"enabled": True}, "load_checkpoint_config": {"enabled": True}})
    until(lambda: "written" in c.logs(job))

    def of(word):
        return [int(line.split()[0]) for line in c.processes() if f"runner {word}" in line and "--sandbox-exec" not in line]

    os.kill(*of(str(c.data)), signal.SIGKILL)
    begun, seen = time.monotonic(), set()
    while c.job(job)["attempt"] == 1 and time.monotonic() - begun < DEADLINE_S:
        sweepers = of("--sweep")
        seen.update(pid for pid in sweepers if parent(pid) not in sweepers)  # not what it has forked, before its exec
        for _ in range(20 if sweepers else 0):
            slowed(sweepers)
    assert len(seen) == 1, "it was not begun again"
    c.wait(job, "TRAINING_JOB_COMPLETED")
    row, = c.json("checkpoints", "ls", job["id"], "--all")
    assert row["size_bytes"] == 10 + len(header) + LARGE, row


def test_a_lost_attempt_is_tried_again_once(empty_cluster):
    """The first runner dies before the claim is used; the second attempt runs the code, once."""
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi", env={"STOKER_CRASH_AT": "staged"})
    folder = c.job_folder(ORACLE, runtime=CACHE, retry={"max_attempts": 2, "on": ["node_fail"]})
    job = json.loads(c.cli("push", folder / "train.yaml", "-o", "json").out)
    until(lambda: [p for p in pathlib.Path(c.data / "runs").glob("*/runner.log")])
    c.kill()
    c.restart()
    done = c.wait(job, "TRAINING_JOB_COMPLETED")
    assert runs(c, job) == [f"attempt {done['attempt'] - 1}"]
    nothing_left(c, job)


def test_a_runner_that_never_claimed_is_launched_again(empty_cluster):
    """The server dies before its runner could claim, and the runner dies too, as one does that another leader has refused: nothing has run."""
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi", env={"STOKER_CRASH_AT": "claim:before"})
    push = push_in_background(c, c.job_folder(ORACLE, runtime=CACHE))
    assert c.process.wait(DEADLINE_S) == 9
    push.communicate(timeout=CALL_S)
    runner, = (json.loads(p.read_text())["pid"] for p in (c.data / "runs").glob("*/runner.json"))
    os.kill(runner, signal.SIGKILL)
    c.restart()
    job = c.json("ps", "-a")[0]
    done = c.wait(job, "TRAINING_JOB_COMPLETED")
    assert done["attempt"] == 1 and runs(c, job) == ["attempt 0"], done
    log_is_whole(c, done)
    nothing_left(c, job)


@pytest.mark.parametrize("change,error", [("DELETE FROM secrets", "secret_not_found"), ("UPDATE secrets SET sealed = x'00'", "corrupt"),
                                          ("UPDATE jobs SET frozen_json = '{'", "invalid")], ids=["deleted", "damaged", "record"])
def test_a_claim_that_fails_for_good(empty_cluster, change, error):
    """What the job needs goes between its placement and the claims of its two runners: it ends with the cause, and so do they."""
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi", env={"STOKER_CRASH_AT": "claim:before"})
    c.cli("secrets", "set", "key", stdin="value")
    folder = c.job_folder(ORACLE, compute={"cpu_count": 1, "memory": "256Mi", "node_count": 2},
                          runtime={**CACHE, "environment_variables": {"KEY": {"name": "key"}}})
    push = push_in_background(c, folder)
    assert c.process.wait(DEADLINE_S) == 9
    push.communicate(timeout=CALL_S)
    with contextlib.closing(sqlite3.connect(c.data / "stoker.db")) as db:
        assert db.execute(change).rowcount == 1
        db.commit()
    c.restart()
    job = c.json("ps", "-a")[0]
    done = c.wait(job, "TRAINING_JOB_DEPLOY_FAILED")
    assert done["error_id"] == error and done["error_message"], done
    assert runs(c, job) == []
    log_is_whole(c, done)
    nothing_left(c, job)


JOB = {"training_job": {"compute": {"cpu_count": 0.5, "memory": "128Mi"},
                        "runtime": {"start_commands": ["echo oracle-$$", "sleep 0.3"]}}}


def push(cluster, project, key):
    """The job's id; None when the server died on the way. The key makes a second try safe."""
    try:
        status, reply = cluster.api("POST", f"/v1/training_projects/{project}/jobs", JOB, headers={"Idempotency-Key": key})
    except (OSError, http.client.HTTPException):  # no answer, or one that is cut
        return None
    assert status == 200, reply
    return reply["training_job"]["id"]


def check(cluster, project, ids):
    until(lambda: not cluster.json("ps"))
    for job in ids:
        shown = cluster.job({"id": job})
        log = cluster.api("GET", f"/v1/training_projects/{project}/jobs/{job}/logs/raw?rank=0", raw=True)[1]
        assert shown["current_status"] == "TRAINING_JOB_COMPLETED", shown
        assert log.count(b"oracle-") == 1 and b"pushed by" in log, log
    until(lambda: not list((cluster.data / "runs").iterdir()))


def test_killed_again_and_again(cluster):
    project = cluster.api("POST", "/v1/training_projects", {"training_project": {"name": "p"}})[1]["training_project"]["id"]
    dice = random.Random(7)
    jobs = {}
    for _ in range(15):
        end = time.monotonic() + dice.uniform(0.2, 1.5)
        while time.monotonic() < end:
            for key in (f"k{i}" for i in range(10)):
                if jobs.get(key) is None:
                    jobs[key] = push(cluster, project, key)
                    break
            time.sleep(0.05)
        cluster.kill()
        cluster.restart()
    for key in (f"k{i}" for i in range(10)):
        jobs[key] = jobs.get(key) or push(cluster, project, key)
    check(cluster, project, set(jobs.values()))
    assert len(cluster.json("ps", "-a")) == 10
    cluster.stop()
    assert cluster.cli("server", "--data", cluster.data, "--check", "--log-level", "error").out.endswith(": 0 faults\n")
