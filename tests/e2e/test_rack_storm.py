"""One fault after another, on four machines, while jobs are pushed, run and save, and rows are written: nothing that was answered is lost, two never
lead, and every job completes. STOKER_STORM_ROUNDS and STOKER_STORM_SEED make it longer, and another one."""
import contextlib
import os
import random
import signal
import threading
import time

from conftest import until
from test_objects import CKPT, save
from test_rack import house, pytestmark  # noqa: F401
from test_standby import health, role

ROUNDS = int(os.environ.get("STOKER_STORM_ROUNDS", "7"))
SEED = int(os.environ.get("STOKER_STORM_SEED", "1"))
LOST = ["--node-lost", "10s"]
LINES = [f"line {i}" for i in range(1, 6)]


class Crowd:
    """Writes rows wherever it may, and looks who says that it leads."""

    def __init__(self, servers):
        self.servers, self.answered, self.both, self.over = servers, [], 0, threading.Event()
        self.threads = [threading.Thread(target=t, daemon=True) for t in (self.write, self.look)]
        for t in self.threads:
            t.start()

    def write(self):
        n = 0
        while not self.over.wait(0.1):
            for c in self.servers:
                n += 1
                with contextlib.suppress(OSError, ValueError):  # nobody answers, or the answer was cut off
                    if c.api("POST", "/v1/teams", {"name": f"team-{n}"}, timeout=5)[0] < 300:
                        self.answered.append(f"team-{n}")

    def look(self):
        while not self.over.wait(0.05):
            self.both += len([c for c in self.servers if leads(c)]) > 1

    def end(self):
        self.over.set()
        for t in self.threads:
            t.join()


def leads(c):
    """As a load balancer asks."""
    with contextlib.suppress(OSError, ValueError, AssertionError):
        said = health(c)
        return (said["role"], said["database"]) == ("leader", "ok")
    return False


class Storm:
    def __init__(self, house):  # noqa: F811
        self.house, self.servers, self.store, self.db = house, house.both(*LOST), house.store, house.db
        self.jobs = []

    def leader(self):
        until(lambda: any(map(leads, self.servers)))
        return next((c for c in self.servers if leads(c)), None) or self.leader()

    def push(self, c, seconds):
        """Pushed and answered, or not pushed as far as anybody knows."""
        folder = c.job_folder([save("checkpoint-1"), f"for i in 1 2 3 4 5; do echo line $i; sleep {seconds:.1f}; done; exit 0"],
                              retry={"max_attempts": 10, "on": ["node_fail"]}, runtime={**CKPT, "load_checkpoint_config": {"enabled": True}})
        done = c.cli("push", folder / "train.yaml", "-q", code=None)
        if done.code == 0:
            self.jobs.append({"id": done.out.strip()})

    def revive(self):
        """Whoever is dead stands by again."""
        for c in self.servers:
            if c.host.process is None:
                c.host.boot()
            if c.process.poll() is not None:
                self.house.stand_by(c, *LOST)

    def settle(self):
        """Until one leads and the other one stands by: a leader that was cut off takes a moment to end."""
        def both():
            self.revive()
            return sorted(str(role(c)) for c in self.servers) == ["leader", "standby"]

        until(both)

    def store_is_back(self):
        self.store.host.boot()
        self.store.start()

    def db_is_back(self):
        self.db.host.boot()
        self.db.forget()
        self.db.start()

    # Each begins, lasts, and ends what does not end by itself.
    def leader_dies(self, c, lasts):
        c.host.cut_power()
        lasts()

    def leader_is_killed(self, c, lasts):
        c.host.signal(c.process, signal.SIGKILL)
        lasts()

    def leader_is_frozen(self, c, lasts):
        c.host.signal(c.process, signal.SIGSTOP)
        lasts()
        c.host.signal(c.process, signal.SIGCONT)

    def leader_is_unplugged(self, c, lasts):
        c.host.unplug()
        lasts()
        c.host.plug()

    def other_dies(self, c, lasts):
        next(o for o in self.servers if o is not c).host.cut_power()
        lasts()

    def db_dies(self, c, lasts):
        self.db.host.cut_power()
        lasts()
        self.db_is_back()

    def db_is_unplugged(self, c, lasts):
        self.db.host.unplug()
        lasts()
        self.db.host.plug()

    def store_dies(self, c, lasts):
        self.store.host.cut_power()
        lasts()
        self.store_is_back()

    def store_is_unplugged(self, c, lasts):
        self.store.host.unplug()
        lasts()
        self.store.host.plug()

    def leader_and_store_die(self, c, lasts):
        self.leader_dies(c, lambda: self.store_dies(c, lasts))

    def leader_and_db_die(self, c, lasts):
        self.leader_dies(c, lambda: self.db_dies(c, lasts))

    def leader_and_store_are_unplugged(self, c, lasts):
        self.leader_is_unplugged(c, lambda: self.store_is_unplugged(c, lasts))


FAULTS = [Storm.leader_dies, Storm.leader_is_killed, Storm.leader_is_frozen, Storm.leader_is_unplugged, Storm.other_dies, Storm.db_dies,
          Storm.db_is_unplugged, Storm.store_dies, Storm.store_is_unplugged, Storm.leader_and_store_die, Storm.leader_and_db_die,
          Storm.leader_and_store_are_unplugged]


def test_a_storm(house):  # noqa: F811
    rnd, storm = random.Random(SEED), Storm(house)
    crowd = Crowd(storm.servers)
    for n in range(ROUNDS):
        leader, fault, seconds = storm.leader(), rnd.choice(FAULTS), rnd.random() * 12
        storm.push(leader, rnd.random() * 3)
        time.sleep(rnd.random() * 4)
        print(f"{n + 1} {fault.__name__} for {seconds:.1f} s", flush=True)
        fault(storm, leader, lambda s=seconds: time.sleep(s))
        storm.settle()
    leader = storm.leader()
    crowd.end()
    assert not crowd.both
    assert set(crowd.answered) <= {t["name"] for t in leader.json("teams", "ls")}
    for job in storm.jobs:
        leader.wait(job, "TRAINING_JOB_COMPLETED")
        assert [line for line in leader.user_lines(job) if line in LINES][-5:] == LINES
        assert [c for c in leader.json("checkpoints", "ls", job["id"]) if c["state"] == "COMPLETE"]
    print(f"{len(storm.jobs)} jobs, {len(crowd.answered)} rows")
    assert storm.jobs and crowd.answered
    assert {role(c) for c in storm.servers if c is not leader} == {"standby"}
