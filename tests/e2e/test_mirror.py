"""The mirror: collectors beside fetches that take long, and a size limit of its own.

Sources are folders, and a hub that can be stopped in the middle of a file (SIGSTOP) for as long as a test needs.
"""
import contextlib
import hashlib
import os
import re
import signal
import subprocess
import sys

import pytest
from conftest import ROOT, Lines, end_process, until
from test_maintenance import ALL, blob, files, forget, models, push, source, sql  # noqa: F401

MB = 1 << 20


@contextlib.contextmanager
def slow_hub(root, rate):
    """A hub that sends so many bytes a second; yields its endpoint and its process."""
    process = subprocess.Popen([sys.executable, ROOT / "tests/mock/faulty.py", "--root", str(root)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        port = re.search(r"port=(\d+)", Lines(process).next() or "")[1]
        yield f"http://127.0.0.1:{port}/f/slow={rate}", process
    finally:
        process.send_signal(signal.SIGCONT)
        end_process(process)


def test_gc_collects_beside_a_fetch_that_is_stuck(models):
    """What the fetch relies on or has begun stays, whatever its age; all else goes."""
    c = models
    hub = c.folder / "hub"
    hub.mkdir()
    shared = os.urandom(400_000)
    (hub / "large.bin").write_bytes(os.urandom(4 * MB))
    for folder in (hub, c.folder / "sources/a"):
        (folder / "shared.bin").write_bytes(shared)
    want = hashlib.sha256((hub / "large.bin").read_bytes() + shared).hexdigest()
    with slow_hub(hub, 2 * MB) as (endpoint, process):
        c.stop()
        c.start(*c.flags, "--hf-endpoint", endpoint, "--allow-source-network", "127.0.0.0/8")
        for name in "ab":
            c.wait(push(c, ["true"], source(c, name)), "TRAINING_JOB_COMPLETED")
            forget(c, source(c, name))
        fetched = push(c, ["cat /w/large.bin /w/shared.bin | sha256sum"], "hf://team/model")
        until(lambda: [p for p in files(c.data / "store/tmp") if p.startswith("sha256-")])
        process.send_signal(signal.SIGSTOP)
        kept = blob(c, hub / "shared.bin")
        assert kept.exists() and c.job(fetched)["current_status"] == "TRAINING_JOB_PENDING"
        until(lambda: not any((c.data / "runs").iterdir()))  # runners hold trees
        gone = c.json("cache", "gc", "--yes", *ALL)
        assert sorted(x["kind"] for x in gone if x["kind"].startswith("weights")) == ["weights", "weights"], gone
        assert sorted(files(c.data / "store/blobs")) == [str(kept.relative_to(c.data / "store/blobs"))]
        assert [p for p in files(c.data / "store/tmp") if p.startswith("sha256-")]
        assert c.job(fetched)["current_status"] == "TRAINING_JOB_PENDING"
        process.send_signal(signal.SIGCONT)
        c.wait(fetched, "TRAINING_JOB_COMPLETED")
    assert c.user_lines(fetched)[-1].split()[0] == want
    c.cli("cache", "verify")


