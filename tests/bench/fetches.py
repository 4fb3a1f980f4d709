"""Rows about fetches from each kind of server: over TLS, over a line with delay and loss, and of eight large objects at once."""
import json
import os
import pathlib
import shutil
import subprocess

import peers
from harness import MIB, Row, run
from peers import KEY, PARTS, PEERS, SECRET, tool, version

COMMIT = "0" * 39 + "1"
LINE = pathlib.Path(__file__).resolve().parents[2] / "build/rel/tests/bench/bench_line"
# delay each way in ms, packets lost in a million
LINES = {"fetch-line-5": (5, 0), "fetch-line-20": (20, 0), "fetch-line-loss": (20, 1000)}
DRAINS = 16  # connections of who drops the bytes
EIGHT = 8


class Line(peers.Server):
    """Its other end is in a network namespace: what runs by `enter` asks from there."""

    def __init__(self, folder, delay_ms, loss):
        net = f"10.98.{os.getpid() % 250 + 1}"
        self.address = f"{net}.1"
        self.begin([LINE, f"bench{os.getpid()}", self.address, f"{net}.2", delay_ms, loss], folder / "line.err", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self.process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"no line: {(folder / 'line.err').read_text()[-300:]}")
        self.enter = ["nsenter", f"--net=/proc/{self.pid}/ns/net"]


class Web:
    """The repositories of a Hub in nginx, as each contender asks for them."""

    def __init__(self, bench, nginx, url=None, enter=(), aria="-x4 -s4 -k64M"):
        self.bench, self.nginx, self.url, self.enter, self.aria = bench, nginx, url or nginx.url, list(enter), aria
        self.ca = nginx.certificate if self.url.startswith("https:") else None
        self.env = {k: v for k, v in bench.aws.items() if k not in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}

    def trusting(self, *words):
        return list(words) if self.ca else []

    def fetcher(self, name, argv, program=None, mark="", want=None, env=None):
        return self.bench.fetcher(name, [*self.enter, *argv], program, server=self.nginx, ours=program is None, want=want, mark=mark, env=env)

    def ours(self, name, want):
        env = {**self.env, "BENCH_HF": self.url, **({"BENCH_CA": str(self.ca)} if self.ca else {})}
        return self.fetcher("stoker", [self.bench.store, "fetch", f"hf://bench/{name}", self.bench.out], want=want, env=env)

    def s5cmd(self, *words):
        return [tool("s5cmd"), "--endpoint-url", self.url, "--no-sign-request", *self.trusting("--no-verify-ssl"), *words]

    def rclone(self, *words):
        return self.bench.rclone(*self.trusting("--ca-cert", self.ca), *words)

    def one(self, name, verified=False):
        """Of a repository with one file."""
        files = self.bench.repository(name)
        want = (1, (files / "model.bin").stat().st_size)
        key, to = f"bench/{name}/resolve/{COMMIT}/model.bin", self.bench.out / "a.bin"
        url, fetch = f"{self.url}/{key}", self.rclone("copyto", self.bench.s3_remote(self.url) + key, to)
        return [
            self.ours(name, want),
            self.fetcher("curl", [tool("curl"), "-sf", *self.trusting("--cacert", self.ca), "-o", to, url], "curl", want=want),
            self.fetcher("s5cmd", self.s5cmd("cp", f"s3://{key}", to), "s5cmd", want=want),
            self.fetcher("rclone", fetch, "rclone", want=want),
            *([self.bench.verified(fetch, to, server=self.nginx)] if verified else []),
            self.fetcher("aws", [tool("aws"), "--endpoint-url", self.url, "--no-sign-request", *self.trusting("--ca-bundle", self.ca), "s3", "cp", f"s3://{key}",
                                 to, "--no-progress"], "aws", want=want),
            self.fetcher("aria2c", [tool("aria2c"), "-q", *self.aria.split(), *self.trusting(f"--ca-certificate={self.ca}"), "--file-allocation=none",
                                    "-d", self.bench.out, "-o", "a.bin", url], "aria2c", self.aria.split()[0], want),
        ]

    def several(self, name):
        bench, files = self.bench, sorted(self.bench.repository(name).iterdir())
        want, key = (len(files), sum(p.stat().st_size for p in files)), f"bench/{name}/resolve/{COMMIT}"
        names, url = [p.name for p in files], f"{self.url}/{key}"
        orders, links = bench.folder / "s5cmd.txt", bench.folder / "aria2.txt"
        orders.write_text("".join(f"cp s3://{key}/{n} {bench.out}/{n}\n" for n in names))
        links.write_text("".join(f"{url}/{n}\n out={n}\n" for n in names))
        return want, [
            self.ours(name, want),
            self.fetcher("curl", [tool("curl"), "-sf", *self.trusting("--cacert", self.ca), "-Z", "--parallel-max", "50", "-K", bench.urls(url, names)], "curl",
                         "-Z 50", want),
            self.fetcher("s5cmd", self.s5cmd("run", orders), "s5cmd", "run", want),
            self.fetcher("rclone", self.rclone("copy", "--transfers", "16", "--checkers", "16", f":http,url='{url}/':", bench.out), "rclone", "http, 16", want),
            self.fetcher("aria2c", [tool("aria2c"), "-q", "-j16", *self.trusting(f"--ca-certificate={self.ca}"), "--file-allocation=none", "-d", bench.out,
                                    "-i", links], "aria2c", "-j16", want),
        ]


