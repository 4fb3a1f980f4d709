"""examples/resume, as `init -e resume` writes it: one job file that starts fresh the first time and resumes ever after."""
import json
import os
import re
import signal

import pytest
from conftest import until

pytestmark = pytest.mark.timeout(1800)

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LONG = 600  # seconds, to build the environment on a machine that has other things to do
FRESH = "starting fresh"


def push(cluster, folder, steps):
    """On one thread: two that spin for each other on a machine with other tests take many times as long."""
    return json.loads(cluster.cli("push", "-e", f"STEPS={steps}", "-e", "OMP_NUM_THREADS=1", "-o", "json", cwd=folder).out)


def complete(cluster, job):
    """Steps of the complete checkpoints in the store."""
    return sorted(int(c["checkpoint_id"].rsplit("-", 1)[1]) for c in cluster.json("checkpoints", "ls", job["id"]) if c["state"] == "COMPLETE")


def begun(cluster, job):
    """Where each attempt began, 0 for fresh."""
    lines = cluster.user_lines(job)
    return [0 if line == FRESH else int(line.rsplit("-", 1)[1]) for line in lines if line == FRESH or line.startswith("resuming from ")]


def goes_on(cluster, job, attempts):
    """The latest attempt trains, and has added to what was there. Returns the steps where attempts began."""
    starts = until(lambda: len(begun(cluster, job)) == attempts and begun(cluster, job), LONG)
    until(lambda: any(step > starts[-1] for step in complete(cluster, job)), LONG)
    return starts


def test_fresh_then_resumed_ever_after(empty_cluster):
    cluster = empty_cluster.start("--cpus", "2", "--memory", "8Gi", env={"PATH": SYSTEM_PATH})
    folder = cluster.folder / "mine"
    cluster.cli("init", "-e", "resume", folder)
    job = push(cluster, folder, 1_000_000)
    assert goes_on(cluster, job, 1) == [0]

    cluster.cli("exec", job["id"], "--", "pkill", "-9", "python")
    starts = goes_on(cluster, job, 2)
    assert starts[1] >= 20 and starts[1] in complete(cluster, job)

    for line in cluster.processes():
        if " runner /" in line:
            os.kill(int(line.split()[0]), signal.SIGKILL)
    starts = until(lambda: len(begun(cluster, job)) == 3 and begun(cluster, job), LONG)
    assert starts[2] >= starts[1] and starts[2] in complete(cluster, job)

    cluster.cli("stop", job["id"], "--now")
    cluster.wait(job, "TRAINING_JOB_STOPPED")
    newest = complete(cluster, job)[-1]
    again = push(cluster, folder, newest + 20)
    cluster.wait(again, "TRAINING_JOB_COMPLETED", deadline=LONG)
    assert begun(cluster, again) == [newest] and complete(cluster, again) == [newest + 20]
    steps = [int(step) for step in re.findall(r"^step (\d+)/", cluster.logs(again), re.M)]
    assert steps == [newest + 10, newest + 20]
