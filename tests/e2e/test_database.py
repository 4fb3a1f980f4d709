"""The rows in a PostgreSQL: a real one, that is stopped, killed, frozen and full of somebody else's things."""
import base64
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import threading
import time

import pytest
from conftest import CALL_S, DEADLINE_S, STOKER, until
from postgres import PASSWORD, server, target  # noqa: F401

LOAD_S = int(os.environ.get("STOKER_TEST_LOAD_S", "6"))


@pytest.fixture
def database(server, target):  # noqa: F811
    """(server, URL): a database that is new."""
    return server, target


@pytest.fixture
def pg(empty_cluster, database):
    empty_cluster.pg, empty_cluster.database = database
    return empty_cluster.start("--database", database[1], "--cpus", "4", "--memory", "4Gi", env=database[0].env)


def again(cluster, **env):
    """Its next start."""
    return cluster.start(env={**cluster.pg.env, **env})


def refused(cluster, url, env=None, names=""):
    """The id of the error of a server that cannot start, whose message has `names` in it."""
    done = subprocess.run([STOKER, "server", "--data", cluster.folder / "other", "--listen", "127.0.0.1:0", "--database", url],
                          env=cluster.environment(STOKER_ERRORS="json", **(env or {})), capture_output=True, text=True, timeout=CALL_S)
    assert done.returncode != 0, done
    assert PASSWORD not in done.stdout + done.stderr
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert names in error["message"], error
    return error["id"]


def test_a_life(pg):
    """Push, log, checkpoint, cache, secret; all of it is there after kill -9 of the server."""
    pg.cli("secrets", "set", "key", stdin="a-value-of-mine")
    command = "echo hello $SECRET; mkdir -p $BT_CHECKPOINT_DIR/checkpoint-1; echo x > $BT_CHECKPOINT_DIR/checkpoint-1/a.txt; " \
              "touch $BT_CHECKPOINT_DIR/checkpoint-1/done"
    job = pg.push([command], runtime={"checkpointing_config": {"enabled": True, "marker": "done"}, "cache_config": {"enabled": True},
                                      "environment_variables": {"SECRET": {"name": "key"}}})
    pg.wait(job, "TRAINING_JOB_COMPLETED")
    assert "hello" in pg.logs(job)
    for start in range(2):
        assert [r["checkpoint_id"] for r in pg.json("checkpoints", "ls", job["id"])] == ["checkpoint-1"]
        assert [s["name"] for s in pg.json("secrets", "ls")] == ["key"]
        assert [e["kind"] for e in pg.json("events", job["id"])].count("state") >= 4
        assert pg.json("ps", "-a")[0]["id"] == job["id"]
        if start == 0:
            pg.kill()
            again(pg)
    assert not (pg.data / "stoker.db").exists()
    assert pg.cli("server", "--data", pg.data, "--database", pg.database, "--check", env=pg.pg.env, code=None).code != 0  # it is in use
    pg.stop()
    assert pg.cli("server", "--data", pg.data, "--database", pg.database, "--check", "--log-level", "error", env=pg.pg.env).out.endswith(": 0 faults\n")
    again(pg)


@pytest.mark.parametrize("how", ["fast", "immediate", "kill"])
def test_an_outage_pauses(pg, how):
    """The database goes away while a job runs: the job goes on, who asks is told, and nothing is lost."""
    job = pg.push([f"echo before; {pg.hold()}; echo after"])
    until(lambda: "before" in pg.logs(job))
    waiting = pg.push([pg.hold("second")], compute={"cpu_count": 4, "memory": "256Mi"})
    if how == "kill":
        pg.pg.kill()
    else:
        pg.pg.stop(how)
    status, said = pg.api("GET", "/v1/training_projects")
    assert (status, said["error"]["id"]) == (503, "database_unavailable")
    assert how != "kill" or pg.error("ps") == "database_unavailable"
    assert pg.process.poll() is None
    pg.pg.start()
    until(lambda: pg.cli("ps", code=None).code == 0)
    pg.release(job)
    pg.wait(job, "TRAINING_JOB_COMPLETED")
    assert "after" in pg.logs(job)
    pg.wait(waiting, "TRAINING_JOB_RUNNING")
    pg.release(waiting, "second")
    pg.wait(waiting, "TRAINING_JOB_COMPLETED")
    assert len(pg.json("ps", "-a")) == 2


def test_a_job_ends_while_the_database_is_away(pg):
    job = pg.push([f"echo up; {pg.hold()}; echo ends"], runtime={"checkpointing_config": {"enabled": True}})
    until(lambda: "up" in pg.user_lines(job))
    pg.release(job)  # which takes a tenth of a second to be seen
    pg.pg.kill()
    until(lambda: list(pg.data.glob("runs/*/exit.json")))
    assert pg.api("GET", "/v1/training_projects")[0] == 503
    pg.pg.start()
    pg.wait(job, "TRAINING_JOB_COMPLETED")
    assert "ends" in pg.user_lines(job)


