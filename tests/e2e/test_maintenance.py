"""`stoker cache gc` and `stoker cache verify`: what nothing uses goes, what is damaged is given to nobody.

Jobs read their weights; rows that a crash would have lost are taken out of the database by hand.
"""
import hashlib
import json
import os
import re
import signal
import sqlite3
import subprocess

import pytest
from conftest import DEADLINE_S, PARTS, ROOT, STOKER, until
from test_terminal import Terminal

LABELS = sorted(set(re.findall(r'app_crash_at\("((?:gc|verify):[a-z]+)"\)', "".join(
    p.read_text() for p in (ROOT / "src").rglob("*.c")))))
ALL = ["--older-than", "0s"]


@pytest.fixture
def models(empty_cluster):
    """A server that may mirror the folders a/ and b/, which share a file."""
    c = empty_cluster
    for name in "ab":
        folder = c.folder / "sources" / name
        folder.mkdir(parents=True)
        (folder / "own.bin").write_bytes(name.encode() * 30000)
        (folder / "shared.bin").write_bytes(b"shared" * 5000)
    return c.start("--cpus", "4", "--memory", "4Gi", "--allow-file-root", str(c.folder / "sources"),
                   "--allow-file-root", str(PARTS / "model"))


def source(c, name):
    return f"file://{c.folder}/sources/{name}"


def push(c, commands, where, **kw):
    return c.push(commands, weights=[{"source": where, "mount_location": "/w"}], **kw)


def ended(c, job):
    """Completed, and its runner is gone, too: it holds the weights until then."""
    job = c.wait(job, "TRAINING_JOB_COMPLETED")
    status, reply = c.api("GET", f"/v1/training_projects/{job['training_project']['id']}/jobs/{job['id']}/attempts")
    assert status == 200, reply
    until(lambda: not any((c.data / "runs" / f"{a['id']}-{a['node_rank']}").exists() for a in reply["attempts"]))
    return job


def finished(c, where):
    return ended(c, push(c, ["cat /w/*.bin > /dev/null"], where))


def sql(c, text, *values):
    db = sqlite3.connect(c.data / "stoker.db", timeout=60)
    try:
        with db:
            db.execute(text, values)
    finally:
        db.close()


def forget(c, where):
    """As if the server had died between the manifest and its row."""
    sql(c, "DELETE FROM refs WHERE kind = 'weights' AND name IN (SELECT id FROM mirrors WHERE source = ?)", where)
    sql(c, "DELETE FROM mirrors WHERE source = ?", where)


def files(folder):
    """What is there; os.walk does not mind what goes meanwhile."""
    return sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names)


def stored(c):
    kept = ("store/blobs", "store/manifests", "store/tmp", "node/trees", "objects", "cache")
    return sorted(f"{folder}/{p}" for folder in kept for p in files(c.data / folder))


def blob(c, path):
    hexes = hashlib.sha256(path.read_bytes()).hexdigest()
    return c.data / "store/blobs/sha256" / hexes[:2] / hexes


def flip(path, at=100):
    os.chmod(path, 0o644)
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)
        f.seek(at)
        f.write(bytes([byte[0] ^ 1]))


def leave_things(c):
    """One of each kind of what is collected, beside what is in use; the names of the latter."""
    finished(c, source(c, "a"))
    finished(c, source(c, "b"))
    job = c.push(["echo mine > $BT_PROJECT_CACHE_DIR/mine"], runtime={"cache_config": {"enabled": True}})
    c.wait(job, "TRAINING_JOB_COMPLETED")
    status, upload = c.api("GET", "/v1/blobs/credentials/train")
    assert status == 200
    keep = stored(c)
    forget(c, source(c, "b"))
    (c.data / "objects" / upload["s3_key"]).parent.mkdir(parents=True, exist_ok=True)
    (c.data / "objects" / upload["s3_key"]).write_bytes(b"u" * 700)
    sql(c, "UPDATE uploads SET created_ms = 1000, expires_ms = 2000 WHERE key = ?", upload["s3_key"])
    (c.data / "store/tmp/fetch-0000").write_bytes(b"t" * 90)
    orphan = c.data / "cache/projects/gone123"
    orphan.mkdir()
    (orphan / "file").write_bytes(b"o" * 50)
    b_alone = {str(blob(c, c.folder / "sources/b/own.bin").relative_to(c.data))}
    trees = {p for p in keep if p.startswith("node/trees/") and (c.data / p).stat().st_ino ==
             (c.data / next(iter(b_alone))).stat().st_ino}
    tree = next(iter(trees)).split("/")[2]
    gone = b_alone | {p for p in keep if tree in p}
    return sorted(set(keep) - gone)


