"""Clocks that differ by minutes: of the object store, the runners, another server and a client against the server's own."""
import contextlib
import glob
import json
import os
import re
import signal
import time

import pytest
from conftest import until
from postgres import server, target  # noqa: F401
from s3 import PREFIX, SECRET, flags, minio  # noqa: F401
from test_objects import CKPT, cannot_start, health, save
from test_standby import AGAIN, Pair, lose_power, role

LIBRARY = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
assert LIBRARY, "no libfaketime here: tools/parts.sh unit installs it"
ASAN = "verify_asan_link_order=0"  # it is preloaded, so it comes before


class Clock:
    """The time of one program, which may be set while it runs; what it measures by (CLOCK_MONOTONIC) goes on as it does."""

    def __init__(self, cluster, offset="+0"):
        self.cluster, self.file = cluster, cluster.folder / "clock"
        self.set(offset)

    def set(self, offset):
        new = self.file.with_suffix(".new")
        new.write_text(offset + "\n")
        new.rename(self.file)

    @property
    def env(self):
        """Runners get an environment of their own, and have the machine's time. Without FORCE_MONOTONIC_FIX=0 no wait of a thread lasts: the
        library takes its end, a time of CLOCK_MONOTONIC, for one that has long passed."""
        asan = self.cluster.environment()["ASAN_OPTIONS"]
        return {"LD_PRELOAD": LIBRARY[0], "FAKETIME_TIMESTAMP_FILE": str(self.file), "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "FAKETIME_FORCE_MONOTONIC_FIX": "0", "ASAN_OPTIONS": f"{asan}:{ASAN}"}


def push(c, clock, *commands, **more):
    """By a client that has the server's time."""
    folder = c.job_folder(list(commands), **more)
    return json.loads(c.cli("push", folder / "train.yaml", "-o", "json", env=clock.env).out)


def said_problem(c):
    return c.api("GET", "/v1/status")[1]["objects_problem"]


@pytest.mark.parametrize("offset", ["+20m", "-20m"])
def test_a_store_with_another_time_at_the_start(empty_cluster, minio, offset):
    """It is said that the clocks are the reason, and nothing is left behind that a start with the right time stumbles over."""
    c = empty_cluster
    assert cannot_start(c, *flags(c, minio), **Clock(c, offset).env) == "clock_differs"
    assert minio.keys() == []
    c.start(*flags(c, minio))
    c.wait(c.push(["true"]), "TRAINING_JOB_COMPLETED")


def test_the_clock_of_a_server_jumps(empty_cluster, minio):
    """While a job runs and saves: it goes on, the clocks are named, and all of it arrives once they agree."""
    c = empty_cluster
    clock = Clock(c)
    c.start(*flags(c, minio), env=clock.env)
    job = c.push(["echo up", c.hold("one"), save("checkpoint-1", 5), "echo saved", c.hold("two")], runtime=CKPT)
    c.wait(job, "TRAINING_JOB_RUNNING")
    clock.set("+20m")
    until(lambda: health(c) == "away")
    until(lambda: "clock" in said_problem(c))
    assert SECRET not in said_problem(c)
    c.release(job, "one")
    until(lambda: "saved" in c.user_lines(job))
    assert c.error("push", c.job_folder(["true"], files={"a": "b"}) / "train.yaml", env=clock.env) in ("clock_differs", "unavailable", "denied")
    clock.set("+0")
    until(lambda: health(c) == "ok")
    c.release(job, "two")
    c.wait(job, "TRAINING_JOB_COMPLETED")
    assert f"{PREFIX}/training_projects/{job['training_project']['id']}/jobs/{job['id']}/rank-0/checkpoint-1/w.bin" in minio.keys()


@pytest.mark.parametrize("offset", ["+30m", "-30m"])
def test_a_runner_with_another_time(empty_cluster, offset):
    """What a job may use and how long it ran are counted by one clock; its lines are all there."""
    clock = Clock(empty_cluster, offset)
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi", env=clock.env)

    done = push(c, clock, "echo one; sleep 2; echo two", save("checkpoint-1"), runtime=CKPT, limits={"max_duration": "10m"})
    last = c.wait(done, "TRAINING_JOB_COMPLETED")
    assert c.user_lines(done)[:2] == ["one", "two"]
    assert last["created_at"] <= last["started_at"] < last["ended_at"] <= last["updated_at"], last  # all by the server's clock
    assert [c["state"] for c in c.json("checkpoints", "ls", done["id"])] == ["COMPLETE"]
    long = c.wait(push(c, clock, "sleep 1000", limits={"max_duration": "3s"}), "TRAINING_JOB_FAILED")
    assert "limits.max_duration" in long["error_message"]


def test_the_clock_of_a_server_is_set_back(empty_cluster):
    """What it heard in a time that is still to come keeps no dead runner alive."""
    clock = Clock(empty_cluster, "+20m")
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi", env=clock.env)
    job = push(c, clock, c.hold())
    c.wait(job, "TRAINING_JOB_RUNNING")
    clock.set("+0")
    for line in c.processes():
        if " runner " in line:
            os.kill(int(line.split()[0]), signal.SIGKILL)
    c.wait(job, "TRAINING_JOB_FAILED")
    c.wait(c.push(["true"]), "TRAINING_JOB_COMPLETED")


@pytest.mark.parametrize("first, second", [("+20m", "-20m"), ("-20m", "+20m")], ids=["behind", "ahead"])
def test_servers_with_other_times(empty_cluster, server, target, first, second):  # noqa: F811
    """Who leads is not decided by a clock; a job that the first one had is judged, tried again and ends with the second one as ever."""
    with contextlib.ExitStack() as stack:
        pair = Pair(server, target, empty_cluster, stack)
        clock = Clock(pair.leader, first)
        a = pair.leader.start(*pair.flags, env={**server.env, **clock.env})
        b = pair.folder()
        other = Clock(b, second)
        end_jobs, b.end_jobs = b.end_jobs, lambda: role(b) == "leader" and end_jobs()
        b.start(*pair.flags, "--standby", "--node-lost", "10s", env={**server.env, **other.env}, says="standing by on http")
        job = push(a, clock, f"test $BT_RETRY_COUNT -gt 0 || {a.hold()}; echo ran", **AGAIN)
        a.wait(job, "TRAINING_JOB_RUNNING")
        for _ in range(16):
            assert (role(a), role(b)) == ("leader", "standby")
            time.sleep(0.5)
        lose_power(a)
        until(lambda: role(b) == "leader")
        b.wait(job, "TRAINING_JOB_COMPLETED")
        assert b.job(job)["attempt"] == 2 and [line for line in b.user_lines(job) if line == "ran"] == ["ran"]
        b.wait(push(b, other, "true"), "TRAINING_JOB_COMPLETED")


@pytest.mark.parametrize("offset, seconds", [("+20m", 1200), ("-20m", -1200), ("+3m", 180), ("+1m", 60)])
def test_a_client_with_another_time(cluster, offset, seconds):
    """doctor names it; a push, which signs what it uploads, says it instead of a refused signature."""
    env, folder = Clock(cluster, offset).env, cluster.job_folder(["cat a"], files={"a": "b"})
    found = {f["check"]: f for f in json.loads(cluster.cli("doctor", "-o", "json", env=env, code=None).out)}
    assert found["clock"]["verdict"] == ("ok" if offset == "+1m" else "warn"), found
    said = int(re.search(r"differ by (-?\d+) s", found["clock"]["message"])[1])
    assert abs(said - seconds) <= 10, found  # the two ask one after the other
    if "20" not in offset:
        job = json.loads(cluster.cli("push", folder / "train.yaml", "-o", "json", env=env).out)
        cluster.wait(job, "TRAINING_JOB_COMPLETED")
        return
    assert found["upload"]["verdict"] == "fail"
    refused = cluster.refusal("push", folder / "train.yaml", env=env)["error"]["message"]
    assert "clock" in refused and "15 minutes" in refused, refused
    assert not cluster.json("ps", "-a")
