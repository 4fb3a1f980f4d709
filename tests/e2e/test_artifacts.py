"""Artifacts of builds: real ccache, sccache and Bazel, and requests that none of them would send."""
import base64
import collections
import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import time

import boto3
import botocore.config
import botocore.exceptions
import pytest
from conftest import CALL_S, CLUSTER, PARTS, STOKER, new_cluster, until
from postgres import server, target  # noqa: F401
from s3 import flags, minio  # noqa: F401

SRC = pathlib.Path(__file__).resolve().parents[2] / "src"
SOURCES = ["base/arena.c", "base/buf.c", "base/clock.c", "base/err.c", "base/units.c", "core/artifact.c"]
SCCACHE = PARTS / "builds/bin/sccache"
MB = 1 << 20
ROW = 512  # bytes that an artifact counts beside its content
SMALL = 8192  # content up to this size is in its row
PEOPLE = {"ann": ("red", "member"), "vic": ("red", "viewer"), "bob": ("red", "member"), "eve": ("blue", "member"), "blue": ("red", "member")}
LAYOUTS = ("subdirs", "flat", "bazel")

Answer = collections.namedtuple("Answer", "status headers body")


class Site:
    """A server, and the tokens of people in two teams."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.token = cluster.people(PEOPLE)
        self.token["admin"] = cluster.token

    @property
    def host(self):
        return self.cluster.url.removeprefix("http://")

    def ask(self, method, path, body=None, token="ann", headers=()):
        """By Basic, as most tools do. token None: none; a path is sent as it is."""
        connection = http.client.HTTPConnection(self.host, timeout=CALL_S)
        sent = dict(headers)
        if token is not None:
            sent.setdefault("Authorization", "Basic " + base64.b64encode(f"x:{self.token[token]}".encode()).decode())
        try:
            connection.request(method, path, body, sent)
            reply = connection.getresponse()
            return Answer(reply.status, reply.headers, reply.read())
        finally:
            connection.close()

    def metrics(self):
        text = self.cluster.api("GET", "/metrics", raw=True)[1].decode()
        return {name: float(value) for name, value in re.findall(r"^stoker_(artifact_\S+) (\S+)$", text, re.M)}

    def count(self, what, kind="ccache"):
        return self.metrics()[f'artifact_{what}{{kind="{kind}"}}']

    def rows(self, what="name"):
        import sqlite3
        with contextlib.closing(sqlite3.connect(f"file:{self.cluster.data}/stoker.db?mode=ro", uri=True)) as db:
            return [row[0] for row in db.execute(f"SELECT {what} FROM artifacts ORDER BY name")]

    def blobs(self):
        return [p for p in (self.cluster.data / "store/blobs/sha256").rglob("*") if p.is_file()]


def begin(cluster, *more, env=None):
    return cluster.start("--cpus", "4", "--memory", "4Gi", "--hub-upstream", "off", *more, env=env)


@pytest.fixture(scope="module")
def shared():
    """One server, for all that does not disturb others."""
    with new_cluster() as cluster:
        yield Site(begin(cluster))


@pytest.fixture
def site(shared, request):
    request.node.stash[CLUSTER] = shared.cluster
    return shared


def ccache_path(n, ns="red"):
    return f"/artifact/ccache/{ns}/" + hashlib.sha1(str(n).encode()).hexdigest()


def put(site, n, data, **kw):
    answer = site.ask("PUT", ccache_path(n), data, **kw)
    assert answer.status == 200, answer
    return answer


def get(site, n, **kw):
    """Its bytes; None: it is not there."""
    answer = site.ask("GET", ccache_path(n), **kw)
    assert answer.status in (200, 404), answer
    return answer.body if answer.status == 200 else None


def refused(answer, status, words=""):
    assert answer.status == status and words in json.loads(answer.body)["message"], answer
    return answer


def sha(data):
    return hashlib.sha256(data).hexdigest()


# --- real tools


def compile_all(folder, compiler, env):
    """With each source of ours for itself, as make does."""
    for source in SOURCES:
        done = subprocess.run([*compiler, "gcc", "-std=gnu17", "-D_GNU_SOURCE", "-O1", "-I.", "-c", source, "-o", folder / "out.o"], cwd=SRC, env={**os.environ, **env},
                              capture_output=True, text=True, timeout=CALL_S)
        assert done.returncode == 0, done.stderr


def ccache_stats(env):
    text = subprocess.run(["ccache", "--print-stats"], env={**os.environ, **env}, capture_output=True, text=True, check=True).stdout
    return collections.defaultdict(int, {k: int(v) for k, v in (line.split("\t") for line in text.splitlines())})


def ccache_build(site, folder, layout, token="ann"):
    """From an empty cache of its own; (hits, misses) of the one that all share."""
    folder.mkdir()
    env = {"CCACHE_DIR": str(folder / "cache"), "CCACHE_CONFIGPATH": "/dev/null", "CCACHE_REMOTE_STORAGE": f"http://x:{site.token[token]}@{site.host}/artifact/ccache/red|layout={layout}"}
    compile_all(folder, ["ccache"], env)
    stats = ccache_stats(env)
    assert stats["remote_storage_error"] == stats["remote_storage_timeout"] == 0, stats
    return stats["remote_storage_hit"], stats["remote_storage_miss"]


def test_ccache_finds_what_another_one_has_compiled(empty_cluster, tmp_path):
    site = Site(begin(empty_cluster))
    n = len(SOURCES)
    hits, misses = ccache_build(site, tmp_path / "first", "subdirs")
    assert (hits, misses) == (0, n)
    held = site.metrics()
    for layout in LAYOUTS:  # one key, however it is written
        assert ccache_build(site, tmp_path / layout, layout) == (n, 0), layout
        assert ccache_build(site, tmp_path / f"viewer-{layout}", layout, token="vic") == (n, 0)
    assert site.metrics()["artifact_bytes"] == held["artifact_bytes"]
    assert len(site.rows()) == 2 * n  # what a file includes, and what it becomes
    assert site.count("hits_total") == 2 * 2 * n * len(LAYOUTS) and site.count("stored_total") == 2 * n and site.count("misses_total") >= n


def test_who_may_only_read_compiles_without_storing(empty_cluster, tmp_path):
    site = Site(begin(empty_cluster))
    folder = tmp_path / "viewer"
    folder.mkdir()
    env = {"CCACHE_DIR": str(folder / "cache"), "CCACHE_CONFIGPATH": "/dev/null", "CCACHE_REMOTE_STORAGE": f"http://x:{site.token['vic']}@{site.host}/artifact/ccache/red"}
    compile_all(folder, ["ccache"], env)
    assert (folder / "out.o").is_file() and site.rows() == []


class Sccache:
    """One of its servers: it asks once, at its start, whether it may write."""

    def __init__(self, folder, **env):
        folder.mkdir()
        self.folder = folder
        self.env = {"SCCACHE_SERVER_UDS": str(folder / "socket"), "SCCACHE_CONF": "/dev/null", "SCCACHE_LOG": "warn", "SCCACHE_ERROR_LOG": str(folder / "log"), "HOME": str(folder), **env}

    def build(self):
        compile_all(self.folder, [SCCACHE], self.env)
        return self

    def run(self, *args):
        return subprocess.run([SCCACHE, *args], env={**os.environ, **self.env}, capture_output=True, text=True, timeout=CALL_S)

    def stats(self):
        """(hits, misses), and what went wrong in writing."""
        stats = json.loads(self.run("--show-stats", "--stats-format", "json").stdout)["stats"]
        return sum(stats["cache_hits"]["counts"].values()), sum(stats["cache_misses"]["counts"].values()), stats["cache_write_errors"]

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.run("--stop-server")


def webdav(site, **more):
    return {"SCCACHE_WEBDAV_ENDPOINT": f"{site.cluster.url}/artifact/webdav/red", "SCCACHE_WEBDAV_TOKEN": site.token["ann"], **more}


def s3_env(site, token="ann", bucket="red"):
    return {"SCCACHE_BUCKET": bucket, "SCCACHE_ENDPOINT": f"{site.cluster.url}/artifact/s3", "SCCACHE_REGION": "auto", "AWS_ACCESS_KEY_ID": "stoker",
            "AWS_SECRET_ACCESS_KEY": site.token[token], "AWS_SESSION_TOKEN": site.token[token]}


def test_sccache_by_webdav_and_by_s3(empty_cluster, tmp_path):
    """Both have the same files. It is stored once they have been waited for."""
    site = Site(begin(empty_cluster))
    n = len(SOURCES)
    cases = [("by-webdav", webdav(site)), ("by-s3", s3_env(site, "admin", "Default"))]
    for name, env in cases:
        with Sccache(tmp_path / name, **env) as first:
            assert first.build().stats() == (0, n, 0)
    with Sccache(tmp_path / "webdav", **webdav(site, SCCACHE_WEBDAV_TOKEN="", SCCACHE_WEBDAV_USERNAME="x", SCCACHE_WEBDAV_PASSWORD=site.token["bob"])) as second:
        assert second.build().stats() == (n, 0, 0)
    with Sccache(tmp_path / "s3", **s3_env(site)) as second:
        assert second.build().stats() == (n, 0, 0)
    assert len(site.rows()) == 2 * (n + 1)  # and .sccache_check
    with Sccache(tmp_path / "prefix", **webdav(site, SCCACHE_WEBDAV_KEY_PREFIX="some/where")) as third:
        assert third.build().stats() == (0, n, 0)
    assert sum(row.startswith("file/some/where/") for row in site.rows()) == n + 1
    with Sccache(tmp_path / "viewer", **webdav(site, SCCACHE_WEBDAV_TOKEN=site.token["vic"])) as reads:
        assert reads.build().stats() == (n, 0, 0)


def test_sccache_compiles_rust(site, tmp_path):
    (tmp_path / "lib.rs").write_text("pub fn seven() -> u32 { 7 }\n")
    for i, wanted in enumerate([(0, 1, 0), (1, 0, 0)]):
        with Sccache(tmp_path / str(i), **webdav(site)) as s:
            done = subprocess.run([SCCACHE, "rustc", "--crate-name", "seven", "--crate-type", "rlib", "--emit", "link,metadata,dep-info", "--out-dir", ".", "lib.rs"], cwd=tmp_path,
                                  env={**os.environ, **s.env, "HOME": os.environ["HOME"]}, capture_output=True, text=True, timeout=CALL_S)
            assert done.returncode == 0, done.stderr
            assert s.stats() == wanted


BAZEL = {
    "WORKSPACE": 'workspace(name = "w")\n',
    "BUILD": """load(":tree.bzl", "tree")