def test_gc_shows_and_then_removes_the_same(models):
    c = models
    keep = leave_things(c)
    before = stored(c)
    dry = c.json("cache", "gc", "--dry-run", *ALL)
    assert sorted(x["kind"] for x in dry) == ["node copy", "orphaned cache", "partial fetch", "upload", "weights"]
    size = {x["kind"]: x["bytes"] for x in dry}
    assert size == {"node copy": 0, "orphaned cache": 50, "partial fetch": 90, "upload": 700, "weights": 30000}
    assert "with own.bin" in next(x for x in dry if x["kind"] == "weights")["words"]
    assert stored(c) == before
    table = c.cli("cache", "gc", "--dry-run", *ALL)
    assert "would free 5 things, 30.84 kB" in table.err and "projects/gone123" in table.out, table
    young = c.json("cache", "gc", "--dry-run")  # uploads that expired long ago, and weights without a name, are not young
    assert {x["kind"] for x in young} == {"node copy", "upload", "weights"}

    assert c.error("cache", "gc", *ALL, code=2) == "confirmation_required" and stored(c) == before
    done = c.cli("cache", "gc", "--yes", *ALL, "-o", "json")
    key = lambda x: (x["kind"], x["name"])
    assert sorted(json.loads(done.out), key=key) == sorted(dry, key=key)
    assert "freed 5 things" in done.err, done
    assert stored(c) == keep
    again = c.cli("cache", "gc", "--dry-run", *ALL)
    assert again.out == "" and "nothing to collect" in again.err, again
    assert c.json("cache", "gc", "--dry-run", *ALL) == []
    assert c.cli("cache", "gc", "--dry-run", *ALL, "-o", "csv").out.startswith("KIND,")
    finished(c, source(c, "b"))
    c.stop()
    assert c.cli("server", "--data", c.data, "--check", "--log-level", "error").out.endswith(": 0 faults\n")


def test_gc_asks_on_a_terminal(models):
    c = models
    (c.data / "store/tmp/fetch-0000").write_bytes(b"t" * 90)
    for answer, code in (("n", 130), ("y", 0)):
        shown = Terminal(c, "cache", "gc", *ALL)
        shown.read("Remove 1 thing, 90 B for good? [y/N]")
        assert "partial fetch" in shown.seen and (c.data / "store/tmp/fetch-0000").exists()
        os.write(shown.master, answer.encode() + b"\n")
        assert shown.end() == code, shown.seen
    assert "freed 1 thing, 90 B" in shown.seen and shown.seen.count("fetch-0000") == 1
    assert not (c.data / "store/tmp/fetch-0000").exists()
    shown = Terminal(c, "cache", "gc", *ALL)
    assert shown.end() == 0 and "nothing to collect" in shown.seen and "[y/N]" not in shown.seen


