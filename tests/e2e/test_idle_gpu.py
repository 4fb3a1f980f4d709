"""limits.idle_gpu with an NVML of our own, which says that the GPU is used to so many percent; refused without one."""
import re
import subprocess

import pytest
from conftest import CALL_S, ROOT, until


@pytest.fixture
def on_gpus(empty_cluster):
    def start(percent):
        folder = empty_cluster.folder / "nvml"
        folder.mkdir()
        empty_cluster.folder.chmod(0o711)  # for runners, who are not root
        subprocess.run(["cc", "-shared", "-fPIC", f"-DNVML_FAKE_LOAD={percent}", "-Wl,-soname,libnvidia-ml.so.1",
                        "-o", folder / "libnvidia-ml.so.1", ROOT / "tests/unit/nvml_fake.c"], check=True, timeout=CALL_S)
        return empty_cluster.start("--cpus", "4", "--memory", "4Gi", env={"LD_LIBRARY_PATH": str(folder)})
    return start


def folder(cluster, commands, accelerator="H100:1", **limits):
    compute = {"cpu_count": 1, "memory": "256Mi", **({"accelerator": accelerator} if accelerator else {})}
    return cluster.job_folder(commands, compute=compute, limits=limits) / "train.yaml"


def test_a_job_that_hangs_is_ended(on_gpus):
    c = on_gpus(4)
    said = c.cli("push", folder(c, ["echo begun; sleep 600"], idle_gpu="2s", stop_grace="1s"), "-f", code=124)
    assert "start_commands[0]" in said.err, said
    job = c.json("view", "@")
    assert job["current_status"] == "TRAINING_JOB_FAILED" and "start_commands[0]" in job["error_message"], job
    assert (job["end"]["kind"], job["end"]["code"]) == ("idle", 2), job
    warnings = [e["message"] for e in c.json("events", job["id"]) if e["kind"] == "warning"]
    assert len(warnings) == 1 and "limits.idle_gpu" in warnings[0], warnings


def test_a_job_that_works_is_not(on_gpus):
    c = on_gpus(5)
    c.cli("push", folder(c, ["sleep 4"], idle_gpu="1s"), "-f", code=0)
    assert not [e for e in c.json("events", "@") if e["kind"] == "warning"]


def test_refused_with_advice(empty_cluster):
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--gpus", "H100:1")
    said = c.cli("push", folder(c, ["true"], None, idle_gpu="30m"), code=2).err
    assert re.search(r"train\.yaml:\d+:\d+: job\.limits\.idle_gpu: is there, but no GPU: .*max_duration", said), said
    said = c.cli("push", folder(c, ["true"], idle_gpu="30m"), code=5).err
    assert "--gpus" in said and "limits.max_duration" in said, said
    c.cli("push", folder(c, ["true"], idle_gpu=0))  # none is asked for
    until(lambda: not c.json("ps"))
