"""Rows about many: an archive that is pushed, a database of many jobs, many clients that follow a log at once."""
import asyncio
import hashlib
import http.client
import json
import os
import re
import socket
import sqlite3
import statistics
import sys
import time
import urllib.request

import peers
from harness import MIB, Contender, Row, Wrong, cpu_of, run
from peers import HERE, KEY, PARTS, PEERS, SECRET

STOKER = "build/rel/src/stoker"
COUNTED = 'team_id, project_id, "user", state'
RECOUNT = ("DELETE FROM job_counts",  # after rows of jobs were written beside the server
           f"INSERT INTO job_counts ({COUNTED}, n) SELECT {COUNTED}, count(*) FROM jobs GROUP BY {COUNTED}")
ARCHIVE = 1024 * MIB
N_JOBS = 100_000
N_ASKED = 200  # requests of one kind
N_TAILS = 1000
TAIL_LINES, TAIL_PAUSE_S = 20, 1


class Figures:
    """A row of numbers without contenders: (what, {column: value}) each, and a limit in words."""
    contenders = ()

    def __init__(self, key, title, limit):
        self.key, self.title, self.limit, self.lines = key, title, limit, []

    def add(self, what, **values):
        self.lines.append((what, values))

    def show(self):
        print(f"\n## {self.title}")
        for what, values in self.lines:
            print(f"   {what[:50]:50} " + "  ".join(f"{k} {v:.4g}" for k, v in values.items()))
        print(f"   limit: {self.limit}")
        sys.stdout.flush()

    def record(self):
        return {"row": self.key, "title": self.title, "limit": self.limit, "figures": [{"what": w, **v} for w, v in self.lines]}


# --- an archive ---------------------------------------------------------------------------------