def test_gc_spares_what_jobs_use(models):
    """One runs, one waits: neither needs a row of the mirror to keep its weights."""
    c = models
    before = finished(c, source(c, "b"))
    running = push(c, ["while [ ! -e $BT_PROJECT_CACHE_DIR/go ]; do sleep 0.1; done; sha256sum /w/own.bin"], source(c, "a"),
                   compute={"cpu_count": 4}, runtime={"cache_config": {"enabled": True}})
    c.wait(running, "TRAINING_JOB_RUNNING")
    waiting = json.loads(c.cli("recreate", before["id"], "-o", "json").out)
    c.wait(waiting, "TRAINING_JOB_PENDING")
    for name in "ab":
        forget(c, source(c, name))
    assert not c.json("cache", "gc", "--yes", *ALL)
    (c.data / "cache/projects" / running["training_project"]["id"] / "go").touch()
    for job in (running, waiting):
        ended(c, job)
    assert c.user_lines(running)[-1].split()[0] == hashlib.sha256(b"a" * 30000).hexdigest()
    assert "weights" in {x["kind"] for x in c.json("cache", "gc", "--yes", *ALL)}
    assert not files(c.data / "store/manifests")


def test_only_administrators_of_all_teams(models):
    c = models
    token = c.json("tokens", "create", "m", "--role", "member")["api_key"]
    for command in (["gc", "--dry-run"], ["gc", "--yes"], ["verify"]):
        assert c.error("cache", *command, token=token, code=4) == "role_required"
    c.cli("teams", "create", "t")
    of_team = c.json("tokens", "create", "ta", "--role", "admin", "--team", "t")["api_key"]
    assert c.error("cache", "verify", token=of_team, code=4) == "role_required"
    assert c.api("GET", "/v1/maintenance")[0] == 404


def test_verify_finds_a_flipped_byte_of_a_real_model(models):
    """Named, set aside, and fetched again by the next job, whose bytes are right."""
    c = models
    where, model = f"file://{PARTS}/model", PARTS / "model/model.safetensors"
    want = hashlib.sha256(model.read_bytes()).hexdigest()
    sums = ["sha256sum /w/model.safetensors"]
    first = push(c, sums, where)
    c.wait(first, "TRAINING_JOB_COMPLETED")
    finished(c, source(c, "a"))
    whole = c.cli("cache", "verify")
    assert whole.out == "" and "nothing is damaged" in whole.err, whole

    path = blob(c, model)
    flip(path, 40_000_000)
    found = c.cli("cache", "verify", "-o", "json", code=1)
    row, = json.loads(found.out)
    assert (row["kind"], row["name"], row["path"]) == ("weights", where, "model.safetensors")
    assert row["bytes"] == model.stat().st_size and "damaged" in row["words"], row
    assert "1 damaged" in found.err, found
    assert not path.exists() and not [p for p in files(c.data / "node/trees") if p.endswith("model.safetensors")]
    state = {w["source"]: w for w in c.json("weights", "ls")}
    assert state[where]["state"] == "FAILED" and "model.safetensors was damaged" in state[where]["error"]
    assert state[source(c, "a")]["state"] == "READY"
    c.cli("cache", "verify")  # nothing more

    second = push(c, sums, where)
    c.wait(second, "TRAINING_JOB_COMPLETED")
    assert c.user_lines(second) == c.user_lines(first) and c.user_lines(second)[0].split()[0] == want
    assert hashlib.sha256(path.read_bytes()).hexdigest() == want
    assert {w["state"] for w in c.json("weights", "ls")} == {"READY"}
    aside = c.json("cache", "gc", "--yes", *ALL)
    assert [(x["kind"], x["bytes"]) for x in aside] == [("damaged blob", model.stat().st_size)]


def test_who_has_a_damaged_file_mounted_keeps_it_and_nobody_gets_it(models):
    """It is shared by two sources: both are fetched again, while the job that runs goes on with what it has."""
    c = models
    for name in "ab":
        finished(c, source(c, name))
    held = push(c, ["while [ ! -e $BT_PROJECT_CACHE_DIR/go ]; do sleep 0.1; done; wc -c < /w/shared.bin"], source(c, "a"),
                runtime={"cache_config": {"enabled": True}})
    c.wait(held, "TRAINING_JOB_RUNNING")
    flip(blob(c, c.folder / "sources/a/shared.bin"))
    rows = json.loads(c.cli("cache", "verify", "-o", "json", code=1).out)
    assert sorted((x["name"], x["path"]) for x in rows) == [(source(c, n), "shared.bin") for n in "ab"]
    by = {x["name"]: x["words"] for x in rows}
    assert f"job {held['id']}" in by[source(c, "a")] and held['id'] not in by[source(c, "b")]
    want = hashlib.sha256(b"shared" * 5000).hexdigest()
    for name in "ba":
        job = push(c, ["sha256sum /w/shared.bin"], source(c, name))
        c.wait(job, "TRAINING_JOB_COMPLETED")
        assert c.user_lines(job)[0].split()[0] == want
    (c.data / "cache/projects" / held["training_project"]["id"] / "go").touch()
    ended(c, held)
    assert c.user_lines(held)[-1] == "30000"
    finished(c, source(c, "a"))  # a runner that opens the node's cache sweeps what nobody holds any more
    assert not files(c.data / "node/damaged")


