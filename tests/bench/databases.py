"""The row "databases": what people and runners ask of a server, on SQLite and on PostgreSQL, with a hundred and with a hundred
thousand finished jobs in the table. Four servers at once, each asked in turn, in rounds: what the machine does besides meets all.
And how long nobody answers after the one that leads was killed, with another that stands by.

It lies on a disk, not in memory: a push is durable when it is answered, and that is what it costs.
"""
import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import statistics
import subprocess
import tempfile
import time
import urllib.request

import peers
from harness import Wrong
from load import RECOUNT, STOKER, Asker, Figures

SIZES = 100, 100_000
DISK = "/var/tmp"
EACH = {"push": 10, "list": 20, "heartbeat": 50, "log": 50, "pass": 1}  # in a round
LIST = 100  # jobs of a page
DAY = 24 * 3600 * 1000


class Postgres:
    """A server of its own at a socket in its folder, durable as it is by default."""

    def __init__(self, folder):
        found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name))
        if not found:
            raise Wrong("no PostgreSQL here: run `tools/parts.sh unit`")
        self.bin, self.folder = found[-1], folder
        folder.mkdir(mode=0o755)
        self.drop = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"] if os.getuid() == 0 else []
        if self.drop:  # it refuses to run as root
            shutil.chown(folder, "postgres", "postgres")
        self.run("initdb", "-D", folder / "data", "-U", "stoker", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8")
        self.run("pg_ctl", "-D", folder / "data", "-l", folder / "log", "-s", "-w",
                 "-o", f"-k {folder} -c listen_addresses= -c max_connections=60", "start")

    def run(self, program, *args):
        done = subprocess.run([*map(str, [*self.drop, self.bin / program, *args])], cwd=self.folder, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, timeout=120)
        if done.returncode != 0:
            raise Wrong(f"{program}: exit status {done.returncode}, see {self.folder}/log")

    def url(self, database):
        return f"postgresql://stoker@/{database}?host={self.folder}"

    def stop(self):
        self.run("pg_ctl", "-D", self.folder / "data", "-m", "immediate", "-s", "-w", "stop")


class OfPostgres:
    tidy = "VACUUM ANALYZE"  # as it does by itself, a minute later
    name, series, number = "postgresql", "generate_series(1, {count}) AS n(i)", "lpad(i::text, 6, '0')"
    columns = "SELECT column_name FROM information_schema.columns WHERE table_schema = 'public' AND table_name = '{table}'"

    def __init__(self, url):
        self.url = url

    def rows(self, sql):
        done = subprocess.run(["psql", self.url, "-X", "-q", "-t", "-A", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-c", sql], capture_output=True, text=True,
                              timeout=600)
        if done.returncode != 0:
            raise Wrong(f"psql: {done.stderr[-300:]}")
        return [tuple(line.split("\t")) for line in done.stdout.splitlines() if line]


class OfSqlite:
    tidy = None  # nobody gathers statistics there
    name, number = "sqlite", "printf('%06d', i)"
    series = "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) SELECT i FROM n)"
    columns = "SELECT name FROM pragma_table_info('{table}')"

    def __init__(self, url):
        self.url = url

    def rows(self, sql):
        with sqlite3.connect(self.url.removeprefix("sqlite:"), timeout=60) as db:
            found = [tuple(map(str, row)) for row in db.execute(sql).fetchall()]
        db.close()
        return found


def copies(database, job, count):
    """So many jobs that are over, with their events and attempts, all older than this one."""
    own = {"jobs": {"id": "'f' || {n}", "name": "'f-' || {n}", "attempt_id": "'a' || {n}"},
           "events": {"job_id": "'f' || {n}"},
           "attempts": {"id": "'a' || {n}", "job_id": "'f' || {n}", "token_hash": "NULL", "dir": "'runs/a' || {n} || '-0'"}}
    key = {"jobs": "id", "events": "job_id", "attempts": "job_id"}
    for table, new in own.items():
        names = [name for name, in database.rows(database.columns.format(table=table)) if name not in ("rowid", "seq")]
        if table == "jobs":
            new |= {c: f"{c} - {DAY} - ({count} - i) * 1000" for c in ("created_ms", "updated_ms", "changed_ms")}
        quoted = [f'"{name}"' for name in names]
        values = [new.get(name, f't."{name}"').format(n=database.number) for name in names]
        database.rows(f"INSERT INTO {table} ({', '.join(quoted)}) SELECT {', '.join(values)} FROM "
                      f"{database.series.format(count=count)}, {table} t WHERE t.{key[table]} = '{job}'")
    for sql in (*RECOUNT, database.tidy):
        if sql:
            database.rows(sql)


class Asked:
    """A server on one database. One running job takes four of five CPUs, so whoever is pushed waits; on the fifth runs one whose log is
    written here: its own runner has nothing to say, and could not go on behind that."""

    def __init__(self, bench, folder, database, count, busy=True, objects=None):
        self.objects = ["--objects", f"dir:{objects}"] if objects else []
        self.database, self.count, self.seq, self.pushed = database, count, 0, 0
        self.binary, self.folder = bench.root / STOKER, folder
        folder.mkdir()
        self.begin()
        done = self.push("true", 1)
        self.until(done, "completed")
        peers.until(lambda: database.rows(f"SELECT 1 FROM attempts WHERE job_id = '{done}' AND done_ms > 0"))
        self.server.stop()
        copies(database, done, count - 1)
        self.begin()
        if not busy:
            return
        self.logged = self.push("sleep 3600", 1)
        self.until(self.logged, "running")
        self.logger = self.runner_of(self.logged)
        self.seq = self.next_of_log()
        self.running = self.push("sleep 3600", 4)
        self.until(self.running, "running")
        self.runner = self.runner_of(self.running)

    def begin(self):
        self.server = peers.Stoker(self.binary, self.folder, "--cpus", "5", "--memory", "64Gi", "--database", self.database.url,
                                   *self.objects)
        self.asker = Asker(self.server)
        self.project = json.loads(self.asker.ask("POST", "/v1/training_projects", {"training_project": {"name": "p"}})[1])["training_project"]["id"]

    def push(self, command, cpus, priority=0):
        return self.pushing(command, cpus, priority)[1]

    def pushing(self, command, cpus, priority):
        took, answer = self.asker.ask("POST", f"/v1/training_projects/{self.project}/jobs", {"training_job": {
            "runtime": {"start_commands": [command]}, "compute": {"cpu_count": cpus, "memory": "1Gi"}, "priority": priority}})
        return took, json.loads(answer)["training_job"]["id"]

    def until(self, job, state):
        peers.until(lambda: self.database.rows(f"SELECT 1 FROM jobs WHERE id = '{job}' AND state = '{state}'"))

    def runner_of(self, job):
        """Speaks for it."""
        (folder,), = self.database.rows(f"SELECT t.dir FROM attempts t JOIN jobs j ON j.attempt_id = t.id WHERE j.id = '{job}'")
        start = json.loads((self.server.data / folder / "launch.json").read_text())
        return Asker(self.server, start["token"], start["socket"])

    def next_of_log(self):
        wire = self.logger.wire
        wire.request("POST", "/runner/v1/log?seq=1000000000", "x\n", {"Authorization": "Bearer " + self.logger.token})
        return json.loads(wire.getresponse().read())["next"]

    # --- one of each ---

    def ask_push(self):
        return self.pushing("sleep 3600", 4, 0)[0]

    def ask_list(self):
        took, answer = self.asker.ask("POST", "/v1/training_jobs/search", {"limit": LIST})
        if len(json.loads(answer)["training_jobs"]) != LIST:
            raise Wrong(f"not {LIST} jobs")
        return took

    def ask_heartbeat(self):
        self.pushed += 1
        return self.runner.ask("POST", "/runner/v1/heartbeat", {"stage": "running", "note": f"step {self.pushed}", "seq": self.pushed, "done_bytes": 1,
                                                                "total_bytes": 2, "rate_bytes_s": 0.5})[0]

    def ask_log(self):
        record = f"{time.time_ns()} 1 a line of a log as trainers write them, step {self.seq}\n" * 10
        wire, since = self.logger.wire, time.perf_counter()
        wire.request("POST", f"/runner/v1/log?seq={self.seq}", record, {"Authorization": "Bearer " + self.logger.token})
        reply = wire.getresponse()
        self.seq = json.loads(reply.read())["next"]
        if reply.status != 200:
            raise Wrong(f"log: {reply.status}")
        return time.perf_counter() - since

    def ask_pass(self):
        """From the end of the running job, as stored, to the next one's placement."""
        self.pushed += 1
        first = self.push("sleep 3600", 4, self.pushed)
        self.asker.ask("POST", f"/v1/training_projects/{self.project}/jobs/{self.running}/stop", {})
        self.until(self.running, "stopped")
        self.until(first, "running")
        (end,), (placed,) = (self.database.rows(f"SELECT max(ms) FROM events WHERE job_id = '{job}' AND to_state = '{state}'")[0]
                             for job, state in ((self.running, "stopped"), (first, "created")))
        self.running, self.runner = first, self.runner_of(first)
        return max(0, int(placed) - int(end)) / 1000

    def close(self):
        """Their jobs end with the runners."""
        self.server.stop()
        for file in self.server.data.glob("runs/*/runner.json"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(json.loads(file.read_text())["pid"], signal.SIGKILL)


def sync_ms(folder):
    """A page written and synced, as the least that a commit can do."""
    took = []
    with open(folder / "page", "wb") as f:
        for n in range(200):
            since = time.perf_counter()
            os.pwrite(f.fileno(), bytes(4096), n % 16 * 4096)
            os.fdatasync(f.fileno())
            took.append(time.perf_counter() - since)
    return statistics.median(took) * 1000


def trip_ms(url):
    """To PostgreSQL and back, over libpq."""
    pq = ctypes.CDLL("libpq.so.5")
    pq.PQconnectdb.restype = pq.PQexec.restype = ctypes.c_void_p
    pq.PQexec.argtypes, pq.PQclear.argtypes = (ctypes.c_void_p, ctypes.c_char_p), (ctypes.c_void_p,)
    pq.PQfinish.argtypes = pq.PQstatus.argtypes = (ctypes.c_void_p,)
    wire, took = pq.PQconnectdb(url.encode()), []
    if pq.PQstatus(wire) != 0:
        raise Wrong("libpq cannot connect")
    for _ in range(500):
        since = time.perf_counter()
        pq.PQclear(pq.PQexec(wire, b"SELECT 1"))
        took.append(time.perf_counter() - since)
    pq.PQfinish(wire)
    return statistics.median(took) * 1000


def measure(bench, folder, postgres, asked, rounds):
    figures = Figures("databases", f"SQLite and PostgreSQL with {SIZES[0]} and {SIZES[1]} finished jobs; ms, the median of {rounds} rounds",
                                 "the last lines: a page written and synced on this disk, a statement to PostgreSQL and back, an answer that looks at nothing. "
                                 "A push waits for a pass of the queue, too; a pass is told in whole ms")
    for count in SIZES:
        postgres.run("createdb", "-h", postgres.folder, "-U", "stoker", f"jobs{count}")
        for database in OfSqlite(f"sqlite:{folder}/{count}.db"), OfPostgres(postgres.url(f"jobs{count}")):
            asked.append(Asked(bench, folder / f"{database.name}-{count}", database, count))
    took = {what: {a: [] for a in asked} for what in EACH}
    for turn in range(rounds + 1):
        for what, times in EACH.items():
            for a in asked:
                one = statistics.median(getattr(a, f"ask_{what}")() for _ in range(times))
                if turn > 0:
                    took[what][a].append(one * 1000)
    for what, each in took.items():
        found = {(a.count, a.database.name): statistics.median(each[a]) for a in asked}
        for count in SIZES:
            lite, pg = found[count, "sqlite"], found[count, "postgresql"]
            figures.add(f"{what}: {count} jobs", sqlite=lite, postgresql=pg, **{"postgresql/sqlite": pg / lite if lite else float("nan")})
        figures.add(f"{what}: {SIZES[1]} jobs over {SIZES[0]}", **{
            name: found[SIZES[1], name] / found[SIZES[0], name] if found[SIZES[0], name] else float("nan") for name in ("sqlite", "postgresql")})
    figures.add("limit: a page written and synced", sqlite=sync_ms(folder))
    figures.add("limit: a statement to PostgreSQL and back", postgresql=trip_ms(postgres.url("postgres")))
    figures.add("limit: /healthz", sqlite=statistics.median(asked[0].asker.ask("GET", "/healthz")[0] for _ in range(200)) * 1000)
    bench.rows.append(figures)
    figures.show()


def standby_of(asked, folder):
    """Of a server on the same database: with its key, in a folder of its own."""
    if not folder.exists():
        (folder / "data").mkdir(parents=True)
        for name in "master.key", "admin-token":
            shutil.copy2(asked.server.data / name, folder / "data" / name)
    return peers.Stoker(asked.binary, folder, "--cpus", "5", "--memory", "64Gi", "--database", asked.database.url, *asked.objects, "--standby",
                        says="standing by on http://")


def leads(server):
    with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(server.url + "/healthz", timeout=5) as reply:
        return json.loads(reply.read()).get("role") == "leader"
    return False


def takeover(bench, folder, postgres, rounds):
    """Each time the one that leads is killed, and comes back as the one that stands by."""
    figures = Figures("takeover", f"the leader is killed, another stands by on PostgreSQL; s, of {rounds} times",
                      "it waits 5 s before it takes a leader that says nothing for dead")
    for count in SIZES:
        postgres.run("createdb", "-h", postgres.folder, "-U", "stoker", f"takeover{count}")
        asked = Asked(bench, folder / f"leader-{count}", OfPostgres(postgres.url(f"takeover{count}")), count, busy=False,
                      objects=folder / f"objects-{count}")
        folders, led, pushed = [asked.folder, folder / f"other-{count}"], [], []
        other = standby_of(asked, folders[1])
        for _ in range(rounds):
            asked.server.stop(signal.SIGKILL)
            since = time.monotonic()
            peers.until(lambda: leads(other), pause=0.01)
            led.append(time.monotonic() - since)
            asked.server, asked.asker = other, Asker(other)
            asked.push("true", 1)
            pushed.append(time.monotonic() - since)
            folders.reverse()
            other = standby_of(asked, folders[1])
        figures.add(f"{count} jobs: until it leads", median=statistics.median(led), max=max(led))
        figures.add(f"{count} jobs: until a push is answered", median=statistics.median(pushed), max=max(pushed))
        other.stop()
        asked.server.stop()
    bench.rows.append(figures)
    figures.show()


def both(bench, rounds):
    with tempfile.TemporaryDirectory(prefix="stoker-databases-", dir=DISK) as name:
        os.chmod(name, 0o755)
        folder = pathlib.Path(name)
        postgres, asked = Postgres(folder / "postgres"), []
        try:
            measure(bench, folder, postgres, asked, rounds)
            for a in asked:
                a.close()
            takeover(bench, folder, postgres, rounds)
        finally:
            for a in asked:
                a.close()
            peers.stop_all()
            postgres.stop()
