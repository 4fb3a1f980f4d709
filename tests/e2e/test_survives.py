"""A job that survives: one file that starts fresh the first time, and goes on from its newest complete checkpoint ever after."""
import os
import signal
import subprocess

import pytest
from conftest import STOKER, until

# Counts to LAST, one checkpoint a step, each published by one rename; dies after step DIE of a life that began before it.
TRAINER = """
import json, os, signal, sys, time
out, last, die = os.environ["BT_CHECKPOINT_DIR"], int(os.environ.get("LAST", "6")), int(os.environ.get("DIE", "0"))
start = os.environ.get("STOKER_RESUME_FROM")
step = json.load(open(f"{start}/state.json"))["step"] if start else 0
print("begins at", step, "from", os.path.basename(start) if start else None, flush=True)
while step < last:
    step += 1
    tmp = f"{out}/tmp-checkpoint-{step}"
    os.makedirs(tmp)
    with open(f"{tmp}/state.json", "w") as f:
        json.dump({"step": step, "log": "x" * int(os.environ.get("BYTES", "1000"))}, f)
    os.rename(tmp, f"{out}/checkpoint-{step}")
    print("step", step, flush=True)
    time.sleep(float(os.environ.get("PACE", "0")))
    if step == die and not start:
        while not os.path.exists(os.environ.get("GATE", "/")):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL) if os.environ.get("HOW") == "kill" else sys.exit(3)
"""


def runtime(load=True, **environment):
    return {"checkpointing_config": {"enabled": True, "settle": "1s"}, "environment_variables": {k: str(v) for k, v in environment.items()},
            **({"load_checkpoint_config": {"enabled": True} if load is True else load} if load else {})}


def train(cluster, load=True, environment=None, **kw):
    return cluster.push(["python3 train.py"], files={"train.py": TRAINER}, runtime=runtime(load, **(environment or {})), **kw)


def begun(cluster, job):
    """Where each attempt began, in order."""
    return [line[len("begins at "):] for line in cluster.user_lines(job) if line.startswith("begins at ")]


def complete(cluster, job):
    return [c["checkpoint_id"] for c in cluster.json("checkpoints", "ls", job["id"]) if c["state"] == "COMPLETE"]


def test_fresh_the_first_time_and_resumed_when_pushed_again(cluster):
    first = train(cluster, name="a")
    cluster.wait(first, "TRAINING_JOB_COMPLETED")
    assert begun(cluster, first) == ["0 from None"]
    assert any("starting fresh" in line for line in cluster.logs(first, "--system").splitlines()[:6])
    other = train(cluster, name="b", environment={"LAST": 2}, load=None)
    cluster.wait(other, "TRAINING_JOB_COMPLETED")
    again = train(cluster, name="a", environment={"LAST": 8})  # b's are newer, but a job of this name has its own
    cluster.wait(again, "TRAINING_JOB_COMPLETED")
    assert begun(cluster, again) == ["6 from checkpoint-6"]
    third = train(cluster, name="c", environment={"LAST": 9})  # nobody of its name: the project's newest
    cluster.wait(third, "TRAINING_JOB_COMPLETED")
    assert begun(cluster, third) == ["8 from checkpoint-8"]


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_a_failure_is_tried_again_from_where_it_was(cluster, how):
    job = train(cluster, environment={"DIE": 4, "HOW": how}, retry={"on": ["failure"]})
    done = cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert begun(cluster, job) == ["0 from None", "4 from checkpoint-4"] and done["attempt"] == 2
    assert complete(cluster, job)[-1] == "checkpoint-6"


def test_attempts_are_bounded(cluster):
    job = cluster.push(["echo attempt; exit 3"], retry={"on": ["failure"], "max_attempts": 2})
    assert cluster.wait(job, "TRAINING_JOB_FAILED")["end"]["code"] == 3
    assert cluster.user_lines(job) == ["attempt"] * 2


def test_a_retry_without_loading_says_that_it_starts_fresh(cluster):
    job = train(cluster, load=None, environment={"DIE": 2}, retry={"on": ["failure"], "max_attempts": 2})
    cluster.wait(job, "TRAINING_JOB_FAILED")
    assert begun(cluster, job) == ["0 from None"] * 2
    assert "load_checkpoint_config" in cluster.logs(job, "--system")