genrule(name = "object", srcs = ["seven.c"], outs = ["seven.o"], cmd = "gcc -c -o $@ $(SRCS)")
genrule(name = "program", srcs = ["main.c", "seven.o"], outs = ["program"], cmd = "echo linking; gcc -o $@ $(SRCS)")
tree(name = "folder")
""",
    "tree.bzl": """def _tree(ctx):
    d = ctx.actions.declare_directory("folder.d")
    ctx.actions.run_shell(outputs = [d], command = "mkdir -p %s/sub; seq 5000 > %s/many; echo b > %s/sub/b" % (d.path, d.path, d.path))
    return [DefaultInfo(files = depset([d]))]

tree = rule(implementation = _tree)
""",
    "seven.c": "int seven(void) { return 7; }\n",
    "main.c": "int seven(void);\nint main(void) { return seven() - 7; }\n",
}


def bazel_build(site, folder, space):
    """From nothing that is local; how many actions it has found in the cache."""
    folder.mkdir()
    for name, text in BAZEL.items():
        (folder / name).write_text(text)
    with new_folder() as root:
        done = subprocess.run(["bazel", f"--output_user_root={root}", "--batch", "build", "//...", "--spawn_strategy=local", "--color=no", "--symlink_prefix=made-",
                               f"--remote_cache=http://x:{site.token['ann']}@{site.host}/artifact/bazel/{space}"], cwd=folder, capture_output=True, text=True, timeout=5 * CALL_S)
        assert done.returncode == 0 and "WARNING: Remote Cache" not in done.stderr, done.stderr
        subprocess.run([folder / "made-bin/program"], check=True)
        assert (folder / "made-bin/folder.d/sub/b").read_text() == "b\n"
    found = re.search(r"(\d+) remote cache hit", done.stderr)
    return int(found[1]) if found else 0


@contextlib.contextmanager
def new_folder():
    """Bazel makes folders that nobody may write to."""
    folder = pathlib.Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    yield folder
    subprocess.run(["chmod", "-R", "u+rwX", folder], check=False)
    shutil.rmtree(folder, ignore_errors=True)


def test_bazel_builds_once(empty_cluster, tmp_path):
    site = Site(begin(empty_cluster))
    assert bazel_build(site, tmp_path / "a", "red") == 0
    assert bazel_build(site, tmp_path / "b", "red") == 3
    # a file of the folder that an action has made is lost: the action is none any more, and made anew
    many = sha("".join(f"{i}\n" for i in range(1, 5001)).encode())
    blob = site.cluster.data / f"store/blobs/sha256/{many[:2]}/{many}"
    blob.unlink()
    assert bazel_build(site, tmp_path / "c", "red") == 2
    assert blob.is_file()
    assert bazel_build(site, tmp_path / "d", "red/instance") == 0  # another instance knows none of them


# --- the protocols, without their tools


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def digest_of(data):
    return field(1, sha(data).encode()) + field(2, len(data))


def action(*outputs, stdout=None, tree=None):
    """What an action has made: an ActionResult."""
    out = b"".join(field(2, field(1, f"out{i}".encode()) + field(2, digest_of(data)) + field(4, 1)) for i, data in enumerate(outputs)) + field(4, 0)
    if stdout is not None:
        out += field(6, digest_of(stdout))
    if tree is not None:
        out += field(3, field(1, b"folder") + field(3, digest_of(tree)))
    return out


def cas(data, ns="red"):
    return f"/artifact/bazel/{ns}/cas/{sha(data)}"


def ac(n, ns="red"):
    return f"/artifact/bazel/{ns}/ac/{sha(str(n).encode())}"


def test_bazel_gets_no_action_without_its_content(site):
    small, large, out, inside = os.urandom(10), os.urandom(SMALL + 1), os.urandom(7), os.urandom(SMALL + 2)
    tree = field(1, field(1, field(1, b"a") + field(2, digest_of(inside))))
    result = action(small, large, b"", stdout=out, tree=tree)
    n = os.urandom(8).hex()
    assert site.ask("GET", ac(n)).status == 404
    parts = [small, large, out, tree, inside]
    for missing in range(len(parts) + 1):
        assert site.ask("PUT", ac(n), result).status == 200
        for method in ("GET", "HEAD"):
            assert site.ask(method, ac(n)).status == 404  # and it is forgotten
        assert not any(row == f"ac/{sha(n.encode())}" for row in site.rows())
        if missing < len(parts):
            assert site.ask("PUT", cas(parts[missing]), parts[missing]).status == 200
        if missing == len(parts) - 1:
            break
    assert site.ask("PUT", ac(n), result).status == 200
    found = site.ask("GET", ac(n))
    assert (found.status, found.body) == (200, result)
    head = site.ask("HEAD", ac(n))
    assert (head.status, head.headers["Content-Length"]) == (200, str(len(result)))
    for data in parts:
        assert site.ask("GET", cas(data)).body == data
    assert site.ask("GET", cas(data).replace("/cas/", "/any/instance/cas/")).body == data  # content has no instance
    assert site.ask("GET", ac(n).replace("/ac/", "/any/instance/ac/")).status == 404
    nothing = site.ask("GET", cas(b""))
    assert (nothing.status, nothing.body) == (200, b"")


def test_trees_of_an_action_are_bounded(site):
    """By what is stored, not by the sizes that the action claims: each GET reads them all."""
    inside = os.urandom(10)
    tree = field(1, field(1, field(1, b"a") + field(2, digest_of(inside)))) + field(77, os.urandom(20 * MB))  # and what a newer API would add
    for data in (inside, tree):
        assert site.ask("PUT", cas(data), data).status == 200
    folder = field(3, field(1, b"folder") + field(3, field(1, sha(tree).encode()) + field(2, 1)))
    for n, status in ((3, 200), (4, 404), (100_000, 404)):
        assert site.ask("PUT", ac(f"trees-{n}"), folder * n + field(4, 0)).status == 200
        assert site.ask("GET", ac(f"trees-{n}")).status == status, n


def test_an_action_that_names_content_without_its_size(site):
    data = os.urandom(10)
    result = field(2, field(1, b"out") + field(2, field(1, sha(data).encode()))) + field(4, 0)
    assert site.ask("PUT", ac("no size"), result).status == 200
    assert site.ask("GET", ac("no size")).status == 404
    for path, body in ((cas(data), data), (ac("no size"), result)):
        assert site.ask("PUT", path, body).status == 200
    assert site.ask("GET", ac("no size")).body == result


def test_bazel_content_is_what_its_name_says(site):
    data, other = os.urandom(100), os.urandom(SMALL + 100)
    for body in (other, b""):
        answer = refused(site.ask("PUT", cas(data), body), 400, sha(data))
        assert sha(body) in json.loads(answer.body)["message"]
    large = os.urandom(300_000)
    refused(site.ask("PUT", cas(large), large[:-1] + b"x"), 400, sha(large))
    for lie in (data, large):
        assert site.ask("GET", cas(lie)).status == 404
    for body in (b"", b"hello, world", field(2, b""), data, field(2, field(2, field(1, b"no hash"))), b"\xcc\xac\x01\x00"):
        refused(site.ask("PUT", ac("none"), body), 400, "ActionResult")
    assert site.ask("GET", ac("none")).status == 404
    assert site.ask("PUT", ac("big"), action(*[b"%d" % i for i in range(1000)])).status == 200


BAD_KEYS = ["/artifact/ccache/red/" + k for k in ("x", "ab/cd", "a" * 39, "a" * 41, "A" * 40, "g" * 40, "ab/" + "c" * 39, "ac/" + "a" * 63, "ac/" + "ab" * 20 + "c" * 24, "%61" * 39,
                                                  "../" + "a" * 40, "a%2F..%2F" + "a" * 40, "%2e%2e/" + "a" * 40, "ab%00" + "c" * 37, "ab%2Fcd", "z" * 4000)]
BAD_KEYS += ["/artifact/bazel/red/" + k for k in ("ac/x", "cas/" + "a" * 63, "cas/" + "A" * 64, "blobs/" + "a" * 64, "a" * 64, "..%2Fac%2F" + "a" * 64, "i%00/ac/" + "a" * 64,
                                                  "i%0a/ac/" + "a" * 64, "%ff/ac/" + "a" * 64, "i" * 600 + "/ac/" + "a" * 64, "a%2F%2Fac%2F" + "a" * 64)]
BAD_KEYS += ["/artifact/webdav/red/" + k for k in ("../x", "a/%2e%2e/x", "a%2F..%2Fx", "a%00b", "a%0ab", "%ff", "x" * 600, "a%2F%2Fb", ".", "%2e")]


def test_what_is_no_key_is_told(site):
    before = site.rows()
    for path in BAD_KEYS:
        for method, body in (("PUT", b"x"), ("GET", None), ("HEAD", None)):
            answer = site.ask(method, path, body)
            assert answer.status in (400, 404), (method, path, answer)
            assert method == "HEAD" or len(json.loads(answer.body)["message"]) > 10
    assert site.rows() == before
    for path in ("/artifact/ccache/red", "/artifact/other/red/" + "a" * 40, "/artifact", "/artifact/ccache//"):
        assert site.ask("GET", path).status == 404
    answer = site.ask("POST", ccache_path(1), b"x")
    assert answer.status == 405 and "PUT" in answer.headers["Allow"]


def test_a_slash_that_is_encoded_is_one(site):
    """Some clients encode what they need not."""
    key = hashlib.sha1(b"slash").hexdigest()
    assert site.ask("PUT", f"/artifact/ccache/red/{key[:2]}%2F{key[2:]}", b"one").status == 200
    assert site.ask("GET", f"/artifact/ccache/red/{key}").body == b"one"
    assert site.ask("PUT", "/artifact/webdav/red/a%20b/%C3%A9+", b"two").status == 201
    assert site.ask("GET", "/artifact//webdav/red/a%20b/%c3%a9%2B").body == b"two"


@pytest.mark.parametrize("size", [0, 1, SMALL, SMALL + 1, 65_537, 300_000, 3 * MB])
def test_what_was_put_is_got(site, size):
    data = os.urandom(size)
    n = f"size-{size}-{os.urandom(4).hex()}"
    assert get(site, n) is None
    put(site, n, data)
    answer = site.ask("GET", ccache_path(n))
    assert (answer.status, answer.body, answer.headers["ETag"]) == (200, data, f'"{sha(data)}"')
    head = site.ask("HEAD", ccache_path(n))
    assert (head.status, head.headers["Content-Length"], head.body) == (200, str(size), b"")
    assert site.ask("GET", ccache_path(n), headers={"If-None-Match": answer.headers["ETag"]}).status == 304
    if size > 1:
        part = site.ask("GET", ccache_path(n), headers={"Range": f"bytes=1-{size // 2}"})
        assert (part.status, part.body) == (206, data[1:size // 2 + 1])
    put(site, n, data + b"!")  # something else, of another size class perhaps
    assert get(site, n) == data + b"!"
    assert site.ask("DELETE", ccache_path(n)).status == 204
    assert get(site, n) is None
    assert site.ask("DELETE", ccache_path(n)).status == 404


def test_webdav_as_its_clients_ask(site):
    base = "/artifact/webdav/red/dav"
    folder = site.ask("PROPFIND", f"{base}/a/b/", headers={"Depth": "0"})
    assert folder.status == 207 and b"<D:collection/>" in folder.body and b"<D:getlastmodified>" in folder.body
    assert site.ask("PROPFIND", "/artifact/webdav/red", headers={"Depth": "0"}).status == 207
    assert site.ask("PROPFIND", f"{base}/a/b").status == 404
    assert site.ask("MKCOL", f"{base}/a/").status == 201
    assert site.ask("MKCOL", "/artifact/webdav/red").status == 405
    assert site.ask("PUT", f"{base}/a/b", b"12345").status == 201
    assert site.ask("PUT", f"{base}/a/b", b"123456").status == 204
    file = site.ask("PROPFIND", f"{base}/a/b", b"<?xml version='1.0'?><!DOCTYPE x [<!ENTITY y SYSTEM 'file:///etc/passwd'>]><x>&y;</x>", headers={"Depth": "0"})
    assert file.status == 207 and b"<D:getcontentlength>6</D:getcontentlength>" in file.body and b"<D:status>HTTP/1.1 200 OK</D:status>" in file.body
    assert re.search(rb"<D:getlastmodified>\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT<", file.body)
    assert site.ask("PROPFIND", f"{base}/%3Cx%3E&y/").body.count(b"&amp;y") == 1
    refused(site.ask("PROPFIND", f"{base}/", headers={"Depth": "infinity"}), 403, "Depth")
    assert site.ask("PROPFIND", f"{base}/", b"x" * 100_000).status == 413
    options = site.ask("OPTIONS", f"{base}/a")
    assert options.status == 200 and "PROPFIND" in options.headers["Allow"]
    assert site.ask("DELETE", f"{base}/a/b").status == 204
    assert site.ask("GET", f"{base}/a/b").status == 404


def s3_client(site, token="ann", secret=None):
    return boto3.client("s3", endpoint_url=f"{site.cluster.url}/artifact/s3", aws_access_key_id="stoker", aws_secret_access_key=secret or site.token[token],
                        aws_session_token=site.token[token], region_name="auto", config=botocore.config.Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}))


def s3_refused(code, call, **kw):
    with pytest.raises(botocore.exceptions.ClientError) as e:
        call(**kw)
    assert code in (e.value.response["Error"]["Code"], str(e.value.response["ResponseMetadata"]["HTTPStatusCode"])), e.value


def test_s3_with_a_token(site):
    s3, data = s3_client(site), os.urandom(100_000)
    s3.put_object(Bucket="red", Key="s3/x", Body=data)
    assert s3.get_object(Bucket="red", Key="s3/x")["Body"].read() == data
    assert s3.head_object(Bucket="red", Key="s3/x")["ContentLength"] == len(data)
    s3.head_bucket(Bucket="red")
    assert site.ask("GET", "/artifact/webdav/red/s3/x").body == data
    s3_refused("NotImplemented", s3.list_objects_v2, Bucket="red")
    s3_refused("NoSuchKey", s3.get_object, Bucket="red", Key="s3/none")
    s3_refused("403", s3_client(site, secret="another").get_object, Bucket="red", Key="s3/x")
    s3_refused("403", s3_client(site, "vic").put_object, Bucket="red", Key="s3/y", Body=b"")
    s3_refused("404", s3_client(site, "eve").get_object, Bucket="red", Key="s3/x")
    s3_refused("404", s3_client(site, "eve").put_object, Bucket="red", Key="s3/x", Body=b"")
    assert s3_client(site, "vic").get_object(Bucket="red", Key="s3/x")["Body"].read() == data
    answer = site.ask("GET", "/artifact/s3/red/s3/x", token=None)
    assert answer.status == 403 and b"AccessDenied" in answer.body
    assert site.ask("GET", "/artifact/s3/red/s3/x", headers={"Authorization": f"Bearer {site.token['ann']}"}).body == data
    # a signed URL would hand the token on
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "red", "Key": "s3/x"})
    answer = site.ask("GET", url.removeprefix(site.cluster.url), token=None)
    assert answer.status == 403 and b"in headers" in answer.body and site.token["ann"] in url
    s3.delete_object(Bucket="red", Key="s3/x")
    s3.delete_object(Bucket="red", Key="s3/x")
    s3_refused("404", s3.head_object, Bucket="red", Key="s3/x")


def test_whose_namespace_it_is(site):
    put(site, "mine", b"of red")
    assert get(site, "mine", token="vic") == b"of red"
    assert get(site, "mine", token="admin") == b"of red"
    refused(site.ask("PUT", ccache_path("mine"), b"x", token="vic"), 403, "viewer")
    refused(site.ask("DELETE", ccache_path("mine"), token="vic"), 403)
    for method, body in (("GET", None), ("PUT", b"x"), ("DELETE", None)):
        refused(site.ask(method, ccache_path("mine"), body, token="eve"), 404, "red")
        refused(site.ask(method, ccache_path("mine", "nobodys"), body), 404, "nobodys")
    assert site.ask("PROPFIND", "/artifact/webdav/red/", token="eve").status == 404
    assert site.ask("MKCOL", "/artifact/webdav/red/a/", token="vic").status == 403
    assert site.ask("OPTIONS", "/artifact/webdav/red", token="eve").status == 404
    assert get(site, "mine") == b"of red"
    # a user's own is nobody else's; a team's name wins over that of a token
    for ns in ("ann", "ANN"):
        assert site.ask("PUT", ccache_path("own", ns), ns.encode()).status == 200
    assert site.ask("GET", ccache_path("own", "Ann")).body == b"ANN"
    assert site.ask("GET", ccache_path("own", "ann"), token="bob").status == 404
    assert site.ask("PUT", ccache_path("own", "blue"), b"x", token="blue").status == 404
    assert site.ask("PUT", ccache_path("own", "BLUE"), b"x", token="eve").status == 200
    # another team's name, written in another way, takes nothing away
    site.cluster.cli("teams", "create", "RED")
    assert get(site, "mine") == b"of red" and site.ask("GET", ccache_path("mine", "RED")).body == b"of red"
    assert get(site, "mine", token="admin") == b"of red" and site.ask("GET", ccache_path("mine", "RED"), token="admin").status == 404
    # without a token, or with one that is none
    answer = refused(site.ask("GET", ccache_path("mine"), token=None), 401, "Basic")
    assert {h.split()[0] for h in answer.headers.get_all("WWW-Authenticate")} == {"Bearer", "Basic"}
    for header in ("Basic", "Basic !", "Basic " + base64.b64encode(b"x").decode(), "Basic " + base64.b64encode(b"x:").decode(), "Basic " + base64.b64encode(b"x:wrong").decode(),
                   "Basic " + "QUFB" * 2000, "Bearer", "Bearer wrong", "Digest x"):
        assert site.ask("GET", ccache_path("mine"), headers={"Authorization": header}).status == 401, header
    assert site.ask("GET", ccache_path("mine"), headers={"Authorization": f"Bearer {site.token['ann']}"}).status == 200
    # Basic is for tools of builds alone
    assert site.ask("GET", "/v1/teams").status == 401


def test_lengths_that_lie(site):
    assert refused(site.ask("PUT", ccache_path("chunked"), iter([b"a", b"b"]), headers={"Transfer-Encoding": "chunked"}), 411, "Content-Length")
    assert get(site, "chunked") is None
    refused(site.ask("PUT", ac("huge"), None, headers={"Content-Length": str(17 * MB)}), 413, "16")
    refused(site.ask("PUT", ccache_path("huge"), None, headers={"Content-Length": str(5 << 30)}), 413, "4")
    for announced, sent in ((10, 5), (SMALL * 3, SMALL), (3 * MB, 2 * MB)):
        n = f"short-{announced}"
        with socket.create_connection(site.host.split(":"), timeout=CALL_S) as s:
            s.sendall(f"PUT {ccache_path(n)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {site.token['ann']}\r\nContent-Length: {announced}\r\n\r\n".encode() + b"x" * sent)
        time.sleep(0.2)
        assert get(site, n) is None
    until(lambda: not list((site.cluster.data / "store/tmp").glob("artifact-*")))


def test_many_put_the_same(site):
    bodies = [os.urandom(size) for size in (100, SMALL * 2, 400_000)]
    for i, body in enumerate(bodies):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            assert {a.status for a in pool.map(lambda _: site.ask("PUT", ccache_path(f"same-{i}"), body), range(16))} == {200}
        assert get(site, f"same-{i}") == body
    # and each another content: one of them is there, whole
    others = [os.urandom(SMALL + i) for i in range(16)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert {a.status for a in pool.map(lambda body: site.ask("PUT", ccache_path("other"), body), others)} == {200}
    assert get(site, "other") in others


# --- faults


@pytest.mark.parametrize("label", ["artifact:blob", "artifact:row"])
def test_the_server_is_killed_in_a_put(empty_cluster, label):
    data = os.urandom(SMALL * 2)
    site = Site(begin(empty_cluster))
    site.cluster.stop()
    begin(site.cluster, env={"STOKER_CRASH_AT": label})
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        site.ask("PUT", ccache_path(1), data)
    until(lambda: site.cluster.process.poll() is not None)
    begin(site.cluster)
    assert get(site, 1) in (None, data)
    assert (get(site, 1) == data) == (label == "artifact:row")
    put(site, 1, data)
    assert get(site, 1) == data


def test_kill_9_while_many_put(empty_cluster):
    """Whatever is there afterwards is what was put; what was acknowledged is there."""
    site = Site(begin(empty_cluster))
    acknowledged = set()

    def put_some(which):
        with contextlib.suppress(ConnectionError, http.client.HTTPException, OSError):
            for i in range(which, 4000, 8):
                if site.ask("PUT", ccache_path(i), body_of(i)).status == 200:
                    acknowledged.add(i)

    def body_of(i):
        return hashlib.sha256(b"%d" % i).digest() * (100 if i % 2 else 400)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        tasks = [pool.submit(put_some, w) for w in range(8)]
        until(lambda: len(acknowledged) > 60)
        site.cluster.kill()
        for task in tasks:
            task.result()
    begin(site.cluster)
    for i in range(max(acknowledged) + 50):
        found = get(site, i)
        assert found == body_of(i) if i in acknowledged else found in (None, body_of(i)), i


def test_damaged_and_lost_content_is_a_miss(empty_cluster):
    site = Site(begin(empty_cluster))
    for n, size in (("small", SMALL * 2), ("large", 200_000)):
        data = os.urandom(size)
        put(site, n, data)
        blob = site.cluster.data / f"store/blobs/sha256/{sha(data)[:2]}/{sha(data)}"
        blob.chmod(0o644)
        blob.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        assert get(site, n) is None
        assert not blob.exists()
        put(site, n, data)
        assert get(site, n) == data
        blob.unlink()
        assert get(site, n) is None
        put(site, n, data)
        blob.chmod(0o644)
        blob.write_bytes(data[:100])
        assert get(site, n) is None
    assert site.cluster.log.read_text().count("artifact damaged") == 4


def test_a_full_disk(empty_cluster):
    """It refuses what does not fit, and serves what is there."""
    c = empty_cluster
    c.data.mkdir(exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", str(c.data)], capture_output=True).returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        site = Site(begin(c, "--artifact-bytes", "2GiB"))
        (c.data / "something else").write_bytes(bytes(200 * MB))
        data = os.urandom(8 * MB)
        put(site, "first", data)
        statuses = [site.ask("PUT", ccache_path(i), os.urandom(16 * MB)).status for i in range(30)]
        assert statuses[0] == 200 and statuses[-1] == 507 and set(statuses) == {200, 507}, statuses
        assert get(site, "first") == data
        for i in range(4):
            assert site.ask("DELETE", ccache_path(i)).status == 204
        until(lambda: site.ask("PUT", ccache_path("again"), data).status == 200)
        c.stop()
    finally:
        subprocess.run(["umount", "-l", str(c.data)], check=False)


# --- room


def test_the_least_recently_used_goes(empty_cluster):
    site = Site(begin(empty_cluster, "--artifact-bytes", "1MiB"))
    size = 20_000
    put_all = [put(site, i, b"%05d" % i * (size // 5)) for i in range(40)]
    assert all(a.status == 200 for a in put_all)
    for i in range(0, 40, 2):  # the even ones are used
        assert get(site, i) is not None
    for i in range(40, 60):
        put(site, i, b"%05d" % i * (size // 5))
    there = {i for i in range(60) if get(site, i) is not None}
    metrics = site.metrics()
    assert metrics["artifact_bytes"] <= MB and site.count("evicted_total") == 60 - len(there)
    assert set(range(40, 60)) <= there and set(range(0, 40, 2)) <= there, there  # 40 of 20,512 bytes
    until(lambda: sum(p.stat().st_size for p in site.blobs()) <= MB)  # the disk has it back, too
    # what was used stays across a restart
    oldest = min(there)
    assert get(site, oldest) is not None
    site.cluster.stop()
    begin(site.cluster, "--artifact-bytes", "1MiB")
    for i in range(100, 115):
        put(site, i, b"%05d" % i * (size // 5))
    assert get(site, oldest) is not None
    refused(site.ask("PUT", ccache_path("never"), os.urandom(MB)), 507, "--artifact-bytes")
    site.cluster.stop()
    begin(site.cluster, "--artifact-bytes", "100KiB")  # a lower limit counts at once
    shown = site.cluster.api("GET", "/v1/status")[1]["artifacts"]
    assert shown == {"bytes": int(site.metrics()["artifact_bytes"]), "budget": 100 << 10} and shown["bytes"] <= 100 << 10


def test_who_has_most_loses_first(empty_cluster):
    site = Site(begin(empty_cluster, "--artifact-bytes", "1MiB"))
    for i in range(10):
        assert site.ask("PUT", ccache_path(i, "ann"), os.urandom(20_000)).status == 200
    for i in range(100):
        put(site, i, os.urandom(20_000))
    assert all(site.ask("GET", ccache_path(i, "ann")).status == 200 for i in range(10))
    assert site.metrics()["artifact_bytes"] <= MB
    left = [i for i in range(100) if get(site, i) is not None]
    assert len(left) >= 30 and left == list(range(left[0], 100))


def test_artifacts_make_way(empty_cluster):
    """They have no larger part of the mirror than jobs leave to them: the oldest go, for newer ones and for weights."""
    c = empty_cluster
    weights = c.folder / "weights"
    weights.mkdir()
    for i in range(3):
        (weights / f"{i}.bin").write_bytes(os.urandom(12 * MB))
    site = Site(begin(c, "--mirror-bytes", "64MiB", "--allow-file-root", str(weights)))
    for i in range(24):
        put(site, i, os.urandom(4 * MB))
    left = [i for i in range(24) if get(site, i) is not None]
    assert len(left) >= 10 and left[-1] == 23, left
    c.cli("weights", "prefetch", f"file://{weights}")
    until(lambda: any(w["state"] == "READY" for w in c.json("weights", "ls")))
    left = [i for i in range(24) if get(site, i) is not None]
    assert 1 <= len(left) <= 7 and left[-1] == 23, left
    held = sum(p.stat().st_size for p in site.blobs())
    assert held <= 64 * MB, held


def test_builds_hold_little_of_the_mirror(empty_cluster):
    """What they have reserved, for what comes next, leaves room for weights while they go on."""
    c = empty_cluster
    weights = c.folder / "weights"
    weights.mkdir()
    with open(weights / "w.bin", "wb") as f:
        f.truncate(150 * MB)
    site = Site(begin(c, "--mirror-bytes", "300MiB", "--allow-file-root", str(weights)))
    put(site, 0, os.urandom(SMALL * 2))
    c.cli("weights", "prefetch", f"file://{weights}", code=None, timeout=CALL_S)

    def is_there():
        put(site, 0, os.urandom(SMALL * 2))
        return any(w["state"] == "READY" for w in c.json("weights", "ls"))

    until(is_there, deadline=60)


def test_eviction_of_many_is_fast(empty_cluster):
    """Ten thousand small ones, half of which have to go, while others are put."""
    n, size = 10_000, 600
    site = Site(begin(empty_cluster, "--artifact-bytes", str(n // 2 * (size + ROW))))
    slowest = 0

    def put_some(which):
        nonlocal slowest
        connection = http.client.HTTPConnection(site.host, timeout=CALL_S)
        for i in range(which, n, 8):
            began = time.monotonic()
            connection.request("PUT", ccache_path(i), hashlib.sha256(b"%d" % i).digest() * (size // 32), {"Authorization": f"Bearer {site.token['ann']}"})
            reply = connection.getresponse()
            reply.read()
            assert reply.status == 200
            slowest = max(slowest, time.monotonic() - began)
        connection.close()

    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for task in [pool.submit(put_some, w) for w in range(8)]:
            task.result()
    took = time.monotonic() - began
    assert slowest < 5 and took < 120, (slowest, took)
    assert site.metrics()["artifact_bytes"] <= n // 2 * (size + ROW)
    assert n * 0.4 < len(site.rows()) <= n / 2


def test_collecting_garbage_leaves_artifacts(empty_cluster):
    site = Site(begin(empty_cluster))
    data = os.urandom(SMALL * 2)
    for n in ("one", "two"):
        put(site, n, data)  # two names of one blob
    assert len(site.blobs()) == 1
    for n in ("one", "two"):
        site.cluster.cli("cache", "gc", "--yes", "--older-than", "0s")
        assert get(site, n) == data
        assert site.ask("DELETE", ccache_path(n)).status == 204
    until(lambda: not site.blobs())  # without another collection


# --- with a database elsewhere


def test_rows_in_postgres(empty_cluster, server, target):  # noqa: F811
    """The same; and while the database is away a compiler waits for nothing."""
    c = begin(empty_cluster, "--database", target, "--artifact-bytes", "1MiB", env=server.env)
    site = Site(c)
    for i in range(60):
        put(site, i, b"%05d" % i * (4000 if i % 2 else 800))
        assert get(site, 0) is not None
    there = [i for i in range(60) if get(site, i) is not None]
    assert there[0] == 0 and there[-1] == 59 and site.metrics()["artifact_bytes"] <= MB
    whole = os.urandom(100)
    assert site.ask("PUT", cas(whole), whole).status == 200 and site.ask("PUT", ac(1), action(whole)).status == 200
    assert site.ask("GET", ac(1)).status == 200
    server.stop("immediate")
    site.ask("GET", ccache_path(0))  # whoever notices
    began = time.monotonic()
    for method, body in (("GET", None), ("PUT", b"x"), ("HEAD", None)):
        assert site.ask(method, ccache_path(0), body).status == 503
    assert time.monotonic() - began < 2
    server.start()
    until(lambda: site.ask("GET", ccache_path(0)).status == 200)
    assert site.ask("GET", ac(1)).status == 200


def test_rows_are_moved(empty_cluster, server, target):  # noqa: F811
    site = Site(begin(empty_cluster))
    data = {i: os.urandom(size) for i, size in enumerate((0, 100, SMALL, SMALL + 1, 100_000))}
    for i, body in data.items():
        put(site, i, body)
    site.cluster.stop()
    subprocess.run([STOKER, "server", "--move-database", f"sqlite:{site.cluster.data}/stoker.db", target], env=site.cluster.environment(**server.env), check=True, timeout=CALL_S)
    begin(site.cluster, "--database", target, env=server.env)
    for i, body in data.items():
        assert get(site, i) == body
        put(site, i, body + b"!")


# --- with an object store


@pytest.fixture
def bucket(minio):  # noqa: F811
    return minio


def test_blobs_are_in_the_object_store(empty_cluster, bucket):
    """The folder is lost, as with a new machine: what was put is there. Evicted from the bucket, too."""
    c = empty_cluster
    start = lambda: c.start(*flags(c, bucket), "--hub-upstream", "off", "--artifact-bytes", "1MiB")  # noqa: E731
    start()
    site = Site(c)
    data = {i: os.urandom(SMALL * 4 + i) for i in range(10)}
    for i, body in data.items():
        put(site, i, body)
    c.stop()
    shutil.rmtree(c.data / "store")
    start()
    for i, body in data.items():
        assert get(site, i) == body
    blob = c.data / f"store/blobs/sha256/{sha(data[3])[:2]}/{sha(data[3])}"
    for damaged in (bytes(len(data[3])), data[3][:100]):
        blob.chmod(0o644)
        blob.write_bytes(damaged)
        assert get(site, 3) == data[3]  # the bucket's is not damaged
    for i in range(100, 180):
        put(site, i, os.urandom(SMALL * 4))
    assert get(site, 0) is None and get(site, 179) is not None

    def stored():
        return sum(o["Size"] for page in bucket.client.get_paginator("list_objects_v2").paginate(Bucket="data") for o in page.get("Contents", []) if "/blobs/" in o["Key"])

    until(lambda: stored() <= MB, deadline=60)


def test_a_bucket_that_is_away_is_waited_for_once(empty_cluster, bucket):
    """Who has to wait builds slower than without a cache. What could not be stored is nowhere."""
    c = empty_cluster
    c.start(*flags(c, bucket), "--hub-upstream", "off")
    site, large = Site(c), os.urandom(SMALL * 4)
    put(site, "large", large)
    bucket.kill()
    refused(site.ask("PUT", ccache_path(1), os.urandom(SMALL * 4)), 503)  # whoever notices
    until(lambda: len(site.blobs()) == 1)
    began = time.monotonic()
    for i in range(20):
        refused(site.ask("PUT", ccache_path(1), os.urandom(SMALL * 4)), 503, "object store")
    put(site, "small", b"in its row")
    assert get(site, "large") == large and get(site, "small") == b"in its row"  # the folder has it
    site.blobs()[0].unlink()
    refused(site.ask("GET", ccache_path("large")), 503, "object store")
    assert time.monotonic() - began < 20
    bucket.start()
    until(lambda: site.ask("GET", ccache_path("large")).status == 200)
    assert get(site, "large") == large


# --- in a job


@pytest.fixture(scope="module")
def with_jobs():
    with new_cluster() as cluster:
        yield Site(begin(cluster, "--share", str(PARTS / "builds")))


JOB = r"""
set -eu
base=$HF_ENDPOINT/artifact
export CCACHE_DIR=/mnt/bt-scratch/ccache CCACHE_CONFIGPATH=/dev/null CCACHE_REMOTE_STORAGE="http://job:$HF_TOKEN@${HF_ENDPOINT#http://}/artifact/ccache/red"
export SCCACHE_CONF=/dev/null SCCACHE_WEBDAV_ENDPOINT=$base/webdav/red SCCACHE_WEBDAV_TOKEN=$HF_TOKEN
for i in 1 2 3; do
	echo "int f$i(int x) { return x + $i; }" > f$i.c
	ccache gcc -O1 -c f$i.c -o f$i.o
