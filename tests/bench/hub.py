"""The Hub as a mirror: HEADs of a file, and the newest client that downloads a whole repository, cold and warm, beside the same client on
nginx, which plays the upstream and only sends files, and on olah, another mirror."""
import base64
import json
import os
import shutil
import subprocess

import peers
from harness import Contender, Row, Wrong, run
from load import STOKER
from peers import PARTS, PEERS

HEADS = 20_000
AT_ONCE = 8
OLAH_FILES = 50  # at most: it takes 0.3 s of CPU for each
FILE = "f0000.bin"
DOWNLOAD = """
import sys
from huggingface_hub import snapshot_download
snapshot_download(sys.argv[1])
"""


class Upstream(peers.Nginx):
    """nginx as a Hub: the files and listings of Bench.repository(), with the headers and the few answers that a Hub's clients ask for."""

    def __init__(self, folder, www, commit, names):
        with open(folder / "etags.map", "w") as etags, open(folder / "paths.map", "w") as paths:
            for name in names:
                for f in json.loads((www / f"api/models/bench/{name}/tree/{commit}").read_text()):
                    etags.write(f"/bench/{name}/resolve/{commit}/{f['path']} '\"{f['lfs']['oid']}\"';\n")
                    paths.write(f"'/api/models/bench/{name}/paths-info/{commit} paths={f['path']}' '{json.dumps([f])}';\n")
        # $request_body is there only once nginx sends it on, so it asks itself: olah asks about each file by POST
        super().__init__(folder, www, http=f"""
              map_hash_max_size 65536; map_hash_bucket_size 512;
              map $uri $linked {{ include {folder}/etags.map; }}
              map $http_x_paths $listed {{ default '[]'; include {folder}/paths.map; }}""", server=f"""
                        rewrite ^(/bench/[^/]+/resolve)/main/(.*)$ $1/{commit}/$2;
                        rewrite ^(/api/models/bench/[^/]+)(/revision/{commit})?$ $1/revision/main;
                        rewrite ^(/api/models/bench/[^/]+/tree/{commit})/$ $1;
                        location /bench/ {{ etag off; add_header X-Repo-Commit {commit}; add_header ETag $linked; add_header X-Linked-Etag $linked; }}
                        location /api/ {{ default_type application/json; }}
                        location ~ /paths-info/ {{ proxy_pass http://$http_host/listed; proxy_method GET; proxy_pass_request_body off;
                                                   proxy_set_header Content-Length ""; proxy_set_header X-Paths "$uri $request_body"; }}
                        location = /listed {{ default_type application/json; return 200 $listed; }}""")


def server(bench, folder, upstream):
    return peers.Stoker(bench.root / STOKER, folder, "--cpus", "4", "--memory", "4Gi", "--hub-upstream", upstream, "--allow-source-network", "127.0.0.0/8")


def heads(bench, folder, nginx, commit):
    """Of one file, which is warm: each server has been asked for it before."""
    stoker, ab = server(bench, folder, nginx.url), peers.tool("ab")
    auth = ("-H", f"Authorization: Bearer {stoker.env['STOKER_TOKEN']}")
    user = json.loads(subprocess.run(["curl", "-sS", "-f", *auth, f"{stoker.url}/api/whoami-v2"], check=True, capture_output=True, timeout=60).stdout)["name"]
    post = ["curl", "-sS", "-f", "-o", "/dev/null", *auth, "-H", "Content-Type: application/json", "--data-binary"]
    data = base64.b64encode((bench.repository("many") / FILE).read_bytes()).decode()
    (folder / "commit").write_text("\n".join(json.dumps({"key": key, "value": value}) for key, value in (
        ("header", {"summary": "one"}), ("file", {"path": FILE, "encoding": "base64", "content": data}))) + "\n")
    subprocess.run([*post, json.dumps({"name": "own"}), f"{stoker.url}/api/repos/create"], check=True, timeout=60)
    subprocess.run([*post, f"@{folder}/commit", f"{stoker.url}/api/models/{user}/own/commit/main"], check=True, timeout=60)
    path = f"bench/many/resolve/main/{FILE}"

    def said(url, want):
        """What is counted below is the answer that a client needs."""
        head = subprocess.run(["curl", "-sS", "-f", "-I", *auth, url], check=True, capture_output=True, text=True, timeout=60).stdout.lower()
        if any(word not in head for word in want):
            raise Wrong(f"{url}: {' '.join(head.split())[:300]}")

    for at in (stoker, nginx):
        said(f"{at.url}/{path}", (f"x-repo-commit: {commit}", "etag: "))
    said(f"{stoker.url}/{user}/own/resolve/main/{FILE}", ("x-repo-commit: ", "etag: "))

    def asked(at, path, *more):
        return lambda: run([ab or "ab", "-q", "-i", "-n", HEADS, "-c", AT_ONCE, *more, f"{at.url}/{path}"], server=at.pid)

    def all_of_them(done):
        if f"Complete requests:      {HEADS}" not in done.out or "Non-2xx" in done.out:
            raise Wrong(" ".join(done.out.split())[-300:])

    missing = None if ab else f"no ab: {PEERS}"
    for key, words, kept in (("hub-head", "a connection each", ()), ("hub-head-kept", "connections kept", ("-k",))):
        row = Row(key, f"{HEADS} HEADs of a file's resolve/main, {AT_ONCE} at once, {words}", "nginx and a file, without a token or a branch to look up")
        bench.play(row, [
            Contender("stoker, mirrored", asked(stoker, path, *auth, *kept), check=all_of_them, ours=True, missing=missing),
            Contender("stoker, its own repository", asked(stoker, f"{user}/own/resolve/main/{FILE}", *auth, *kept), check=all_of_them, peer=False, missing=missing),
            Contender("nginx", asked(nginx, path, *kept), peers.version("nginx", "-v"), check=all_of_them, missing=missing),
            Contender("stoker, /healthz", asked(stoker, "healthz", *kept), "looks at nothing", check=all_of_them, peer=False, missing=missing),
        ])
        for c in row.contenders:
            if c.runs:
                print(f"   {c.name}: {HEADS / c.median():.0f} a second")
    stoker.stop()


