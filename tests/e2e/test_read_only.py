"""A database that may be read but not written: by a setting, as a hot standby, on a disk that was mounted again."""
import contextlib
import os
import subprocess
import time

import pytest
from conftest import CALL_S, STOKER, until
from postgres import server, target  # noqa: F401
from test_server import server as refused
from test_standby import Pair, role


@pytest.fixture
def pg(empty_cluster, server, target):  # noqa: F811
    empty_cluster.pg, empty_cluster.database = server, target
    return empty_cluster


def set_read_only(c, on):
    name = c.database.rpartition("/")[2]
    c.pg.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = {'on' if on else 'off'}")
    c.pg.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")  # a setting is for new sessions


def start(c):
    return c.start("--database", c.database, "--cpus", "4", "--memory", "4Gi", env=c.pg.env)


def test_a_database_that_is_read_only_at_the_start(pg):
    set_read_only(pg, True)
    _, error, words = refused(pg, "--database", pg.database, env=pg.pg.env)
    assert error == "database_unavailable" and NAMED in words and f"127.0.0.1:{pg.pg.port}" in words, words
    assert pg.pg.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", pg.database.rpartition("/")[2]) == "0"
    assert not (pg.data / "master.key").exists() and not (pg.data / "admin-token").exists()
    set_read_only(pg, False)
    start(pg)
    pg.wait(pg.push(["true"]), "TRAINING_JOB_COMPLETED")
    pg.stop()
    set_read_only(pg, True)
    _, error, words = refused(pg, "--database", pg.database, env=pg.pg.env)
    assert error == "database_unavailable" and NAMED in words and f"127.0.0.1:{pg.pg.port}" in words, words
    set_read_only(pg, False)
    start(pg)


def demote(c):
    """The primary is gone, and what answers at its address is a hot standby that nobody has promoted yet."""
    c.pg.stop("immediate")
    (c.pg.data / "standby.signal").touch()
    c.pg.start()
    assert c.pg.sql("SELECT pg_is_in_recovery()") == "t"


def promote(c):
    assert c.pg.sql("SELECT pg_promote()") == "t"


def words_of(cluster, part):
    return [line for line in cluster.log.read_text().splitlines() if part in line]


NAMED = "is read-only: it is a replica, or default_transaction_read_only is on there"


def test_a_database_that_becomes_read_only(pg):
    """By a setting, for sessions that begin then: none of them is kept when it is turned off again."""
    start(pg)
    job = pg.push([pg.hold()])
    pg.wait(job, "TRAINING_JOB_RUNNING")
    set_read_only(pg, True)
    refusal = until(lambda: [r for r in [pg.refusal("push", pg.job_folder(["true"]) / "train.yaml")["error"]] if NAMED in r["message"]])[0]
    assert refusal["id"] == "database_unavailable", refusal
    until(lambda: pg.api("GET", "/healthz", token="")[1]["database"] == "away")
    pg.pg.sql(f"ALTER DATABASE {pg.database.rpartition('/')[2]} RESET default_transaction_read_only")
    until(lambda: pg.api("GET", "/healthz", token="")[1]["database"] == "ok")
    beats = pg.pg.sql("SELECT beat FROM stoker_beat", pg.database.rpartition("/")[2])
    until(lambda: pg.pg.sql("SELECT beat FROM stoker_beat", pg.database.rpartition("/")[2]) != beats)
    pg.wait(pg.push(["true"]), "TRAINING_JOB_COMPLETED")
    pg.release(job)
    pg.wait(job, "TRAINING_JOB_COMPLETED")
    assert any(e["kind"] == "database" for e in pg.json("events", job["id"]))


def test_a_database_that_becomes_a_replica(pg):
    """What runs goes on, who writes is told, nothing is half-done; once it is promoted all goes on by itself."""
    start(pg)
    job = pg.push([f"echo up; {pg.hold()}; echo over"])
    until(lambda: "up" in pg.user_lines(job))
    demote(pg)
    try:
        refusal = until(lambda: [r for r in [pg.refusal("push", pg.job_folder(["true"]) / "train.yaml")["error"]] if NAMED in r["message"]])[0]
        assert refusal["id"] == "database_unavailable" and f"127.0.0.1:{pg.pg.port}" in refusal["message"]
        until(lambda: pg.api("GET", "/healthz", token="")[1]["database"] == "away")
        assert pg.process.poll() is None
        pg.release(job)
        until(lambda: list(pg.data.glob("runs/*/exit.json")))
        assert refused(pg, "--database", pg.database, env=pg.pg.env, data=pg.folder / "other")[1] in ("database_in_use", "database_unavailable")
    finally:
        promote(pg)
    pg.wait(job, "TRAINING_JOB_COMPLETED")
    assert pg.user_lines(job) == ["up", "over"]
    until(lambda: pg.api("GET", "/healthz", token="")[1]["database"] == "ok")
    pg.wait(pg.push(["true"]), "TRAINING_JOB_COMPLETED")
    assert len(pg.json("ps", "-a")) == 2  # what was refused left nothing


