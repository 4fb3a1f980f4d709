"""What a runner of this machine is passed of the server's folders, and what it is not.

A runner opens nothing of the server's: it asks for each file at a socket, with the token of its attempt. Here somebody who has
got hold of that token asks for more; and the kernel is asked what runners have really opened."""
import array
import json
import os
import re
import shutil
import socket

import pytest
from conftest import STOKER, until

CKPT = {"runtime": {"checkpointing_config": {"enabled": True, "checkpoint_path": "/mnt/ckpt", "settle": "1s"}}}
SAVE = "mkdir /mnt/ckpt/{0} && echo {0} > /mnt/ckpt/{0}/model.bin"


class Asker:
    """The protocol of passing.h, by hand."""

    def __init__(self, cluster, token):
        self.token = token
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(30)
        here = os.open(cluster.data, os.O_PATH)  # the path of a socket is short
        self.sock.connect(f"/proc/self/fd/{here}/objects.sock")
        os.close(here)

    def __call__(self, verb, key, fd=None, **more):
        """(status, file or None)"""
        rights = [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        self.sock.sendmsg([json.dumps({"token": self.token, "verb": verb, "key": key, **more}).encode()], rights)
        body, control, _, _ = self.sock.recvmsg(16384, socket.CMSG_SPACE(4))
        got = [array.array("i", data[:4])[0] for _, _, data in control]
        return json.loads(body).get("status", 0), os.fdopen(got[0], "rb") if got else None


def running(cluster, **kw):
    """A job that has saved a checkpoint and goes on; its runner's token."""
    before = set(cluster.data.glob("runs/*"))
    job = cluster.push([SAVE.format("checkpoint-1"), cluster.hold()], files={"secret.txt": "mine\n"}, **CKPT, **kw)
    until(lambda: [c for c in cluster.json("checkpoints", "ls", job["id"]) if c["state"] == "COMPLETE"])
    folder, = set(cluster.data.glob("runs/*")) - before
    return job, json.loads((folder / "launch.json").read_text())["token"]


def keys(cluster):
    """Of all objects."""
    root = cluster.data / "objects"
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and ".tmp" not in p.parts}


def test_a_token_opens_what_its_attempt_has(cluster):
    before = keys(cluster)
    mine, token = running(cluster)
    own = keys(cluster) - before
    other, _ = running(cluster)
    others = keys(cluster) - own - before
    ask = Asker(cluster, token)
    code = [k for k in own if not k.startswith("training_projects/")]
    saved = [k for k in own if k.endswith("model.bin")]
    assert len(code) == 1 and len(saved) == 1 and len(others) >= 2
    for key in own:
        status, file = ask("open", key)
        assert status == 0 and file.read() == (cluster.data / "objects" / key).read_bytes(), key
        file.close()
    for key in others | {"stoker.json", "master.key", "training_projects"}:
        assert ask("open", key) == (403, None), key
        assert ask("link", key, to="x") == (403, None), key
    # and write what its rank has, nothing of what it reads, nor another rank's
    rank = f"training_projects/{saved[0].split('/')[1]}/jobs/{mine['id']}/rank-"
    for verb in ("create", "delete"):
        for key in (*code, *others, "stoker.json", f"{rank}1/x", f"{rank}0", f"{rank}00/x"):
            assert ask(verb, key) == (403, None), (verb, key)
    assert ask("copy", code[0], to=f"{rank}1/x") == (403, None)
    assert ask("copy", next(iter(others)), to=f"{rank}0/x") == (403, None)
    assert ask("copy", code[0], to=f"{rank}0/x") == (0, None)
    assert ask("delete", f"{rank}0/x") == (0, None)
    assert keys(cluster) == before | own | others
    # a person's token is none of an attempt
    assert Asker(cluster, cluster.token)("open", code[0]) == (403, None)
    assert Asker(cluster, "stokerlocal_" + "a" * 43)("open", code[0]) == (401, None)
    for job in (mine, other):
        cluster.release(job)
        cluster.wait(job, "TRAINING_JOB_COMPLETED")


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed: tools/parts.sh unit")
def test_runners_open_nothing_of_the_servers(empty_cluster, tmp_path):
    """Code, weights, a saved checkpoint, a loaded one, the log: with every open() of every process written down."""
    cluster, trace = empty_cluster, tmp_path / "trace"
    cluster.data.mkdir(mode=0o700)
    weights = cluster.folder / "weights"
    (weights / "sub").mkdir(parents=True)
    (weights / "sub" / "model.bin").write_bytes(os.urandom(3 << 20))
    (weights / "config.json").write_text("{}")
    calls = "trace=execve,open,openat,openat2,creat,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,clone,clone3,fork,vfork"
    cluster.flags = ["--cpus", "4", "--memory", "4Gi", "--allow-file-root", str(weights)]
    cluster.launch(["strace", "-D", "-f", "-y", "-qq", "-s", "400", "-e", "signal=none", "-e", calls, "-o", str(trace),
                    STOKER, "server", "--data", str(cluster.data), "--listen", "127.0.0.1:0", *cluster.database_flags(), *cluster.flags],
                   env={"ASAN_OPTIONS": f"detect_leaks=0:log_path={cluster.folder}/asan"})
    first = cluster.push([SAVE.format("checkpoint-1")], **CKPT)
    cluster.wait(first, "TRAINING_JOB_COMPLETED")
    job = cluster.push(["cat /models/m/config.json code.txt", "cmp /models/m/sub/model.bin /models/m/sub/model.bin", "cat $BT_LOAD_CHECKPOINT_DIR/*/*/model.bin",
                        SAVE.format("checkpoint-2")], files={"code.txt": "the code\n"},
                       weights=[{"source": f"file://{weights}", "mount_location": "/models/m"}],
                       runtime={**CKPT["runtime"], "load_checkpoint_config": {"enabled": True, "checkpoints": [
                           {"typ": "baseten_latest_checkpoint", "job_id": first["id"]}]}})
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job) == ["{}the code", "checkpoint-1"]
    # one machine keeps one copy
    blob, = (p for p in (cluster.data / "store" / "blobs").rglob("*") if p.is_file() and p.stat().st_size == 3 << 20)
    assert blob.stat().st_nlink >= 2
    cluster.end_jobs()
    cluster.stop()
    opened = runners_opened(trace, cluster.data)
    assert any(name.startswith("runs") for name in opened), "the trace has no runner in it"
    assert any(name.startswith("node") for name in opened)
    allowed = ("runs", "node", "cache", "ids", "sockets", "starts")
    assert not [name for name in opened if not name.startswith(allowed)], sorted(opened)


def runners_opened(trace, data):
    """What below the data folder any thread of `stoker runner` has opened, made or removed."""
    lines = [line.split(None, 1) for line in trace.read_text(errors="replace").splitlines()]
    parent = {}
    for pid, call in lines:
        born = re.search(r"^(?:<\.\.\. )?(?:clone3?|v?fork)\b.*= (\d+)$", call)
        if born:
            parent[born[1]] = pid
    became, found = {}, set()

    def is_runner(pid):  # what it is by its own exec, else by who made it
        while pid not in became and pid in parent:
            pid = parent[pid]
        return became.get(pid, False)

    for pid, call in lines:
        if call.startswith("execve("):
            became[pid] = '"runner"' in call
        elif is_runner(pid):
            for folder, path in re.findall(r'(?:\w+\(|, )(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"([^"]*)"', call):
                whole = os.path.normpath(os.path.join(folder, path))
                if whole.startswith(f"{data}/"):
                    found.add(whole[len(str(data)) + 1:])
    return found
