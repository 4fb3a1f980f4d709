"""Stoker as the Hub of real clients: a mirror in front of another Hub, which is that of hub.py."""
import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import os
import threading
import time
import urllib.parse

import pytest
from conftest import CALL_S, CLUSTER, new_cluster, until
from hub import File, hub_server
from hub_client import VERSIONS, Client

MB = 1 << 20
TTL_S = 1
UPSTREAM = "hf_of_the_upstream"
ODD = {"empty": b"", "sub/a+b.txt": b"plus", "sub/two words.txt": b"space", "sub/100%.txt": b"percent", "sub/\u00fcn\u00ef/\u6f22.txt": b"unicode",
       "sub/\u00fcn\u00ef/#?&.txt": b"signs"}


def files(seed, large=300_000):
    """A repository of small, large and oddly named files."""
    return {"config.json": b'{"seed": "%s"}' % seed.encode(), "README.md": b"# about\n", "w.safetensors": os.urandom(large),
            "sub/w2.safetensors": os.urandom(100_000), **ODD}


def fresh(hub, data):
    """The id of a new repository of one file, w.bin."""
    id_ = f"team/{os.urandom(6).hex()}"
    hub.repo(id_, {"w.bin": data})
    return id_


def start(cluster, hub, *flags):
    return cluster.start("--cpus", "4", "--memory", "4Gi", "--hf-endpoint", hub.url, "--allow-source-network", "127.0.0.0/8", *flags)


@pytest.fixture(scope="module")
def both():
    """One server and one Hub for all that does not disturb others."""
    with hub_server() as hub, new_cluster() as cluster:
        model = hub.repo("team/model", files("model"))
        model.tags["v1"] = model.refs["main"]
        model.commit({**model.at("main").files, "new.txt": b"new"}, "dev/x")
        model.commit({**model.at("main").files, "pr.txt": b"pr"}, "refs/pr/1")
        hub.repo("gpt2", files("gpt2"))
        hub.repo("team/data", {"README.md": b"# data\n", "data/train.parquet": os.urandom(200_000)}, type_="datasets")
        hub.repo("team/many", {f"f/{i % 7}/{i:04d}": b"%d" % (i % 50) for i in range(2500)})
        hub.renamed["models", "old/name"] = "team/model"
        yield start(cluster, hub), hub


@pytest.fixture
def mirror(both, request):
    cluster, hub = both
    request.node.stash[CLUSTER] = cluster
    hub.forget()
    return cluster


@pytest.fixture
def hub(both):
    return both[1]


@pytest.fixture
def own(empty_cluster):
    """A server and a Hub that a test may do anything to. References are asked for again after TTL_S."""
    with hub_server() as hub:
        hub.tokens.add(UPSTREAM)
        hub.repo("team/model", files("model"))
        yield start(empty_cluster, hub, "--hub-ttl", str(TTL_S)), hub


@pytest.fixture(params=VERSIONS)
def client(request, mirror):
    return Client(mirror.folder, mirror.url, request.param, mirror.token)


# --- the protocol, without a client


class Answer:
    def __init__(self, status, headers, body, whole):
        self.status, self.headers, self.body, self.whole = status, headers, body, whole
        self.code = headers.get("X-Error-Code")

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {dict(self.headers)} {self.body[:300]!r} of {len(self.body)}, {'whole' if self.whole else 'cut'}"


def path_of(id_, path, rev="main", prefix=""):
    return f"/{prefix}{id_}/resolve/{urllib.parse.quote(rev, safe='')}/{urllib.parse.quote(path)}"


class Stream:
    """An answer that is read as the test wants it."""

    def __init__(self, cluster, path, method="GET", token=None, headers=(), body=None):
        self.connection = http.client.HTTPConnection(urllib.parse.urlsplit(cluster.url).netloc, timeout=CALL_S)
        send = dict(headers)
        if token != "":
            send["Authorization"] = f"Bearer {token or cluster.token}"
        self.connection.request(method, path, headers=send, body=body)
        self.reply = self.connection.getresponse()

    def read(self, n):
        return self.reply.read(n)

    def close(self):
        self.reply.close()
        self.connection.close()


def ask(cluster, path, method="GET", **kw):
    """No answer may speak of Xet: one such hint, and clients go where nobody is."""
    stream = Stream(cluster, path, method, **kw)
    try:
        body, whole = stream.reply.read(), True
    except http.client.IncompleteRead as e:
        body, whole = e.partial, False
    except ConnectionError:
        body, whole = b"", False
    headers = stream.reply.headers
    stream.close()
    said = "".join(f"{k}: {v}\n" for k, v in headers.items() if k != "X-Request-Id").lower()
    if "json" in headers.get("Content-Type", ""):
        said += body.decode().lower()
    assert "xet" not in said, said
    return Answer(stream.reply.status, headers, body, whole)


def get(cluster, id_, path, rev="main", **kw):
    return ask(cluster, path_of(id_, path, rev), **kw)


def right(answer, data):
    return answer.status == 200 and answer.whole and answer.body == data


def away(answer):
    """The upstream cannot be asked: nothing that a client may take for "there is no such thing"."""
    return answer.status in (502, 504) and answer.code is None


# --- what the real clients see


