"""s3:// from a real MinIO; https:// and hf:// from a server that misbehaves as it is told."""
import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys

import pytest
from conftest import CALL_S, PARTS, ROOT, Lines, end_process, held_port, until

KEY, SECRET = "minio-user", "minio-secret-key"


@pytest.fixture
def minio(empty_cluster):
    """A MinIO with one bucket; yields (endpoint, boto3 client as a function of the clients' environment)."""
    port = held_port()
    env = {**os.environ, "MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}
    process = subprocess.Popen([PARTS / "bin/minio", "server", str(empty_cluster.folder / "minio"), "--address", f"127.0.0.1:{port}"],
                               env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    import boto3
    endpoint = f"http://127.0.0.1:{port}"
    s3 = boto3.client("s3", endpoint_url=endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1")

    def ready():
        try:
            s3.list_buckets()
            return True
        except Exception:
            return False
    try:
        until(ready)
        s3.create_bucket(Bucket="data")
        yield endpoint, s3
    finally:
        end_process(process)


def test_s3_source(empty_cluster, minio):
    endpoint, s3 = minio
    big = os.urandom(40 << 20)
    s3.put_object(Bucket="data", Key="train/big.bin", Body=big)
    for i in range(30):
        s3.put_object(Bucket="data", Key=f"train/small/{i:02d} +=.txt", Body=f"{i}\n".encode())
    s3.put_object(Bucket="data", Key="other/x", Body=b"not wanted")
    cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--s3-endpoint", endpoint, "--allow-source-network", "127.0.0.0/8")
    source = [{"source": "s3://data/train", "mount_location": "/d", "auth_secret_name": "aws"}]
    cluster.cli("secrets", "set", "aws", stdin=json.dumps({"access_key": KEY, "secret_key": SECRET}))
    job = cluster.push(["true"], weights=source)
    wrong = cluster.wait(job, "TRAINING_JOB_DEPLOY_FAILED")["error_message"]
    assert "aws_access_key_id and aws_secret_access_key are required in S3 credentials" in wrong
    cluster.cli("secrets", "set", "aws", stdin=json.dumps({"aws_access_key_id": KEY, "aws_secret_access_key": SECRET}))
    job = cluster.push(["sha256sum < /d/big.bin; ls /d/small | wc -l; cat '/d/small/07 +=.txt'; ls /d"], weights=source)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    lines = cluster.user_lines(job)
    assert lines[0].split()[0] == hashlib.sha256(big).hexdigest() and lines[1:3] == ["30", "7"] and "x" not in lines
    cluster.cli("secrets", "set", "aws", stdin=json.dumps({"aws_access_key_id": KEY, "aws_secret_access_key": "wrong-secret"}))
    s3.put_object(Bucket="data", Key="train/new", Body=b"1")
    denied = cluster.push(["true"], weights=[{**source[0], "allow_patterns": ["new"]}])
    assert "s3://data/train" in cluster.wait(denied, "TRAINING_JOB_DEPLOY_FAILED")["error_message"]


@contextlib.contextmanager
def misbehaving(root, *flags):
    """tests/mock/faulty.py over a folder; yields its port."""
    process = subprocess.Popen([sys.executable, ROOT / "tests/mock/faulty.py", "--root", str(root), *flags],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield int(re.search(r"port=(\d+)", Lines(process).next() or "")[1])
    finally:
        end_process(process)


@pytest.fixture
def faulty(empty_cluster):
    """The server of faulty.py over a small repository; yields its port."""
    root = empty_cluster.folder / "hub"
    (root / "sub").mkdir(parents=True)
    (root / "config.json").write_text('{"hidden_size": 8}')
    (root / "sub/model.safetensors").write_bytes(os.urandom(20 << 20))
    empty_cluster.repository = root
    with misbehaving(root) as port:
        yield port


def start(cluster, port, fault=""):
    return cluster.start("--cpus", "4", "--memory", "4Gi", "--hf-endpoint", f"http://127.0.0.1:{port}{fault}",
                         "--allow-source-network", "127.0.0.0/8")


HUB = [{"source": "hf://team/model@main", "mount_location": "/w"}]


def test_hub_source(empty_cluster, faulty):
    cluster = start(empty_cluster, faulty)
    job = cluster.push(["sha256sum < /w/sub/model.safetensors; cat /w/config.json"], weights=HUB)
    done = cluster.wait(job, "TRAINING_JOB_COMPLETED")
    digest = hashlib.sha256((cluster.repository / "sub/model.safetensors").read_bytes()).hexdigest()
    assert cluster.user_lines(job)[0].startswith(digest)
    assert len(done["weights"][0]["revision"]) == 40, "the branch was resolved to a commit and frozen"


@pytest.mark.parametrize("fault", ["status=503:2", "cut=1000:2", "reset:1", "norange", "status=429:1,retry-after=1", "list.status=503:2"])
def test_passing_faults_are_waited_out(empty_cluster, faulty, fault):
    cluster = start(empty_cluster, faulty, f"/f/{fault}")
    job = cluster.push(["sha256sum < /w/sub/model.safetensors"], weights=HUB)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job)[0].split()[0] == hashlib.sha256((cluster.repository / "sub/model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("fault, words", [
    ("corrupt", "digest"), ("lie", "digest"), ("length=-5", ""), ("loop", "redirect"), ("auth=token", "auth_secret_name"),
    ("gated", "gated"), ("garbage", ""), ("gzip", ""),
])
def test_lying_sources_fail_before_user_code(empty_cluster, faulty, fault, words):
    fault = "list.garbage" if fault == "garbage" else fault
    cluster = start(empty_cluster, faulty, f"/f/{fault}")
    job = cluster.push(["echo never"], weights=HUB)
    done = cluster.wait(job, "TRAINING_JOB_DEPLOY_FAILED")
    assert "hf://team/model" in done["error_message"] and words in done["error_message"].lower(), done["error_message"]
    assert "never" not in cluster.user_lines(job)
    assert all(w["state"] != "READY" for w in cluster.json("weights", "ls"))


def test_missing_repository_and_revision(empty_cluster, faulty):
    cluster = start(empty_cluster, faulty)
    for source, words in (("hf://team/missing-one", "missing-one"), ("hf://team/model@nothing", "nothing")):
        job = cluster.push(["true"], weights=[{"source": source, "mount_location": "/w"}])
        assert words in cluster.wait(job, "TRAINING_JOB_DEPLOY_FAILED")["error_message"]


def test_a_certificate_that_nobody_vouches_for(empty_cluster):
    cert, key = empty_cluster.folder / "cert.pem", empty_cluster.folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(cert), "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    with misbehaving(empty_cluster.folder, "--tls", cert, key) as port:
        cluster = empty_cluster.start("--allow-source-network", "127.0.0.0/8")
        said = cluster.cli("weights", "prefetch", f"https://localhost:{port}/plain/cert.pem", code=None)
        assert said.code != 0 and "update-ca-certificates" in said.err, said


def test_a_source_that_refuses_is_not_taken_for_a_bad_login(empty_cluster, faulty):
    cluster = start(empty_cluster, faulty, "/f/auth=token")
    refused = cluster.cli("weights", "prefetch", "hf://team/model@main", code=2).err
    assert "auth_secret_name" in refused and refused.count("auth_secret_name") == 1 and "stoker login" not in refused, refused


def test_patterns_tell_mirrors_apart(empty_cluster, faulty):
    cluster = start(empty_cluster, faulty)
    cluster.cli("weights", "prefetch", "hf://team/model@main")
    cluster.cli("weights", "prefetch", "hf://team/model@main", "--allow", "*.json", "--ignore", "sub/**")
    rows = [line.split("  ")[-1].strip() for line in cluster.cli("weights", "ls").out.splitlines()]
    assert rows[0] == "PATTERNS" and sorted(rows[1:]) == ["*.json !sub/**", "-"]


def test_a_name_that_cannot_be_is_said_with_its_source(empty_cluster, faulty):
    (empty_cluster.repository / "new\nline").write_text("x")
    cluster = start(empty_cluster, faulty)
    said = cluster.cli("weights", "prefetch", "hf://team/model@main", code=2).err
    assert 'hf://team/model@main: "new?line" cannot be a file\'s path: leave it out with ignore_patterns' in said
    cluster.cli("weights", "prefetch", "hf://team/model@main", "--ignore", "new*")


def test_a_killed_server_resumes_the_fetch(empty_cluster, faulty):
    cluster = start(empty_cluster, faulty, "/f/slow=400000")
    job = cluster.push(["sha256sum < /w/sub/model.safetensors"], weights=HUB)
    until(lambda: (cluster.job(job).get("progress") or {}).get("done_bytes", 0) > 1 << 20)
    cluster.kill()
    cluster.restart()
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job)[0].split()[0] == hashlib.sha256((cluster.repository / "sub/model.safetensors").read_bytes()).hexdigest()


def test_jobs_that_ask_together_share_one_fetch(empty_cluster, faulty):
    cluster = start(empty_cluster, faulty)
    cluster.cli("teams", "create", "lab")
    jobs = [cluster.push(["true"], *team, weights=HUB) for team in ([], ["--set", "team=lab"]) for _ in range(2)]
    for job in jobs:
        cluster.wait(job, "TRAINING_JOB_COMPLETED")
    import urllib.request
    size = (cluster.repository / "sub/model.safetensors").stat().st_size

    def sent():
        stats = json.loads(urllib.request.urlopen(f"http://127.0.0.1:{faulty}/stats", timeout=CALL_S).read())
        return sum(v["bytes"] for path, v in stats["paths"].items() if path.endswith("model.safetensors"))
    until(lambda: sent() >= size)  # it counts what it has written already
    assert sent() == size, "an object is fetched from its origin once, whoever asks"
    listed = cluster.json("weights", "ls")  # one a team, of the same content
    assert len(listed) == 2 and len({w["manifest"] for w in listed}) == 1
    for left, w in zip((size, 0), listed):
        cluster.cli("weights", "rm", w["id"], "-y")
        assert left <= sum(p.stat().st_size for p in (cluster.data / "store/blobs").rglob("*") if p.is_file()) <= left + 1000
