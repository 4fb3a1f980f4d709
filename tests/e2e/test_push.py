"""What a push sends, what it leaves out, and what it says."""
import json
import os
import subprocess

import pytest
from conftest import CALL_S, STOKER, held_port, until

LIST = ["find . -mindepth 1 -not -type d | sort | tr '\\n' ' '; echo"]


def git(folder, *args):
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b",
           "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    return subprocess.run(["git", "-C", folder, *args], check=True, capture_output=True, text=True, env=env).stdout.strip()


def pushed(cluster, folder, *flags, **kw):
    """(the job, what push said)"""
    done = cluster.cli("push", folder / "train.yaml", "-o", "json", *flags, **kw)
    return json.loads(done.out), done.err


def arrived(cluster, folder, *flags):
    """The files that the job finds."""
    job, said = pushed(cluster, folder, *flags)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    return set(cluster.user_lines(job)[0].replace("./", "").split()), said


def objects(cluster):
    return sorted((p.name, p.stat().st_size) for p in (cluster.data / "objects").rglob("*.tgz"))


def test_gitignore_is_respected(cluster):
    folder = cluster.job_folder(LIST, files={"a.py": "1", ".gitignore": "data/\n*.log\n/top\n", "x.log": "1", "top": "1", "sub/top": "1",
                                             "sub/.gitignore": "*.tmp\n!keep.tmp\n", "sub/a.tmp": "1", "sub/keep.tmp": "1", "b.tmp": "1"})
    (folder / "data").mkdir()
    (folder / "data/big").write_bytes(bytes(3_000_000))
    files, said = arrived(cluster, folder)
    assert files == {"train.yaml", "a.py", ".gitignore", "sub/.gitignore", "sub/top", "sub/keep.tmp", "b.tmp"}
    assert "data/" in said and "3.00 MB" in said and ".gitignore" in said  # what is left out is named, with its size
    files, _ = arrived(cluster, folder, "--no-gitignore")
    assert {"data/big", "x.log", "top", "sub/a.tmp"} <= files
    (folder / ".stokerignore").write_text("!data/\na.py\n")  # it has the last word
    files, _ = arrived(cluster, folder)
    assert "data/big" in files and not files & {"a.py", "x.log"}


def test_in_a_work_tree(cluster):
    """The rules of the folders above count, and what git tracks is never left out."""
    top = cluster.folder / "repo"
    folder = cluster.job_folder(LIST, files={"a": "1", "o.out": "1", "tracked.out": "1", "logs/tracked": "1", "logs/other": "1", "logs/deep/other": "1",
                                             "excluded": "1", "nested/wanted.out": "1", "nested/.gitignore": "!wanted.out\n"})
    git(cluster.folder, "init", "-q", "-b", "trunk", top)
    (top / "jobs").mkdir()
    folder.rename(top / "jobs/one")
    folder = top / "jobs/one"
    (top / ".gitignore").write_text("*.out\n/jobs/one/logs/\n")
    (top / ".git/info/exclude").write_text("excluded\n")
    git(top, "add", "-A")
    git(top, "add", "-f", "jobs/one/tracked.out", "jobs/one/logs/tracked")
    git(top, "commit", "-qm", "first")
    files, _ = arrived(cluster, folder)
    assert files == {"train.yaml", "a", "tracked.out", "logs/tracked", "nested/wanted.out", "nested/.gitignore"}


@pytest.mark.parametrize("remote, shown", [
    ("https://ann:s3cret@example.com/a/b.git?token=t", "https://example.com/a/b.git"),
    ("git@example.com:a/b.git", "git@example.com:a/b.git"),
])
def test_the_commit_is_recorded(cluster, remote, shown):
    folder = cluster.job_folder(["true"], files={"a": "1", ".gitignore": "ignored\n", "ignored": "1"})
    assert "git" not in cluster.job(pushed(cluster, folder)[0])["spec"]
    git(folder, "init", "-q", "-b", "trunk")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    git(folder, "remote", "add", "origin", remote)
    commit = git(folder, "rev-parse", "HEAD")
    job, _ = pushed(cluster, folder)
    assert cluster.job(job)["spec"]["git"] == {"commit": commit, "branch": "trunk", "remote": shown, "dirty": False}
    (folder / "new").write_text("1")
    git(folder, "checkout", "-q", "--detach")
    job, _ = pushed(cluster, folder)
    assert cluster.job(job)["spec"]["git"] == {"commit": commit, "remote": shown, "dirty": True}
    again = json.loads(cluster.cli("recreate", job["id"], "-o", "json").out)
    assert cluster.job(again)["spec"]["git"]["commit"] == commit
    page = cluster.cli("view", job["id"]).out
    assert commit[:12] in page and "s3cret" not in page


