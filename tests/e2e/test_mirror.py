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
from conftest import DEADLINE_S, ROOT, Lines, end_process, until
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


def store_bytes(c):
    return sum(f.stat().st_size for folder in ("blobs", "tmp") for f in (c.data / "store" / folder).rglob("*") if f.is_file())


def metric(c, name):
    status, text = c.api("GET", "/metrics", raw=True)
    assert status == 200
    return float(re.search(rf"^stoker_{name} (\S+)$", text.decode(), re.M)[1])


@pytest.fixture
def limited(empty_cluster):
    """A mirror of 10 MB, and sources a, b, c of 4 MB each; d has what a has, and 1 MB more."""
    c = empty_cluster
    for name in "abc":
        (c.folder / "sources" / name).mkdir(parents=True)
        (c.folder / "sources" / name / "own.bin").write_bytes(os.urandom(4 * MB))
    (c.folder / "sources/d").mkdir()
    (c.folder / "sources/d/own.bin").write_bytes((c.folder / "sources/a/own.bin").read_bytes())
    (c.folder / "sources/d/more.bin").write_bytes(os.urandom(MB))
    return c.start("--cpus", "4", "--memory", "4Gi", "--allow-file-root", str(c.folder / "sources"), "--mirror-bytes", "10MB",
                   "--node-cache-bytes", "20MB")


def done(c, name):
    return c.wait(push(c, ["cat /w/* | wc -c"], source(c, name)), "TRAINING_JOB_COMPLETED")


def mirrored(c):
    return sorted(w["source"].rsplit("/", 1)[1] for w in c.json("weights", "ls"))


def test_least_recently_used_sources_go(limited):
    """A reuse counts as a use; so does what another source shares with one that goes."""
    c = limited
    done(c, "a")
    done(c, "b")
    done(c, "a")
    assert mirrored(c) == ["a", "b"] and metric(c, "mirror_evicted_sources_total") == 0
    done(c, "c")
    assert mirrored(c) == ["a", "c"] and not blob(c, c.folder / "sources/b/own.bin").exists()
    assert metric(c, "mirror_evicted_sources_total") == 1 and metric(c, "mirror_evicted_bytes_total") == 4 * MB
    assert metric(c, "mirror_budget_bytes") == 10_000_000
    done(c, "d")
    assert mirrored(c) == ["c", "d"] and store_bytes(c) == 9 * MB
    done(c, "a")  # its file is here, by another name: it counts once
    assert mirrored(c) == ["a", "c", "d"] and store_bytes(c) == 9 * MB
    done(c, "b")  # d and a were used since
    assert mirrored(c) == ["a", "b", "d"] and store_bytes(c) == 9 * MB
    c.cli("cache", "verify")


def test_what_jobs_use_is_waited_for(limited):
    """A running job and a waiting one hold their sources; a third waits, and starts when one has ended."""
    c = limited
    running = push(c, [c.hold()], source(c, "a"), compute={"cpu_count": 4})
    c.wait(running, "TRAINING_JOB_RUNNING")
    waiting = push(c, ["wc -c < /w/own.bin"], source(c, "b"), compute={"cpu_count": 4})
    until(lambda: "b" in mirrored(c) and [w for w in c.json("weights", "ls") if w["state"] == "READY" and w["source"].endswith("/b")])
    third = push(c, ["wc -c < /w/own.bin"], source(c, "c"))
    until(lambda: [w for w in c.json("weights", "ls") if w["state"] == "FAILED" and w["source"].endswith("/c")])
    until(lambda: "4.19 MB" in (c.job(third)["reason"] or ""))
    assert c.job(third)["current_status"] == "TRAINING_JOB_PENDING" and store_bytes(c) == 8 * MB
    c.release(running)
    for job in (running, waiting, third):
        c.wait(job, "TRAINING_JOB_COMPLETED")
    assert c.user_lines(third)[-1] == str(4 * MB) and store_bytes(c) <= 10_000_000


def test_what_never_fits_is_refused(limited):
    c = limited
    done(c, "a")
    (c.folder / "sources/large").mkdir()
    os.truncate(os.open(c.folder / "sources/large/w.bin", os.O_CREAT | os.O_WRONLY), 11_000_000)
    job = c.wait(push(c, ["echo never"], source(c, "large")), "TRAINING_JOB_DEPLOY_FAILED")
    assert job["error_id"] == "mirror_too_small" and "11.00 MB" in job["error_message"] and "10.00 MB" in job["error_message"]
    three = [{"source": source(c, n), "mount_location": f"/{n}x"} for n in "abc"]
    job = c.wait(c.push(["echo never"], weights=three), "TRAINING_JOB_DEPLOY_FAILED")
    assert job["error_id"] == "mirror_too_small", job
    assert "a" in mirrored(c), "nothing is evicted in vain"


def test_a_new_revision_takes_the_room_of_the_old(limited):
    """Both are of one source, and do not fit together: the fetch that looks for room does not protect what is older."""
    c = limited
    (c.folder / "sources/big").mkdir()
    for _ in range(2):
        (c.folder / "sources/big/w.bin").write_bytes(os.urandom(6_000_000))
        c.wait(push(c, ["cat /*x/w.bin | wc -c"], source(c, "big")), "TRAINING_JOB_COMPLETED")
        until(lambda: not any((c.data / "runs").iterdir()))
    assert store_bytes(c) <= 10_000_000


def test_half_of_what_each_needs_is_no_deadlock(limited):
    """Two jobs with two sources of 4 MB each, and room for two."""
    c = limited
    jobs = [c.push(["cat /?x/* | wc -c"], compute={"cpu_count": 1},
                   weights=[{"source": source(c, n), "mount_location": f"/{n}x"} for n in names]) for names in ("ab", "cd")]
    for job in jobs:
        c.wait(job, "TRAINING_JOB_COMPLETED")
    assert store_bytes(c) <= 10_000_000


def test_a_smaller_limit_is_reached(limited):
    """What a dry run shows is what goes, and a server that is killed in the middle of it goes on at its next start."""
    c = limited
    for name in "ab":
        done(c, name)
    until(lambda: not any((c.data / "runs").iterdir()))
    sql(c, "UPDATE refs SET used_ms = used_ms + 86400000 WHERE name IN (SELECT id FROM mirrors WHERE source = ?)",
        source(c, "a"))
    c.stop()
    c.flags[c.flags.index("--mirror-bytes") + 1] = "5MB"
    for label in ("evict:row", "gc:manifest"):  # the janitor's first pass
        c.start(env={"STOKER_CRASH_AT": label})
        assert c.process.wait(DEADLINE_S) == 9, f"never reached {label}"
        if label == "evict:row":
            assert store_bytes(c) == 8 * MB
    c.start()
    until(lambda: store_bytes(c) <= 5_000_000)
    assert mirrored(c) == ["a"]
    done(c, "b")
    assert mirrored(c) == ["b"]
    c.cli("cache", "verify")
    c.stop()
    assert c.cli("server", "--data", c.data, "--check", "--log-level", "error").out.endswith(": 0 faults\n")
