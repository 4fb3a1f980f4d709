"""A mirror of a Hub with `--objects s3://`: clients get files of the bucket, and another machine has all of them."""
import contextlib
import os
import sqlite3

import pytest
from conftest import until
from hub import hub_server
from hub_client import Client
from s3 import flags, minio, store  # noqa: F401
from test_object_weights import blob_keys, forget

MIB = 1 << 20


def named(cluster):
    """Files that the repository's ref has."""
    with contextlib.closing(sqlite3.connect(cluster.data / "stoker.db", timeout=60)) as db:
        return sum(files for (files,) in db.execute("SELECT files FROM refs WHERE kind = 'hub'"))


@pytest.mark.parametrize("version", ["0.20", "2.4"])
def test_another_machine_has_what_was_fetched(empty_cluster, store, version):
    c = empty_cluster
    data = {"config.json": b"{}", "w.bin": os.urandom(3 * MIB), "empty": b""}
    with hub_server() as hub:
        hub.repo("team/model", data)
        c.start(*flags(c, store), "--hub-upstream", hub.url, "--allow-source-network", "127.0.0.0/8")
        script = "said({p: digest(hf_hub_download('team/model', p)) for p in ('config.json', 'w.bin', 'empty')})"
        first = Client(c.folder, c.url, version, c.token).run(script)
        until(lambda: len(blob_keys(store)) == 3)  # both files, and the list of them; an empty one needs none
        until(lambda: named(c) == 2)
        c.stop()
    # the Hub is gone, and so is all that this machine had
    forget(c, "store")
    c.restart()
    assert Client(c.folder, c.url, version, c.token).run(script) == first
    assert not any((c.data / "store/blobs").rglob("?" * 64)), "the bytes did not pass the server"