done
ccache --print-stats | awk '{ n[$1] = $2 } END { print "ccache", n["remote_storage_hit"] + 0, n["remote_storage_miss"] + 0, n["remote_storage_error"] + 0 }'
sccache_build() {
	SCCACHE_SERVER_UDS=/mnt/bt-scratch/$1; export SCCACHE_SERVER_UDS
	for i in 1 2 3; do SCCACHE gcc -O1 -c f$i.c -o f$i.o; done
	SCCACHE --show-stats --stats-format json > stats.json
	SCCACHE --stop-server > /dev/null
	python3 -c 'import json, sys; s = json.load(open("stats.json"))["stats"]; print(sys.argv[1], sum(s["cache_hits"]["counts"].values()), sum(s["cache_misses"]["counts"].values()), s["cache_write_errors"])' $1
}
sccache_build webdav
unset SCCACHE_WEBDAV_ENDPOINT SCCACHE_WEBDAV_TOKEN
export SCCACHE_BUCKET=red SCCACHE_ENDPOINT=$base/s3 SCCACHE_REGION=auto AWS_ACCESS_KEY_ID=job AWS_SECRET_ACCESS_KEY=$HF_TOKEN AWS_SESSION_TOKEN=$HF_TOKEN
sccache_build s3
""".replace("SCCACHE ", f"{SCCACHE} ")


def job(site, commands, person="ann", files=None, team="red", **runtime):
    """Pushed by a person; the lines that it printed."""
    c = site.cluster
    folder = c.job_folder(commands, project=f"{team}/p", files=files, runtime=runtime)
    made = json.loads(c.cli("push", folder / "train.yaml", "-o", "json", token=site.token[person]).out)
    c.wait(made, "TRAINING_JOB_COMPLETED")
    return made, c.user_lines(made)


@pytest.fixture
def jobs(with_jobs, request):
    request.node.stash[CLUSTER] = with_jobs.cluster
    return with_jobs


def test_jobs_find_what_another_one_has_compiled(jobs):
    """A job that keeps what it compiles stores, and any other one of the team reads, by each protocol."""
    keeps = {"compile_cache": {"enabled": True}}
    _, said = job(jobs, ["bash job.sh"], files={"job.sh": JOB})
    assert [x.rpartition(" ")[0] for x in said] == ["ccache 0 3", "webdav 0 3", "s3 0 3"] and jobs.rows() == []  # it goes on without storing
    _, said = job(jobs, ["bash job.sh"], files={"job.sh": JOB}, **keeps)
    assert said == ["ccache 0 3 0", "webdav 0 3 0", "s3 3 0 0"]
    held = jobs.rows("name || digest")
    assert len(held) == 2 * 3 + 3 + 1  # two of ccache for each file, one of sccache, and its check
    for person, more in (("bob", {}), ("ann", keeps)):
        _, said = job(jobs, ["bash job.sh"], person, files={"job.sh": JOB}, **more)
        assert said == ["ccache 3 0 0", "webdav 3 0 0", "s3 3 0 0"], person
    assert jobs.rows("name || digest") == held


HTTP = """
import base64, hashlib, json, os, sys, urllib.error, urllib.request
token = os.environ["HF_TOKEN"]
def ask(method, path, body=None):
    rq = urllib.request.Request(os.environ["HF_ENDPOINT"] + path, method=method, data=body, headers={"Authorization": "Basic " + base64.b64encode(f"job:{token}".encode()).decode()})
    try:
        return urllib.request.urlopen(rq).status
    except urllib.error.HTTPError as e:
        return [e.code, json.loads(e.read() or b"{}").get("message", "")]
