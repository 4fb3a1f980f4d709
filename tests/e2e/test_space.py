"""No space: on the data folder's disk, in a project's cache. Said before it happens, and mended by making room."""
import errno
import json
import os
import sqlite3
import subprocess

import pytest
from conftest import CALL_S, STOKER, until

CKPT = {"checkpointing_config": {"enabled": True, "settle": "1s"}}
MB = 1 << 20


@pytest.fixture
def small(empty_cluster):
    """A cluster whose data folder is a disk of its own, of 400 MB."""
    c = empty_cluster
    c.data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", str(c.data)], check=True)
    c.sources = c.folder / "sources"
    c.sources.mkdir()
    yield c.start("--cpus", "4", "--memory", "4Gi", "--allow-file-root", str(c.sources))
    try:
        c.end_jobs()
        c.stop()
        until(lambda: not c.processes())
    finally:
        subprocess.run(["umount", "-l", str(c.data)], check=True)


def resize(cluster, size):
    subprocess.run(["mount", "-o", f"remount,size={size}", str(cluster.data)], check=True)


def fill(cluster):
    """To the last byte, whatever else is written meanwhile."""
    path = cluster.data / "filler"
    with open(path, "wb", buffering=0) as out:
        for piece in (MB, 4096):
            try:
                while out.write(bytes(piece)) == piece:
                    pass
            except OSError as e:
                assert e.errno == errno.ENOSPC
    return path


def test_weights_larger_than_the_disk(small):
    os.truncate(os.open(small.sources / "w.bin", os.O_CREAT | os.O_WRONLY), 500 * MB)
    job = small.push(["echo never"], weights=[{"source": f"file://{small.sources}", "mount_location": "/w"}])
    done = small.wait(job, "TRAINING_JOB_DEPLOY_FAILED")
    assert done["error_id"] == "no_space" and "524.29 MB" in done["error_message"]
    assert not [p for p in (small.data / "store").rglob("*") if p.is_file() and p.stat().st_size > MB]


def test_checkpoints_that_fill_the_disk(small):
    """Warned of before it happens; what could not be shipped is, once there is room."""
    script = "mkdir $BT_CHECKPOINT_DIR/checkpoint-$i; head -c 60M /dev/zero > $BT_CHECKPOINT_DIR/checkpoint-$i/w.bin"
    job = small.push([f"for i in 1 2 3 4; do {script} && echo wrote $i || echo failed $i; {small.hold('$i')}; done"],
                     compute={"cpu_count": 1, "memory": "1Gi"}, runtime=CKPT)
    for i in 1, 2, 3:  # the fourth finds three of them there, each twice
        until(lambda: len([c for c in small.json("checkpoints", "ls", job["id"]) if c["state"] == "COMPLETE"]) == i)
        if i == 3:
            until(lambda: "the next checkpoint may fail" in small.logs(job))
        small.release(job, i)
    until(lambda: "failed" in small.logs(job))
    lines = small.logs(job).splitlines()
    warned = next(i for i, line in enumerate(lines) if "the next checkpoint may fail" in line)
    assert warned < next(i for i, line in enumerate(lines) if line.startswith("failed")), lines
    resize(small, "900m")
    small.release(job, 4)
    small.wait(job, "TRAINING_JOB_COMPLETED")
    assert len(small.json("checkpoints", "ls", job["id"])) == 4


def test_a_full_disk_refuses_and_recovers(small):
    running = small.push(["echo up", small.hold(), "echo through"])
    until(lambda: "up" in small.logs(running))
    filler = fill(small)
    assert small.error("push", small.job_folder(["true"], files={"big.txt": "x" * MB}) / "train.yaml", code=1) == "no_space"
    small.kill()
    small.restart()  # a disk without room must not keep the server, which helps to make some, from starting
    assert small.cli("ps").out.count("RUNNING") == 1
    filler.unlink()
    small.release(running)
    small.wait(running, "TRAINING_JOB_COMPLETED")
    assert "through" in small.logs(running)
    job = small.push(["echo again"])
    small.wait(job, "TRAINING_JOB_COMPLETED")
    small.stop()
    check = small.cli("server", "--data", small.data, "--check", "--log-level", "error")
    assert check.out.endswith(": 0 faults\n"), check


@pytest.mark.parametrize("end", ["room", "stop"])
def test_a_retry_waits_for_room(small, end):
    """The disk is full when the next attempt of a job unpacks its code: it goes on once there is room, and can be stopped."""
    greedy = ("test $BT_RETRY_COUNT -gt 0 && exit 0; rm large.txt; cat /dev/zero > $BT_PROJECT_CACHE_DIR/big; "
              "truncate -s -2M $BT_PROJECT_CACHE_DIR/big; exit 3")
    job = small.push([greedy], files={"large.txt": os.urandom(3 * MB).hex()}, compute={"cpu_count": 1, "memory": "1Gi"},
                     retry={"on": ["failure"]}, runtime={"cache_config": {"enabled": True}})
    until(lambda: "waiting for space on the disk" in json.dumps(small.job(job)))
    assert small.job(job)["current_status"] == "TRAINING_JOB_DEPLOYING"
    if end == "stop":
        small.cli("stop", job["id"])
        small.wait(job, "TRAINING_JOB_STOPPED")
    next(small.data.glob("cache/projects/*/big")).unlink()
    if end == "room":
        small.wait(job, "TRAINING_JOB_COMPLETED")


