"""The first thing a stranger does: `init -e quickstart`, `push`. It needs what README names, and nothing of ours beside it."""
import json
import re

import pytest
from conftest import PARTS, ROOT

pytestmark = pytest.mark.timeout(1800)

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.mark.parametrize("example", ["quickstart", "resume"])
def test_the_requirements_are_locked(example):
    text = (ROOT / "examples" / example / "requirements.txt").read_text().replace("\\\n", " ")
    locked = set()
    for line in text.splitlines():
        pin = re.fullmatch(r"([a-z0-9][a-z0-9._-]*)==\S+(?: ; [^-]*(?:-[^-][^-]*)*)?((?: +--hash=sha256:[0-9a-f]{64})+) *", line)
        assert pin, line
        locked.add(pin[1])
    asked = set(re.findall(r"^[a-z0-9._-]+", (ROOT / "examples" / example / "requirements.in").read_text(), re.M))
    assert asked and asked <= locked


def test_init_push_and_go_on(empty_cluster):
    """On a plain Debian: python3-venv and bubblewrap. The model's place is named, as the Hub is not asked here."""
    cluster = empty_cluster.start("--cpus", "2", "--memory", "8Gi", "--allow-file-root", str(PARTS / "model"), env={"PATH": SYSTEM_PATH})
    folder = cluster.folder / "first"
    cluster.cli("init", "-e", "quickstart", folder)
    sets = ["--set", f"job.weights[0].source=file://{PARTS}/model", "-e", "STEPS=8", "-o", "json"]
    job = json.loads(cluster.cli("push", *sets, cwd=folder).out)
    done = cluster.wait(job, "TRAINING_JOB_COMPLETED", deadline=900)
    lines = cluster.user_lines(job)
    assert any(line.startswith("step 8/8 loss") for line in lines) and any("kept in the project cache" in line for line in lines)
    # only the newest stays on the job's disk: the other one was shipped all the same
    found = {c["checkpoint_id"]: c for c in cluster.json("checkpoints", "ls", job["id"])}
    assert {name: c["state"] for name, c in found.items()} == {"checkpoint-4": "COMPLETE", "checkpoint-8": "COMPLETE"}
    assert found["checkpoint-8"]["size_bytes"] > 200e6
    assert done["checkpoint_sync_status"] == "COMPLETED" and done["weights"][0]["bytes"] > 90e6

    load = f"job.runtime.load_checkpoint_config={{enabled: true, checkpoints: [{{latest: {{job: {job['id']}}}}}]}}"
    again = json.loads(cluster.cli("push", *sets, "--set", load, "-e", "STEPS=12", cwd=folder).out)
    cluster.wait(again, "TRAINING_JOB_COMPLETED", deadline=900)
    lines = cluster.user_lines(again)
    assert any("found in the project cache" in line for line in lines)
    assert "resuming from /tmp/loaded_checkpoints/rank-0/checkpoint-8" in lines and any(line.startswith("step 12/12") for line in lines)
    assert len(list((cluster.data / "node/trees").glob("*/list"))) == 1  # one environment for both
    out = cluster.folder / "out"
    cluster.cli("checkpoints", "pull", f"{again['id']}/checkpoint-12", out)
    assert json.loads((out / "rank-0/checkpoint-12/trainer_state.json").read_text())["global_step"] == 12
