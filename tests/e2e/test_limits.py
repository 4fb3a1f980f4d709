"""What a job may take of its node: inodes, bytes, its checkpoint volume. Each limit is attacked by a job that wants more."""
import contextlib
import json
import os
import shutil
import subprocess

import pytest
from conftest import STOKER, held_port, until

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


@contextlib.contextmanager
def started_on(cluster, options):
    disk(cluster, options)
    yield cluster.start("--cpus", "4", "--memory", "4Gi")
    try:
        cluster.end_jobs()
        cluster.stop()
        until(lambda: not cluster.processes())
    finally:
        subprocess.run(["umount", "-l", str(cluster.data)], check=True)


@pytest.fixture
def few_inodes(empty_cluster):
    with started_on(empty_cluster, f"size=900m,nr_inodes={INODES}") as c:
        yield c


@pytest.fixture
def few_bytes(empty_cluster):
    with started_on(empty_cluster, "size=300m") as c:
        yield c


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


@pytest.mark.parametrize("where,runtime", [("$BT_SCRATCH_DIR", {}), ("/opt", {}), ("$BT_CHECKPOINT_DIR", CKPT),
                                           ("$BT_PROJECT_CACHE_DIR/many", CACHE)],
                         ids=["scratch", "root", "checkpoints", "cache"])
def test_inodes(few_inodes, where, runtime):
    """One job wants them all. It is ended, with its record; another team's job never notices, and the next one runs."""
    c = few_inodes
    c.cli("teams", "create", "other")
    folder = c.job_folder([c.hold(), "echo through"], project="q")
    neighbour = json.loads(c.cli("push", folder / "train.yaml", "--set", "team=other", "-o", "json").out)
    c.wait(neighbour, "TRAINING_JOB_RUNNING")
    greedy = c.push([f"mkdir -p {where}", empty_files(where)], runtime=runtime, compute=ROOM)
    done = c.wait(greedy, "TRAINING_JOB_FAILED")
    assert done["error_id"] == "inodes_exhausted" and done["end"]["kind"] == "disk", done
    if runtime == CACHE:  # it belongs to the project, and stays until somebody deletes it
        c.cli("cache", "rm", "many", "-p", "p", "-y")
    until(lambda: os.statvfs(c.data).f_favail > 1000)  # what it held went with it
    c.release(neighbour)
    c.wait(neighbour, "TRAINING_JOB_COMPLETED")
    assert "through" in c.user_lines(neighbour)
    c.wait(c.push(["echo next"], project="r"), "TRAINING_JOB_COMPLETED")


def test_inodes_without_a_name(few_inodes):
    """Nobody finds these files in a folder: what the job's processes hold open is counted too."""
    c = few_inodes
    code = ("import os, time\n"
            "held = []\n"
            "while True:\n"
            "    try:\n"
            "        held.append(os.open('/tmp', os.O_TMPFILE | os.O_RDWR))\n"
            "    except OSError:\n"
            "        time.sleep(0.01)\n")
    take = f'for i in $(seq 8); do python3 -c "{code}" & done; wait'
    done = c.wait(c.push(["ulimit -n", "ulimit -Sn $(ulimit -Hn)", take], compute=ROOM), "TRAINING_JOB_FAILED")
    assert done["error_id"] == "inodes_exhausted" and done["end"]["kind"] == "disk", done
    until(lambda: os.statvfs(c.data).f_favail > 1000)
    c.wait(c.push(["echo next"], project="r"), "TRAINING_JOB_COMPLETED")


def test_bytes(few_bytes):
    """Scratch and log leave none. The job ends all the same, for its scratch goes before the rest of its log is stored."""
    c = few_bytes
    job = c.push(["head -c 200M /dev/zero > $BT_SCRATCH_DIR/x; yes a line of some length, again and again | head -c 80M; exit 3"], compute=ROOM)
    done = c.wait(job, "TRAINING_JOB_FAILED")
    assert done["end"]["kind"] == "exit" and done["end"]["code"] == 3, done
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
    while (free := os.statvfs(cluster.data).f_favail) > left:
        with contextlib.suppress(OSError):  # somebody took the last one meanwhile
            for _ in range(free - left):
                os.mknod(outside / str(n))
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


def nameless(where, n_bytes, how):
    """Holds a file of that size that no folder lists."""
    take = {"unlinked": "f = open(d + '/x', 'w+b'); os.unlink(d + '/x')", "tmpfile": "f = open(os.open(d, os.O_TMPFILE | os.O_RDWR), 'w+b')"}[how]
    return f"python3 -c \"import os, sys, time; d = sys.argv[1]; {take}; f.write(bytes({n_bytes})); f.flush(); time.sleep(300)\" {where}"