def test_what_the_store_has_lost_is_fetched_for_the_node_too(models):
    """A blob is gone, while the node's tree has a name of what it was: damaged, that is."""
    c = models
    for name in "ab":
        finished(c, source(c, name))
        own = blob(c, c.folder / f"sources/{name}/own.bin")
        flip(own)
        own.unlink()
        if name == "a":  # found by a verification, and else by the job that asks
            row, = json.loads(c.cli("cache", "verify", "-o", "json", code=1).out)
            assert (row["name"], row["path"]) == (source(c, "a"), "own.bin") and "missing" in row["words"], row
        job = push(c, ["sha256sum /w/own.bin"], source(c, name))
        c.wait(job, "TRAINING_JOB_COMPLETED")
        assert c.user_lines(job)[0].split()[0] == hashlib.sha256(name.encode() * 30000).hexdigest()
    c.cli("cache", "verify")


def test_verify_finds_damaged_checkpoints_and_lists(models):
    c = models
    config = {"runtime": {"checkpointing_config": {"enabled": True, "settle": "1s"}}}
    job = c.push(["for n in 1 2; do mkdir $BT_CHECKPOINT_DIR/checkpoint-$n; echo good$n > $BT_CHECKPOINT_DIR/checkpoint-$n/w.txt; done"],
                 **config)
    c.wait(job, "TRAINING_JOB_COMPLETED")
    finished(c, source(c, "a"))
    c.cli("cache", "verify")
    path, = (c.data / "objects").rglob("checkpoint-2/w.txt")
    flip(path, 2)
    manifest, = (c.data / "store/manifests").iterdir()
    flip(manifest, 5)
    rows = {x["kind"]: x for x in json.loads(c.cli("cache", "verify", "-o", "json", code=1).out)}
    assert rows["checkpoint"]["name"] == f"{job['id']}/checkpoint-2", rows
    assert rows["checkpoint"]["path"] == "rank-0/checkpoint-2/w.txt"
    assert rows["weights"]["name"] == source(c, "a")
    assert [k["checkpoint_id"] for k in c.json("checkpoints", "ls", job["id"])] == ["checkpoint-1"]
    assert "checkpoint-2 is damaged" in c.cli("events", job["id"]).out
    load = c.push(["cat $(find $BT_LOAD_CHECKPOINT_DIR -name w.txt)"],
                  runtime={"load_checkpoint_config": {"enabled": True, "checkpoints": [
                      {"typ": "baseten_latest_checkpoint", "job_id": job["id"]}]}})
    c.wait(load, "TRAINING_JOB_COMPLETED")
    assert c.user_lines(load) == ["good1"]
    finished(c, source(c, "a"))
    c.cli("cache", "verify")


@pytest.fixture
def endless(models):
    """Something to read that takes long: a blob of a terabyte, of holes."""
    path = models.data / "store/blobs/sha256/00" / ("0" * 64)
    path.parent.mkdir(exist_ok=True)
    with open(path, "wb") as f:
        f.truncate(1 << 40)
    yield models
    path.unlink(missing_ok=True)


