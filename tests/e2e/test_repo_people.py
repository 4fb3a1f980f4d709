"""Repositories as people see them (`stoker repos`), damage, and large files of clients that speak Xet."""
import hashlib
import json
import os
import re

from hub_client import Client
from test_repos import (
    ask,
    blobs,
    collect,
    commit,
    files,
    get,
    good,
    large,
    new,
    oid,
    own,  # noqa: F401
    refused,
    remove,
    send,
    small,
    upload,
)

MB = 1 << 20


# --- by the command line


def test_repos(own):  # noqa: F811
    c = own
    assert c.cli("repos", "ls").err.startswith("no repositories")
    made = c.cli("repos", "create", "mine", "--private")
    assert "created admin/mine (private)" in made.err and "hf upload admin/mine ." in made.err
    c.cli("repos", "create", "Default/faces", "--type", "datasets")
    assert "hub_repo_exists" == c.error("repos", "create", "mine")
    assert c.error("repos", "create", "nobody/x") == "role_required" and c.error("repos", "create", "a b") == "invalid"
    good(commit(c, "admin/mine", small("a.txt", b"x" * 5000), summary="the first\n\x1b[31mfile"))
    good(ask(c, "/api/models/admin/mine/tag/main", "POST", None, {"tag": "v1"}))
    rows = c.json("repos", "ls")
    assert [(r["path"], r["private"], r["of_user"]) for r in rows] == [("admin/mine", True, True), ("datasets/Default/faces", False, False)]
    assert [r["path"] for r in c.json("repos", "ls", "--type", "datasets")] == ["datasets/Default/faces"]
    assert c.json("repos", "ls", "--owner", "default") == c.json("repos", "ls", "--search", "FACES") == rows[1:]
    page = c.cli("repos", "show", "admin/mine").out
    assert "private" in page and "2 files in main" in page and "v1" in page and "the first" in page and "\x1b" not in page
    whole = c.json("repos", "show", "models/Admin/MINE")
    assert (whole["files"], whole["repository"]["id"], [b["name"] for b in whole["branches"]]) == (2, "admin/mine", ["main"])
    assert [x["author"] for x in whole["commits"]] == ["admin", "admin"]
    du = c.cli("repos", "du")
    assert du.out.splitlines()[1].endswith("admin/mine") and re.search(r"^your team: [678][.0-9]* kB of 1.00 TB", du.err), du.err
    for word in ("mine", "a/b/c", "datasets/x", ""):
        assert c.error("repos", "show", word, code=2) == "usage"
    assert c.error("repos", "show", "admin/none") == "hub_repo_not_found"
    viewer = c.json("tokens", "create", "vic", "--team", "Default", "--role", "viewer")["api_key"]
    assert [r["path"] for r in c.json("repos", "ls", token=viewer)] == ["datasets/Default/faces"]
    assert c.error("repos", "show", "admin/mine", token=viewer) == "hub_repo_not_found"
    assert c.error("repos", "rm", "datasets/Default/faces", "--yes", token=viewer) == "role_required"
    assert c.error("repos", "rm", "admin/mine") == "confirmation_required"
    c.cli("repos", "rm", "admin/mine", "--yes")
    c.cli("repos", "rm", "datasets/Default/faces", "--yes")
    assert c.json("repos", "ls") == []


CARD = b"""---
license: mit
tags: [small, "two words"]
pipeline_tag: text-generation
library_name: transformers
datasets: [ann/data]
---
# A model
"""


def test_cards(own):  # noqa: F811
    """What README.md says of a model is what its page says; what cannot be read is no harm."""
    c, id_ = own, new(own, None)
    good(commit(c, id_, small("README.md", CARD)))
    said = ask(c, f"/api/models/{id_}").json()
    assert (said["pipeline_tag"], said["library_name"]) == ("text-generation", "transformers")
    assert said["cardData"]["tags"] == ["small", "two words"] and said["cardData"]["license"] == "mit"
    assert said["tags"] == ["transformers", "text-generation", "small", "two words", "license:mit", "dataset:ann/data"]
    good(commit(c, id_, small("x", b"1")))
    assert ask(c, f"/api/models/{id_}").json()["cardData"] == said["cardData"], "each commit has it"
    for text in (b"", b"# no metadata", b"---\n---\n", b"---\n- a\n---\n", b"---\na: [\n---\n", b"---\na: &x 1\nb: *x\n---\n", b"---\n\xff\n---\n", b"---\na: 1"):
        good(commit(c, id_, small("README.md", text)))
        said = ask(c, f"/api/models/{id_}").json()
        assert "cardData" not in said and said["tags"] == [], (text, said)
    head = said["sha"]
    assert ask(c, f"/api/models/{id_}/revision/{head[:7]}").json()["sha"] == head
    for rev in (head[:3], head[:7] + "g", "0" * 39):
        assert ask(c, f"/api/models/{id_}/revision/{rev}").code == "RevisionNotFound", rev
    refused(ask(c, "/api/models?filter=small"), 501)


