"""Checkpoints that come in ways a saver's order says nothing of: copied, moved, merged in place, with ranks that are missing.

Each case is a job that ends well or is killed; no clock decides any of them.
"""
import os

import pytest
from conftest import until

pytestmark = pytest.mark.timeout(900)

STAGE = r'''
import errno, json, mmap, os, pickle, resource, shutil, signal, subprocess, sys, time, zipfile

OUT = os.environ["BT_CHECKPOINT_DIR"]
MIB = 1 << 20


def at(*path):
    path = os.path.join(*path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return path


def text(path, value):
    with open(at(path), "w") as f:
        f.write(json.dumps(value) + "\n")


def safetensors(path, size, fill=b"b"):
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with open(at(path), "wb") as f:
        f.write(len(header).to_bytes(8, "little") + header + fill * size)


def torch_zip(path, size=100, fill=b"t"):
    """As torch.save writes it, of an object without tensors; one more record makes it as long as is wanted."""
    with zipfile.ZipFile(at(path), "w", zipfile.ZIP_STORED) as z:
        z.writestr("archive/data.pkl", pickle.dumps({"step": 1}, protocol=2))
        z.writestr("archive/version", "3\n")
        z.writestr("archive/data/0", fill * size)


SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


def model(folder):
    text(f"{folder}/config.json", {})
    safetensors(f"{folder}/{SHARDS[0]}", MIB // 2)
    safetensors(f"{folder}/{SHARDS[1]}", 2 * MIB)
    text(f"{folder}/model.safetensors.index.json", {"weight_map": {str(i): s for i, s in enumerate(SHARDS)}})


def trainer(folder):
    """A whole checkpoint of transformers' Trainer, somewhere else; long ago."""
    model(folder)
    for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
        torch_zip(f"{folder}/{name}")
    text(f"{folder}/trainer_state.json", {"global_step": 500})
    return folder


def limited():
    """A file that grows beyond a MiB ends its writer, in the middle of the second shard."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))


def copy(*command, cut):
    src = trainer("/tmp/src/checkpoint-500")
    done = subprocess.run([*command, src, OUT], preexec_fn=limited if cut else None)
    assert done.returncode == (-signal.SIGXFSZ if cut else 0), done


def cp():
    copy("cp", "-r", cut=False)


def cp_cut():
    copy("cp", "-r", cut=True)


def marker_first(*names):
    src = trainer("/tmp/src/checkpoint-500")
    os.makedirs(f"{OUT}/checkpoint-500")
    for name in ("trainer_state.json", *names):
        shutil.copy(f"{src}/{name}", f"{OUT}/checkpoint-500")


def marker_cut():
    marker_first()
    copy("cp", "-r", cut=True)


def marker_gap():
    marker_first("model.safetensors.index.json", "config.json", SHARDS[0], "optimizer.pt", "scheduler.pt", "rng_state.pth")


def marker_no_optimizer():
    marker_first("model.safetensors.index.json", "config.json", *SHARDS, "scheduler.pt", "rng_state.pth")


def marker_only_model():
    """Nothing is missing that could be told; and nothing proves it, when the copy was killed."""
    marker_first("model.safetensors.index.json", "config.json", *SHARDS)


def rsync():
    subprocess.run(["rsync", "-a", trainer("/tmp/src/checkpoint-500"), OUT], check=True)


def rsync_cut():
    src = trainer("/tmp/src/checkpoint-500")
    run = subprocess.Popen(["rsync", "-a", "--bwlimit=200", src, OUT], start_new_session=True)
    def there():
        try:
            return any(name.startswith("." + SHARDS[1]) for name in os.listdir(f"{OUT}/checkpoint-500"))
        except FileNotFoundError:
            return False
    while not there():
        assert run.poll() is None
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()


def mapped(path):
    """A mapping whose descriptor is closed: nothing of it is seen by looking at descriptors, and its writes make no event."""
    fd = os.open(path, os.O_RDWR)
    m = mmap.mmap(fd, 0)
    os.close(fd)
    return m


def merge():
    """As unsloth merges: the base's shards of full size and the index first, then each shard in place, with pauses."""
    model("/tmp/src/base")
    shutil.copytree("/tmp/src/base", f"{OUT}/merged")
    m = mapped(f"{OUT}/merged/{SHARDS[0]}")
    m[200:] = b"m" * (len(m) - 200)
    m.close()
    time.sleep(1)
    m = mapped(f"{OUT}/merged/{SHARDS[1]}")
    m[200:MIB] = b"m" * (MIB - 200)


def hold(gate):
    while not os.path.exists(f"/tmp/{gate}"):
        time.sleep(0.1)


def writers():
    """Three files that are whole, and each has a writer that no name of it leads to."""
    assert os.readlink("/proc/self/ns/user") != os.environ["HOST_USER_NS"]
    for folder in ("mapped", "linked", "inherited"):
        safetensors(f"{OUT}/{folder}/model.safetensors", MIB)
        text(f"{OUT}/{folder}/config.json", {})
    m = mapped(f"{OUT}/mapped/model.safetensors")
    os.makedirs(f"{OUT}/other")
    os.link(f"{OUT}/linked/model.safetensors", f"{OUT}/other/name.safetensors")
    link = open(f"{OUT}/other/name.safetensors", "r+b")
    with open(f"{OUT}/inherited/model.safetensors", "r+b") as f:
        child = subprocess.Popen(["sleep", "1000000"], stdout=f)
    hold("go")
    m[500:600] = b"z" * 100
    m.close()
    link.seek(500)
    link.write(b"z" * 100)
    link.close()
    child.kill()
    child.wait()


def save_and_move(size, fill):
    torch_zip("/tmp/lightning/last.ckpt", size, fill)
    shutil.move("/tmp/lightning/last.ckpt", f"{OUT}/last.ckpt")


def move_cut():
    """Lightning: the temporary file is on another file system, and a move is a copy over the old last.ckpt."""
    text("/tmp/probe", 1)
    try:
        os.rename("/tmp/probe", f"{OUT}/probe")
        assert False, "one file system"
    except OSError as e:
        assert e.errno == errno.EXDEV
    save_and_move(2 * MIB, b"1")
    hold("go")
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 * MIB, 3 * MIB))
    torch_zip("/tmp/lightning/last.ckpt", 2 * MIB, b"2")
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, 3 * MIB))
    try:
        shutil.move("/tmp/lightning/last.ckpt", f"{OUT}/last.ckpt")
    except OSError:
        return
    assert False


def move_cut_first():
    torch_zip("/tmp/lightning/one.ckpt", 2 * MIB)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))
    try:
        shutil.move("/tmp/lightning/one.ckpt", f"{OUT}/epoch=1-step=300.ckpt")
    except OSError:
        return
    assert False


def deepspeed():
    """Three ranks have written their files; WORLD_SIZE says whether there is a fourth."""
    for r in range(3):
        torch_zip(f"{OUT}/global_step5/zero_pp_rank_{r}_mp_rank_00_optim_states.pt")
    torch_zip(f"{OUT}/global_step5/mp_rank_00_model_states.pt")
    hold("go")


globals()[sys.argv[1]]()
if sys.argv[2] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
'''