def test_what_a_repository_is(client, mirror, hub):
    seen = client.run("""
        def info(i):
            return [i.id, i.sha, sorted(s.rfilename for s in i.siblings), sorted(i.tags), i.private, i.likes, i.downloads]
        who = api.whoami()
        refs = api.list_repo_refs("team/model")
        said({
            "who": [who["type"], bool(who["name"])],
            "model": info(api.model_info("team/model")),
            "with sizes": {s.rfilename: [s.size, s.blob_id, s.lfs and s.lfs["sha256"]] for s in api.model_info("team/model", files_metadata=True).siblings},
            "by tag": api.model_info("team/model", revision="v1").sha,
            "by branch": api.model_info("team/model", revision="dev/x").sha,
            "by commit": api.model_info("team/model", revision=api.model_info("team/model").sha).sha,
            "of one word": info(api.model_info("gpt2")),
            "dataset": info(api.dataset_info("team/data")),
            "branches": {b.name: [b.ref, b.target_commit] for b in refs.branches},
            "tags": {b.name: [b.ref, b.target_commit] for b in refs.tags},
            "exists": [api.repo_exists("team/model"), api.repo_exists("team/nothing"), api.repo_exists("team/model", repo_type="dataset"),
                       api.file_exists("team/model", "config.json"), api.file_exists("team/model", "nothing")],
        })""")
    model, gpt2, data = (hub.repos[k] for k in (("models", "team/model"), ("models", "gpt2"), ("datasets", "team/data")))

    def info(repo):
        return [repo.id, repo.refs["main"], sorted(repo.at("main").files), ["license:apache-2.0", "region:us"], False, 3, 12]
    assert seen == {
        "who": ["user", True], "model": info(model), "of one word": info(gpt2), "dataset": info(data),
        "with sizes": {p: [f.size, f.oid, f.sha256 if f.lfs else None] for p, f in model.at("main").files.items()},
        "by tag": model.tags["v1"], "by branch": model.refs["dev/x"], "by commit": model.refs["main"],
        "branches": {n: [f"refs/heads/{n}", model.refs[n]] for n in ("main", "dev/x")}, "tags": {"v1": ["refs/tags/v1", model.tags["v1"]]},
        "exists": [True, False, False, True, False]}


SNAPSHOT = """
    folder = snapshot_download("team/model")
    cache = pathlib.Path(folder).parents[1]
    said({"files": digests(folder), "commit": os.path.basename(folder), "blobs": sorted(p.name for p in (cache / "blobs").iterdir()),
          "main": (cache / "refs/main").read_text(), "link": os.readlink(folder + "/sub/a+b.txt")})"""


def test_a_snapshot(client, mirror, hub):
    """The cache that it leaves is the one that the other Hub would have left: clients may go from one to the other."""
    commit = hub.repos["models", "team/model"].at("main")
    content = commit.files
    want = {"files": {p: f.sha256 for p, f in content.items()}, "commit": commit.sha, "blobs": sorted({f.etag for f in content.values()}),
            "main": commit.sha, "link": f"../../../blobs/{content['sub/a+b.txt'].etag}"}
    assert client.run(SNAPSHOT) == want
    hub.forget()
    client.run("said(snapshot_download('team/model', revision='main'))", HF_HUB_CACHE=client.cache + "2")
    assert hub.asked("get", "cdn", "head") == [] and hub.leaks() == []


def test_single_files(client, mirror, hub):
    model, gpt2, data = (hub.repos[k] for k in (("models", "team/model"), ("models", "gpt2"), ("datasets", "team/data")))
    seen = client.run(f"""
        paths = {list(model.at("main").files)!r}
        sha = {model.refs["main"]!r}
        seen = {{p: digest(hf_hub_download("team/model", p)) for p in paths}}
        seen["gpt2"] = digest(hf_hub_download("gpt2", "w.safetensors"))
        seen["data"] = digest(hf_hub_download("team/data", "data/train.parquet", repo_type="dataset"))
        seen["renamed"] = digest(hf_hub_download("old/name", "config.json"))
        for rev, path in (("dev/x", "new.txt"), ("v1", "config.json"), ("refs/pr/1", "pr.txt"), (sha, "sub/100%.txt")):
            seen[rev] = digest(hf_hub_download("team/model", path, revision=rev))
        seen["missing"] = names(hf_hub_download, "team/model", "no/such.json")
        known = pathlib.Path(os.environ["HF_HOME"], "hub/models--team--model/.no_exist", sha)
        seen["known as missing"] = [str(p.relative_to(known)) for p in known.rglob("*") if p.is_file()]
        seen["no branch"] = names(hf_hub_download, "team/model", "config.json", revision="nothing")
        seen["no commit"] = names(hf_hub_download, "team/model", "config.json", revision="0" * 40)
        seen["no repository"] = names(hf_hub_download, "team/nothing", "config.json")
        some = snapshot_download("team/model", allow_patterns=["*.json", "sub/*"], ignore_patterns="*.txt", cache_dir=os.environ["HF_HOME"] + "/some")
        seen["some"] = sorted(digests(some))
        said(seen)""")
    content = model.at("main").files
    for path, f in content.items():
        assert seen[path] == f.sha256, path
    assert seen["gpt2"] == gpt2.at("main").files["w.safetensors"].sha256 and seen["data"] == data.at("main").files["data/train.parquet"].sha256
    assert seen["renamed"] == seen["v1"] == content["config.json"].sha256
    assert [seen["dev/x"], seen["refs/pr/1"], seen[model.refs["main"]]] == [File(x).sha256 for x in (b"new", b"pr", b"percent")]
    assert seen["missing"][0] in ("EntryNotFoundError", "RemoteEntryNotFoundError") and seen["known as missing"] == ["no/such.json"]
    assert seen["no branch"][0] == seen["no commit"][0] == "RevisionNotFoundError" and seen["no repository"][0] == "RepositoryNotFoundError"
    assert seen["some"] == ["config.json", "sub/w2.safetensors"]


