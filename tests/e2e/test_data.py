"""Weights, cache, checkpoints and secrets, from push to what is left afterwards."""
import base64
import hashlib
import io
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import tarfile
import time

import pytest
from conftest import CALL_S, STOKER, until

CKPT = {"checkpointing_config": {"enabled": True, "settle": "1s"}}
CACHE = {"cache_config": {"enabled": True}}


@pytest.fixture
def files(empty_cluster):
    """A cluster that may read a folder with a small model in it."""
    root = empty_cluster.folder / "sources"
    (root / "model/sub").mkdir(parents=True)
    (root / "model/config.json").write_text('{"a": 1}')
    (root / "model/sub/w.bin").write_bytes(os.urandom(3 << 20))
    (root / "model/notes.txt").write_text("not wanted")
    empty_cluster.sources = root
    return empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--allow-file-root", str(root))


def weights(cluster, **more):
    return [{"source": f"file://{cluster.sources}/model", "mount_location": "/app/model", **more}]


def test_weights_are_there_before_the_first_line(files):
    digest = hashlib.sha256((files.sources / "model/sub/w.bin").read_bytes()).hexdigest()
    job = files.push(["cd /app/model && find . -type f | sort", "sha256sum < /app/model/sub/w.bin",
                      "touch /app/model/x 2>&1 || echo read-only"], weights=weights(files, ignore_patterns=["*.txt"]))
    files.wait(job, "TRAINING_JOB_COMPLETED")
    lines = files.user_lines(job)
    assert lines[:2] == ["./config.json", "./sub/w.bin"] and lines[2].startswith(digest) and lines[-1] == "read-only"
    mirrored = files.json("weights", "ls")
    assert len(mirrored) == 1 and mirrored[0]["state"] == "READY" and mirrored[0]["files"] == 2


def test_one_file_is_not_files(files):
    job = files.push(["true"], weights=weights(files, allow_patterns=["config.json"]))
    files.wait(job, "TRAINING_JOB_COMPLETED")
    said = files.logs(job) + files.cli("events", job["id"]).out
    assert said.count("1 file,") == 3 and "1 files" not in said


def test_the_second_job_finds_them_warm(files):
    first = files.push(["true"], weights=weights(files))
    files.wait(first, "TRAINING_JOB_COMPLETED")
    blob = next((files.data / "store/blobs").rglob("*/" + hashlib.sha256((files.sources / "model/sub/w.bin").read_bytes()).hexdigest()))
    before = blob.stat().st_mtime_ns, blob.stat().st_ino
    second = files.push(["cat /app/model/config.json"], weights=weights(files))
    files.wait(second, "TRAINING_JOB_COMPLETED")
    assert (blob.stat().st_mtime_ns, blob.stat().st_ino) == before
    assert len(files.json("weights", "ls")) == 1
    assert blob.stat().st_nlink >= 2, "the tree is hard links: one machine keeps one copy"


def test_a_source_that_cannot_be_fetched_fails_before_user_code(files):
    job = files.push(["echo never"], weights=[{"source": "https://localhost:1/x", "mount_location": "/w"}])
    done = files.wait(job, "TRAINING_JOB_DEPLOY_FAILED")
    assert done["error_id"] == "address_denied" and "never" not in files.user_lines(job)


@pytest.mark.parametrize("source, error", [("file://{root}/nothing", "source_not_found"), ("file://{root}/model/config.json/x", None),
                                           ("file://{root}/out", "source_denied"), ("file://{root}/dangling", "source_not_found"),
                                           ("file://{root}/pipe", "source_invalid"), ("s3://b/m", "source_invalid"),
                                           ("file://{root}/empty", "source_not_found")])
