"""`stoker server --move-database FROM TO`: all rows of a server, from SQLite to a real PostgreSQL and back."""
import json
import os
import re
import sqlite3
import subprocess
import time

from conftest import CALL_S, DEADLINE_S, STOKER, until
from postgres import PASSWORD, server, target  # noqa: F401

MANY = 6000


def move(cluster, pg, source, to, code=0):
    done = subprocess.run([STOKER, "server", "--move-database", source, to], capture_output=True, text=True, timeout=DEADLINE_S,
                          env=cluster.environment(STOKER_ERRORS="json", **pg.env))
    assert PASSWORD not in done.stdout + done.stderr
    if code is not None:
        assert done.returncode == code, done
    return done


def refused(cluster, pg, source, to):
    done = move(cluster, pg, source, to, code=None)
    assert done.returncode != 0, done
    return json.loads(done.stderr.splitlines()[-1])["error"]["id"]


def file_of(cluster):
    return f"sqlite:{cluster.data}/stoker.db"


def cannot_start(cluster, pg, database=None):
    """The id of the error of the server that may not use it."""
    done = subprocess.run([STOKER, "server", "--data", cluster.data, "--listen", "127.0.0.1:0", *(["--database", database] if database else [])],
                          env=cluster.environment(STOKER_ERRORS="json", **pg.env), capture_output=True, text=True, timeout=CALL_S)
    assert done.returncode != 0, done
    return json.loads(done.stderr.splitlines()[-1])["error"]["id"]


def everything(cluster):
    """What its users see."""
    jobs = cluster.json("ps", "-a", "--limit", "5000")
    some = [j["id"] for j in jobs[:3]]
    return {"jobs": jobs, "logs": [cluster.user_lines({"id": i}) for i in some], "events": [cluster.json("events", i) for i in some],
            "views": [cluster.json("view", i) for i in some], "secrets": cluster.json("secrets", "ls"), "projects": cluster.json("projects", "ls"),
            "checkpoints": [cluster.json("checkpoints", "ls", i) for i in some], "tokens": [t["name"] for t in cluster.json("tokens", "ls")]}


def delete(cluster, job):
    status, said = cluster.api("DELETE", f"/v1/training_projects/{job['training_project']['id']}/jobs/{job['id']}")
    assert status == 200, said


def lives(cluster):
    """Jobs that ended, one that runs, one that waits; a secret, a checkpoint, a deleted job."""
    cluster.cli("secrets", "set", "key", stdin="a-value-of-mine")
    job = cluster.push(["echo hello $SECRET; mkdir -p $BT_CHECKPOINT_DIR/checkpoint-1; echo x > $BT_CHECKPOINT_DIR/checkpoint-1/a.txt; "
                        "touch $BT_CHECKPOINT_DIR/checkpoint-1/done"],
                       runtime={"checkpointing_config": {"enabled": True, "marker": "done"}, "cache_config": {"enabled": True},
                                "environment_variables": {"SECRET": {"name": "key"}}})
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    failed = cluster.push(["echo 'ö \U0001f525 %'; exit 3"], project="other")
    cluster.wait(failed, "TRAINING_JOB_FAILED")
    gone = cluster.push(["true"])
    cluster.wait(gone, "TRAINING_JOB_COMPLETED")
    delete(cluster, gone)
    runs = cluster.push([f"echo up; {cluster.hold()}; echo ends $SECRET"], runtime={"environment_variables": {"SECRET": {"name": "key"}}})
    cluster.wait(runs, "TRAINING_JOB_RUNNING")
    waits = cluster.push(["echo it was my turn"], compute={"cpu_count": 4, "memory": "256Mi"})
    return runs, waits


