"""Checkpoints of jobs with several nodes: each node has its part, and they are one checkpoint only together."""
import json
import os
import signal
import time

import pytest
from conftest import DEADLINE_S, PARTS, ROOT, held_port, until

# Writes a part of checkpoint-1 as a saver does that shards by node; what it writes is told by its arguments.
SAVER = """
import json, os, sys
out = os.path.join(os.environ["BT_CHECKPOINT_DIR"], "checkpoint-" + os.environ.get("STEP", "1"))
os.makedirs(out, exist_ok=True)
for what in sys.argv[1:]:
    name, _, content = what.partition("=")
    with open(os.path.join(out, name), "wb") as f:
        if name.endswith(".safetensors"):
            data = (content or "x").encode() * 1000
            header = json.dumps({"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
            f.write(len(header).to_bytes(8, "little") + header + data)
        elif name.endswith(".index.json"):
            f.write(json.dumps({"weight_map": {str(i): s for i, s in enumerate(content.split(","))}}).encode())
        else:
            f.write(content.encode())
"""
SHARDS = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
INDEX = "model.safetensors.index.json=" + ",".join(SHARDS)
TWO = {"cpu_count": 1, "memory": "512Mi", "node_count": 2}
APART_S = 4  # saves that are closer than clocks may differ are not told apart (core/ckpt_rule.h)
RUNTIME = {"checkpointing_config": {"enabled": True, "settle": "1s"}}


def parts(cluster, first, second, **kw):
    """A job whose node 0 runs `first` and whose node 1 runs `second`."""
    command = f"if test $BT_NODE_RANK = 0; then {first}; else {second}; fi"
    return cluster.push([command], files={"saver.py": SAVER}, compute=TWO, runtime=kw.pop("runtime", RUNTIME), **kw)


def save(*what):
    return "python3 saver.py " + " ".join(f"'{w}'" for w in what)


def rows(cluster, job):
    return {r["node_rank"]: r for r in cluster.json("checkpoints", "ls", job["id"], "--all") if r["checkpoint_id"] == "checkpoint-1"}


def whole(cluster, job, name="checkpoint-1"):
    """The manifest of all nodes, or None."""
    path = cluster.data / f"objects/training_projects/{job['training_project']['id']}/jobs/{job['id']}/.stoker/{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def test_complete_by_all_nodes_or_not_at_all(empty_cluster):
    cluster = empty_cluster.start("--cpus", "12", "--memory", "12Gi")
    good = parts(cluster, save("config.json={}", SHARDS[0] + "=a", INDEX), save(SHARDS[1] + "=b", "config.json={}"))
    hole = parts(cluster, save("config.json={}", SHARDS[0], INDEX), save("config.json={}"))
    saved = "$BT_PROJECT_CACHE_DIR/saved"  # node 1 dies when node 0 has its part
    dead = parts(cluster, save("config.json={}", SHARDS[0], INDEX) + f"; touch {saved}", f"until test -e {saved}; do sleep 0.1; done; kill -9 $$",
                 runtime={**RUNTIME, "cache_config": {"enabled": True}})
    mixed = parts(cluster, save("config.json={}", SHARDS[0], INDEX), save("config.json=[]", SHARDS[1]))
    alone = parts(cluster, save("config.json={}", "model.safetensors"), "true")

    cluster.wait(good, "TRAINING_JOB_COMPLETED")
    found = rows(cluster, good)
    assert {k: r["state"] for k, r in found.items()} == {0: "COMPLETE", 1: "COMPLETE"}, found
    assert found[0]["reason"] == found[1]["reason"] and {r["part_state"] for r in found.values()} == {"COMPLETE"}
    assert [p["rank"] for p in whole(cluster, good)["parts"]] == [0, 1]
    out = cluster.folder / "pulled"
    cluster.cli("checkpoints", "pull", f"{good['id']}/checkpoint-1", out)
    assert {str(p.relative_to(out)) for p in out.rglob("*.safetensors")} == {f"rank-{i}/checkpoint-1/{s}" for i, s in enumerate(SHARDS)}

    cluster.wait(hole, "TRAINING_JOB_COMPLETED")
    cluster.wait(dead, "TRAINING_JOB_FAILED")
    cluster.wait(mixed, "TRAINING_JOB_COMPLETED")
    for job, named in ((hole, SHARDS[1]), (dead, "node 1"), (mixed, "config.json")):
        found = rows(cluster, job)
        assert {r["state"] for r in found.values()} == {"INCOMPLETE"}, found
        assert all(named in r["reason"] for r in found.values()), [r["reason"] for r in found.values()]
        assert whole(cluster, job) is None
        assert cluster.error("checkpoints", "show", f"{job['id']}/latest", code=3) == "checkpoint_not_found"
        assert cluster.error("checkpoints", "pull", f"{job['id']}/checkpoint-1", out, code=5) == "conflict"
    assert all(r["part_state"] == "COMPLETE" for r in rows(cluster, mixed).values())

    cluster.wait(alone, "TRAINING_JOB_COMPLETED")  # nobody owes a part of what is whole without it
    assert {k: r["state"] for k, r in rows(cluster, alone).items()} == {0: "COMPLETE"}
    for job in (hole, dead, mixed, alone):
        cluster.cli("checkpoints", "rm", f"{job['id']}/checkpoint-1", "--yes")
        assert rows(cluster, job) == {}

    load = {"load_checkpoint_config": {"enabled": True, "checkpoints": [{"latest": {"job": good["id"]}}]}}
    show = "cd $BT_LOAD_CHECKPOINT_DIR; find . -name '*.safetensors'"
    job = cluster.push([show], compute=TWO, runtime=load)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert all(f"./rank-{i}/checkpoint-1/{s}" in cluster.logs(job) for i, s in enumerate(SHARDS))
    # nothing is loaded without the manifest of all nodes, nor a part that is not the one which it names
    of_all = next((cluster.data / "objects").rglob(f"{good['id']}/.stoker/checkpoint-1.json"))
    of_all.rename(cluster.folder / "away")
    job = cluster.push([show], compute=TWO, runtime=load)
    assert cluster.wait(job, "TRAINING_JOB_DEPLOY_FAILED")["error_id"] == "corrupt"
    (cluster.folder / "away").rename(of_all)
    path = next((cluster.data / "objects").rglob(f"{good['id']}/rank-1/.stoker/kept/*/*/manifest.json"))
    manifest = json.loads(path.read_text())
    manifest["files"] = manifest["files"][:1]
    path.write_text(json.dumps(manifest))
    job = cluster.push([show], compute=TWO, runtime=load)
    assert cluster.wait(job, "TRAINING_JOB_DEPLOY_FAILED")["error_id"] == "conflict"
    cluster.cli("checkpoints", "rm", f"{good['id']}/checkpoint-1", "--yes")
    assert whole(cluster, good) is None