def test_a_source_that_cannot_be_there_is_refused_at_push(files, source, error):
    """With the id that a prefetch gives, and nothing is left."""
    (files.sources / "out").symlink_to("/etc")
    (files.sources / "dangling").symlink_to("nothing")
    os.mkfifo(files.sources / "pipe")
    (files.sources / "empty/of/files").mkdir(parents=True)
    source = source.format(root=files.sources)
    folder = files.job_folder(["echo never"], weights=[{"source": source, "mount_location": "/w"}])
    said = {files.error("push", folder / "train.yaml", *flags) for flags in ([], ["--dry-run"])}
    assert files.json("ps", "-a") == [] and files.json("weights", "ls") == []
    assert said == {files.error("weights", "prefetch", source)} and error in (None, *said)


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.1:8443", "[::1]", "[::ffff:10.0.0.1]", "127.1", "2130706433", "0x7f000001",
                                  "017700000001", "0xa9.0xfe.43518"])
def test_an_internal_address_is_refused_at_push(files, host):
    """As far as it is one by itself: what a name leads to is seen when it is fetched. A prefetch is refused in the same words, and nothing is fetched."""
    folder = files.job_folder(["echo never"], weights=[{"source": f"https://{host}/x", "mount_location": "/w"}])
    for flags in [], ["--dry-run"]:
        assert files.error("push", folder / "train.yaml", *flags, code=4) == "address_denied"
    assert files.json("ps", "-a") == []
    pushed, fetched = [files.refusal(*words, code=4)["error"] for words in
                       (["push", folder / "train.yaml"], ["weights", "prefetch", f"https://{host}/x"])]
    assert fetched["id"] == "address_denied" and pushed["message"] == f"job.weights[0]: {fetched['message']}"
    assert files.json("weights", "ls") == []


def test_an_internal_address_that_is_allowed_is_not_refused_at_push(empty_cluster):
    cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--allow-source-network", "127.0.0.0/8")
    said = []
    for host in "127.0.0.1:1", "0x7f000001:1", "8.8.8.8", "10.0.0.1":
        folder = cluster.job_folder(["true"], weights=[{"source": f"https://{host}/x", "mount_location": "/w"}])
        said.append(cluster.cli("push", folder / "train.yaml", "--dry-run", code=None).code)
    assert said == [0, 0, 0, 4]


def again(files, job):
    """The id of the error of a recreate that leaves nothing."""
    before = len(files.json("ps", "-a"))
    refused = files.error("recreate", job["id"])
    assert len(files.json("ps", "-a")) == before
    return refused


def test_a_recreated_job_wants_its_sources_unless_they_are_mirrored(files):
    job = files.push(["cat /app/model/config.json"], weights=weights(files))
    files.wait(job, "TRAINING_JOB_COMPLETED")
    model = files.sources / "model"
    model.rename(files.sources / "gone")
    warm = files.json("recreate", job["id"])
    files.wait(warm, "TRAINING_JOB_COMPLETED")
    assert files.user_lines(warm) == files.user_lines(job)
    files.stop()
    shutil.rmtree(files.data / "store/blobs")
    files.restart()
    assert again(files, job) == "source_not_found"
    model.mkdir()
    assert again(files, job) == "source_not_found"
    files.stop()
    files.start("--cpus", "4", "--memory", "4Gi")
    assert again(files, job) == "source_root_denied"
    files.stop()
    db = sqlite3.connect(files.data / "stoker.db")
    with db:  # a name that an earlier version took
        db.execute("UPDATE jobs SET frozen_json = NULL, spec_json = replace(spec_json, ?, 's3://b/m')", (f"file://{model}",))
    db.close()
    files.restart()
    assert again(files, job) == "source_invalid"


def test_a_recreated_job_wants_the_checkpoint_that_it_started_from(cluster):
    base = cluster.push(["mkdir $BT_CHECKPOINT_DIR/checkpoint-1; echo 1 > $BT_CHECKPOINT_DIR/checkpoint-1/a"], runtime=CKPT)
    cluster.wait(base, "TRAINING_JOB_COMPLETED")
    load = {"enabled": True, "checkpoints": [{"named": {"job": base["id"], "name": "checkpoint-1"}}]}
    job = cluster.push(["true"], runtime={"load_checkpoint_config": load})
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    cluster.wait(cluster.json("recreate", job["id"]), "TRAINING_JOB_COMPLETED")
    cluster.cli("checkpoints", "rm", f"{base['id']}/checkpoint-1", "-y")
    assert again(cluster, job) == "checkpoint_not_found"


