"""What builds keep: small artifacts got beside nginx, which only sends files; and a C project that was compiled elsewhere, by ccache
through the server, beside ccache's own folder and one that machines share, and what it costs where nothing is found."""
import base64
import os
import shutil
import subprocess

import peers
from harness import Contender, Row, Wrong, run
from load import STOKER

GETS = 20_000
AT_ONCE = 8
SIZE = 4096
KEY = "0123456789abcdef0123456789abcdef01234567"
FOLDERS = ("base", "core", "io")  # of our own sources: the project


class Cache:
    """Our server, and its default team's namespace."""

    def __init__(self, bench, folder):
        self.stoker = peers.Stoker(bench.root / STOKER, folder, "--cpus", "4", "--memory", "4Gi", "--hub-upstream", "off")
        self.token, self.pid = self.stoker.env["STOKER_TOKEN"], self.stoker.pid
        self.team = next(t["name"] for t in self.stoker.json("teams", "ls"))
        self.host = self.stoker.url.removeprefix("http://")
        self.remote = f"http://x:{self.token}@{self.host}/artifact/ccache/{self.team}"


def get(bench):
    folder = bench.folder / "artifacts"
    (folder / "www").mkdir(parents=True)
    data = os.urandom(SIZE)
    (folder / "www/f").write_bytes(data)
    cache, nginx, ab = Cache(bench, folder), peers.Nginx(folder, folder / "www") if peers.tool("nginx") else None, peers.tool("ab")
    url = f"{cache.stoker.url}/artifact/ccache/{cache.team}/{KEY}"
    auth = "Basic " + base64.b64encode(f"x:{cache.token}".encode()).decode()
    subprocess.run(["curl", "-sS", "-f", "-H", f"Authorization: {auth}", "-T", folder / "www/f", url], check=True, timeout=60)

    def asked(url, server, *more):
        return lambda: run([ab or "ab", "-q", "-n", GETS, "-c", AT_ONCE, *more, url], server=server.pid)

    def whole(done):
        if f"Complete requests:      {GETS}" not in done.out or "Non-2xx" in done.out or f"Document Length:        {SIZE} bytes" not in done.out:
            raise Wrong(" ".join(done.out.split())[-300:])

    for key, words, more in (("artifacts-get", "a connection each, as compilers ask", ()), ("artifacts-get-kept", "connections kept", ("-k",))):
        row = Row(key, f"{GETS} GETs of an artifact of {SIZE} bytes, {AT_ONCE} at once, {words}", "nginx and a file, without a token")
        bench.play(row, [
            Contender("stoker", asked(url, cache, "-H", f"Authorization: {auth}", *more), check=whole, ours=True, missing=None if ab else "no ab"),
            Contender("nginx", asked(f"{nginx.url}/f" if nginx else "", nginx, *more), peers.version("nginx", "-v"), check=whole,
                      missing=None if nginx and ab else f"no nginx or no ab: {peers.PEERS}"),
            Contender("bazel-remote", None, missing="the Go proxy does not have its module"),
        ])
    for part in (cache.stoker, nginx):
        if part:
            part.stop()
    shutil.rmtree(folder)


def rebuild(bench):
    folder = bench.folder / "rebuild"
    folder.mkdir()
    src, ccache = bench.root / "src", peers.tool("ccache")
    sources = [str(p.relative_to(src)) for name in FOLDERS for p in sorted((src / name).glob("*.c"))]
    (folder / "list").write_text("\n".join(sources))
    cache, at = Cache(bench, folder), {"run": 0}
    one = 'o=$0/$(echo $1 | tr / _).o; exec $CC -std=gnu17 -D_GNU_SOURCE -DSTOKER_VERSION=\\"0\\" -O1 -I. -c $1 -o $o'

    def build(local, remote=None, compiler="ccache gcc", namespace=""):
        """All of them, as many at once as there are cores."""
        at["out"] = folder / "out"
        at["out"].mkdir()
        env = {**os.environ, "HOME": str(folder), "CC": compiler, "CCACHE_DIR": str(local), "CCACHE_CONFIGPATH": "/dev/null", "CCACHE_NAMESPACE": namespace, **({"CCACHE_REMOTE_STORAGE": remote} if remote else {})}
        at["env"] = env
        return run(["sh", "-c", f"xargs -P {os.cpu_count()} -n 1 sh -c '{one}' {at['out']} < {folder}/list"], env=env, cwd=src, server=cache.pid)

    def fresh():
        at["run"] += 1
        return folder / f"local-{at['run']}"

    def made(_):
        if len(list(at["out"].iterdir())) != len(sources):
            raise Wrong("not all objects are there")

    def hits(kind):
        def check(done):
            made(done)
            text = subprocess.run([ccache, "--print-stats"], env=at["env"], capture_output=True, text=True, check=True).stdout
            stats = dict(line.split("\t") for line in text.splitlines())
            if int(stats[kind]) % len(sources) or int(stats[kind]) == 0:
                raise Wrong(f"{kind} is {stats[kind]} of {len(sources)}")
        return check

    def tidy():
        shutil.rmtree(at["out"], ignore_errors=True)
        if at["run"]:
            shutil.rmtree(folder / f"local-{at['run']}", ignore_errors=True)

    shared, warm = folder / "shared", folder / "warm"
    if ccache:
        for remote in (cache.remote, f"file:{shared}"):
            build(fresh(), remote)
            tidy()
        build(warm)
        tidy()
    missing = None if ccache else "no ccache"
    row = Row("artifacts-rebuild", f"{len(sources)} C files that another machine has compiled, on {os.cpu_count()} cores", "a folder that both machines have, as good as a local disk")
    bench.play(row, [
        Contender("ccache through stoker", lambda: build(fresh(), cache.remote), check=hits("remote_storage_hit"), tidy=tidy, ours=True, missing=missing),
        Contender("ccache, a shared folder", lambda: build(fresh(), f"file:{shared}"), peers.version("ccache"), check=hits("remote_storage_hit"), tidy=tidy, missing=missing),
        Contender("ccache, its own folder", lambda: build(warm), "finds all", check=hits("direct_cache_hit"), tidy=tidy, missing=missing, peer=False),
        Contender("ccache, cold", lambda: build(fresh()), check=hits("cache_miss"), tidy=tidy, peer=False, missing=missing),
        Contender("ccache through stoker, cold", lambda: build(fresh(), cache.remote, namespace=f"cold-{at['run']}"), check=hits("cache_miss"), tidy=tidy, peer=False, missing=missing),
        Contender("gcc", lambda: build(fresh(), compiler="gcc"), "without ccache", check=made, tidy=tidy, peer=False),
    ])
    cache.stoker.stop()
    shutil.rmtree(folder)


def rows(bench):
    get(bench)
    rebuild(bench)