def test_damage(own):  # noqa: F811
    """It is found, the repository is named, and whoever has the file brings it again."""
    c = own
    data, id_ = os.urandom(150_000), new(own, None)
    upload(c, id_, data)
    good(commit(c, id_, large("w.bin", data)))
    good(commit(c, id_, small("x", b"1")))
    path = next(p for p in (c.data / "store").rglob(oid(data)) if "blobs" in p.parts)
    path.chmod(0o644)
    path.write_bytes(data[:-1] + b"?")
    found = json.loads(c.cli("cache", "verify", "-o", "json", code=1).out)
    assert [(f["kind"], f["name"], f["path"]) for f in found] == [("repository", f"models/{id_}", "w.bin")], found
    assert get(c, id_, "w.bin").status == 502 and get(c, id_, "x").body == b"1"
    upload(c, id_, data)  # the server asks for it
    assert get(c, id_, "w.bin").body == data


# --- Xet

UPLOAD = """
    import array, pathlib, random
    folder = pathlib.Path(os.environ["HF_HOME"]) / "up"
    folder.mkdir()
    random.seed(1)
    noise = random.randbytes(3_000_000)
    (folder / "noise.bin").write_bytes(noise)
    (folder / "zeros.bin").write_bytes(bytes(1_000_000))
    (folder / "w.safetensors").write_bytes(array.array("f", [random.gauss(0, 1) for _ in range(200_000)]).tobytes())
    (folder / "t.parquet").write_bytes(b"PAR1")
    rid = api.create_repo("xet").repo_id
    api.upload_folder(folder_path=folder, repo_id=rid)
    (folder / "more.bin").write_bytes(noise[:2_000_000] + bytes(1000) + noise[2_000_000:])
    api.upload_folder(folder_path=folder, repo_id=rid)
    os.environ["HF_HUB_DISABLE_XET"] = "1"
    said([digests(folder), digests(snapshot_download(rid))])"""


def test_xet(own):  # noqa: F811
    """A client with hf_xet sends large files so, and gets them as everybody does."""
    c = own
    sent, got = Client(c.folder, c.url, "2.4", c.token).run(UPLOAD)
    got.pop(".gitattributes")
    assert got == sent and len(sent) == 5
    lfs = {f["path"] for f in ask(c, "/api/models/admin/xet/tree/main?recursive=true").json() if "lfs" in f}
    assert lfs == {"noise.bin", "zeros.bin", "w.safetensors", "t.parquet", "more.bin"}
    xorbs = sum(p.stat().st_size for p in (c.data / "store/blobs").rglob("*") if p.is_file() and p.name not in {*sent.values()})
    assert xorbs < 5 * MB, "what the second upload has of the first is not sent again"
    assert not [p for p in (c.data / "store/tmp").iterdir() if p.name.startswith(("xet-", "xorb-"))]
    good(remove(c, "admin/xet"))
    collect(c)
    assert not blobs(c)


def cas(c, id_, token=None):
    """Where a client is told to send to, and with what."""
    answer = good(ask(c, f"/api/models/{id_}/xet-write-token/main", token=token))
    said = answer.json()
    assert answer.headers["X-Xet-Cas-Url"] == said["casUrl"] and answer.headers["X-Xet-Access-Token"] == said["accessToken"]
    return said["casUrl"], said["accessToken"]


def xet_hash(word):
    return f"{word:064x}"


def test_xorbs_and_shards_that_are_none(own):  # noqa: F811
    c = own
    id_ = new(c, None)
    url, token = cas(c, id_)
    bearer = {"Authorization": f"Bearer {token}"}
    for body in (b"", bytes(100), b"XETBLOB\1", b"\0\5\0\0\0\5\0\0hello" * 3, os.urandom(2000)):
        for path in (f"v1/xorbs/default/{xet_hash(1)}", "v1/shards", "v2/shards", "shards"):
            assert send(c, f"{url}/{path}", body, "POST", bearer).status == 400, (path, body)
    assert files(c, id_) == [] and not [p for p in (c.data / "store/tmp").iterdir() if p.name.startswith(("xet-", "xorb-"))]


def test_whose_xorbs(own):  # noqa: F811
    """A token is for one repository and for those who may write to it."""
    c = own
    id_, other = new(c, None), new(c, None)
    viewer = c.json("tokens", "create", "vic", "--team", "Default", "--role", "viewer")["api_key"]
    stranger = c.json("tokens", "create", "eve", "--team", "Default")["api_key"]
    refused(ask(c, f"/api/models/{id_}/xet-write-token/main", token=viewer), 403)
    refused(ask(c, f"/api/models/{id_}/xet-write-token/main", token=stranger), 403)
    (url, token), (_, theirs) = cas(c, id_), cas(c, other)
    until, _, mac = token.partition(".")
    for bad in ("", "Bearer", f"Bearer {theirs}", f"Bearer {int(until) + 1}.{mac}", f"Bearer {until}.{mac[:-1]}", f"Bearer {c.token}", f"Basic {token}"):
        for path in (f"v1/xorbs/default/{xet_hash(1)}", "v1/shards"):
            assert send(c, f"{url}/{path}", b"", "POST", {"Authorization": bad} if bad else {}).status == 401, bad
    chunk = b"hello"
    body = b"\0" + len(chunk).to_bytes(3, "little") + b"\0" + len(chunk).to_bytes(3, "little") + chunk
    answer = send(c, f"{url}/v1/xorbs/default/{xet_hash(7)}", body, "POST", {"Authorization": f"Bearer {token}"})
    assert answer.status == 400 and b"others than its name says" in answer.body, answer
    assert hashlib.sha256(chunk).hexdigest() not in blobs(c)
