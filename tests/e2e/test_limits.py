"""What a job may take of its node: inodes, bytes, its checkpoint volume. Each limit is attacked by a job that wants more."""
import json
import os
import subprocess

import pytest
from conftest import until

MB = 1 << 20
CKPT = {"checkpointing_config": {"enabled": True, "settle": "1s"}}
CACHE = {"cache_config": {"enabled": True}}
INODES = 100_000
ROOM = {"cpu_count": 1, "memory": "2Gi"}  # inodes of a tmpfs are memory of who makes them


def disk(cluster, options):
    """The data folder of `cluster` on a disk of its own."""
    cluster.data.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", cluster.data], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"this user may not mount a small disk: {done.stderr.strip()}")


@pytest.fixture
def few_inodes(empty_cluster):
    c = empty_cluster
    disk(c, f"size=900m,nr_inodes={INODES}")
    yield c.start("--cpus", "4", "--memory", "4Gi")
    try:
        c.end_jobs()
        c.stop()
        until(lambda: not c.processes())
    finally:
        subprocess.run(["umount", "-l", str(c.data)], check=True)


def empty_files(where):
    """Fills `where` (a shell word) with empty files, as fast as it can, until it is ended."""
    code = ("import os, sys, time\n"
            "n = 0\n"
            "while True:\n"
            "    d = os.path.join(sys.argv[1], f'd{n}'); \n"
            "    try:\n"
            "        os.mkdir(d)\n"
            "        fd = os.open(d, os.O_RDONLY)\n"
            "        for i in range(10000):\n"
            "            os.close(os.open(str(i), os.O_CREAT | os.O_WRONLY, dir_fd=fd))\n"
            "        os.close(fd)\n"
            "    except OSError:\n"
            "        time.sleep(0.01)\n"
            "    n += 1\n")
    return f"python3 -c \"{code}\" {where}"


@pytest.mark.parametrize("where,runtime", [("$BT_SCRATCH_DIR", {}), ("/opt", {}), (".", {}),
                                           ("$BT_CHECKPOINT_DIR", CKPT), ("$BT_PROJECT_CACHE_DIR", CACHE)],
                         ids=["scratch", "root", "workspace", "checkpoints", "cache"])
def test_inodes(few_inodes, where, runtime):
    """One job wants them all. It is ended, with its record; another team's job never notices, and the next one runs."""
    c = few_inodes
    c.cli("teams", "create", "other")
    folder = c.job_folder([c.hold(), "echo through"], project="q")
    neighbour = json.loads(c.cli("push", folder / "train.yaml", "--set", "team=other", "-o", "json").out)
    c.wait(neighbour, "TRAINING_JOB_RUNNING")
    greedy = c.push([empty_files(where)], runtime=runtime, compute=ROOM)
    done = c.wait(greedy, "TRAINING_JOB_FAILED")
    assert done["error_id"] == "inodes_exhausted" and done["end"]["kind"] == "disk", done
    until(lambda: os.statvfs(c.data).f_favail > 1000)  # what it held went with it
    c.release(neighbour)
    c.wait(neighbour, "TRAINING_JOB_COMPLETED")
    assert "through" in c.user_lines(neighbour)
    c.wait(c.push(["echo next"], project="r"), "TRAINING_JOB_COMPLETED")


def test_hidden_inodes(few_inodes):
    """Files where nobody can count them: their folders are too deep to have a path."""
    c = few_inodes
    dig = "import os; os.chdir(os.environ['BT_SCRATCH_DIR'])\nfor i in range(40): os.mkdir('x' * 250); os.chdir('x' * 250)"
    enter = "cd $BT_SCRATCH_DIR; for i in $(seq 40); do cd xx*; done"
    greedy = c.push([f'python3 -c "{dig}"; {enter}; {empty_files(".")}'], compute=ROOM)
    assert c.wait(greedy, "TRAINING_JOB_FAILED")["error_id"] == "inodes_exhausted"