class Client:
    """snapshot_download into an empty cache of its own."""

    def __init__(self, folder, bench, name, files, size):
        self.bench, self.home, self.name, self.files, self.size = bench, folder / "home", name, files, size
        self.python = PARTS / "clients/bin/python"

    def download(self, at):
        self.bench.touch_memory(self.size)
        env = {**self.bench.aws, "HOME": str(self.home), "HF_HOME": str(self.home), "HF_ENDPOINT": at.url, "HF_HUB_DISABLE_PROGRESS_BARS": "1",
               "HF_HUB_DISABLE_TELEMETRY": "1", **({"HF_TOKEN": at.env["STOKER_TOKEN"]} if isinstance(at, peers.Stoker) else {})}
        return run([self.python, "-c", DOWNLOAD, f"bench/{self.name}"], env=env, server=at.pid)

    def check(self, _):
        there = [p.stat().st_size for p in self.home.glob(f"hub/models--bench--{self.name}/snapshots/*/*")]
        if (len(there), sum(there)) != (self.files, self.size):
            raise Wrong(f"{len(there)} files with {sum(there)} bytes arrived, {self.files} with {self.size} were asked for")

    def tidy(self):
        shutil.rmtree(self.home, ignore_errors=True)


class Mirrors:
    """Ours and olah, each on an empty folder and one of each kind at a time; nothing of their start is measured."""

    def __init__(self, bench, folder, upstream):
        self.bench, self.folder, self.upstream, self.up = bench, folder, upstream, {}

    def start(self, kind):
        at = self.folder / kind
        at.mkdir()
        self.up[kind] = server(self.bench, at, self.upstream) if kind == "stoker" else peers.Olah(at, self.upstream)
        return self.up[kind]

    def stop(self, kind):
        if kind in self.up:
            self.up.pop(kind).stop()
        shutil.rmtree(self.folder / kind, ignore_errors=True)


def snapshots(bench, folder, nginx, name, limits):
    """limits: of the mirror that has nothing, and of the one that has it."""
    files = [p.stat().st_size for p in bench.repository(name).iterdir()]
    client, mirrors = Client(folder, bench, name, len(files), sum(files)), Mirrors(bench, folder, nginx.url)
    what = f"{len(files)} files of {files[0] >> 10} KiB" if len(files) > 1 else f"one file of {files[0] >> 20} MiB"
    gone = None if client.python.exists() else f"no {client.python}: run `tools/parts.sh clients`"
    no_olah = gone or (None if peers.tool("olah-cli") else f"not installed: {PEERS}")
    if len(files) > OLAH_FILES:
        no_olah = no_olah or f"would take longer than a run may; see the row of {OLAH_FILES} files"

    def cold(kind):
        def tidy():
            client.tidy()
            mirrors.stop(kind)
        return {"once": lambda: client.download(mirrors.start(kind)), "tidy": tidy}

    def warm(kind):
        """The round that warms up fills it."""
        return {"once": lambda: client.download(mirrors.up.get(kind) or mirrors.start(kind)), "tidy": client.tidy}

    try:
        for key, words, way, limit in (("cold", "that has nothing, ours verified", cold, limits[0]), ("warm", "that has it", warm, limits[1])):
            row = Row(f"hub-{name}-{key}", f"snapshot_download of {what} from a mirror {words}", "the same client on nginx, the upstream itself", client.size)
            bench.play(row, [
                Contender("stoker", check=client.check, ours=True, missing=gone, **way("stoker")),
                Contender("nginx", lambda: client.download(nginx), peers.version("nginx", "-v"), check=client.check, tidy=client.tidy, missing=gone),
                Contender("olah", version=peers.wheel_version("olah", "olah"), check=client.check, missing=no_olah, **way("olah")),
            ], limit)
    finally:
        for kind in ("stoker", "olah"):
            mirrors.stop(kind)


def rows(bench, commit, limits):
    folder, names = bench.folder / "hub", ("few", "many", "one")
    folder.mkdir()
    for name in names:
        bench.repository(name)
    nginx = None
    try:
        nginx = Upstream(folder, bench.www, commit, names)
        heads(bench, folder, nginx, commit)
        for name in names:
            snapshots(bench, folder, nginx, name, limits(name, nginx))
    finally:
        if nginx:
            nginx.stop()
        shutil.rmtree(folder, ignore_errors=True)
