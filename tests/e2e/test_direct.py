"""Bytes of clients with `--objects s3://`: `stoker push` and `checkpoints pull` go to the store themselves, and the server only signs."""
import contextlib
import hashlib
import http.client
import io
import os
import subprocess
import tarfile
import threading
import urllib.parse

import pytest
from conftest import CALL_S, STOKER, Result, new_cluster
from rack import a_rack
from s3 import PREFIX, S3Server, Weather, flags, minio, s3_running, store  # noqa: F401
from test_objects import CKPT, save

MIB = 1 << 20
BIG = 8 * MIB
AROUND = "the object store is out of reach"


@pytest.fixture(params=["minio", "versitygw"])
def apart(request):
    """A server and its store on machines of their own, and a third machine; no job starts."""
    with contextlib.ExitStack() as stack:
        rack = stack.enter_context(a_rack())
        c = stack.enter_context(new_cluster())
        c.host, c.port = rack.host(), 8700
        c.store = S3Server(c.folder, request.param, rack.host())
        c.store.start()
        stack.callback(c.store.close)
        c.store.client.create_bucket(Bucket="data")
        c.third = rack.host()
        c.start("--insecure", *flags(c, c.store))
        blocker = c.push([c.hold()], compute={"cpu_count": 4, "memory": "256Mi"})
        c.wait(blocker, "TRAINING_JOB_RUNNING")
        yield c


def big_job(c, commands=("sha256sum < big.bin",), **job):
    """A folder to push, and what the job prints."""
    folder = c.job_folder(list(commands), **job)
    body = os.urandom(BIG)
    (folder / "big.bin").write_bytes(body)
    return folder, f"{hashlib.sha256(body).hexdigest()}  -"


def moved(host):
    """Bytes that a machine has received and sent."""
    fields = next(line for line in host.run("cat", "/proc/net/dev").splitlines() if line.strip().startswith("eth0:")).partition(":")[2].split()
    return int(fields[0]), int(fields[8])


def cli_at(c, host, *args):
    return Result(subprocess.run(host.enter(STOKER, *args), env=c.cli_environment(), capture_output=True, text=True, timeout=CALL_S))


def ends_with(c, *lines):
    """What the job that was pushed last prints, once it may run."""
    job = c.json("view", "@")
    blocker, = (j for j in c.json("ps") if j["id"] != job["id"])
    c.release(blocker)
    c.wait(blocker, "TRAINING_JOB_COMPLETED")
    c.wait(job, "TRAINING_JOB_COMPLETED")
    printed = c.user_lines(job)
    assert not lines or printed == list(lines)
    return printed


def test_code_goes_to_the_store(apart):
    c = apart
    folder, line = big_job(c)
    before = moved(c.host)
    pushed = c.cli("push", folder)
    assert max(now - then for now, then in zip(moved(c.host), before)) < MIB, pushed
    assert AROUND not in pushed.err
    key, = (k for k in c.store.keys(f"{PREFIX}/uploads/") if c.store.client.head_object(Bucket="data", Key=k)["ContentLength"] > BIG)
    ends_with(c, line)
    again = c.cli("push", folder)
    assert "nothing to send" in again.err and key in c.store.keys(f"{PREFIX}/uploads/")
    c.wait(c.json("view", "@"), "TRAINING_JOB_COMPLETED")


@pytest.mark.parametrize("how", ["refused", "silent"])
def test_a_client_that_cannot_reach_the_store(apart, how):
    """It is told so once, and the server passes its code on."""
    c = apart
    if how == "refused":
        c.third.run("ip", "route", "add", "unreachable", c.store.host.address)
    else:
        c.third.run("ip", "route", "add", c.store.host.address, "via", c.host.address)  # where nobody passes it on
    folder, line = big_job(c)
    before = moved(c.host)
    pushed = cli_at(c, c.third, "push", folder)
    assert pushed.code == 0 and pushed.err.count(AROUND) == 1, pushed
    assert moved(c.host)[0] - before[0] > BIG
    ends_with(c, line)


