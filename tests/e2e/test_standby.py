"""A second server waits beside the one that leads, on one PostgreSQL, and leads when that is gone."""
import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest
import test_serving as serving
from conftest import CALL_S, DEADLINE_S, STOKER, held_port, new_cluster, until
from postgres import server, target  # noqa: F401


class Pair:
    """The leader, and others on its database; each has a data folder of its own, as if on a machine of its own."""

    def __init__(self, pg, url, first, stack):
        self.pg, self.url, self.stack, self.leader = pg, url, stack, first
        (first.folder / "objects").mkdir()
        self.flags = ["--database", url, "--objects", f"dir:{first.folder}/objects", "--cpus", "4", "--memory", "4Gi"]

    @property
    def name(self):
        return self.url.rpartition("/")[2]

    def folder(self):
        """Of another server: with the key, and the token of its administrator."""
        c = self.stack.enter_context(new_cluster())
        c.data.mkdir()
        for name in ("master.key", "admin-token"):
            shutil.copy2(self.leader.data / name, c.data / name)
        return c

    def standby(self, *flags, port=None):
        c = self.folder()
        c.port = port
        end_jobs, c.end_jobs = c.end_jobs, lambda: role(c) == "leader" and end_jobs()
        c.start(*self.flags, "--standby", *flags, env=self.pg.env, says="standing by on http")
        assert health(c) == {"status": "ok", "role": "standby", "database": health(c)["database"]}
        return c

    def sql(self, text):
        return self.pg.sql(text, self.name)


@pytest.fixture
def pair(empty_cluster, server, target):  # noqa: F811
    with contextlib.ExitStack() as stack:
        p = Pair(server, target, empty_cluster, stack)
        empty_cluster.start(*p.flags, env=server.env)
        yield p


def health(c):
    status, said = c.api("GET", "/healthz", token="", timeout=5)
    assert status == 200, said
    return said


def role(c):
    """None: nobody answers yet, or it is just handing the port from one to the other."""
    with contextlib.suppress(OSError):
        return health(c)["role"]
    return None


def refused(c, *flags, env=None):
    """The id of the error of a server that cannot start, or ends by itself."""
    done = subprocess.run([STOKER, "server", "--data", c.data, "--listen", "127.0.0.1:0", *flags], env=c.environment(STOKER_ERRORS="json", **(env or {})),
                          capture_output=True, text=True, timeout=CALL_S)
    assert done.returncode != 0, done
    return json.loads(done.stderr.splitlines()[-1])["error"]["id"]


def test_the_leader_dies(pair):
    """kill -9: the standby leads, and knows everything."""
    a, b = pair.leader, pair.standby()
    a.cli("secrets", "set", "key", stdin="a-value-of-mine")
    job = a.push(["echo $SECRET >/dev/null; echo ran"], runtime={"environment_variables": {"SECRET": {"name": "key"}}})
    a.wait(job, "TRAINING_JOB_COMPLETED")
    events = a.json("events", job["id"])
    status, said = b.api("GET", "/v1/status")
    assert (status, said["error"]["id"]) == (503, "standby")
    until(lambda: a.url in b.api("GET", "/v1/status")[1]["message"])
    assert b.api("POST", "/v1/projects", {})[0] == b.api("PUT", "/s3/stoker/x", b"x" * 100000)[0] == b.api("GET", "/")[0] == 503
    assert b.error("ps") == "standby"
    assert [f["id"] for f in json.loads(b.cli("doctor", "-o", "json", code=1).out) if f["check"] == "server"] == ["standby"]
    assert health(a)["role"] == "leader"
    rows = pair.sql("SELECT count(*) FROM tokens")
    keys = a.api("GET", "/.well-known/jwks.json", token="")
    assert keys[0] == 200 and b.api("GET", "/.well-known/jwks.json", token="")[0] == 503
    began = time.monotonic()
    a.kill()
    until(lambda: role(b) == "leader")
    print(f"took over in {time.monotonic() - began:.1f} s")
    assert b.json("events", job["id"]) == events
    assert [j["id"] for j in b.json("ps", "-a")] == [job["id"]]
    assert [s["name"] for s in b.json("secrets", "ls")] == ["key"]
    assert pair.sql("SELECT count(*) FROM tokens") == rows
    assert b.api("GET", "/.well-known/jwks.json", token="") == keys  # clouds go on believing it
    again = b.push(["test $SECRET = a-value-of-mine"], runtime={"environment_variables": {"SECRET": {"name": "key"}}})
    b.wait(again, "TRAINING_JOB_COMPLETED")
    assert refused(a, *pair.flags, env=pair.pg.env) == "database_in_use"  # the first one is a server like any other now
    a.start(*pair.flags, "--standby", env=pair.pg.env, says="standing by on http")
    b.stop()  # in order: nothing is waited for
    until(lambda: role(a) == "leader")
    assert [j["id"] for j in a.json("ps", "-a")] == [again["id"], job["id"]]


