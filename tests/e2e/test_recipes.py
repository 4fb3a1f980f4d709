"""Trainings as people write them for the client: config.py, run.sh and a script, pushed as they are."""
import os
import shutil

import pytest
from conftest import PARTS, ROOT
from test_sources import misbehaving
from truss_client import Client, latest

pytestmark = pytest.mark.timeout(1800)

RECIPES = ROOT / "tests/e2e/recipes"


@pytest.fixture
def hub(empty_cluster):
    """An endpoint with the model's true files."""
    with misbehaving(PARTS / "model") as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def truss(empty_cluster, hub):
    empty_cluster.start("--cpus", "2", "--memory", "8Gi", "--images", "host", "--share", str(PARTS / "trainer"), "--hf-endpoint", hub,
                        "--allow-source-network", "127.0.0.0/8")
    empty_cluster.cli("secrets", "set", "hf_access_token", stdin="hf_anything")
    return Client(empty_cluster)


def push(truss, name):
    """Pushes a copy of the recipe; where an image would bring python, run.sh is told of one."""
    folder = shutil.copytree(RECIPES / name, truss.cluster.folder / f"recipe-{name}-{os.urandom(3).hex()}")
    script = folder / "run.sh"
    script.write_text(script.read_text().replace("PYTHON:-python", f"PYTHON:-{PARTS}/trainer/bin/python"))
    if not (folder / "train.py").exists():
        shutil.copy(RECIPES / "trainer/train.py", folder)
    truss.train("push", "config.py", cwd=folder)
    return truss.cluster.wait(latest(truss.cluster), "TRAINING_JOB_COMPLETED", deadline=800)


def checkpoints(truss, job):
    return {c["checkpoint_id"] for c in truss.cluster.json("checkpoints", "ls", job["id"]) if c["state"] == "COMPLETE"}


def test_from_scratch_twice(truss):
    job = push(truss, "mlp")
    lines = truss.cluster.user_lines(job)
    assert "data: made" in lines and any(line.startswith("epoch 3 loss 0.") for line in lines)
    assert checkpoints(truss, job) == {"checkpoint-1", "checkpoint-2", "checkpoint-3"}
    assert "data: found in the cache" in truss.cluster.user_lines(push(truss, "mlp"))


def test_fine_tuning_and_going_on(truss):
    job = push(truss, "finetune")
    # the trainer keeps one: checkpoint-2 is taken away while it may still be on its way
    assert "step 4/4 loss" in truss.cluster.logs(job) and "checkpoint-4" in checkpoints(truss, job)
    more = push(truss, "resume")
    lines = truss.cluster.logs(more)
    assert "resuming from /tmp/loaded_checkpoints/rank-0/checkpoint-4" in lines and "done: 6 steps" in lines
    assert "dataset: found in the project cache" in lines
