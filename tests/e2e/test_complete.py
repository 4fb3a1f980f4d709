"""`stoker checkpoints complete`: a person overrules the rules; what is marked is loaded as any complete checkpoint."""
import pytest
from conftest import until
from test_nodes import RUNTIME, SHARDS, parts, save, whole

SAVED = "$BT_PROJECT_CACHE_DIR/saved"  # node 1 dies when node 0 has its part
TORN = "echo 'PK' > $BT_CHECKPOINT_DIR/checkpoint-2/model.safetensors"


def row(cluster, job, name):
    return next(r for r in cluster.json("checkpoints", "ls", job["id"], "--all") if r["checkpoint_id"] == name)


@pytest.mark.parametrize("end", ["kill -9 $$", "exit 3"])
def test_a_file_closed_just_before_a_bad_end(cluster, end):
    """It may be cut short, and nobody can tell: `show` says why it is doubted, and what to do."""
    job = cluster.push([f"head -c 5M /dev/zero > $BT_CHECKPOINT_DIR/last.xyz; {end}"], runtime=RUNTIME)
    cluster.wait(job, "TRAINING_JOB_FAILED")
    (doubted,) = cluster.json("checkpoints", "ls", job["id"], "--all")
    assert doubted["state"] == "INCOMPLETE" and "killed" not in doubted["reason"], "it is said of both"
    name = f"{job['id']}/{doubted['checkpoint_id']}"
    shown = cluster.cli("checkpoints", "show", name)
    assert doubted["reason"] in shown.out
    assert f"stoker checkpoints pull --incomplete {name} " in shown.err and f"stoker checkpoints complete {name} " in shown.err, shown
    cluster.cli("checkpoints", "pull", "--incomplete", name, cluster.folder / "out")
    cluster.cli("checkpoints", "complete", name, "--yes")
    assert cluster.cli("checkpoints", "show", name).err == ""


def test_marked_by_hand(empty_cluster):
    cluster = empty_cluster.start("--cpus", "8", "--memory", "8Gi")
    made = "mkdir $BT_CHECKPOINT_DIR/checkpoint-1 $BT_CHECKPOINT_DIR/checkpoint-2; echo weights > $BT_CHECKPOINT_DIR/checkpoint-1/w.xyz"
    job = cluster.push([f"{made}; {TORN}; exit 1"], runtime=RUNTIME, name="a")
    two = parts(cluster, save("config.json={}", SHARDS[0]) + f"; touch {SAVED}", f"until test -e {SAVED}; do sleep 0.1; done; kill -9 $$",
                runtime={**RUNTIME, "cache_config": {"enabled": True}})
    live = cluster.push(["mkdir $BT_CHECKPOINT_DIR/checkpoint-3; echo x > $BT_CHECKPOINT_DIR/checkpoint-3/x", cluster.hold()],
                        runtime={"checkpointing_config": {"enabled": True, "settle": "1h"}})
    cluster.wait(job, "TRAINING_JOB_FAILED")
    assert {row(cluster, job, f"checkpoint-{i}")["state"] for i in (1, 2)} == {"INCOMPLETE"}
    assert cluster.error("checkpoints", "show", f"{job['id']}/latest", code=3) == "checkpoint_not_found"

    # asked for, and for whom
    one = f"{job['id']}/checkpoint-1"
    assert cluster.error("checkpoints", "complete", one, code=2, stdin="") == "confirmation_required"
    path = f"/v1/training_projects/{job['training_project']['id']}/jobs/{job['id']}/checkpoints/checkpoint-1"
    for body in ({}, {"complete": False}, {"complete": 1}):
        assert cluster.api("PATCH", path, body)[0] == 400, body
    viewer = cluster.json("tokens", "create", "eve", "--role", "viewer")["api_key"]
    assert cluster.error("checkpoints", "complete", one, "--yes", token=viewer) == "role_required"
    cluster.cli("teams", "create", "others")
    other = cluster.json("tokens", "create", "mallory", "--team", "others")["api_key"]
    assert cluster.error("checkpoints", "complete", one, "--yes", token=other, code=3) == "job_not_found"
    assert row(cluster, job, "checkpoint-1")["marked_by"] is None

    marked = cluster.json("checkpoints", "complete", one, "--yes")
    assert (marked["state"], marked["marked_by"], marked["rule"]) == ("COMPLETE", "admin", 0) and marked["complete"]
    assert "admin" in marked["reason"]
    cluster.cli("checkpoints", "complete", one)  # it is: nothing is asked, nothing changes
    assert len([e for e in cluster.json("events", job["id"]) if e["actor"] == "admin" and "checkpoint-1" in e["message"]]) == 1
    cluster.cli("checkpoints", "complete", f"{job['id']}/checkpoint-2", "--yes")  # torn, and a person's to say
    assert cluster.json("checkpoints", "show", f"{job['id']}/latest")["state"] == "COMPLETE"
    cluster.cli("checkpoints", "pull", one, cluster.folder / "out")
    assert (cluster.folder / "out/rank-0/checkpoint-1/w.xyz").read_text() == "weights\n"

    # the next one of its name goes on from it; on all nodes
    cluster.cli("checkpoints", "rm", f"{job['id']}/checkpoint-2", "--yes")
    again = cluster.push(["cat $STOKER_RESUME_FROM/w.xyz"], runtime={**RUNTIME, "load_checkpoint_config": {"enabled": True}}, name="a")
    cluster.wait(two, "TRAINING_JOB_FAILED")
    stored = next((cluster.data / "objects").rglob(f"{two['id']}/rank-0/checkpoint-1/{SHARDS[0]}"))
    stored.rename(cluster.folder / "away")  # what is not stored is nobody's to mark
    assert cluster.error("checkpoints", "complete", f"{two['id']}/checkpoint-1", "--yes") == "checkpoint_not_stored"
    (cluster.folder / "away").rename(stored)
    cluster.cli("checkpoints", "complete", f"{two['id']}/checkpoint-1", "--yes")
    assert row(cluster, two, "checkpoint-1")["marked_by"] == whole(cluster, two)["marked_by"] == "admin"
    cluster.wait(again, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(again) == ["weights"]

    # while the job runs, its runner decides
    until(lambda: [r for r in cluster.json("checkpoints", "ls", live["id"], "--all") if r["checkpoint_id"] == "checkpoint-3"])
    assert cluster.error("checkpoints", "complete", f"{live['id']}/checkpoint-3", "--yes") == "conflict"
