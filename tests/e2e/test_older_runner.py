"""The program that a server starts as its runners is of another version: it was replaced, and the server was not restarted."""
import os
import pathlib
import re
import shutil

import pytest
from conftest import STOKER, held_port

VERSION = int(re.search(r"#define WIRE_VERSION (\d)\n", (pathlib.Path(__file__).parents[2] / "src/core/wire.h").read_text())[1])
CLAIM = b'"wire":%d}' % VERSION  # what a runner says of itself


@pytest.fixture
def program(empty_cluster):
    """Of a server that runs."""
    copy = empty_cluster.folder / "stoker"
    shutil.copy2(STOKER, copy)
    c = empty_cluster
    c.flags, c.port = ["--cpus", "4", "--memory", "4Gi"], held_port()
    c.launch([copy, "server", "--data", str(c.data), "--listen", f"127.0.0.1:{c.port}", *c.database_flags(), *c.flags])
    return copy


def replace(program, claim):
    """As an upgrade does: a new file by the old name."""
    code, new = program.read_bytes(), program.with_suffix(".new")
    assert code.count(CLAIM) == 1 and len(claim) == len(CLAIM)
    new.write_bytes(code.replace(CLAIM, claim))
    new.chmod(0o755)
    os.rename(new, program)


@pytest.mark.parametrize("claim, said", [(b'"wire":%d}' % (VERSION - 1), "an older Stoker"), (b'"wire":%d}' % (VERSION + 1), "a newer Stoker")], ids=["older", "newer"])
def test_a_runner_of_another_version(empty_cluster, program, claim, said):
    """Its job ends with what is wrong and where, and not by what it misunderstands; what ran before goes on."""
    c = empty_cluster
    runs = c.push([c.hold(), "echo over"])
    c.wait(runs, "TRAINING_JOB_RUNNING")
    replace(program, claim)
    job = c.wait(c.push(["echo ran"]), "TRAINING_JOB_DEPLOY_FAILED")
    assert job["error_id"] == "runner_version" and said in job["error_message"] and str(program) in job["error_message"], job
    assert "ran" not in c.user_lines(job)
    c.release(runs)
    c.wait(runs, "TRAINING_JOB_COMPLETED")
    c.stop()
    c.start()  # with a program that it understands
    c.wait(c.push(["true"]), "TRAINING_JOB_COMPLETED")


def test_a_runner_that_says_no_version(empty_cluster, program):
    """Runners of the first one did not."""
    replace(program, b'"wirE":9}')
    job = empty_cluster.wait(empty_cluster.push(["true"]), "TRAINING_JOB_DEPLOY_FAILED")
    assert job["error_id"] == "runner_version" and "an older Stoker" in job["error_message"], job