def test_what_is_named_is_loaded_again_beside_the_own(cluster):
    base = train(cluster, load=None, project="base", environment={"LAST": 3})
    cluster.wait(base, "TRAINING_JOB_COMPLETED")
    refs = [{"named": {"job": base["id"], "name": "checkpoint-2"}}, {"latest": {"project": "base"}}]
    script = "ls $BT_LOAD_CHECKPOINT_DIR/rank-0 | tr '\\n' ' '; echo; echo from ${STOKER_RESUME_FROM##*/}"
    job = cluster.push([script, "python3 train.py"], files={"train.py": TRAINER}, retry={"on": ["failure"]},
                       runtime=runtime({"enabled": True, "checkpoints": refs}, LAST=9))
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job)[:2] == ["checkpoint-2 checkpoint-3 ", "from checkpoint-2"]
    once = "test $BT_RETRY_COUNT -gt 0 || { mkdir -p $BT_CHECKPOINT_DIR/t; echo '{}' > $BT_CHECKPOINT_DIR/t/x.json; " \
           "mv $BT_CHECKPOINT_DIR/t $BT_CHECKPOINT_DIR/checkpoint-50; exit 1; }"
    job = cluster.push([script, once], retry={"on": ["failure"]}, runtime=runtime({"enabled": True, "checkpoints": refs}))
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    lines = cluster.user_lines(job)
    if complete(cluster, job):  # the own one takes the place of the latest one; what was named stays
        assert lines[2:] == ["checkpoint-2 checkpoint-50 ", "from checkpoint-50"]


def test_required(cluster):
    cluster.wait(cluster.push(["true"]), "TRAINING_JOB_COMPLETED")  # makes the project, which has no checkpoint
    lacking = {"enabled": True, "checkpoints": [{"latest": {"project": "p"}}]}
    job = train(cluster, load=lacking)
    assert cluster.wait(job, "TRAINING_JOB_DEPLOY_FAILED")["error_id"] == "checkpoint_not_found" and cluster.user_lines(job) == []
    job = train(cluster, load={"enabled": True, "required": True})
    assert cluster.wait(job, "TRAINING_JOB_DEPLOY_FAILED")["error_id"] == "checkpoint_not_found"
    job = train(cluster, load={**lacking, "required": False}, environment={"LAST": 1})
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert begun(cluster, job) == ["0 from None"]
    assert cluster.job(job)["spec"]["runtime"]["load_checkpoint_config"]["required"] is False


def test_recreate_and_resume(cluster):
    empty = cluster.push(["true"])
    cluster.wait(empty, "TRAINING_JOB_COMPLETED")
    assert cluster.error("recreate", empty["id"], "--resume", code=3) == "checkpoint_not_found"
    job = train(cluster, environment={"DIE": 2, "LAST": 4}, retry={"on": ["failure"]})
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert begun(cluster, job) == ["0 from None", "2 from checkpoint-2"]
    resumed = cluster.json("recreate", job["id"], "--resume")
    cluster.wait(resumed, "TRAINING_JOB_COMPLETED")
    assert begun(cluster, resumed) == ["4 from checkpoint-4"]
    unloading = train(cluster, load=None, environment={"LAST": 3})  # resumed by name although its file does not ask for it
    cluster.wait(unloading, "TRAINING_JOB_COMPLETED")
    resumed = cluster.json("recreate", unloading["id"], "--resume")
    cluster.wait(resumed, "TRAINING_JOB_COMPLETED")
    assert begun(cluster, resumed) == ["3 from checkpoint-3"]


