"""Real savers, killed at many moments of their saves: what is COMPLETE loads, what was saved is COMPLETE, and each says why."""
import json
import os
import pathlib
import subprocess

import pytest
from conftest import PARTS, ROOT

pytestmark = pytest.mark.timeout(900)

SAVERS = ROOT / "tests/savers"
LONG = 600
TENSORS = 20_000  # numbers of the largest one: a file takes some writes

# Saver: script, steps, deaths, and whether what it saved can be known to be whole when the job is killed: formats without a last file
# and with many of them only are when the one before had the same names.
TORCH, JAX = "torch_savers.py", "jax_savers.py"
CASES = {
    "torch": (TORCH, 3, 18, True),
    "shards": (TORCH, 3, 15, False),
    "trainer": (TORCH, 3, 9, True),
    "trainer-2": (TORCH, 2, 6, True),
    "accelerate": (TORCH, 3, 9, False),
    "dcp-2": (TORCH, 3, 9, True),
    "lightning": (TORCH, 3, 9, True),
    "gguf": (JAX, 3, 15, True),
    "keras": (JAX, 2, 3, True),
    "orbax": (JAX, 3, 9, True),
    "flax": (JAX, 3, 9, True),
}


def python(script):
    return PARTS / ("savers" if script == JAX else "trainer") / "bin/python"


def environment(script):
    own = {"PYTHONPATH": f"{PARTS}/savers/for-torch"} if script == TORCH else {}
    return {"SAVER_SIZE": str(TENSORS if script == JAX else TENSORS // 10), "OMP_NUM_THREADS": "1", **own}


def name_in_job(path):
    """As the store names it."""
    return path.split("/mnt/ckpts/", 1)[1]


def cannot_be_loaded(script, saver, paths):
    """By the framework itself: {path: why}."""
    done = subprocess.run([python(script), SAVERS / script, "load", saver, *map(str, paths)], env=dict(os.environ, **environment(script)),
                          capture_output=True, text=True, timeout=LONG, check=False)
    told = [line for line in done.stdout.splitlines() if line.startswith("loaded ")]
    assert told, done.stderr[-3000:]
    return {path: why for path, why in json.loads(told[-1][len("loaded "):]).items() if why is not None}


def places(saver, folder, names):
    """What the framework is asked to load, of the checkpoints that were pulled."""
    for name in names:
        at = folder / "rank-0" / name
        yield from sorted(at.glob("*.pt")) + sorted(at.glob("*.ckpt")) if saver in ("torch", "lightning") and at.is_dir() else [at]


@pytest.mark.parametrize("saver", CASES)
def test_killed_at_many_moments(empty_cluster, saver):
    script, steps, deaths, known = CASES[saver]
    parts = [PARTS / "trainer", PARTS / "savers"]
    cluster = empty_cluster.start("--cpus", "2", "--memory", "8Gi", *[word for p in parts for word in ("--share", str(p))])
    files = {p.name: p.read_text() for p in SAVERS.glob("*.py")}
    command = f"exec {python(script)} deaths.py {script} {saver} $BT_CHECKPOINT_DIR {steps} {deaths}"
    job = cluster.push([command], files=files, compute={"cpu_count": 2, "memory": "4Gi"},
                       runtime={"checkpointing_config": {"enabled": True}, "environment_variables": environment(script)})
    done = cluster.wait(job, "TRAINING_JOB_FAILED", deadline=LONG)
    assert done["end"]["code"] == 9, cluster.logs(job)
    lines = cluster.user_lines(job)
    assert "over whole" in lines
    saved = {name_in_job(line.split(" ", 1)[1]) for line in lines if line.startswith("saved ")}
    rows = {c["checkpoint_id"]: c for c in cluster.json("checkpoints", "ls", job["id"], "--all")}
    complete = [name for name, row in rows.items() if row["state"] == "COMPLETE"]
    assert (complete or not known) and all(row["reason"] for row in rows.values())
    assert {row["state"] for row in rows.values()} <= {"COMPLETE", "INCOMPLETE"}

    out = cluster.folder / "pulled"
    for name in complete:
        cluster.cli("checkpoints", "pull", f"{job['id']}/{name}", out)
    assert not complete or cannot_be_loaded(script, saver, list(places(saver, out, complete))) == {}

    if known:
        lost = {next((name for name in (path, str(pathlib.PurePath(path).parent)) if name in rows), path) for path in saved
                if path not in complete and str(pathlib.PurePath(path).parent) not in complete}
        assert all(name in rows and rows[name]["state"] == "INCOMPLETE" for name in lost), (lost, rows)
        # A saver that writes over what it saved before may have torn it. What loads all the same is a save whose writer was seen just
        # before the kill that ended the job: one at most.
        torn = cluster.folder / "torn"
        for name in lost:
            cluster.cli("checkpoints", "pull", f"{job['id']}/{name}", torn, "--incomplete")
        doubted = [place for place in places(saver, torn, lost) if str(place) not in cannot_be_loaded(script, saver, [place])]
        assert len(doubted) <= 1, {name: rows[name] for name in lost}