def begin_verify(c):
    """The client, and the server reading: what it says arrives by files, which cannot block."""
    err = open(c.folder / f"verify-{os.urandom(4).hex()}.err", "w+")
    process = subprocess.Popen([STOKER, "cache", "verify"], stdout=err, stderr=err, env=c.cli_environment())

    def said():
        err.seek(0)
        return err.read()

    return process, said


def maintenance(c):
    status, body = c.api("GET", "/v1/maintenance")
    return body["maintenance"] if status == 200 else {"state": None}


def test_interrupt_stops_it_and_leaves_anothers(endless):
    c = endless
    mine, said = begin_verify(c)
    until(lambda: maintenance(c)["state"] == "RUNNING" and maintenance(c)["bytes_done"] > 0)
    view = maintenance(c)
    assert view["kind"] == "verify" and view["bytes_total"] >= 1 << 40 and view["by"], view
    until(lambda: "of 1.10 TB" in said())  # progress
    assert c.error("cache", "gc", "--dry-run", code=5) == "conflict"
    other, said_other = begin_verify(c)
    until(lambda: "Ctrl-C" in said_other())
    other.send_signal(signal.SIGINT)
    assert other.wait(DEADLINE_S) == 130 and "detached" in said_other(), said_other()
    assert maintenance(c)["state"] == "RUNNING"
    mine.send_signal(signal.SIGINT)
    assert mine.wait(DEADLINE_S) == 130 and maintenance(c)["state"] == "STOPPED", said()
    assert maintenance(c)["state"] == "STOPPED"


def test_a_server_that_is_stopped_stops_it(endless):
    c = endless
    client, said = begin_verify(c)
    until(lambda: maintenance(c).get("bytes_done", 0) > 0)
    client.send_signal(signal.SIGSTOP)  # it sees neither the end nor the outage
    c.stop()
    (c.data / "store/blobs/sha256/00" / ("0" * 64)).unlink()
    c.restart()
    client.send_signal(signal.SIGCONT)
    assert client.wait(DEADLINE_S) == 1, said()
    c.cli("cache", "verify")


def test_a_server_that_is_killed_loses_nothing(endless):
    c = endless
    finished(c, source(c, "a"))
    client, said = begin_verify(c)
    until(lambda: maintenance(c).get("bytes_done", 0) > 0)
    c.kill()
    (c.data / "store/blobs/sha256/00" / ("0" * 64)).unlink()
    c.restart()
    assert client.wait(DEADLINE_S) == 1, said()
    c.cli("cache", "verify")
    finished(c, source(c, "a"))


@pytest.mark.parametrize("label", LABELS)
def test_killed_in_the_middle_the_next_one_ends_it(models, label):
    c = models
    c.stop()
    c.start(env={"STOKER_CRASH_AT": label})  # before: a janitor that begins collects uploads, too
    if label.startswith("gc:"):
        keep, command, code = leave_things(c), ["gc", "--yes", *ALL], 0
    else:
        for name in "ab":
            finished(c, source(c, name))
        flip(blob(c, c.folder / "sources/a/shared.bin"))
        keep, command, code = None, ["verify"], 1
    client = subprocess.Popen([STOKER, "cache", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env=c.cli_environment())
    try:
        assert c.process.wait(DEADLINE_S) == 9, f"never reached {label}"
    finally:
        client.kill()
        client.wait(DEADLINE_S)
    c.start()
    if label == "verify:after":  # jobs come before the next verification
        check_shared(c)
        code = 0
    c.cli("cache", *command, code=code)
    if keep:
        assert stored(c) == keep
        assert not c.json("cache", "gc", "--dry-run", *ALL)
    check_shared(c)
    c.cli("cache", "verify")
    c.stop()
    assert c.cli("server", "--data", c.data, "--check", "--log-level", "error").out.endswith(": 0 faults\n")


def check_shared(c):
    """Both have the right bytes, whatever was damaged."""
    for name in "ab":
        job = push(c, ["sha256sum /w/shared.bin"], source(c, name))
        c.wait(job, "TRAINING_JOB_COMPLETED")
        assert c.user_lines(job)[0].split()[0] == hashlib.sha256(b"shared" * 5000).hexdigest()