def test_a_full_disk_can_be_stopped_on(small):
    """Though a job takes every byte that becomes free, it can be ended, and its end is told; nothing new begins."""
    greedy = "echo up; echo ahead > full; while true; do head -c 1M /dev/zero >> full; done 2> /dev/null"
    job = small.push([greedy], compute={"cpu_count": 1, "memory": "1Gi"})
    other = small.push(["echo up; while sleep 1; do echo still here; done"])
    until(lambda: "up" in small.logs(job) and "up" in small.logs(other))
    until(lambda: os.statvfs(small.data).f_bavail == 0)
    for one in (other, job):
        small.cli("stop", one["id"])
        small.wait(one, "TRAINING_JOB_STOPPED")
        assert "job stopped" in small.logs(one)
    until(lambda: not list((small.data / "runs").iterdir()))  # what the jobs held goes with them
    filler = fill(small)
    assert small.error("push", small.job_folder(["true"]) / "train.yaml", code=1) == "no_space"
    small.kill()
    small.restart()
    assert small.cli("ps").code == 0
    filler.unlink()
    small.wait(small.push(["echo again"]), "TRAINING_JOB_COMPLETED")
    assert (small.data / "reserve").stat().st_size == 32 * MB


def test_a_complete_checkpoint_is_deleted_while_its_job_runs(small):
    """That is how a person makes room; what the job adds to it later does not make it whole again."""
    job = small.push(["mkdir $BT_CHECKPOINT_DIR/checkpoint-1; head -c 60M /dev/zero > $BT_CHECKPOINT_DIR/checkpoint-1/w.bin; sleep 300"],
                     compute={"cpu_count": 1, "memory": "1Gi"}, runtime=CKPT)
    until(lambda: [c for c in small.json("checkpoints", "ls", job["id"]) if c["state"] == "COMPLETE"])
    small.cli("checkpoints", "rm", f"{job['id']}/checkpoint-1", "-y")
    assert not [p for p in (small.data / "objects").rglob("*") if p.is_file() and p.stat().st_size > MB]
    assert small.json("checkpoints", "ls", job["id"]) == []
    small.cli("exec", job["id"], "--", "sh", "-c", "echo more > $BT_CHECKPOINT_DIR/checkpoint-1/more")
    until(lambda: [c for c in small.json("checkpoints", "ls", job["id"], "--all") if c["state"] == "INCOMPLETE"])
    small.cli("stop", job["id"])
    small.wait(job, "TRAINING_JOB_STOPPED")
    assert small.json("checkpoints", "ls", job["id"]) == []
    small.stop()
    assert small.cli("server", "--data", small.data, "--check", "--log-level", "error").out.endswith(": 0 faults\n")


def test_a_log_that_fills_the_disk(small):
    """Its job goes on, and can be ended; what was lost of the log is said in it."""
    resize(small, "120m")
    job = small.push(["yes 'a line of some length, again and again' | head -c 200M; echo through > $BT_PROJECT_CACHE_DIR/through; sleep 300"],
                     compute={"cpu_count": 1, "memory": "1Gi"}, runtime={"cache_config": {"enabled": True}})
    until(lambda: list(small.data.glob("cache/projects/*/through")))
    small.cli("stop", job["id"])
    small.wait(job, "TRAINING_JOB_STOPPED")
    tail = small.logs(job, "-n", "10")
    assert "job stopped" in tail and "log lines lost" in small.logs(job, "--system"), tail


def test_a_job_that_ends_with_a_log_that_fills_the_disk(small):
    """It has nothing else to give back: it ends with as much of its log as fits, and the next attempt is heard again."""
    resize(small, "120m")
    job = small.push(["test $BT_RETRY_COUNT = 0 || { echo once more; exit 4; }; yes 'a line of some length, again and again' | head -c 200M; exit 3"],
                     compute={"cpu_count": 1, "memory": "1Gi"}, retry={"max_attempts": 2, "on": ["failure"]})
    done = small.wait(job, "TRAINING_JOB_FAILED")
    assert done["end"]["code"] == 4, done
    tail = small.logs(job, "-n", "10")
    assert "once more" in tail and "log lines lost" in small.logs(job, "--system"), tail