def test_recreate_starts_from_what_the_job_had_started_from(cluster):
    """Not from what its last attempt had resumed from."""
    base = train(cluster, load=None, environment={"LAST": 1})
    cluster.wait(base, "TRAINING_JOB_COMPLETED")
    job = cluster.push(["echo from ${STOKER_RESUME_FROM##*/}", "python3 train.py; test $BT_RETRY_COUNT -gt 0"], files={"train.py": TRAINER},
                       retry={"on": ["failure"]}, runtime=runtime(LAST=3))
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert [line for line in cluster.user_lines(job) if line.startswith("from")] == ["from checkpoint-1", "from checkpoint-3"]
    again = cluster.json("recreate", job["id"])
    cluster.wait(again, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(again)[0] == "from checkpoint-1"


def ready_to_die(cluster, job, name="checkpoint-3"):
    until(lambda: name in complete(cluster, job))


HANG = {"DIE": 3, "GATE": "/nowhere/never"}


@pytest.mark.parametrize("whom", ["runner", "server and runner"])
def test_kill_9(cluster, whom):
    job = train(cluster, environment=HANG, retry={"on": ["node_fail"]})
    ready_to_die(cluster, job)
    if "server" in whom:
        cluster.kill()
    for pid in cluster.runners():
        os.kill(pid, signal.SIGKILL)
    if "server" in whom:
        cluster.restart()
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert begun(cluster, job) == ["0 from None", "3 from checkpoint-3"]


def test_a_reboot(empty_cluster):
    """All at once is gone, and the next server sees another boot id: pids may be anybody's."""
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi")
    job = train(c, environment=HANG, retry={"on": ["node_fail"]})
    ready_to_die(c, job)
    c.kill()
    while c.processes():
        for line in c.processes():
            os.kill(int(line.split()[0]), signal.SIGKILL)
    boot = c.folder / "boot_id"
    boot.write_text("00000000-1111-2222-3333-444444444444\n")
    c.launch(["unshare", "--mount", "sh", "-c", f'mount --bind {boot} /proc/sys/kernel/random/boot_id && exec "$@"', "sh",
              STOKER, "server", "--data", str(c.data), "--listen", f"127.0.0.1:{c.port}", *c.flags])
    c.wait(job, "TRAINING_JOB_COMPLETED")
    assert begun(c, job) == ["0 from None", "3 from checkpoint-3"]


@pytest.fixture
def small_disk(empty_cluster):
    """A cluster whose data has a disk of its own: small_disk(MB) starts it, or makes the disk larger."""
    c = empty_cluster
    c.data.mkdir()

    def start(megabytes):
        if c.process is None:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(c.data)], check=True)
            c.start("--cpus", "4", "--memory", "8Gi")
        else:
            subprocess.run(["mount", "-o", f"remount,size={megabytes}m", str(c.data)], check=True)
        return c

    yield start
    c.end_jobs()
    c.stop()
    until(lambda: not c.processes())
    subprocess.run(["umount", "-l", str(c.data)], check=True)


LARGE = {"cpu_count": 1, "memory": "2Gi"}  # what a tmpfs holds counts as its writer's memory


def test_a_full_disk(small_disk):
    """The trainer fails for want of space, again and again; once there is room, it goes on from what was shipped."""
    c = small_disk(400)
    job = train(c, environment={"LAST": 30, "BYTES": 30_000_000, "PACE": 1}, retry={"on": ["failure"], "max_attempts": 2}, compute=LARGE)
    c.wait(job, "TRAINING_JOB_FAILED")
    assert "No space left" in c.logs(job)
    kept = complete(c, job)
    assert kept
    small_disk(3000)
    again = c.json("recreate", job["id"], "--resume")
    c.wait(again, "TRAINING_JOB_COMPLETED")
    assert begun(c, again) == [f"{kept[-1].split('-')[1]} from {kept[-1]}"]


def test_stop_now_ends_a_sync_that_is_stuck(small_disk):
    """It waits for room in the store as long as it takes, and gives up when it is told to; the next job has the machine."""
    c = small_disk(320)
    job = train(c, load=None, environment={"LAST": 1, "BYTES": 190_000_000}, compute={"cpu_count": 4, "memory": "2Gi"})
    until(lambda: "Syncing checkpoints" in c.logs(job))
    until(lambda: "it is tried again" in c.logs(job))
    assert c.job(job)["current_status"] == "TRAINING_JOB_RUNNING"
    c.cli("stop", job["id"], "--now")
    c.wait(job)
    assert complete(c, job) == []
    after = c.push(["true"], compute={"cpu_count": 4, "memory": "256Mi"})
    c.wait(after, "TRAINING_JOB_COMPLETED")