def test_lists_and_parts(client, mirror, hub):
    model, many = hub.repos["models", "team/model"].at("main"), hub.repos["models", "team/many"].at("main")
    seen = client.run("""
        def entry(e):
            name = "tree_id" if hasattr(e, "tree_id") else "blob_id"
            return [e.path, getattr(e, name), getattr(e, "size", None), e.lfs["sha256"] if getattr(e, "lfs", None) else None]
        fs = HfFileSystem()
        with fs.open("team/model/w.safetensors", "rb", block_size=4096) as f:
            f.seek(250_000)
            part = f.read(1000).hex()
        said({
            "many": sorted(e.path for e in api.list_repo_tree("team/many", recursive=True)),
            "deep": sorted(map(entry, api.list_repo_tree("team/model", recursive=True))),
            "flat": sorted(e.path for e in api.list_repo_tree("team/model")),
            "sub": sorted(e.path for e in api.list_repo_tree("team/model", "sub")),
            "no folder": names(lambda: list(api.list_repo_tree("team/model", "nothing"))),
            "paths": sorted(map(entry, api.get_paths_info("team/model", ["sub", "sub/a+b.txt", "w.safetensors", "nothing"]))),
            "all": sorted(api.list_repo_files("team/model")),
            "ls": sorted(fs.ls("team/model", detail=False)),
            "ls of a branch": sorted(fs.ls("team/model@dev%2Fx", detail=False)),
            "find": len(fs.find("team/many")),
            "glob": sorted(fs.glob("team/model/**/*.safetensors")),
            "cat": fs.cat_file("team/model/w.safetensors", start=10, end=2000).hex(),
            "small": fs.cat_file("datasets/team/data/README.md").decode(),
            "part": part,
            "size": fs.info("team/model/w.safetensors")["size"],
        })""")

    def entry(path):
        f = model.files.get(path)
        return [path, f.oid, f.size, f.sha256 if f.lfs else None] if f else [path, model.folders[path], None, None]
    folders = [p for p in model.folders if p]
    w = model.files["w.safetensors"].data
    assert seen == {
        "many": sorted([*many.files, *(p for p in many.folders if p)]), "deep": sorted(map(entry, [*model.files, *folders])),
        "flat": sorted(["sub", *(p for p in model.files if "/" not in p)]),
        "sub": sorted(p for p in [*model.files, *folders] if p.startswith("sub/") and p.count("/") == 1),
        "no folder": seen["no folder"], "paths": sorted(map(entry, ["sub", "sub/a+b.txt", "w.safetensors"])), "all": sorted(model.files),
        "ls": sorted(["team/model/sub", *(f"team/model/{p}" for p in model.files if "/" not in p)]),
        "ls of a branch": seen["ls of a branch"], "find": 2500, "glob": ["team/model/sub/w2.safetensors", "team/model/w.safetensors"],
        "cat": w[10:2000].hex(), "small": "# data\n", "part": w[250_000:251_000].hex(), "size": len(w)}
    assert seen["no folder"][0] in ("EntryNotFoundError", "RemoteEntryNotFoundError")
    assert any(p.endswith("/new.txt") for p in seen["ls of a branch"])


@pytest.mark.parametrize("version", VERSIONS)
def test_who_may_ask(mirror, version):
    """A bad token is no missing repository: what a client then says leads to the cause. Without one, a client says to log in."""
    stranger = Client(mirror.folder, mirror.url, version, "hf_of_nobody").run("""
        said([names(api.whoami), names(api.model_info, "team/model"), names(hf_hub_download, "team/model", "config.json")])""")
    nobody = Client(mirror.folder, mirror.url, version).run("said([names(api.model_info, 'team/model'), names(hf_hub_download, 'team/model', 'config.json')])")
    for raised in stranger:
        assert raised and "RepositoryNotFoundError" not in raised, raised
    for raised in nobody:
        assert "RepositoryNotFoundError" in raised, raised


def test_nobody_gets_anything(mirror):
    paths = ["/api/models/team/model", "/api/models/team/model/tree/main", "/api/models/team/model/refs", "/api/whoami-v2",
             path_of("team/model", "config.json"), path_of("team/model", "w.safetensors"), path_of("team/nothing", "x")]
    for path in paths:
        for token in ("", "hf_of_nobody"):
            for method in ("GET", "HEAD"):
                answer = ask(mirror, path, method, token=token)
                assert answer.status == 401 and b"license" not in answer.body, (path, answer)
    assert ask(mirror, "/api/models/team/model/paths-info/main", "POST", token="", body="paths=config.json").status == 401


def test_the_newest_client_with_5000_small_files(mirror, hub):
    content = {f"f/{i % 50:02d}/{i:04d}": b"number %d" % i for i in range(5000)}
    hub.repo("team/small", content)
    client = Client(mirror.folder, mirror.url, "2.4", mirror.token)
    began = time.monotonic()
    seen = client.run("said(digests(snapshot_download('team/small')))")
    took = time.monotonic() - began
    assert seen == {p: hashlib.sha256(x).hexdigest() for p, x in content.items()}
    assert len(hub.asked("get")) == 5000, "each once"
    print(f"5000 files in {took:.1f} s")


# --- the protocol


def test_a_repository_without_files(mirror, hub):
    """One that was just created is there, and empty."""
    made = hub.repo("team/new", {})
    for _ in range(2):
        about = ask(mirror, "/api/models/team/new")
        assert about.status == 200 and about.json()["sha"] == made.refs["main"] and about.json()["siblings"] == [], about
        tree = ask(mirror, "/api/models/team/new/tree/main?recursive=true")
        assert tree.status == 200 and tree.json() == [], tree
    assert get(mirror, "team/new", "config.json").code == "EntryNotFound"
    made.commit({"config.json": b"{}"}, "next")
    assert right(get(mirror, "team/new", "config.json", "next"), b"{}")
    until(lambda: any(w["source"] == "hf://team/new" and w["files"] == 0 for w in mirror.json("weights", "ls")))


def test_headers_of_a_file(mirror, hub):
    model = hub.repos["models", "team/model"].at("main")
    for path, f in model.files.items():
        for method in ("HEAD", "GET", "HEAD"):  # before its bytes are here, with them, and after
            answer = get(mirror, "team/model", path, method=method, headers={"Accept-Encoding": "gzip, deflate"})
            h = answer.headers
            assert answer.status == 200 and h["X-Repo-Commit"] == model.sha and h["ETag"] == f'"{f.etag}"', (path, answer)
            assert int(h["Content-Length"]) == f.size and h["Content-Encoding"] is None and h["Accept-Ranges"] == "bytes", (path, answer)
            assert h["Location"] is None and (not f.lfs or (h["X-Linked-Etag"], h["X-Linked-Size"]) == (f'"{f.sha256}"', str(f.size)))
            assert answer.body == (f.data if method == "GET" else b"")


def test_heads_fetch_nothing(mirror, hub):
    hub.repo("team/unread", files("unread"))
    for path in ("config.json", "w.safetensors", "nothing"):
        get(mirror, "team/unread", path, method="HEAD")
    assert ask(mirror, "/api/models/team/unread/tree/main?recursive=true").status == 200
    assert hub.sent() == 0 and hub.asked("get", "cdn") == []