def hashed(bench, size, chains):
    """Objects are hashed on all cores, each of them on one."""
    seconds = size / bench.limits["sha256_gb_s"] / 1e9 / min(chains, os.cpu_count())
    return f"SHA-256 of {size // MIB} MiB, {'one chain on one core' if chains == 1 else 'on all cores'}", seconds


def drop(bench, *names):
    for name in names:
        shutil.rmtree(bench.www / "bench" / name, ignore_errors=True)


def over_tls(bench):
    nginx = peers.Nginx(bench.folder, bench.www, tls=True)
    try:
        web = Web(bench, nginx, nginx.tls_url)
        size = bench.size
        bench.play(Row("fetch-tls-1", f"fetch one object of {size // MIB} MiB over TLS, from one process of nginx {version('nginx', '-v')}, ours verified",
                       "the ratios of the row without TLS", size), web.one("one"), hashed(bench, size, 1))
        want, contenders = web.several("eight")
        bench.play(Row("fetch-tls-8", f"fetch {EIGHT} objects of {size // MIB // EIGHT} MiB over TLS, ours verified", "none", size), contenders, hashed(bench, size, EIGHT))
        want, contenders = web.several("many")
        bench.play(Row("fetch-tls-many", f"fetch {want[0]} x 64 KiB over TLS, ours verified", "none", want[1]), contenders, bench.files_limit())
        drop(bench, "eight")
    finally:
        nginx.stop()


def over_a_line(bench):
    for key, (delay, loss) in LINES.items():
        words = f"over TLS and a line of {delay} ms each way" + (f" that loses {loss / 10000:g} % of the packets" if loss else "")
        line = Line(bench.folder, delay, loss)
        nginx = None
        try:
            nginx = peers.Nginx(bench.folder, bench.www, tls=True, address=line.address)
            web = Web(bench, nginx, nginx.tls_url, line.enter, "-x16 -s16 -k1M")

            def drained(name, size, nginx=nginx, line=line, web=web):
                """What the line gives who has no TLS, no hash and no file, at its best."""
                files = sorted(bench.repository(name).iterdir())
                url = f"{nginx.url}/bench/{name}/resolve/{COMMIT}/{files[0].name}"
                at = min(json.loads(run([*line.enter, bench.store, "drain", url, str(DRAINS)], web.env).out)["seconds"] for _ in range(3))
                return f"{DRAINS} connections without TLS that drop the bytes", at * size / files[0].stat().st_size
            contenders, size = web.one("line-one"), bench.line_size
            bench.play(Row(f"{key}-1", f"fetch one object of {size // MIB} MiB {words}", "none", size), contenders, drained("line-one", size))
            want, contenders = web.several("line-eight")
            bench.play(Row(f"{key}-8", f"fetch {EIGHT} objects of {want[1] // MIB // EIGHT} MiB {words}", "none", want[1]), contenders, drained("line-one", want[1]))
            want, contenders = web.several("line-many")
            bench.play(Row(f"{key}-many", f"fetch {want[0]} x 64 KiB {words}", "none", want[1]), contenders, drained("line-one", want[1]))
        finally:
            for part in (nginx, line):
                if part:
                    part.stop()


# --- stores ---------------------------------------------------------------------------------------


class Store:
    """A server with the repositories `one` and `eight` in its container `bench`, and those who fetch from it."""
    slash = "/"  # of a name in a link

    def __init__(self, bench):
        self.bench = bench

    def copy_in(self, name):
        """What the store has to hold; one that takes long for it gets a quarter."""
        run(self.bench.rclone("copy", self.bench.repository(self.short + name), f"{self.remote}bench/{name}"), self.bench.aws)

    def forget(self, name):
        run(self.bench.rclone("purge", f"{self.remote}bench/{name}"), self.bench.aws)

    def contenders(self, name, want):
        bench, out = self.bench, self.bench.out
        names = [p.name for p in sorted(bench.repository(self.short + name).iterdir())]

        def make(who, argv, program=None, mark="", env=None):
            return bench.fetcher(who, argv, program, env, self.server, program is None, want, mark)
        return [
            make("stoker", [bench.store, "fetch", f"{self.source}bench/{name}", out], env={**bench.aws, **self.env}),
            make("curl", [tool("curl"), "-sf", "-Z", *self.sign, "-K",
                          bench.urls(self.link, [f"{name}{self.slash}{n}" for n in names], query=self.more)], "curl", "-Z"),
            make("rclone", bench.rclone("copy", f"{self.remote}bench/{name}", out), "rclone"),
            *self.others(make, name, out),
        ]

    def others(self, make, name, out):
        return []

    def stop(self):
        self.server.stop()