def test_keys_of_a_home_folder_stay_there(cluster):
    keys = [".ssh/id_rsa", ".aws/credentials", ".netrc", ".git-credentials", ".config/stoker/login.json", "sub/.ssh/id_rsa"]
    folder = cluster.job_folder(LIST, files={**dict.fromkeys(keys, "key"), "a.py": "1", "sub/.env": "K=v"})
    files, said = arrived(cluster, folder)
    assert files == {"train.yaml", "a.py", "sub/.env"}
    assert ".ssh/" in said and "warning: sub/.env " in said  # code may need that one
    (folder / ".stokerignore").write_text("!.netrc\n.env\n")
    files, said = arrived(cluster, folder)
    assert ".netrc" in files and not files & {".ssh/id_rsa", "sub/.env"} and "warning" not in said


def test_the_same_code_is_sent_once(cluster):
    folder = cluster.job_folder(LIST, files={"a": "1"})
    first, _ = pushed(cluster, folder)
    kept = objects(cluster)
    second, _ = pushed(cluster, folder)
    assert objects(cluster) == kept and len(kept) == 1
    assert cluster.job(first)["spec"]["runtime"]["artifacts"] == cluster.job(second)["spec"]["runtime"]["artifacts"]
    (folder / "a").write_text("2")
    third, _ = pushed(cluster, folder)
    assert len(objects(cluster)) == 2
    for job in first, second, third:
        cluster.wait(job, "TRAINING_JOB_COMPLETED")
    # it goes with the last job that names it, and then it is sent again
    for job in first, second:
        project = job["training_project"]["id"]
        assert cluster.api("DELETE", f"/v1/training_projects/{project}/jobs/{job['id']}")[0] == 200
    (folder / "a").write_text("1")
    os.utime(folder / "a", ns=(1, 1))
    files, _ = arrived(cluster, folder)
    assert "a" in files


def test_a_large_file_is_sent_once_whatever_changes_beside_it(cluster):
    data = os.urandom(9_000_000)
    folder = cluster.job_folder(["sha256sum data/* a | cut -c1-64 | tr '\\n' ' '; stat -c %a data/x"], files={"a": "1", "data/none": ""})
    (folder / "data/x").write_bytes(data)
    (folder / "data/x").chmod(0o640)
    pushed(cluster, folder)
    before = sum(size for _, size in objects(cluster))
    assert before > len(data)
    (folder / "a").write_text("2")
    job, _ = pushed(cluster, folder)
    assert sum(size for _, size in objects(cluster)) < before + 100_000
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    found = cluster.user_lines(job)[0].split()
    sums = subprocess.run("sha256sum data/* a | cut -c1-64", shell=True, cwd=folder, capture_output=True, text=True, check=True).stdout.split()
    assert found == [*sums, "640"]


def test_what_others_sent_is_not_taken_for_mine(cluster):
    """The digest is the server's own finding, and code of another team is not there."""
    cluster.cli("teams", "create", "lab")
    ann = cluster.cli("tokens", "create", "ann", "--team", "lab", "-q").out.strip()
    folder = cluster.job_folder(LIST, files={"a": "1"})
    job, _ = pushed(cluster, folder)
    (artifact,) = cluster.job(job)["spec"]["runtime"]["artifacts"]
    (archive,) = [p for p in (cluster.data / "objects").rglob("*.tgz")]
    digest = subprocess.run(["sha256sum", archive], capture_output=True, text=True, check=True).stdout[:64]
    path = f"/v1/blobs/credentials/train?sha256={digest}"
    assert cluster.api("GET", path)[1] == {**artifact, "exists": True}
    status, reply = cluster.api("GET", path, token=ann)
    assert status == 200 and not reply["exists"] and reply["s3_key"] != artifact["s3_key"]
    assert cluster.api("GET", path[:-1])[0] == cluster.api("GET", path[:-1] + "x")[0] == 400
    # a body that is not what was announced is not stored, and nothing is known by what was merely said
    other = "ab" * 32
    reply = cluster.api("GET", f"/v1/blobs/credentials/train?sha256={other}")[1]
    assert not reply["exists"]
    c = reply["creds"]
    put = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--aws-sigv4", "aws:amz:us-east-1:s3", "-u",
                          f"{c['aws_access_key_id']}:{c['aws_secret_access_key']}", "-H", f"x-amz-security-token: {c['aws_session_token']}",
                          "-H", f"x-amz-content-sha256: {other}", "-X", "PUT", "--data-binary", "evil",
                          f"{c['endpoint_url']}/{reply['s3_bucket']}/{reply['s3_key']}"], capture_output=True, text=True, check=True).stdout
    assert put != "200"
    assert not cluster.api("GET", f"/v1/blobs/credentials/train?sha256={other}")[1]["exists"]


def test_links_that_lead_out_are_left_out(cluster):
    folder = cluster.job_folder(["find . -mindepth 1 | sort | tr '\\n' ' '; echo"], files={"env/pyvenv.txt": "x", "there": "1"})
    (folder / "env/python3").symlink_to("/usr/bin/python3")
    (folder / "up").symlink_to("../../elsewhere")
    (folder / "fine").symlink_to("there")
    files, said = arrived(cluster, folder)
    assert files == {"train.yaml", "env", "env/pyvenv.txt", "there", "fine"}
    assert "env/python3" in said and "/usr/bin/python3" in said and "up" in said


