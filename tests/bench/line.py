"""The row "line": ten thousand finished jobs and two thousand waiting ones on one server, and what people ask of it then.

Everything is measured twice in one run, with no finished job and with ten thousand: what differs between the two grows
with the number of finished jobs, and nothing should. BENCH_STOKER names another build to compare with.
"""
import json
import os
import pathlib
import sqlite3
import statistics
import time

import peers
from harness import Wrong, cpu_of, run
from load import STOKER, Asker, Figures, percentiles, recount

N_FINISHED, N_WAITING = 10_000, 2_000
N_COMMANDS, N_STOPS, N_BEATS = 10, 10, 300
PAST_USER = "past"  # has pushed those that have finished
IDLE_S = 5  # the server left alone: what the queue costs by itself


def copies(path, template, prefix, count, age_ms, user=None):
    """Copies of one job with its events, of another user if named; the first is the oldest, all are older than the template by age_ms."""
    with sqlite3.connect(path) as db:
        names = [row[1] for row in db.execute("PRAGMA table_info(jobs)")]
        new = {"id": "printf('%s%06d', ?1, i)", "name": "printf('%s-%d', ?1, i)", "created_ms": "created_ms - ?4 + i * 10",
               "updated_ms": "created_ms - ?4 + i * 10", "changed_ms": "created_ms - ?4 + i * 10"}
        if user:
            new["user"] = f"'{user}'"
        db.execute("CREATE TEMP TABLE n AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT i FROM n",
                   (count,))
        db.execute(f"INSERT INTO jobs ({', '.join(names)}) SELECT {', '.join(new.get(c, c) for c in names)} FROM n, "
                   "(SELECT * FROM jobs WHERE id = ?3) WHERE i <= ?2 ORDER BY i", (prefix, count, template, age_ms))
        db.execute("INSERT INTO events (job_id, ms, kind, from_state, to_state, actor, message) "
                   "SELECT printf('%s%06d', ?1, i), e.ms - ?3, e.kind, e.from_state, e.to_state, e.actor, e.message "
                   "FROM n, events e WHERE e.job_id = ?2 ORDER BY i, e.seq", (prefix, template, age_ms))
        recount(db)
    db.close()


