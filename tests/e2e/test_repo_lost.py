"""What a disk or an object store has lost of repositories: `stoker cache verify` names it, nothing else goes with it, and who brings it again
mends it, by any client."""
import json
import os

import pytest
from hub_client import Client
from test_object_weights import forget
from test_repos import (
    PART,
    action,
    begin,
    commit,
    get,
    good,
    large,
    new,
    oid,
    refused,
    send,
    small,
    upload,
)

LOST = "missing; nobody else has it: upload it again"


def place(folder, data):
    return folder / "blobs/sha256" / oid(data)[:2] / oid(data)


def flip(path):
    """In a file of its own: a copy elsewhere stays whole."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


def verify(c, code=1):
    return {(x["kind"], x["name"], x["path"]): x["words"] for x in json.loads(c.cli("cache", "verify", "-o", "json", code=code).out)}


def by_client(c, id_, version, home=None, **content):
    client = Client(c.folder, c.url, version, c.token)
    client.home, client.env["HF_HOME"], client.env["HOME"] = [home or client.home] * 3
    for path, data in content.items():
        (c.folder / path).write_bytes(data)
    client.run("".join(f"api.upload_file(path_or_fileobj={str(c.folder / path)!r}, path_in_repo={path!r}, repo_id={id_!r})\n" for path in content) + "said(1)")
    return client.home


def in_parts(c, id_, data):
    at = action(c, id_, data)
    for n, piece in enumerate((data[:PART], data[PART:])):
        good(send(c, at["header"][str(n + 1)], piece))
    good(send(c, at["href"], b"{}", "POST"))


@pytest.mark.parametrize("where", ["folder", "objects"])
def test_lost_and_brought_again(empty_cluster, where):
    c, objects = empty_cluster, empty_cluster.folder / "objects"
    begin(c, *(["--objects", f"dir:{objects}"] if where == "objects" else []))
    store = objects if where == "objects" else c.data / "store"
    id_ = new(c, None)
    flipped, missing, xet, kept = (os.urandom(150_000 + n) for n in range(4))
    parts = os.urandom(PART + 1000)
    little = os.urandom(3000)
    home = by_client(c, id_, "2.4", xet=xet)
    for data in (flipped, missing, kept):
        upload(c, id_, data)
    in_parts(c, id_, parts)
    good(commit(c, id_, large("flipped", flipped), large("missing", missing), large("parts", parts), large("kept", kept), small("little", little)))
    good(commit(c, id_, small("later", b"1")))
    name = f"models/{id_}"
    if where == "objects":  # whoever leads now has none of it in its own folder
        c.stop()
        forget(c, "store")
        c.restart()
    assert verify(c, 0) == {}
    flip(place(store, flipped))
    for data in (missing, parts, xet, little):
        place(store, data).unlink()
    lost = {("repository", name, path): LOST for path in ("missing", "parts", "xet", "little")}
    said = "damaged in the object store: removed" if where == "objects" else "damaged: quarantined"
    assert verify(c) == {("repository", name, "flipped"): f"{said}; nobody else has it: upload it again", **lost}
    assert verify(c) == {("repository", name, "flipped"): LOST, **lost}
    refused(get(c, id_, "flipped"), 502, f"the bytes of flipped in {id_} are gone from the store: upload it again")
    assert [get(c, id_, path).body for path in ("kept", "later")] == [kept, b"1"]
    by_client(c, id_, "2.4", home=home, xet=xet)  # which remembers what it has sent
    by_client(c, id_, "2.4", missing=missing, little=little)
    by_client(c, id_, "0.36", flipped=flipped)
    in_parts(c, id_, parts)
    assert verify(c, 0) == {}
    c.stop()
    if where == "objects":
        forget(c, "store")
    c.restart()
    content = {"flipped": flipped, "missing": missing, "parts": parts, "xet": xet, "kept": kept, "little": little}
    assert {path: get(c, id_, path).body for path in content} == content


def test_the_folder_mends_the_object_store(empty_cluster):
    """Nobody has to bring what this server has itself."""
    c, objects = begin(empty_cluster, "--objects", f"dir:{empty_cluster.folder}/objects"), empty_cluster.folder / "objects"
    id_, flipped, missing = new(c, None), os.urandom(150_000), os.urandom(150_001)
    name = f"models/{id_}"
    for data in (flipped, missing):
        upload(c, id_, data)
    good(commit(c, id_, large("flipped", flipped), large("missing", missing)))
    place(objects, missing).unlink()
    flip(place(objects, flipped))
    for path in (objects / "manifests").iterdir():
        flip(path)
    assert verify(c) == {("repository", name, "flipped"): "damaged in the object store: put there again from the folder",
                         ("repository", name, "missing"): "missing in the object store: put there again from the folder",
                         ("repository", name, "its list of files"): "damaged in the object store: put there again from the folder"}
    assert verify(c, 0) == {}
    c.stop()
    forget(c, "store")
    c.restart()
    assert [get(c, id_, path).body for path in ("flipped", "missing")] == [flipped, missing]


def test_xorbs_of_a_server_that_is_gone(empty_cluster):
    """A client that goes on at the next one sends them again."""
    c = begin(empty_cluster, "--objects", f"dir:{empty_cluster.folder}/objects")
    id_, data = new(c, None), os.urandom(150_000)
    home = by_client(c, id_, "2.4", one=data)
    c.stop()
    forget(c, "store")
    c.restart()
    other = new(c, None)
    by_client(c, id_, "2.4", home=home, two=data + b"more")
    by_client(c, other, "2.4", home=home, one=data)
    assert [get(c, id_, "two").body, get(c, other, "one").body] == [data + b"more", data]