def test_what_is_no_file_is_left_out(cluster):
    folder = cluster.job_folder(["find . -mindepth 1 | sort | tr '\\n' ' '; echo"], files={"sub/f": "1", ".stokerignore": "quiet\n"})
    for name in "pipe", "sub/pipe", "quiet":
        os.mkfifo(folder / name)
    files, said = arrived(cluster, folder)
    assert files == {"train.yaml", ".stokerignore", "sub", "sub/f"}
    assert said.count("skipped") == 2 and "skipped pipe:" in said and "skipped sub/pipe:" in said
    for i in range(6):
        os.mkfifo(folder / f"more-{i}")
    assert pushed(cluster, folder)[1].count("skipped") == 6  # five by name, and how many more


def test_pulled_checkpoints_are_not_pushed(cluster):
    folder = cluster.job_folder([*LIST, "mkdir -p $BT_CHECKPOINT_DIR/checkpoint-1; echo w > $BT_CHECKPOINT_DIR/checkpoint-1/w"],
                                runtime={"checkpointing_config": {"enabled": True, "settle": "1s"}})
    files, _ = arrived(cluster, folder)
    cluster.cli("checkpoints", "pull", "@/latest", cwd=folder)
    assert (folder / "checkpoints/rank-0/checkpoint-1/w").read_text() == "w\n"
    assert arrived(cluster, folder)[0] == files
    git(folder, "init", "-q")
    assert "checkpoints" not in git(folder, "status", "--porcelain", "-uall")
    (folder / ".stokerignore").write_text("!checkpoints/\n")
    (folder / "checkpoints/.gitignore").unlink()
    assert "checkpoints/rank-0/checkpoint-1/w" in arrived(cluster, folder)[0]


def test_a_dry_run_packs(cluster):
    folder = cluster.job_folder(["true"], files={"small": "x" * 1000, ".gitignore": "no\n", "no": "1"})
    (folder / "large").write_bytes(os.urandom(2_000_000))
    job, said = pushed(cluster, folder, "--dry-run")
    assert "large" in said and "2.00 MB" in said and "small" in said and "no (" in said
    assert job["reason"] is None and cluster.json("ps", "-a") == [] and objects(cluster) == []
    (folder / "unreadable").write_text("1")
    if os.geteuid() != 0:  # root reads everything
        (folder / "unreadable").chmod(0)
        assert cluster.error("push", folder / "train.yaml", "--dry-run") == "denied"
    held = cluster.push([cluster.hold()], compute={"cpu_count": 4})
    cluster.wait(held, "TRAINING_JOB_RUNNING")
    job, said = pushed(cluster, folder, "--dry-run")
    assert job["current_status"] == "TRAINING_JOB_PENDING" and job["reason"] and job["reason"] in said
    waits, _ = pushed(cluster, folder)
    until(lambda: cluster.job(waits)["reason"])
    job, _ = pushed(cluster, folder, "--dry-run")
    assert job["reason"]  # behind that one
    cluster.release(held)
    cluster.wait(waits, "TRAINING_JOB_COMPLETED")


def test_no_server_is_said_at_once(empty_cluster):
    port = held_port()
    env = empty_cluster.environment(STOKER_URL=f"http://127.0.0.1:{port}", STOKER_TOKEN="x")
    folder = empty_cluster.job_folder(["true"])
    push = subprocess.Popen([STOKER, "push", folder / "train.yaml"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        first = push.stderr.readline()  # before the first pause is over
        assert f"http://127.0.0.1:{port}" in first and "2/8" in first
        empty_cluster.port = port
        empty_cluster.start("--cpus", "1", "--memory", "1Gi")  # it goes on by itself
        out, err = push.communicate(timeout=CALL_S)
    finally:
        push.kill()
    assert f"http://127.0.0.1:{port}: " not in err  # the cause is said once
    assert push.returncode == 4 and "token" in err, err  # "x" is no token of this server


def test_no_room_to_pack(cluster):
    """The archive is made in TMPDIR: the message names it, and how to take another."""
    folder = cluster.job_folder(["true"])
    with open(folder / "noise", "wb") as f:
        f.write(os.urandom(8 << 20))
    said = cluster.refusal("push", folder, env={"TMPDIR": "/dev/shm/none"})["error"]
    assert "/dev/shm/none" in said["message"]
    small = cluster.folder / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", small], capture_output=True).returncode != 0:
        pytest.skip("cannot mount")
    try:
        # libarchive keeps its buffer after a write that failed
        said = cluster.refusal("push", folder, env={"TMPDIR": str(small), "ASAN_OPTIONS": "detect_leaks=0"})["error"]
        assert said["id"] == "no_space" and str(small) in said["message"] and "TMPDIR" in said["message"]
    finally:
        subprocess.run(["umount", small], check=True)
    cluster.cli("push", folder, "--dry-run", env={"TMPDIR": ""})
