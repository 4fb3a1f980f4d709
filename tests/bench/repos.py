"""Repositories that people write to: a large file, by LFS and by Xet, beside MinIO with the same bytes; and a commit of one small
file to a repository of ten thousand, beside git."""
import base64
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import urllib.request

import peers
from harness import MIB, Contender, Row, Wrong, run
from load import STOKER
from peers import HERE, KEY, PARTS, PEERS, SECRET

FILES = 10_000
UPLOAD = """
import sys
from huggingface_hub import HfApi
HfApi().upload_file(path_or_fileobj=sys.argv[1], path_in_repo="w.bin", repo_id=sys.argv[2])
"""


class Hub:
    """Our server, asked as clients of a Hub ask it."""

    def __init__(self, bench, folder):
        self.folder, self.numbers = folder, itertools.count()
        self.stoker = peers.Stoker(bench.root / STOKER, folder, "--cpus", "4", "--memory", "4Gi", "--hub-upstream", "off")
        self.token = self.stoker.env["STOKER_TOKEN"]

    def ask(self, method, path, body):
        rq = urllib.request.Request(self.stoker.url + path, body if isinstance(body, bytes) else json.dumps(body).encode(), method=method,
                                    headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"})
        return json.loads(urllib.request.urlopen(rq, timeout=300).read())

    def new(self):
        """A repository that nobody has sent anything to."""
        return self.ask("POST", "/api/repos/create", {"name": f"r{next(self.numbers)}"})["name"]

    def forget(self, id_):
        self.ask("DELETE", "/api/repos/delete", {"name": id_})
        self.stoker.cli("cache", "gc", "--yes", "--older-than", "0s")

    def address(self, id_, digest, size):
        said = self.ask("POST", f"/{id_}.git/info/lfs/objects/batch",
                        {"operation": "upload", "transfers": ["basic"], "objects": [{"oid": digest, "size": size}]})
        return said["objects"][0]["actions"]["upload"]["href"]

    def holds(self, digest, size):
        path = self.stoker.data / "store/blobs/sha256" / digest[:2] / digest
        if not path.is_file() or path.stat().st_size != size:
            raise Wrong("the server does not have the file")


def upload(bench):
    folder = bench.folder / "repos"
    folder.mkdir()
    size = int(os.environ.get("BENCH_SIZE_MIB", "1024")) * MIB
    path, digest = folder / "w.bin", hashlib.sha256()
    with open(path, "wb") as f:
        for _ in range(size // MIB):
            block = os.urandom(MIB)
            f.write(block)
            digest.update(block)
    digest, python = digest.hexdigest(), PARTS / "clients/bin/python"
    if not python.exists():
        raise Wrong(f"no {python}: run `tools/parts.sh clients`")
    hub, minio, at = Hub(bench, folder), peers.Minio(folder), {}

    def lfs():
        at["id"] = hub.new()
        return run(["curl", "-sS", "-f", "-o", "/dev/null", "-T", path, hub.address(at["id"], digest, size)], server=hub.stoker.pid)

    def xet():
        at["id"] = hub.new()
        home = folder / "home"
        env = {**bench.aws, "HOME": str(home), "HF_HOME": str(home), "HF_ENDPOINT": hub.stoker.url, "HF_TOKEN": hub.token,
               "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        return run([python, "-c", UPLOAD, path, at["id"]], env=env, server=hub.stoker.pid)

    def forget():
        hub.forget(at["id"])
        shutil.rmtree(folder / "home", ignore_errors=True)

    def to_minio():
        return run([python, HERE / "put_s3.py", minio.url, "bench", "w.bin", path], env={**bench.aws, "KEY": KEY, "SECRET": SECRET}, server=minio.pid)

    def whole(_):
        hub.holds(digest, size)

    row = Row("repos-upload", f"upload of a file of {size // MIB} MiB, verified by its SHA-256", "MinIO with the same bytes", size=size)
    bench.play(row, [
        Contender("stoker, LFS by curl", lfs, check=whole, tidy=forget, ours=True),
        Contender("stoker, Xet by huggingface_hub", xet, check=whole, tidy=forget, peer=False),
        Contender("minio, boto3", to_minio, peers.minio_version(), tidy=lambda: minio.forget("w.bin"),
                  missing=None if peers.tool("minio") else f"no minio: {PEERS}"),
        Contender("cp and fsync", lambda: run(["sh", "-c", f"cp {path} {folder}/copy && sync {folder}/copy"]), "a copy alone",
                  tidy=lambda: (folder / "copy").unlink(missing_ok=True), peer=False),
    ], ("SHA-256 of its bytes", size / bench.limits["sha256_gb_s"] / 1e9))
    for part in (hub.stoker, minio):
        part.stop()
    shutil.rmtree(folder)


def line(key, **value):
    return json.dumps({"key": key, "value": value}).encode() + b"\n"


def content(path, data):
    return line("file", path=path, encoding="base64", content=base64.b64encode(data).decode())


def commit(bench):
    folder = bench.folder / "commits"
    folder.mkdir()
    hub, git, numbers = Hub(bench, folder), peers.tool("git"), itertools.count()
    id_, tree, body = hub.new(), folder / "git", folder / "body"
    names = [f"d{i % 100}/f{i}" for i in range(FILES)]
    hub.ask("POST", f"/api/models/{id_}/commit/main", line("header", summary="all") + b"".join(content(n, n.encode()) for n in names))
    env = {**bench.aws, "HOME": str(folder), "GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "bench",
           "GIT_CONFIG_KEY_1": "user.email", "GIT_CONFIG_VALUE_1": "bench@localhost"}
    if git:
        for name in names:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(name)
        for words in (["init", "-q", "."], ["add", "."], ["commit", "-q", "-m", "all"]):
            subprocess.run([git, *words], cwd=tree, env=env, check=True, timeout=120)

    def ours():
        body.write_bytes(line("header", summary="one") + content("d0/new", str(next(numbers)).encode()))
        return run(["curl", "-sS", "-f", "-o", folder / "said", "-H", f"Authorization: Bearer {hub.token}", "--data-binary", f"@{body}",
                    f"{hub.stoker.url}/api/models/{id_}/commit/main"], server=hub.stoker.pid)

    def made(_):
        if not json.loads((folder / "said").read_text())["success"]:
            raise Wrong("no commit was made")

    def theirs():
        (tree / "d0/new").write_text(str(next(numbers)))
        return run(["sh", "-c", f"{git} add d0/new && {git} commit -q -m one"], env=env, cwd=tree)

    row = Row("repos-commit", f"a commit of one small file to a repository of {FILES} files", "git on the same disk, without a server", unit="ms")
    bench.play(row, [
        Contender("stoker, by curl", ours, check=made, ours=True),
        Contender("git add, git commit", theirs, peers.version("git"), missing=None if git else "no git"),
    ])
    hub.stoker.stop()
    shutil.rmtree(folder)


def rows(bench):
    upload(bench)
    commit(bench)