def test_torch_dcp_on_two_nodes(empty_cluster):
    """.metadata on node 0 names the shards of node 1, with their lengths."""
    cluster = empty_cluster.start("--cpus", "4", "--memory", "8Gi", "--share", PARTS / "trainer", "--share", PARTS / "savers")
    files = {p.name: p.read_text() for p in (ROOT / "tests/savers").glob("*.py")}
    ranks = "RANK=$BT_NODE_RANK LOCAL_RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 MASTER_ADDR=$BT_LEADER_ADDR MASTER_PORT=%d" % held_port()
    # torch 1.13 makes the folder on rank 0 only; the last byte of node 1's second shard never gets to the disk
    command = f"mkdir -p $BT_CHECKPOINT_DIR/step-1 $BT_CHECKPOINT_DIR/step-2; {ranks} {PARTS}/trainer/bin/python torch_savers.py " \
              "save dcp-2 $BT_CHECKPOINT_DIR 2 || exit 1; " \
              "test $BT_NODE_RANK = 1 || exec sleep 600; for f in $BT_CHECKPOINT_DIR/step-2/__1_*; do truncate -s -1 $f; done; kill -9 $$"
    job = cluster.push([command], files=files, compute={**TWO, "cpu_count": 2, "memory": "2Gi"},
                       runtime={"checkpointing_config": {"enabled": True},
                                "environment_variables": {"PYTHONPATH": f"{PARTS}/savers/for-torch", "OMP_NUM_THREADS": "1"}})
    cluster.wait(job, "TRAINING_JOB_FAILED")
    found = cluster.json("checkpoints", "ls", job["id"], "--all")
    states = {(r["checkpoint_id"], r["node_rank"]): r["state"] for r in found}
    assert states[("step-1", 0)] == states[("step-1", 1)] == "COMPLETE", [(r["part_reason"], r["reason"], r["rule"]) for r in found]
    assert states[("step-2", 0)] == states[("step-2", 1)] == "INCOMPLETE", found
    assert all("__1_" in r["reason"] for r in found if r["checkpoint_id"] == "step-2")
    assert len(whole(cluster, job, "step-1")["parts"]) == 2 and whole(cluster, job, "step-2") is None
    assert cluster.json("checkpoints", "show", f"{job['id']}/latest")["checkpoint_id"] == "step-1"


