"""The unmodified truss client on what jobs leave behind: cache, checkpoints, their URLs, deployments, loading them again."""
import csv
import io
import json
import re
import struct
import urllib.error
import urllib.request

import pytest
from conftest import CALL_S
from truss_client import document, latest, truss  # noqa: F401 (a fixture)

KEEP = "checkpointing_config=CheckpointingConfig(enabled=True)"
ADAPTER = {"r": 8, "lora_alpha": 16, "peft_type": "LORA", "base_model_name_or_path": "Qwen/Qwen3-0.6B"}


def checkpoint(number):
    """Commands that write one as a trainer would: a LoRA adapter."""
    folder = f"$BT_CHECKPOINT_DIR/checkpoint-{number}"
    return f"mkdir -p {folder}; cp adapter_config.json {folder}; cp weights {folder}/adapter_model.safetensors; sleep 0.2"


def files():
    head = json.dumps({"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})
    head += " " * (-len(head) % 8)
    return {"adapter_config.json": json.dumps(ADAPTER), "weights": (struct.pack("<Q", len(head)) + head.encode() + bytes(8)).decode()}


def fetch(url, method="GET", **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers), timeout=CALL_S) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as e:
        return e.code, e.read()


@pytest.fixture
def trained(truss):
    """(client, a job that left two checkpoints)"""
    job = truss.push([checkpoint(10), checkpoint(20)], runtime=KEEP, files=files())
    truss.cluster.wait(job, "TRAINING_JOB_COMPLETED")
    return truss, truss.cluster.job(job)


def test_cache_summary_in_every_order_and_form(truss):
    job = truss.push(["mkdir $BT_PROJECT_CACHE_DIR/d; echo four > $BT_PROJECT_CACHE_DIR/d/b; sleep 0.1; echo x > $BT_PROJECT_CACHE_DIR/a; "
                      "chmod 600 $BT_PROJECT_CACHE_DIR/a; ln -s a $BT_PROJECT_CACHE_DIR/l"], runtime="cache_config=CacheConfig(enabled=True)")
    truss.push(["true"], name="without")
    assert "No cache summary" in truss.train("cache", "summarize", "without")
    truss.cluster.wait(job, "TRAINING_JOB_COMPLETED")
    rows = {}
    key = {"filepath": "path", "size": "size_bytes", "modified": "modified", "type": "type", "permissions": "permissions"}
    for n, sort in enumerate(key):
        order = ("asc", "desc")[n % 2]
        files = rows[sort] = document(truss.train("cache", "summarize", "demo", "--sort", sort, "--order", order, "-o", "json"))["files"]
        values = [f[key[sort]] for f in files]
        assert values == sorted(values, reverse=order == "desc")
    table = list(csv.reader(truss.train("cache", "summarize", "demo", "--order", "desc", "-o", "csv").splitlines()))
    start = next(i for i, row in enumerate(table) if row and row[0] == "File Path")
    assert [row[0] for row in table[start + 1:start + 5]] == ["l", "d/b", "d", "a"]
    files = {f["path"]: f for f in rows["filepath"]}
    assert sorted(files) == ["a", "d", "d/b", "l"]
    assert (files["d"]["size_bytes"], files["d"]["type"]) == (5, "directory") and files["l"]["type"] == "symlink"
    assert files["a"]["permissions"] == "-rw-------" and files["a"]["size_bytes"] == 2
    out = truss.train("cache", "summarize", "demo")
    assert "d/b" in out and "-rw-------" in out
    assert "nothere" in truss.train("cache", "summarize", "nothere", code=None)


def test_checkpoint_lists(trained):
    truss, job = trained
    for sort, order in ("checkpoint-id", "desc"), ("size", "asc"), ("created", "asc"), ("type", "desc"):
        out = truss.train("checkpoints", "list", "--job-id", job["id"], "--sort", sort, "--order", order, "-o", "json")
        names = re.findall(r'"(checkpoint-\d+)"', out)
        assert sorted(set(names)) == ["checkpoint-10", "checkpoint-20"]
        if sort in ("checkpoint-id", "created"):
            assert names == sorted(names, reverse=order == "desc")
    out = truss.train("checkpoints", "list", "--project", "demo", "-o", "csv")
    rows = list(csv.reader(io.StringIO(out)))
    assert any("checkpoint-10" in row for row in rows) and any("lora" in row for row in rows)
    out = truss.train("checkpoints", "list", "--job-id", job["id"])
    assert "checkpoint-10" in out and "Qwen/Qwen3-0.6B" in out
    assert "checkpoint-10, checkpoint-20" in truss.train("view", "--job-id", job["id"])


def test_the_explorer_shows_files_and_reads_tensors(trained):
    """On a terminal: a checkpoint, a small file, a tensor file whose head is read by ranges."""
    truss, job = trained
    truss.env["PAGER"] = "cat"
    code, out = truss.typed("train", "checkpoints", "list", "--job-id", job["id"], steps=[
        ("checkpoint-10", "\r"), ("adapter_config.json", "\r"), ("lora_alpha", ""), ("adapter_model", "\x1b[B\r"),
        ("Tensors: 1", ""), ("adapter_config.json", "\x03")])
    assert "Parameters: 2" in out and "F32" in out and "LORA" in out, out
    assert "Failed" not in out and "Traceback" not in out


def test_urls_are_for_one_file_and_for_reading(trained):
    truss, job = trained
    truss.train("get_checkpoint_urls", "--job-id", job["id"])
    out = json.loads((truss.home / f"demo_{job['id']}_checkpoints.json").read_text())
    url = {f["relative_file_name"]: f["url"] for f in out["checkpoint_artifacts"]}
    assert sorted(url) == [f"checkpoint-{n}/{name}" for n in (10, 20) for name in ("adapter_config.json", "adapter_model.safetensors")]
    mine = url["checkpoint-10/adapter_model.safetensors"]
    assert "X-Amz-Expires=604800" in mine  # seven days
    status, whole = fetch(mine)
    assert status == 200 and whole == files()["weights"].encode()
    # as the explorer reads tensors: the length of the head, then the head
    status, eight = fetch(mine, Range="bytes=0-7")
    assert status == 206 and len(eight) == 8
    status, head = fetch(mine, Range=f"bytes=8-{7 + struct.unpack('<Q', eight)[0]}")
    assert status == 206 and json.loads(head)["t"]["shape"] == [2]
    assert fetch(mine, Range="bytes=100000-")[0] == 416
    assert fetch(mine, method="HEAD")[0] == 200
    for wrong in (mine.replace("checkpoint-10", "checkpoint-20"), mine.replace("adapter_model.safetensors", "adapter_config.json"),
                  mine.replace("X-Amz-Expires=604800", "X-Amz-Expires=604801"), mine[:-1] + ("0" if mine[-1] != "0" else "1"),
                  mine.split("?")[0], re.sub(r"X-Amz-Date=\d{8}", "X-Amz-Date=20200101", mine)):
        status, body = fetch(wrong)
        assert status in (400, 403) and b"<Code>" in body, (wrong, body)
    for method in "PUT", "POST", "DELETE":
        assert fetch(mine, method=method)[0] in (403, 405, 411)
    assert fetch(mine)[1] == whole


def test_deployment_as_a_dry_run(trained):
    truss, job = trained
    (truss.home / "deploy.py").write_text(f"""
from truss_train import *
from truss_train.definitions import *
deploy = DeployCheckpointsConfig(
    checkpoint_details=CheckpointList(base_model_id="Qwen/Qwen3-0.6B", checkpoints=[
        LoRACheckpoint(training_job_id="{job['id']}", checkpoint_name="checkpoint-20", lora_details=LoRADetails(rank=8))]),
    model_name="tuned", runtime=DeployCheckpointsRuntime(environment_variables={{
        "X": "1", "HF_TOKEN": SecretReference(name="hf"), "OTHER": SecretReference(name="other-one")}}), compute=Compute(cpu_count=1, memory="1Gi"))
""")
    truss.train("deploy_checkpoints", "--dry-run", "--job-id", job["id"], "--config", "deploy.py", "--truss-config-output-dir", "out")
    config = (truss.home / "out/config.yaml").read_text()
    config = " ".join(config.split())  # YAML folds long lines
    for word in "OTHER=$(cat /secrets/other-one)", "HF_TOKEN=$(cat /secrets/hf)", "vllm serve Qwen/Qwen3-0.6B", "--enable-lora", "--max-lora-rank", "checkpoint-20", f"training_job_id: {job['id']}":
        assert word in config, config
    (truss.home / "deploy.py").write_text((truss.home / "deploy.py").read_text().replace("checkpoint-20", "checkpoint-99"))
    assert "checkpoint-99" in truss.train("deploy_checkpoints", "--dry-run", "--job-id", job["id"], "--config", "deploy.py", code=1)


def test_deployment(trained):
    truss, job = trained
    cluster = truss.cluster
    (truss.home / "deploy.py").write_text(f"""
from truss_train import *
from truss_train.definitions import *
deploy = DeployCheckpointsConfig(
    checkpoint_details=CheckpointList(base_model_id="Qwen/Qwen3-0.6B", checkpoints=[
        LoRACheckpoint(training_job_id="{job['id']}", checkpoint_name="checkpoint-20", lora_details=LoRADetails(rank=8))]),
    model_name="My Tuned_1", runtime=DeployCheckpointsRuntime(environment_variables={{
        "X": "1", "HF_TOKEN": SecretReference(name="hf")}}), compute=Compute(cpu_count=1, memory="1Gi"))
""")
    deploy = "deploy_checkpoints", "--job-id", job["id"], "--config", "deploy.py", "--truss-config-output-dir", "out"
    assert "secret" in truss.train(*deploy, code=1)  # of this name there is none
    assert cluster.json("deployments", "ls") == []
    cluster.cli("secrets", "set", "hf", stdin="hf_x")
    said = truss.train(*deploy)
    v = cluster.json("deployments", "view", "my-tuned-1")
    made = v["deployment"]["training_job_id"]
    assert "Successfully created deployment: my-tuned-1" in said and f"/models/my-tuned-1/logs/{made}" in said.replace("\n", ""), said
    assert "vllm serve" in (truss.home / "out/config.yaml").read_text()
    spec = cluster.job({"id": made})["spec"]
    assert spec["image"]["base_image"] == "vllm/vllm-openai:latest" and spec["runtime"]["serve"]["name"] == "my-tuned-1"
    assert "--lora-modules 'my-tuned-1'='/models/my-tuned-1'" in spec["runtime"]["start_commands"][0] and spec["runtime"]["environment_variables"]["X"] == "1"
    assert "accelerator" not in spec["compute"] or spec["compute"]["accelerator"] is None
    assert b"stoker deployments view my-tuned-1" in cluster.api("GET", f"/models/my-tuned-1/logs/{made}", raw=True)[1]
    # both of them in one server, each by its own name
    config = truss.home / "deploy.py"
    one = config.read_text().partition("        LoRACheckpoint")[2].partition("])")[0]
    both = config.read_text().replace(one, one + ",\n        LoRACheckpoint" + one.replace("checkpoint-20", "checkpoint-10"))
    config.write_text(both)
    truss.train(*deploy)
    v = cluster.json("deployments", "view", "my-tuned-1")["deployment"]
    assert v["revision"] == 2 and v["checkpoint"] == f"{job['id']}/checkpoint-20, {job['id']}/checkpoint-10", v
    spec = cluster.job({"id": v["training_job_id"]})["spec"]
    assert "--max-loras 2 --enable-lora --max-lora-rank 8 --lora-modules 'checkpoint-20'='/models/adapter-1' 'checkpoint-10'='/models/adapter-2'" in spec["runtime"]["start_commands"][0]
    assert [(w["source"], w["mount_location"]) for w in spec["weights"]] == [
        (f"bt://demo@{job['id']}/checkpoint-20", "/models/adapter-1"), (f"bt://demo@{job['id']}/checkpoint-10", "/models/adapter-2"),
        ("hf://Qwen/Qwen3-0.6B", "/models/base")]
    config.write_text(both.replace("checkpoint-10", "checkpoint-20"))
    assert "have the same name" in " ".join(truss.train(*deploy, code=1).split())
    # as our own command has it
    first, second = f"{job['id']}/checkpoint-20", f"{job['id']}/checkpoint-10"
    said = cluster.cli("deploy", first, second, "--name", "my-tuned-1", "--image", "vllm/vllm-openai:latest")
    assert f"will serve checkpoint {first}, {second} as my-tuned-1, revision 3" in said.err, said
    made = cluster.json("deployments", "view", "my-tuned-1")["deployment"]["training_job_id"]
    assert cluster.job({"id": made})["spec"]["runtime"]["start_commands"] == spec["runtime"]["start_commands"]
    for arguments, words in (([first], "the same name"), ([second, "--engine", "sglang"], "served by vllm, not by sglang"),
                             ([second, "--command", "x"], "not by a command of yours"), ([second] * 15 + ["x"], "at most 16")):
        assert words in cluster.cli("deploy", first, *arguments, code=None).err, words
    body = {"training_job_id": job["id"], "checkpoint": "checkpoint-20"}
    for adapters, words in (([{**body, "checkpoint": "none"}], "adapters[0]: job "), ([{}], "adapters[0]: training_job_id"), (["x"], "adapters[0]"), ({}, "adapters"),
                            ([body] * 16, "at most 15 beside the first")):
        status, said = cluster.api("POST", "/v1/deployments", {**body, "name": "my-tuned-1", "adapters": adapters})
        assert 400 <= status < 500 and words in json.dumps(said), (adapters, said)
    assert cluster.json("deployments", "view", "my-tuned-1")["deployment"]["revision"] == 3
    cluster.cli("deployments", "rm", "my-tuned-1", "--yes")


LOAD = "load_checkpoint_config=LoadCheckpointConfig(enabled=True, checkpoints=[%s])"


def test_load_the_latest_and_a_named_one(trained):
    truss, first = trained
    find = ["cd $BT_LOAD_CHECKPOINT_DIR && find . -name adapter_config.json | sort && grep -o Qwen3 rank-0/*/adapter_config.json"]
    for ref, name in [("BasetenCheckpoint.from_latest_checkpoint(project_name='demo')", "checkpoint-20"),
                      (f"BasetenCheckpoint.from_latest_checkpoint(job_id='{first['id']}')", "checkpoint-20"),
                      (f"BasetenCheckpoint.from_named_checkpoint('checkpoint-10', job_id='{first['id']}')", "checkpoint-10")]:
        job = truss.push(find, runtime=LOAD % ref)
        truss.cluster.wait(job, "TRAINING_JOB_COMPLETED")
        assert truss.cluster.user_lines(job) == [f"./rank-0/{name}/adapter_config.json", "Qwen3"]
    for ref, name in [(f"BasetenCheckpoint.from_named_checkpoint('checkpoint-99', job_id='{first['id']}')", "checkpoint-99"),
                      ("BasetenCheckpoint.from_latest_checkpoint(project_name='nothere')", "nothere"),
                      ("BasetenCheckpoint.from_latest_checkpoint(job_id='nothere')", "nothere")]:
        out = truss.train("push", "config.py", cwd=truss.project(["echo ran"], runtime=LOAD % ref), code=None)
        job = latest(truss.cluster)
        if "Client error" not in out:
            assert name in truss.cluster.wait(job, "TRAINING_JOB_DEPLOY_FAILED")["error_message"]
            assert truss.cluster.user_lines(job) == []
        else:
            assert name in out
