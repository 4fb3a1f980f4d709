"""Rows about `--objects s3://`: what a job costs when its code, weights and checkpoints are in MinIO, beside the same job on a
server whose store is a folder. Both servers run at once and take turns."""
import json
import os
import pathlib
import shutil
import stat
import subprocess
import time

import peers
import start
from harness import MIB, Contender, Row, Run, Wrong, run
from peers import KEY, SECRET

N_FILES = 2000  # of a checkpoint of small files, each of which is a request to the store
FILE_BYTES = 4096
LIMIT_TRIES = 3
DEADLINE_S = 300
WRITE = f"""import os
where = os.environ["BT_CHECKPOINT_DIR"] + "/checkpoint-1/"
os.makedirs(where)
for i in range({N_FILES}):
    with open(f"{{where}}f{{i:05}}.bin", "wb") as f:
        f.write(os.urandom({FILE_BYTES}))
open(where + "done", "w").close()
"""


class Pair:
    """A server on MinIO, one on a folder, and MinIO."""

    def __init__(self, bench, name, *flags):
        self.bench, self.folder = bench, bench.folder / name
        self.folder.mkdir()
        self.store = peers.Minio(self.folder)
        keys = self.folder / "keys.json"
        keys.write_text(json.dumps({"aws_access_key_id": KEY, "aws_secret_access_key": SECRET}))
        keys.chmod(0o600)
        flags = ("--cpus", "2", "--memory", "2Gi", *flags)
        self.far = self.server("minio-server", *flags, "--objects", "s3://bench/stoker", "--objects-endpoint", self.store.url,
                               "--objects-credentials", keys)
        self.near = self.server("folder-server", *flags)

    def server(self, name, *flags):
        (self.folder / name).mkdir()
        return peers.Stoker(self.bench.root / start.STOKER, self.folder / name, *flags)

    def play(self, row, once, limit, tidy=None):
        """once(server) makes one measured run."""
        def tidy_of(server):
            return tidy and (lambda: tidy(server))
        self.bench.play(row, [
            Contender("stoker, MinIO", once(self.far), peers.minio_version(), tidy=tidy_of(self.far), ours=True),
            Contender("stoker, folder", once(self.near), "the same job", tidy=tidy_of(self.near)),
        ], limit)

    def stop(self):
        for part in (self.far, self.near, self.store):
            part.stop()
        shutil.rmtree(self.store.drive, ignore_errors=True)


def drop_node_cache(server):
    """Trees are read-only; the runner that leased them has ended."""
    for top in ("node/trees", "node/blobs", "node/leases"):
        for folder, _, names in os.walk(server.data / top, topdown=False):
            os.chmod(folder, stat.S_IRWXU)
            for name in names:
                os.unlink(f"{folder}/{name}")
            if pathlib.Path(folder) != server.data / top:
                os.rmdir(folder)


def drop_weights(server):
    """The folder's blobs stay where that is the store: then it is what a new node reads them from."""
    drop_node_cache(server)
    if server.far:
        shutil.rmtree(server.data / "store/blobs/sha256", ignore_errors=True)


def first_line(bench):
    """Its code is an archive in the store."""
    pair = Pair(bench, "elsewhere-start")
    try:
        def once(server):
            return start.push_folder(server, server.data.parent, "hello", [start.SAY])
        pair.play(Row("start-minio", "from the command to the first line of the user's code, its code in MinIO or in a folder",
                      "none; the folder beside it", unit="ms"), once,
                  ("fork and exec of a program that does nothing", bench.limits["fork_exec_s"]))
    finally:
        pair.stop()


def weights(bench):
    """A model that is mirrored, on a node that has nothing of it. The folder gives it by a link: no byte moves."""
    model = bench.repository("one")
    size = os.path.getsize(model / "model.bin")
    pair = Pair(bench, "elsewhere-fetch", "--allow-file-root", bench.www)
    try:
        say = ["test \"$(stat -c %s /models/m/model.bin)\" = " + str(size) + " && " + start.SAY + " || echo no model"]
        pushes = {s: start.push_folder(s, s.data.parent, "model", say, [{"source": f"file://{model}", "mount_location": "/models/m"}])
                  for s in (pair.far, pair.near)}
        for server in pushes:
            server.far = server is pair.far
            pushes[server]()
            drop_weights(server)
        blob = max((p for p in pair.store.drive.rglob("xl.meta") if "/blobs/" in str(p)), key=lambda p: sum(
            q.stat().st_size for q in p.parent.rglob("part.*")))
        url = f"{pair.store.url}/{blob.parent.relative_to(pair.store.drive)}"
        pair.play(Row("fetch-weights-minio", f"start on a new node with a model of {size // MIB} MiB, from MinIO or from the folder beside it",
                      "the verified fetch's limit; the folder links", size), lambda s: pushes[s], bench.verified_limit(url, bench.aws, size),
                  drop_weights)
    finally:
        pair.stop()


def ship_small(server):
    folder = server.data.parent / "ship"
    folder.mkdir()
    (folder / "write.py").write_text(WRITE)
    job = {"compute": {"cpu_count": 1, "memory": "512Mi"},
           "runtime": {"start_commands": ["python3 write.py", start.SAY], "checkpointing_config": {"enabled": True, "marker": "done"}}}
    (folder / "train.yaml").write_text(json.dumps({"project": "ship", "job": job}))  # JSON is YAML

    def once():
        """From the last file's close to the job's end, which waits until its checkpoint is accepted."""
        done = subprocess.run([str(server.binary), "push", "-f", str(folder / "train.yaml")], env=server.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=DEADLINE_S)
        end = time.time()
        words = done.stdout.split()
        if done.returncode != 0 or "first" not in words:
            raise Wrong(f"exit status {done.returncode}: {' '.join((done.stderr or done.stdout).split())[-300:]}")
        return Run(end - float(words[words.index("first") + 1]))
    return once


def checkpoint(bench):
    pair = Pair(bench, "elsewhere-ship")
    try:
        each = [json.loads(run([bench.root / "build/rel/tests/bench/bench_store", "puts", f"s3:{pair.store.url}/bench", str(N_FILES)], bench.aws).out)["seconds"]
                for _ in range(LIMIT_TRIES)]
        pair.play(Row("ship-small-minio", f"ship a checkpoint of {N_FILES} x {FILE_BYTES >> 10} KiB, to the job's end, into MinIO or a folder",
                      "none; the folder beside it", N_FILES * FILE_BYTES), ship_small,
                  (f"{N_FILES} PUTs to MinIO by somebody with its keys, 16 at once", min(each)))
    finally:
        pair.stop()


def rows(bench):
    first_line(bench)
    weights(bench)
    checkpoint(bench)