def take_inodes(cluster, left=0):
    """Makes files until no more than `left` can be made. Returns their folder."""
    outside = cluster.data / "outside"
    outside.mkdir()
    n = 0
    while os.statvfs(cluster.data).f_favail > left:
        (outside / str(n)).touch()
        n += 1
    return outside


def test_a_job_with_few_files_is_not_blamed(few_inodes):
    """Somebody else has them all: the job goes on, and nothing new begins before there are some again."""
    c = few_inodes
    job = c.push([c.hold(), "echo through"])
    c.wait(job, "TRAINING_JOB_RUNNING")
    outside = take_inodes(c, 100)
    assert c.error("push", c.job_folder(["true"]) / "train.yaml") == "no_space"
    for n in range(1000):
        (outside / str(n)).unlink()
    c.release(job)
    c.wait(job, "TRAINING_JOB_COMPLETED")
    c.wait(c.push(["true"]), "TRAINING_JOB_COMPLETED")


def test_the_end_of_a_job_needs_no_inode(few_inodes):
    """Its record is on the disk, though the runner is killed right behind it and cannot tell anybody."""
    c = few_inodes
    c.stop()
    c.start(env={"STOKER_CRASH_AT": "recorded"})
    job = c.push([f"touch $BT_PROJECT_CACHE_DIR/gate; until test -s $BT_PROJECT_CACHE_DIR/gate; do sleep 0.1; done; exit 7"], runtime=CACHE)
    until(lambda: list(c.data.glob("cache/projects/*/gate")))
    take_inodes(c)
    next(c.data.glob("cache/projects/*/gate")).write_text("go\n")
    done = c.wait(job, "TRAINING_JOB_FAILED")
    assert done["end"]["kind"] == "exit" and done["end"]["code"] == 7, done


@pytest.mark.parametrize("command", ["head -c 12M /dev/zero > $BT_SCRATCH_DIR/x; sleep 300", "head -c 12M /dev/zero > /opt/x",
                                     "i=0; while true; do i=$((i+1)); : > f$i; done", "mkdir -p $(seq -s / 700); sleep 300"],
                         ids=["bytes", "bytes-at-the-end", "files", "folders"])
def test_scratch(empty_cluster, command):
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--scratch-size", "10MB", "--scratch-files", "600")
    done = c.wait(c.push([command]), "TRAINING_JOB_FAILED")
    assert done["error_id"] == "scratch_quota_exceeded" and done["end"]["kind"] == "disk", done
    c.wait(c.push(["head -c 9M /dev/zero > $BT_SCRATCH_DIR/x; sleep 1"]), "TRAINING_JOB_COMPLETED")


@pytest.mark.parametrize("write", ["cat /dev/zero > $BT_CHECKPOINT_DIR/x", "mkdir $BT_CHECKPOINT_DIR/c; i=0; while true; do i=$((i+1)); "
                                   "head -c 32M /dev/zero > $BT_CHECKPOINT_DIR/c/$i; done"], ids=["one-file", "many"])
def test_volume(cluster, write):
    """It holds what it says, not what a warning says. What was whole before is kept, and stays whole."""
    c = cluster
    save = "mkdir $BT_CHECKPOINT_DIR/checkpoint-1; echo 1 > $BT_CHECKPOINT_DIR/checkpoint-1/w.bin"
    job = c.push([save, c.hold(), write], compute={"cpu_count": 1, "memory": "1Gi"},
                 runtime={"checkpointing_config": {"enabled": True, "settle": "1s", "volume_size_gib": 1}})
    until(lambda: [k for k in c.json("checkpoints", "ls", job["id"]) if k["state"] == "COMPLETE"])
    c.release(job)
    done = c.wait(job, "TRAINING_JOB_FAILED")
    assert done["error_id"] == "volume_full" and done["end"]["kind"] == "disk", done
    listed = {k["checkpoint_id"]: k["state"] for k in c.json("checkpoints", "ls", job["id"])}
    assert listed["checkpoint-1"] == "COMPLETE", listed
