"""Stoker as the Hub that people write to: real clients, and requests that no client would send."""
import base64
import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import re
import socket
import sqlite3
import struct
import subprocess
import time
import urllib.parse

import pytest
from conftest import CALL_S, CLUSTER, new_cluster, until
from hub import hub_server
from hub_client import VERSIONS, Client
from postgres import server, target  # noqa: F401
from s3 import flags, minio  # noqa: F401
from test_hub import Answer, Stream
from test_object_weights import blob_keys, forget

MB = 1 << 20
REGULAR = 100_000  # files up to this size come inside of commits
PART = 64 * MB
PEOPLE = {"ann": ("red", "member"), "zed": ("red", "member"), "bob": ("red", "member"), "vic": ("red", "viewer"), "chief": ("red", "admin"), "eve": ("blue", "member"),
          "odd name": ("red", "member"), "blue": ("red", "member")}


class Site:
    """A server, and the tokens of people in two teams."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.token = cluster.people(PEOPLE)
        self.token["admin"] = cluster.token


def begin(cluster, *more, upstream="off", env=None):
    return cluster.start("--cpus", "4", "--memory", "4Gi", "--hub-upstream", upstream, "--allow-source-network", "127.0.0.0/8", "--hub-regular-bytes", str(REGULAR),
                         *more, env=env)


@pytest.fixture(scope="module")
def both():
    """One server in front of another Hub, for all that does not disturb others."""
    with hub_server() as hub, new_cluster() as cluster:
        hub.repo("ann/upstream", {"which": b"the other Hub"})
        yield Site(begin(cluster, upstream=hub.url)), hub


@pytest.fixture
def site(both, request):
    request.node.stash[CLUSTER] = both[0].cluster
    return both[0]


@pytest.fixture
def own(empty_cluster):
    """A server that a test may do anything to."""
    return begin(empty_cluster)


# --- the protocol, without a client


def ask(c, path, method="GET", token=None, body=None, headers=()):
    if isinstance(body, (dict, list)):
        body = json.dumps(body).encode()
    stream = Stream(c, path, method, token=token, body=body, headers=headers)
    try:
        data, whole = stream.reply.read(), True
    except http.client.IncompleteRead as e:
        data, whole = e.partial, False
    stream.close()
    return Answer(stream.reply.status, stream.reply.headers, data, whole)


def good(answer):
    assert answer.status == 200, answer
    return answer


def refused(answer, status, words=""):
    """As clients see it: a reason that may be read, in the body and in a header."""
    assert answer.status == status and words in answer.json()["error"], answer
    return answer


def hidden(answer):
    assert (answer.status, answer.code) == (404, "RepoNotFound"), answer
    return answer


def fresh():
    return "r" + os.urandom(6).hex()


def create(c, name, token=None, **kw):
    return ask(c, "/api/repos/create", "POST", token, {"name": name, **kw})


def new(c, token, owner=None, **kw):
    """The id of a new repository."""
    return good(create(c, fresh(), token, organization=owner, **kw)).json()["name"]


def remove(c, id_, token=None):
    owner, _, name = id_.partition("/")
    return ask(c, "/api/repos/delete", "DELETE", token, {"name": name, "organization": owner})


def move(c, old, to, token=None):
    return ask(c, "/api/repos/move", "POST", token, {"fromRepo": old, "toRepo": to, "type": "model"})


def line(key, **value):
    return json.dumps({"key": key, "value": value}).encode() + b"\n"


def small(path, data):
    return line("file", path=path, encoding="base64", content=base64.b64encode(data).decode())


def oid(data):
    return hashlib.sha256(data).hexdigest()


def large(path, data):
    return line("lfsFile", path=path, algo="sha256", oid=oid(data), size=len(data))


def gone(path):
    return line("deletedFolder" if path.endswith("/") else "deletedFile", path=path)


def commit_body(*lines, summary="a commit", **header):
    return b"".join([line("header", summary=summary, description="", **header), *lines])


def post_commit(c, id_, body, token=None, rev="main"):
    return ask(c, f"/api/models/{id_}/commit/{urllib.parse.quote(rev, safe='')}", "POST", token, body, {"Content-Type": "application/x-ndjson"})


def commit(c, id_, *lines, token=None, rev="main", **header):
    return post_commit(c, id_, commit_body(*lines, **header), token, rev)


def get(c, id_, path, rev="main", token=None, **kw):
    return ask(c, f"/{id_}/resolve/{urllib.parse.quote(rev, safe='')}/{urllib.parse.quote(path)}", token=token, **kw)


def files(c, id_, rev="main", token=None):
    found = good(ask(c, f"/api/models/{id_}/revision/{urllib.parse.quote(rev, safe='')}", token=token)).json()["siblings"]
    return sorted(f["rfilename"] for f in found if f["rfilename"] != ".gitattributes")


def head_of(c, id_, token=None):
    return good(ask(c, f"/api/models/{id_}", token=token)).json()["sha"]


def titles(c, id_, token=None):
    """From the last commit to the first."""
    return [x["title"] for x in good(ask(c, f"/api/models/{id_}/commits/main", token=token)).json()]


def batch(c, id_, objects, token=None, transfers=("basic", "multipart")):
    return ask(c, f"/{id_}.git/info/lfs/objects/batch", "POST", token, {"operation": "upload", "transfers": transfers, "objects": objects, "hash_algo": "sha256"})


def action(c, id_, data, token=None, **kw):
    """Where to send it; None: it is there."""
    found, = good(batch(c, id_, [{"oid": oid(data), "size": len(data)}], token, **kw)).json()["objects"]
    return found["actions"]["upload"] if "actions" in found else None


def send(c, href, data, method="PUT", headers=()):
    """To an address that was signed: without a token."""
    assert href.startswith(c.url + "/"), href
    return ask(c, href[len(c.url):], method, "", data, headers)


def upload(c, id_, data, token=None):
    good(send(c, action(c, id_, data, token)["href"], data))


def blobs(c):
    """What is in the store, by digest."""
    return {p.name for p in (c.data / "store/blobs").rglob("?" * 64)}


def left_over(c):
    return [p.name for p in (c.data / "store/tmp").iterdir()]


# --- what the real clients do

LIFE = """
    from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete
    with_xet = {with_xet}
    id_, other = "ann/{name}", "red/{name}"
    home = pathlib.Path(os.environ["HF_HOME"])
    seen = {{}}

    def shown(path, rev=None, repo=id_):  # nothing that is in a cache
        n = shown.n = getattr(shown, "n", 0) + 1
        return digest(hf_hub_download(repo, path, revision=rev, cache_dir=home / f"cache{{n}}"))

    def titles():
        return [c.title for c in api.list_repo_commits(id_)]

    def entries(*a, **kw):
        return sorted(e.path for e in api.list_repo_tree(id_, *a, **kw))

    who = api.whoami()
    seen["who"] = [who["name"], sorted(o["name"] for o in who["orgs"])]
    seen["made"] = str(api.create_repo("{name}", private=True))
    seen["twice"] = [names(api.create_repo, id_)[0], str(api.create_repo(id_, exist_ok=True))]
    seen["private"] = api.model_info(id_).private
    first = api.model_info(id_).sha
    api.upload_file(path_or_fileobj=b"small", path_in_repo="sub/a+b c.txt", repo_id=id_)
    api.upload_file(path_or_fileobj=b"---\\nlicense: mit\\n---\\n# about\\n", path_in_repo="README.md", repo_id=id_)
    before = len(titles())
    api.upload_file(path_or_fileobj=b"small", path_in_repo="sub/a+b c.txt", repo_id=id_)
    seen["no change"] = len(titles()) - before
    folder = home / "folder"
    (folder / "deep/er").mkdir(parents=True)
    for n in range(30):
        (folder / f"deep/er/{{n}}.txt").write_text(f"file {{n}}")
    (folder / "empty").write_bytes(b"")
    (folder / "not.me").write_bytes(b"")
    if with_xet:
        big = b""
    else:
        big = bytes(range(256)) * {large} + b"{name}"
        (folder / "w.bin").write_bytes(big)
        (folder / "t.parquet").write_bytes(b"PAR1{name}")
    api.upload_folder(folder_path=folder, repo_id=id_, ignore_patterns="*.me", commit_message="a folder")
    seen["folder"] = [shown("deep/er/7.txt"), shown("empty"), "not.me" in api.list_repo_files(id_)]
    if not with_xet:
        seen["large"] = [shown("w.bin") == hashlib.sha256(big).hexdigest(), shown("t.parquet") == hashlib.sha256(b"PAR1{name}").hexdigest()]
        sizes = {{s.rfilename: [s.size, s.lfs and s.lfs["sha256"]] for s in api.model_info(id_, files_metadata=True).siblings}}
        seen["sizes"] = sizes["w.bin"] == [len(big), hashlib.sha256(big).hexdigest()]
        api.create_commit(id_, [CommitOperationCopy("w.bin", "copy/of.bin")], commit_message="a copy")
        seen["copy"] = shown("copy/of.bin") == hashlib.sha256(big).hexdigest()
        before = len(titles())
        api.upload_file(path_or_fileobj=big, path_in_repo="w.bin", repo_id=id_)
        seen["no change of a large one"] = len(titles()) - before
    seen["stale"] = names(api.create_commit, id_, [CommitOperationAdd("x", b"1")], commit_message="x", parent_commit=first)[0]
    head = api.model_info(id_).sha
    seen["head"] = api.create_commit(id_, [CommitOperationAdd("x", b"1"), CommitOperationDelete("empty")], commit_message="fits", commit_description="why",
                                     parent_commit=head).oid == api.model_info(id_).sha
    seen["tree"] = [entries(), entries("deep/"), len(entries(recursive=True)), "EntryNotFoundError" in names(lambda: entries("nothing"))]
    seen["paths"] = [[e.path, e.size] for e in api.get_paths_info(id_, ["x", "sub", "nothing", "README.md"]) if hasattr(e, "blob_id")]
    api.create_branch(id_, branch="dev/x")
    api.create_branch(id_, branch="old", revision=first)
    api.create_tag(id_, tag="v1", revision=first)
    api.upload_file(path_or_fileobj=b"other", path_in_repo="x", repo_id=id_, revision="dev/x")
    seen["x"] = [shown("x") == hashlib.sha256(b"1").hexdigest(), shown("x", "dev/x") == hashlib.sha256(b"other").hexdigest(),
                 names(hf_hub_download, id_, "x", revision="v1")[0] != ""]
    refs = api.list_repo_refs(id_)
    seen["refs"] = [sorted(b.name for b in refs.branches), [t.name for t in refs.tags], refs.tags[0].target_commit == first]
    seen["again"] = [names(api.create_branch, id_, branch="old")[0], api.create_branch(id_, branch="old", exist_ok=True),
                     names(api.create_tag, id_, tag="v1")[0], names(api.delete_branch, id_, branch="main")[0],
                     names(api.delete_branch, id_, branch="nothing")[0]]
    api.delete_branch(id_, branch="old")
    api.delete_tag(id_, tag="v1")
    seen["exists"] = [api.repo_exists(id_), api.repo_exists(id_, repo_type="dataset"), api.repo_exists("ann/nothing"), api.file_exists(id_, "x"),
                      api.file_exists(id_, "y"), names(api.model_info, id_, revision="v1")[0]]
    some = snapshot_download(id_, allow_patterns=["deep/*", "x"], ignore_patterns="*/1*.txt", cache_dir=home / "some")
    seen["some"] = sorted(digests(some))
    api.delete_folder("deep", id_)
    api.delete_file("sub/a+b c.txt", id_)
    seen["left"] = [sorted(set(api.list_repo_files(id_)) - {{"w.bin", "t.parquet", "copy/of.bin"}}), titles()[-1]]
    fs = HfFileSystem(skip_instance_cache=True)
    with fs.open(f"{{id_}}/by/hand.txt", "w") as f:
        f.write("0123456789" * 100)
    seen["fs"] = [fs.cat_file(f"{{id_}}/by/hand.txt", start=10, end=25).decode(), sorted(p[len(id_) + 1:] for p in fs.ls(f"{{id_}}/by", detail=False))]
    (api.update_repo_settings if hasattr(api, "update_repo_settings") else api.update_repo_visibility)(id_, private=False)
    seen["public"] = api.model_info(id_).private
    api.move_repo(id_, other)
    seen["moved"] = [api.model_info(other).id, shown("x", repo=other) == hashlib.sha256(b"1").hexdigest()]
    if "{version}" != "0.20":  # it does not send its token where it was led
        seen["moved"] += [api.model_info(id_).id, shown("x")]
    seen["listed"] = other in [m.id for m in api.list_models(author="red")]
    if "{version}".startswith("2"):
        copy = api.duplicate_repo(other, "ann/{name}-copy")
        seen["copied"] = [copy.repo_id, shown("x", repo=copy.repo_id) == shown("x", repo=other), [r.visibility for r in api.list_user_repos() if r.id == copy.repo_id]]
    api.delete_repo(other)
    seen["deleted"] = [names(api.model_info, other)[0], names(api.delete_repo, other)[0], api.delete_repo(other, missing_ok=True)]
    said(seen)"""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_life(site, version):
    """One that has Xet would send large files by it."""
    c, name = site.cluster, "life" + re.sub(r"\W", "", version)
    with_xet, in_parts = version in ("1.33", "2.4"), version in ("0.20", "2.4 without xet")
    script = LIFE.format(name=name, version=version, with_xet=with_xet, large=(PART + 5 * MB if in_parts else 400_000) // 256)
    seen = Client(c.folder, c.url, version, site.token["ann"]).run(script)
    id_, other, x = f"ann/{name}", f"red/{name}", oid(b"1")
    lfs = [] if with_xet else ["w.bin"]
    want = {
        "who": ["ann", ["red"]], "made": f"{c.url}/{id_}", "twice": ["HfHubHTTPError", f"{c.url}/{id_}"], "private": True, "no change": 0,
        "folder": [oid(b"file 7"), oid(b""), False], "stale": "HfHubHTTPError", "head": True,
        "tree": [sorted([".gitattributes", "README.md", "deep", "sub", "x", *(["copy", "t.parquet", "w.bin"] if lfs else [])]), ["deep/er"],
                 41 if lfs else 37, True],
        "paths": [["x", 1], ["README.md", 29]], "x": [True, True, True], "refs": [["dev/x", "main", "old"], ["v1"], True],
        "again": ["HfHubHTTPError", None, "HfHubHTTPError", seen["again"][3], "RevisionNotFoundError"],
        "exists": [True, False, False, True, False, "RevisionNotFoundError"],
        "some": sorted(["x", *(f"deep/er/{n}.txt" for n in range(30) if not str(n).startswith("1"))]),
        "left": [[".gitattributes", "README.md", "x"], "initial commit"], "fs": ["012345678901234", ["by/hand.txt"]], "public": False,
        "moved": [other, True] + ([] if version == "0.20" else [other, x]), "listed": True,
        "deleted": ["RepositoryNotFoundError", "RepositoryNotFoundError", None]}
    if version.startswith("2"):
        want["copied"] = [f"{id_}-copy", True, ["public"]]
    if not with_xet:
        want.update({"large": [True, True], "sizes": True, "copy": True, "no change of a large one": 0})
    for key, value in want.items():
        assert seen[key] == value, (key, seen[key], value)
    assert seen.keys() == want.keys() and seen["again"][3], seen.keys() ^ want.keys()


@pytest.mark.parametrize("version", ["0.36", "2.4"])
def test_the_command(site, version):
    """hf, as people use it."""
    c = site.cluster
    client = Client(c.folder, c.url, version)
    folder, name = pathlib.Path(client.home), f"ann/{fresh()}"
    (folder / "up").mkdir()
    (folder / "up/a.txt").write_text("hello")

    def hf(*args):
        done = subprocess.run([client.python, "-m", "huggingface_hub.cli.hf", *args], env=client.env, capture_output=True, text=True, timeout=CALL_S, check=False)
        assert done.returncode == 0, (args, done.stdout, done.stderr)
        return done.stdout
    hf("auth", "login", "--token", site.token["ann"])
    assert "ann" in hf("auth", "whoami")
    hf("repo" if version == "0.36" else "repos", "create", name, "--private")
    hf("upload", name, str(folder / "up"), ".", "--commit-message", "from the command")
    assert titles(c, name)[0] == "from the command"
    hf("download", name, "--local-dir", str(folder / "down"))
    assert (folder / "down/a.txt").read_text() == "hello"
    hf("repo" if version == "0.36" else "repos", "tag", "create", name, "v1")
    assert files(c, name, "v1") == ["a.txt"]


# --- who may


def roles(c, site, id_, rights):
    """What each may do with a repository: "" nothing, "r" read, "w" write, too."""
    head = head_of(c, id_)
    for who, right in rights.items():
        token = site.token[who]
        reads = [ask(c, f"/api/models/{id_}", token=token), get(c, id_, ".gitattributes", token=token), get(c, id_, ".gitattributes", head, token),
                 ask(c, f"/api/models/{id_}/tree/main", token=token), ask(c, f"/api/models/{id_}/refs", token=token), ask(c, f"/api/models/{id_}/auth-check", token=token),
                 ask(c, f"/api/models/{id_}/commits/main", token=token)]
        assert id_ in [m["id"] for m in ask(c, "/api/models", token=token).json()] if right else id_ not in ask(c, "/api/models", token=token).body.decode()
        writes = {"commit": commit(c, id_, small("by", who.encode()), token=token), "lfs": batch(c, id_, [{"oid": oid(b"1"), "size": 1}], token),
                  "preupload": ask(c, f"/api/models/{id_}/preupload/main", "POST", token, {"files": []}),
                  "branch": ask(c, f"/api/models/{id_}/branch/b-{who.replace(' ', '-')}", "POST", token, {}),
                  "tag": ask(c, f"/api/models/{id_}/tag/main", "POST", token, {"tag": f"t-{who.replace(' ', '-')}"}),
                  "probe": ask(c, f"/api/models/{id_}/branch/nothing", "DELETE", token),
                  "settings": ask(c, f"/api/models/{id_}/settings", "PUT", token, {"gated": False}), "check": ask(c, f"/api/models/{id_}/auth-check/write", token=token)}
        for answer in reads:
            (good if right else hidden)(answer)
        for what, answer in writes.items():
            if right == "w" and what == "probe":  # clients ask so whether they may write
                assert (answer.status, answer.code) == (404, "RevisionNotFound"), (who, answer)
            elif right == "w" or what == "settings" and answer.status == 200:
                assert answer.status == 200, (who, what, answer)
            elif right or PEOPLE[who][1] == "viewer":
                refused(answer, 403)
            else:
                hidden(answer)
        if right != "w":
            assert remove(c, id_, token).status in (403, 404) and move(c, id_, "red/stolen", token).status in (403, 404), who


@pytest.mark.parametrize("private", [True, False])
def test_rights(site, private):
    c = site.cluster
    other = "" if private else "r"
    roles(c, site, new(c, site.token["ann"], private=private),
          {"ann": "w", "bob": other, "vic": other, "odd name": other, "eve": other, "chief": "w", "admin": "w"})
    roles(c, site, new(c, site.token["ann"], "red", visibility="private" if private else "public"),
          {"ann": "w", "bob": "w", "vic": "r", "odd name": "w", "eve": other, "chief": "w", "admin": "w"})


def test_nobody_without_a_token(site):
    c = site.cluster
    id_ = new(c, site.token["ann"])
    for path, method in (("/api/repos/create", "POST"), ("/api/repos/delete", "DELETE"), ("/api/repos/move", "POST"), (f"/api/models/{id_}/commit/main", "POST"),
                         (f"/{id_}.git/info/lfs/objects/batch", "POST"), (f"/api/models/{id_}/settings", "PUT"), (f"/api/models/{id_}/branch/x", "POST"),
                         (f"/api/models/{id_}", "GET"), ("/api/models", "GET"), (f"/{id_}/resolve/main/.gitattributes", "GET")):
        for token in ("", "stoker_" + "x" * 40):
            answer = ask(c, path, method, token, None if method == "GET" else {})
            assert answer.status == 401 and answer.code == ("RepoNotFound" if id_ in path and not token else None), answer
    seen = Client(c.folder, c.url, "2.4", "hf_nothing").run(f"""
        said([names(api.model_info, {id_!r}, token=False)[0], api.repo_exists({id_!r}, token=False), names(api.model_info, {id_!r})[0], names(api.whoami, token=False)[0]])""")
    assert seen == ["RepositoryNotFoundError", False, "HfHubHTTPError", seen[3]] and seen[3], seen


def test_whose_namespace(site):
    c = site.cluster
    t = site.token
    assert create(c, "Of-A-User", t["ann"]).json()["name"] == "ann/Of-A-User"
    assert create(c, "of-a-user", t["ann"], organization="ANN").status == 409, "in any case it is the same"
    assert create(c, "ann/of-a-user", t["ann"]).json()["url"] == f"{c.url}/ann/Of-A-User"
    assert get(c, "Ann/OF-a-user", ".gitattributes", token=t["eve"]).headers["X-Repo-Commit"] == head_of(c, "ann/of-a-user")
    assert create(c, "of-a-user", t["ann"], type="dataset").json()["url"] == f"{c.url}/datasets/ann/of-a-user"
    for owner in ("bob", "blue", "eve", "nobody", "huggingface"):
        refused(create(c, "x", t["ann"], organization=owner), 403)
    for owner in ("datasets", "Spaces", "models"):
        refused(create(c, "x", t["ann"], organization=owner), 400, f'"{owner}" cannot be a namespace')
    refused(create(c, "x", t["vic"]), 403)
    refused(create(c, "x", t["odd name"]), 400, "odd name")
    assert create(c, "by-odd", t["odd name"], organization="RED").json()["name"] == "red/by-odd"
    for owner, name in (("ann", "a b"), ("ann", "-x"), ("ann", "x..y"), ("ann", "x--y"), ("ann", "x.git"), ("ann", ""), ("ann", "x" * 97), ("ann", "\u00e9"), ("ann", "a/b/c"),
                        ("ann", "../x"), ("ann", "x\u0000y"), ("a/b", "x"), ("..", "x"), ("ann\n", "x")):
        refused(create(c, name, t["ann"], organization=owner), 400)
    refused(create(c, "x", t["ann"], type="bucket"), 400, "bucket")
    # who has the name of a team has not its namespace
    taken = create(c, "squat", t["blue"])
    assert taken.status == 403, taken
    good(create(c, "ours", t["eve"], organization="blue"))


def test_a_copy(site):
    """With its commits and large files, and from then on for itself: neither knows of the other."""
    c, t = site.cluster, site.token
    id_, name, data = new(c, t["ann"], private=True), fresh(), b"large" * 1000
    copy = f"red/{name}"

    def duplicate(who, to=copy, of=id_, **more):
        return ask(c, f"/api/models/{of}/duplicate", "POST", t[who], {"repository": to, **more})
    link = batch(c, id_, [{"oid": oid(data), "size": len(data)}], t["ann"]).json()["objects"][0]["actions"]["upload"]
    good(send(c, link["href"], data))
    good(commit(c, id_, small("x", b"1"), large("w.bin", data), token=t["ann"]))
    good(ask(c, f"/api/models/{id_}/tag/main", "POST", t["ann"], {"tag": "v1"}))
    for who, answer in (("bob", hidden), ("eve", hidden), ("odd name", hidden)):
        answer(duplicate(who))
    refused(duplicate("vic"), 403)
    for to in ("bob/x", "blue/x", "nobody/x"):
        refused(duplicate("ann", to), 403)
    for to in ("ann/..", "ann/x.git", ""):
        refused(duplicate("ann", to), 400)
    refused(duplicate("ann", visibility="secret"), 400)
    made = good(duplicate("ann")).json()
    assert (made["name"], made["url"]) == (copy, f"{c.url}/{copy}"), made
    again = duplicate("ann")
    assert again.status == 409 and again.json()["url"] == f"{c.url}/{copy}", again
    assert head_of(c, copy) == head_of(c, id_) and files(c, copy, "v1") == files(c, id_, "v1") and titles(c, copy) == titles(c, id_)
    assert ask(c, f"/api/models/{copy}", token=t["bob"]).json()["private"] is True, "as the other one is, and the team's now"
    good(commit(c, copy, small("x", b"2"), token=t["bob"]))
    good(commit(c, copy, large("again.bin", data), token=t["bob"]))
    assert get(c, id_, "x", token=t["ann"]).body == b"1" and get(c, copy, "x", token=t["bob"]).body == b"2"
    takes = {r["id"]: r for r in ask(c, "/api/organizations/red/settings/repositories", token=t["bob"]).json()}
    assert takes[copy]["visibility"] == "private" and takes[copy]["type"] == "model" and takes[copy]["storage"] > len(data), takes
    own = {r["id"]: r["storagePercent"] for r in ask(c, "/api/settings/repositories", token=t["ann"]).json()}
    assert id_ in own and copy not in own and 99 < sum(own.values()) < 101, own
    assert copy not in [r["id"] for r in ask(c, "/api/organizations/red/settings/repositories", token=t["eve"]).json()]
    good(remove(c, id_, t["ann"]))
    c.cli("cache", "gc", "--yes")
    assert get(c, copy, "w.bin", token=t["bob"]).body == data and get(c, copy, "x", "v1", t["bob"]).body == b"1"
    hidden(duplicate("ann", f"ann/{name}"))


def test_a_move(site):
    c = site.cluster
    t = site.token
    id_, there = new(c, t["ann"], private=True), new(c, t["ann"])
    good(commit(c, id_, small("x", b"1"), token=t["ann"]))
    refused(move(c, id_, there, t["ann"]), 409, "already exists")
    for to in ("bob/x", "blue/x", "nobody/x"):
        refused(move(c, id_, to, t["ann"]), 403)
    for to in ("x", "ann/..", "ann/x.git"):
        refused(move(c, id_, to, t["ann"]), 400)
    hidden(move(c, id_, "bob/mine", t["bob"]))
    to = f"red/{fresh()}"
    good(move(c, id_, to, t["ann"]))
    assert get(c, to, "x", token=t["bob"]).body == b"1", "it is the team's now"
    name = id_.partition("/")[2]
    led = get(c, id_, "a/b%20c", token=t["bob"])
    assert led.status == 307 and led.headers["Location"] == f"/{to}/resolve/main/a/b%2520c", led
    led = ask(c, f"/api/models/{id_}/tree/main?recursive=true", token=t["bob"])
    assert led.status == 307 and led.headers["Location"] == f"/api/models/{to}/tree/main?recursive=true", led
    hidden(get(c, id_, "x", token=t["eve"]))
    good(commit(c, id_, small("y", b"2"), token=t["ann"]))
    assert files(c, to, token=t["ann"]) == ["x", "y"]
    # what is made under the old name is another one
    good(create(c, name, t["ann"]))
    assert files(c, id_, token=t["ann"]) == [] and files(c, to, token=t["ann"]) == ["x", "y"]
    # its name in other letters is the same
    good(move(c, to, to.upper().replace("RED", "red"), t["ann"]))
    assert good(ask(c, f"/api/models/{to}", token=t["ann"])).json()["id"] == "red/" + to[4:].upper()


def test_a_name_that_leads_on_is_not_free(site):
    """Whoever used it would get the files of whoever takes it."""
    c = site.cluster
    there = new(c, site.token["zed"])
    good(commit(c, there, small("x", b"red's"), token=site.token["zed"]))
    good(move(c, there, f"red/{fresh()}", site.token["zed"]))
    zed_of_blue = c.json("tokens", "create", "zed", "--team", "blue")["api_key"]
    refused(create(c, there[4:], zed_of_blue), 409, "another team")
    mine = new(c, zed_of_blue)
    refused(move(c, mine, there, zed_of_blue), 409, "another team")
    assert get(c, there, "x", token=site.token["bob"]).status == 307


def test_beside_another_hub(both, site):
    """A user's repository is first for his own team, and last for another one; a team's is first for all."""
    hub = both[1]
    c = site.cluster
    t = site.token
    theirs = f"ann/{fresh()}"
    name = theirs[4:]
    for owner in ("ann", "red"):
        hub.repo(f"{owner}/{name}", {"which": b"the other Hub"})

    def seen(owner="ann"):
        return {who: get(c, f"{owner}/{name}", "which", token=t[who]).body.decode() for who in ("ann", "bob", "eve")}
    assert set(seen().values()) == {"the other Hub"} == set(seen("red").values())
    good(create(c, name, t["ann"]))
    good(commit(c, theirs, small("which", b"ann's"), token=t["ann"]))
    assert seen() == {"ann": "ann's", "bob": "ann's", "eve": "the other Hub"}
    good(ask(c, f"/api/models/{theirs}/settings", "PUT", t["ann"], {"private": True}))
    assert seen() == {"ann": "ann's", "bob": "the other Hub", "eve": "the other Hub"}
    good(create(c, name, t["bob"], organization="red"))
    good(commit(c, f"red/{name}", small("which", b"red's"), token=t["bob"]))
    assert seen("red") == {"ann": "red's", "bob": "red's", "eve": "red's"}
    good(ask(c, f"/api/models/red/{name}/settings", "PUT", t["ann"], {"visibility": "private"}))
    assert seen("red") == {"ann": "red's", "bob": "red's", "eve": "the other Hub"}
    hidden(commit(c, theirs, small("which", b"mine"), token=t["eve"]))
    for id_ in (theirs, f"red/{name}"):
        good(remove(c, id_, t["ann"]))
    assert set(seen().values()) == {"the other Hub"} == set(seen("red").values())
    hidden(commit(c, theirs, small("which", b"mine"), token=t["ann"]))


# --- large files


def test_bytes_that_are_not_what_they_should_be(site):
    c = site.cluster
    t = site.token["ann"]
    id_, data = new(c, t), os.urandom(200_000)
    at = action(c, id_, data, t)["href"]
    for wrong in (os.urandom(len(data)), data[:-1], data + b"x", b""):
        refused(send(c, at, wrong), 400)
    with contextlib.closing(Stream(c, at[len(c.url):], "PUT", "", (), iter([data[:1000], data[1000:], b"x"]))) as longer:
        assert longer.reply.status == 400
    p = urllib.parse.urlsplit(at)
    with socket.create_connection((p.hostname, p.port), timeout=CALL_S) as cut:
        cut.sendall(f"PUT {p.path}?{p.query} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data[:5000])
    refused(commit(c, id_, large("w.bin", data), token=t), 404, oid(data))
    until(lambda: not left_over(c))
    assert oid(data) not in blobs(c)
    with contextlib.closing(Stream(c, at[len(c.url):], "PUT", "", (), iter([data[:1000], data[1000:]]))) as chunked:
        assert chunked.reply.status == 200
    good(send(c, at, data))
    refused(commit(c, id_, line("lfsFile", path="w.bin", algo="sha256", oid=oid(data), size=5), token=t), 400)
    good(commit(c, id_, large("w.bin", data), token=t))
    assert get(c, id_, "w.bin", token=t).body == data and action(c, id_, data, t) is None
    # none at all
    good(send(c, action(c, id_, b"", t)["href"], b""))
    good(commit(c, id_, large("empty", b""), token=t))
    assert get(c, id_, "empty", token=t).body == b""


def changed(url, **values):
    p = urllib.parse.urlsplit(url)
    query = dict(urllib.parse.parse_qsl(p.query))
    return p._replace(query=urllib.parse.urlencode({**query, **values})).geturl()


def test_an_address_that_was_changed(site):
    c = site.cluster
    t = site.token
    id_, data, second = new(c, t["ann"]), os.urandom(1000), os.urandom(1000)
    mine, hers = new(c, t["eve"]), action(c, id_, data, t["ann"])["href"]
    at = action(c, mine, data, t["eve"])["href"]
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(at).query))
    repo = at.split("/api/lfs/")[1].split("/")[0], hers.split("/api/lfs/")[1].split("/")[0]
    wrong = [changed(at, size=1001), changed(at, upload="another"), changed(at, until=int(query["until"]) + 1), changed(at, until=0), changed(at, part=1), changed(at, part_size=5),
             changed(at, signature="0" * 64), changed(at, signature=""), changed(at, size="x"), changed(at, size=-1), at.replace(oid(data), oid(second)),
             at.replace(*repo), at.split("?")[0], changed(at, signature=query["signature"].upper())]
    for url in wrong:
        assert send(c, url, data).status in (403, 404), url
    for tail in ("/part", "/join"):
        assert send(c, at.replace("?", tail + "?"), data, "POST" if tail == "/join" else "PUT").status == 403
    good(send(c, at, data))
    refused(commit(c, id_, large("w.bin", data), token=t["ann"]), 404)


def test_a_digest_is_no_right(site):
    """Who knows what a file is called has not its bytes: it is sent by who names it, also when the store has it."""
    c = site.cluster
    t = site.token
    secret, mine, data = new(c, t["ann"], private=True), new(c, t["eve"]), os.urandom(150_000)
    upload(c, secret, data, t["ann"])
    good(commit(c, secret, large("w.bin", data), token=t["ann"]))
    refused(commit(c, mine, large("w.bin", data), token=t["eve"]), 404, oid(data))
    also = new(c, t["ann"])
    refused(commit(c, also, large("w.bin", data), token=t["ann"]), 404, oid(data))
    at = action(c, mine, data, t["eve"])
    assert at is not None, "an answer that it is there would tell"
    refused(send(c, at["href"], data[:-1] + b"?"), 400)
    good(send(c, at["href"], data))
    good(commit(c, mine, large("w.bin", data), token=t["eve"]))
    assert get(c, mine, "w.bin", token=t["eve"]).body == data
    # a copy inside of a repository needs no size
    good(commit(c, mine, line("lfsFile", path="copy.bin", algo="sha256", oid=oid(data)), token=t["eve"]))
    assert get(c, mine, "copy.bin", token=t["eve"]).body == data


def test_a_file_in_parts(site):
    c = site.cluster
    t = site.token["ann"]
    id_, data = new(c, t), os.urandom(2 * PART + 1000)
    pieces = {str(n + 1): data[n * PART:(n + 1) * PART] for n in range(3)}
    assert "header" not in action(c, id_, data, t, transfers=["basic"])
    at = action(c, id_, data, t)
    assert at["header"].keys() == {"chunk_size", "1", "2", "3"} and int(at["header"]["chunk_size"]) == PART
    refused(send(c, at["href"], b"{}", "POST"), 400)  # nothing is there
    refused(send(c, at["header"]["3"], pieces["1"]), 400)
    refused(send(c, at["header"]["1"], pieces["3"]), 400)
    for n in ("1", "3"):
        assert good(send(c, at["header"][n], pieces[n])).headers["ETag"]
    answer = send(c, at["href"], b"{}", "POST")
    refused(answer, 400)  # the second is missing
    at = action(c, id_, data, t)
    with concurrent.futures.ThreadPoolExecutor() as pool:  # one of them twice, and in any order
        list(pool.map(lambda n: good(send(c, at["header"][n], pieces[n])), ("3", "2", "1", "2")))
    good(send(c, at["href"], b"{}", "POST"))
    good(send(c, at["href"], b"{}", "POST"))  # its answer was lost
    good(commit(c, id_, large("w.bin", data), token=t))
    assert get(c, id_, "w.bin", token=t).body == data
    until(lambda: not [n for n in left_over(c) if n.endswith(at["href"].split("upload=")[1][:8])])


def test_parts_that_come_after_the_end(site):
    """What was verified cannot be written to any more: not by a part that is on its way, and not by a later one."""
    c = site.cluster
    t = site.token["ann"]
    id_, data = new(c, t), os.urandom(PART + 100_000)
    at = action(c, id_, data, t)
    for n, piece in (("1", data[:PART]), ("2", data[PART:])):
        good(send(c, at["header"][n], piece))
    p = urllib.parse.urlsplit(at["header"]["2"])
    with socket.create_connection((p.hostname, p.port), timeout=CALL_S) as slow:
        slow.sendall(f"PUT {p.path}?{p.query} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data) - PART}\r\n\r\n".encode() + data[PART:PART + 70_000])
        time.sleep(0.5)
        joined = send(c, at["href"], b"{}", "POST")
        later = send(c, at["header"]["2"], b"?" * (len(data) - PART))
        with contextlib.suppress(OSError):
            slow.sendall(b"?" * (len(data) - PART - 70_000))
            slow.recv(1000)
    if joined.status == 200:
        assert later.status >= 400
        good(commit(c, id_, large("w.bin", data), token=t))
        assert get(c, id_, "w.bin", token=t).body == data
    assert not (c.data / "store/blobs/sha256" / oid(data)[:2] / oid(data)).exists() or \
        oid((c.data / "store/blobs/sha256" / oid(data)[:2] / oid(data)).read_bytes()) == oid(data)


# --- commits


def test_a_parent_that_is_not_the_newest(site):
    c = site.cluster
    t = site.token["ann"]
    id_ = new(c, t)
    first = head_of(c, id_, t)
    second = good(commit(c, id_, small("x", b"1"), token=t, parentCommit=first)).json()["commitOid"]
    for path, data in (("x", b"2"), ("y", b"1")):
        answer = refused(commit(c, id_, small(path, data), token=t, parentCommit=first), 412)
        assert "updated since you opened this page" in answer.headers["X-Error-Message"]
    refused(commit(c, id_, small("y", b"1"), token=t, parentCommit="0" * 40), 412)
    for parent in ("main", "0" * 39, "0" * 41, "", 5, ["x"]):
        refused(commit(c, id_, small("y", b"1"), token=t, parentCommit=parent), 400)
    assert head_of(c, id_, t) == second
    good(commit(c, id_, small("y", b"1"), token=t, parentCommit=None))
    good(commit(c, id_, small("z", b"1"), token=t, parentCommit=head_of(c, id_, t).upper()))
    for rev, status, code in ((second, 400, None), ("nothing", 404, "RevisionNotFound"), ("v1", 404, "RevisionNotFound"), ("refs/tags/v1", 404, "RevisionNotFound")):
        ask(c, f"/api/models/{id_}/tag/main", "POST", t, {"tag": "v1"})
        answer = refused(commit(c, id_, small("y", b"2"), token=t, rev=rev), status)
        assert answer.code == code, (rev, answer)
    good(commit(c, id_, small("q", b"2"), token=t, rev="refs/heads/main"))


def test_no_commit_is_lost(site):
    """Of those who name no parent each one's is there; of those who name the same one, one's."""
    c = site.cluster
    t = site.token["ann"]
    id_ = new(c, t)
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda n: good(commit(c, id_, small(f"f/{n}", b"%d" % n), summary=f"c{n}", token=t)), range(24)))
        assert files(c, id_, token=t) == sorted(f"f/{n}" for n in range(24))
        assert sorted(titles(c, id_, t)) == sorted(["initial commit", *(f"c{n}" for n in range(24))])
        head = head_of(c, id_, t)
        answers = list(pool.map(lambda n: commit(c, id_, small("same", b"%d" % n), summary=f"s{n}", token=t, parentCommit=head), range(8)))
    assert sorted(a.status for a in answers) == [200] + [412] * 7
    won = [n for n, a in enumerate(answers) if a.status == 200]
    assert get(c, id_, "same", token=t).body == b"%d" % won[0] and titles(c, id_, t)[:2] == [f"s{won[0]}", titles(c, id_, t)[1]]


def test_a_commit_that_is_sent_again(site):
    """As a client does that did not hear the answer: it is made once."""
    c = site.cluster
    t = site.token["ann"]
    id_ = new(c, t)
    good(commit(c, id_, small("old", b"1"), small("d/old", b"1"), token=t))
    parent = head_of(c, id_, t)
    for lines in ([small("x", b"1")], [small("x", b"2"), small("y", b"2")], [gone("old"), small("z", b"")], [gone("d/")]):
        before = len(titles(c, id_, t))
        answers = [commit(c, id_, *lines, token=t, parentCommit=parent) for _ in range(2)]
        assert [a.status for a in answers] == [200, 200] and len({a.json()["commitOid"] for a in answers}) == 1, (lines, answers)
        assert len(titles(c, id_, t)) == before + 1
        parent = head_of(c, id_, t)
    # nothing to do is no commit
    before = head_of(c, id_, t)
    for lines in ([], [small("x", b"2")]):
        assert good(commit(c, id_, *lines, token=t)).json()["commitOid"] == before


def test_many_files(site):
    c = site.cluster
    t = site.token["ann"]
    id_ = new(c, t)
    names = [f"d{n % 100:02d}/f{n:05d}" for n in range(10_000)]
    good(commit(c, id_, *(small(n, n[-2:].encode()) for n in names), token=t))
    assert files(c, id_, token=t) == sorted(names)
    assert get(c, id_, "d42/f04242", token=t).body == b"42"
    good(commit(c, id_, gone("d42/"), small("one", b"1"), token=t))
    assert len(files(c, id_, token=t)) == 10_000 - 100 + 1


ODD = ["a+b", "two words", "100%", "%2F", "\u00fcn\u00ef/\u6f22", "#?&=", "a/b/c/d/e/f/g", "-x", "..x", "x..", "...", ".gitx", "git", "a\\b", "'\";", "<&>", "~",
       "x.lock", "CON", "\U0001f600", "e\u0301", "\u00e9", "a" * 255, "[x]", "{x}", "resolve/main/x", "tree", "a:b", "x ", " x", "$HOME", "`id`"]


def test_odd_names(site):
    c = site.cluster
    t = site.token["ann"]
    id_ = new(c, t)
    good(commit(c, id_, *(small(p, p.encode()) for p in ODD), token=t))
    assert files(c, id_, token=t) == sorted(ODD)
    for path in ODD:
        assert get(c, id_, path, token=t).body == path.encode(), path
        info, = good(ask(c, f"/api/models/{id_}/paths-info/main", "POST", t, {"paths": [path]}, {"Content-Type": "application/json"})).json()
        assert info["path"] == path, (path, info)
    good(commit(c, id_, *(gone(p) for p in ODD), token=t))
    assert files(c, id_, token=t) == []


def test_a_commit_that_only_adds(site):
    """What is there stays as it is, files and folders."""
    c = site.cluster
    t = site.token["ann"]
    id_ = new(c, t)
    good(commit(c, id_, small("a", b"1"), small("d/x", b"1"), token=t))
    good(commit(c, id_, small("a", b"2"), small("a/b/c", b"2"), small("d", b"2"), small("b", b"2"), small("b", b"3"), token=t, addOnly=True))
    assert [get(c, id_, path, token=t).body for path in ("a", "b")] == [b"1", b"2"]
    for path in ("a", "d/x", "d/", "nothing"):
        refused(commit(c, id_, small("n", b"2"), gone(path), token=t, addOnly=True), 400, "deletes nothing")
    refused(commit(c, id_, small("n", b"2"), gone("n"), token=t, addOnly=True), 400, "deletes nothing")
    assert files(c, id_, token=t) == ["a", "b", "d/x"]
    good(commit(c, id_, small("a", b"2"), gone("d/"), token=t, addOnly=False))
    assert files(c, id_, token=t) == ["a", "b"] and get(c, id_, "a", token=t).body == b"2"


def test_files_and_folders(site):
    """A name is a file or a folder; lines are applied in their order."""
    c = site.cluster
    t = site.token["ann"]
    id_ = new(c, t)
    good(commit(c, id_, small("a", b"1"), small("d/x", b"1"), small("d/y", b"1"), small("d-e", b"1"), small("d.f/x", b"1"), token=t))
    for lines in ([small("a/b", b"2")], [small("d", b"2")], [small("n", b"2"), small("n/m", b"2")], [small("n/m", b"2"), small("n", b"2")]):
        refused(commit(c, id_, *lines, token=t), 400)
    for path in ("nothing", "nothing/", "a/", "d/z", "d/x/"):
        if path != "a/" and path != "d/x/":
            assert commit(c, id_, gone(path), token=t).code == "EntryNotFound", path
    assert files(c, id_, token=t) == ["a", "d-e", "d.f/x", "d/x", "d/y"]
    good(commit(c, id_, gone("a"), small("a/b", b"2"), gone("d/"), small("d", b"2"), token=t))
    assert files(c, id_, token=t) == ["a/b", "d", "d-e", "d.f/x"]
    good(commit(c, id_, gone("d"), small("d", b"3"), small("d", b"4"), token=t))
    good(commit(c, id_, small("t/1", b""), gone("t"), small("t/2", b""), gone("t/"), token=t))
    assert get(c, id_, "d", token=t).body == b"4" and files(c, id_, token=t) == ["a/b", "d", "d-e", "d.f/x"]
    before = head_of(c, id_, t)
    assert good(commit(c, id_, gone("d"), small("d", b"4"), token=t)).json()["commitOid"] == before


OUT = ["../x", "a/../x", "/x", "x/", "a//b", "./x", ".", "..", "", ".git/config", "a/.GIT/x", ".Git", "a\nb", "a\u0000b", "a\u007fb", "x" * 70_000]


@pytest.mark.parametrize("path", OUT)
def test_paths_that_lead_out(site, path):
    c = site.cluster
    t = site.token["ann"]
    id_ = new(c, t)
    for bad in (small(path, b"1"), line("lfsFile", path=path, algo="sha256", oid="0" * 64, size=1), line("deletedFile", path=path)):
        assert commit(c, id_, small("ok", b"1"), bad, token=t).status in (400, 413, 422), path
    assert files(c, id_, token=t) == []


HEAD = commit_body()
BAD = {
    "nothing": b"",
    "no header": small("x", b"1"),
    "two headers": HEAD + HEAD,
    "no JSON": HEAD + b"{]\n",
    "a list": HEAD + b"[]\n",
    "cut": HEAD + small("x", b"1")[:-5],
    "deep": HEAD + b'{"key":' * 9000,
    "another key": HEAD + line("otherFile", path="x"),
    "no path": HEAD + line("file", content="", encoding="base64"),
    "no content": HEAD + line("file", path="x", encoding="base64"),
    "no base64": HEAD + line("file", path="x", encoding="base64", content="!!!"),
    "half": HEAD + line("file", path="x", encoding="base64", content="QQ"),
    "utf-16": HEAD.decode().encode("utf-16"),
    "encoding": HEAD + line("file", path="x", encoding="utf-8", content="QQ=="),
    "algo": HEAD + line("lfsFile", path="x", algo="sha1", oid="0" * 64, size=1),
    "oid": HEAD + line("lfsFile", path="x", algo="sha256", oid="0" * 63, size=1),
    "size": HEAD + line("lfsFile", path="x", algo="sha256", oid="0" * 64, size=-1),
    "huge size": HEAD + b'{"key":"lfsFile","value":{"path":"x","algo":"sha256","oid":"' + b"0" * 64 + b'","size":99999999999999999999}}\n',
    "not UTF-8": HEAD + b'{"key":"file","value":{"path":"\xff\xfe","encoding":"base64","content":""}}\n',
    "half a character": HEAD + b'{"key":"file","value":{"path":"\\ud800","encoding":"base64","content":""}}\n',
    "content of a deleted one": HEAD + line("deletedFile", path="x", content="QQ=="),
    "a key twice": HEAD + b'{"key":"file","key":"file","value":{"path":"x","encoding":"base64","content":""}}\n',
    "a long summary": commit_body(summary="s" * 70_000),
    "a number": HEAD + line("file", path=5, encoding="base64", content=""),
}


@pytest.mark.parametrize("what", BAD)
def test_lines_that_make_no_sense(site, what):
    c = site.cluster
    t = site.token["ann"]
    id_ = new(c, t)
    before = head_of(c, id_, t)
    answer = post_commit(c, id_, BAD[what], t)
    assert answer.status in (400, 413), answer
    assert answer.json()["error"] == answer.headers["X-Error-Message"]
    assert head_of(c, id_, t) == before


@pytest.mark.parametrize("how", ["closed", "short", "at a line"])
def test_a_body_that_is_cut(site, how):
    """Nothing of it is there, also when what came is whole lines."""
    c = site.cluster
    t = site.token["ann"]
    id_ = new(c, t)
    before = head_of(c, id_, t)
    body = commit_body(small("a", b"1"), small("b", os.urandom(90_000)), small("c", b"3"))
    sent = body[:len(commit_body(small("a", b"1")))] if how == "at a line" else body[:len(body) // 2]
    p = urllib.parse.urlsplit(c.url)
    with socket.create_connection((p.hostname, p.port), timeout=CALL_S) as s:
        s.sendall(f"POST /api/models/{id_}/commit/main HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {t}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + sent)
        if how == "short":
            s.shutdown(socket.SHUT_WR)
            assert b" 200 " not in s.recv(1000)
    good(commit(c, id_, small("after", b"1"), token=t))
    assert files(c, id_, token=t) == ["after"] and good(ask(c, f"/api/models/{id_}/commits/main", token=t)).json()[1]["id"] == before


def test_what_is_known_already(site):
    """Clients leave out what has not changed: it is told in the form that they compare with."""
    c = site.cluster
    t = site.token["ann"]
    id_ = new(c, t)
    data = os.urandom(REGULAR + 1)
    upload(c, id_, data, t)
    good(commit(c, id_, small("s.txt", b"small"), large("w.bin", data), token=t))
    asked = {"s.txt": 5, "w.bin": len(data), "new": 5, "new.bin": REGULAR + 1, "t.parquet": 5, "empty.parquet": 0, "exact": REGULAR}
    answer = good(ask(c, f"/api/models/{id_}/preupload/main", "POST", t, {"files": [{"path": p, "size": n, "sample": ""} for p, n in asked.items()]}))
    git = hashlib.sha1(b"blob 5\0small").hexdigest()
    assert {f["path"]: (f["uploadMode"], f.get("oid")) for f in answer.json()["files"]} == {
        "s.txt": ("regular", git), "w.bin": ("lfs", oid(data)), "new": ("regular", None), "new.bin": ("lfs", None), "t.parquet": ("lfs", None), "empty.parquet": ("regular", None),
        "exact": ("regular", None)}
    for bad in ({}, {"files": {}}, {"files": [{"size": 5}]}, {"files": [{"path": "x", "size": -1}]}, {"files": [{"path": 5, "size": 5}]}, {"files": ["x"]}):
        refused(ask(c, f"/api/models/{id_}/preupload/main", "POST", t, bad), 400)


def test_bytes_that_a_disk_has_lost(site):
    """Who wants them is told, who brings them again mends it, and other work goes on."""
    c, t = site.cluster, site.token["ann"]
    id_, both = new(c, t), (os.urandom(3000), os.urandom(150_000))
    upload(c, id_, both[1], t)
    good(commit(c, id_, small("s", both[0]), large("l", both[1]), token=t))
    for data in both:
        (c.data / "store/blobs/sha256" / oid(data)[:2] / oid(data)).unlink()
    for path in "s", "l":
        refused(get(c, id_, path, token=t), 502, f"the bytes of {path} in {id_} are gone from the store: upload it again")
    good(commit(c, id_, small("beside", b"1"), token=t))
    refused(commit(c, id_, large("copy", both[1]), token=t), 404, "the bytes of copy are gone from the store: upload it again")
    upload(c, id_, both[1], t)
    good(commit(c, id_, small("s", both[0]), large("copy", both[1]), token=t))
    assert [get(c, id_, path, token=t).body for path in ("s", "l", "copy")] == [both[0], both[1], both[1]]


def test_branches_and_tags(site):
    c = site.cluster
    t = site.token["ann"]
    id_ = new(c, t)
    first = head_of(c, id_, t)
    good(commit(c, id_, small("x", b"1"), token=t))

    def ref(kind, name, method="POST", **body):
        return ask(c, f"/api/models/{id_}/{kind}/{urllib.parse.quote(name, safe='')}", method, t, body if method == "POST" else None)
    for name in ("dev", "dev/x", "v1.0", "\u00fc", "a+b", "%", "refsx/heads", "x" * 200):
        good(ref("branch", name, startingPoint=first))
        assert files(c, id_, name, t) == [] and files(c, id_, f"refs/heads/{name}", t) == []
        refused(ref("branch", name), 409, "already exists")
    for name in ("..", "a..b", "/x", "x/", "a//b", "x.lock", "-x", "a b", "a~b", "a^b", "a:b", "a?b", "a*b", "a[b", "a\\b", "refs/heads/x", "x" * 300, "0" * 40, "a\nb", "\x7f"):
        assert ref("branch", name).status in (400, 404), name
        refused(ref("tag", "main", tag=name), 400)
    assert ref("branch", "y", startingPoint="nothing").code == "RevisionNotFound" == ref("tag", "nothing", tag="v2").code
    good(ref("tag", first, tag="v2", message="of the first"))
    refused(ref("tag", "main", tag="v2"), 409, "already exists")
    good(ref("tag", "main", tag="dev"))
    assert files(c, id_, "dev", t) == [] and files(c, id_, "refs/tags/dev", t) == ["x"], "a branch is first"
    refused(ref("branch", "main", "DELETE"), 400, "Cannot delete refs/heads/main")
    for kind, name in (("branch", "v2"), ("tag", "main"), ("branch", "nothing"), ("branch", "refs/heads/main")):
        assert ref(kind, name, "DELETE").code == "RevisionNotFound", (kind, name)
    good(ref("branch", "dev", "DELETE"))
    assert files(c, id_, "dev", t) == ["x"]
    good(ref("tag", "dev", "DELETE"))
    assert ask(c, f"/api/models/{id_}/revision/dev", token=t).code == "RevisionNotFound"


# --- what it takes, and what stays


def test_a_quota(own):
    c = own
    c.stop()
    begin(c, "--repo-quota", "1MB")
    id_, token = new(c, None), c.json("tokens", "create", "another")["api_key"]
    data = os.urandom(600_000)
    upload(c, id_, data)
    for n in (500_000, 1 << 40, (1 << 63) - 1):
        refused(batch(c, id_, [{"oid": "1" * 64, "size": n}]), 422, "quota")
    for sizes in ((300_000, 300_000), ((1 << 63) - 1, (1 << 63) - 1, 5)):
        refused(batch(c, id_, [{"oid": str(n) * 64, "size": size} for n, size in enumerate(sizes)]), 422, "quota")
    good(commit(c, id_, large("w.bin", data)))
    good(commit(c, id_, large("w2.bin", data)))
    before = head_of(c, id_)
    refused(commit(c, id_, *(small(f"{n}", os.urandom(90_000)) for n in range(5))), 422, "quota")
    assert head_of(c, id_) == before
    good(commit(c, id_, small("fits", os.urandom(90_000))))
    # two that fit alone, and not together
    one, two = os.urandom(200_000), os.urandom(200_000)
    at = [action(c, id_, x)["href"] for x in (one, two)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        assert sorted(a.status for a in pool.map(lambda x: send(c, *x), zip(at, (one, two)))) == [200, 422]
    # parts that nobody puts together
    c.stop()
    begin(c, "--repo-quota", "150MB")
    addresses = [action(c, id_, os.urandom(8) + bytes(PART))["header"] for _ in range(3)]
    seen = [send(c, x["1"], bytes(PART)).status for x in addresses]
    assert seen == [200, 200, 422], seen
    c.stop()
    begin(c, "--repo-quota", "1MB")
    # what cannot fit is refused where clients show why, and what may be there already is not
    def asks(*sizes):
        return ask(c, f"/api/models/{id_}/preupload/main", "POST", None, {"files": [{"path": f"{n}.bin", "size": s, "sample": ""} for n, s in enumerate(sizes)]})

    refused(asks(500_000), 422, "quota")
    refused(asks((1 << 63) - 1, (1 << 63) - 2, (1 << 63) - 3), 422, "quota")
    good(asks(len(data), len(data), 10))
    # of the team, not of a repository
    second = new(c, token)
    refused(batch(c, second, [{"oid": "1" * 64, "size": 300_000}], token), 422, "quota")
    good(remove(c, id_))
    good(send(c, action(c, second, data, token)["href"], data))


@contextlib.contextmanager
def begun(c, path, length, token=None):
    """A request whose body does not come."""
    p = urllib.parse.urlsplit(c.url)
    with socket.create_connection((p.hostname, p.port), timeout=CALL_S) as s:
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token or c.token}\r\nContent-Length: {length}\r\n\r\n".encode() + commit_body())
        s.settimeout(1)
        try:
            yield s.recv(1000)
        except TimeoutError:
            yield b""


def test_a_length_is_no_room(empty_cluster):
    """What is announced and not sent takes nothing from others: no room for their files, and no file that is kept."""
    c, data = empty_cluster, os.urandom(20 * MB)
    with hub_server() as hub:
        for name, body in (("first", data), ("second", data[:5 * MB]), ("third", data[:6 * MB])):
            hub.repo(f"team/{name}", {"w.bin": body})
        begin(c, "--mirror-bytes", "900MB", upstream=hub.url)
        id_ = new(c, None)
        assert get(c, "team/first", "w.bin").body == data
        sent = hub.sent("w.bin")
        for length in (10**18, 9 * 10**18, 2 * 10**12):
            with begun(c, f"/api/models/{id_}/commit/main", length) as answer:
                assert b" 422 " in answer or b" 507 " in answer, answer
        with begun(c, f"/api/models/{id_}/commit/main", 1_100 * MB) as answer:
            assert not answer
            assert get(c, "team/second", "w.bin").body == data[:5 * MB]
            upload(c, id_, data[:MB])
        assert get(c, "team/first", "w.bin").body == data and hub.sent("w.bin") == sent + 5 * MB


def test_a_body_without_a_length(own):
    """Has an end all the same."""
    def lines():
        yield commit_body() + b'{"key":"file","value":{"path":"x","encoding":"base64","content":"'
        for _ in range(200):
            yield base64.b64encode(bytes(3 * MB // 4))
        yield b'"}}\n'
    id_ = new(own, None)
    with contextlib.suppress(ConnectionError):  # the answer may come before all is sent
        assert post_commit(own, id_, lines()).status == 413
    until(lambda: not left_over(own))
    assert files(own, id_) == []


def collect(c):
    c.cli("cache", "gc", "--yes", "--older-than", "0s")
    c.cli("cache", "verify")


def sound(c):
    """All that its rows name is there, and nothing else."""
    c.stop()
    assert c.cli("server", "--data", c.data, *c.database_flags(), "--check", "--log-level", "error").out.endswith(": 0 faults\n")


def test_what_refusals_say(site):
    c, t = site.cluster, site.token["ann"]
    id_, data = new(c, t), os.urandom(1000)
    for name in "refs/heads/x", "-x", "a b", "a..b", "x.lock", "a//b", "0" * 40, "a~1":
        refused(ask(c, f"/api/models/{id_}/branch/{urllib.parse.quote(name, safe='')}", "POST", t, {}), 400, 'no blank, control character or any of ~^:?*[\\, no ".." or "//"')
    there = action(c, id_, data, t)["href"]
    good(remove(c, id_, t))
    refused(send(c, there, data), 404, "the repository that this upload is for has been deleted")


def test_a_full_disk(empty_cluster):
    """What is refused when the disk is full while bytes arrive says what was to be stored, for whom, and what helps; then it is stored."""
    c = empty_cluster
    c.data.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", str(c.data)], check=True)
    try:
        begin(c, "--hub-regular-bytes", "64MiB")
        id_, data = new(c, c.token), os.urandom(48 << 20)
        there = action(c, id_, data)["href"]
        with (c.data / "filler").open("wb") as f:
            os.posix_fallocate(f.fileno(), 0, os.statvfs(c.data).f_bavail * 4096 - (40 << 20))
        words = f"a file of {id_}, {oid(data)}: the disk of the server's data folder is full: an administrator can make room with `stoker stop`"
        refused(send(c, there, data), 507, words)
        refused(commit(c, id_, small("x", data)), 507, f"line 2: a file of {id_}: the disk of the server's data folder is full")
        (c.data / "filler").unlink()
        good(send(c, there, data))
        good(commit(c, id_, large("x", data)))
        c.stop()
    finally:
        subprocess.run(["umount", "-l", str(c.data)], check=False)


def test_deleted_is_gone(own):
    """And what others share stays."""
    c = own
    shared, mine, small_one = os.urandom(150_000), os.urandom(150_000), os.urandom(5000)
    first, second = new(c, None), new(c, None)
    for id_, data in ((first, shared), (first, mine), (second, shared)):
        upload(c, id_, data)
    good(commit(c, first, large("s.bin", shared), large("m.bin", mine), small("s.txt", small_one), small("both", b"shared by both")))
    good(commit(c, first, gone("m.bin")))
    good(commit(c, second, large("s.bin", shared), small("both", b"shared by both")))
    commit_id = head_of(c, first)
    collect(c)
    assert {oid(x) for x in (shared, mine, small_one)} <= blobs(c), "an older commit has it"
    address = action(c, first, os.urandom(1000))["href"]
    good(remove(c, first))
    api = f"/api/models/{first}"
    for path in (api, f"{api}/revision/{commit_id}", f"/{first}/resolve/main/s.txt", f"/{first}/resolve/{commit_id}/s.txt", f"{api}/commits/main"):
        hidden(ask(c, path))
    hidden(remove(c, first))
    assert send(c, address, os.urandom(1000)).status in (400, 404)
    collect(c)
    assert not {oid(mine), oid(small_one)} & blobs(c) and oid(shared) in blobs(c)
    assert get(c, second, "s.bin").body == shared and get(c, second, "both").body == b"shared by both"
    # one of the same name has nothing of it
    good(create(c, first.partition("/")[2]))
    assert files(c, first) == [] and ask(c, f"/api/models/{first}/revision/{commit_id}").code == "RevisionNotFound"
    refused(commit(c, first, large("m.bin", mine)), 404)
    for id_ in (first, second):
        good(remove(c, id_))
    collect(c)
    assert not blobs(c) and not left_over(c)
    sound(c)


def test_all_is_there_after_a_restart(own):
    c = own
    data = os.urandom(150_000)
    id_, old = new(c, None, private=True), f"admin/{fresh()}"
    upload(c, id_, data)
    good(commit(c, id_, large("w.bin", data), small("x", b"1")))
    parts = os.urandom(PART + 1000)
    at = action(c, id_, parts)
    good(send(c, at["header"]["1"], parts[:PART]))
    good(ask(c, f"/api/models/{id_}/tag/main", "POST", None, {"tag": "v1"}))
    good(move(c, id_, old))
    c.kill()
    c.restart()
    assert files(c, old) == ["w.bin", "x"] == files(c, old, "v1") and get(c, old, "w.bin").body == data
    assert get(c, id_, "x").status == 307
    good(send(c, at["header"]["2"], parts[PART:]))  # to the server that is there now
    good(send(c, at["href"], b"{}", "POST"))
    good(commit(c, old, large("p.bin", parts)))
    assert oid(get(c, old, "p.bin").body) == oid(parts)


CRASHES = {"repo:created": "create", "repo:uploaded": "upload", "repo:blobs": "commit", "repo:manifest": "commit", "repo:committed": "commit"}


@pytest.mark.parametrize("label", CRASHES)
def test_killed_in_the_middle(empty_cluster, label):
    """Nothing half-done is there, and when the client tries it again it works."""
    c = begin(empty_cluster)
    data = os.urandom(150_000)
    name = fresh()
    id_ = f"admin/{name}"

    def act(what):
        if what == "create":
            return create(c, name)
        if what == "upload":
            at = action(c, id_, data)
            return send(c, at["href"], data) if at else None
        return commit(c, id_, large("w.bin", data), small("x", b"1"), parentCommit=first)
    steps = ["create", "upload", "commit"]
    dies = CRASHES[label]
    for what in steps[:steps.index(dies)]:
        good(act(what))
    first = None if dies == "create" else head_of(c, id_)
    c.stop()
    c.start(env={"STOKER_CRASH_AT": label})
    with contextlib.suppress(OSError, http.client.HTTPException):
        act(dies)
    assert c.process.wait(CALL_S) == 9
    c.restart()
    if dies == "create":
        hidden(ask(c, f"/api/models/{id_}"))
    else:
        assert files(c, id_) == (["w.bin", "x"] if label == "repo:committed" else [])
        assert len(titles(c, id_)) == 1 + (label == "repo:committed")
    if dies == "upload":
        refused(commit(c, id_, large("w.bin", data)), 404)
    for what in steps[steps.index(dies):]:
        answer = act(what)
        assert answer is None or answer.status == 200, (what, answer)
        first = first or head_of(c, id_)
    assert len(titles(c, id_)) == 2 and get(c, id_, "w.bin").body == data and get(c, id_, "x").body == b"1"
    collect(c)
    assert get(c, id_, "w.bin").body == data and not left_over(c)
    good(remove(c, id_))
    collect(c)
    assert not blobs(c)
    sound(c)


def shard_of(xorb, size, n, same=False):
    """A shard of n files that are the first chunk of this xorb, once, twice, three times, or all once; they do not say their digest."""
    name = b"".join(bytes.fromhex(xorb[i:i + 16])[::-1] for i in range(0, 64, 16))
    tag = b"HFRepoMetaData\0" + bytes([85, 105, 103, 69, 106, 123, 129, 87, 131, 165, 189, 217, 92, 205, 209, 74, 169])
    end = b"\xff" * 32 + bytes(16)
    one = name + struct.pack("<IIII", 0, size, 0, 1)
    times = [1 if same else i + 1 for i in range(n)]
    return tag + struct.pack("<QQ", 2, 0) + b"".join(os.urandom(32) + struct.pack("<II8x", 0, k) + one * k for k in times) + end + end


def test_shards_leave_threads_to_others(empty_cluster):
    """Of one repository they are worked on one after the other, and who waits for that holds no thread."""
    c = begin(empty_cluster, "--workers", "4", "--hub-regular-bytes", "100")
    tokens = c.people(PEOPLE)
    Client(c.folder, c.url, "2.4", tokens["ann"]).run("""
        api.create_repo("mine")
        api.upload_file(path_or_fileobj=os.urandom(50), path_in_repo="w.parquet", repo_id="ann/mine")
        said(0)""")
    with contextlib.closing(sqlite3.connect(c.data / "stoker.db")) as db:
        (name,), = db.execute("select name from refs where kind = 'xorb'")
    xet = good(ask(c, "/api/models/ann/mine/xet-write-token/main", token=tokens["ann"])).json()
    path, xorb = urllib.parse.urlsplit(xet["casUrl"]).path + "/v1/shards", name.rpartition("/")[2]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        sent = [pool.submit(ask, c, path, "POST", xet["accessToken"], shard_of(xorb, 50, 250)) for _ in range(6)]
        until(lambda: any((c.data / "store/tmp").glob("xet-*")), pause=0.01)
        for _ in range(5):
            good(ask(c, "/api/whoami-v2", token=tokens["eve"]))
        assert not any(s.done() for s in sent)
        for s in sent:
            good(s.result())
    good(ask(c, path, "POST", xet["accessToken"], shard_of(xorb, 50, 0)))
    begun = time.monotonic()
    good(ask(c, path, "POST", xet["accessToken"], shard_of(xorb, 50, 50_000, same=True)))
    assert time.monotonic() - begun < 60  # one file, not fifty thousand


@pytest.mark.parametrize("version", ["0.36", "2.4 without xet"])
def test_in_a_bucket(empty_cluster, minio, version):  # noqa: F811
    c = empty_cluster
    c.start(*flags(c, minio), "--hub-upstream", "off", "--hub-regular-bytes", str(REGULAR))
    client = Client(c.folder, c.url, version, c.token)
    seen = client.run("""
        big = bytes(range(256)) * 1000
        api.create_repo("one")
        api.upload_file(path_or_fileobj=big, path_in_repo="w.bin", repo_id="admin/one")
        api.upload_file(path_or_fileobj=b"small", path_in_repo="x", repo_id="admin/one")
        api.create_repo("two")
        api.upload_file(path_or_fileobj=big, path_in_repo="w.bin", repo_id="admin/two")
        said([digests(snapshot_download("admin/one"))["w.bin"] == hashlib.sha256(big).hexdigest(), open(hf_hub_download("admin/one", "x")).read()])""")
    assert seen == [True, "small"]
    big = bytes(range(256)) * 1000
    c.stop()
    forget(c, "store")  # as another machine, that has none of it
    c.restart()
    led = get(c, "admin/one", "w.bin")
    assert led.status in (302, 307) and led.headers["Location"].startswith(minio.endpoint), led
    good(commit(c, "admin/one", small("y", b"1"), line("lfsFile", path="copy.bin", algo="sha256", oid=oid(big))))
    assert files(c, "admin/one") == ["copy.bin", "w.bin", "x", "y"]
    good(remove(c, "admin/one"))
    collect(c)
    assert oid(big) in {k.rpartition("/")[2] for k in blob_keys(minio)}
    assert Client(c.folder, c.url, version, c.token).run("said(digest(hf_hub_download('admin/two', 'w.bin')))") == oid(big)
    good(remove(c, "admin/two"))
    collect(c)
    assert not blob_keys(minio)
    c.stop()  # before the bucket does


def test_in_a_folder_of_objects(empty_cluster):
    """Which another machine has, too: whoever leads there has none of it in its own."""
    c = begin(empty_cluster, "--objects", f"dir:{empty_cluster.folder}/objects")
    id_, data = new(c, None), os.urandom(150_000)
    upload(c, id_, data)
    good(commit(c, id_, large("w.bin", data), small("x", b"1")))
    c.stop()
    forget(c, "store")
    c.restart()
    good(commit(c, id_, small("y", b"2")))
    assert [get(c, id_, path).body for path in ("w.bin", "x", "y")] == [data, b"1", b"2"]
    part = get(c, id_, "w.bin", headers={"Range": "bytes=1000-1999"})
    assert part.status == 206 and part.body == data[1000:2000]


def test_rows_in_postgres(empty_cluster, server, target):  # noqa: F811
    c = begin(empty_cluster, "--database", target, env=server.env)
    id_, data = new(c, None), os.urandom(150_000)
    upload(c, id_, data)
    good(commit(c, id_, large("w.bin", data), *(small(p, p.encode()) for p in ODD), summary="\u00fc\U0001f600"))
    good(ask(c, f"/api/models/{id_}/branch/dev%2Fx", "POST", None, {}))
    good(commit(c, id_, small("x", b"1"), rev="dev/x"))
    for rev in ("%FF", "%C3", "a%00b", "%ED%A0%80", "\u00fc"):
        answer = ask(c, f"/api/models/{id_}/revision/{urllib.parse.quote(rev, safe='%')}")
        assert answer.status in (400, 404), (rev, answer)
    for title in (b"a\\u0000b", b"\\ud800", b"\xff"):
        bad = commit_body(small(oid(title), b"1")).replace(b"a commit", title)
        assert post_commit(c, id_, bad).status in (200, 400)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: good(commit(c, id_, small(f"f/{n}", b"%d" % n))), range(16)))
    assert len(titles(c, id_)) >= 18 and titles(c, id_)[-2:] == ["\u00fc\U0001f600", "initial commit"]
    to = f"admin/{fresh()}"
    good(move(c, id_, to))
    assert get(c, id_, "x").status == 307
    found = files(c, to)
    c.stop()
    c.start(env=server.env)
    assert files(c, to) == found and get(c, to, "w.bin").body == data and [r["id"] for r in ask(c, f"/api/models?search={to[8:14]}").json()] == [to]
    good(remove(c, to))
    collect(c)
    assert not blobs(c)
