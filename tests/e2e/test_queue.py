"""The line of waiting jobs: who starts when, who is let past, what is held by whom."""
import contextlib
import sqlite3

from conftest import until


def small(cpus):
    return {"cpu_count": cpus, "memory": "256Mi"}


def test_an_idle_cpu_is_used(cluster):
    """A 1-CPU job starts past a 4-CPU one that waits; where the wait has an end, only what ends in time does."""
    first = cluster.push([cluster.hold()], compute=small(3))
    cluster.wait(first, "TRAINING_JOB_RUNNING")
    wide = cluster.push(["true"], compute=small(4))
    one = cluster.push([cluster.hold()], compute=small(1))
    cluster.wait(one, "TRAINING_JOB_RUNNING")
    cluster.release(first)
    cluster.wait(first, "TRAINING_JOB_COMPLETED")
    assert cluster.job(wide)["started_at"] is None
    cluster.release(one)
    cluster.wait(wide, "TRAINING_JOB_COMPLETED")


def test_a_push_answers_with_what_the_queue_made_of_it(cluster):
    """Under load the queue may come too late for one reply, not for all of them."""
    def placed():
        job = cluster.push(["true"], compute=small(1))
        cluster.wait(job, "TRAINING_JOB_COMPLETED")
        return job["current_status"] != "TRAINING_JOB_PENDING"

    until(placed)
    first = cluster.push([cluster.hold()], compute=small(4))
    cluster.wait(first, "TRAINING_JOB_RUNNING")

    def waits():
        job = cluster.push(["true"], compute=small(1))
        again = cluster.json("recreate", job["id"])
        for each in job, again:
            cluster.cli("stop", each["id"])
            assert each["current_status"] == "TRAINING_JOB_PENDING"
        return job["reason"] and again["reason"] and job["reason"] == job["error_message"]

    until(waits)
    cluster.release(first)
    cluster.wait(first, "TRAINING_JOB_COMPLETED")


def test_nothing_passes_a_known_start(cluster):
    first = cluster.push([cluster.hold()], compute=small(3), limits={"max_duration": "1h"})
    cluster.wait(first, "TRAINING_JOB_RUNNING")
    wide = cluster.push(["true"], compute=small(4))
    unknown = cluster.push(["true"], compute=small(1))
    longer = cluster.push(["true"], compute=small(1), limits={"max_duration": "2h"})
    short = cluster.push(["true"], compute=small(1), limits={"max_duration": "10m"})
    cluster.wait(short, "TRAINING_JOB_COMPLETED")
    for job in wide, unknown, longer:
        assert cluster.job(job)["started_at"] is None
    cluster.release(first)
    for job in wide, unknown, longer:
        cluster.wait(job, "TRAINING_JOB_COMPLETED")


def test_a_missing_gpu_is_the_reason_that_is_given(cluster):
    """The project's cache is here, but the machine has no GPUs at all: that is why the job can never run."""
    cached = cluster.push(["true"], runtime={"cache_config": {"enabled": True}})
    cluster.wait(cached, "TRAINING_JOB_COMPLETED")
    folder = cluster.job_folder(["true"], compute={**small(1), "accelerator": "H100:1"},
                                runtime={"cache_config": {"enabled": True}})
    result = cluster.cli("push", folder / "train.yaml", code=5, env={"STOKER_ERRORS": "json"})
    assert '"job_never_fits"' in result.err and "affinity" not in result.err and "H100" in result.err, result


def test_a_waiting_job_of_a_newer_version_runs(cluster):
    """What is stored was validated when it was pushed: fields that this version does not know are no fault of the job."""
    first = cluster.push([cluster.hold()], compute=small(4))
    cluster.wait(first, "TRAINING_JOB_RUNNING")
    waits = cluster.push(["echo ran"], compute=small(4))
    cluster.stop()
    with contextlib.closing(sqlite3.connect(cluster.data / "stoker.db")) as db, db:
        db.execute("UPDATE jobs SET spec_json = json_set(spec_json, '$.compute.newfield', json('{\"x\":1}'), '$.later', 1) WHERE id = ?",
                   (waits["id"],))
    cluster.restart()
    cluster.release(first)
    cluster.wait(waits, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(waits) == ["ran"]