# Case, how it ends, its checkpoint, what it is then, and a name that the reason has to have.
CASES = [
    ("cp", "ends", "checkpoint-500", "COMPLETE", ""),
    ("cp", "kill", "checkpoint-500", "COMPLETE", ""),  # the index proves it
    ("cp_cut", "ends", "checkpoint-500", "INCOMPLETE", "model-00002-of-00002.safetensors"),
    ("cp_cut", "kill", "checkpoint-500", "INCOMPLETE", "model-00002-of-00002.safetensors"),
    ("marker_cut", "ends", "checkpoint-500", "INCOMPLETE", "model-00002-of-00002.safetensors"),
    ("marker_gap", "ends", "checkpoint-500", "INCOMPLETE", "model-00002-of-00002.safetensors"),
    ("marker_gap", "kill", "checkpoint-500", "INCOMPLETE", "model-00002-of-00002.safetensors"),
    ("marker_no_optimizer", "ends", "checkpoint-500", "INCOMPLETE", "optimizer.pt"),
    ("marker_only_model", "kill", "checkpoint-500", "INCOMPLETE", "trainer_state.json"),
    ("rsync", "ends", "checkpoint-500", "COMPLETE", ""),
    ("rsync_cut", "ends", "checkpoint-500", "INCOMPLETE", "model-00002-of-00002.safetensors"),
    ("rsync_cut", "kill", "checkpoint-500", "INCOMPLETE", "model-00002-of-00002.safetensors"),
    ("merge", "kill", "merged", "INCOMPLETE", ""),
    ("move_cut_first", "kill", "epoch=1-step=300.ckpt", "INCOMPLETE", "epoch=1-step=300.ckpt"),
]


def push(cluster, case, end="ends", checkpointing=None, **environment):
    runtime = {"checkpointing_config": {"enabled": True, **(checkpointing or {})}, "environment_variables": environment}
    return cluster.push([f"exec python3 stage.py {case} {end}"], files={"stage.py": STAGE}, runtime=runtime)


def rows(cluster, job):
    return {r["checkpoint_id"]: r for r in cluster.json("checkpoints", "ls", job["id"], "--all")}


def ended(cluster, job, end):
    done = cluster.wait(job)
    assert done["current_status"] == f"TRAINING_JOB_{'FAILED' if end == 'kill' else 'COMPLETED'}", (done, cluster.logs(job))
    return rows(cluster, job)


def test_copies_moves_and_merges(empty_cluster):
    cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi")
    jobs = [push(cluster, case, end) for case, end, *_ in CASES]
    for job, (case, end, name, state, says) in zip(jobs, CASES):
        row = ended(cluster, job, end)[name]
        assert row["state"] == state and says in row["reason"], (case, end, row)