key = hashlib.sha1(b"of a job").hexdigest()
cas = "cas/" + hashlib.sha256(b"x").hexdigest()
out = {}
for ns in ("red", "RED2", "blue", "ann", "eve", "none"):
    out[ns] = [ask("PUT", f"/artifact/ccache/{ns}/{key}", b"x"), ask("GET", f"/artifact/ccache/{ns}/{key}")]
out["bazel"] = [ask("PUT", f"/artifact/bazel/red/{cas}", b"x"), ask("GET", f"/artifact/bazel/red/{cas}"), ask("GET", "/artifact/bazel/ann/" + cas)]
out["webdav"] = [ask("MKCOL", "/artifact/webdav/red/a/"), ask("PUT", "/artifact/webdav/red/a/b", b"x"), ask("DELETE", "/artifact/webdav/red/a/b")]
out["token"] = [token[:20], token[20:]]
print(json.dumps(out))
"""


def test_what_a_job_may_do_with_artifacts(jobs):
    jobs.ask("PUT", ccache_path("of a job", "ann"), b"ann's own")

    def run(person, **runtime):
        made, said = job(jobs, ["python3 ask.py"], person, files={"ask.py": HTTP}, **runtime)
        return made, json.loads(said[-1])

    made, out = run("ann")
    assert out["red"][0][0] == 403 and "runtime.compile_cache" in out["red"][0][1] and made["id"] in out["red"][0][1]
    assert out["red"][1][0] == 404 and out["bazel"][0][0] == 403 and [x[0] for x in out["webdav"]] == [403, 403, 403]
    token = "".join(out["token"])
    assert jobs.ask("GET", ccache_path("of a job"), token=None, headers={"Authorization": f"Bearer {token}"}).status == 401  # it died with the job
    # it stores in its own team's; what is a user's, or another team's, is not there
    made, out = run("ann", compile_cache={"enabled": True})
    assert out["red"] == [200, 200] and out["bazel"][:2] == [200, 200] and out["webdav"] == [201, 201, 204], out
    for ns in ("blue", "ann", "eve", "none", "RED2"):
        assert [x[0] for x in out[ns]] == [404, 404], (ns, out)
    assert out["bazel"][2][0] == 404
    assert get(jobs, "of a job") == b"x" and jobs.ask("GET", ccache_path("of a job", "ann")).body == b"ann's own"
    # a repository of others is read, and keeps nothing: neither do artifacts
    c = jobs.cluster
    assert c.api("POST", "/api/repos/create", {"name": "public", "organization": "blue", "private": False}, token=jobs.token["eve"])[0] == 200
    made, out = run("ann", compile_cache={"enabled": True, "repo": "blue/public"})
    assert out["red"][0][0] == 403 and out["red"][1] == 200
    # what is an administrator's job is of its team all the same
    made, out = run("admin", compile_cache={"enabled": True})
    assert out["red"] == [200, 200] and out["blue"][0][0] == 404 and out["none"][0][0] == 404


def test_who_has_stored_it(jobs):
    """Artifacts are code: of each it is known who has stored it, and the job that did."""
    c = jobs.cluster
    store = 'python3 -c \'import os, urllib.request as u; u.urlopen(u.Request(os.environ["HF_ENDPOINT"] + "/artifact/webdav/red/who/shared", method="PUT", data=b"of a job", headers={"Authorization": "Bearer " + os.environ["HF_TOKEN"]}))\''
    path = "/artifact/webdav/red/who/"

    def listed(*flags, token="vic"):
        return [(x["name"], x["stored_by"], x["job_id"]) for x in c.json("compile-cache", "artifacts", *flags, token=jobs.token[token]) if "/who/" in x["name"] or x["name"].endswith("who")]

    for name, data, person in (("first", b"1", "ann"), ("shared", b"2", "bob"), ("first", b"1", "bob")):  # the same bytes again are not stored again
        assert jobs.ask("PUT", path + name, data, token=person).status in (201, 204)
    assert listed() == [("file/who/shared", "bob", None), ("file/who/first", "ann", None)]
    made, _ = job(jobs, [store], "ann", compile_cache={"enabled": True})
    assert listed() == [("file/who/shared", "ann", made["id"]), ("file/who/first", "ann", None)]
    assert listed("--job", made["id"]) == listed()[:1] == listed("red", "--by", "ann", "-n", "1") and listed("--by", "bob") == []
    row, = (x for x in c.json("compile-cache", "artifacts", "red", "--job", made["id"]))
    assert row["sha256"] == sha(b"of a job") and row["bytes"] == 8 and row["stored_at"] <= row["last_used_at"]
    assert f"ann  {made['id']}" in c.cli("compile-cache", "artifacts", "red").out
    # a namespace of its own, and those of others
    assert jobs.ask("PUT", "/artifact/webdav/ann/who", b"x").status == 201
    assert listed("ann", token="ann") == [("file/who", "ann", None)]
    assert c.error("compile-cache", "artifacts", "ann", token=jobs.token["bob"]) == c.error("compile-cache", "artifacts", "red", token=jobs.token["eve"]) == "artifact_not_found"
    assert c.json("compile-cache", "artifacts", token=jobs.token["eve"]) == []
    # page by page, each once
    whole, pages, cursor = c.api("GET", "/v1/artifacts?namespace=red&limit=1000")[1]["artifacts"], [], ""
    while cursor is not None:
        page = c.api("GET", f"/v1/artifacts?namespace=red&limit=1{cursor and f'&cursor={cursor}'}")[1]
        pages, cursor = pages + page["artifacts"], page["next_cursor"]
    assert [x["name"] for x in pages] == [x["name"] for x in whole] and len(whole) > 1
    assert "there are more" in c.cli("compile-cache", "artifacts", "red", "-n", "1").err
    for query in ("limit=0", "limit=1001", "limit=x", "cursor=x", "cursor=1", "cursor=1.0"):
        assert c.api("GET", f"/v1/artifacts?{query}")[0] == 400
