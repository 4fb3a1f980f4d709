"""One fixture, `cluster`: a server from the built binary in a folder of its own, on a private port.

It fails the test on a sanitizer's report, on a process or a mount that is left behind.
"""
import contextlib
import functools
import hashlib
import hmac
import http.client
import inspect
import itertools
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import pytest
from web import make_certificate

STOKER = os.environ.get("STOKER", str(pathlib.Path(__file__).parents[2] / "build/asan/src/stoker"))
PARTS = pathlib.Path(os.environ.get("STOKER_PARTS", pathlib.Path.home() / ".cache/stoker-parts"))
ROOT = pathlib.Path(__file__).parents[2]
ACTIVE = ["TRAINING_JOB_CREATED", "TRAINING_JOB_PENDING", "TRAINING_JOB_DEPLOYING", "TRAINING_JOB_RUNNING"]
FINAL = {"TRAINING_JOB_COMPLETED", "TRAINING_JOB_FAILED", "TRAINING_JOB_STOPPED", "TRAINING_JOB_DEPLOY_FAILED"}
# Deadlines are against hangs: many times what a loaded machine takes. Nothing is judged by how long it took.
DEADLINE_S = 180  # for anything that the product does by itself
RUNNERS_END_S = 20
LOOK_AGAIN_MAX_S = 1
CALL_S = 240  # for a command of somebody else's; the product's own deadlines are shorter
TAIL = 6000  # characters of each log that a failure shows
CLUSTER = pytest.StashKey()


def until(what, deadline=DEADLINE_S, pause=0.1):
    """The first true value of what(), within the deadline. Who looks again takes no more than a third of the time for it: what is waited for
    needs the processor, too."""
    end = time.monotonic() + deadline
    while True:
        asked = time.monotonic()
        value = what()
        if value:
            return value
        now = time.monotonic()
        if now >= end:
            pytest.fail(f"not true after {deadline} s: {inspect.getsource(what).strip()}\nit is {value!r}")
        time.sleep(max(pause, min(2 * (now - asked), LOOK_AGAIN_MAX_S)))


class Lines:
    """What a process writes to its stdout (a pipe), a line at a time, none of them waited for without end."""

    def __init__(self, process):
        self.process, self.fd = process, process.stdout.fileno()
        self.seen, self.rest, self.ended = [], b"", False

    def next(self, deadline=DEADLINE_S):
        """The next line without its end, or None behind the last one."""
        end = time.monotonic() + deadline
        while b"\n" not in self.rest and not self.ended:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                pytest.fail(f"no line for {deadline} s from {self}")
            data = os.read(self.fd, 65536)
            self.rest += data
            self.ended = not data
        if not self.rest:
            return None
        line, _, self.rest = self.rest.partition(b"\n")
        self.seen.append(line.decode(errors="replace"))
        return self.seen[-1]

    def until(self, wanted, deadline=DEADLINE_S):
        """The first line that wanted(line) is true of."""
        end = time.monotonic() + deadline
        while (line := self.next(max(0.0, end - time.monotonic()))) is not None:
            if wanted(line):
                return line
        pytest.fail(f"the line did not come from {self}")

    def __str__(self):
        shown = "\n".join([*self.seen[-200:], self.rest.decode(errors="replace")])
        return f"{self.process.args}, which {'runs' if self.process.poll() is None else 'is over'} and wrote:\n{shown}"


HELD = []  # sockets that are bound for as long as this process lives


def held_port(address="127.0.0.1"):
    """A port that nobody else gets, and where nobody listens until a server is told to: with SO_REUSEADDR, as all set it."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, 0))
    HELD.append(s)
    return s.getsockname()[1]


def proof(asked, token, port):
    """What the server of `token` answers to the challenge that the stoker command sends first."""
    key, address = hashlib.sha256(token.encode()).digest(), f"127.0.0.1:{port}"
    text = f"stoker proof 1\n{asked['challenge']}\n{address}".encode()
    return {"address": address, "proof": hmac.new(key, text, "sha256").hexdigest()}


def end_process(process):
    """A helper's end, whatever it is doing."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(CALL_S)


