"""Real S3 servers, each with one bucket, "data"; as fixtures, and as the object store of a server."""
import contextlib
import http.client
import http.server
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request

import boto3
import botocore.auth
import botocore.awsrequest
import botocore.config
import botocore.credentials
import pytest
from conftest import CALL_S, PARTS, end_process, held_port, until

KEY, SECRET = "minio-user", "minio-secret-key"
KEYS = json.dumps({"aws_access_key_id": KEY, "aws_secret_access_key": SECRET})
PREFIX = "team/stoker"  # of a server's objects in the bucket


class S3Server:
    """It can go away and come back, with what it has."""

    def __init__(self, folder, kind, host=None, **env):
        """On a host of rack.py, or on this machine."""
        self.port, root, address = held_port(), folder / f"s3-{kind}", host.address if host else "127.0.0.1"
        self.host = host
        root.mkdir()
        self.command = {
            "minio": [PARTS / "bin/minio", "server", str(root), "--address", f"{address}:{self.port}"],
            "rclone": [PARTS / "s3/bin/rclone", "serve", "s3", "--config", "/dev/null", "--addr", f"{address}:{self.port}", "--auth-key", f"{KEY},{SECRET}", str(root)],
            "gofakes3": [PARTS / "bin/gofakes3", "-backend", "mem", "-host", f"{address}:{self.port}"],
            "versitygw": [PARTS / "bin/versitygw", "--port", f"{address}:{self.port}", "--access", KEY, "--secret", SECRET, "--quiet", "posix", str(root)],
        }[kind]
        self.env = {**os.environ, "MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off", "MINIO_UPDATE": "off", **env}
        self.endpoint = f"http://{address}:{self.port}"
        self.client = boto3.client("s3", endpoint_url=self.endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET,
                                   region_name=env.get("MINIO_SITE_REGION", "us-east-1"), config=botocore.config.Config(retries={"max_attempts": 0}))
        self.process = None

    def answers(self):
        try:
            self.client.list_buckets()
            return True
        except Exception:
            return False

    def has_policies(self):
        """MinIO reads them after it has begun to answer, and gives out no keys before."""
        rq = botocore.awsrequest.AWSRequest("GET", f"{self.endpoint}/minio/admin/v3/list-canned-policies")
        botocore.auth.S3SigV4Auth(botocore.credentials.Credentials(KEY, SECRET), "s3", "us-east-1").add_auth(rq)
        with contextlib.suppress(OSError), urllib.request.urlopen(urllib.request.Request(rq.url, headers=dict(rq.headers)), timeout=CALL_S) as reply:
            return "readwrite" in json.load(reply)
        return False

    def start(self):
        self.process = subprocess.Popen(self.host.enter(*self.command) if self.host else self.command, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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
def s3_running(folder, kind, host=None, **env):
    server = S3Server(folder, kind, host, **env)
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


@pytest.fixture(params=["minio", "versitygw"])
def store(request, empty_cluster):
    with s3_running(empty_cluster.folder, request.param) as server:
        yield server


@pytest.fixture
def minio(empty_cluster):
    with s3_running(empty_cluster.folder, "minio") as server:
        yield server


def flags(cluster, store, url=f"s3://data/{PREFIX}"):
    keys = cluster.folder / "keys.json"
    keys.write_text(KEYS)
    keys.chmod(0o600)
    return ["--cpus", "4", "--memory", "4Gi", "--objects", url, "--objects-endpoint", store.endpoint, "--objects-credentials", str(keys)]


class Weather:
    """A proxy in front of a store, for what a healthy one does not show. `fault(method, path)` says what befalls a request: None,
    ("status", code), where 404 is that of a bucket that is not there, ("cut", bytes of the answer's body) or ("slow", bytes a second)."""

    def __init__(self, store):
        self.store, self.fault, self.struck = store, lambda method, path: None, 0
        weather = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self):
                weather.forward(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def forward(self, rq):
        if rq.headers.get("Expect"):
            rq.send_response_only(100)
            rq.end_headers()
        body = rq.rfile.read(int(rq.headers.get("Content-Length", 0)))
        fault = self.fault(rq.command, rq.path)
        self.struck += fault is not None
        if fault and fault[0] == "status":
            text = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
            if fault[1] == 404:
                text = b"<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist.</Message></Error>"
            rq.send_response(fault[1])
            rq.send_header("Content-Length", str(len(text)))
            rq.end_headers()
            rq.wfile.write(b"" if rq.command == "HEAD" else text)
            return
        line = http.client.HTTPConnection("127.0.0.1", self.store.port, timeout=CALL_S)
        line.putrequest(rq.command, rq.path, skip_host=True, skip_accept_encoding=True)
        for name, value in rq.headers.items():  # the Host that was signed, too
            if name.lower() != "expect":
                line.putheader(name, value)
        line.endheaders(body)
        reply = line.getresponse()
        data = reply.read()
        rq.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                rq.send_header(name, value)
        rq.send_header("Content-Length", reply.headers.get("Content-Length", str(len(data))) if rq.command == "HEAD" else str(len(data)))
        rq.end_headers()
        if fault and fault[0] == "cut":
            rq.wfile.write(data[:fault[1]])
            rq.wfile.flush()
            rq.connection.shutdown(socket.SHUT_RDWR)
            return
        step = fault[1] // 10 if fault else len(data) or 1
        for at in range(0, len(data), step):
            rq.wfile.write(data[at:at + step])
            if fault:
                time.sleep(0.1)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