@pytest.mark.parametrize("source", ["file:///etc/passwd", "file:///usr/share/common-licenses", "file://{root}-not"])
def test_a_file_outside_of_the_allowed_folders_is_refused_at_push(files, source):
    before = len(files.json("ps", "-a"))
    folder = files.job_folder(["echo never"], weights=[{"source": source.format(root=files.sources), "mount_location": "/w"}])
    for flags in [], ["--dry-run"]:
        assert files.error("push", folder / "train.yaml", *flags, code=4) == "source_root_denied"
    assert len(files.json("ps", "-a")) == before


def test_cache_outlives_jobs(cluster):
    one = cluster.push(["mkdir $BT_PROJECT_CACHE_DIR/d && echo kept > $BT_PROJECT_CACHE_DIR/d/f && echo team > $BT_TEAM_CACHE_DIR/t",
                        "for d in $HF_HOME $XDG_CACHE_HOME; do mkdir -p $d && echo downloaded > $d/f; done"], runtime=CACHE)
    cluster.wait(one, "TRAINING_JOB_COMPLETED")
    two = cluster.push(["cat $BT_PROJECT_CACHE_DIR/d/f $BT_TEAM_CACHE_DIR/t $HF_HOME/f $XDG_CACHE_HOME/f"], runtime=CACHE)
    cluster.wait(two, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(two) == ["kept", "team", "downloaded", "downloaded"]
    other = cluster.push(["ls -A $BT_PROJECT_CACHE_DIR; cat $BT_TEAM_CACHE_DIR/t"], project="other", runtime=CACHE)
    cluster.wait(other, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(other) == ["team"]


def test_cache_commands(cluster):
    job = cluster.push(["mkdir -p $BT_PROJECT_CACHE_DIR/big && head -c 5000 /dev/zero > $BT_PROJECT_CACHE_DIR/big/a && echo x > $BT_PROJECT_CACHE_DIR/b"],
                       runtime=CACHE)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    until(lambda: cluster.api("GET", f"/v1/training_projects/{job['training_project']['id']}/cache/summary")[1].get("file_summaries"))
    summary = cluster.json("cache", "summarize", "p")
    sizes = {f["path"]: f["size_bytes"] for f in summary["file_summaries"]}
    assert sizes["big/a"] == 5000 and sizes["b"] == 2 and sizes.get("big", 0) == 0
    assert cluster.json("cache", "du", "p")[0]["path"] == "big"
    assert [row["path"] for row in cluster.json("cache", "du", "p", "-d", "2")] == ["big/a", "b"]
    assert cluster.json("cache", "du", "p", "-d", "0") == [{"path": ".", "size_bytes": 5002, "files": 2}]
    assert cluster.error("cache", "du", "p", "-d", "-1", code=2) == "usage"
    assert "path,size" in cluster.cli("cache", "summarize", "p", "-o", "csv").out.lower()
    cluster.cli("cache", "rm", "big", "-p", "p", "--yes")
    assert [f["path"] for f in cluster.json("cache", "summarize", "p")["file_summaries"]] == ["b"]
    cluster.cli("cache", "rm", "../../..", "-p", "p", "--yes", code=None).code != 0
    assert (cluster.data / "cache").exists()


def test_deleting_a_project_deletes_its_cache(cluster):
    job = cluster.push(["echo x > $BT_PROJECT_CACHE_DIR/f"], project="gone soon", runtime=CACHE)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    cluster.cli("projects", "rm", "gone soon", code=2)
    cluster.cli("projects", "rm", "gone soon", "--confirm", "wrong", code=2)
    cluster.cli("projects", "rm", "gone soon", "--confirm", "gone soon")
    assert cluster.json("projects", "ls") == []
    assert not list((cluster.data / "cache/projects").glob("*/f"))


def test_a_file_without_a_folder(cluster):
    """torch.save(..., $BT_CHECKPOINT_DIR/last.pt): the folder itself is the checkpoint, "." by name, and is loaded like any."""
    load = {"load_checkpoint_config": {"enabled": True}}
    first = cluster.push(["echo 1 > $BT_CHECKPOINT_DIR/last.txt"], runtime={**CKPT, **load})
    cluster.wait(first, "TRAINING_JOB_COMPLETED")
    assert [c["checkpoint_id"] for c in cluster.json("checkpoints", "ls", first["id"])] == ["."]
    again = cluster.push(["cat $STOKER_RESUME_FROM/last.txt"], runtime=load)
    cluster.wait(again, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(again) == ["1"]
    said = cluster.logs(first) + cluster.logs(again) + cluster.cli("events", first["id"]).out
    assert "1 files" not in said and " . is in the store" not in said


def test_a_pull_of_many_small_files(cluster):
    """Interrupted, it leaves whole files alone. Whole, it is written to the disk once, not twice a file."""
    many = 3000
    make = f"mkdir $BT_CHECKPOINT_DIR/checkpoint-1; cd $BT_CHECKPOINT_DIR/checkpoint-1; for i in $(seq {many}); do echo $i > f$i; done"
    job = cluster.push([make], runtime=CKPT)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    out = cluster.folder / "out"
    command = [STOKER, "checkpoints", "pull", f"{job['id']}/latest", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=cluster.cli_environment(STOKER_ERRORS="json"))
    until(lambda: len(list(out.rglob("f*"))) > 10, pause=0.01)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=CALL_S)[1].decode().splitlines()[-1]
    assert process.returncode == 130 and json.loads(said)["error"]["id"] == "canceled", said
    arrived = [p for p in out.rglob("f*")]
    assert 0 < len(arrived) < many and all(p.read_text() == p.name[1:] + "\n" for p in arrived)
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    trace = cluster.folder / "trace"
    subprocess.run(["strace", "-f", "-e", "trace=fsync,fdatasync,syncfs", "-o", str(trace), *command], check=True, capture_output=True,
                   timeout=CALL_S, env=cluster.cli_environment(ASAN_OPTIONS="detect_leaks=0"))  # not under a tracer
    assert len(list(out.rglob("f*"))) == many
    calls = [line for line in trace.read_text().splitlines() if "sync" in line]
    assert any("syncfs" in line for line in calls) and len(calls) < 20, len(calls)


def test_checkpoints_are_shipped_while_it_runs(cluster):
    job = cluster.push(["mkdir $BT_CHECKPOINT_DIR/checkpoint-1; head -c 3000000 /dev/urandom > $BT_CHECKPOINT_DIR/checkpoint-1/w",
                        "sha256sum < $BT_CHECKPOINT_DIR/checkpoint-1/w", cluster.hold()], runtime=CKPT)
    until(lambda: [c for c in cluster.json("checkpoints", "ls", job["id"]) if c["state"] == "COMPLETE"])
    assert cluster.job(job)["current_status"] == "TRAINING_JOB_RUNNING"
    cluster.release(job)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    out = cluster.folder / "out"
    cluster.cli("checkpoints", "pull", f"{job['id']}/latest", out)
    nothing = cluster.refusal("checkpoints", "pull", f"{job['id']}/latest", out, "--include", "*.nope", code=3)["error"]
    assert nothing["id"] == "not_found" and '"*.nope"' in nothing["message"]
    for glob in ("w", "checkpoint-1/*", "rank-0/checkpoint-1/w", "**/w"):  # in it, in the job, as shown
        assert "pulled 1 file" in cluster.cli("checkpoints", "pull", f"{job['id']}/latest", out, "--include", glob).err
    got = hashlib.sha256((out / "rank-0/checkpoint-1/w").read_bytes()).hexdigest()
    assert any(line.startswith(got) for line in cluster.user_lines(job))
    assert cluster.job(job)["checkpoint_sync_status"] == "COMPLETED"


def test_rotation_never_takes_a_checkpoint_away(cluster):
    script = "for i in 1 2 3; do mkdir $BT_CHECKPOINT_DIR/checkpoint-$i; head -c 2000000 /dev/urandom > $BT_CHECKPOINT_DIR/checkpoint-$i/w; " \
             f"{cluster.hold('$i')}; rm -r $BT_CHECKPOINT_DIR/checkpoint-$i; done"
    job = cluster.push([script], runtime=CKPT)
    for i in 1, 2, 3:  # one that goes before it was seen to be at rest is in the tests of the shipper
        until(lambda: f"checkpoint-{i}" in [c["checkpoint_id"] for c in cluster.json("checkpoints", "ls", job["id"]) if c["state"] == "COMPLETE"])
        cluster.release(job, i)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    found = {c["checkpoint_id"]: c["state"] for c in cluster.json("checkpoints", "ls", job["id"])}
    assert {f"checkpoint-{i}": "COMPLETE" for i in (1, 2, 3)}.items() <= found.items()


def test_what_was_being_written_at_death_is_kept_apart(cluster):
    job = cluster.push(["mkdir $BT_CHECKPOINT_DIR/checkpoint-1 $BT_CHECKPOINT_DIR/checkpoint-2; echo whole > $BT_CHECKPOINT_DIR/checkpoint-1/w", cluster.hold(),
                        "(while :; do echo more; sleep 0.05; done) > $BT_CHECKPOINT_DIR/checkpoint-2/w & sleep 1; kill -9 $$"],
                       runtime={"checkpointing_config": {"enabled": True, "settle": "5s"}})
    until(lambda: [c for c in cluster.json("checkpoints", "ls", job["id"]) if c["state"] == "COMPLETE"])
    cluster.release(job)
    cluster.wait(job, "TRAINING_JOB_FAILED")
    listed = {c["checkpoint_id"]: c["state"] for c in cluster.json("checkpoints", "ls", job["id"])}
    assert listed == {"checkpoint-1": "COMPLETE"}
    everything = {c["checkpoint_id"]: c for c in cluster.json("checkpoints", "ls", job["id"], "--all")}
    assert everything["checkpoint-2"]["state"] == "INCOMPLETE"
    why = everything["checkpoint-2"]["reason"].removeprefix("incomplete: ")
    assert f"checkpoint checkpoint-2 is kept, marked INCOMPLETE: {why}" in cluster.logs(job), "the log names the same reason"
    resumed = cluster.push(["ls $BT_LOAD_CHECKPOINT_DIR/rank-0; cat $BT_LOAD_CHECKPOINT_DIR/rank-0/checkpoint-1/w"],
                           runtime={"load_checkpoint_config": {"enabled": True, "checkpoints": [{"latest": {"job": job["id"]}}]}})
    cluster.wait(resumed, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(resumed) == ["checkpoint-1", "whole"]


def test_a_missing_checkpoint_is_refused_by_name(cluster):
    done = cluster.push(["true"])
    cluster.wait(done, "TRAINING_JOB_COMPLETED")
    assert ["--all" in cluster.cli("checkpoints", "ls", done["id"], *flags).err for flags in ([], ["-a"])] == [True, False]
    load = {"enabled": True, "checkpoints": [{"named": {"job": done["id"], "name": "checkpoint-77"}}]}
    folder = cluster.job_folder(["echo never"], runtime={"load_checkpoint_config": load})
    assert cluster.error("push", folder / "train.yaml", code=3) == "checkpoint_not_found"
    assert [j["id"] for j in cluster.json("ps", "-a")] == [done["id"]]


@pytest.mark.parametrize("ref, error", [
    ({"named": {"job": "nosuch", "name": "c"}}, "job_not_found"), ({"latest": {"job": "nosuch"}}, "job_not_found"),
    ({"latest": {"project": "nosuch"}}, "project_not_found")])
def test_a_reference_to_nothing_is_refused_at_push(cluster, ref, error):
    load = {"enabled": True, "checkpoints": [ref]}
    folder = cluster.job_folder(["echo fresh"], runtime={"load_checkpoint_config": load})
    assert cluster.error("push", folder / "train.yaml", code=3) == error
    assert cluster.error("push", folder / "train.yaml", "--dry-run", code=3) == error
    assert cluster.json("ps", "-a") == []
    job = cluster.push(["echo fresh"], runtime={"load_checkpoint_config": {"enabled": True, "checkpoints": [ref, ref], "required": False}})
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job) == ["fresh"]
    log = cluster.logs(job)
    assert log.count("nosuch") == 2 and log.count("starting fresh") == 1


def test_one_checkpoint_of_two_is_missing(cluster):
    first = cluster.push(["mkdir $BT_CHECKPOINT_DIR/c && echo whole > $BT_CHECKPOINT_DIR/c/w"], runtime=CKPT)
    cluster.wait(first, "TRAINING_JOB_COMPLETED")
    load = {"enabled": True, "required": False, "checkpoints": [{"named": {"job": first["id"], "name": "missing"}}, {"latest": {}}]}
    job = cluster.push(["cat $BT_LOAD_CHECKPOINT_DIR/*/c/w $BT_LOAD_CHECKPOINT_DIR/c/w 2>/dev/null || true"], runtime={"load_checkpoint_config": load})
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job) == ["whole"]
    log = cluster.logs(job)
    assert log.count("missing") == 1 and "fresh" not in log


def test_a_job_that_runs_may_still_write_the_checkpoint(cluster):
    first = cluster.push([cluster.hold(), "mkdir $BT_CHECKPOINT_DIR/late && echo 1 > $BT_CHECKPOINT_DIR/late/f"], runtime=CKPT)
    cluster.wait(first, "TRAINING_JOB_RUNNING")
    load = {"enabled": True, "checkpoints": [{"named": {"job": first["id"], "name": "late"}}]}
    folder = cluster.job_folder(["true"], runtime={"load_checkpoint_config": load})
    cluster.cli("push", folder / "train.yaml", "--dry-run")
    cluster.release(first)
    cluster.wait(first, "TRAINING_JOB_COMPLETED")


def test_shipping_survives_the_runner_server_outage(cluster):
    job = cluster.push([cluster.hold(), "sleep 2; mkdir $BT_CHECKPOINT_DIR/checkpoint-1; head -c 9000000 /dev/urandom > $BT_CHECKPOINT_DIR/checkpoint-1/w; sleep 2"],
                       runtime=CKPT)
    cluster.wait(job, "TRAINING_JOB_RUNNING")
    cluster.release(job)
    cluster.kill()
    time.sleep(5)  # all of it falls into the outage, or some: both must be fine
    cluster.restart()
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert [c["state"] for c in cluster.json("checkpoints", "ls", job["id"])] == ["COMPLETE"]


def test_secrets_reach_only_the_process(cluster):
    value = "correct-horse-battery-staple+/9"
    cluster.cli("secrets", "set", "hf_access_token", stdin=value + "\n")
    job = cluster.push(["printf %s \"$TOKEN\" | sha256sum", "echo leak: $TOKEN",
                        "printf %s \"$TOKEN\" | base64", "echo \"${TOKEN%??}\"", "printf '%s' \"$TOKEN\" | head -c 9; sleep 1; printf '%s\\n' \"$TOKEN\" | tail -c +10"],
                       runtime={"environment_variables": {"TOKEN": {"secret": "hf-access-token"}}})
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    lines = cluster.logs(job)
    assert hashlib.sha256(value.encode()).hexdigest() in lines and value not in lines and base64.b64encode(value.encode()).decode() not in lines
    assert "leak: [redacted]" in lines
    needle = value.encode()
    for path in cluster.data.rglob("*"):
        if path.is_file():
            assert needle not in path.read_bytes(), path
    assert needle not in cluster.log.read_bytes()
    assert all("value" not in s for s in cluster.json("secrets", "ls"))


def test_secret_removed_before_the_start(cluster):
    cluster.cli("secrets", "set", "s", stdin="some-long-value")
    blocker = cluster.push(["sleep 600"], compute={"cpu_count": 4, "memory": "1Gi"})
    job = cluster.push(["echo never"], runtime={"environment_variables": {"X": {"secret": "s"}}}, compute={"cpu_count": 4, "memory": "1Gi"})
    cluster.cli("secrets", "rm", "s", "--yes")
    cluster.cli("stop", blocker["id"], "--now")
    assert cluster.wait(job, "TRAINING_JOB_DEPLOY_FAILED")["error_id"] == "secret_not_set"


def test_the_sandbox(cluster):
    job = cluster.push([f"ls {cluster.data} 2>&1; cat {cluster.data}/master.key 2>&1; cat /etc/shadow 2>&1 | head -1; ls -A /home | wc -l",
                        "echo mine > /usr/local/hello && cat /usr/local/hello", "id -u; ps ax | wc -l", f"ls -d {cluster.home} 2>&1 || true"])
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    lines = cluster.logs(job)
    assert "master.key" not in [line.strip() for line in lines.splitlines()] and "root:" not in lines and "mine" in lines
    assert not os.path.exists("/usr/local/hello")


def hostile(kind):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo({"absolute": "/tmp/evil", "dotdot": "../evil"}.get(kind, "link"))
        if kind == "device":
            info.type = tarfile.CHRTYPE
        elif kind == "link out":
            info.type, info.linkname = tarfile.SYMTYPE, "/etc"
        elif kind == "hard link out":
            info.type, info.linkname = tarfile.LNKTYPE, "../../etc/passwd"
        tar.addfile(info, io.BytesIO(b""))
    return out.getvalue()


@pytest.mark.parametrize("kind", ["absolute", "dotdot", "device", "link out", "hard link out", "not a tar"])
def test_hostile_archives(cluster, kind):
    _, made = cluster.api("POST", "/v1/training_projects", {"training_project": {"name": "evil"}})
    _, creds = cluster.api("GET", "/v1/blobs/credentials/train")
    body = hostile(kind) if kind != "not a tar" else b"this is no archive" * 100
    sent = subprocess.run(["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user",
                           f"{creds['creds']['aws_access_key_id']}:{creds['creds']['aws_secret_access_key']}", "-H",
                           f"x-amz-security-token: {creds['creds']['aws_session_token']}", "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD",
                           "-X", "PUT", "--data-binary", "@-", f"{creds['creds']['endpoint_url']}/{creds['s3_bucket']}/{creds['s3_key']}"],
                          input=body, capture_output=True, check=True)
    assert sent.stdout == b"200", sent
    job = {"runtime": {"start_commands": ["echo never"], "artifacts": [{"s3_bucket": creds["s3_bucket"], "s3_key": creds["s3_key"]}]},
           "compute": {"memory": "256Mi"}, "enable_baseten_workdir": True}
    status, reply = cluster.api("POST", f"/v1/training_projects/{made['training_project']['id']}/jobs", {"training_job": job})
    assert status == 200, reply
    done = cluster.wait(reply["training_job"], "TRAINING_JOB_DEPLOY_FAILED")
    assert "archive" in done["error_message"] and "never" not in cluster.user_lines(reply["training_job"])


def test_the_quota_of_a_cache_is_set(cluster):
    cluster.push(["true"], project="roomy")
    cluster.cli("cache", "quota", "5GB", "-p", "roomy")
    project = next(p for p in cluster.json("projects", "ls") if p["name"] == "roomy")
    assert project["cache_quota_bytes"] == 5 * 10**9
    cluster.error("cache", "quota", "much", "-p", "roomy", code=2)
    assert cluster.error("cache", "rm", "nothing/there", "-p", "roomy", "-y", code=3) == "cache_path_not_found"


def test_scratch_is_what_the_job_wrote(cluster):
    """Not what the disk holds: to scratch, and to the root that is thrown away."""
    mb = 1 << 20
    job = cluster.push([f"head -c {40 * mb} /dev/zero > $BT_SCRATCH_DIR/f; head -c {8 * mb} /dev/zero > /var/tmp/g; sleep 600"])
    seen = []

    def summed():
        series = cluster.json("metrics", job["id"])["ephemeral_storage"]
        seen[:] = [p["value"] for p in series["usage_bytes"]]
        assert all(0 <= p["value"] <= 1 for p in series["utilization"])
        return seen and seen[-1] >= 48 * mb
    try:
        until(summed)
        assert max(seen) < 60 * mb
    finally:
        cluster.cli("stop", job["id"], "--now")
        cluster.wait(job, "TRAINING_JOB_STOPPED")


def test_a_secret_in_a_checkpoints_name_is_in_no_event(cluster):
    cluster.cli("secrets", "set", "named", stdin="sesame-open-12345")
    job = cluster.push(["mkdir $BT_CHECKPOINT_DIR/checkpoint-$S; echo 1 > $BT_CHECKPOINT_DIR/checkpoint-$S/f"],
                       runtime={"environment_variables": {"S": {"secret": "named"}},
                                "checkpointing_config": {"enabled": True, "settle": "1s"}})
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    events = cluster.cli("events", job["id"]).out
    assert "checkpoint-[redacted] is in the store" in events and "sesame" not in events + cluster.logs(job)


def test_keep_last_and_pins(cluster):
    job = cluster.push(["for i in 1 2 3 4 5; do mkdir $BT_CHECKPOINT_DIR/checkpoint-$i; echo $i > $BT_CHECKPOINT_DIR/checkpoint-$i/w; "
                        f"{cluster.hold('$i')}; done"],
                       runtime={"checkpointing_config": {"enabled": True, "keep_last": 2, "settle": "1s"}})

    def there():
        return {c["checkpoint_id"]: c for c in cluster.json("checkpoints", "ls", job["id"]) if c["state"] == "COMPLETE"}

    for i in range(1, 6):
        until(lambda: f"checkpoint-{i}" in there())
        if i == 1:
            cluster.cli("checkpoints", "pin", f"{job['id']}/checkpoint-1")
        cluster.release(job, i)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert sorted(there()) == ["checkpoint-1", "checkpoint-4", "checkpoint-5"]
    assert there()["checkpoint-1"]["pinned"] and "COMPLETE pinned" in cluster.cli("checkpoints", "ls", job["id"]).out
    assert cluster.error("checkpoints", "rm", f"{job['id']}/checkpoint-1", "-y", code=5) == "checkpoint_pinned"
    cluster.cli("checkpoints", "unpin", f"{job['id']}/checkpoint-1")
    cluster.cli("checkpoints", "rm", f"{job['id']}/checkpoint-1", "-y")
    assert sorted(there()) == ["checkpoint-4", "checkpoint-5"]
    cluster.cli("checkpoints", "pin", f"{job['id']}/checkpoint-1", code=3)


def test_a_full_node_cache_is_waited_for_without_a_place(files):
    """Of two jobs at once whose weights do not fit together, one waits in the queue; its CPUs are for others."""
    for name in "ab":
        (files.sources / name).mkdir()
        (files.sources / name / "w.bin").write_bytes(os.urandom(15 << 20))
    files.stop()
    files.start(*files.flags, "--node-cache-bytes", "20M")
    whole = {"cpu_count": 2, "memory": "256Mi"}

    def of(name, command):
        return files.push([command, "sha256sum < /w/w.bin"], compute=whole,
                          weights=[{"source": f"file://{files.sources}/{name}", "mount_location": "/w"}])

    first = of("a", files.hold())
    files.wait(first, "TRAINING_JOB_RUNNING")
    second = of("b", "true")
    until(lambda: [w["state"] for w in files.json("weights", "ls")] == ["READY", "READY"])
    third = files.push(["true"], compute=whole)
    files.wait(third, "TRAINING_JOB_COMPLETED")
    waits = files.job(second)
    assert waits["current_status"] == "TRAINING_JOB_PENDING" and waits["attempt"] == 0 and waits["reason"]
    files.release(first)
    files.wait(first, "TRAINING_JOB_COMPLETED")
    files.wait(second, "TRAINING_JOB_COMPLETED")
    again = of("a", "true")  # one after the other: the space is given back before it is asked for, or waited for
    files.wait(again, "TRAINING_JOB_COMPLETED")
    digests = [hashlib.sha256((files.sources / name / "w.bin").read_bytes()).hexdigest() for name in "aba"]
    assert [files.user_lines(job)[-1].split()[0] for job in (first, second, again)] == digests