class Result:
    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    def __repr__(self):
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Cluster:
    host = None  # None: this machine; else one of rack.py

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.data = self.folder / "data"
        self.home = self.folder / "home"
        self.home.mkdir()
        self.process = None
        self.port = None
        self.url = None
        self.flags = []
        self.log = self.folder / "server.log"
        self.searched = set()  # commands that have been searched for leaks
        self.at_end = contextlib.ExitStack()  # of what tests leave to be closed with it

    def environment(self, **more):
        drop = ("STOKER_", "AWS_", "COLUMNS", "LINES")  # a terminal's width is for tests that say one
        env = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
        env.update(HOME=str(self.home), NO_COLOR="1", XDG_CONFIG_HOME=str(self.home / ".config"),
                   ASAN_OPTIONS=f"detect_leaks=1:log_path={self.folder}/asan",
                   UBSAN_OPTIONS=f"print_stacktrace=1:log_path={self.folder}/ubsan")
        env.update(more)
        return env

    def start(self, *flags, env=None, says="listening on http"):
        """Each start of a cluster is at the same port, as under a supervisor."""
        self.flags = list(flags) or self.flags
        self.port = self.port or held_port()
        listen = f"{self.host.address if self.host else '127.0.0.1'}:{self.port}"
        return self.launch([STOKER, "server", "--data", str(self.data), "--listen", listen, *self.database_flags(), *self.flags], env, says)

    def database_flags(self):
        """Under tests/with_postgres.sh the rows are in a schema of this cluster's own."""
        url = os.environ.get("STOKER_TEST_DATABASE")
        if not url or "--database" in self.flags:
            return []
        schema = "c" + "".join(c for c in self.folder.name if c.isalnum()).lower()
        subprocess.run(["psql", url, "-qc", f"CREATE SCHEMA IF NOT EXISTS {schema}"], check=True, capture_output=True, timeout=CALL_S)
        return ["--database", f"{url}&options=-csearch_path%3D{schema}"]

    def launch(self, command, env=None, says="listening on http"):
        """A command that becomes the server."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.host.enter(*command) if self.host else command, stdout=subprocess.PIPE, stderr=log, env=self.environment(**(env or {})), text=True)
        line = Lines(self.process).next() or ""
        assert line.startswith(says), f"{line!r}\n{self.log.read_text()}"
        self.url = line.split()[-1]
        return self

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(DEADLINE_S)

    def stop(self):
        if self.process and self.process.poll() is None:
            if self.host:
                self.host.signal(self.process, signal.SIGTERM)
            else:
                self.process.terminate()
            assert self.process.wait(DEADLINE_S) == 0, self.log.read_text()[-TAIL:]

    def restart(self):
        return self.start()

    @property
    def token(self):
        return (self.data / "admin-token").read_text().strip()

    def cli_environment(self, token=None, **more):
        return self.environment(**{"STOKER_URL": self.url, "STOKER_TOKEN": token or self.token, **more})

    def cli(self, *args, code=0, stdin=None, cwd=None, env=None, token=None, timeout=CALL_S):
        # Leaks are looked for the first time that each command is used: it takes a third of a short one's time.
        kind, env = tuple(itertools.takewhile(str.isalpha, map(str, args[:2]))), self.cli_environment(token, **(env or {}))
        if kind in self.searched:
            env["ASAN_OPTIONS"] = env["ASAN_OPTIONS"].replace("detect_leaks=1", "detect_leaks=0")
        self.searched.add(kind)
        done = subprocess.run([STOKER, *map(str, args)], env=env, input=stdin,
                              cwd=cwd, capture_output=True, text=True, timeout=timeout, errors="replace")
        result = Result(done)
        if code is not None:
            assert result.code == code, result
        return result

    def refusal(self, *args, code=None, **kw):
        """The error that a command ends with, as scripts read it: {"error": {"id", "message"}, "problems": [...]}."""
        kw["env"] = {**kw.get("env", {}), "STOKER_ERRORS": "json"}
        result = self.cli(*args, code=code, **kw)
        assert result.code != 0, result
        return json.loads(result.err.splitlines()[-1])

    def error(self, *args, code=None, **kw):
        """The stable id of that error; its message is for people and may be reworded."""
        return self.refusal(*args, code=code, **kw)["error"]["id"]

    def json(self, *args, **kw):
        return json.loads(self.cli(*args, "-o", "json", **kw).out)

    def api(self, method, path, body=None, token=None, headers=None, raw=False, timeout=CALL_S):
        """(status, JSON or bytes). token "" sends none."""
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        rq = urllib.request.Request(self.url + path, data=data, method=method)
        if token != "":
            rq.add_header("Authorization", f"Bearer {token or self.token}")
        if data is not None:
            rq.add_header("Content-Type", "application/json")
        for k, v in (headers or {}).items():
            rq.add_header(k, v)
        try:
            with urllib.request.urlopen(rq, timeout=timeout) as reply:
                content, status = reply.read(), reply.status
        except urllib.error.HTTPError as e:
            content, status = e.read(), e.code
        return status, content if raw else json.loads(content or b"null")

    def job_folder(self, commands, project="p", files=None, **job):
        """A folder with a train.yaml (JSON is YAML) and files to push."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder, prefix="job-"))
        runtime = {"start_commands": commands, **job.pop("runtime", {})}
        doc = {"project": project, "job": {"compute": {"cpu_count": 1, "memory": "256Mi"}, "runtime": runtime, **job}}
        (folder / "train.yaml").write_text(json.dumps(doc, indent=1))
        for path, content in (files or {}).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(content)
        return folder

    def push(self, commands, *flags, **kw):
        """Pushes and returns the job as the API shows it."""
        folder = self.job_folder(commands, **kw)
        return json.loads(self.cli("push", folder / "train.yaml", *flags, "-o", "json").out)

    def people(self, rows):
        """Teams and tokens of {name: (team, role)}; {name: token}."""
        for team in sorted({team for team, _ in rows.values()}):
            self.cli("teams", "create", team)
        return {name: self.json("tokens", "create", name, "--team", team, "--role", role)["api_key"] for name, (team, role) in rows.items()}

    def job(self, job):
        return self.json("view", job["id"])

    def search(self, **want):
        """Jobs as one request shows them, for what looks again and again: a process for each look would be most of a test's work. None: no such answer."""
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            status, said = self.api("POST", "/v1/training_jobs/search", want, timeout=20)
            return said["training_jobs"] if status == 200 else None
        return None

    def wait(self, job, *statuses, deadline=DEADLINE_S):
        wanted = set(statuses) or FINAL
        last = {}

        def there():
            found = self.search(job_id=job["id"])
            status = found[0]["current_status"] if found else None
            if status is None or status in wanted | FINAL:
                last.update(self.job(job))
                status = status or last["current_status"]
            assert status in wanted or status not in FINAL, f"{status}: {last}\n{self.logs(job)}"
            return status in wanted

        until(there, deadline, pause=0.05)
        return last

    def hold(self, gate="go"):
        """A command that ends when release() is called: what is to be seen of a running job is there for as long as it takes."""
        return f"until test -e /tmp/{gate}; do sleep 0.1; done"

    def release(self, job, gate="go"):
        done = self.cli("exec", job["id"], "--", "touch", f"/tmp/{gate}", code=None)
        assert done.code in (0, 128 + signal.SIGKILL), done  # the job may end on it, and everything in it, before `touch` has ended

    def logs(self, job, *flags):
        return self.cli("logs", job["id"], *flags).out

    def user_lines(self, job):
        return [line for line in self.logs(job).splitlines() if not line.startswith("stoker:")]

    def end_jobs(self):
        """Runners outlive their server on purpose: what still runs is stopped before it."""
        def active():
            found = self.search(statuses=ACTIVE)
            return self.json("ps", "--everyone") if found is None else found

        if self.process and self.process.poll() is None:
            for job in (left := active()):
                self.cli("stop", job["id"], "--now", code=None)
            for d in self.api("GET", "/v1/deployments")[1]["deployments"] if left else []:  # they would start others
                self.cli("deployments", "rm", d["name"], "--yes", code=None)
            until(lambda: not active())

    def processes(self):
        """Processes that belong to this cluster's data folder."""
        mark, found = str(self.data), []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    continue
                if mark in line:
                    found.append(f"{entry.name} {line}")
        return found

    def runners_and_keepers(self):
        """Processes of runners, and what they have started beside them: the keepers of the node cache."""
        pids = {int(line.split()[0]) for line in self.processes() if "stoker runner /" in line}
        parents = {}
        for pid in pids:
            with contextlib.suppress(OSError):
                parents[pid] = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        keepers = [pid for pid, parent in parents.items() if parent in pids]
        return [pid for pid in parents if pid not in keepers], keepers

    def runners(self):
        return self.runners_and_keepers()[0]

    def keepers(self):
        return self.runners_and_keepers()[1]

    def let_runners_end(self):
        """One whose job is over may have words for the server, and waits for it when it is away."""
        end = time.monotonic() + RUNNERS_END_S
        while self.process and self.process.poll() is None and time.monotonic() < end and any(" runner " in p for p in self.processes()):
            time.sleep(0.05)

    def state(self):
        """What a person would look at first, for the report of a test that failed."""
        said = [f"processes: {self.processes()}"]
        logs = [self.log, *sorted(self.data.glob("runs/*/runner.log"))]
        said += [f"--- {p.relative_to(self.folder)}\n{p.read_text(errors='replace')[-TAIL:]}" for p in logs if p.exists()]
        if self.process and self.process.poll() is None:
            said.append(str(self.cli("ps", "-a", "--everyone", code=None, timeout=60)))
        return "\n".join(said)

    def mounts(self):
        return [m for m in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if str(self.data) in m]