class Crowd:
    """A server with one running job that takes all CPUs, so many finished ones, and N_WAITING that want them, too."""

    def __init__(self, bench, finished):
        self.binary = pathlib.Path(os.environ.get("BENCH_STOKER") or bench.root / STOKER).resolve()
        self.folder = bench.folder / f"line-{finished}"
        self.folder.mkdir()
        self.begin()
        done = self.push("true", 1)
        self.until(done, "completed")
        self.running = self.push("sleep 3600", 4)
        self.until(self.running, "running")
        waiting = self.push("sleep 3600", 4)
        self.stop()
        hour = 3600 * 1000
        copies(self.server.data / "stoker.db", waiting, "w", N_WAITING, hour)
        if finished:
            copies(self.server.data / "stoker.db", done, "f", finished, 24 * hour, PAST_USER)
        self.oldest = "f000001" if finished else done
        self.begin()
        if self.count("pending") != N_WAITING + 1:
            raise Wrong(f"{self.count('pending')} jobs wait")

    def begin(self):
        self.server = peers.Stoker(self.binary, self.folder, "--cpus", "4", "--memory", "64Gi")

    def stop(self):
        self.server.stop()

    def push(self, command, cpus, priority=0):
        file = self.folder / "train.yaml"
        file.write_text(json.dumps({"project": "line", "job": {
            "runtime": {"start_commands": [command]}, "compute": {"cpu_count": cpus, "memory": "1Gi"}, "priority": priority}}))
        return self.server.json("push", str(file))["id"]

    def until(self, job, state):
        peers.until(lambda: self.rows("SELECT 1 FROM jobs WHERE id = ? AND state = ?", job, state))

    def end(self, job):
        """By its project: commands of older builds do not find every job."""
        project = self.rows("SELECT project_id FROM jobs WHERE id = ?", job)[0][0]
        Asker(self.server).ask("POST", f"/v1/training_projects/{project}/jobs/{job}/stop", {})

    def close(self):
        """Nobody is left to be placed, then the last one goes."""
        self.stop()
        with sqlite3.connect(self.server.data / "stoker.db") as db:
            db.execute("DELETE FROM jobs WHERE state = 'pending'")
        db.close()
        self.begin()
        for job, in self.rows("SELECT id FROM jobs WHERE state IN ('created', 'deploying', 'running')"):
            self.end(job)
            self.until(job, "stopped")
        self.stop()

    def rows(self, sql, *args):
        with sqlite3.connect(f"file:{self.server.data}/stoker.db?mode=ro", uri=True) as db:
            found = db.execute(sql, args).fetchall()
        db.close()
        return found

    def count(self, state):
        return self.rows("SELECT count(*) FROM jobs WHERE state = ?", state)[0][0]

    # --- what is measured ---

    def command(self, *args):
        """Seconds of one run of the client, and its output."""
        done = run([self.binary, *args], env=self.server.env)
        return done.wall, done.out

    def commands(self, *each):
        return percentiles([self.command(*args)[0] for args in each])

    def view_oldest(self):
        _, out = self.command("view", self.oldest, "-o", "json")
        if json.loads(out)["current_status"] != "TRAINING_JOB_COMPLETED":
            raise Wrong("the oldest is not completed")
        return self.commands(*[("view", self.oldest)] * N_COMMANDS)

    def stops(self):
        """From the middle of the line."""
        jobs = [f"w{N_WAITING // 2 + i:06d}" for i in range(N_STOPS)]
        took = self.commands(*[("stop", job) for job in jobs])
        stopped = self.rows(f"SELECT count(*) FROM jobs WHERE state = 'stopped' AND id IN ({','.join('?' * N_STOPS)})", *jobs)[0][0]
        if stopped != N_STOPS:
            raise Wrong(f"{stopped} of {N_STOPS} were stopped")
        return took

    def pushes(self):
        self.urgent, walls = [], []
        for priority in range(1, 4):
            since = time.perf_counter()
            self.urgent.append(self.push("sleep 3600", 4, priority * 10))
            walls.append(time.perf_counter() - since)
        return percentiles(walls)

    def beats(self):
        """As the runner of the running job sends them."""
        start = json.loads(next((self.server.data / "runs").glob("*-0/launch.json")).read_text())
        asker = Asker(self.server, start["token"], start["socket"])
        body = {"stage": "running", "note": "step", "done_bytes": 1, "total_bytes": 2, "rate_bytes_s": 0.5}
        return percentiles([asker.ask("POST", "/runner/v1/heartbeat", {**body, "seq": n, "note": f"step {n}"})[0] for n in range(N_BEATS)])

    def passes(self):
        """What the queue takes from the end of the running job to the next one in its place."""
        walls, who = [], self.running
        for _ in range(len(self.urgent)):
            self.end(who)
            self.until(who, "stopped")
            peers.until(lambda: self.placed(who))
            end = self.rows("SELECT max(ms) FROM events WHERE job_id = ?", who)[0][0]
            who, ms = self.placed(who)
            if ms < end - 1000:
                raise Wrong("placed before the other one ended")
            walls.append(max(0, ms - end) / 1000)
            self.until(who, "running")
        first = self.urgent[-1]
        return {"p50 ms": statistics.median(walls) * 1000, "max ms": max(walls) * 1000,
                "urgent first": float(self.rows("SELECT attempt FROM jobs WHERE id = ?", first)[0][0] > 0)}

    def placed(self, after):
        """(job, ms) of the last placement, when it is another job's."""
        found = self.rows("SELECT job_id, ms FROM events WHERE to_state = 'created' ORDER BY ms DESC LIMIT 1")
        return found[0] if found and found[0][0] != after else None

    def idle(self):
        before = cpu_of(self.server.process.pid)
        time.sleep(IDLE_S)
        return {"CPU %": 100 * (cpu_of(self.server.process.pid) - before) / IDLE_S}

    def all(self, figures, label):
        """Adds the lines; those that could not be measured, in words."""
        failed = []
        for what, measure in [("ps", lambda: self.commands(*[("ps",)] * N_COMMANDS)),
                              ("ps of one whose jobs are over", lambda: self.commands(*[("ps", "--user", PAST_USER)] * N_COMMANDS)),
                              ("view of the oldest", self.view_oldest),
                              ("stop of one that waits", self.stops), ("push with a priority", self.pushes),
                              ("a heartbeat", self.beats), ("from an end to the next placement", self.passes),
                              ("the server left alone", self.idle)]:
            try:
                figures.add(f"{label}: {what}", **measure())
            except (Wrong, RuntimeError) as e:
                figures.add(f"{label}: {what} FAILED")
                failed.append(f"{label}: {what}: {e}")
        return failed


def long_line(bench):
    figures = Figures("line", f"{N_WAITING} jobs wait, and none or {N_FINISHED} have finished",
                      "the client alone, as in `stoker version`; the same lines with no finished job")
    failed = []
    for finished in 0, N_FINISHED:
        crowd = Crowd(bench, finished)
        if not finished:
            figures.add("limit: stoker version", **crowd.commands(*[("version",)] * N_COMMANDS))
        failed += crowd.all(figures, f"{finished} finished")
        crowd.close()
    bench.rows.append(figures)
    figures.show()
    if failed:
        raise Wrong("; ".join(failed))