def metrics(pg):
    status, text = pg.api("GET", "/metrics", raw=True)
    assert status == 200, text
    return {k: float(v) for k, v in re.findall(r"^(stoker_database_\w+) (\S+)$", text.decode(), re.M)}


def test_an_outage_is_named(pg):
    """In /healthz, /metrics, doctor, ps while it lasts; afterwards in the events of the jobs that ran through it."""
    job = pg.push([pg.hold()])
    pg.wait(job, "TRAINING_JOB_RUNNING")
    over = pg.push(["true"])
    pg.wait(over, "TRAINING_JOB_COMPLETED")
    assert metrics(pg) == {"stoker_database_up": 1, "stoker_database_away_seconds": 0, "stoker_database_outages_total": 0,
                           "stoker_database_outage_milliseconds_total": 0}
    assert pg.api("GET", "/healthz", token="") == (200, {"status": "ok", "role": "leader", "database": "ok", "objects": "ok"})
    member = json.loads(pg.cli("tokens", "create", "one", "--role", "member", "-o", "json").out)["api_key"]
    assert pg.api("GET", "/v1/status", token=member)[0] == 200
    gone = json.loads(pg.cli("tokens", "create", "two", "--role", "member", "-o", "json").out)
    assert pg.api("GET", "/v1/status", token=gone["api_key"])[0] == 200
    pg.cli("tokens", "rm", gone["id"], "--yes")
    assert pg.api("GET", "/v1/status", token=member)[0] == pg.api("GET", "/v1/status")[0] == 200
    pg.pg.kill()
    until(lambda: pg.api("GET", "/healthz", token="")[1]["database"] == "away")
    assert metrics(pg)["stoker_database_up"] == 0
    assert pg.api("GET", "/v1/status", token=member)[1]["database_away_ms"] > 0  # who was known is still known
    assert pg.api("GET", "/v1/status", token=gone["api_key"])[0] in (401, 503)  # who was not is not let in
    assert pg.api("GET", "/v1/status", token="stoker_" + "0" * 64)[0] == 503
    findings = json.loads(pg.cli("doctor", "-o", "json", code=1).out)
    assert [f["verdict"] for f in findings if f["id"] == "database_unavailable" and f["check"] == "database"] == ["fail"]
    said = pg.refusal("ps", code=1)["error"]
    assert said["id"] == "database_unavailable" and said["message"].startswith(f"the database of {pg.url} does not answer: "), said
    assert "`stoker doctor`" in said["message"], said
    pg.pg.start()
    until(lambda: pg.cli("ps", code=None).code == 0)
    until(lambda: "database" in [e["kind"] for e in pg.json("events", job["id"])])
    now = metrics(pg)
    assert now["stoker_database_up"] == 1 and now["stoker_database_outages_total"] >= 1 and now["stoker_database_outage_milliseconds_total"] >= 1000
    assert "database" not in [e["kind"] for e in pg.json("events", over["id"])]
    pg.release(job)
    pg.wait(job, "TRAINING_JOB_COMPLETED")


def test_a_full_database_is_named(pg):
    """It answers, and most writes fail: that is said everywhere until there is room again, and then all goes on."""
    name = pg.database.rpartition("/")[2]
    ends, job = pg.push([pg.hold("one")]), pg.push([pg.hold("two")])
    for j in (ends, job):
        pg.wait(j, "TRAINING_JOB_RUNNING")
    grow = ("projects", "uploads", "events", "kv")
    pg.pg.sql("CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full'; END $$; "
              + "".join(f"CREATE TRIGGER no_room BEFORE INSERT ON {t} FOR EACH ROW EXECUTE FUNCTION no_room();" for t in grow), name)
    assert pg.error("push", pg.job_folder(["true"], project="other") / "train.yaml") == "no_space"
    assert pg.api("GET", "/healthz", token="")[1]["database"] == "away"
    assert metrics(pg)["stoker_database_up"] == 0
    findings = json.loads(pg.cli("doctor", "-o", "json", code=1).out)
    assert [f["verdict"] for f in findings if f["check"] == "database"] == ["fail"]
    assert {j["id"] for j in pg.json("ps")} == {ends["id"], job["id"]}  # what only reads goes on
    pg.release(ends, "one")
    time.sleep(3)  # it is asked again, and again
    assert pg.api("GET", "/healthz", token="")[1]["database"] == "away" and "the disk of the database is full" in pg.log.read_text()
    pg.pg.sql("".join(f"DROP TRIGGER no_room ON {t};" for t in grow), name)
    until(lambda: pg.api("GET", "/healthz", token="")[1]["database"] == "ok")
    pg.wait(ends, "TRAINING_JOB_COMPLETED")
    until(lambda: "database" in [e["kind"] for e in pg.json("events", job["id"])])
    pg.release(job, "two")
    pg.wait(job, "TRAINING_JOB_COMPLETED")
    assert pg.pg.sql("SELECT count(*) FROM kv WHERE key = 'room'", name) == "0"


