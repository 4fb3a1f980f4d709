#!/usr/bin/env python3
"""make bench: Stoker beside named peers, in interleaved rounds; a table on stdout, the same in build/bench.json.

    bench.py [ROW...]      all rows, or those named: start fetch-nginx fetch-far fetch-minio fetch-large fetch-tls fetch-line warm python
                           checkpoint elsewhere load check summarize push repos hub artifacts compiled jobs line databases tails serve deploy

fetch-line needs to be root: it makes a device and a network namespace.

BENCH_ROUNDS    rounds after one that warms up (5)
BENCH_SIZE_MIB  size of the model and of the checkpoint (3072); the number of small files shrinks with it
BENCH_STOKER    another build of the program, for the row `line`: before and after
BENCH_DIR       where everything happens; else /dev/shm when it is large enough, else build/
"""
import datetime
import hashlib
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

import artifacts
import compiled
import databases
import elsewhere
import fetches
import hub
import line
import load
import peers
import repos
import serve
import start
from fetches import COMMIT, EIGHT, Web
from harness import MIB, Contender, Row, Wrong, raise_limits, run
from peers import KEY, PEERS, SECRET, tool, version

ROOT = pathlib.Path(__file__).resolve().parents[2]
STORE = ROOT / "build/rel/tests/bench/bench_store"
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
FULL_MIB = 3072
SIZE = int(os.environ.get("BENCH_SIZE_MIB", str(FULL_MIB))) * MIB
SMALL = 64 << 10
N_SMALL = max(50, 5000 * SIZE // (FULL_MIB * MIB))
N_FEW = 50  # for who needs a third of a second for each
N_WALK = max(3000, 300_000 * SIZE // (FULL_MIB * MIB))
SHARDS, TENSORS, ARRAYS = 200, 100, 10_000  # of a checkpoint that is checked; each shard has so many tensors
LINE_SIZE = min(SIZE, 256 * MIB)  # over a line with delay, one that loses packets
N_LINE = 500
FAR_MB_S = 100  # what an object store gives a connection, at its best
COPIES = 5  # of the model that exist at once: at its source, in two mirrors, at the client; or once more in eight files
CONFIG = "/dev/null"  # rclone's


class Bench:
    def __init__(self, folder, in_memory):
        self.root, self.folder, self.out, self.in_memory = ROOT, folder, folder / "out", in_memory
        self.www = folder / "www"
        self.store, self.size, self.line_size = STORE, SIZE, LINE_SIZE
        self.aws = {**{k: v for k, v in os.environ.items() if not k.startswith("AWS_") and k != "REQUESTS_CA_BUNDLE"},
                    "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
                    "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(folder)}
        self.rows, self.limits, self.put_number = [], {}, 0

    # --- what is moved ----------------------------------------------------------------------

    def repository(self, name):
        """A Hub repository as nginx can serve it: its files, and the two answers that list them."""
        files = self.www / "bench" / name / "resolve" / COMMIT
        if files.is_dir():
            return files
        files.mkdir(parents=True)
        listed = []
        kind, total = name.rpartition("-")[2], {"line": LINE_SIZE, "quarter": SIZE // 4}.get(name.rpartition("-")[0], SIZE)
        count = {"one": 1, "eight": EIGHT, "few": N_FEW, "many": N_LINE if name == "line-many" else N_SMALL}[kind]
        sizes = {"one": total, "eight": total // EIGHT}
        for path, size in [("model.bin" if kind == "one" else f"f{i:04}.bin", sizes.get(kind, SMALL)) for i in range(count)]:
            digest = hashlib.sha256()
            with open(files / path, "wb") as f:
                for at in range(0, size, 16 * MIB):
                    piece = os.urandom(min(16 * MIB, size - at))
                    digest.update(piece)
                    f.write(piece)
            listed.append({"type": "file", "path": path, "size": size, "oid": "0" * 40,
                           "lfs": {"oid": digest.hexdigest(), "size": size, "pointerSize": 130}})
        api = self.www / "api/models/bench" / name
        for part, body in (("revision/main", {"id": f"bench/{name}", "sha": COMMIT, "tags": [], "siblings": []}), (f"tree/{COMMIT}", listed)):
            (api / part).parent.mkdir(parents=True, exist_ok=True)
            (api / part).write_text(json.dumps(body))
        return files

    def urls(self, base, names, more="", query=""):
        """A curl configuration that fetches each into the output folder."""
        path = self.folder / "curl.cfg"
        path.write_text("".join(f'url = "{base}/{n}{query}"\noutput = "{self.out}/{re.split("/|%2F", n)[-1]}"\n' for n in names) + more)
        return path

    # --- a contender that fetches, or puts --------------------------------------------------

    def fetcher(self, name, argv, program=None, env=None, server=None, ours=False, want=(1, SIZE), mark=""):
        files, size = want
        first = {}

        def once():
            self.out.mkdir()
            self.touch_memory(size)
            return run(argv, env or self.aws, server=server.pid)

        def check(done):
            if ours:
                said = json.loads(done.out)
                same = first.setdefault("manifest", said["manifest"]) == said["manifest"]
                if (said["files"], said["bytes"], said["fetched"], same) != (files, size, size, True):
                    raise Wrong(f"another result: {said}")
                return
            there = [p.stat().st_size for p in self.out.rglob("*") if p.is_file()]
            if (len(there), sum(there)) != (files, size):
                raise Wrong(f"{len(there)} files with {sum(there)} bytes arrived, {files} with {size} were asked for")
        return self.contender(name, once, program, check, lambda: shutil.rmtree(self.out, ignore_errors=True), ours, mark)

    def touch_memory(self, size):
        """A virtual machine gives free memory back to its host, and the first touch of a page costs ten times the second:
        who runs after a pause would pay for it. So every run finds memory that has just been used."""
        if self.in_memory:
            with open(self.folder / "touched", "wb") as f:
                for _ in range(0, size, MIB):
                    f.write(bytes(MIB))
            os.unlink(self.folder / "touched")

    def contender(self, name, once, program, check, tidy, ours, mark=""):
        missing = None if ours or tool(program) else f"no {program}: {PEERS}"
        found = "" if missing or ours else version(program, *(["version"] if program in ("s5cmd", "rclone") else []))
        return Contender(name, once, f"{found} {mark}".strip(), check, tidy, ours, missing)

    def verified(self, fetch, to, **how):
        """A peer that is followed by what gives its user the same certainty."""
        words = " ".join(shlex.quote(str(w)) for w in fetch) + f" && openssl dgst -sha256 -r {shlex.quote(str(to))}"
        return self.fetcher("rclone, openssl dgst", ["sh", "-c", words], "rclone", **how)

    def rclone(self, *args):
        return [tool("rclone"), "--config", CONFIG, *args]

    def s3_remote(self, url):
        return f":s3,provider=Other,endpoint='{url}',env_auth=true,force_path_style=true:"

    # --- rows -------------------------------------------------------------------------------

    def play(self, row, contenders, limit=None):
        self.rows.append(row)
        row.limit = limit
        row.play(contenders, ROUNDS)
        row.show()

    def drained(self, url, env, streams):
        """Seconds that this object takes when the client throws it away: the least of three."""
        return min(json.loads(run([STORE, "drain", url, str(streams)], env).out)["seconds"] for _ in range(3))

    def verified_limit(self, url, env, size):
        """SHA-256 of one object is a chain: however many cores there are, one works on it."""
        drain = self.drained(url, env, 2)
        hashing = size / self.limits["sha256_gb_s"] / 1e9
        return f"drop the bytes {drain:.2f} s, SHA-256 of them {hashing:.2f} s; the longer one", max(drain, hashing)

    def files_limit(self, count=N_SMALL):
        """Small files without a wire: each written under a new name and hashed."""
        each = self.limits["file_s"] + SMALL / self.limits["sha256_gb_s"] / 1e9
        return f"{count} files written and hashed on all cores", count * each / os.cpu_count()

    def fetch_nginx(self):
        nginx = peers.Nginx(self.folder, self.www)
        try:
            web = Web(self, nginx)
            row = Row("fetch-nginx-1", f"fetch one object of {SIZE // MIB} MiB from nginx {version('nginx', '-v')}, ours verified "
                      f"(SHA-256) and resumable", "<= 2.0 s on the reference machine; >= 1.35x rclone, 1.5x s5cmd, 3.4x aws", SIZE)
            contenders = web.one("one", verified=True)
            self.play(row, contenders, self.verified_limit(f"{nginx.url}/bench/one/resolve/{COMMIT}/model.bin", web.env, SIZE))
            want, contenders = web.several("many")
            row = Row("fetch-nginx-many", f"fetch {N_SMALL} x 64 KiB from nginx, ours verified", "<= 0.40 s on the reference "
                      "machine; >= 8x s5cmd, not behind curl -Z", want[1])
            self.play(row, contenders, self.files_limit())
        finally:
            nginx.stop()

    def fetch_far(self):
        """What is far away, or an object store, gives a connection only so much: who opens enough of them, soon enough?"""
        nginx = peers.Nginx(self.folder, self.www, rate_mb_s=FAR_MB_S)
        try:
            self.play(Row("fetch-far", f"fetch one object of {SIZE // MIB} MiB from nginx that gives each connection {FAR_MB_S} MB/s, "
                          "ours verified", "none", SIZE), Web(self, nginx, aria="-x16 -s16 -k8M").one("one"),
                      (f"SHA-256 of {SIZE // MIB} MiB, one chain on one core", SIZE / self.limits["sha256_gb_s"] / 1e9))
        finally:
            nginx.stop()

    def fetch_minio(self):
        one, many = self.repository("one"), self.repository("many")
        minio = peers.Minio(self.folder)
        mark = peers.minio_version()
        try:
            run([tool("aws"), "--endpoint-url", minio.url, "s3", "cp", "--only-show-errors", one / "model.bin",
                 "s3://bench/one/model.bin"], self.aws)
            run([tool("s5cmd"), "--endpoint-url", minio.url, "cp", f"{many}/", "s3://bench/many/"], self.aws)
            ours = {**self.aws, "BENCH_S3": minio.url}
            url, to = f"{minio.url}/bench/one/model.bin", self.out / "a.bin"
            fetch = self.rclone("copyto", self.s3_remote(minio.url) + "bench/one/model.bin", to)
            sign = ["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", f"{KEY}:{SECRET}"]
            row = Row("fetch-minio-1", f"fetch one object of {SIZE // MIB} MiB from MinIO {mark}, ours hashed (SHA-256) and resumable",
                      "the ratios of the row above", SIZE)
            self.play(row, [
                self.fetcher("stoker", [STORE, "fetch", "s3://bench/one", self.out], ours=True, env=ours, server=minio),
                self.fetcher("curl", [tool("curl"), "-sf", *sign, "-o", to, url], "curl", server=minio),
                self.fetcher("s5cmd", [tool("s5cmd"), "--endpoint-url", minio.url, "cp", "s3://bench/one/model.bin", to], "s5cmd",
                             server=minio),
                self.fetcher("rclone", fetch, "rclone", server=minio),
                self.verified(fetch, to, server=minio),
                self.fetcher("aws", [tool("aws"), "--endpoint-url", minio.url, "s3", "cp", "s3://bench/one/model.bin", to,
                                     "--no-progress"], "aws", server=minio),
            ], self.verified_limit(url, self.aws, SIZE))
            minio.forget("one")

            want = (N_SMALL, N_SMALL * SMALL)
            names = sorted(p.name for p in many.iterdir())
            row = Row("fetch-minio-many", f"fetch {N_SMALL} x 64 KiB from MinIO, ours hashed", ">= 8x s5cmd, not behind curl -Z", want[1])
            self.play(row, [
                self.fetcher("stoker", [STORE, "fetch", "s3://bench/many", self.out], ours=True, env=ours, server=minio, want=want),
                self.fetcher("curl", [tool("curl"), "-sf", "-Z", "--parallel-max", "50", *sign, "-K",
                                      self.urls(f"{minio.url}/bench/many", names)], "curl", server=minio, want=want, mark="-Z 50"),
                self.fetcher("s5cmd", [tool("s5cmd"), "--endpoint-url", minio.url, "cp", "s3://bench/many/*", f"{self.out}/"],
                             "s5cmd", server=minio, want=want),
                self.fetcher("rclone", self.rclone("copy", "--transfers", "16", "--checkers", "16",
                                                   self.s3_remote(minio.url) + "bench/many", self.out), "rclone", server=minio,
                             want=want, mark="16"),
                self.fetcher("aws", [tool("aws"), "--endpoint-url", minio.url, "s3", "cp", "--recursive", "s3://bench/many", self.out,
                                     "--no-progress"], "aws", server=minio, want=want),
            ], self.files_limit())
        finally:
            minio.stop()
            shutil.rmtree(minio.drive, ignore_errors=True)

    def checkpoint(self):
        source = self.repository("one") / "model.bin"
        shutil.rmtree(self.www / "bench/many", ignore_errors=True)
        digest = json.loads((self.www / f"api/models/bench/one/tree/{COMMIT}").read_text())[0]["lfs"]["oid"]
        store = self.folder / "objects"
        (self.folder / "aws.ini").write_text("")

        def putter(server, arrived, forget):
            def make(name, argv, program=None, ours=False, mark=""):
                key = f"ckpt-{name}{len(mark)}.bin"

                def check(done):
                    if ours and json.loads(done.out)["sha256"] != digest:
                        raise Wrong("another digest than the file's")
                    arrived(key)
                return self.contender(name, lambda: run(argv(key), self.aws, server=server and server.pid), program, check,
                                      lambda: forget(key), ours, mark)
            return make

        def group(url, make):
            # In parts whatever the size, as a checkpoint goes; the sink's ETags are no digests.
            parts = ["--s3-upload-cutoff", "0", "--s3-use-multipart-etag=false"]
            s3 = self.s3_remote(url) + "bench/"
            tuned = ["--s3-disable-checksum", "--s3-no-check-bucket", "--s3-no-head", "--s3-upload-concurrency", "4",
                     "--s3-chunk-size", "16M"]
            return [
                make("stoker", lambda key: [STORE, "put", f"s3:{url}/bench", key, source], ours=True),
                make("s5cmd", lambda key: [tool("s5cmd"), "--endpoint-url", url, "cp", source, f"s3://bench/{key}"], "s5cmd"),
                make("rclone", lambda key: self.rclone(*parts, "copyto", source, s3 + key), "rclone"),
                make("rclone", lambda key: self.rclone(*parts, *tuned, "copyto", source, s3 + key), "rclone", mark="tuned"),
                make("aws", lambda key: [tool("aws"), "--endpoint-url", url, "s3", "cp", source, f"s3://bench/{key}",
                                         "--no-progress"], "aws"),
            ]

        limit = (f"SHA-256 of {SIZE // MIB} MiB, one chain on one core", SIZE / self.limits["sha256_gb_s"] / 1e9)
        sink = peers.Sink(self.folder)
        try:
            def arrived_sink(key):
                got = sink.taken(key)
                if not SIZE <= got <= SIZE * 1.01:  # chunk signatures come on top
                    raise Wrong(f"{got} of {SIZE} bytes arrived")
            self.play(Row("checkpoint-sink", f"ship a checkpoint of {SIZE // MIB} MiB, hashed, to a server that drops it",
                          "<= 1.6 s on the reference machine; >= 2.5x aws, 3.5x s5cmd, 4.8x rclone tuned", SIZE),
                      group(sink.url, putter(sink, arrived_sink, lambda key: None)), limit)
        finally:
            sink.stop()
        minio = peers.Minio(self.folder)
        try:
            def arrived_minio(key):
                got = minio.stored(key)
                if not SIZE <= got <= SIZE * 1.01:
                    raise Wrong(f"{got} of {SIZE} bytes are stored")
            self.play(Row("checkpoint-minio", f"ship a checkpoint of {SIZE // MIB} MiB to MinIO {peers.minio_version()}",
                          "none; MinIO's own work is the larger part", SIZE),
                      group(minio.url, putter(minio, arrived_minio, minio.forget)), limit)
        finally:
            minio.stop()
            shutil.rmtree(minio.drive, ignore_errors=True)

        def arrived_dir(key):
            if (store / key).stat().st_size != SIZE:
                raise Wrong(f"{(store / key).stat().st_size} of {SIZE} bytes are stored")
        make = putter(None, arrived_dir, lambda key: shutil.rmtree(store, ignore_errors=True))
        self.play(Row("checkpoint-dir", f"ship a checkpoint of {SIZE // MIB} MiB into the directory store, hashed", "", SIZE),
                  [make("stoker", lambda key: [STORE, "put", f"dir:{store}", key, source], ours=True)],
                  limit)

    def load(self):
        """A checkpoint of one large file from the object store into a job's folder, verified."""
        source = self.repository("one") / "model.bin"
        digest = json.loads((self.www / f"api/models/bench/one/tree/{COMMIT}").read_text())[0]["lfs"]["oid"]
        store, to = self.folder / "objects", self.out / "a.bin"
        store.mkdir()
        os.link(source, store / "ckpt.bin")
        sums = f"echo {digest} {shlex.quote(str(to))} | sha256sum -c --quiet"

        def make(name, argv, program=None, server=None, ours=False, mark="", checked=False):
            """`checked`: a peer that is followed by what gives its user the same certainty."""
            words = ["sh", "-c", " ".join(shlex.quote(str(w)) for w in argv) + " && " + sums] if checked else argv

            def once():
                self.out.mkdir()
                self.touch_memory(SIZE)
                return run(words, self.aws, server=server and server.pid)

            def check(done):
                if to.stat().st_size != SIZE:
                    raise Wrong(f"{to.stat().st_size} of {SIZE} bytes arrived")
            return self.contender(name, once, program, check, lambda: shutil.rmtree(self.out, ignore_errors=True), ours, mark)

        limit = (f"SHA-256 of {SIZE // MIB} MiB, one chain on one core", SIZE / self.limits["sha256_gb_s"] / 1e9)

        def ours(url, server=None):
            return [make("stoker", [STORE, "load", url, "ckpt.bin", digest, to], server=server, ours=True),
                    make("stoker, one stream", [STORE, "load-1", url, "ckpt.bin", digest, to], server=server, ours=True, mark="as before")]
        self.play(Row("load-dir", f"load a checkpoint of {SIZE // MIB} MiB from the directory store, verified", "", SIZE),
                  [*ours(f"dir:{store}"), make("cp, sha256sum", ["cp", source, to], "sha256sum", checked=True)], limit)
        minio = peers.Minio(self.folder)
        try:
            run([STORE, "put", f"s3:{minio.url}/bench", "ckpt.bin", source], self.aws)
            get = [tool("s5cmd"), "--endpoint-url", minio.url, "cp", "s3://bench/ckpt.bin", to]
            rclone = self.rclone("copyto", self.s3_remote(minio.url) + "bench/ckpt.bin", to)
            self.play(Row("load-minio", f"load a checkpoint of {SIZE // MIB} MiB from MinIO {peers.minio_version()}, ours verified", "", SIZE), [
                *ours(f"s3:{minio.url}/bench", minio),
                make("s5cmd", get, "s5cmd", minio),
                make("s5cmd, sha256sum", get, "s5cmd", minio, checked=True),
                make("rclone, sha256sum", rclone, "rclone", minio, checked=True),
            ], self.verified_limit(f"{minio.url}/bench/ckpt.bin", self.aws, SIZE))
        finally:
            minio.stop()
            shutil.rmtree(minio.drive, ignore_errors=True)
            shutil.rmtree(store, ignore_errors=True)

    def summarize(self):
        """On the checkout's file system: that is where caches live. 300 000 files in some 10 000 folders."""
        with tempfile.TemporaryDirectory(prefix="bench-walk-", dir=ROOT / "build") as tree:
            for i in range(N_WALK):
                folder = f"{tree}/{i // 870:03}/{i // 29 % 30:02}"
                if i % 29 == 0:
                    os.makedirs(folder)
                fd = os.open(f"{folder}/file-{i:06}.bin", os.O_CREAT | os.O_WRONLY, 0o644)
                os.ftruncate(fd, i * 7 % 65536)
                os.close(fd)
            first = {}

            def same(done):
                said = json.loads(done.out)
                if said["files"] != N_WALK:
                    raise Wrong(f"{said['files']} of {N_WALK} files")
                first["disk"] = said["disk_bytes"]

            def same_du(done):
                if int(done.out.split()[0]) != first.get("disk"):
                    raise Wrong(f"another sum than ours: {done.out.split()[0]}, ours {first.get('disk')}")

            def make(name, argv, program=None, check=None, ours=False):
                return self.contender(name, lambda: run(argv, self.aws), program, check, None, ours)
            self.play(Row("summarize", f"summarize {N_WALK} files, warm", "<= 0.30 s on the reference machine; 1.8x du, 2.1x gdu at "
                          "1/100 of gdu's memory"), [
                make("stoker", [STORE, "walk", tree], ours=True, check=same),
                make("du", [tool("du"), "-s", "-B1", tree], "du", check=same_du),
                make("gdu", [tool("gdu"), "-n", "-p", "-s", tree], "gdu"),
                make("ncdu", [tool("ncdu"), "-0", "-o", "/dev/null", tree], "ncdu"),
            ], (f"{N_WALK} files looked at by name on all cores", N_WALK * self.limits["stat_s"] / os.cpu_count()))

    def sharded(self, folder):
        """A checkpoint as transformers saves it: shards of safetensors, their index, and beside them many small arrays."""
        os.makedirs(folder)
        each = SIZE // 16 // (SHARDS * TENSORS) // 8 * 8
        placed = {}
        for i in range(SHARDS):
            name = f"model-{i + 1:05}-of-{SHARDS:05}.safetensors"
            head = {f"layers.{i}.{k}": {"dtype": "U8", "shape": [each], "data_offsets": [k * each, (k + 1) * each]} for k in range(TENSORS)}
            placed.update(dict.fromkeys(head, name))
            text = json.dumps(head).encode()
            with open(f"{folder}/{name}", "wb") as f:
                f.write(struct.pack("<Q", len(text)) + text + os.urandom(each * TENSORS))
        index = {"metadata": {"total_size": each * TENSORS * SHARDS}, "weight_map": placed}
        pathlib.Path(folder, "model.safetensors.index.json").write_text(json.dumps(index))
        pathlib.Path(folder, "trainer_state.json").write_text('{"global_step": 1, "max_steps": 2}')
        head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (256,), }".ljust(117) + b"\n"
        for i in range(ARRAYS):
            with open(f"{folder}/array-{i:05}.npy", "wb") as f:
                f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + os.urandom(1024))

    def check(self):
        tree = self.folder / "check/checkpoint-1"
        self.sharded(tree)

        def whole(done):
            said = json.loads(done.out)
            if not said["whole"] or said["layout"] != "hf_trainer":
                raise Wrong(f"judged {said['layout']}: {said['reason']}")

        def make(name, argv, program=None, check=None, ours=False, mark=""):
            return self.contender(name, lambda: run(argv, self.aws), program, check, None, ours, mark)
        self.play(Row("check", f"is a checkpoint whole? {SHARDS} shards with {SHARDS * TENSORS} tensors, {ARRAYS} small files, warm"), [
            make("stoker checkpoints check", [ROOT / start.STOKER, "checkpoints", "check", tree, "-o", "json"], ours=True, check=whole),
            make("sha256sum", ["sh", "-c", f"find {tree} -type f -print0 | xargs -0 sha256sum"], "sha256sum", mark="reads every byte"),
        ], ("each file looked at by name on all cores", (SHARDS + ARRAYS) * self.limits["stat_s"] / os.cpu_count()))
        shutil.rmtree(tree)

    def hub(self):
        def limits(name, nginx):
            if name != "one":
                return [self.files_limit({"few": N_FEW, "many": N_SMALL}[name])] * 2
            url = f"{nginx.url}/bench/one/resolve/{COMMIT}/model.bin"
            plain = {k: v for k, v in self.aws.items() if k not in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
            return self.verified_limit(url, plain, SIZE), ("drop the bytes", self.drained(url, plain, 2))
        hub.rows(self, COMMIT, limits)

    def machine(self):
        tries = [json.loads(run([STORE, "memory", str(min(512, SIZE // MIB))], cwd=self.folder).out) for _ in range(3)]
        self.limits = {k: max(t[k] for t in tries) for k in tries[0]}
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            self.limits.update(json.loads(run([STORE, "files", "2000", str(SMALL)], cwd=scratch).out))
        self.limits["fork_exec_s"] = json.loads(run([STORE, "spawn", "500"]).out)["seconds_each"]
        print("limits of this machine: " + ", ".join(f"{k} {v:.3g}" for k, v in self.limits.items()))

    def start(self):
        start.first_line(self)

    def databases(self):
        databases.both(self, ROUNDS)

    def warm(self):
        start.warm_model(self)

    def python(self):
        start.warm_python(self)

    def play_all(self, wanted):
        """The rows that could not be measured."""
        failed = []
        self.machine()
        for name in wanted:
            try:
                ROWS[name](self)
            except (Wrong, RuntimeError, OSError, subprocess.SubprocessError) as e:
                failed.append(name)
                print(f"\n## {name}: FAILED: {e}")
        return failed


ROWS = {"start": Bench.start, "fetch-nginx": Bench.fetch_nginx, "fetch-far": Bench.fetch_far, "fetch-minio": Bench.fetch_minio,
        "fetch-large": fetches.rows, "fetch-tls": fetches.over_tls, "fetch-line": fetches.over_a_line, "warm": Bench.warm,
        "python": Bench.python,
        "checkpoint": Bench.checkpoint, "elsewhere": elsewhere.rows, "load": Bench.load, "check": Bench.check, "summarize": Bench.summarize, "push": load.push_archive, "repos": repos.rows, "hub": Bench.hub, "artifacts": artifacts.rows, "compiled": compiled.rows, "jobs": load.many_jobs,
        "line": line.long_line, "databases": Bench.databases, "tails": load.many_tails, "serve": serve.rows, "deploy": serve.warm}


def place():
    """Memory first: what is measured is the program, not the disk's mood."""
    need = SIZE * COPIES + N_SMALL * SMALL * 3
    if os.environ.get("BENCH_DIR"):
        return os.environ["BENCH_DIR"]
    with open("/proc/meminfo") as f:
        free = next(int(line.split()[1]) << 10 for line in f if line.startswith("MemAvailable"))
    shm = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0
    return "/dev/shm" if min(free, shm) > need * 5 // 4 else str(ROOT / "build")


def main():
    wanted = sys.argv[1:] or list(ROWS)
    if unknown := [w for w in wanted if w not in ROWS]:
        sys.exit(f"no row named {unknown[0]}: {' '.join(ROWS)}")
    raise_limits()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # servers and folders go, as after Ctrl-C
    where = place()
    kind = subprocess.run(["stat", "-f", "-c", "%T", where], capture_output=True, text=True).stdout.strip()
    with open("/proc/cpuinfo") as f:
        cpu = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), platform.machine())
    print("ratio: a peer's time over ours (ours: the best peer's time over ours); above 1 Stoker is faster")
    print(f"{cpu}, {os.cpu_count()} cores, Linux {platform.release()}; on {kind}; {ROUNDS} rounds after one that warms up, medians")
    failed = []
    with tempfile.TemporaryDirectory(prefix="stoker-bench-", dir=where) as folder:
        bench = Bench(pathlib.Path(folder), kind == "tmpfs")
        try:
            failed += bench.play_all(wanted)
        finally:
            peers.stop_all()
        record = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "cpu": cpu,
                  "cores": os.cpu_count(), "kernel": platform.release(), "file_system": kind, "rounds": ROUNDS, "size": SIZE,
                  "limits": bench.limits, "rows": [row.record() for row in bench.rows]}
        failed += [f"{row.key}: {c.name}" for row in bench.rows for c in row.contenders if c.ours and c.problem]
    (ROOT / "build/bench.json").write_text(json.dumps(record, indent=1) + "\n")
    print("\nwritten: build/bench.json" + (f"; FAILED: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