def test_the_first_start_wants_some_room(empty_cluster):
    c = empty_cluster
    c.data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(c.data)], check=True)
    try:
        done = c_server(c)
        assert done.returncode == 1 and json.loads(done.stderr.splitlines()[-1])["error"]["id"] == "no_space", done
    finally:
        subprocess.run(["umount", str(c.data)], check=True)


def c_server(cluster):
    return subprocess.run([STOKER, "server", "--data", str(cluster.data), "--listen", "127.0.0.1:0"], capture_output=True,
                          text=True, env=cluster.environment(STOKER_ERRORS="json"), timeout=CALL_S)


def test_cache_quota(empty_cluster):
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--cache-quota", "10MB")
    cached = {"cache_config": {"enabled": True}}
    first = c.push(["head -c 12M /dev/zero > $BT_PROJECT_CACHE_DIR/data"], runtime=cached)
    c.wait(first, "TRAINING_JOB_COMPLETED")
    second = c.push(["true"], runtime=cached)  # at once: what the first one left counts already
    done = c.wait(second, "TRAINING_JOB_DEPLOY_FAILED")
    assert done["error_id"] == "cache_quota_exceeded" and "12.58 MB" in done["error_message"]
    c.cli("cache", "rm", "data", "-p", "p", "-y")
    third = c.push(["true"], runtime=cached)
    c.wait(third, "TRAINING_JOB_COMPLETED")


def test_cache_quota_is_watched_while_a_job_runs(empty_cluster):
    """At 80, 90 and 100 %, each said once; the highest that is reached stands for those below."""
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--cache-quota", "10MB")
    cached = {"cache_config": {"enabled": True}}
    job = c.push(["head -c 9500000 /dev/zero > $BT_PROJECT_CACHE_DIR/data; sleep 1"], runtime=cached)
    c.wait(job, "TRAINING_JOB_COMPLETED")
    cache = c.data / "cache/projects" / job["training_project"]["id"]
    assert (cache / "data").stat().st_size == 9500000
    for size, words in ((8500000, "80 % full"), (9500000, "90 % full"), (9999999, None)):
        os.truncate(cache / "data", size)
        grow = "until [ -e $BT_PROJECT_CACHE_DIR/grow ]; do sleep 0.1; done; rm $BT_PROJECT_CACHE_DIR/grow; head -c 9M /dev/zero > $BT_PROJECT_CACHE_DIR/more"
        job = c.push(["sleep 300"] if words else [grow, "sleep 300"], runtime=cached)
        if words:
            until(lambda: f"the training cache is {words}" in c.logs(job))
        else:
            (cache / "grow").touch()
            until(lambda: "the training cache is full: " in c.logs(job))
        until(lambda: len([e for e in c.json("events", job["id"]) if e["kind"] == "cache"]) == (1 if words else 2))
        c.cli("stop", job["id"], "--now")
        c.wait(job, "TRAINING_JOB_STOPPED")


def test_a_cache_that_fills_just_before_the_end(empty_cluster):
    """No sample sees it, for they are a minute apart: the look after the end does."""
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--cache-quota", "10MB")
    job = c.push([c.hold(), "head -c 12M /dev/zero > $BT_PROJECT_CACHE_DIR/data"], runtime={"cache_config": {"enabled": True}})
    c.wait(job, "TRAINING_JOB_RUNNING")
    c.release(job)
    c.wait(job, "TRAINING_JOB_COMPLETED")
    until(lambda: [e for e in c.json("events", job["id"]) if "(12.58 MB of 10.00 MB)" in e["message"]])
    until(lambda: "the training cache is full: " in c.logs(job))


def test_cache_affinity(empty_cluster):
    """A project whose cache is on another cluster: refused by name, or run here with an empty one when the job says so."""
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi")
    first = c.push(["true"], runtime={"cache_config": {"enabled": True}})
    c.wait(first, "TRAINING_JOB_COMPLETED")
    assert c.json("projects", "ls")[0]["cluster"] == "local"
    with sqlite3.connect(c.data / "stoker.db", timeout=30) as db:
        db.execute("UPDATE projects SET pinned_cluster = 'elsewhere'")
    folder = c.job_folder(["true"], runtime={"cache_config": {"enabled": True}})
    refused = c.refusal("push", folder / "train.yaml", code=5)["error"]
    assert refused["id"] == "job_never_fits" and "elsewhere" in refused["message"] and "require_cache_affinity" in refused["message"]
    loose = {"cache_config": {"enabled": True, "require_cache_affinity": False}}
    job = c.push(["ls -A $BT_PROJECT_CACHE_DIR | wc -l"], runtime=loose)
    c.wait(job, "TRAINING_JOB_COMPLETED")
    assert c.user_lines(job) == ["0"]
    c.wait(c.push(["true"]), "TRAINING_JOB_COMPLETED")  # one without a cache goes anywhere
    assert c.json("projects", "ls")[0]["cluster"] == "elsewhere", "the pin is not moved by a job that did not insist"
