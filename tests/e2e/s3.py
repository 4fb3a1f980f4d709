"""Real S3 servers, each with one bucket, "data"."""
import contextlib
import json
import os
import signal
import subprocess

import boto3
import botocore.config
from conftest import CALL_S, PARTS, end_process, held_port, until

KEY, SECRET = "minio-user", "minio-secret-key"
KEYS = json.dumps({"aws_access_key_id": KEY, "aws_secret_access_key": SECRET})


class S3Server:
    """It can go away and come back, with what it has."""

    def __init__(self, folder, kind, **env):
        self.port, root = held_port(), folder / f"s3-{kind}"
        root.mkdir()
        self.command = {
            "minio": [PARTS / "bin/minio", "server", str(root), "--address", f"127.0.0.1:{self.port}"],
            "rclone": [PARTS / "s3/bin/rclone", "serve", "s3", "--config", "/dev/null", "--addr", f"127.0.0.1:{self.port}", "--auth-key", f"{KEY},{SECRET}", str(root)],
            "gofakes3": [PARTS / "bin/gofakes3", "-backend", "mem", "-host", f"127.0.0.1:{self.port}"],
            "versitygw": [PARTS / "bin/versitygw", "--port", f"127.0.0.1:{self.port}", "--access", KEY, "--secret", SECRET, "--quiet", "posix", str(root)],
        }[kind]
        self.env = {**os.environ, "MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off", "MINIO_UPDATE": "off", **env}
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.client = boto3.client("s3", endpoint_url=self.endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET,
                                   region_name=env.get("MINIO_SITE_REGION", "us-east-1"), config=botocore.config.Config(retries={"max_attempts": 0}))
        self.process = None

    def answers(self):
        try:
            self.client.list_buckets()
            return True
        except Exception:
            return False

    def start(self):
        self.process = subprocess.Popen(self.command, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self.answers)

    def kill(self):
        self.process.kill()
        self.process.wait(CALL_S)

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def keys(self, prefix="", bucket="data"):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [o["Key"] for page in pages for o in page.get("Contents", [])]

    def body(self, key, bucket="data"):
        return self.client.get_object(Bucket=bucket, Key=key)["Body"].read()

    def close(self):
        self.thaw()
        end_process(self.process)


@contextlib.contextmanager
def s3_running(folder, kind, **env):
    server = S3Server(folder, kind, **env)
    server.start()
    try:
        server.client.create_bucket(Bucket="data")
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def s3_server(folder, kind, **env):
    """Its endpoint and a client."""
    with s3_running(folder, kind, **env) as server:
        yield server.endpoint, server.client