def test_a_replica_at_the_start(pg):
    start(pg).stop()
    demote(pg)
    try:
        code, error, words = refused(pg, "--database", pg.database, env=pg.pg.env)
        assert error == "database_unavailable" and NAMED in words, words
    finally:
        promote(pg)
    start(pg)


def test_a_pair_on_a_replica(pg):
    """Nobody can lead, and nobody ends over it: once it is promoted, one of the two leads."""
    with contextlib.ExitStack() as stack:
        pair = Pair(pg.pg, pg.database, pg, stack)
        pg.start(*pair.flags, env=pg.pg.env)
        other = pair.standby()
        demote(pg)
        try:
            until(lambda: words_of(other, "this server cannot"))
            time.sleep(12)  # it tries every five seconds
            assert pg.process.poll() is None and other.process.poll() is None
            assert role(other) == "standby"
            assert len(words_of(other, "taking over")) == 1
            said = words_of(other, "this server cannot")
            assert len(said) == 1 and NAMED in said[0], said
        finally:
            promote(pg)
        until(lambda: sorted(filter(None, map(role, (pg, other)))) in (["leader", "standby"], ["leader"]))
        leader = until(lambda: [c for c in (pg, other) if role(c) == "leader" and c.cli("ps", code=None).code == 0])[0]
        leader.wait(leader.push(["true"]), "TRAINING_JOB_COMPLETED")


def mount(*args):
    subprocess.run(["mount", *args], check=True, timeout=CALL_S)


@pytest.fixture
def disk(empty_cluster):
    """A file system that can be made read-only while nobody has a file of it open."""
    at = empty_cluster.folder / "disk"
    at.mkdir()
    mount("-t", "tmpfs", "-o", "size=600m", "none", at)
    yield at
    empty_cluster.stop()
    until(lambda: not empty_cluster.processes())
    subprocess.run(["umount", at], check=True, timeout=CALL_S)


def test_a_disk_that_is_read_only(empty_cluster, disk):
    """The data folder's, and that of a database elsewhere: said with the way back, and nothing is made."""
    c = empty_cluster
    c.data = disk / "data"
    c.start("--cpus", "4", "--memory", "4Gi")
    job = c.push(["true"])
    c.wait(job, "TRAINING_JOB_COMPLETED")
    c.stop()
    elsewhere, there, new = c.folder / "elsewhere", disk / "rows.db", disk / "new.db"
    subprocess.run([STOKER, "server", "--move-database", f"sqlite:{c.data}/stoker.db", f"sqlite:{there}"], check=True, capture_output=True,
                   env=c.environment(), timeout=CALL_S)
    mount("-o", "remount,ro", disk)
    try:
        for args, data, named in [([], c.data, c.data), (["--database", f"sqlite:{there}"], elsewhere, there), (["--database", f"sqlite:{new}"], elsewhere, disk)]:
            _, error, words = refused(c, *args, data=data)
            assert error == "denied" and f"{named} is on a file system that is read-only" in words and "remount,rw" in words, words
        assert not (elsewhere / "master.key").exists() and not (elsewhere / "admin-token").exists()
    finally:
        mount("-o", "remount,rw", disk)
    c.start("--cpus", "4", "--memory", "4Gi", "--database", f"sqlite:{there}")
    assert [j["id"] for j in c.json("ps", "-a")] == [job["id"]]
    c.wait(c.push(["true"]), "TRAINING_JOB_COMPLETED")


def test_a_folder_that_is_not_writable(empty_cluster):
    """SQLite writes its log beside the rows."""
    c = empty_cluster
    folder = c.folder / "rows"
    _, error, words = refused(c, "--database", f"sqlite:{folder}/x.db")
    assert error == "not_found" and f"{folder} does not exist" in words, words
    folder.mkdir(0o555)
    plain = ["setpriv", "--bounding-set", "-dac_override,-fowner"] if os.geteuid() == 0 else []
    if plain:
        os.chown(folder, 65534, 65534)
    _, error, words = refused(c, "--database", f"sqlite:{folder}/x.db", before=plain)
    assert error == "denied" and f"{folder} is not writable by this user" in words and "chown" in words, words
    assert not (c.data / "master.key").exists() and not list(folder.iterdir())
