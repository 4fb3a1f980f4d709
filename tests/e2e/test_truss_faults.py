"""The unmodified truss client when something between it and the server goes wrong: what it says, and what stays behind."""
import http.client
import http.server
import json
import os
import sqlite3
import threading
import urllib.parse

import pytest
from conftest import CALL_S, until
from test_s3_face import clean
from truss_client import Client, truss  # noqa: F401 (a fixture)

MIB = 1 << 20


class Between(http.server.ThreadingHTTPServer):
    """A proxy that the client is pointed at. reply(path, document) may change what the server said; cut(method, path, length)
    gives how many bytes of a body go on before the connection breaks, or None."""
    daemon_threads = True

    def __init__(self, cluster):
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream = cluster.url.removeprefix("http://")
        self.reply, self.cut = (lambda path, document: document), (lambda method, path, length: None)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        pass  # the client hung up: that is what these tests are about


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def forward(self):
        parts = urllib.parse.urlsplit(self.path)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        length = int(self.headers.get("Content-Length") or 0)
        at = self.server.cut(self.command, parts.path, length)
        body = self.rfile.read(length if at is None else at)
        wire = http.client.HTTPConnection(self.server.upstream, timeout=CALL_S)
        wire.putrequest(self.command, path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("expect", "connection", "proxy-connection"):
                wire.putheader(name, value)
        wire.endheaders(body)
        self.close_connection = True
        if at is not None:
            wire.close()
            return
        answer = wire.getresponse()
        content = answer.read()
        if answer.status == 200 and "json" in answer.headers.get("Content-Type", ""):
            content = json.dumps(self.server.reply(parts.path, json.loads(content))).encode()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in ("content-length", "connection", "date"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = forward


@pytest.fixture
def between(truss):  # noqa: F811
    proxy = Between(truss.cluster)
    thread = threading.Thread(target=proxy.serve_forever)
    thread.start()
    truss.env["http_proxy"] = proxy.url
    yield proxy
    proxy.shutdown()
    thread.join(CALL_S)
    proxy.server_close()


def credentials(change):
    def reply(path, document):
        if path == "/v1/blobs/credentials/train":
            change(document)
        return document
    return reply


def objects(cluster):
    return sorted(p.name for p in (cluster.data / "objects/uploads").glob("*")) if (cluster.data / "objects/uploads").exists() else []


def refused(truss, folder, *words):  # noqa: F811
    """The push fails with these words and no traceback; no job is there, and after the janitor nothing else is."""
    out = truss.train("push", "config.py", cwd=folder, code=1)
    for word in words:
        assert word in " ".join(out.split()), out
    assert "Traceback" not in out and truss.cluster.json("ps", "-a") == []

    class Left:
        cluster = truss.cluster
        leftovers = staticmethod(lambda: sorted(p.name for p in (truss.cluster.data / "objects/.tmp").glob("*")))
    clean(Left)
    until(lambda: objects(truss.cluster) == [])


def test_a_wrong_signature(truss, between):  # noqa: F811
    between.reply = credentials(lambda d: d["creds"].update(aws_secret_access_key="wrong" * 8))
    refused(truss, truss.project(["true"]), "SignatureDoesNotMatch", "check the secret key")


def test_expired_credentials(truss, between):  # noqa: F811
    def expire(_):
        with sqlite3.connect(truss.cluster.data / "stoker.db") as db:
            db.execute("UPDATE uploads SET expires_ms = 1")
        db.close()
    between.reply = credentials(expire)
    refused(truss, truss.project(["true"]), "ExpiredToken")


def test_credentials_of_another_upload(truss, between):  # noqa: F811
    between.reply = credentials(lambda d: d.update(s3_key="uploads/of-somebody-else.tgz"))
    refused(truss, truss.project(["true"]), "AccessDenied", "these credentials are for uploading")


@pytest.mark.parametrize("size", [MIB, 20 * MIB])  # one PUT; parts
def test_an_upload_that_is_always_cut(truss, between, size):  # noqa: F811
    folder = truss.project(["true"])
    (folder / "big.bin").write_bytes(os.urandom(size))
    between.cut = lambda method, path, length: length // 2 if method == "PUT" else None
    refused(truss, folder, "onnection")  # boto3's words: the connection was closed


@pytest.mark.parametrize("size", [MIB, 20 * MIB])
def test_an_upload_that_is_cut_once_goes_through(truss, between, size):  # noqa: F811
    folder = truss.project(["wc -c < big.bin"])
    (folder / "big.bin").write_bytes(os.urandom(size))
    cuts = []

    def once(method, path, length):
        if method == "PUT" and not cuts:
            cuts.append(path)
            return length // 2
        return None
    between.cut = once
    job = truss.push(None, cwd=folder)
    truss.cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cuts and truss.cluster.user_lines(job) == [str(size)]


def test_a_token_of_another_team(truss):  # noqa: F811
    c = truss.cluster
    c.cli("teams", "create", "blue")
    blue = Client(c, token=c.json("tokens", "create", "bluebird", "--team", "blue")["api_key"], name="blue-home")
    job = truss.push(["sleep 600"], "--team", c.api("GET", "/v1/teams")[1]["teams"][0]["name"])
    for command in ["stop"], ["recreate"], ["download"], ["update", "--priority", "1"], ["get_checkpoint_urls"]:
        out = blue.train(*command, "--job-id", job["id"], code=None)
        assert job["training_project"]["id"] not in out and "Traceback" not in out, (command, out)
        assert "No " in out or "not found" in out.lower() or "no " in out, (command, out)
    assert c.job(job)["current_status"] in ("TRAINING_JOB_RUNNING", "TRAINING_JOB_DEPLOYING", "TRAINING_JOB_CREATED")