def test_there_and_back(empty_cluster, server, target):
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi")
    runs, waits = lives(c)
    assert refused(c, server, file_of(c), target) == "database_in_use"  # by the server that runs
    before = everything(c)
    c.stop()
    with sqlite3.connect(c.data / "stoker.db") as db:  # an older server stored such text
        db.execute("UPDATE jobs SET error_message = CAST(x'61ff62' AS TEXT) WHERE id = ?", (before["jobs"][-1]["id"],))
    done = move(c, server, file_of(c), target)
    assert re.search(r"copied .* of .* rows \(100 %\)\n(.*\n)*compared .* \(100 %\)\n", done.stderr), done
    assert cannot_start(c, server) == "database_moved"
    assert refused(c, server, file_of(c), target) == "database_moved"
    c.start("--cpus", "4", "--memory", "4Gi", "--database", target, env=server.env)
    after = everything(c)
    assert {k: v for k, v in after.items() if k not in ("jobs", "views", "events")} == {k: v for k, v in before.items() if k not in ("jobs", "views", "events")}
    assert [j["id"] for j in after["jobs"]] == [j["id"] for j in before["jobs"]]
    assert [e[:len(b)] for e, b in zip(after["events"], before["events"])] == before["events"]
    c.release(runs)  # it ran on through the move
    c.wait(runs, "TRAINING_JOB_COMPLETED")
    c.wait(waits, "TRAINING_JOB_COMPLETED")
    assert "it was my turn" in c.user_lines(waits)
    new = c.push(["echo new"])
    c.wait(new, "TRAINING_JOB_COMPLETED")
    assert c.json("ps", "-a")[0]["id"] == new["id"]  # lists go on by the order of making
    before = everything(c)
    c.stop()
    # and back, into a file that is new
    assert refused(c, server, target, file_of(c)) == "database_not_empty"
    back = f"sqlite:{c.data}/back.db"
    move(c, server, target, back)
    assert cannot_start(c, server, target) == "database_moved"
    c.start("--cpus", "4", "--memory", "4Gi", "--database", back)
    assert everything(c) == before
    new = c.push(["echo new"])
    c.wait(new, "TRAINING_JOB_COMPLETED")
    assert c.json("ps", "-a")[0]["id"] == new["id"]


def make_many(cluster):
    """Rows of thousands of ended jobs, written beside the server's own."""
    c = cluster.start("--cpus", "4", "--memory", "4Gi")
    one = c.push(["echo one"])
    c.wait(one, "TRAINING_JOB_COMPLETED")
    c.stop()
    with sqlite3.connect(c.data / "stoker.db") as db:
        columns = [r[1] for r in db.execute("PRAGMA table_info(jobs)")]
        names = ",".join(f'"{n}"' for n in columns)
        changed = ",".join("printf('x%06d', n)" if n == "id" else f'"{n}"' for n in columns)
        db.execute(f"WITH RECURSIVE many(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM many WHERE n < {MANY}) "
                   f"INSERT INTO jobs ({names}) SELECT {changed} FROM jobs, many ORDER BY (n * 7919) % {MANY}")
        db.execute("INSERT INTO events (job_id, ms, kind, from_state, to_state, actor, message) "
                   "SELECT j.id, e.ms, e.kind, e.from_state, e.to_state, e.actor, e.message FROM jobs j, events e WHERE j.id LIKE 'x%'")
    return c, one


def arrived(server, name):
    if server.sql("SELECT to_regclass('jobs') IS NOT NULL AND to_regclass('moves') IS NOT NULL", name) != "t":
        return -1
    return int(server.sql("SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM events)", name))


def test_killed_in_the_middle(empty_cluster, server, target):
    """The mover at any moment, the database with it: the next call goes on, and nothing is missing or there twice."""
    c, one = make_many(empty_cluster)
    name = target.rpartition("/")[2]
    for turn, rows in enumerate((0, 1, 2500, 7000, 12000, 20000)):
        p = subprocess.Popen([STOKER, "server", "--move-database", file_of(c), target], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             env=c.environment(**server.env))
        until(lambda n=rows: arrived(server, name) >= n, pause=0.01)
        if turn == 3:
            server.kill()
            server.start()  # within what an outage may last, or not
        p.kill()
        p.wait(CALL_S)
        if turn == 2:  # nobody may start on half of it
            assert cannot_start(c, server, target) == "database_incomplete"
    for after_s in (0.5, 1, 1.5, 2, 2.5):  # and anywhere else
        p = subprocess.Popen([STOKER, "server", "--move-database", file_of(c), target], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             env=c.environment(**server.env))
        time.sleep(after_s)
        p.kill()
        p.wait(CALL_S)
    done = move(c, server, file_of(c), target, code=None)
    if done.returncode != 0:  # the last but one was whole
        assert json.loads(done.stderr.splitlines()[-1])["error"]["id"] == "database_moved", done
    with sqlite3.connect(c.data / "stoker.db") as db:
        for table in ("jobs", "events"):
            assert int(server.sql(f"SELECT count(*) FROM {table}", name)) == db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    c.start("--cpus", "4", "--memory", "4Gi", "--database", target, env=server.env)
    assert c.user_lines(one) == ["one"]


