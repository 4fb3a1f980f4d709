"""`--objects s3://`: code, checkpoints and what else the server keeps in a real S3 store, and runners that go there themselves."""
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import random
import re
import socket
import subprocess
import time
import urllib.parse
import urllib.request

import botocore.exceptions
import pytest
from conftest import CALL_S, STOKER, until
from s3 import KEY, PREFIX, SECRET, Weather, flags, minio, s3_running, store  # noqa: F401

CKPT = {"checkpointing_config": {"enabled": True, "marker": "done"}}


def save(name, mib=1):
    return (f"mkdir -p $BT_CHECKPOINT_DIR/{name}; head -c {mib}M /dev/urandom > $BT_CHECKPOINT_DIR/{name}/w.bin; "
            f"sha256sum < $BT_CHECKPOINT_DIR/{name}/w.bin; touch $BT_CHECKPOINT_DIR/{name}/done")


def no_start(cluster, *args, **env):
    """The error of a server that cannot start: its id and words."""
    done = subprocess.run([STOKER, "server", "--data", cluster.data, "--listen", "127.0.0.1:0", *args], capture_output=True, text=True, timeout=CALL_S,
                          env=cluster.environment(STOKER_ERRORS="json", **env))
    assert done.returncode != 0 and SECRET not in done.stdout + done.stderr, done
    said = json.loads(done.stderr.splitlines()[-1])["error"]
    return said["id"], said["message"]


def cannot_start(cluster, *args, **env):
    return no_start(cluster, *args, **env)[0]


def test_a_job_and_its_checkpoints(empty_cluster, store):
    """Code and checkpoints go through no folder of the server, and the job after the first one loads them."""
    c = empty_cluster.start(*flags(empty_cluster, store))
    job = c.push(["cat hello.txt", save("checkpoint-1", 40)], runtime=CKPT, files={"hello.txt": "from the archive\n"})
    c.wait(job, "TRAINING_JOB_COMPLETED")
    first, digest = c.user_lines(job)
    assert first == "from the archive"
    assert all(k.startswith(PREFIX + "/") for k in store.keys()) and not any((c.data / "objects").rglob("w.bin"))
    assert f"{PREFIX}/training_projects/{job['training_project']['id']}/jobs/{job['id']}/rank-0/checkpoint-1/w.bin" in store.keys()
    c.cli("checkpoints", "pull", f"{job['id']}/checkpoint-1", c.folder / "pulled")
    pulled = next((c.folder / "pulled").rglob("w.bin"))
    assert subprocess.run(["sha256sum"], stdin=open(pulled, "rb"), capture_output=True, text=True).stdout == digest + "\n"
    again = c.push(["sha256sum < $BT_LOAD_CHECKPOINT_DIR/*/*/w.bin || find $BT_LOAD_CHECKPOINT_DIR"],
                   runtime={"checkpointing_config": {"enabled": True}, "load_checkpoint_config": {"enabled": True, "checkpoints": [
                       {"typ": "baseten_latest_checkpoint", "job_id": job["id"]}]}})
    c.wait(again, "TRAINING_JOB_COMPLETED")
    assert digest in c.user_lines(again), c.logs(again)
    status, _ = c.api("DELETE", f"/v1/training_projects/{job['training_project']['id']}/jobs/{job['id']}")
    assert status == 200
    until(lambda: not [k for k in store.keys() if job["id"] in k])