def test_a_database_that_freezes(pg):
    """It takes what is sent and says nothing: every question ends, and once it goes on all is as before."""
    job = pg.push([pg.hold()])
    pg.wait(job, "TRAINING_JOB_RUNNING")
    pg.pg.signal(signal.SIGSTOP)
    try:
        status, said = pg.api("GET", "/v1/training_projects")
        assert (status, said["error"]["id"]) == (503, "database_unavailable")
    finally:
        pg.pg.signal(signal.SIGCONT)
    until(lambda: pg.cli("ps", code=None).code == 0)
    pg.release(job)
    pg.wait(job, "TRAINING_JOB_COMPLETED")


def test_one_server_at_a_time(pg):
    assert refused(pg, pg.database, pg.pg.env) == "database_in_use"
    job = pg.push(["true"])
    pg.wait(job, "TRAINING_JOB_COMPLETED")
    # another server writes: this one ends by itself, and its sessions need not be taken away for it
    pg.pg.sql("UPDATE stoker_schema SET leader = 'another'", pg.database.rpartition("/")[2])
    assert pg.process.wait(DEADLINE_S) != 0
    assert "another Stoker server leads now" in pg.log.read_text()
    again(pg)


def test_a_frozen_leader_wakes_up(pg):
    """Another server has taken over meanwhile: the first changes nothing, ends nothing, and ends itself."""
    name = pg.database.rpartition("/")[2]
    job = pg.push([pg.hold()])
    pg.wait(job, "TRAINING_JOB_RUNNING")
    runner = [p for p in pg.processes() if " runner " in p]
    pg.process.send_signal(signal.SIGSTOP)
    until(lambda: {p.read_text().rpartition(")")[2].split()[0] for p in pathlib.Path(f"/proc/{pg.process.pid}/task").glob("*/stat")} == {"T"})
    asked = []

    def ask():
        with contextlib.suppress(OSError):  # it ends without an answer
            asked.append(pg.api("POST", f"/v1/training_projects/{job['training_project']['id']}/jobs/{job['id']}/stop")[0])

    waits = threading.Thread(target=ask)  # its request is there when it wakes up
    waits.start()
    time.sleep(1)
    pg.pg.sql("UPDATE stoker_schema SET leader = 'another'; SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
              "WHERE datname = current_database() AND pid <> pg_backend_pid()", name)
    rows = "SELECT * FROM jobs ORDER BY id; SELECT * FROM attempts ORDER BY id; SELECT * FROM events ORDER BY seq"
    before = pg.pg.sql(rows, name)
    pg.process.send_signal(signal.SIGCONT)
    assert pg.process.wait(DEADLINE_S) != 0
    waits.join()
    assert not [status for status in asked if status < 300]
    assert pg.pg.sql(rows, name) == before
    assert runner and [p for p in pg.processes() if " runner " in p] == runner
    again(pg)
    pg.release(job)
    pg.wait(job, "TRAINING_JOB_COMPLETED")


def test_the_key_belongs_to_the_database(pg):
    other = pg.folder / "other"
    pg.stop()
    assert refused(pg, pg.database, pg.pg.env) == "master_key_missing"
    assert not (other / "master.key").exists()  # a new key would open none of its secrets
    (other / "master.key").write_text(base64.b64encode(bytes(32)).decode() + "\n")
    (other / "master.key").chmod(0o600)
    assert refused(pg, pg.database, pg.pg.env, names=str(other / "master.key")) == "master_key_wrong"
    again(pg)


