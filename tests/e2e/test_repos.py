"""Stoker as the Hub that people write to: real clients, and requests that no client would send."""
import base64
import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import os
import re
import socket
import time
import urllib.parse

import pytest
from conftest import CALL_S, CLUSTER, STOKER, Lines, new_cluster, until
from hub import hub_server
from hub_client import VERSIONS, Client
from postgres import server, target  # noqa: F401
from s3 import flags, minio  # noqa: F401
from test_hub import Answer, Stream
from test_object_weights import blob_keys

MB = 1 << 20
REGULAR = 100_000  # files up to this size come inside of commits
PART = 64 * MB
PEOPLE = {"ann": ("red", "member"), "bob": ("red", "member"), "vic": ("red", "viewer"), "chief": ("red", "admin"), "eve": ("blue", "member"),
          "odd name": ("red", "member"), "blue": ("red", "member")}


class Site:
    """A server, and the tokens of people in two teams."""

    def __init__(self, cluster):
        self.cluster = cluster
        for team in ("red", "blue"):
            cluster.cli("teams", "create", team)
        self.token = {name: cluster.json("tokens", "create", name, "--team", team, "--role", role)["api_key"] for name, (team, role) in PEOPLE.items()}
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
    if not with_xet:
        want.update({"large": [True, True], "sizes": True, "copy": True, "no change of a large one": 0})
    for key, value in want.items():
        assert seen[key] == value, (key, seen[key], value)
    assert seen.keys() == want.keys() and seen["again"][3], seen.keys() ^ want.keys()


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
            elif PEOPLE.get(who, ("", ""))[1] == "viewer":
                refused(answer, 403)
            elif right:
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
            assert ask(c, path, method, token, None if method == "GET" else {}).status == 401, path


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