def test_a_standby_is_named(pair):
    """While it waits, when it is silent, and when it is gone: also by the one that it has become."""
    a, b, host = pair.leader, pair.standby(), socket.gethostname()

    def known(c):
        said = c.api("GET", "/v1/status")[1]
        return [s["host"] for s in said["standbys"]], said["standby_gone"]

    def doctor(c):
        return [(f["verdict"], f["message"]) for f in json.loads(c.cli("doctor", "-o", "json", code=None).out) if f["check"] == "standby"]

    def age(seconds):
        pair.sql(f"UPDATE kv SET value = convert_to((extract(epoch FROM now()) * 1000 - {seconds} * 1000)::bigint || ' {host}', 'UTF8') WHERE key = 'standby'")

    until(lambda: known(a) == ([host], None))
    (verdict, said), = doctor(a)
    assert verdict == "ok" and said.startswith(f"standby: {host} waits (seen "), said
    assert "stoker_standbys 1\n" in a.api("GET", "/metrics", raw=True)[1].decode()
    b.process.send_signal(signal.SIGSTOP)
    try:
        until(lambda: a.api("GET", "/v1/status")[1]["standbys"][0]["seen_ms"] > 31000)
        (verdict, said), = doctor(a)
        assert verdict == "warn" and f"{host} has asked nothing for" in said, said
    finally:
        b.process.send_signal(signal.SIGCONT)
    until(lambda: a.api("GET", "/v1/status")[1]["standbys"][0]["seen_ms"] < 5000)
    until(lambda: pair.sql("SELECT count(*) FROM kv WHERE key = 'standby'") == "1")  # the janitor has passed
    a.kill()
    until(lambda: role(b) == "leader")
    assert known(b)[0] == [] and known(b)[1]["host"] == host
    age(10)
    assert [(v, f"none waits; {host} did" in m) for v, m in doctor(b)] == [("ok", True)]
    age(3600)
    assert [(v, f"none waits; {host} did" in m and "--standby" in m) for v, m in doctor(b)] == [("warn", True)]
    age(8 * 24 * 3600)
    assert known(b) == ([], None) and doctor(b) == []
    age(3600)
    a.start(*pair.flags, "--standby", env=pair.pg.env, says="standing by on http")
    until(lambda: known(b) == ([host], None))
    b.stop()
    until(lambda: role(a) == "leader")


def test_a_frozen_leader(pair):
    """Its sessions live as long as it is frozen; awake again, it changes nothing and ends."""
    a, b = pair.leader, pair.standby()
    a.process.send_signal(signal.SIGSTOP)
    asked = []

    def push():
        with contextlib.suppress(OSError):  # it ends without an answer
            asked.append(a.api("POST", "/v1/teams", {"name": "frozen"})[0])

    waits = threading.Thread(target=push)  # it is there when the server wakes up
    waits.start()
    try:
        until(lambda: role(b) == "leader")
        done = b.push(["true"])
        b.wait(done, "TRAINING_JOB_COMPLETED")
    finally:
        a.process.send_signal(signal.SIGCONT)
    assert a.process.wait(DEADLINE_S) != 0
    assert "another Stoker server leads now" in a.log.read_text()
    waits.join()
    assert not [status for status in asked if status < 300]
    assert "frozen" not in [t["name"] for t in b.json("teams", "ls")]
    assert health(b)["role"] == "leader"


def test_two_standbys(pair):
    a, others = pair.leader, [pair.standby(), pair.standby()]
    a.kill()
    until(lambda: sorted(filter(None, map(role, others))) == ["leader", "standby"])
    first = next(c for c in others if role(c) == "leader")
    second = next(c for c in others if c is not first)
    for _ in range(20):  # and it stays so
        assert (role(first), role(second)) == ("leader", "standby")
        time.sleep(0.5)
    first.kill()
    until(lambda: role(second) == "leader")
    second.wait(second.push(["true"]), "TRAINING_JOB_COMPLETED")