@pytest.mark.parametrize("label", ["union:reported", "union:stored"])
def test_server_dies_between_the_parts(empty_cluster, label):
    """A part is told again until the answer comes; what the parts make together is stored once more."""
    cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi", env={"STOKER_CRASH_AT": label})
    job = parts(cluster, save("config.json={}", SHARDS[0], INDEX), save(SHARDS[1]))
    assert cluster.process.wait(DEADLINE_S) == 9
    cluster.restart()
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert {k: r["state"] for k, r in rows(cluster, job).items()} == {0: "COMPLETE", 1: "COMPLETE"}
    assert len(whole(cluster, job)["parts"]) == 2


@pytest.mark.parametrize("label", [None, "union:kept", "union:stored", "union:switched"])
def test_saved_over_by_all_nodes_or_not_at_all(empty_cluster, label):
    """Of checkpoint-1, saved over, the old parts count until all nodes have saved: node 1 dies when node 0 has, and the retry, which
    goes on from the old one, saves both. label: where the server dies when it changes from the old parts to the new ones."""
    cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi")
    step = "$BT_PROJECT_CACHE_DIR/step-"
    wait = "until test -e %s; do sleep 0.1; done"

    def saves(shard, letter, *more):
        return save(f"{SHARDS[shard]}={letter}", *more)

    def node(shard, between, *more):
        return f"if test $BT_RETRY_COUNT = 0; then {saves(shard, 'a', *more)}; touch {step}first-{shard}; {wait % (step + 'second')}; {between}; fi; " \
               f"cut -c 200-203 $STOKER_RESUME_FROM/{SHARDS[shard]}; {wait % (step + 'third')}; {saves(shard, 'c', *more)}; {wait % (step + 'end')}"

    def go(name):
        (next((cluster.data / "cache").rglob("step-first-0")).parent / f"step-{name}").touch()

    def pulled():
        out = cluster.folder / f"pulled-{len(list(cluster.folder.iterdir()))}"
        cluster.cli("checkpoints", "pull", f"{job['id']}/checkpoint-1", out)
        return [(out / f"rank-{i}/checkpoint-1/{s}").read_bytes()[-4:].decode() for i, s in enumerate(SHARDS)]

    def settled(**want):
        found = {}

        def there():
            found.update(rows(cluster, job))
            assert {r["state"] for r in found.values()} <= {"COMPLETE"}, found
            return len(found) == 2 and all((r["updating"] or "").startswith(want["updating"]) or not want["updating"] and not r["updating"]
                                           for r in found.values() if r["node_rank"] == 0)
        until(there)
        return found

    first = node(0, saves(0, "b", INDEX) + "; sleep 600", INDEX)
    job = parts(cluster, first, node(1, wait % (step + "dies") + "; kill -9 $$"), retry={"on": ["failure"]},
                runtime={**RUNTIME, "cache_config": {"enabled": True}, "load_checkpoint_config": {"enabled": True}})
    until(lambda: whole(cluster, job))
    was = whole(cluster, job)
    go("second")
    found = settled(updating="syncing: being saved over, waiting for node 1")
    assert found[0]["part_state"] == "COMPLETE" and found[0]["revision"] == 1, found
    assert pulled() == ["aaaa", "aaaa"] and whole(cluster, job) == was
    go("dies")
    found = settled(updating="incomplete: ")
    until(lambda: cluster.logs(job).count("aaaa") == 2)  # both nodes go on from the old one
    assert pulled() == ["aaaa", "aaaa"] and whole(cluster, job) == was
    if label:
        cluster.stop()
        cluster.start(env={"STOKER_CRASH_AT": label})
    go("third")
    if label:
        assert cluster.process.wait(DEADLINE_S) == 9
        cluster.restart()
    # a pull that began before the rows change ends with an error: what it was to get is no more
    until(lambda: all(r["revision"] > 1 for r in rows(cluster, job).values()))
    settled(updating="")
    assert whole(cluster, job) != was
    assert pulled() == ["cccc", "cccc"]
    go("end")
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert pulled() == ["cccc", "cccc"]
    load = {"load_checkpoint_config": {"enabled": True, "checkpoints": [{"latest": {"job": job["id"]}}]}}
    other = cluster.push(["cut -c 200-203 $BT_LOAD_CHECKPOINT_DIR/rank-$BT_NODE_RANK/checkpoint-1/*.safetensors"], compute=TWO, runtime=load)
    cluster.wait(other, "TRAINING_JOB_COMPLETED")
    assert cluster.logs(other).count("cccc") == 2
    kept = list((cluster.data / "objects").rglob("kept/*/*"))
    assert len(kept) == 2, kept  # of the parts that count, and of no others
    cluster.stop()
    assert cluster.cli("server", "--data", cluster.data, "--check", "--log-level", "error").out.endswith(": 0 faults\n")
    cluster.start()
    cluster.cli("checkpoints", "rm", f"{job['id']}/checkpoint-1", "--yes")
    assert not list((cluster.data / "objects").rglob(f"{job['id']}/**/*.*"))


