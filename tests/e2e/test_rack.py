"""Machines whose power is cut and whose cables are pulled, one by one: the database's, the store's, the leader's, the standby's. Unlike a
process that is killed, a machine does not close its connections."""
import contextlib
import os
import shutil
import threading
import time

import pytest
from conftest import new_cluster, until
from postgres import Postgres
from rack import a_rack
from s3 import S3Server, flags
from test_objects import CKPT, save
from test_standby import AGAIN, health, role


pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root makes machines out of namespaces")


class House:
    """PostgreSQL, MinIO, a leader and a standby, each on a machine of its own."""

    def __init__(self, stack):
        self.stack, self.rack = stack, stack.enter_context(a_rack())
        self.db, self.store = Postgres(self.rack.host()), None
        stack.callback(self.db.close)
        self.first, self.second = self.server(), self.server()
        self.store = S3Server(self.first.folder, "minio", self.rack.host())
        self.store.start()
        stack.callback(self.store.close)
        self.store.client.create_bucket(Bucket="data")
        urls = ",".join(f"http://{c.host.address}:{c.port}" for c in (self.first, self.second))
        self.flags = ["--insecure", "--database", self.db.url(), "--node-url", urls, *flags(self.first, self.store)]

    def server(self):
        c = self.stack.enter_context(new_cluster())
        c.host, c.port = self.rack.host(), 8700
        end_jobs, c.end_jobs = c.end_jobs, lambda: c.process and role(c) == "leader" and end_jobs()
        return c

    def lead(self, c, *flags):
        c.start(*self.flags, *flags, env=self.db.env)

    def stand_by(self, c, *flags):
        if not (c.data / "master.key").exists():
            c.data.mkdir()
            for name in ("master.key", "admin-token"):
                shutil.copy2(self.first.data / name, c.data / name)
        c.start(*self.flags, "--standby", *flags, env=self.db.env, says="standing by on http")

    def both(self, *flags):
        self.lead(self.first, *flags)
        self.stand_by(self.second, *flags)
        return self.first, self.second


@pytest.fixture
def house():
    with contextlib.ExitStack() as stack:
        yield House(stack)


class Writer:
    """Somebody who never stops to change rows. What was answered is there for ever."""

    def __init__(self, c):
        self.c, self.answered, self.over = c, [], False
        self.thread = threading.Thread(target=self.go, daemon=True)
        self.thread.start()

    def go(self):
        n = 0
        while not self.over:
            n += 1
            with contextlib.suppress(OSError):  # nobody answers, or the answer was cut off
                if self.c.api("POST", "/v1/teams", {"name": f"team-{n}"}, timeout=5)[0] < 300:
                    self.answered.append(f"team-{n}")
            time.sleep(0.05)

    def end(self):
        self.over = True
        self.thread.join()

    def check(self, c):
        there = {t["name"] for t in c.json("teams", "ls")}
        assert self.answered and set(self.answered) <= there, set(self.answered) - there


def test_the_leaders_machine(house):
    """While it writes rows: the standby leads, and retries what ran there. Switched on again, the first one stands by."""
    a, b = house.both("--node-lost", "10s")
    runs = a.push([f"if test $BT_RETRY_COUNT -eq 0; then {save('checkpoint-1', 3)}; {a.hold()}; fi", "sha256sum < $(find $STOKER_RESUME_FROM -name w.bin)"],
                  **AGAIN, runtime={**CKPT, "load_checkpoint_config": {"enabled": True}})
    until(lambda: [c for c in a.json("checkpoints", "ls", runs["id"]) if c["state"] == "COMPLETE"] and a.user_lines(runs))
    digest, = a.user_lines(runs)
    writer = Writer(a)
    until(lambda: len(writer.answered) >= 3)
    began = time.monotonic()
    a.host.cut_power()
    until(lambda: role(b) == "leader")
    print(f"took over in {time.monotonic() - began:.1f} s")
    writer.end()
    writer.check(b)
    b.wait(runs, "TRAINING_JOB_COMPLETED")
    assert b.user_lines(runs)[-1] == digest
    assert b.job(runs)["attempt"] == 2
    a.host.boot()
    house.stand_by(a, "--node-lost", "10s")
    assert role(a) == "standby"
    b.host.cut_power()
    until(lambda: role(a) == "leader")
    assert a.user_lines(runs)[-1] == digest
    writer.check(a)