def test_bad_databases(empty_cluster, database):
    server, url = database
    name = url.rpartition("/")[2]
    env = server.env
    assert refused(empty_cluster, url.replace("stoker@", f"stoker:not{PASSWORD}@"), names="PGPASSFILE") == "database_unavailable"
    assert refused(empty_cluster, url + "x", env, names="createdb") == "database_unavailable"
    assert refused(empty_cluster, f"postgresql://stoker@127.0.0.1:1/{name}", env, names="start PostgreSQL there") == "database_unavailable"
    both = url.replace("stoker@127.0.0.1:", f"stoker:not{PASSWORD}@127.0.0.1:1,127.0.0.1:")  # each host is named
    c = empty_cluster
    done = subprocess.run([STOKER, "server", "--data", c.folder / "other", "--database", both], env=c.environment(), capture_output=True, text=True, timeout=CALL_S)
    assert "port 1 failed: Connection refused; connection to" in done.stderr and "password authentication failed" in done.stderr, done
    assert refused(empty_cluster, f"mysql://me:{PASSWORD}@host/x") == "invalid"
    for odd in (f"%{PASSWORD}", f"{PASSWORD}/x", f"x@{PASSWORD}"):  # libpq would quote it
        assert refused(empty_cluster, url.replace("stoker@", f"stoker:{odd}@")) == "invalid"
    assert refused(empty_cluster, url + "?options=-csearch_path%3Dnothere", env) == "not_found"
    server.sql(f"CREATE DATABASE {name}latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    assert refused(empty_cluster, server.url(f"{name}latin"), env) == "unsupported"
    server.sql("CREATE ROLE reader LOGIN PASSWORD 'x'", name)
    server.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC", name)
    assert refused(empty_cluster, url.replace("stoker@", "reader:x@")) == "denied"
    server.sql("CREATE TABLE stoker_schema (one INTEGER PRIMARY KEY, version BIGINT NOT NULL, leader TEXT); "
               "INSERT INTO stoker_schema VALUES (1, 9999)", name)
    assert refused(empty_cluster, url, env) == "database_newer"
    server.sql("UPDATE stoker_schema SET version = 0; CREATE TABLE jobs (mine INTEGER)", name)
    assert refused(empty_cluster, url, env) == "conflict"
    assert server.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", name) == "3"  # nothing half-done
    # a password in the URL works, and is told off
    server.sql("DROP TABLE jobs", name)
    empty_cluster.start("--database", url.replace("stoker@", f"stoker:{PASSWORD}@"))
    log = empty_cluster.log.read_text()
    assert "PGPASSFILE" in log and PASSWORD not in log


def sockets(cluster):
    there = 0
    for fd in pathlib.Path(f"/proc/{cluster.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            there += os.readlink(fd).startswith("socket:")
    return there


def test_sessions_are_taken_away_under_load(pg):
    """Any of its sessions, at any moment: what was accepted is there and runs once, and the server goes on."""
    name = pg.database.rpartition("/")[2]
    folder = pg.job_folder(["echo ran once"], project="load", compute={"cpu_count": 1, "memory": "64Mi"})
    pg.wait(json.loads(pg.cli("push", folder / "train.yaml", "-o", "json").out), "TRAINING_JOB_COMPLETED")
    before, over = sockets(pg), threading.Event()
    accepted, asked, odd = [], set(), []

    def user(me):
        rng = random.Random(me)
        while not over.is_set():
            done = pg.cli("push", folder / "train.yaml", "-o", "json", code=None)
            if done.code == 0:
                accepted.append(json.loads(done.out))
                if rng.random() < 0.3:
                    asked.add(accepted[-1]["id"])
                    pg.cli("stop", accepted[-1]["id"], code=None)
            elif not re.search("database|conflict|reached|unavailable", done.err):
                odd.append(done.err)

    users = [threading.Thread(target=user, args=(i,)) for i in range(3)]
    for u in users:
        u.start()
    rng, until_s = random.Random(7), time.monotonic() + LOAD_S
    try:
        while time.monotonic() < until_s:
            pg.pg.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'stoker' AND random() < 0.5", name)
            time.sleep(rng.uniform(0, 0.5))
    finally:
        over.set()
        for u in users:
            u.join()
    assert pg.process.poll() is None and not odd and len(accepted) > LOAD_S / 10, (odd, len(accepted))
    until(lambda: pg.cli("ps", code=None).code == 0)
    for job in accepted:
        last = pg.wait(job)
        assert last["current_status"] == "TRAINING_JOB_COMPLETED" or job["id"] in asked, last
        runs = sum(line.endswith("ran once") for line in pg.user_lines(job))
        assert runs == 1 or (runs == 0 and job["id"] in asked), pg.logs(job)
    listed = [j["id"] for j in pg.json("ps", "-a", "--limit", "5000")]
    assert len(listed) == len(set(listed)) and {j["id"] for j in accepted} <= set(listed)
    assert int(pg.pg.sql("SELECT max(n) FROM (SELECT count(*) AS n FROM attempts GROUP BY job_id) AS x", name)) == 1
    until(lambda: sockets(pg) <= before + 2)  # logs stay open for a while
    pg.kill()
    again(pg)
    assert len(pg.json("ps", "-a", "--limit", "5000")) == len(listed)


def test_names_that_are_not_utf8(pg):
    """PostgreSQL stores no text that is not UTF-8: such bytes are replaced, and the job does not fail by them."""
    job = pg.push(["printf 'a\\377b' >&2; mkdir $BT_CHECKPOINT_DIR/$(printf 'n\\303\\244me'); exit 3"],
                  runtime={"checkpointing_config": {"enabled": True}})
    pg.wait(job, "TRAINING_JOB_FAILED", deadline=DEADLINE_S)