def test_parts_of_two_saves_are_none(empty_cluster):
    """Node 1's runner is one save behind: the third part of node 0 and the second of node 1 are no checkpoint, whatever their files."""
    cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi")
    step = "$BT_PROJECT_CACHE_DIR/step-"
    wait = "until test -e %s; do sleep 0.1; done"

    def node(rank, *more):
        a, b, c, d = (save(f"{SHARDS[rank]}={letter}", *more) for letter in "abcd")
        third = f"{wait % (step + 'third')}; {c}; " if rank == 0 else ""
        return f"{a}; touch {step}first-{rank}; {wait % (step + 'second')}; {b}; touch {step}second-{rank}; " \
               f"{third}{wait % (step + 'last')}; {d}; {wait % (step + 'end')}"

    def steps():
        return next((cluster.data / "cache").rglob("step-first-0")).parent

    def stored(rank):
        found = next((cluster.data / "objects").rglob(f"rank-{rank}/.stoker/checkpoint-1.json"), None)
        return found and json.loads(found.read_text())["since"]

    def stored_after(rank, since):
        return until(lambda: stored(rank) != since and stored(rank))

    def pulled():
        out = cluster.folder / f"pulled-{len(list(cluster.folder.iterdir()))}"
        cluster.cli("checkpoints", "pull", f"{job['id']}/checkpoint-1", out)
        return [(out / f"rank-{i}/checkpoint-1/{s}").read_bytes()[-4:].decode() for i, s in enumerate(SHARDS)]

    job = parts(cluster, node(0, INDEX), node(1), runtime={**RUNTIME, "cache_config": {"enabled": True}})
    until(lambda: whole(cluster, job))
    was, firsts = whole(cluster, job), [stored(0), stored(1)]
    behind = next(int(p.split()[0]) for p in cluster.processes() if " runner /" in p and p.rstrip().endswith("-1"))
    os.kill(behind, signal.SIGSTOP)
    (steps() / "step-second").touch()
    until((steps() / "step-second-1").exists)
    second = stored_after(0, firsts[0])
    time.sleep(APART_S)
    (steps() / "step-third").touch()
    stored_after(0, second)
    os.kill(behind, signal.SIGCONT)
    stored_after(1, firsts[1])
    until(lambda: (rows(cluster, job)[1]["updating"] or "").startswith("syncing: being saved over, waiting for node 1"))
    assert whole(cluster, job) == was
    assert pulled() == ["aaaa", "aaaa"]
    (steps() / "step-last").touch()
    until(lambda: whole(cluster, job) != was)
    assert pulled() == ["dddd", "dddd"]
    assert not any(r["updating"] for r in rows(cluster, job).values())
    (steps() / "step-end").touch()
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert pulled() == ["dddd", "dddd"]


def test_a_gang_goes_on_from_what_all_of_it_saved(cluster):
    """checkpoint-2 has no part of node 1, which dies: the retry begins with checkpoint-1, each node with its own part."""
    first = "STEP=1 " + save("config.json={}", SHARDS[0], INDEX)
    second = "STEP=1 " + save(SHARDS[1])
    saved, dies = "$BT_PROJECT_CACHE_DIR/saved", "$BT_PROJECT_CACHE_DIR/dies"
    again = 'test $BT_RETRY_COUNT = 0 || { echo from ${STOKER_RESUME_FROM##*/} $(ls $STOKER_RESUME_FROM); exit 0; }'
    command = f"{again}; if test $BT_NODE_RANK = 0; then {first}; STEP=2 {save('config.json={}', SHARDS[0], INDEX)}; touch {saved}; sleep 600; " \
              f"else {second}; until test -e {dies}; do sleep 0.1; done; exit 3; fi"
    job = cluster.push([command], files={"saver.py": SAVER}, compute=TWO, retry={"on": ["failure"]},
                       runtime={**RUNTIME, "cache_config": {"enabled": True}, "load_checkpoint_config": {"enabled": True}})
    # what a node wrote in the second before it died is doubted: it dies when checkpoint-1 is one
    until(lambda: whole(cluster, job))
    until(lambda: next((cluster.data / "cache").rglob("saved"), None)).with_name("dies").touch()
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    lines = cluster.logs(job)
    assert f"[0] from checkpoint-1 config.json {SHARDS[0]} model.safetensors.index.json" in lines, lines
    assert f"[1] from checkpoint-1 {SHARDS[1]}" in lines, lines