def push_archive(bench):
    """The same client, the same file, to our S3 face and to MinIO; what was stored is read back."""
    folder = bench.folder / "push"
    folder.mkdir()
    python, size = PARTS / "clients/bin/python", min(ARCHIVE, int(os.environ.get("BENCH_SIZE_MIB", "1024")) * MIB)
    archive, block, digest = folder / "archive.tgz", os.urandom(MIB), hashlib.sha256()
    with open(archive, "wb") as f:
        for number in range(size // MIB):
            data = number.to_bytes(8, "big") + block[8:]
            f.write(data)
            digest.update(data)
    if not python.exists():
        raise Wrong(f"no {python}: run `tools/parts.sh clients`")
    minio = peers.Minio(folder)
    stoker = peers.Stoker(bench.root / STOKER, folder, "--cpus", "4", "--memory", "4Gi")
    last = {}

    def put(endpoint, bucket, key, secret, **more):
        env = {**bench.aws, **more, "SECRET": secret}
        return run([python, HERE / "put_s3.py", endpoint, bucket, key, archive], env=env, server=last["server"].pid)

    def to_stoker():
        rq = urllib.request.Request(stoker.url + "/v1/blobs/credentials/train", headers={"Authorization": "Bearer " + stoker.env["STOKER_TOKEN"]})
        reply = json.loads(urllib.request.urlopen(rq, timeout=30).read())
        creds = reply["creds"]
        last.update(server=stoker, path=stoker.data / "objects" / reply["s3_key"])
        return put(creds["endpoint_url"], reply["s3_bucket"], reply["s3_key"], creds["aws_secret_access_key"],
                   KEY=creds["aws_access_key_id"], TOKEN=creds["aws_session_token"])

    def to_minio():
        last.update(server=minio)
        return put(minio.url, "bench", "archive.tgz", SECRET, KEY=KEY)

    def whole(_):
        with open(last["path"], "rb") as f:
            if hashlib.file_digest(f, "sha256").hexdigest() != digest.hexdigest():
                raise Wrong("what was stored is not what was sent")

    def kept(_):
        if minio.stored("archive.tgz") < size:
            raise Wrong("not all of it was stored")

    row = Row("push", f"push of an archive of {size // MIB} MiB by boto3, as truss does it", "MinIO with the same client", size=size)
    bench.play(row, [
        Contender("stoker", to_stoker, check=whole, tidy=lambda: last["path"].unlink(missing_ok=True), ours=True),
        Contender("minio", to_minio, peers.minio_version(), check=kept, tidy=lambda: minio.forget("archive.tgz"),
                  missing=None if peers.tool("minio") else f"no minio: {PEERS}"),
        Contender("cp and fsync", lambda: run(["sh", "-c", f"cp {archive} {folder}/copy && sync {folder}/copy"]), "a copy alone",
                  tidy=lambda: (folder / "copy").unlink(missing_ok=True), peer=False),
    ])
    for part in (stoker, minio):
        part.stop()


# --- a database of many jobs --------------------------------------------------------------------


def recount(db):
    """An older build has no such table."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'job_counts'").fetchone():
        for sql in RECOUNT:
            db.execute(sql)


def fill(path, count):
    """Copies of the one job that is there, over ten projects and a year: nine of ten completed, the others failed."""
    with sqlite3.connect(path) as db:
        names = [row[1] for row in db.execute("PRAGMA table_info(jobs)")]
        projects = [row[0] for row in db.execute("SELECT id FROM projects ORDER BY name")]
        new = {"id": "printf('j%06d', i)", "name": "printf('job-%d', i)", "project_id": "(SELECT value FROM json_each(?1) WHERE key = i % ?2)",
               "state": "iif(i % 10, 'completed', 'failed')", "end": "iif(i % 10, 'completed', 'failed')",
               "created_ms": "created_ms - (?3 - i) * 300000", "updated_ms": "created_ms - (?3 - i) * 300000"}
        db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?3) "
                   f"INSERT INTO jobs ({', '.join(names)}) SELECT {', '.join(new.get(c, c) for c in names)} FROM n, (SELECT * FROM jobs LIMIT 1)",
                   (json.dumps(projects), len(projects), count))
        recount(db)
    db.close()


def percentiles(walls):
    walls = sorted(walls)
    return {"p50 ms": statistics.median(walls) * 1000, "p99 ms": walls[min(len(walls) - 1, len(walls) * 99 // 100)] * 1000}


class AtSocket(http.client.HTTPConnection):
    """To the server's own socket, where it knows the tokens of its runners."""

    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Asker:
    """One connection that is kept."""

    def __init__(self, server, token=None, path=None):
        self.wire = AtSocket(path) if path else http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
        self.token = token or server.env["STOKER_TOKEN"]

    def ask(self, method, path, body=None):
        """(seconds, the answer)"""
        since = time.perf_counter()
        self.wire.request(method, path, None if body is None else json.dumps(body), {"Authorization": "Bearer " + self.token,
                                                                                      "Content-Type": "application/json"})
        reply = self.wire.getresponse()
        content = reply.read()
        wall = time.perf_counter() - since
        if reply.status != 200:
            raise Wrong(f"{method} {path}: {reply.status} {content[:200]}")
        return wall, content


def many_jobs(bench):
    folder = bench.folder / "jobs"
    folder.mkdir()
    (folder / "train.yaml").write_text(json.dumps({"project": "p0", "job": {"runtime": {"start_commands": ["true"]}}}))
    server = peers.Stoker(bench.root / STOKER, folder, "--cpus", "4", "--memory", "4Gi")
    asker = Asker(server)
    server.cli("push", "-f", str(folder / "train.yaml"))
    for n in range(1, 10):
        asker.ask("POST", "/v1/training_projects", {"training_project": {"name": f"p{n}"}})
    server.stop()
    fill(server.data / "stoker.db", N_JOBS)
    server = peers.Stoker(bench.root / STOKER, folder, "--cpus", "4", "--memory", "4Gi")
    asker = Asker(server)
    total = len(json.loads(asker.ask("GET", "/v1/training_projects")[1])["training_projects"])
    project = json.loads(asker.ask("GET", "/v1/training_projects")[1])["training_projects"][0]["id"]
    active = ["TRAINING_JOB_PENDING", "TRAINING_JOB_CREATED", "TRAINING_JOB_DEPLOYING", "TRAINING_JOB_RUNNING"]
    figures = Figures("jobs", f"lists and searches in a database of {N_JOBS} jobs, {N_ASKED} requests each on one connection",
                      "the last two lines: an answer of the server that looks at nothing, and the rows of a full page read by SQLite alone")
    for what, method, path, body in [
            ("the projects, each with its latest job", "GET", "/v1/training_projects", None),
            ("the jobs of a project, a page of 1000", "GET", f"/v1/training_projects/{project}/jobs", None),
            ("search: those that are active (none)", "POST", "/v1/training_jobs/search", {"statuses": active}),
            ("search: one by its id", "POST", "/v1/training_jobs/search", {"job_id": "j050000"}),
            ("search: the failed, a page of 1000", "POST", "/v1/training_jobs/search", {"statuses": ["TRAINING_JOB_FAILED"]}),
            ("search: all, oldest first, a page of 1000", "POST", "/v1/training_jobs/search", {"order_by": [{"field": "created_at", "order": "asc"}]}),
            ("one job", "GET", f"/v1/training_projects/{project}/jobs/{job_of(asker, project)}", None),
            ("limit: /healthz", "GET", "/healthz", None)]:
        walls, size = [], 0
        for _ in range(N_ASKED):
            wall, content = asker.ask(method, path, body)
            walls.append(wall)
            size = len(content)
        figures.add(what, **percentiles(walls), **{"KiB": size / 1024})
    with sqlite3.connect(f"file:{server.data}/stoker.db?mode=ro", uri=True) as db:
        walls = []
        for _ in range(N_ASKED):
            since = time.perf_counter()
            rows = db.execute("SELECT j.*, p.name FROM jobs j JOIN projects p ON p.id = j.project_id WHERE j.project_id = ? "
                              "ORDER BY j.created_ms DESC, j.rowid DESC LIMIT 1000", (project,)).fetchall()
            walls.append(time.perf_counter() - since)
        figures.add(f"limit: {len(rows)} rows by SQLite", **percentiles(walls))
    db.close()
    if total != 10:
        raise Wrong(f"{total} projects, not 10")
    server.stop()
    bench.rows.append(figures)
    figures.show()


def job_of(asker, project):
    return json.loads(asker.ask("GET", f"/v1/training_projects/{project}/jobs")[1])["training_jobs"][0]["id"]
# --- many who follow ----------------------------------------------------------------------------


class Tail:
    """Follows a log as `stoker logs -f` does: a request that waits until there is more."""

    def __init__(self, server, path):
        self.host, _, self.port = server.url.removeprefix("http://").partition(":")
        self.path, self.token = path, server.env["STOKER_TOKEN"]
        self.lags, self.ticks = [], []

    async def follow(self):
        offset, final, rest = 0, False, b""
        reader, writer = await asyncio.open_connection(self.host, int(self.port))
        while not final:
            writer.write(f"GET {self.path}?offset={offset}&wait_ms=20000 HTTP/1.1\r\nHost: {self.host}\r\n"
                         f"Authorization: Bearer {self.token}\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            body = await reader.readexactly(int(re.search(r"(?i)content-length: (\d+)", head)[1]))
            now = time.time()
            if " 200 " not in head.splitlines()[0]:
                raise Wrong(f"a follower got {head.splitlines()[0]}")
            offset = int(re.search(r"(?i)x-stoker-next-offset: (\d+)", head)[1])
            final = "true" in re.search(r"(?i)x-stoker-final: (\w+)", head)[1]
            rest += body
            for number, at in re.findall(rb"tick (\d+) ([0-9.]+)\n", rest):
                self.ticks.append(int(number))
                self.lags.append(now - float(at))
            rest = rest[rest.rfind(b"\n") + 1:]
        writer.close()


def follow_all(server, folder, count):
    """(the tails, CPU seconds of the server, its peak MiB, wall seconds) of one job that many follow."""
    (folder / "train.yaml").write_text(json.dumps({"project": "tails", "job": {"runtime": {"start_commands": [
        f"sleep {5 if count > 1 else 1}; for i in $(seq {TAIL_LINES}); do echo tick $i $EPOCHREALTIME; sleep {TAIL_PAUSE_S}; done"]}}}))
    job = server.json("push", str(folder / "train.yaml"))
    path = f"/v1/training_projects/{job['training_project']['id']}/jobs/{job['id']}/logs/raw"
    tails = [Tail(server, path) for _ in range(count)]
    peers.until(lambda: server.json("view", job["id"])["current_status"] == "TRAINING_JOB_RUNNING")
    cpu, since = cpu_of(server.pid), time.monotonic()

    async def all_of_them():
        await asyncio.wait_for(asyncio.gather(*(t.follow() for t in tails)), TAIL_LINES * TAIL_PAUSE_S + 60)
    asyncio.run(all_of_them())
    if any(t.ticks != list(range(1, TAIL_LINES + 1)) for t in tails):
        raise Wrong("a follower did not get every line once and in order")
    peak = int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{server.pid}/status").read())[1]) / 1024
    return tails, cpu_of(server.pid) - cpu, peak, time.monotonic() - since


def many_tails(bench):
    folder = bench.folder / "tails"
    folder.mkdir()
    server = peers.Stoker(bench.root / STOKER, folder, "--cpus", "4", "--memory", "4Gi")
    figures = Figures("tails", f"{N_TAILS} clients that follow one log of a line each {TAIL_PAUSE_S} s; the clients are one process beside it",
                      "one client alone: what a line takes from the job's write to whoever follows")
    for count in 1, N_TAILS:
        tails, cpu, peak, wall = follow_all(server, folder, count)
        lags = percentiles([lag for t in tails for lag in t.lags])
        figures.add(f"{count} client{'s' if count > 1 else ''}: lag", **lags, **{
            "server CPU %": 100 * cpu / wall, "us of CPU a line and client": 1e6 * cpu / TAIL_LINES / count, "server peak MiB": peak})
    server.stop()
    bench.rows.append(figures)
    figures.show()
