"""`stoker doctor` on set-ups that are wrong: one line says what, and how to mend it."""
import contextlib
import http.server
import json
import re
import socket
import ssl
import subprocess
import threading

import pytest
from conftest import CALL_S, STOKER, held_port


def doctor(cluster, **env):
    """(exit code, the lines that are not "ok", all of it)"""
    cluster.url = cluster.url or "http://127.0.0.1:1"
    done = subprocess.run([STOKER, "doctor"], env={**cluster.environment(STOKER_TOKEN="stoker_x"), **env}, capture_output=True, text=True,
                          timeout=CALL_S, check=False)
    lines = done.stdout.splitlines()
    return done.returncode, [line for line in lines[:-1] if not line.startswith("ok ")], done.stdout + done.stderr


@contextlib.contextmanager
def web(answers, tls=None):
    """A server that answers paths with (status, body); yields its port."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = answers.get(self.path, (404, "<html>no such page</html>"))
            data = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, request, client_address):
            pass

    server = Server(("127.0.0.1", 0), Handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def stoker(version, **more):
    return {"/openapi.json": (200, {"openapi": "3.1.0", "info": {"title": "Stoker", "version": version}}), **more}


@pytest.fixture
def certificate(empty_cluster):
    cert, key = empty_cluster.folder / "cert.pem", empty_cluster.folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(cert), "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    return str(cert), str(key)


def test_all_is_well(cluster):
    code, wrong, shown = doctor(cluster, STOKER_URL=cluster.url, STOKER_TOKEN=cluster.token)
    assert code == 0 and not [line for line in wrong if line.startswith("fail")], shown
    assert f"server {cluster.url} answers, version" in shown and "logged in as admin, role" in shown
    assert "sandbox: " in shown and "data folder: " in shown and "clocks differ by " in shown
    code, wrong, shown = doctor(cluster, STOKER_URL=cluster.url)
    assert code == 1 and len(wrong) == 1 and "token" in wrong[0] and "stoker login --url" in wrong[0], shown


@pytest.mark.parametrize("status, warned", [({"python": None}, True), ({"python": "uv 1"}, False), ({}, False)], ids=["none", "uv", "older"])
def test_what_builds_environments(empty_cluster, status, warned):
    me = {"/v1/users/me": (200, {"name": "ann", "role": "admin"})}
    with web(stoker("1", **me, **{"/v1/status": (200, {"version": "1", **status})})) as port:
        _, wrong, shown = doctor(empty_cluster, STOKER_URL=f"http://127.0.0.1:{port}")
    assert any("python: " in line and "python3-venv" in line for line in wrong) == warned, shown
    assert ("python: uv 1" in shown) == (status.get("python") is not None)


def test_no_login(empty_cluster):
    code, wrong, shown = doctor(empty_cluster, STOKER_TOKEN="")
    assert code == 1 and len(wrong) == 1 and "STOKER_URL" in wrong[0] and "stoker login" in wrong[0], shown


@pytest.mark.parametrize("answers", [
    {},
    {"/openapi.json": (200, "<html>hello</html>")},
    {"/openapi.json": (200, {"info": {"title": "Petstore", "version": "1"}}), "/v1/users/me": (200, {"name": "eve"})},
    {"/openapi.json": (503, {"message": "come back later"})},
])
def test_not_stoker(empty_cluster, answers):
    with web(answers) as port:
        code, wrong, shown = doctor(empty_cluster, STOKER_URL=f"http://127.0.0.1:{port}")
    assert code == 1 and len(wrong) == 1, shown
    assert f"http://127.0.0.1:{port} answers, but it is not Stoker" in wrong[0] and "stoker login --url URL" in wrong[0]


def test_another_version(empty_cluster):
    """Of another version: a warning, and what it does not say is no crash."""
    me = {"/v1/users/me": (200, {"name": "ann", "role": "admin"})}
    with web(stoker("99.1", **me, **{"/v1/status": (200, {"version": "99.1", "nodes": [{"name": "n"}], "novel": {}})})) as port:
        code, wrong, shown = doctor(empty_cluster, STOKER_URL=f"http://127.0.0.1:{port}")
    assert code == 0 and re.search(r"warn  server \S+ answers, version 99\.1; this program is \d", wrong[0]), shown
    with web(stoker("0.0.1", **me)) as port:
        code, wrong, shown = doctor(empty_cluster, STOKER_URL=f"http://127.0.0.1:{port}")
    assert code == 1 and "version 0.0.1" in wrong[0] and "/v1/status" in wrong[1], shown


def test_nobody_there(empty_cluster):
    code, wrong, shown = doctor(empty_cluster, STOKER_URL=f"http://127.0.0.1:{held_port()}")
    assert code == 1 and len(wrong) == 1 and "`stoker server` starts it" in wrong[0], shown
    nobody = "nobody" * 11 + ".invalid"  # no resolver is asked: no label is this long
    code, wrong, shown = doctor(empty_cluster, STOKER_URL=f"http://{nobody}:8000")
    assert code == 1 and "resolve host" in wrong[0] and "is the name right?" in wrong[0], shown


def test_tls(empty_cluster, certificate):
    with web(stoker("1"), tls=certificate) as port:
        code, wrong, shown = doctor(empty_cluster, STOKER_URL=f"https://localhost:{port}")
        assert code == 1 and "certificate" in wrong[0] and "STOKER_CA_FILE=FILE" in wrong[0], shown
        code, wrong, shown = doctor(empty_cluster, STOKER_URL=f"https://127.0.0.1:{port}", STOKER_CA_FILE=certificate[0])
        assert code == 1 and "for another name" in wrong[0], shown
        code, wrong, shown = doctor(empty_cluster, STOKER_URL=f"https://localhost:{port}", STOKER_CA_FILE="/nowhere")
        assert code == 1 and "STOKER_CA_FILE names no file" in wrong[0], shown
        code, wrong, shown = doctor(empty_cluster, STOKER_URL=f"http://localhost:{port}")
        assert code == 1 and "https://" in wrong[0], shown
        code, wrong, shown = doctor(empty_cluster, STOKER_URL=f"https://localhost:{port}", STOKER_CA_FILE=certificate[0])
        assert "answers, version 1;" in shown, shown
    with web(stoker("1")) as port:
        code, wrong, shown = doctor(empty_cluster, STOKER_URL=f"https://127.0.0.1:{port}")
    assert code == 1 and "it speaks no TLS" in wrong[0], shown


def test_silence(empty_cluster):
    """Something takes the connection and says nothing: a deadline, and what to look at."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        code, wrong, shown = doctor(empty_cluster, STOKER_URL=f"http://127.0.0.1:{deaf.getsockname()[1]}")
    assert code == 1 and len(wrong) == 1 and "firewall" in wrong[0], shown
