"""s3:// from a real MinIO; https:// and hf:// from a server that misbehaves as it is told."""
import hashlib
import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest
from conftest import PARTS, ROOT, until

KEY, SECRET = "minio-user", "minio-secret-key"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def minio(empty_cluster):
    """A MinIO with one bucket; yields (endpoint, boto3 client as a function of the clients' environment)."""
    port = free_port()
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
    until(ready, 60)
    s3.create_bucket(Bucket="data")
    yield endpoint, s3
    process.terminate()
    process.wait(20)


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