def test_scratch(empty_cluster):
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--scratch-size", "10MB", "--scratch-files", "600")
    over = ["head -c 12M /dev/zero > $BT_SCRATCH_DIR/x; sleep 300", "head -c 12M /dev/zero > /opt/x",  # the second ends before it is seen
            "i=0; while true; do i=$((i+1)); : > f$i; done", "mkdir -p $(seq -s / 700); sleep 300"]
    within = ["head -c 7M /dev/zero > $BT_SCRATCH_DIR/x; mkdir -p $(seq -s / 500); sleep 1"]
    over += [nameless(where, 12 * MB, how) for where, how in [("$BT_SCRATCH_DIR", "unlinked"), ("$BT_SCRATCH_DIR", "tmpfile"), ("/tmp", "tmpfile"),
                                                               ("/opt", "unlinked")]]
    jobs = [c.push([command]) for command in over]
    assert [c.wait(job, "TRAINING_JOB_FAILED")["error_id"] for job in jobs] == ["scratch_quota_exceeded"] * len(jobs)
    c.wait(c.push(within), "TRAINING_JOB_COMPLETED")
    elsewhere = "(" + nameless("$BT_CHECKPOINT_DIR", 12 * MB, "tmpfile") + ") & (" + nameless("/dev/shm", 12 * MB, "unlinked") + ") & sleep 3"
    c.wait(c.push([elsewhere], runtime=CKPT), "TRAINING_JOB_COMPLETED")


def test_the_code_counts_as_scratch(empty_cluster):
    """A job may delete its code and write as much elsewhere: so the code has no room of its own. Code that has none does not start."""
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--scratch-size", "10MB", "--scratch-files", "600")
    job = c.push(["rm big; head -c 7M /dev/zero > $BT_SCRATCH_DIR/x; echo through; head -c 12M /dev/zero > $BT_SCRATCH_DIR/y; sleep 300"], files={"big": "x" * 7 * MB})
    assert c.wait(job, "TRAINING_JOB_FAILED")["error_id"] == "scratch_quota_exceeded"
    assert "through" in c.user_lines(job)
    for files in {"big": "x" * 12 * MB}, {f"d/{n}": "" for n in range(700)}:
        refused = c.wait(c.push(["echo never"], files=files), "TRAINING_JOB_DEPLOY_FAILED")
        assert refused["error_id"] == "scratch_quota_exceeded", refused
        assert "never" not in c.user_lines(refused)


@pytest.mark.parametrize("write", ["cat /dev/zero > $BT_CHECKPOINT_DIR/x", "mkdir $BT_CHECKPOINT_DIR/c; i=0; while true; do i=$((i+1)); "
                                   "head -c 32M /dev/zero > $BT_CHECKPOINT_DIR/c/$i; done",
                                   "python3 -c \"import os, time; f = os.open(os.environ['BT_CHECKPOINT_DIR'], os.O_TMPFILE | os.O_RDWR); "
                                   "[os.write(f, bytes(32 << 20)) for i in range(40)]; time.sleep(60)\"",
                                   "exec 5> $BT_CHECKPOINT_DIR/x; echo seen >&5; sleep 3; rm $BT_CHECKPOINT_DIR/x; cat /dev/zero >&5"],
                         ids=["one-file", "many", "nameless", "removed"])
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


# --- cores, and limits without cgroups --------------------------------------------------------------------------------

SEEN = "python3 -c \"import os; print('cores', sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])\"; nproc"


def cores_of(cluster, job):
    """The cores that a job printed, and its OMP_NUM_THREADS, which nproc follows."""
    until(lambda: len(cluster.user_lines(job)) >= 2)
    words, nproc = cluster.user_lines(job)[:2]
    cores, threads = words.removeprefix("cores ").rsplit(" ", 1)
    assert threads == nproc
    return json.loads(cores), int(threads)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: there is nothing to choose")