class S3Store(Store):
    source, short, more = "s3://", "", ""
    sign = ("--aws-sigv4", "aws:amz:us-east-1:s3", "--user", f"{KEY}:{SECRET}", "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD")

    def __init__(self, bench, server, name):
        super().__init__(bench)
        self.server, self.name, self.env = server, name, {"BENCH_S3": server.url}
        self.remote, self.link = bench.s3_remote(server.url), f"{server.url}/bench"

    def others(self, make, name, out):
        return [make("s5cmd", [tool("s5cmd"), "--endpoint-url", self.server.url, "cp", f"s3://bench/{name}/*", f"{out}/"], "s5cmd"),
                make("aws", [tool("aws"), "--endpoint-url", self.server.url, "s3", "cp", "--recursive", f"s3://bench/{name}", out, "--no-progress"], "aws")]


class GsStore(Store):
    source, short, sign, more, slash = "gs://", "quarter-", (), "?alt=media", "%2F"

    def __init__(self, bench):
        super().__init__(bench)
        self.server, self.name = peers.Google(bench.folder), f"fake-gcs-server {peers.go_version('fake-gcs-server', 'github.com/fsouza/fake-gcs-server')}"
        url = self.server.url
        self.env = {"BENCH_ENDPOINT": url, "BENCH_SECRET": ""}
        self.remote, self.link = f":gcs,anonymous=true,endpoint='{url}/storage/v1/':", f"{url}/download/storage/v1/b/bench/o"


class AzureStore(Store):
    source, short, sign = f"azure://{peers.AZURE}/", "quarter-", ()

    def __init__(self, bench):
        super().__init__(bench)
        self.server, self.name = peers.Azurite(bench.folder), "Azurite"
        url = self.server.url
        self.env = {"BENCH_ENDPOINT": url, "BENCH_SECRET": json.dumps({"account_key": peers.AZURE_KEY})}
        self.remote = f":azureblob,account={peers.AZURE},key='{peers.AZURE_KEY}',endpoint='{url}/{peers.AZURE}':"
        self.link, self.more = f"{url}/{peers.AZURE}/bench", "?" + self.server.sas()


def from_stores(bench):
    """One large object, and eight."""
    def s3(server, name):
        return lambda: S3Store(bench, server(bench.folder), name())
    kinds = {"minio": ("minio", s3(peers.Minio, lambda: f"MinIO {peers.minio_version()}")),
             "versitygw": ("versitygw", s3(peers.Versity, lambda: f"versitygw {peers.go_version('versitygw', 'github.com/versity/versitygw')}")),
             "gs": ("fake-gcs-server", lambda: GsStore(bench)), "azure": ("azurite", lambda: AzureStore(bench))}
    for key, (program, begin) in kinds.items():
        if not (tool(program) or (PARTS / program).exists()):
            print(f"\n## fetch-{key}: skipped: no {program}: {PEERS}")
            continue
        store = begin()
        try:
            for name, count in (("one", 1), ("eight", EIGHT)):
                files = sorted(bench.repository(store.short + name).iterdir())
                size = sum(p.stat().st_size for p in files)
                store.copy_in(name)
                bench.play(Row(f"fetch-{key}-large-{count}", f"fetch {count} x {size // MIB // count} MiB from {store.name}, ours hashed", "none", size),
                           store.contenders(name, (count, size)), hashed(bench, size, count))
                store.forget(name)
        finally:
            store.stop()
            shutil.rmtree(store.server.drive, ignore_errors=True)


def rows(bench):
    nginx = peers.Nginx(bench.folder, bench.www)
    try:
        want, contenders = Web(bench, nginx).several("eight")
        bench.play(Row("fetch-nginx-8", f"fetch {EIGHT} objects of {want[1] // MIB // EIGHT} MiB from nginx, ours verified", "none", want[1]), contenders,
                   hashed(bench, want[1], EIGHT))
    finally:
        nginx.stop()
    from_stores(bench)
    drop(bench, "eight", "quarter-one", "quarter-eight")