@pytest.mark.parametrize("how", ["restart", "kill", "freeze"])
def test_an_outage_of_the_database(pair, how):
    """Nobody has died: the leader goes on leading."""
    a, b = pair.leader, pair.standby()
    if how == "freeze":
        pair.pg.signal(signal.SIGSTOP)
        try:
            time.sleep(7)
        finally:
            pair.pg.signal(signal.SIGCONT)
    else:
        pair.pg.stop("fast") if how == "restart" else pair.pg.kill()
        until(lambda: health(b)["database"] == "away")
        time.sleep(8)
        assert health(b) == {"status": "ok", "role": "standby", "database": "away"}
        pair.pg.start()
    until(lambda: health(b)["database"] == "ok")
    for _ in range(20):
        assert (role(a), role(b)) == ("leader", "standby")
        time.sleep(0.5)
    until(lambda: a.cli("ps", code=None).code == 0)
    a.wait(a.push(["true"]), "TRAINING_JOB_COMPLETED")


def test_what_a_standby_refuses(pair):
    """What a takeover would fail by is said at its start."""
    c = pair.folder()
    standby = ["--standby", *pair.flags]
    assert refused(c, "--standby") == refused(c, "--standby", "--database", f"sqlite:{c.folder}/x.db") == "invalid"
    assert refused(c, *standby, "--check") == "invalid"
    assert refused(c, "--standby", "--database", pair.url, env=pair.pg.env) == "invalid"  # the objects would be the leader's alone
    for odd in (["--gpus", "nonsense"], ["--allow-source-network", "10.0.0.0/99"]):
        assert refused(c, *standby, *odd, env=pair.pg.env) == "invalid"
    other = c.folder / "objects"
    assert refused(c, *standby, "--objects", f"dir:{other}", env=pair.pg.env) == "objects_elsewhere"
    (other / "stoker.json").write_text('{"id": "another"}')
    assert refused(c, *standby, "--objects", f"dir:{other}", env=pair.pg.env) == "objects_foreign"
    (c.data / "master.key").write_text(base64.b64encode(bytes(32)).decode() + "\n")
    assert refused(c, *standby, env=pair.pg.env) == "master_key_wrong"
    (c.data / "master.key").unlink()
    assert refused(c, *standby, env=pair.pg.env) == "master_key_missing"
    assert not (c.data / "master.key").exists()
    pair.sql("UPDATE stoker_schema SET version = 9999")
    shutil.copy2(pair.leader.data / "master.key", c.data / "master.key")
    assert refused(c, *standby, env=pair.pg.env) == "database_newer"
    assert health(pair.leader)["role"] == "leader"


def lose_power(c):
    """As its machine would: the server, its runners and what they run."""
    c.kill()
    until(lambda: not [os.kill(int(line.split()[0]), signal.SIGKILL) for line in c.processes()])


AGAIN = {"retry": {"max_attempts": 2, "on": ["node_fail"]}}


def test_a_machine_dies(pair):
    """What ran there is lost once it was not heard of for --node-lost, and tried again here if it may be."""
    a, b = pair.leader, pair.standby("--node-lost", "10s")
    hold = f"test $BT_RETRY_COUNT -gt 0 || {a.hold()}; echo ran"
    again, once = a.push([hold], **AGAIN), a.push([a.hold()])
    for job in (again, once):
        a.wait(job, "TRAINING_JOB_RUNNING")
    lose_power(a)
    until(lambda: role(b) == "leader")
    assert b.api("GET", "/v1/status")[1]["nodes"][0]["millicpu_used"] == 0  # what others hold elsewhere is not held here
    assert b.job(once)["current_status"] == "TRAINING_JOB_RUNNING"  # not known to be over
    b.wait(again, "TRAINING_JOB_COMPLETED")
    last = b.wait(once, "TRAINING_JOB_FAILED")
    assert "was not heard of for 10s" in last["error_message"], last
    assert [line for line in b.user_lines(again) if line.endswith("ran")]
    rows = pair.sql(f"SELECT count(DISTINCT node_id) FROM attempts WHERE job_id = '{again['id']}'")
    assert rows == "2"


