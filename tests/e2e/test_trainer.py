"""A real training: fine-tuning a real model on real text, with the Hugging Face Trainer in an environment of the machine."""
import json

import pytest
from conftest import PARTS, ROOT

pytestmark = pytest.mark.timeout(1800)


def train(cluster, *flags):
    result = cluster.cli("push", ROOT / "tests/e2e/recipes/trainer/train.yaml", "--set", f"job.weights[0].source=file://{PARTS}/model",
                         "-e", f"PYTHON={PARTS}/trainer/bin/python", "-e", "STEPS=8", "-e", "OMP_NUM_THREADS=1", *flags, "-o", "json")
    return json.loads(result.out)


def start(cluster):
    cluster.start("--cpus", "2", "--memory", "8Gi", "--allow-file-root", str(PARTS / "model"), "--share", str(PARTS / "trainer"))


def test_fine_tuning_twice(empty_cluster):
    cluster = empty_cluster
    start(cluster)
    job = train(cluster)
    done = cluster.wait(job, "TRAINING_JOB_COMPLETED", deadline=800)
    lines = cluster.logs(job)
    assert "step 8/8 loss" in lines and "kept in the project cache" in lines
    # save_total_limit=1 removed the first one from the job's disk: it was shipped all the same
    found = {c["checkpoint_id"]: c for c in cluster.json("checkpoints", "ls", job["id"]) if c["checkpoint_id"].startswith("checkpoint-")}
    assert {name: c["state"] for name, c in found.items()} == {"checkpoint-4": "COMPLETE", "checkpoint-8": "COMPLETE"}
    assert found["checkpoint-8"]["checkpoint_type"] == "full" and found["checkpoint-8"]["size_bytes"] > 200e6
    assert done["checkpoint_sync_status"] == "COMPLETED"
    assert done["weights"][0]["bytes"] > 90e6

    again = train(cluster, "--set", f"job.runtime.load_checkpoint_config={{enabled: true, checkpoints: [{{latest: {{job: {job['id']}}}}}]}}",
                       "-e", "STEPS=12")
    cluster.wait(again, "TRAINING_JOB_COMPLETED", deadline=800)
    lines = cluster.logs(again)
    assert "dataset: found in the project cache" in lines
    assert "resuming from /tmp/loaded_checkpoints/rank-0/checkpoint-8" in lines and "step 12/12" in lines
    assert len(cluster.json("weights", "ls")) == 1
    out = cluster.folder / "out"
    cluster.cli("checkpoints", "pull", f"{again['id']}/checkpoint-12", out)
    assert json.loads((out / "rank-0/checkpoint-12/trainer_state.json").read_text())["global_step"] == 12
