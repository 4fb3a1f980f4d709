"""`stoker doctor` on set-ups that are wrong: one line says what, and how to mend it."""
import json
import socket
import subprocess

import pytest
from conftest import CALL_S, STOKER, held_port, proof
from web import Handler, serving


def doctor(cluster, **env):
    """(exit code, {check: (verdict, id of the error)}); of several findings of a check, the worst"""
    cluster.url = cluster.url or "http://127.0.0.1:1"
    env = {**cluster.environment(STOKER_TOKEN="stoker_x"), **env}

    def run(*flags):
        return subprocess.run([STOKER, "doctor", *flags], env=env, capture_output=True, text=True, timeout=CALL_S, check=False)
    done = run("-o", "json")
    found = {}
    for f in json.loads(done.stdout):
        found[f["check"]] = max(found.get(f["check"], ("", None)), (f["verdict"], f["id"]), key=lambda v: ["", "ok", "warn", "fail"].index(v[0]))
    shown = run()
    words = [line.split(None, 1) for line in shown.stdout.splitlines()[:-1]]
    assert shown.returncode == done.returncode and [w[0] for w in words] == [f["verdict"] for f in json.loads(done.stdout)]
    assert all(len(w) == 2 for w in words)
    return done.returncode, {k: v for k, v in found.items() if k != "version"}


def failed(check, error):
    return 1, {check: ("fail", error)}


def web(answers, tls=None):
    """A server that answers paths with (status, body)."""
    class Answers(Handler):
        def do_GET(self):
            self.answer(*answers.get(self.path, (404, "<html>no such page</html>")))

        def do_POST(self):
            """A server that knows the token of doctor(), and proves it."""
            self.answer(200, proof(json.loads(self.body()), "stoker_x", self.server.server_port))

    return serving(Answers, tls)


def stoker(version, **more):
    return {"/openapi.json": (200, {"openapi": "3.1.0", "info": {"title": "Stoker", "version": version}}), **more}


ALL = {"server", "database", "objects", "login", "clock", "sandbox", "python", "node", "disk", "upload"}


def test_all_is_well(cluster):
    code, found = doctor(cluster, STOKER_URL=cluster.url, STOKER_TOKEN=cluster.token)
    assert code == 0 and set(found) == ALL and not [v for v in found.values() if v[0] == "fail"], found
    code, found = doctor(cluster, STOKER_URL=cluster.url)
    assert code == 1 and found == {"server": ("ok", None), "database": ("ok", None), "objects": ("ok", None), "login": ("fail", "token_invalid")}
    viewer = cluster.cli("tokens", "create", "v", "--role", "viewer", "-q").out.strip()
    code, found = doctor(cluster, STOKER_URL=cluster.url, STOKER_TOKEN=viewer)
    assert code == 0 and set(found) == ALL


def test_an_upload_is_tried(cluster):
    """Everything answers but the object store: without room, it takes nothing."""
    cluster.stop()
    cluster.start("--base-url", f"http://127.0.0.1:{held_port()}")  # nobody is there
    code, found = doctor(cluster, STOKER_URL=f"http://127.0.0.1:{cluster.port}", STOKER_TOKEN=cluster.token)
    cluster.url = f"http://127.0.0.1:{cluster.port}"
    assert code == 1 and found["login"] == ("ok", None) and found["upload"] == ("fail", "host_unreachable")


@pytest.mark.parametrize("status, verdict", [({"python": None}, "warn"), ({"python": "uv 1"}, "ok"), ({}, None)], ids=["none", "uv", "older"])
def test_what_builds_environments(empty_cluster, status, verdict):
    me = {"/v1/users/me": (200, {"name": "ann", "role": "viewer"})}
    with web(stoker("1", **me, **{"/v1/status": (200, {"version": "1", **status})})) as port:
        _, found = doctor(empty_cluster, STOKER_URL=f"http://127.0.0.1:{port}")
    assert found.get("python", (None,))[0] == verdict


def test_no_login(empty_cluster):
    assert doctor(empty_cluster, STOKER_TOKEN="") == failed("login", "not_logged_in")


@pytest.mark.parametrize("answers", [
    {},
    {"/openapi.json": (200, "<html>hello</html>")},
    {"/openapi.json": (200, {"info": {"title": "Petstore", "version": "1"}}), "/v1/users/me": (200, {"name": "eve"})},
    {"/openapi.json": (503, {"message": "come back later"})},
])
def test_not_stoker(empty_cluster, answers):
    with web(answers) as port:
        assert doctor(empty_cluster, STOKER_URL=f"http://127.0.0.1:{port}") == failed("server", "not_stoker")


def test_another_version(empty_cluster):
    """A warning; and a server that says less or more than this one is no crash."""
    me = {"/v1/users/me": (200, {"name": "ann", "role": "viewer"})}
    with web(stoker("99.1", **me, **{"/v1/status": (200, {"version": "99.1", "nodes": [{"name": "n"}], "novel": {}})})) as port:
        code, found = doctor(empty_cluster, STOKER_URL=f"http://127.0.0.1:{port}")
    assert code == 0 and found["server"] == ("warn", None)
    with web(stoker("0.0.1", **me)) as port:
        code, found = doctor(empty_cluster, STOKER_URL=f"http://127.0.0.1:{port}")
    assert code == 1 and found["server"] == ("fail", "not_found") and found["login"] == ("ok", None)


def test_nobody_there(empty_cluster):
    assert doctor(empty_cluster, STOKER_URL=f"http://127.0.0.1:{held_port()}") == failed("server", "host_unreachable")
    nobody = "nobody" * 11 + ".invalid"  # no resolver is asked: no label is this long
    assert doctor(empty_cluster, STOKER_URL=f"http://{nobody}:8000") == failed("server", "host_unknown")


def test_tls(empty_cluster, certificate):
    with web(stoker("1"), tls=certificate) as port:
        def asked(url, **env):
            return doctor(empty_cluster, STOKER_URL=f"{url}:{port}", **env)
        assert asked("https://localhost") == failed("server", "certificate_untrusted")
        assert asked("https://127.0.0.1", STOKER_CA_FILE=certificate[0]) == failed("server", "certificate_untrusted")
        assert asked("https://localhost", STOKER_CA_FILE="/nowhere") == failed("server", "ca_file_unreadable")
        assert asked("http://localhost")[0] == 1
        assert asked("https://localhost", STOKER_CA_FILE=certificate[0])[1]["server"][0] == "warn"  # it answers, with another version
    with web(stoker("1")) as port:
        assert doctor(empty_cluster, STOKER_URL=f"https://127.0.0.1:{port}") == failed("server", "tls_expected")


def test_silence(empty_cluster):
    """Something takes the connection and says nothing: a deadline."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        assert doctor(empty_cluster, STOKER_URL=f"http://127.0.0.1:{deaf.getsockname()[1]}") == failed("server", "timeout")