def test_nothing_was_launched_yet(pair):
    """A job that only had its place there gets another one, and no attempt of it is counted."""
    a = pair.leader
    a.stop()
    a.start(*pair.flags, env={**pair.pg.env, "STOKER_CRASH_AT": "place:after"})
    b = pair.standby()
    a.cli("push", a.job_folder(["echo ran"]) / "train.yaml", code=None)  # it ends before it answers
    assert a.process.wait(DEADLINE_S) == 9
    until(lambda: role(b) == "leader")
    job, = b.json("ps", "-a")
    b.wait(job, "TRAINING_JOB_COMPLETED")
    assert [line for line in b.user_lines(job) if line.endswith("ran")]
    assert b.job(job)["attempt"] == 1


def test_a_runner_finds_the_new_leader(pair):
    """The job goes on and completes, and each line of its log is there once."""
    a, port = pair.leader, held_port()
    urls = f"http://127.0.0.1:{a.port},http://127.0.0.1:{port}"
    a.stop()
    a.start(*pair.flags, "--node-url", urls, env=pair.pg.env)
    b = pair.standby("--node-url", urls, "--node-lost", "60s", port=port)
    job = a.push([f"echo one; {a.hold()}; echo two; exit 0"], **AGAIN)
    until(lambda: "one" in a.user_lines(job))
    a.kill()
    until(lambda: role(b) == "leader")
    b.release(job)
    last = b.wait(job, "TRAINING_JOB_COMPLETED")
    assert last["attempt"] == 1
    assert [line for line in b.user_lines(job) if line in ("one", "two")] == ["one", "two"]


def test_a_deployment_is_rolled_on_meanwhile(pair):
    """In the middle of a roll the database dies and is back; then the server dies, and the standby's jobs answer, though those beside the first one still run."""
    a, port = pair.leader, held_port()
    urls = f"http://127.0.0.1:{a.port},http://127.0.0.1:{port}"
    a.stop()
    a.start(*pair.flags, "--node-url", urls, env=pair.pg.env)
    b = pair.standby("--node-url", urls, "--node-lost", "60s", port=port)
    job = serving.trained(a, (1,), {"engine.py": serving.ENGINE})
    serving.deployed(a, job["id"])
    serving.is_up(a, 1)
    second = a.json("deploy", job["id"], *serving.COMMAND, "-e", "ENGINE_NAME=second", "--memory", "128Mi")
    pair.pg.kill()
    pair.pg.start()
    until(lambda: a.api("GET", "/deployments/mine/v1/models")[0] == 200)
    assert a.api("GET", "/deployments/mine/v1/models")[1]["data"][0]["id"] == "first"
    assert [r for r, _ in serving.jobs_of(a)] == [2, 1]
    a.wait({"id": second["training_job_id"]}, "TRAINING_JOB_RUNNING")
    a.kill()
    until(lambda: role(b) == "leader")
    [here] = serving.is_up(b, 2)["jobs"]
    assert here["training_job_id"] != second["training_job_id"]
    assert b.api("GET", "/deployments/mine/v1/models")[1]["data"][0]["id"] == "second"
    until(lambda: [j["id"] for j in b.json("ps")] == [here["training_job_id"]])
    b.cli("deployments", "rm", "mine", "--yes")
    until(lambda: b.json("ps") == [])


def test_what_may_be_listed(pair):
    c = pair.folder()
    assert refused(c, "--node-url", "ftp://a") == refused(c, "--node-url", "http://example.com:8000") == "invalid"


def test_a_lost_runner_reappears(pair):
    """Its attempt is over and another one runs: it is refused, and ends what it ran."""
    a, port = pair.leader, held_port()
    urls = f"http://127.0.0.1:{a.port},http://127.0.0.1:{port}"
    a.stop()
    a.start(*pair.flags, "--node-url", urls, env=pair.pg.env)
    b = pair.standby("--node-url", urls, "--node-lost", "10s", port=port)
    job = a.push([f"test $BT_RETRY_COUNT -gt 0 || {a.hold()}; echo ran"], **AGAIN)
    a.wait(job, "TRAINING_JOB_RUNNING")
    runners = [int(line.split()[0]) for line in a.processes() if " runner " in line]
    for pid in runners:
        os.kill(pid, signal.SIGSTOP)
    try:
        a.kill()
        until(lambda: role(b) == "leader")
        b.wait(job, "TRAINING_JOB_COMPLETED")
    finally:
        for pid in runners:
            os.kill(pid, signal.SIGCONT)
    until(lambda: not [line for line in a.processes() if " runner " in line])
    assert b.job(job)["attempt"] == 2
    assert [line for line in b.user_lines(job) if line == "ran"] == ["ran"]