def test_cores(cluster):
    """A job finds as many cores as it asked for; the next one gets others, as long as some are idle."""
    c, all_cores = cluster, sorted(os.sched_getaffinity(0))
    first = c.push([SEEN, c.hold()])
    mine, threads = cores_of(c, first)
    assert len(mine) == threads == 1 and set(mine) < set(all_cores)
    second = c.push([SEEN, c.hold()])
    theirs, _ = cores_of(c, second)
    assert len(theirs) == 1 and not set(mine) & set(theirs)
    inside = json.loads(c.cli("exec", first["id"], "--", "python3", "-c", "import os; print(sorted(os.sched_getaffinity(0)))").out)
    assert inside == mine
    c.release(first)
    c.wait(first, "TRAINING_JOB_COMPLETED")
    third = c.push([SEEN], compute={"cpu_count": 0.5, "memory": "256Mi"})  # a part of a core is one core
    assert cores_of(c, third) == (mine, 1)
    c.release(second)
    half = c.push([SEEN], compute={"cpu_count": len(all_cores) - 0.5, "memory": "256Mi"})
    assert cores_of(c, half) == (all_cores, len(all_cores))


@pytest.fixture
def no_cgroups(empty_cluster):
    """A server that finds no cgroup: in a mount namespace of its own."""
    c = empty_cluster
    hide = ["unshare", "--mount", "sh", "-c", 'umount -l /sys/fs/cgroup && exec "$@"', "sh"]
    if subprocess.run([*hide, "true"], capture_output=True).returncode != 0:
        pytest.skip("this user may not hide the cgroups from a server")
    c.port = held_port()
    return c.launch([*hide, STOKER, "server", "--data", str(c.data), "--listen", f"127.0.0.1:{c.port}", "--cpus", "4", "--memory", "4Gi"])


def test_memory_without_cgroups(no_cgroups):
    """Each process is held, and the job's log says that the sum of them is not."""
    c = no_cgroups
    eat = "import sys; b = bytearray(int(sys.argv[1]) << 20); print('ate', len(b) >> 20)"
    job = c.push([f'python3 -c "{eat}" 200', f'python3 -c "{eat}" 3000'], compute={"cpu_count": 1, "memory": "256Mi"})
    done = c.wait(job, "TRAINING_JOB_FAILED")
    assert done["end"]["kind"] == "exit", done
    assert [line for line in c.user_lines(job) if line.startswith("ate")] == ["ate 200"]
    assert "MemoryError" in c.logs(job)
    line = next(line for line in c.logs(job).splitlines() if "sandbox: " in line)
    assert "mem=1536Mi/process(rlimit)" in line.split("not enforced:")[0] and "memory" in line.split("not enforced:")[1], line


def test_processes_without_cgroups(no_cgroups):
    """The limit is there, and counts the job's processes alone: its user is nobody else's."""
    c = no_cgroups
    job = c.push(["ulimit -u; (ulimit -u 50; for i in $(seq 200); do sleep 3 & done; wait) 2>&1 | grep -m 1 -o 'Resource temporarily unavailable'"])
    c.wait(job, "TRAINING_JOB_COMPLETED")
    assert c.user_lines(job)[:2] == ["32768", "Resource temporarily unavailable"]


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming an ordinary user takes root")
def test_limits_of_an_ordinary_users_server(empty_cluster):
    """It cannot read all that is in a job's folder, holds its jobs by no cgroup here, and blames none for what others write."""
    c = empty_cluster
    shutil.copy(STOKER, c.folder / "stoker")
    c.folder.chmod(0o755)
    subprocess.run(["chown", "-R", "65534:65534", c.folder], check=True)
    c.port = held_port()
    c.launch(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(c.folder / "stoker"), "server", "--data", str(c.data),
              "--listen", f"127.0.0.1:{c.port}", "--cpus", "4", "--memory", "4Gi", "--scratch-size", "10MB"])
    innocent = c.push([c.hold(), "sleep 1", "echo through"])
    c.wait(innocent, "TRAINING_JOB_RUNNING")
    (c.data / "by-others").write_bytes(bytes(40 * MB))
    c.release(innocent)
    c.wait(innocent, "TRAINING_JOB_COMPLETED")
    closed = "mkdir $BT_SCRATCH_DIR/d; exec 5> $BT_SCRATCH_DIR/d/x; chmod 0 $BT_SCRATCH_DIR/d; cat /dev/zero >&5"
    for command, error in [("cat /dev/zero > $BT_SCRATCH_DIR/x", "scratch_quota_exceeded"), (closed, "scratch_quota_exceeded"),
                           ("cat /dev/zero > $BT_CHECKPOINT_DIR/x", "volume_full")]:
        job = c.push([command], runtime={"checkpointing_config": {"enabled": True, "settle": "1s", "volume_size_gib": 1}})
        assert c.wait(job, "TRAINING_JOB_FAILED")["error_id"] == error