# Files of one or two tests that take minutes; the one of many that take a moment, and behind it those that a busy machine disturbs.
FIRST = ("test_resume", "test_quickstart", "test_rack_storm", "test_trainer", "test_recipes", "test_debian_machine", "test_prjquota", "test_takeover")
LAST = ("test_cli", "test_clocks", "test_idle_gpu")

# llama-server is there ready to run, in one build, for processors that have all of these.
LLAMA_NEEDS = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16"}
collect_ignore = [] if LLAMA_NEEDS <= set(re.findall(r"\w+", pathlib.Path("/proc/cpuinfo").read_text())) else ["test_serving_llama.py"]
if "STOKER_GPU_PYTHON" not in os.environ:
    collect_ignore.append("test_gpu.py")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """What takes long comes first and what is quick comes last, so that all workers end together. In between each file is spread over the whole
    run, as tests of one file need the same: all of them the processor, or all of them to wait. Where tests share what is made for their file,
    they stay together."""
    files = {}
    for item in items:
        files.setdefault(item.path.stem, []).append(item)

    def place(stem, n):
        if stem in FIRST:
            return 0
        if stem in LAST:
            return 3
        shared = any(d[-1].scope == "module" for i in files[stem] for d in i._fixtureinfo.name2fixturedefs.values())
        return 1 if shared else 2 + n / len(files[stem])

    placed = [(place(stem, n), at, n, item) for at, stem in enumerate(files) for n, item in enumerate(files[stem])]
    items[:] = [item for *_, item in sorted(placed, key=lambda p: p[:3])]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure shows the state of its cluster: a log of it may be all that there is."""
    report = yield
    cluster = item.stash.get(CLUSTER, None)
    if report.failed and cluster:
        try:
            report.sections.append(("the cluster", cluster.state()))
        except Exception as e:  # the first cause is the one to see
            report.sections.append(("the cluster", f"its state cannot be read: {e}"))
    return report


def said_by_sanitizer(path):
    """A report, without what the search for leaks says of a process that is killed while it looks."""
    return re.sub(r"(?m)^==\d+==Unable to get registers from thread \d+\.\n", "", path.read_text()).strip()


@functools.cache
def folders():
    """Where clusters have their folders, each in a part of the disk of its own (+T). ext4 without a journal looks, for every file that is made, at all
    that were removed beside it in the last minutes: with a whole cluster gone every few seconds, that was what making a file cost."""
    folder = pathlib.Path(f"/var/tmp/stoker-e2e-{os.getuid()}")
    folder.mkdir(mode=0o755, exist_ok=True)
    subprocess.run(["chattr", "+T", folder], check=False, capture_output=True, timeout=CALL_S)  # other file systems have no need of it
    return folder


@contextlib.contextmanager
def new_cluster():
    folder = tempfile.mkdtemp(prefix="", dir=folders())
    c = Cluster(folder)
    yield c
    try:
        c.at_end.close()
        c.end_jobs()
        c.let_runners_end()
        c.stop()
        until(lambda: not c.processes())
        assert not c.mounts(), c.mounts()
        reports = [text for pattern in ("asan*", "ubsan*") for p in pathlib.Path(folder).glob(pattern) if (text := said_by_sanitizer(p))]
        assert not reports, "\n".join(reports)
    finally:
        for line in c.processes():
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(int(line.split()[0]), signal.SIGKILL)
        subprocess.run(["chmod", "-R", "u+rwX", folder], check=False)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def empty_cluster(request):
    """A cluster that is not started yet."""
    with new_cluster() as c:
        request.node.stash[CLUSTER] = c
        yield c


@pytest.fixture
def certificate(empty_cluster):
    return make_certificate(empty_cluster.folder)


@pytest.fixture
def cluster(empty_cluster):
    return empty_cluster.start("--cpus", "4", "--memory", "4Gi")


@pytest.fixture(scope="session")
def standing_cluster():
    with new_cluster() as c:
        yield c.start("--cpus", "4", "--memory", "4Gi")


@pytest.fixture
def standing(standing_cluster, request):
    """A server that is there already, for what it refuses, or shows whatever else it has: such tests do not disturb each other."""
    request.node.stash[CLUSTER] = standing_cluster
    return standing_cluster