def test_the_leaders_cable(house):
    """It runs on, and leads nobody: plugged in again it ends. Its job goes on all the time, and its runner finds the new leader."""
    a, b = house.both("--node-lost", "120s")
    job = a.push([f"echo one; {a.hold()}; echo two; exit 0"])
    until(lambda: "one" in a.user_lines(job))
    a.host.unplug()
    until(lambda: role(b) == "leader")
    assert b.job(job)["current_status"] == "TRAINING_JOB_RUNNING"
    a.host.plug()
    until(lambda: a.process.poll() is not None)
    assert "another Stoker server leads now" in a.log.read_text()
    assert role(b) == "leader"
    until(lambda: b.cli("exec", job["id"], "--", "touch", "/tmp/go", code=None).code == 0)
    last = b.wait(job, "TRAINING_JOB_COMPLETED")
    assert last["attempt"] == 1
    assert [line for line in b.user_lines(job) if line in ("one", "two")] == ["one", "two"]


def test_cut_off_from_the_database(house):
    """Clients and runners reach it still; it says that the database is away, and nothing that it answers is lost."""
    a, b = house.both()
    house.db.host.run("ip", "route", "add", "blackhole", f"{a.host.address}/32")
    writer = Writer(a)
    until(lambda: role(b) == "leader")
    assert health(a) == {**health(b), "database": "away"}
    time.sleep(3)
    house.db.host.run("ip", "route", "delete", "blackhole", f"{a.host.address}/32")
    until(lambda: a.process.poll() is not None)
    writer.end()
    assert writer.answered == []
    done = b.push(["true"])
    b.wait(done, "TRAINING_JOB_COMPLETED")
    assert [j["id"] for j in b.json("ps", "-a")] == [done["id"]]


def test_the_databases_machine(house):
    """Whoever leads afterwards, it is one; what was answered is there, and the job has not noticed."""
    a, b = house.both("--node-lost", "120s")
    job = a.push([f"echo one; {a.hold()}; echo two; exit 0"])
    until(lambda: "one" in a.user_lines(job))
    writer = Writer(a)
    until(lambda: len(writer.answered) >= 3)
    house.db.host.cut_power()
    until(lambda: role(a) is None or health(a)["database"] == "away")
    time.sleep(5)
    house.db.host.boot()
    house.db.forget()
    house.db.start()
    writer.end()
    until(lambda: sorted(filter(None, map(role, (a, b)))) in (["leader", "standby"], ["leader"]))
    leader = next(c for c in (a, b) if role(c) == "leader")
    writer.check(leader)
    until(lambda: leader.cli("exec", job["id"], "--", "touch", "/tmp/go", code=None).code == 0)
    leader.wait(job, "TRAINING_JOB_COMPLETED")
    assert [line for line in leader.user_lines(job) if line in ("one", "two")] == ["one", "two"]


def test_the_stores_machine(house):
    """A job that saves meanwhile does not notice; its checkpoint is there when the store is."""
    a, _ = house.both()
    job = a.push(["echo one", a.hold(), save("checkpoint-1", 3)], runtime=CKPT)
    until(lambda: "one" in a.user_lines(job))
    house.store.host.cut_power()
    a.release(job)
    until(lambda: health(a).get("objects") == "away")
    assert "away" in a.cli("doctor", code=None).out
    time.sleep(5)
    assert a.job(job)["current_status"] == "TRAINING_JOB_RUNNING"
    house.store.host.boot()
    house.store.start()
    a.wait(job, "TRAINING_JOB_COMPLETED")
    kept, = a.json("checkpoints", "ls", job["id"])
    assert kept["state"] == "COMPLETE"
    until(lambda: "objects" not in health(a) or health(a)["objects"] == "ok")


def test_the_standbys_machine(house):
    """Nobody notices; a new one takes its place, and then the leader's."""
    a, b = house.both()
    b.host.cut_power()
    a.wait(a.push(["true"]), "TRAINING_JOB_COMPLETED")
    assert role(a) == "leader"
    b.host.boot()
    house.stand_by(b)
    a.host.cut_power()
    until(lambda: role(b) == "leader")
    b.wait(b.push(["true"]), "TRAINING_JOB_COMPLETED")
