"""A member with a token and a job file against the server of a machine: what such a job must not reach.

Each test is an attack that got through once, or its next variant. Only ids, states, and what is really there are judged."""
import json
import os
import pathlib
import stat
import subprocess

import pytest
from conftest import until

ROOT = os.geteuid() == 0
pytestmark = pytest.mark.skipif(not ROOT, reason="attacks are made on a server that is root")
CACHE = {"cache_config": {"enabled": True}}


def failed(cluster, job):
    """The error id of a job that never ran."""
    done = cluster.wait(job)
    assert done["current_status"] == "TRAINING_JOB_DEPLOY_FAILED", cluster.logs(job)
    return done["error_id"]


def ran(cluster, commands, **kw):
    """The lines that a job printed, which came to its end."""
    job = cluster.push(commands, **kw)
    done = cluster.wait(job)
    assert done["current_status"] == "TRAINING_JOB_COMPLETED", cluster.logs(job)
    return [line.split(" ", 1)[-1] for line in cluster.user_lines(job)]


def refused(cluster, **kw):
    """The error id of a push that is refused."""
    folder = cluster.job_folder(["true"], **kw)
    return cluster.error("push", folder / "train.yaml")


def checkpoints(path, **more):
    return {"runtime": {"checkpointing_config": {"enabled": True, "checkpoint_path": path}, **more}}


# --- what is mounted, and where ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/usr", "/lib64", "/bin", "/usr/lib/x", "/usr/bin", "/", "/boot/x", "/var", "/root", "/sbin/y",
                                  "/proc/1/root/tmp", "/sys/x", "/dev/shm/x", "/etc/x", "/run/x", "/tmp", "/home"])
def test_no_place_of_the_system(cluster, path):
    assert refused(cluster, **checkpoints(path)) == "place_system"
    load = {"runtime": {"load_checkpoint_config": {"enabled": True, "download_folder": path}}}
    assert refused(cluster, **load) == "place_system"


@pytest.mark.parametrize("path", ["/root/.cache/user_artifacts/f/x", "/root/.cache/user_artifacts", "/root/.cache/team_artifacts/x"])
def test_no_place_in_a_cache(cluster, path):
    """What one job left there would decide what is mounted for the next."""
    assert refused(cluster, **checkpoints(path, **CACHE)) == "place_shared"


@pytest.mark.parametrize("path", ["/mnt/../usr", "/mnt/./x", "/mnt//x", "usr"])
def test_places_are_plain(cluster, path):
    assert refused(cluster, **checkpoints(path)) == "spec_invalid"


def test_a_sandbox_that_fails_is_no_reason_for_a_weaker_one(empty_cluster):
    """Whatever makes it fail for one job: it does not run."""
    cluster, tools = empty_cluster, empty_cluster.folder / "tools"
    tools.mkdir()
    real = subprocess.run(["sh", "-c", "command -v bwrap"], capture_output=True, text=True, check=True).stdout.strip()
    (tools / "bwrap").symlink_to(real)
    cluster.start("--cpus", "4", "--memory", "4Gi", env={"PATH": f"{tools}:{os.environ['PATH']}"})
    assert ran(cluster, ["echo is-up"]) == ["is-up"]
    (tools / "bwrap").unlink()
    (tools / "bwrap").write_text("#!/bin/sh\nexit 1\n")
    (tools / "bwrap").chmod(0o755)
    job = cluster.push(["echo is-up"])
    assert failed(cluster, job) == "sandbox_failed"
    assert cluster.user_lines(job) == []


@pytest.mark.parametrize("tree", ["ln -s /usr/nowhere x", "ln -s .. x", "ln -s /oldroot/etc x"])
def test_links_in_the_code_are_not_followed(cluster, tree, tmp_path):
    """A checkpoint folder inside the workspace: the code that is there decides nothing outside of it."""
    folder = cluster.job_folder(["ls -ld /b10/workspace/x | cut -c1"], **checkpoints("/b10/workspace/x/y"))
    (folder / "sub").mkdir()
    subprocess.run(["sh", "-c", tree], cwd=folder, check=True)
    before = sorted(os.listdir("/usr"))
    job = json.loads(cluster.cli("push", folder / "train.yaml", "-o", "json").out)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job) == ["d"]  # the link was not sent
    assert sorted(os.listdir("/usr")) == before and not os.path.exists("/etc/y")


def test_a_file_where_a_mount_needs_a_folder(cluster):
    folder = cluster.job_folder(["true"], **checkpoints("/b10/workspace/x/y"))
    (folder / "x").touch()
    job = json.loads(cluster.cli("push", folder / "train.yaml", "-o", "json").out)
    assert failed(cluster, job) == "mount_refused"


def test_a_link_for_the_old_hugging_face_folder(cluster):
    """A job puts a link in its place; the next one has it mounted."""
    data = cluster.data
    first = ["rm -rf $BT_PROJECT_CACHE_DIR/huggingface", f"ln -s {data} $BT_PROJECT_CACHE_DIR/huggingface"]
    ran(cluster, first, runtime=CACHE)
    legacy = {"cache_config": {"enabled": True, "enable_legacy_hf_mount": True}}
    seen = ran(cluster, ["ls -A /root/.cache/huggingface/ | wc -l", "cat /root/.cache/huggingface/master.key | wc -c",
                         "touch /root/.cache/huggingface/was-here || true"], runtime=legacy)
    assert [line for line in seen if line.isdigit()] == ["0", "0"]
    assert not (data / "was-here").exists()


def test_the_old_hugging_face_folder_is_the_projects(cluster):
    legacy = {"cache_config": {"enabled": True, "enable_legacy_hf_mount": True}}
    ran(cluster, ["echo kept >/root/.cache/huggingface/f"], runtime=legacy)
    assert ran(cluster, ["cat $BT_PROJECT_CACHE_DIR/huggingface/f", "cat /root/.cache/huggingface/f"], runtime=legacy) == ["kept", "kept"]


def test_a_link_at_a_place_of_the_host(cluster):
    """A name on the host that leads to a system folder is that folder."""
    link = pathlib.Path(f"/srv/stoker-{os.getpid()}")
    link.symlink_to("/usr")
    try:
        job = cluster.push(["true"], **checkpoints(str(link)))
        assert failed(cluster, job) == "place_system"
        job = cluster.push(["true"], **checkpoints(f"{link}/lib/made"))
        assert failed(cluster, job) == "place_system"
        assert not os.path.exists("/usr/lib/made")
    finally:
        link.unlink()
