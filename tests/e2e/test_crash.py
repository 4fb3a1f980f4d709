"""The server killed where it hurts: nothing acknowledged is lost, user code starts once, nothing is left behind."""
import random
import time
import urllib.error

import pytest

from conftest import until

LABELS = [
    "push:before", "push:after", "place:before", "place:after", "freeze:before", "freeze:after", "launch:intent",
    "launch:before", "launch:after", "claim:before", "claim:after", "ready:before", "exit:before-record",
    "exit:after-record", "exit:before-step", "exit:after-step",
]
JOB = {"training_job": {"compute": {"cpu_count": 0.5, "memory": "128Mi"},
                        "runtime": {"start_commands": ["echo oracle-$$", "sleep 0.3"]}}}


def push(cluster, project, key):
    """The job's id; None when the server died on the way. The key makes a second try safe."""
    try:
        status, reply = cluster.api("POST", f"/v1/training_projects/{project}/jobs", JOB, headers={"Idempotency-Key": key})
    except (OSError, urllib.error.URLError):
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


@pytest.mark.parametrize("label", LABELS)
def test_every_labelled_step(cluster, monkeypatch, label):
    project = cluster.api("POST", "/v1/training_projects", {"training_project": {"name": "p"}})[1]["training_project"]["id"]
    cluster.kill()
    plain = cluster.environment
    monkeypatch.setattr(cluster, "environment", lambda **more: plain(STOKER_CRASH_AT=label, **more))
    cluster.restart()
    push(cluster, project, label)
    assert cluster.process.wait(30) == 9
    monkeypatch.setattr(cluster, "environment", plain)
    cluster.restart()
    check(cluster, project, [push(cluster, project, label)])
    assert len(cluster.json("ps", "-a")) == 1


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