def test_a_move_that_was_given_up(empty_cluster, server, target):
    """Who starts the old server again ends the move: what had arrived is dropped by the next one."""
    c, one = make_many(empty_cluster)
    p = subprocess.Popen([STOKER, "server", "--move-database", file_of(c), target], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         env=c.environment(**server.env))
    name = target.rpartition("/")[2]
    until(lambda: arrived(server, name) > 0, pause=0.01)
    p.kill()
    p.wait(CALL_S)
    c.start("--cpus", "4", "--memory", "4Gi")
    delete(c, one)
    more = c.push(["echo two"])
    c.wait(more, "TRAINING_JOB_COMPLETED")
    c.stop()
    move(c, server, file_of(c), target)
    assert server.sql(f"SELECT count(*) FROM jobs WHERE id = '{one['id']}'", name) == "0"
    assert int(server.sql("SELECT count(*) FROM jobs", name)) == MANY + 1
    c.start("--cpus", "4", "--memory", "4Gi", "--database", target, env=server.env)
    assert c.user_lines(more) == ["two"]


def test_bad_ends(empty_cluster, server, target):
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi")
    assert refused(c, server, file_of(c), f"sqlite:{c.folder}/new.db") == "database_in_use"
    c.stop()
    assert refused(c, server, f"sqlite:{c.folder}/none.db", target) == "not_found"
    assert not os.path.exists(c.folder / "none.db")
    assert refused(c, server, file_of(c), file_of(c)) == "invalid"
    assert refused(c, server, file_of(c), target + "x") == "database_unavailable"
    assert refused(c, server, file_of(c), f"mysql://me:{PASSWORD}@host/x") == "invalid"
    # another Stoker's
    other = c.data.parent / "other.db"
    move(c, server, file_of(c), f"sqlite:{other}")
    assert refused(c, server, f"sqlite:{c.data}/stoker.db", target) == "database_moved"
    assert refused(c, server, f"sqlite:{other}", file_of(c)) == "database_not_empty"
    # one of a newer version
    name = target.rpartition("/")[2]
    server.sql("UPDATE stoker_schema SET version = 9999", name)
    assert refused(c, server, f"sqlite:{other}", target) == "database_newer"
    # one value is not two
    done = subprocess.run([STOKER, "server", "--move-database", file_of(c)], capture_output=True, text=True, timeout=CALL_S, env=c.environment())
    assert done.returncode == 2 and "FROM TO" in done.stderr, done


def test_a_row_that_differs_is_named(empty_cluster, server, target):
    """What has arrived is compared, not believed."""
    c, one = make_many(empty_cluster)
    name = target.rpartition("/")[2]
    server.sql(f"""CREATE FUNCTION falsify() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
        IF to_regclass('jobs') IS NOT NULL AND NOT EXISTS (SELECT 1 FROM pg_trigger WHERE tgname = 'falsifier') THEN
            CREATE TRIGGER falsifier BEFORE INSERT ON jobs FOR EACH ROW WHEN (NEW.id = 'x000042') EXECUTE FUNCTION other_name();
        END IF; END $$;
        CREATE FUNCTION other_name() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.name := 'another'; RETURN NEW; END $$;
        CREATE EVENT TRIGGER after_ddl ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION falsify()""", name)
    done = move(c, server, file_of(c), target, code=None)
    said = json.loads(done.stderr.splitlines()[-1])["error"]
    assert said["id"] == "database_differs" and "x000042" in said["message"] and "name" in said["message"], done
    c.start("--cpus", "4", "--memory", "4Gi")  # the first one is whole
    assert c.user_lines(one) == ["one"]