def test_moved_over_the_one_before(cluster):
    """What was complete stays so, and is what is pulled, though its file was cut by the second move."""
    job = push(cluster, "move_cut", "kill")
    until(lambda: rows(cluster, job).get(".", {}).get("state") == "COMPLETE")
    cluster.release(job)
    row = ended(cluster, job, "kill")["."]
    assert (row["state"], row["revision"]) == ("COMPLETE", 1)
    cluster.cli("checkpoints", "pull", f"{job['id']}/.", cluster.folder / "out")
    body = (cluster.folder / "out/rank-0/last.ckpt").read_bytes()
    assert b"1" * (2 << 20) in body and b"22" not in body
    # "." is a name like any other
    name = f"{job['id']}/."
    cluster.cli("checkpoints", "pin", name)
    cluster.cli("checkpoints", "unpin", name)
    cluster.cli("checkpoints", "complete", name)
    path = f"/v1/training_projects/{job['training_project']['id']}/jobs/{job['id']}/checkpoints"
    status, said = cluster.api("DELETE", path)
    assert (status, said["error"]["id"]) == (400, "invalid"), said  # one, never all of them
    cluster.cli("checkpoints", "rm", name, "--yes")
    assert "." not in rows(cluster, job)


def test_writers_that_no_name_leads_to(cluster):
    names = ("mapped", "linked", "inherited")
    job = push(cluster, "writers", checkpointing={"settle": "1s"}, HOST_USER_NS=os.readlink("/proc/self/ns/user"))
    until(lambda: all("model.safetensors is open" in rows(cluster, job).get(n, {}).get("reason", "") for n in names))
    cluster.release(job)
    found = ended(cluster, job, "ends")
    assert [found[n]["state"] for n in names] == ["COMPLETE"] * 3, found
    for n in names:
        cluster.cli("checkpoints", "pull", f"{job['id']}/{n}", cluster.folder / "out")
    assert all(b"z" * 100 in (cluster.folder / f"out/rank-0/{n}/model.safetensors").read_bytes() for n in names[:2])


def test_the_highest_rank_is_missing(cluster):
    name, missing = "global_step5", "zero_pp_rank_3_mp_rank_00_optim_states.pt"
    known = push(cluster, "deepspeed", WORLD_SIZE="4")
    until(lambda: missing in rows(cluster, known).get(name, {}).get("reason", ""))
    unknown, killed = push(cluster, "deepspeed"), push(cluster, "deepspeed", "kill")
    for job in (unknown, killed):
        cluster.wait(job, "TRAINING_JOB_RUNNING")
    for job in (known, unknown, killed):
        cluster.release(job)
    row = ended(cluster, known, "ends")[name]
    assert row["state"] == "INCOMPLETE" and missing in row["reason"], row
    assert ended(cluster, unknown, "ends")[name]["state"] == "COMPLETE"  # names alone do not tell of a rank beyond the last
    assert ended(cluster, killed, "kill")[name]["state"] == "INCOMPLETE"


LEFT = r'''
import os, subprocess, sys, time

out = os.environ["BT_CHECKPOINT_DIR"] + "/half"
if sys.argv[1] == "main":
    os.makedirs(out)
    open(f"{out}/config.json", "w").write("{}\n")
    subprocess.Popen([sys.executable, sys.argv[0], "writer"], start_new_session=True)
    while not os.path.exists(f"{out}/model.safetensors"):
        time.sleep(0.01)
else:
    head = b'{"w":{"dtype":"U8","shape":[10000000],"data_offsets":[0,10000000]}}'
    f = open(f"{out}/.model", "wb", buffering=0)
    f.write(len(head).to_bytes(8, "little") + head)
    f.truncate(8 + len(head) + 10000000)
    os.rename(f"{out}/.model", f"{out}/model.safetensors")
    while True:
        f.write(b"x" * 100)
        time.sleep(0.01)
'''


@pytest.mark.parametrize("sandbox", ["auto", "plain"])
def test_a_writer_outlives_the_commands(empty_cluster, sandbox):
    """They end with 0, and what is killed then was in the middle of a file, whose size says nothing. What they do at their exit is still done."""
    cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--sandbox", sandbox)
    forms = [["trap 'echo the trap; exit 0' EXIT", "python3 left.py main"], ["exec python3 left.py main"], ["python3 left.py main; exit 0", "echo never"]]
    jobs = [cluster.push(commands, files={"left.py": LEFT}, runtime={"checkpointing_config": {"enabled": True}}) for commands in forms]
    for job in jobs:
        row = ended(cluster, job, "ends")["half"]
        assert row["state"] == "INCOMPLETE" and "model.safetensors" in row["reason"], row
    assert [cluster.user_lines(job) for job in jobs] == [["the trap"], [], []]