def test_checkpoints_come_from_the_store(apart):
    """And by the server for who cannot go there."""
    c = apart
    job = c.push([save("checkpoint-1", 8), "echo 1 > $BT_CHECKPOINT_DIR/checkpoint-1/a\\ b; : > $BT_CHECKPOINT_DIR/checkpoint-1/empty"], runtime=CKPT)
    line = ends_with(c)
    before = moved(c.host)
    pulled = c.cli("checkpoints", "pull", f"{job['id']}/checkpoint-1", c.folder / "here")
    assert max(now - then for now, then in zip(moved(c.host), before)) < MIB and AROUND not in pulled.err, pulled
    c.third.run("ip", "route", "add", "unreachable", c.store.host.address)
    around = cli_at(c, c.third, "checkpoints", "pull", f"{job['id']}/checkpoint-1", c.folder / "there")
    assert around.code == 0 and around.err.count(AROUND) == 1, around
    assert moved(c.host)[1] - before[1] > BIG
    for place in ("here", "there"):
        files = {p.relative_to(c.folder / place).as_posix(): p.read_bytes() for p in (c.folder / place).rglob("*") if p.is_file()}
        assert sorted(files) == [f"rank-0/checkpoint-1/{name}" for name in ("a b", "done", "empty", "w.bin")]
        assert f"{hashlib.sha256(files['rank-0/checkpoint-1/w.bin']).hexdigest()}  -" == line[0]


def ask(c, body, **more):
    digest = hashlib.sha256(body).hexdigest()
    token = more.pop("token", None)
    return c.api("GET", "/v1/blobs/credentials/train?" + urllib.parse.urlencode({"direct": digest, **more}), token=token)


def put(url, headers, body, **more):
    at = urllib.parse.urlsplit(url)
    line = http.client.HTTPConnection(at.netloc, timeout=CALL_S)
    line.request("PUT", at._replace(scheme="", netloc="").geturl(), body, {**{h["name"]: h["value"] for h in headers}, **more})
    reply = line.getresponse()
    return reply.status, reply.read()


def names(upload):
    return {"compute": {"cpu_count": 1, "memory": "64Mi"}, "runtime": {"start_commands": ["true"], "artifacts": [
        {"s3_bucket": upload["s3_bucket"], "s3_key": upload["s3_key"]}]}}


def push_api(c, project, upload, token=None):
    return c.api("POST", f"/v1/training_projects/{project}/jobs", {"training_job": names(upload)}, token=token)


def project_of(c, token=None):
    return c.api("POST", "/v1/training_projects", {"training_project": {"name": "p"}}, token=token)[1]["training_project"]["id"]


def test_what_is_signed_is_these_bytes(empty_cluster, store):  # noqa: F811
    """Whoever has the signature stores those bytes, before and after a job has named them, and nothing else."""
    c = empty_cluster.start(*flags(empty_cluster, store))
    mine, theirs = b"m" * 1000, b"t" * 1000
    project = project_of(c)
    status, upload = ask(c, mine)
    assert status == 200 and "creds" not in upload, upload
    signed, full = (upload["put"]["url"], upload["put"]["headers"]), f"{PREFIX}/{upload['s3_key']}"
    secret = {"x-amz-copy-source": f"/data/{PREFIX}/stoker.json"}
    assert push_api(c, project, upload)[1]["error"]["id"] == "upload_not_found"

    def nothing_else():
        assert put(*signed, theirs)[0] == 400
        assert put(*signed, mine[:-1])[0] == 400
        assert put(*signed, b"", **secret)[0] in (403, 412)
        assert put(*signed, mine, **secret)[0] in (403, 412)
        assert put(*signed, theirs, **{"x-amz-content-sha256": "UNSIGNED-PAYLOAD"})[0] == 403
        assert put(*signed, theirs, **{"x-amz-content-sha256": hashlib.sha256(theirs).hexdigest()})[0] == 403
        assert put(signed[0].replace(upload["s3_key"], "stoker.json"), signed[1], mine)[0] == 403
        assert put(signed[0] + "?partNumber=1&uploadId=x", signed[1], mine)[0] != 200
        assert put(*signed, mine, **{"x-amz-date": "20200101T000000Z"})[0] == 403

    nothing_else()
    assert full not in store.keys()
    assert put(*signed, mine)[0] == 200
    nothing_else()
    status, job = push_api(c, project, upload)
    assert status == 200, job
    nothing_else()
    assert put(*signed, mine)[0] == 200 and store.body(full) == mine  # the same again: nothing has changed
    digest = hashlib.sha256(mine).hexdigest()
    status, same = ask(c, mine, sha256=digest)
    assert same["exists"] and same["s3_key"] == upload["s3_key"] and "put" not in same
    # by the S3 face nobody can write there, for nobody has credentials
    status, other = c.api("GET", f"/v1/blobs/credentials/train?sha256={hashlib.sha256(theirs).hexdigest()}")
    assert "put" not in other and other["s3_key"] != upload["s3_key"]
    assert c.json("view", job["training_job"]["id"])["id"] == job["training_job"]["id"]