def conforms(store, endpoint):
    place = "data/a/b%20c" if "versitygw" in str(store.command) else "data"  # with a prefix the suite's longest keys are too long for MinIO
    done = subprocess.run([pathlib.Path(STOKER).parents[1] / "tests/test_objstore_s3"], capture_output=True, text=True, timeout=CALL_S, errors="replace",
                          env={**os.environ, "STOKER_TEST_S3": f"s3:{endpoint}/{place}", "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET})
    assert done.returncode == 0 and "S3 is not tested" not in done.stdout, done.stdout + done.stderr
    assert store.keys() == []


def test_the_driver_conforms(store):
    """The suite of every driver, with keys and with signatures of somebody else, of which some have expired."""
    conforms(store, store.endpoint)


def test_answers_that_are_lost(store):
    """The same suite, while the store completes each upload in parts and its first answer never arrives."""
    weather, met = Weather(store), set()

    def lose_first(method, path):
        upload = re.search(r"[?&]uploadId=([^&]+)", path)
        if method != "POST" or not upload or upload[1] in met:
            return None
        met.add(upload[1])
        return "cut", 0

    weather.fault = lose_first
    try:
        conforms(store, weather.endpoint)
        assert weather.struck > 4
    finally:
        weather.close()


def test_many_small_files(empty_cluster, minio):
    """A checkpoint of many small files and some large ones, while some of the server's and the store's answers fail."""
    weather = Weather(minio)
    dice = random.Random(3)
    weather.fault = lambda method, path: dice.choice([None] * 30 + [("status", 503)])
    try:
        c = empty_cluster.start(*flags(empty_cluster, weather))
        write = ("import os, hashlib\nd = os.environ['BT_CHECKPOINT_DIR'] + '/checkpoint-1/'\nos.makedirs(d)\nfor i in range(600):\n"
                 "    b = os.urandom(18 << 20 if i % 300 == 0 else i * 10)\n    open(d + f'f{i:03}', 'wb').write(b)\n"
                 "    print(f'f{i:03}', hashlib.sha256(b).hexdigest())\nopen(d + 'done', 'w')\n")
        job = c.push(["python3 write.py"], runtime=CKPT, files={"write.py": write})
        c.wait(job, "TRAINING_JOB_COMPLETED")
        said = dict(line.split() for line in c.user_lines(job))
        folder = f"{PREFIX}/training_projects/{job['training_project']['id']}/jobs/{job['id']}/rank-0/checkpoint-1"
        there = {k.rpartition("/")[2]: hashlib.sha256(minio.body(k)).hexdigest() for k in minio.keys(folder + "/f")}
        assert len(said) == 600 and there == said and weather.struck > 0
        row, = c.json("checkpoints", "ls", job["id"])
        assert row["state"] == "COMPLETE", row
    finally:
        weather.close()


@pytest.mark.parametrize("knows", [True, False])
def test_what_is_deleted_goes_together(empty_cluster, minio, knows):
    """A checkpoint and all of a job: a few requests, also for names that need care; as many as there are files where the store knows of no other way."""
    weather, deletes = Weather(minio), []

    def fault(method, path):
        many = method == "POST" and "?delete" in path
        if many or (method == "DELETE" and "/training_projects/" in path):
            deletes.append(method)
        return ("status", 501) if many and not knows else None

    weather.fault = fault
    try:
        c = empty_cluster.start(*flags(empty_cluster, weather))
        write = ("import os\nfor n in '12':\n    d = os.environ['BT_CHECKPOINT_DIR'] + '/checkpoint-' + n\n    os.makedirs(d)\n"
                 "    for i in range(60):\n        open(f'{d}/ f{i} & <ü> ', 'w').write('x' * i)\n    open(d + '/done', 'w')\n")
        job = c.push(["python3 write.py"], runtime=CKPT, files={"write.py": write})
        c.wait(job, "TRAINING_JOB_COMPLETED")
        folder = f"{PREFIX}/training_projects/{job['training_project']['id']}/jobs/{job['id']}/"
        assert len([k for k in minio.keys(folder) if " & <ü> " in k]) == 120
        deletes.clear()
        c.cli("checkpoints", "rm", f"{job['id']}/checkpoint-1", "--yes")
        assert not [k for k in minio.keys(folder) if "checkpoint-1/" in k]
        assert len([k for k in minio.keys(folder) if "checkpoint-2/" in k]) == 61
        status, _ = c.api("DELETE", f"/v1/training_projects/{job['training_project']['id']}/jobs/{job['id']}")
        assert status == 200
        until(lambda: not minio.keys(folder))
        assert len(deletes) < 10 if knows else deletes.count("POST") == 1 and len(deletes) > 120, deletes
    finally:
        weather.close()


def test_a_store_that_is_far(empty_cluster, minio):
    """Each look at an object takes its time: a runner does not wait for as many as a checkpoint has files, one after the other."""
    weather = Weather(minio)
    weather.fault = lambda method, path: time.sleep(0.3) if method == "HEAD" and "/checkpoint-1/f" in path else None
    try:
        c = empty_cluster.start(*flags(empty_cluster, weather))
        write = ("mkdir -p $BT_CHECKPOINT_DIR/checkpoint-1; for i in $(seq 120); do echo $i > $BT_CHECKPOINT_DIR/checkpoint-1/f$i; done; "
                 "touch $BT_CHECKPOINT_DIR/checkpoint-1/done")
        job = c.push([write], runtime=CKPT)
        c.wait(job, "TRAINING_JOB_COMPLETED")
        row, = c.json("checkpoints", "ls", job["id"])
        assert (row["state"], row["files"]) == ("COMPLETE", 121), row
        nodes = c.push([f"if [ $BT_NODE_RANK = 0 ]; then {write}; else mkdir -p $BT_CHECKPOINT_DIR/checkpoint-1; "
                        "echo x > $BT_CHECKPOINT_DIR/checkpoint-1/g; touch $BT_CHECKPOINT_DIR/checkpoint-1/done; fi"],
                       runtime=CKPT, compute={"cpu_count": 1, "memory": "256Mi", "node_count": 2})
        c.wait(nodes, "TRAINING_JOB_COMPLETED")
        assert {r["state"] for r in c.json("checkpoints", "ls", nodes["id"])} == {"COMPLETE"}
    finally:
        weather.close()


@pytest.mark.parametrize("loss", ["deleted", "cut"])
def test_what_the_store_has_lost(empty_cluster, minio, loss):
    """A checkpoint that is saved over counts only with all of its files, also those that the runner sent long ago."""
    c = empty_cluster.start(*flags(empty_cluster, minio))
    at = "$BT_CHECKPOINT_DIR/checkpoint-1"
    job = c.push([f"mkdir -p {at}; for i in $(seq 40); do echo $i > {at}/f$i; done; touch {at}/done", c.hold("one"), f"echo more > {at}/f7; touch {at}/done", c.hold("two")],
                 runtime=CKPT)

    def row():
        rows = c.json("checkpoints", "ls", job["id"], "--all")
        return rows[0] if rows else {"state": None}

    until(lambda: row()["state"] == "COMPLETE")
    lost = f"{PREFIX}/training_projects/{job['training_project']['id']}/jobs/{job['id']}/rank-0/checkpoint-1/f3"
    minio.client.delete_object(Bucket="data", Key=lost)
    if loss == "cut":
        minio.client.put_object(Bucket="data", Key=lost, Body=b"")
    c.release(job, "one")
    until(lambda: row()["state"] == "INCOMPLETE")
    c.release(job, "two")
    c.wait(job, "TRAINING_JOB_COMPLETED")
    assert "deleted from the store" in row()["reason"], row()


def test_no_bytes_through_the_server(empty_cluster, minio):
    """URLs that clients get are the store's own."""
    c = empty_cluster.start(*flags(empty_cluster, minio))
    job = c.push([save("checkpoint-1")], runtime=CKPT)
    c.wait(job, "TRAINING_JOB_COMPLETED")
    status, said = c.api("GET", f"/v1/training_projects/{job['training_project']['id']}/jobs/{job['id']}/checkpoint_files")
    url = next(f["url"] for f in said["presigned_urls"] if f["relative_file_name"].endswith("w.bin"))
    assert status == 200 and url.startswith(minio.endpoint) and SECRET not in url
    with urllib.request.urlopen(url, timeout=CALL_S) as reply:
        assert len(reply.read()) == 1 << 20


def test_whose_bucket(empty_cluster, minio):
    c = empty_cluster
    right = flags(c, minio)
    elsewhere = flags(c, minio, "s3://data/other")
    error, said = no_start(c, *flags(c, minio, "s3://none/x"))
    assert error == "objects_missing" and minio.endpoint in said and "make this bucket, or name another one" in said, said
    assert cannot_start(c, *right[:-2]) == "invalid"  # no keys
    error, said = no_start(c, *right[:-2], AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY="wrong")
    assert error == "objects_denied" and minio.endpoint in said and "the keys have to be right" in said, said
    os.chmod(right[-1], 0o644)
    assert cannot_start(c, *right) == "denied"
    os.chmod(right[-1], 0o600)
    if os.geteuid() == 0:
        os.chown(right[-1], 65534, -1)  # its owner can read it
        assert cannot_start(c, *right) == "denied"
        os.chown(right[-1], 0, -1)
    c.start(*right)
    c.wait(c.push(["true"]), "TRAINING_JOB_COMPLETED")
    c.stop()
    assert cannot_start(c, *elsewhere) == "objects_elsewhere"  # its mark is not there
    assert cannot_start(c) == "objects_elsewhere"  # its objects are not in the folder
    assert subprocess.run([STOKER, "server", "--data", c.folder / "second", "--listen", "127.0.0.1:0", *right], timeout=CALL_S,
                          capture_output=True, env=c.environment()).returncode != 0  # another Stoker
    for key in minio.keys(PREFIX):  # copied by any tool: then it is the same store
        minio.client.copy_object(Bucket="data", Key=key.replace(PREFIX, "other"), CopySource={"Bucket": "data", "Key": key})
    c.start(*elsewhere)
    c.wait(c.push(["true"]), "TRAINING_JOB_COMPLETED")


def test_a_bucket_that_is_read_only(empty_cluster):
    """At the start, and under a server that runs: what writes is told and waits, and all goes on once it may be written again."""
    with s3_running(empty_cluster.folder, "versitygw") as store:
        c, writable = empty_cluster, store.command

        def again(command):
            store.kill()
            store.command = command
            store.start()

        read_only = [*writable[:1], "--readonly", *writable[1:]]
        again(read_only)
        assert cannot_start(c, *flags(c, store)) == "objects_denied"
        again(writable)
        assert store.keys() == []
        c.start(*flags(c, store))
        job = c.push(["echo up", c.hold("one"), save("checkpoint-1"), "echo saved", c.hold("two")], runtime=CKPT)
        until(lambda: "up" in c.user_lines(job))
        again(read_only)
        c.release(job, "one")
        until(lambda: "saved" in c.user_lines(job))
        until(lambda: health(c) == "away")
        problem = c.api("GET", "/v1/status")[1]["objects_problem"]
        assert store.endpoint in problem and "AccessDenied" in problem and "The keys need to" in problem, problem
        again(writable)
        until(lambda: health(c) == "ok")
        c.release(job, "two")
        c.wait(job, "TRAINING_JOB_COMPLETED")
        assert f"{PREFIX}/training_projects/{job['training_project']['id']}/jobs/{job['id']}/rank-0/checkpoint-1/w.bin" in store.keys()


def health(cluster):
    return cluster.api("GET", "/healthz", token="")[1]["objects"]


def object_metrics(cluster):
    text = cluster.api("GET", "/metrics", raw=True)[1].decode()
    return {k: float(v) for k, v in re.findall(r"^stoker_objects_(\w+) (\S+)$", text, re.MULTILINE)}


def test_a_store_that_goes_away(empty_cluster, minio):
    """Killed and frozen while jobs run, save and wait: they go on, all of it arrives, and its absence is named."""
    c = empty_cluster.start(*flags(empty_cluster, minio))
    job = c.push(["echo up", c.hold("one"), save("checkpoint-1", 20), "echo saved", c.hold("two"), save("checkpoint-2", 20), "echo again", c.hold("three")],
                 runtime=CKPT)
    c.wait(job, "TRAINING_JOB_RUNNING")
    waits = c.push(["cat hello.txt"], files={"hello.txt": "hello\n"}, compute={"cpu_count": 4, "memory": "256Mi"})
    assert health(c) == "ok" and object_metrics(c)["up"] == 1
    minio.kill()
    c.release(job, "one")
    until(lambda: "saved" in c.user_lines(job))
    until(lambda: health(c) == "away")
    assert "object store" in c.cli("doctor", code=None).out and object_metrics(c)["up"] == 0 and object_metrics(c)["away_seconds"] > 0
    assert "object store cannot be reached, for " in c.job(job)["reason"] and c.job(job)["error_message"] is None
    status = c.api("GET", "/v1/status")[1]
    assert status["objects_away_ms"] > 0 and minio.endpoint in status["objects_problem"] and SECRET not in status["objects_problem"]
    assert c.error("push", c.job_folder(["true"], files={"a": "b"}) / "train.yaml") == "objects_unavailable"
    assert health(c) == "away" and object_metrics(c)["outages_total"] == 0  # what is only signed is not answered
    epoch = c.data / "logs" / job["id"] / "epoch"
    before = epoch.read_text()
    c.stop()
    c.restart()  # a server starts without its store, too
    minio.start()
    folder = f"{PREFIX}/training_projects/{job['training_project']['id']}/jobs/{job['id']}/rank-0"
    until(lambda: f"{folder}/checkpoint-1/w.bin" in minio.keys() and health(c) == "ok")
    # this server asks the store once what others know of the log, and takes no line before
    until(lambda: "saved" in c.cli("logs", job["id"], code=None).out and epoch.read_text() != before)
    minio.freeze()
    c.release(job, "two")
    until(lambda: "again" in c.user_lines(job) and health(c) == "away")
    c.release(job, "three")
    until(lambda: c.job(waits)["current_status"] in ("TRAINING_JOB_CREATED", "TRAINING_JOB_DEPLOYING", "TRAINING_JOB_PENDING"))
    c.stop()  # and stops, while each of its questions hangs
    c.restart()
    minio.thaw()
    c.wait(job, "TRAINING_JOB_COMPLETED")
    c.wait(waits, "TRAINING_JOB_COMPLETED")
    assert c.user_lines(waits) == ["hello"] and c.job(job)["reason"] is None
    assert any(e["kind"] == "objects" for e in c.json("events", job["id"]))
    rows = c.json("checkpoints", "ls", job["id"])
    assert len(rows) == 2 and all(f"{folder}/{r['checkpoint_id']}/w.bin" in minio.keys() for r in rows), rows


@pytest.mark.parametrize("how", ["kill", "freeze", "keys"])
def test_a_push_that_the_store_fails(empty_cluster, minio, how):
    """It is told what fails: neither this client's request nor its signature, and not the server."""
    c = empty_cluster.start(*flags(empty_cluster, minio))
    if how == "freeze":
        minio.freeze()
    else:
        minio.kill()
    if how == "keys":
        minio.env["MINIO_ROOT_PASSWORD"] = "another-secret-key"
        minio.process = subprocess.Popen(minio.command, env=minio.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: health(c) == "away")
    said = c.refusal("push", c.job_folder(["true"], files={"a": "b"}) / "train.yaml", code=1)["error"]
    assert said["id"] == "objects_unavailable" and f"the object store of {c.url} fails: put uploads/" in said["message"], said
    assert minio.endpoint in said["message"] and "`stoker doctor`" in said["message"], said
    upload, = (f for f in json.loads(c.cli("doctor", "-o", "json", code=1).out) if f["check"] == "upload")
    assert upload["verdict"] == "warn" and "the object store is away" in upload["message"], upload
    assert "cannot reach" not in said["message"] and SECRET not in said["message"], said


def test_a_push_to_a_store_that_is_full(empty_cluster, minio):
    weather = Weather(minio)
    c = empty_cluster.start(*flags(empty_cluster, weather))
    weather.fault = lambda method, path: ("status", 507)
    said = c.refusal("push", c.job_folder(["true"]) / "train.yaml", code=1)["error"]
    assert said["id"] == "no_space" and f"the object store of {c.url} is full: put uploads/" in said["message"], said
    assert weather.endpoint in said["message"] and "Make room there" in said["message"], said
    weather.fault = lambda method, path: None
    c.wait(c.push(["true"]), "TRAINING_JOB_COMPLETED")
    weather.close()


def test_bad_weather(empty_cluster, minio):
    """Answers of 503, answers that are cut, and slow ones: what arrives is whole."""
    weather = Weather(minio)
    dice = random.Random(7)
    try:
        c = empty_cluster.start(*flags(empty_cluster, weather))
        weather.fault = lambda method, path: dice.choice([None, None, None, ("status", 503), ("cut", 1000), ("slow", 4 << 20)])
        job = c.push(["cat hello.txt", save("checkpoint-1", 30), save("checkpoint-2", 5)], runtime=CKPT, files={"hello.txt": "from the archive\n"})
        c.wait(job, "TRAINING_JOB_COMPLETED")
        first, *digests = c.user_lines(job)
        assert first == "from the archive" and weather.struck > 10
        folder = f"{PREFIX}/training_projects/{job['training_project']['id']}/jobs/{job['id']}/rank-0"
        for name, digest in zip(["checkpoint-1", "checkpoint-2"], digests):
            assert hashlib.sha256(minio.body(f"{folder}/{name}/w.bin")).hexdigest() == digest.split()[0]
        loads = c.push(["sha256sum < $(find $BT_LOAD_CHECKPOINT_DIR -name w.bin | sort | head -n 1)"],
                       runtime={"checkpointing_config": {"enabled": True}, "load_checkpoint_config": {"enabled": True, "checkpoints": [
                           {"typ": "baseten_named_checkpoint", "checkpoint_name": "checkpoint-1", "job_id": job["id"]}]}})
        c.wait(loads, "TRAINING_JOB_COMPLETED")
        assert c.user_lines(loads) == digests[:1]
        weather.fault = lambda method, path: None
    finally:
        weather.close()


def test_a_bucket_that_goes_away(empty_cluster, minio):
    """Deleted while a job runs, and made again: what the job still has arrives."""
    c = empty_cluster.start(*flags(empty_cluster, minio))
    job = c.push(["echo up", c.hold("one"), save("checkpoint-1", 2), "echo saved", c.hold("two")], runtime=CKPT)
    c.wait(job, "TRAINING_JOB_RUNNING")

    def away():
        """The server writes on: it may take more than one round, also where what was being written has brought the bucket back."""
        with contextlib.suppress(botocore.exceptions.ClientError):
            for key in minio.keys():
                minio.client.delete_object(Bucket="data", Key=key)
            minio.client.delete_bucket(Bucket="data")
        return health(c) == "away"

    until(away)
    assert "NoSuchBucket" in c.api("GET", "/v1/status")[1]["objects_problem"]
    c.release(job, "one")
    until(lambda: "saved" in c.user_lines(job))
    minio.client.create_bucket(Bucket="data")
    until(lambda: health(c) == "ok")
    c.release(job, "two")
    c.wait(job, "TRAINING_JOB_COMPLETED")
    assert f"{PREFIX}/training_projects/{job['training_project']['id']}/jobs/{job['id']}/rank-0/checkpoint-1/w.bin" in minio.keys()


@pytest.mark.parametrize("what", ["checkpoint-1/w.bin", ".stoker/checkpoint-1.json"])
def test_a_bucket_that_is_away_for_a_moment(empty_cluster, minio, what):
    """What it is asked for meanwhile is not taken for deleted, also by HEAD, whose answer does not say that the bucket is away."""
    weather = Weather(minio)
    left = [0]

    def fault(method, path):
        if method == "PUT" and ".stoker/checkpoint-1.json" in path:
            left[0] = 3
        elif left[0] > 0 and what in path:
            left[0] -= 1
            return ("status", 404)
        return None

    try:
        c = empty_cluster.start(*flags(empty_cluster, weather))
        weather.fault = fault
        job = c.push([save("checkpoint-1")], runtime=CKPT)
        c.wait(job, "TRAINING_JOB_COMPLETED")
        assert weather.struck > 0
        assert [r["state"] for r in c.json("checkpoints", "ls", job["id"])] == ["COMPLETE"]
        assert not [e for e in c.json("events", job["id"]) if "deleted" in e["message"]]
        assert any(e["kind"] == "objects" for e in c.json("events", job["id"])) or health(c) == "ok"
    finally:
        weather.close()


def test_a_job_that_is_placed_waits_for_the_store(empty_cluster, minio):
    """Its code is in a store that is away: it waits with the reason, and goes on; another one is stopped meanwhile."""
    c = empty_cluster.start(*flags(empty_cluster, minio))
    first = c.push([c.hold()], compute={"cpu_count": 4, "memory": "256Mi"})
    c.wait(first, "TRAINING_JOB_RUNNING")
    jobs = [c.push(["cat hello.txt"], files={"hello.txt": "hello\n"}, compute={"cpu_count": 2, "memory": "256Mi"}) for _ in range(2)]
    minio.kill()
    c.release(first)
    for job in jobs:
        until(lambda job=job: "waiting" in c.logs(job))
    assert c.cli("ps").out.count("waiting: code: ") == 2
    c.cli("stop", jobs[1]["id"])
    c.wait(jobs[1], "TRAINING_JOB_STOPPED")
    minio.start()
    c.wait(jobs[0], "TRAINING_JOB_COMPLETED")
    assert c.user_lines(jobs[0]) == ["hello"]


def as_runner(c, token, path, what):
    """By the server's socket, where alone these tokens are good."""
    line = http.client.HTTPConnection("local")
    line.sock = socket.socket(socket.AF_UNIX)
    line.sock.connect(str(c.data / "server.sock"))
    line.request("POST", path, json.dumps(what), {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
    reply = line.getresponse()
    return reply.status, json.loads(reply.read())


def test_nothing_is_smuggled_into_what_is_signed(cluster_of_two):
    """MinIO obeys x-amz-copy-source though it is not signed: what puts an object of its own must not copy one of others."""
    c, jobs, tokens = cluster_of_two
    own = f"training_projects/{jobs[0]['training_project']['id']}/jobs/{jobs[0]['id']}/rank-0/x"

    def sign(**more):
        status, said = as_runner(c, tokens[0], "/runner/v1/sign", {"method": "PUT", "key": own, **more})
        assert status == 200, said
        return said

    def put(said, body, **headers):
        """(status, body) of the store, without the headers that a client adds by itself."""
        at = urllib.parse.urlsplit(said["url"])
        line = http.client.HTTPConnection(at.netloc)
        line.request("PUT", f"{at.path}?{at.query}", body, headers)
        reply = line.getresponse()
        return reply.status, reply.read()

    said = sign()
    guard = {"x-amz-copy-source-if-match": said["no_copy"]}
    source = {"x-amz-copy-source": f"/data/{PREFIX}/stoker.json"}
    assert put(said, b"mine", **guard)[0] == 200
    assert put(said, b"", **source)[0] == 400
    assert put(said, b"", **guard, **source)[0] == 412
    assert put(said, b"", **source, **{"x-amz-copy-source-if-match": "*"})[0] == 403
    # into a part of an upload, too; `begun` is signed for a POST, which copies nothing
    begun = as_runner(c, tokens[0], "/runner/v1/sign", {"method": "POST", "key": own, "query": "uploads="})[1]
    with urllib.request.urlopen(urllib.request.Request(begun["url"], b"", {"Content-Type": ""}, method="POST")) as reply:
        upload = re.search(b"<UploadId>(.*)</UploadId>", reply.read())[1].decode()
    said = sign(query=f"partNumber=1&uploadId={urllib.parse.quote(upload, safe='')}")
    assert put(said, b"", **source)[0] == 400
    assert put(said, b"", **guard, **source)[0] == 412
    assert put(said, b"part", **guard)[0] == 200


def test_foreign_objects_are_not_signed(cluster_of_two):
    """A runner's token signs what is its attempt's, and nothing else."""
    c, jobs, tokens = cluster_of_two

    def ask(path, what):
        return as_runner(c, tokens[0], path, what)

    asked = []

    def sign(method, key, **more):
        status, said = ask("/runner/v1/sign", {"method": method, "key": key, **more})
        asked.append(({"method": method, "key": key, **more}, status, said))
        return status

    own, other = (f"training_projects/{j['training_project']['id']}/jobs/{j['id']}" for j in jobs)
    assert sign("PUT", f"{own}/rank-0/a") == 200 and sign("GET", f"{own}/rank-1/a") == 200
    assert sign("PUT", f"{own}/rank-0/a", query="uploadId=x&partNumber=1") == 200
    for method, key in [("PUT", f"{own}/rank-1/a"), ("PUT", f"{own}/rank-00/a"), ("DELETE", f"{own}/.stoker/x"), ("GET", f"{other}/rank-0/a"),
                        ("PUT", f"{other}/rank-0/a"), ("GET", "stoker.json"), ("PUT", "stoker.json"), ("GET", f"{own}"), ("PUT", f"{own}/rank-0")]:
        assert sign(method, key) == 403, (method, key)
    for key in ["", "/x", f"{own}/rank-0/../../x", "a//b", "a\n"]:
        assert sign("PUT", key) in (400, 403), key
    assert sign("PUT", f"{own}/rank-0/b", copy_from=f"{other}/rank-0/a") == 403
    assert sign("GET", f"{own}/rank-0/b", query="acl") == 400 and sign("PUT", f"{own}/rank-0/b", query="acl=") == 400
    assert sign("PATCH", f"{own}/rank-0/b") == 400
    together = []
    for at in range(0, len(asked), 20):
        status, said = ask("/runner/v1/sign_all", {"request": [request for request, _, _ in asked[at:at + 20]]})
        assert status == 200
        together += said["answer"]
    assert len(together) == len(asked)
    for answer, (request, status, said) in zip(together, asked):
        if status == 200:
            assert answer["status"] == 0 and answer["url"].partition("?")[0] == said["url"].partition("?")[0], request
        else:
            assert answer["url"] is None and (answer["status"], answer["error"], answer["message"]) == (status, said["error"]["id"], said["error"]["message"]), request
    assert ask("/runner/v1/sign_all", {"request": [asked[0][0]] * 33})[0] == 400
    assert ask("/runner/v1/sign_all", {"request": []})[1] == {"answer": []}


@pytest.fixture
def cluster_of_two(empty_cluster, minio):
    """Two jobs that run, and the tokens of their runners."""
    c = empty_cluster.start(*flags(empty_cluster, minio))
    jobs = [c.push([c.hold()], runtime=CKPT) for _ in range(2)]
    for job in jobs:
        c.wait(job, "TRAINING_JOB_RUNNING")
    until(lambda: len(list(c.data.glob("runs/*/ship.json"))) == 2)
    ship = {json.loads(p.read_text())["job_id"]: p.parent for p in c.data.glob("runs/*/ship.json")}
    yield c, jobs, [json.loads((ship[j["id"]] / "launch.json").read_text())["token"] for j in jobs]
    for job in jobs:
        c.release(job)
        c.wait(job, "TRAINING_JOB_COMPLETED")


def test_a_report_names_the_checkpoints_of_its_attempt(cluster_of_two):
    """What a runner says of a checkpoint is read, listed and deleted by later: it cannot be another job's."""
    c, jobs, tokens = cluster_of_two
    own, other = (f"training_projects/{j['training_project']['id']}/jobs/{j['id']}/rank-0" for j in jobs)
    theirs = f"{other}/.stoker/checkpoint-1.json"

    def report(name, key):
        return as_runner(c, tokens[0], "/runner/v1/checkpoint", {"name": name, "state": "INCOMPLETE", "files": 1, "bytes": 1, "manifest_key": key})[0]

    def names():
        return {x["checkpoint_id"] for x in c.api("GET", f"/v1/training_projects/{jobs[0]['training_project']['id']}/jobs/{jobs[0]['id']}/checkpoints?all=true")[1]["checkpoints"]}

    for key in theirs, f"{own}/x", f"{own}/.stoker/checkpoint-1.json", "stoker.json", f"{own.replace('rank-0', 'rank-1')}/.stoker/mine.json":
        assert report("mine", key) == 403, key
    for name in "..", "../../x", "a/../b", "/a", "a//b", "a\n", "a\u001b[31m", ".stoker/x", "a/":
        assert report(name, None) == 400, name
    assert not names()
    assert report("mine", f"{own}/.stoker/mine.json") == 200 and names() == {"mine"}
