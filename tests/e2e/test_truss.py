"""The unmodified truss client, from its registry, drives the server."""
import json
import os
import subprocess
import textwrap

import pytest
from conftest import PARTS, until

TRUSS = PARTS / "clients/bin/truss"
PYTHON = PARTS / "clients/bin/python"


class Client:
    def __init__(self, cluster):
        self.cluster = cluster
        self.home = cluster.folder / "truss-home"
        self.home.mkdir()
        (self.home / ".trussrc").write_text("[baseten]\nremote_provider = baseten\nremote_url = http://localhost:8000\n"
                                            f"api_key = {cluster.token}\n")
        self.env = {k: v for k, v in os.environ.items() if not k.lower().startswith(("no_proxy", "aws_", "stoker_"))}
        self.env.update(HOME=str(self.home), http_proxy=cluster.url, TRUSS_NO_UPDATE_CHECK="1", COLUMNS="200",
                        BASETEN_TRUSS_AUTH_KEYRING_DISABLED="1", NO_COLOR="1")

    def run(self, *args, code=0, cwd=None, timeout=120):
        done = subprocess.run([TRUSS, *map(str, args)], env=self.env, capture_output=True, text=True, cwd=cwd, timeout=timeout)
        if code is not None:
            assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def project(self, commands, job="", runtime="", name="demo", files=None):
        folder = self.cluster.folder / f"truss-{len(list(self.cluster.folder.glob('truss-*')))}"
        folder.mkdir()
        (folder / "config.py").write_text(textwrap.dedent(f"""\
            from truss_train import *
            project = TrainingProject(name="{name}", job=TrainingJob(
                image=Image(base_image="busybox:latest"),
                compute=Compute(cpu_count=1, memory="256Mi"),
                runtime=Runtime(start_commands={commands!r}, {runtime}), {job}))
            """))
        for path, content in (files or {}).items():
            (folder / path).write_text(content)
        return folder


@pytest.fixture
def truss(empty_cluster):
    # the images of truss jobs cannot be fetched here: the host's root stands in, and the log says so
    empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--images", "host")
    return Client(empty_cluster)


def latest(cluster):
    return cluster.json("view", "@")


def test_whoami(truss):
    assert "admin" in truss.run("whoami")


def test_push_tail(truss):
    folder = truss.project(["cat data.txt", "echo from $BT_TRAINING_PROJECT_NAME"], files={"data.txt": "pushed\n"})
    out = truss.run("train", "push", "config.py", "--tail", "--non-interactive", cwd=folder)
    assert "pushed" in out and "from demo" in out
    assert truss.cluster.wait(latest(truss.cluster))["current_status"] == "TRAINING_JOB_COMPLETED"
    assert "was not used" in truss.cluster.logs(latest(truss.cluster), "--system")


def test_logs_view_and_stop(truss):
    folder = truss.project(["echo up", "sleep 300"])
    truss.run("train", "push", "config.py", "--non-interactive", cwd=folder)
    job = latest(truss.cluster)
    until(lambda: "up" in truss.cluster.logs(job))
    assert "up" in truss.run("train", "logs", "--job-id", job["id"], "--non-interactive")
    assert job["id"] in truss.run("train", "view", "--non-interactive")
    assert job["id"] in truss.run("train", "view", "--job-id", job["id"], "--non-interactive")
    assert "stopped" in truss.run("train", "stop", "--job-id", job["id"], "--non-interactive").lower()
    truss.cluster.wait(job, "TRAINING_JOB_STOPPED")


def test_cache_and_checkpoints(truss):
    folder = truss.project(["echo x > $BT_PROJECT_CACHE_DIR/kept", "mkdir $BT_CHECKPOINT_DIR/checkpoint-1; echo w > $BT_CHECKPOINT_DIR/checkpoint-1/w"],
                           runtime="cache_config=CacheConfig(enabled=True), checkpointing_config=CheckpointingConfig(enabled=True)")
    truss.run("train", "push", "config.py", "--non-interactive", cwd=folder)
    job = latest(truss.cluster)
    truss.cluster.wait(job, "TRAINING_JOB_COMPLETED")
    out = truss.run("train", "cache", "summarize", "demo", "-o", "json", "--non-interactive")
    summary = json.loads(out[out.index("{"):out.rindex("}") + 1])
    assert [f["path"] for f in summary["files"]] == ["kept"]
    out = truss.run("train", "checkpoints", "list", "--job-id", job["id"], "-o", "json", "--non-interactive")
    assert "checkpoint-1" in out
    truss.run("train", "get_checkpoint_urls", "--job-id", job["id"], "--non-interactive", cwd=folder)
    urls = json.loads(next(folder.glob("*_checkpoints.json")).read_text())["checkpoint_artifacts"]
    body = subprocess.run(["curl", "-fsS", next(u["url"] for u in urls if u["relative_file_name"] == "checkpoint-1/w")],
                          capture_output=True, check=True).stdout
    assert body == b"w\n"


def test_recreate_and_download(truss):
    folder = truss.project(["cat data.txt"], files={"data.txt": "again\n"})
    truss.run("train", "push", "config.py", "--non-interactive", cwd=folder)
    first = latest(truss.cluster)
    truss.cluster.wait(first, "TRAINING_JOB_COMPLETED")
    truss.run("train", "recreate", "--job-id", first["id"], "--non-interactive")
    second = latest(truss.cluster)
    assert second["id"] != first["id"]
    truss.cluster.wait(second, "TRAINING_JOB_COMPLETED")
    truss.run("train", "download", "--job-id", first["id"], "--target-directory", truss.cluster.folder, "--non-interactive")
    assert [p.read_text() for p in truss.cluster.folder.glob(f"*{first['id']}/data.txt")] == ["again\n"]


def test_sdk_push_of_a_large_archive(truss):
    folder = truss.project(["sha256sum < big.bin"])
    data = os.urandom(20 << 20)
    (folder / "big.bin").write_bytes(data)
    script = "import json, pathlib, truss_train; print(json.dumps(truss_train.push(pathlib.Path('config.py'))['id']))"
    done = subprocess.run([PYTHON, "-c", script], env=truss.env, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    job = truss.cluster.json("view", json.loads(done.stdout.splitlines()[-1]))
    truss.cluster.wait(job, "TRAINING_JOB_COMPLETED")
    import hashlib
    assert truss.cluster.user_lines(job)[-1].split()[0] == hashlib.sha256(data).hexdigest()


def test_a_job_that_fails_to_deploy_ends_its_tail(truss):
    folder = truss.project(["true"], job='weights=[WeightsSource(source="https://127.0.0.1:1/x", mount_location="/w")]')
    out = truss.run("train", "push", "config.py", "--tail", "--non-interactive", cwd=folder)
    assert "allow-source-network" in out