def test_what_is_signed_is_not_unpacked(empty_cluster, store):  # noqa: F811
    """MinIO unpacks an archive into the whole bucket when an unsigned header says so: what is signed forbids it."""
    c = empty_cluster.start(*flags(empty_cluster, store))
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as archive:
        for name in f"{PREFIX}/stoker.json", "else/where":
            entry = tarfile.TarInfo(name)
            entry.size = 4
            archive.addfile(entry, io.BytesIO(b"mine"))
    status, upload = ask(c, body.getvalue())
    assert status == 200 and "creds" not in upload, upload
    mark = store.body(f"{PREFIX}/stoker.json")
    headers = {h["name"]: h["value"] for h in upload["put"]["headers"]}
    unpack = "x-amz-meta-snowball-auto-extract"
    for name in unpack, unpack.title(), "X-Amz-Meta-Snowball-Auto-Extract":
        for kept in headers, {k: v for k, v in headers.items() if k.lower() != unpack}:
            request = http.client.HTTPConnection(urllib.parse.urlsplit(upload["put"]["url"]).netloc)
            request.putrequest("PUT", urllib.parse.urlsplit(upload["put"]["url"]).path)
            for header, value in [*kept.items(), (name, "true"), ("Content-Length", str(len(body.getvalue())))]:
                request.putheader(header, value)
            request.endheaders(body.getvalue())
            assert request.getresponse().status in (400, 403)
    assert store.body(f"{PREFIX}/stoker.json") == mark and "else/where" not in store.keys()
    assert put(upload["put"]["url"], upload["put"]["headers"], body.getvalue())[0] == 200
    assert store.body(f"{PREFIX}/{upload['s3_key']}") == body.getvalue() and "else/where" not in store.keys()


def test_other_teams_and_viewers(empty_cluster, minio):  # noqa: F811
    c = empty_cluster.start(*flags(empty_cluster, minio))
    team = c.api("POST", "/v1/teams", {"name": "others"})[1]["team"]["id"]
    token, looks = (c.api("POST", "/v1/api_keys", who)[1]["api_key"] for who in ({"name": "a", "role": "member", "team_id": team}, {"name": "b", "role": "viewer"}))
    assert ask(c, b"x", token=looks)[0] == 403
    assert ask(c, b"x", token=token, team_id="none")[0] in (403, 404)
    _, upload = ask(c, b"x")
    assert put(upload["put"]["url"], upload["put"]["headers"], b"x")[0] == 200
    assert push_api(c, project_of(c, token), upload, token)[1]["error"]["id"] == "upload_not_found"
    assert push_api(c, project_of(c), upload)[0] == 200
    assert not ask(c, b"x", token=token, sha256=hashlib.sha256(b"x").hexdigest())[1]["exists"]
    assert c.api("GET", "/v1/blobs/credentials/train?direct=zz")[0] == 400