@pytest.mark.parametrize("size", [1000, 3 * MB + 17], ids=["small", "large"])
def test_ranges(mirror, hub, size):
    """Of a file that is not here yet and of one that is."""
    data = os.urandom(size)
    parts = [(0, 0), (0, 99), (500, 999), (size - 1, size - 1), (size // 2, None), (size - 10, size + 10), (None, 7), (None, size + 5)]
    hub.repo(f"ranges/warm-{size}", {"w": data})
    assert right(get(mirror, f"ranges/warm-{size}", "w"), data)
    for n, (a, b) in enumerate(parts):
        first, last = (max(0, size - b), size - 1) if a is None else (a, size - 1 if b is None else min(b, size - 1))
        hub.repo(f"ranges/cold-{size}-{n}", {"w": data})
        for id_ in (f"ranges/cold-{size}-{n}", f"ranges/warm-{size}"):
            answer = get(mirror, id_, "w", headers={"Range": f"bytes={'' if a is None else a}-{'' if b is None else b}"})
            assert answer.status == 206 and answer.body == data[first:last + 1], (id_, a, b, answer)
            assert answer.headers["Content-Range"] == f"bytes {first}-{last}/{size}"
    for wrong in (f"bytes={size}-", f"bytes={size + 5}-{size + 9}"):
        answer = get(mirror, f"ranges/warm-{size}", "w", headers={"Range": wrong})
        assert answer.status == 416 and answer.headers["Content-Range"] == f"bytes */{size}", answer
    for ignored in ("bytes=9-3", "lines=1-2", "bytes=a-b"):
        assert right(get(mirror, f"ranges/warm-{size}", "w", headers={"Range": ignored}), data)


def test_a_piece_of_a_large_file_does_not_bring_all_of_it(mirror, hub):
    """As one reads the head of a checkpoint, or some rows of a table; what the upstream does meanwhile is no matter."""
    data = os.urandom(65 * MB)
    id_ = fresh(hub, data)
    with hub.fault("cdn", path=id_, cut=100, times=1), hub.fault("cdn", path=id_, status=503, times=1):
        for first, n in ((0, 1000), (40 * MB, 500_000), (len(data) - 7, 7)):
            part = get(mirror, id_, "w.bin", headers={"Range": f"bytes={first}-{first + n - 1}"})
            assert part.status == 206 and part.whole and part.body == data[first:first + n], part
    assert hub.sent(id_) < 2 * MB and not stored(mirror, data)
    assert right(get(mirror, id_, "w.bin"), data)


def test_conditions(mirror, hub):
    """Of a HEAD a client wants the headers whatever it has."""
    f = hub.repos["models", "team/model"].at("main").files["config.json"]
    for etag in (f'"{f.etag}"', "*"):
        answer = get(mirror, "team/model", "config.json", method="HEAD", headers={"If-None-Match": etag})
        assert answer.status == 200 and int(answer.headers["Content-Length"]) == f.size, answer
    answer = get(mirror, "team/model", "config.json", headers={"If-None-Match": f'"{f.etag}"'})
    assert right(answer, f.data) or answer.status == 304 and answer.body == b"" and answer.headers["ETag"] == f'"{f.etag}"', answer
    assert right(get(mirror, "team/model", "config.json", headers={"If-None-Match": '"other"'}), f.data)


def test_what_is_not_there(mirror, hub):
    commit = hub.repos["models", "team/model"].refs["main"]
    for path, code in ((path_of("team/model", "nothing"), "EntryNotFound"), (path_of("team/model", "sub"), "EntryNotFound"),
                       (path_of("team/model", "config.json", "nothing"), "RevisionNotFound"), (path_of("team/nothing", "x"), "RepoNotFound"),
                       ("/api/models/team/nothing", "RepoNotFound"), ("/api/models/team/model/revision/nothing", "RevisionNotFound"),
                       ("/api/models/team/model/tree/nothing", "RevisionNotFound"), ("/api/models/team/model/tree/main/nothing", "EntryNotFound"),
                       ("/api/datasets/team/model", "RepoNotFound"), ("/api/models/team/nothing/refs", "RepoNotFound")):
        for method in ("GET", "HEAD"):
            answer = ask(mirror, path, method)
            assert (answer.status, answer.code) == (404, code), (path, answer)
            assert answer.headers["X-Repo-Commit"] == (commit if code == "EntryNotFound" and "/resolve/" in path else answer.headers["X-Repo-Commit"])
            assert method == "HEAD" or answer.json()["error"]
    for path in ("/api/models/team/model/nothing", "/api/nothing", "/api/datasets/team/data/parquet"):
        answer = ask(mirror, path)
        assert answer.status == 404 and answer.json()["error"], (path, answer)
    assert ask(mirror, "/api/agent-harnesses").json() == {"standardEnvVars": [], "harnesses": {}}


def test_ids_that_are_none(mirror, hub):
    """Neither a server error, nor a question to the other Hub."""
    for id_ in ("team/..", "../team", "team/-x", "team/x.git", "team/a--b", "te%20am/x", "team/x%0d%0ay", "team/" + "x" * 97, "%00", "team%2Fmodel%2F..%2F.."):
        for path in (f"/api/models/{id_}", f"/{id_}/resolve/main/config.json", f"/api/models/{id_}/tree/main"):
            answer = ask(mirror, path)
            assert 400 <= answer.status < 500 and b"seed" not in answer.body, (path, answer)
    for path in ("../../config.json", "sub/../config.json", "%2e%2e/config.json", "sub//w2.safetensors"):
        answer = ask(mirror, f"/team/model/resolve/main/{path}")
        assert answer.status in (400, 404), (path, answer)
    assert not [r for r in hub.asked() if ".." in r["path"] or "\r" in r["path"]]


def test_names_that_differ_in_case_are_one(mirror, hub):
    data = hub.repos["models", "team/model"].at("main").files["w.safetensors"].data
    assert right(get(mirror, "team/model", "w.safetensors"), data)
    hub.forget()
    assert right(get(mirror, "TEAM/Model", "w.safetensors"), data) and hub.sent() == 0


def test_pages_lead_back_here(mirror, hub):
    """By the name that the client knows this server by."""
    host, path, seen, pages = "hub.example:8080", "/api/models/team/many/tree/main?recursive=true&expand=false", [], 0
    while path:
        answer = ask(mirror, path, headers={"Host": host})
        seen += answer.json()
        pages += 1
        link = answer.headers["Link"]
        if not link:
            break
        target, _, rel = link.partition(";")
        assert rel.strip() == 'rel="next"' and target.startswith(f"<http://{host}/api/models/team/many/tree/"), link
        path = target[1:-1].removeprefix(f"http://{host}")
    assert pages > 2 and len(seen) == len({e["path"] for e in seen}) == 2508
    few = ask(mirror, "/api/models/team/many/tree/main/f%2F3%2F?limit=10")
    assert len(few.json()) == 10 and few.headers["Link"]


def test_no_answer_names_the_other_hub(mirror, hub):
    for path in ("/api/models/team/model", "/api/models/team/model?blobs=true&expand=xetEnabled", "/api/models/team/many/tree/main?recursive=1", "/api/models/team/model/refs",
                 path_of("team/model", "nothing"), path_of("team/model", "w.safetensors"), path_of("old/name", "config.json")):
        answer = ask(mirror, path)
        for url in (hub.url, hub.cdn):
            assert urllib.parse.urlsplit(url).netloc not in str(answer.headers) + answer.body.decode(errors="replace"), (path, answer)


# --- one fetch for all


def test_16_clients_at_once_are_one_fetch(mirror, hub):
    data = os.urandom(64 * MB)
    want = hashlib.sha256(data).hexdigest()
    hub.repo("team/large", {"w.bin": data})
    begun = threading.Semaphore(0)

    def read():
        stream = Stream(mirror, path_of("team/large", "w.bin"))
        h = hashlib.sha256(stream.read(1000))
        begun.release()
        while block := stream.read(MB):
            h.update(block)
        stream.close()
        return h.hexdigest()

    with hub.fault("cdn", path="w.bin", hold=8 * MB) as fault, concurrent.futures.ThreadPoolExecutor(12) as pool:
        readers = [pool.submit(read) for _ in range(12)]
        clients = [Client(mirror.folder, mirror.url, version, mirror.token) for version in VERSIONS[:4]]
        processes = [c.begin("said(digest(hf_hub_download('team/large', 'w.bin')))") for c in clients]
        assert all(begun.acquire(timeout=CALL_S) for _ in readers), "each has bytes while the upstream holds the rest back"
        assert fault.reached.wait(CALL_S) and not any(r.done() for r in readers)
        fault.go.set()
        assert {r.result() for r in readers} == {want}
        assert {c.end(p) for c, p in zip(clients, processes)} == {want}
    assert hub.sent("w.bin") == len(data)


def test_who_comes_later_reads_along(mirror, hub):
    """A second client gets what is here of a file while the rest is still awaited, and a part of it that is here."""
    data = os.urandom(12 * MB)
    hub.repo("team/slow", {"w.bin": data})
    with hub.fault("cdn", path="w.bin", hold=6 * MB) as fault:
        first = Stream(mirror, path_of("team/slow", "w.bin"))
        began = first.read(4 * MB)
        second = Stream(mirror, path_of("team/slow", "w.bin"))
        also = second.read(4 * MB)
        part = get(mirror, "team/slow", "w.bin", headers={"Range": "bytes=1000000-1999999"})
        assert part.status == 206 and part.body == data[1_000_000:2_000_000]
        assert not fault.go.is_set()
        fault.go.set()
        assert began + first.read(20 * MB) == data and also + second.read(20 * MB) == data
        first.close()
        second.close()
    assert hub.sent("w.bin") == len(data)


def test_a_client_that_leaves_takes_nothing_along(mirror, hub):
    data = os.urandom(12 * MB)
    hub.repo("team/left", {"w.bin": data})
    with hub.fault("cdn", path="w.bin", hold=6 * MB) as fault:
        leaves = Stream(mirror, path_of("team/left", "w.bin"))
        assert leaves.read(MB) == data[:MB]
        stays = Stream(mirror, path_of("team/left", "w.bin"))
        leaves.close()
        fault.go.set()
        assert stays.read(20 * MB) == data
        stays.close()
    with hub.fault("cdn", path="w2.bin", hold=6 * MB) as fault:
        hub.repo("team/left2", {"w2.bin": data[::-1]})
        leaves = Stream(mirror, path_of("team/left2", "w2.bin"))
        leaves.read(MB)
        leaves.close()
        fault.go.set()
    assert right(get(mirror, "team/left2", "w2.bin"), data[::-1])
    assert hub.sent("w.bin") == hub.sent("w2.bin") == len(data)


@pytest.mark.parametrize("first", ["job", "client"])
def test_jobs_and_clients_share_what_is_fetched(own, first):
    cluster, hub = own
    repo = hub.repos["models", "team/model"].at("main")
    total = sum(f.size for f in {f.etag: f for f in repo.files.values()}.values())

    def job():
        pushed = cluster.push(["sha256sum < /w/w.safetensors; cat /w/config.json"], weights=[{"source": "hf://team/model@main", "mount_location": "/w"}])
        cluster.wait(pushed, "TRAINING_JOB_COMPLETED")
        lines = cluster.user_lines(pushed)
        assert lines[0].split()[0] == repo.files["w.safetensors"].sha256 and lines[1].encode() == repo.files["config.json"].data

    def client():
        seen = Client(cluster.folder, cluster.url, "2.4", cluster.token).run("said(digests(snapshot_download('team/model')))")
        assert seen == {p: f.sha256 for p, f in repo.files.items()}
    todo = [job, client] if first == "job" else [client, job]
    todo[0]()
    assert hub.sent() == total
    hub.forget()
    todo[1]()
    assert hub.sent() == 0
    cluster.cli("cache", "verify")


def test_who_wants_what_another_fetches_follows_it(own):
    """A client has the bytes that a job's fetch has brought so far, and the other way round."""
    cluster, hub = own
    for n, first in enumerate(("job", "client", "job that is stopped")):
        data, name = os.urandom(12 * MB), f"w{n}.bin"
        hub.repo(f"team/large{n}", {name: data})

        def push():
            return cluster.push([f"sha256sum < /w/{name}"], weights=[{"source": f"hf://team/large{n}", "mount_location": "/w"}])
        with hub.fault("cdn", path=name, hold=6 * MB) as fault:
            job = None if first == "client" else push()
            if job:
                assert fault.reached.wait(CALL_S)
            stream = Stream(cluster, path_of(f"team/large{n}", name))
            got = stream.read(4 * MB)
            assert got == data[:4 * MB] and not fault.go.is_set()
            if first == "client":
                job = push()
                until(lambda: f"{name}: follows another fetch" in cluster.log.read_text())
            elif first == "job that is stopped":
                cluster.cli("stop", job["id"], "--now")
                until(lambda: fault.hits > 1)  # the client's fetch has taken over
            fault.go.set()
            with contextlib.suppress(ConnectionError):
                got += stream.read(20 * MB)
            stream.close()
        assert right(get(cluster, f"team/large{n}", name), data)
        if first == "job that is stopped":  # what it had sent need not be what has come since
            assert len(got) < len(data)
            continue
        assert got == data and hub.sent(name) == len(data)
        cluster.wait(job, "TRAINING_JOB_COMPLETED")
        assert cluster.user_lines(job)[0].split()[0] == hashlib.sha256(data).hexdigest()


# --- an upstream that fails

PASSING = [("info", {"status": 503}), ("info", {"reset": True}), ("info", {"status": 429, "headers": {"Retry-After": "1"}}), ("tree", {"status": 500}),
           ("get", {"status": 429, "headers": {"Retry-After": "1"}}), ("get", {"status": 503}), ("cdn", {"status": 503}), ("cdn", {"reset": True}),
           ("cdn", {"cut": 0}), ("cdn", {"cut": MB}), ("cdn", {"cut": 3 * MB - 1})]


@pytest.mark.parametrize("where, what", PASSING, ids=[f"{w}-{'-'.join(x)}-{next(iter(x.values()))}" for w, x in PASSING])
def test_what_passes_is_waited_out(mirror, hub, where, what):
    """Clients give up, or begin anew, when a body breaks off: they see nothing of it."""
    data = os.urandom(3 * MB)
    id_ = fresh(hub, data)
    with hub.fault(where, times=1, **what) as fault:
        answer = get(mirror, id_, "w.bin")
        assert fault.hits == 1 and right(answer, data), answer
    if "cut" in what:
        assert hub.sent() == len(data), "it goes on where it stopped"


LIES = (("cdn", {"corrupt": 1000}), ("cdn", {"corrupt": 3 * MB - 1}), ("cdn", {"length": -5}), ("cdn", {"length": 5}), ("get", {"garbage": True}))


def stored(cluster, data):
    hexes = hashlib.sha256(data).hexdigest()
    return (cluster.data / "store/blobs/sha256" / hexes[:2] / hexes).exists()


def test_wrong_bytes_are_nobodys_file(mirror, hub):
    """A client counts bytes and looks no further: it must not get as many as it waits for."""
    lies = [(fresh(hub, os.urandom(3 * MB)), where, what) for where, what in LIES] + [(fresh(hub, b'{"small": 1}'), "get", {"corrupt": 3})]
    content = {id_: hub.repos["models", id_].at("main").files["w.bin"].data for id_, _, _ in lies}
    with contextlib.ExitStack() as faults:
        for id_, where, what in lies:
            fault = faults.enter_context(hub.fault(where, path=id_, **what))
            for _ in range(2):
                with concurrent.futures.ThreadPoolExecutor() as pool:  # some are further than others when it turns out
                    answers = list(pool.map(lambda _, id_=id_: get(mirror, id_, "w.bin"), range(6)))
                assert fault.hits and all(not a.whole or a.status >= 500 and a.code is None for a in answers), (what, answers)
                part = get(mirror, id_, "w.bin", headers={"Range": f"bytes={len(content[id_]) - 10}-"})
                assert not part.whole or part.status >= 500 or part.body == content[id_][-10:], (what, part)
            assert not stored(mirror, content[id_])
    for id_, data in content.items():
        until(lambda: right(get(mirror, id_, "w.bin"), data) and stored(mirror, data))


def test_an_upstream_that_makes_no_sense(mirror, hub):
    with contextlib.ExitStack() as faults, concurrent.futures.ThreadPoolExecutor() as pool:
        sick = [fresh(hub, os.urandom(100_000)) for _ in range(3)]
        for id_, what in zip(sick, ({"garbage": True}, {"status": 500}, {"reset": True})):
            faults.enter_context(hub.fault("api", path=id_, **what))
        paths = [path for id_ in sick for path in (f"/api/models/{id_}", f"/api/models/{id_}/tree/main", path_of(id_, "w.bin"))]
        for path, answer in zip(paths, pool.map(lambda p: ask(mirror, p), paths)):
            assert away(answer), (path, answer)
    for id_ in sick:
        until(lambda: get(mirror, id_, "w.bin").status == 200)


def test_a_storage_host_that_calls_a_file_otherwise(mirror, hub):
    """Its ETag says nothing: what the bytes are says the list."""
    data = os.urandom(3 * MB)
    id_ = fresh(hub, data)
    with hub.fault("cdn", path=id_, cut=MB, times=1), hub.fault("cdn", path=id_, etag="another"):
        assert right(get(mirror, id_, "w.bin"), data)


def test_a_signed_address_that_expires(own):
    cluster, hub = own
    data = hub.repos["models", "team/model"].at("main").files["w.safetensors"].data
    hub.signature_uses = 1
    with hub.fault("cdn", cut=100, times=1):
        assert right(get(cluster, "team/model", "w.safetensors"), data)
    assert hub.sent("w.safetensors") == len(data)


def test_an_upstream_that_is_gone(own):
    """What was fetched is served, by the names of branches too; of the rest nobody is told that it does not exist."""
    cluster, hub = own
    model = hub.repos["models", "team/model"]
    hub.repo("team/other", files("other"))
    fill = Client(cluster.folder, cluster.url, "2.4", cluster.token)
    want = fill.run("said(digests(snapshot_download('team/model')))")
    assert ask(cluster, "/api/models/team/other").status == 200
    hub.down()
    time.sleep(TTL_S + 0.5)
    unknown = ["/api/models/team/unknown", path_of("team/unknown", "config.json"), path_of("team/other", "w.safetensors"),
               path_of("team/model", "config.json", "another"), "/api/models/team/unknown/tree/main", "/api/models/team/unknown/refs"]
    old = Client(cluster.folder, cluster.url, "0.20", cluster.token).begin(SNAPSHOT)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for path, answer in zip(unknown, pool.map(lambda p: ask(cluster, p), unknown)):
            assert away(answer), (path, answer)
    assert fill.end(old)["files"] == want == {p: f.sha256 for p, f in model.at("main").files.items()}
    cluster.stop()
    cluster.restart()
    assert Client(cluster.folder, cluster.url, "2.4", cluster.token).run(SNAPSHOT)["files"] == want
    assert get(cluster, "team/model", "nothing").code == "EntryNotFound", "of a commit that is here, all is known"
    raised = Client(cluster.folder, cluster.url, "0.36", cluster.token).run("said([names(api.model_info, 'team/unknown'), api.whoami()['type']])")
    assert raised[0] and "RepositoryNotFoundError" not in raised[0] and raised[1] == "user"
    hub.up()
    until(lambda: right(get(cluster, "team/other", "w.safetensors"), hub.repos["models", "team/other"].at("main").files["w.safetensors"].data))


def test_an_upstream_that_says_nothing(own):
    """A client that is not told of another deadline waits ten seconds."""
    cluster, hub = own
    assert get(cluster, "team/model", "config.json").status == 200
    time.sleep(TTL_S + 0.5)
    with hub.fault("api", hold=0) as fault:
        client = Client(cluster.folder, cluster.url, "0.20", cluster.token)  # tries once
        del client.env["HF_HUB_ETAG_TIMEOUT"], client.env["HF_HUB_DOWNLOAD_TIMEOUT"]
        seen = client.run("said([digest(hf_hub_download('team/model', 'config.json')), names(hf_hub_download, 'team/other', 'config.json')])")
        assert seen[0] == hub.repos["models", "team/model"].at("main").files["config.json"].sha256
        assert seen[1] and "RepositoryNotFoundError" not in seen[1] and fault.reached.is_set()


def test_a_branch_that_moves(own):
    cluster, hub = own
    model = hub.repos["models", "team/model"]
    old = model.refs["main"]
    assert ask(cluster, "/api/models/team/model").json()["sha"] == old
    new = model.commit({**model.at("main").files, "config.json": b'{"moved": true}'})
    until(lambda: ask(cluster, "/api/models/team/model").json()["sha"] == new, deadline=30)
    assert right(get(cluster, "team/model", "config.json"), b'{"moved": true}')
    assert get(cluster, "team/model", "config.json", old).headers["X-Repo-Commit"] == old
    moved = Client(cluster.folder, cluster.url, "1.33", cluster.token).run("said(open(hf_hub_download('team/model', 'config.json')).read())")
    assert moved == '{"moved": true}'


def test_references_are_kept_for_a_while(mirror, hub):
    """60 seconds, by default."""
    model = hub.repo("team/kept", files("kept"))
    assert ask(mirror, "/api/models/team/kept").status == 200
    hub.forget()
    model.commit({"other": b"1"})
    for _ in range(3):
        assert ask(mirror, "/api/models/team/kept").json()["sha"] != model.refs["main"]
        assert get(mirror, "team/kept", "config.json", method="HEAD").status == 200
    assert hub.asked() == []


def test_killed_in_the_middle_of_a_fetch(own):
    cluster, hub = own
    data = os.urandom(12 * MB)
    hub.repo("team/large", {"w.bin": data})
    with hub.fault("cdn", path="w.bin", hold=6 * MB) as fault:
        stream = Stream(cluster, path_of("team/large", "w.bin"))
        assert stream.read(2 * MB) == data[:2 * MB]
        cluster.kill()
        fault.go.set()
    with contextlib.suppress(http.client.IncompleteRead, ConnectionError):
        assert len(stream.read(20 * MB)) < 10 * MB
    stream.close()
    cluster.restart()
    assert right(get(cluster, "team/large", "w.bin"), data) and right(get(cluster, "team/large", "w.bin"), data)
    cluster.cli("cache", "verify")


# --- whose repositories


@pytest.fixture
def teams(own):
    """Two teams; the first has a secret for the private and the gated repository."""
    cluster, hub = own
    hub.repo("team/private", files("private"), readers={UPSTREAM})
    hub.repo("team/gated", files("gated"), granted={UPSTREAM})
    hub.renamed["models", "old/private"] = "team/private"
    tokens = {}
    for name in ("with", "without"):
        cluster.cli("teams", "create", name)
        tokens[name] = cluster.json("tokens", "create", name, "--team", name)["api_key"]
    cluster.cli("secrets", "set", "hf_access_token", "--team", "with", stdin=UPSTREAM)
    return cluster, hub, tokens


def secret_paths(id_):
    return [f"/api/models/{id_}", f"/api/models/{id_}/revision/main", f"/api/models/{id_}/tree/main?recursive=true", f"/api/models/{id_}/refs",
            path_of(id_, "config.json"), path_of(id_, "w.safetensors"), path_of(id_, "nothing"), path_of(id_, "config.json", "nothing")]


def test_a_private_repository_is_there_for_one_team(teams):
    cluster, hub, tokens = teams
    repo = hub.repos["models", "team/private"]
    commit, data = repo.at("main"), repo.at("main").files["w.safetensors"].data

    def hidden():
        by_commit = [path_of("team/private", "config.json", commit.sha), path_of("team/private", "w.safetensors", commit.sha), f"/api/models/team/private/tree/{commit.sha}"]
        for path in [*secret_paths("team/private"), *by_commit, path_of("TEAM/Private", "w.safetensors"), path_of("old/private", "w.safetensors")]:
            for method in ("GET", "HEAD"):
                answer = ask(cluster, path, method, token=tokens["without"])
                assert (answer.status, answer.code) == (404, "RepoNotFound"), (path, answer)
        answer = ask(cluster, "/api/models/team/private/paths-info/main", "POST", token=tokens["without"], body="paths=config.json",
                     headers={"Content-Type": "application/x-www-form-urlencoded"})
        assert (answer.status, answer.code) == (404, "RepoNotFound"), answer
    hidden()
    for path in secret_paths("team/private")[:6]:
        assert ask(cluster, path, token=tokens["with"]).status == 200, path
    assert right(get(cluster, "team/private", "w.safetensors", token=tokens["with"]), data)
    hidden()
    time.sleep(TTL_S + 0.5)
    hidden()
    seen = {name: Client(cluster.folder, cluster.url, "2.4", token).run("""
        said([names(snapshot_download, "team/private"), names(api.model_info, "team/private"), api.repo_exists("team/private")])""") for name, token in tokens.items()}
    assert seen["with"] == [[], [], True]
    assert all("RepositoryNotFoundError" in raised for raised in seen["without"][:2]) and seen["without"][2] is False
    assert hub.leaks() == []
    # The other Hub is away: what was fetched is for the one team, and the other one learns nothing.
    hub.down()
    time.sleep(TTL_S + 0.5)
    assert right(get(cluster, "team/private", "w.safetensors", token=tokens["with"]), data)
    paths = [path_of("team/private", "w.safetensors"), path_of("team/private", "w.safetensors", commit.sha), "/api/models/team/private"]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for path, answer in zip(paths, pool.map(lambda p: ask(cluster, p, token=tokens["without"]), paths)):
            assert answer.status in (404, 502, 504) and data[:16] not in answer.body, (path, answer)


def test_a_right_that_ends(teams):
    """Taken away at the other Hub, or with the secret."""
    cluster, hub, tokens = teams
    repo = hub.repos["models", "team/private"]
    hub.repo("team/private2", files("private2"), readers={UPSTREAM})

    def seen(id_, rev="main"):
        return get(cluster, id_, "w.safetensors", rev, token=tokens["with"])
    assert seen("team/private").status == seen("team/private2").status == seen("team/private", repo.refs["main"]).status == 200
    repo.readers = set()
    until(lambda: seen("team/private").code == "RepoNotFound", deadline=30)
    until(lambda: seen("team/private", repo.refs["main"]).code == "RepoNotFound", deadline=30)
    assert seen("team/private2").status == 200
    cluster.cli("secrets", "rm", "hf_access_token", "--team", "with", "-y")
    until(lambda: seen("team/private2").code == "RepoNotFound", deadline=30)


def test_a_gated_repository(teams):
    """Its terms are accepted by an account, at the other Hub."""
    cluster, hub, tokens = teams
    data = hub.repos["models", "team/gated"].at("main").files["w.safetensors"].data
    script = "said([names(hf_hub_download, 'team/gated', 'config.json'), names(hf_hub_download, 'team/gated', 'w.safetensors')])"
    for _ in range(2):  # before the bytes are here, and after
        for raised in Client(cluster.folder, cluster.url, "2.4", tokens["without"]).run(script):
            assert raised[:1] == ["GatedRepoError"], raised
        for path in ("config.json", "w.safetensors"):
            answer = get(cluster, "team/gated", path, token=tokens["without"])
            assert answer.status in (401, 403) and answer.code == "GatedRepo", answer
        assert right(get(cluster, "team/gated", "w.safetensors", token=tokens["with"]), data)
    assert Client(cluster.folder, cluster.url, "0.20", tokens["with"]).run(script) == [[], []]


def test_a_token_stays_at_home(teams):
    """Wherever the other Hub sends the mirror."""
    cluster, hub, tokens = teams
    repo = hub.repos["models", "team/private"]
    assert right(get(cluster, "team/private", "w.safetensors", token=tokens["with"]), repo.at("main").files["w.safetensors"].data)
    assert [r for r in hub.asked("info", "tree", "get") if r["token"] == UPSTREAM] and hub.leaks() == []
    for n, where in enumerate(("info", "tree", "refs", "get")):
        hub.repo(f"team/sent{n}", files(f"sent{n}"), readers={UPSTREAM})
        with hub.fault(where, path=f"team/sent{n}", redirect=f"{hub.cdn}/elsewhere") as fault:
            for path in (path_of(f"team/sent{n}", "config.json"), f"/api/models/team/sent{n}/refs"):
                assert ask(cluster, path, token=tokens["with"]).code != "RepoNotFound"
            assert fault.hits
    assert hub.leaks() == []
    asked = {r["token"] for r in hub.asked()}
    assert cluster.token not in asked and not asked & set(tokens.values()), "ours stay here"


def test_a_mirror_of_a_mirror(own):
    """A site's server in front of a company's: its large files come from no other host, and the secret is a token of it."""
    cluster, hub = own
    with new_cluster() as site:
        site.start("--hub-upstream", cluster.url, "--allow-source-network", "127.0.0.0/8")
        site.cli("secrets", "set", "hf_access_token", stdin=cluster.token)
        seen = Client(site.folder, site.url, "2.4", site.token).run(SNAPSHOT)
        assert seen["files"] == {p: f.sha256 for p, f in hub.repos["models", "team/model"].at("main").files.items()}
        hub.forget()
        site.cli("teams", "create", "others")
        other = site.json("tokens", "create", "other", "--team", "others")["api_key"]
        assert get(site, "team/model", "config.json", token=other).code == "RepoNotFound", "nobody gets anything there without a token"


def test_no_mirror(empty_cluster):
    with hub_server() as hub:
        hub.repo("team/model", files("model"))
        cluster = start(empty_cluster, hub, "--hub-upstream", "off")
        for path in ("/api/models/team/model", path_of("team/model", "config.json")):
            answer = ask(cluster, path)
            assert (answer.status, answer.code) == (404, "RepoNotFound"), answer
            assert "mirrors no other Hub" in answer.headers["X-Error-Message"]
        assert hub.asked() == []


def test_a_mirror_of_another_hub_than_that_of_jobs(empty_cluster):
    with hub_server() as hub, hub_server() as other:
        hub.repo("team/model", {"which": b"that of jobs"})
        other.repo("team/model", {"which": b"the other"})
        cluster = start(empty_cluster, hub, "--hub-upstream", other.url)
        assert right(get(cluster, "team/model", "which"), b"the other")
        job = cluster.push(["cat /w/which"], weights=[{"source": "hf://team/model", "mount_location": "/w"}])
        cluster.wait(job, "TRAINING_JOB_COMPLETED")
        assert cluster.user_lines(job) == ["that of jobs"]