@pytest.mark.parametrize("status, times, around", [(503, 2, False), (403, 1, False), (403, 2, True)], ids=["busy", "expired", "denied"])
def test_a_store_that_refuses_for_a_while(empty_cluster, minio, status, times, around):  # noqa: F811
    """503 is tried again, an expired signature gives way to another one, and where that does not help either the server sends it."""
    weather = Weather(minio)
    seen = []

    def fault(method, path):
        if method != "PUT" or "/uploads/" not in path or "/uploads/tried" in path:
            return None
        seen.append(path)
        return ("status", status) if len(seen) <= times else None

    with contextlib.closing(weather):
        c = empty_cluster.start(*flags(empty_cluster, weather))
        weather.fault = fault
        folder, line = big_job(c)
        pushed = c.cli("push", folder)
        assert len(seen) > times and (AROUND in pushed.err) == around, pushed
        assert len(set(seen)) == (2 if status == 503 else 2 + times)  # of two archives; each signature is for a key of its own
        job = c.wait(c.json("view", "@"), "TRAINING_JOB_COMPLETED")
        assert c.user_lines(job) == [line]


def test_a_store_that_is_slow_or_full(empty_cluster, minio):  # noqa: F811
    """A person is told within seconds what is waited for; and that it is full, which it is for the server, too."""
    weather, said = Weather(minio), threading.Event()

    def fault(method, path):
        if method == "PUT" and "/uploads/" in path:
            said.wait(CALL_S)

    with contextlib.closing(weather):
        c = empty_cluster.start(*flags(empty_cluster, weather))
        c.wait(c.push(["true"]), "TRAINING_JOB_COMPLETED")  # the server has tried what it signs
        weather.fault = fault
        folder = c.job_folder(["true"], files={"a": "1"})
        with subprocess.Popen([STOKER, "push", folder / "train.yaml"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=c.cli_environment()) as push:
            for line in push.stderr:
                if f"waiting for {weather.endpoint}: no answer for " in line:
                    said.set()
        assert push.returncode == 0 and said.is_set()
        weather.fault = lambda method, path: ("status", 507) if method == "PUT" and "/uploads/" in path else None
        refused = c.cli("push", c.job_folder(["true"], files={"a": "2"}), code=None)
        assert refused.code != 0 and "is full" in refused.err and AROUND not in refused.err, refused


def test_a_store_that_takes_anything(empty_cluster):
    """It does not compare signature and body: nobody is sent there."""
    with s3_running(empty_cluster.folder, "gofakes3") as careless:
        c = empty_cluster.start(*flags(empty_cluster, careless))
        status, upload = ask(c, b"x")
        assert status == 200 and "put" not in upload and upload["creds"], upload
        assert "does not compare" in c.log.read_text()
        assert not [k for k in careless.keys(PREFIX) if "/uploads/" in k]
        c.wait(c.push(["cat a.txt"], files={"a.txt": "a"}), "TRAINING_JOB_COMPLETED")


def test_objects_of_the_server_itself(cluster):
    status, upload = ask(cluster, b"x")
    assert status == 200 and "put" not in upload and upload["creds"]


def test_code_on_its_way_is_not_collected(empty_cluster, minio):  # noqa: F811
    """What was signed may be sent again for a while, and nobody hears of it: a day long it has its row, also when its only job is gone."""
    c = empty_cluster.start(*flags(empty_cluster, minio))
    _, upload = ask(c, b"x")
    assert put(upload["put"]["url"], upload["put"]["headers"], b"x")[0] == 200
    job = push_api(c, project_of(c), upload)[1]["training_job"]
    c.wait(job, "TRAINING_JOB_FAILED", "TRAINING_JOB_DEPLOY_FAILED")  # it is no archive
    c.cli("projects", "rm", "p", "--confirm", "p")
    c.cli("cache", "gc", "--older-than", "0s", "--yes")
    assert f"{PREFIX}/{upload['s3_key']}" in minio.keys()
