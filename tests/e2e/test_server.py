"""The server: first start, settings, who may come in, what it refuses to start with."""
import json
import os
import re
import socket
import stat
import subprocess

import pytest
from conftest import CALL_S, STOKER


def server(cluster, *flags, env=None, data=None, before=()):
    """Runs a server that is expected to give up: (exit code, id of the error, its message)."""
    done = subprocess.run([*before, STOKER, "server", "--data", str(data or cluster.data), *flags], capture_output=True, text=True,
                          env=cluster.environment(STOKER_ERRORS="json", **(env or {})), timeout=CALL_S)
    assert done.returncode != 0, done
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    return done.returncode, error["id"], error["message"]


def test_first_start_leaves_everything_ready(cluster):
    mode = {name: stat.S_IMODE(os.stat(cluster.data / name).st_mode) for name in ("master.key", "admin-token", "stoker.db")}
    assert mode["master.key"] == mode["admin-token"] == 0o600
    assert stat.S_IMODE(os.stat(cluster.data).st_mode) == 0o700
    login = cluster.home / ".config/stoker/login.json"
    assert stat.S_IMODE(login.stat().st_mode) == 0o600
    saved = json.loads(login.read_text())
    assert saved["url"] == cluster.url and saved["token"] == cluster.token
    done = subprocess.run([STOKER, "doctor"], capture_output=True, text=True, env=cluster.environment(), timeout=CALL_S)
    assert done.returncode == 0 and "0 failed" in done.stdout, done.stdout


def test_a_login_to_a_data_folder_that_is_gone_is_replaced(cluster):
    """At its address nobody else answers: its token is good for nothing. One that is good for this server is kept."""
    login = cluster.home / ".config/stoker/login.json"
    cluster.stop()
    cluster.data.rename(cluster.folder / "gone")
    cluster.restart()
    assert json.loads(login.read_text()) == {"url": cluster.url, "token": cluster.token, "port": cluster.port}
    mine = cluster.cli("tokens", "create", "me").out.strip()
    login.write_text(json.dumps({"url": cluster.url, "token": mine}))
    cluster.stop()
    cluster.restart()
    assert json.loads(login.read_text())["token"] == mine


def test_another_login_is_kept_and_said(empty_cluster):
    login = empty_cluster.home / ".config/stoker/login.json"
    login.parent.mkdir(parents=True, exist_ok=True)
    login.write_text(json.dumps({"url": "http://127.0.0.1:1", "token": "stoker_of_another_server"}))
    empty_cluster.start()
    words = empty_cluster.log.read_text()
    assert "http://127.0.0.1:1" in words and "stoker_of_another" not in words
    command = words.split("`stoker ")[1].split("`")[0]
    subprocess.run(f"{STOKER} {command}", shell=True, check=True, env=empty_cluster.environment(), timeout=CALL_S)
    assert json.loads(login.read_text())["url"] == empty_cluster.url
    assert subprocess.run([STOKER, "ps"], env=empty_cluster.environment(), capture_output=True, timeout=CALL_S).returncode == 0


def test_a_database_without_its_master_key(cluster):
    cluster.stop()
    key = cluster.data / "master.key"
    key.rename(cluster.folder / "kept.key")
    code, error, words = server(cluster, "--listen", "127.0.0.1:0")
    assert code == 3 and error == "master_key_missing" and str(key) in words and not key.exists()
    (cluster.folder / "kept.key").rename(key)
    cluster.restart()


def test_a_database_of_another_user(cluster):
    """As after a backup that root restored."""
    cluster.stop()
    database = cluster.data / "stoker.db"
    database.chmod(0o444)
    # Root may write everything, unless it is told not to.
    plain = ["setpriv", "--bounding-set", "-dac_override,-fowner"] if os.geteuid() == 0 else []
    if plain:
        os.chown(database, 65534, 65534)
    _, error, words = server(cluster, "--listen", "127.0.0.1:0", before=plain)
    assert error == "denied" and str(database) in words and "chown" in words
    if plain:
        os.chown(database, 0, 0)
    database.chmod(0o600)
    cluster.restart()


def test_help_prints_every_setting(cluster):
    text = subprocess.run([STOKER, "server", "--help"], capture_output=True, text=True, check=True, timeout=CALL_S).stdout
    for name in ("data", "listen", "allow-file-root", "allow-source-network", "hf-endpoint", "s3-endpoint", "cpus",
                 "memory", "gpus", "images", "config", "tls-cert", "insecure"):
        assert f"--{name}" in text


def test_port_taken(empty_cluster):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, error, words = server(empty_cluster, "--listen", f"127.0.0.1:{port}")
    assert code == 5 and error == "address_in_use" and str(port) in words


def test_a_port_that_a_dead_server_kept(cluster):
    """No server listens there, so who looks for one is told whose port it is."""
    job = cluster.push([cluster.hold()])
    cluster.wait(job, "TRAINING_JOB_RUNNING")
    cluster.kill()
    code, error, words = server(cluster, "--listen", f"127.0.0.1:{cluster.port}", data=cluster.folder / "other")
    assert code == 5 and error == "address_in_use" and f"`stoker server --data {cluster.data}` takes it" in words, words
    cluster.restart()
    cluster.release(job)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")


def test_second_server_on_the_same_data_folder(cluster):
    code, error, words = server(cluster, "--listen", "127.0.0.1:0")
    assert code == 5 and error == "data_folder_in_use" and str(cluster.process.pid) in words and str(cluster.data) in words


def test_not_loopback_without_tls_is_refused(empty_cluster):
    code, _, words = server(empty_cluster, "--listen", "0.0.0.0:0")
    assert code == 2 and "--insecure" in words and "--tls-cert" in words


@pytest.mark.parametrize("text, words", [
    ("listen: [1, 2]\n", "listen"),
    ("lisen: 127.0.0.1:0\n", '"listen"'),
    ("cpus: &x 4\n", "line 1"),
    ("cpus: many\n", "cpus"),
    ("a: b: c\n", "line 1"),
])
def test_bad_config_file(empty_cluster, text, words):
    path = empty_cluster.folder / "conf.yaml"
    path.write_text(text)
    code, _, said = server(empty_cluster, "--config", str(path), "--listen", "127.0.0.1:0")
    assert code == 2 and words in said and "conf.yaml" in said


def test_missing_config_file(empty_cluster):
    code, error, said = server(empty_cluster, "--config", "/nonexistent/conf.yaml")
    assert code == 3 and error == "not_found" and "/nonexistent/conf.yaml" in said


def test_config_environment_and_flags_in_this_order(empty_cluster):
    path = empty_cluster.folder / "conf.yaml"
    path.write_text("cpus: 3\nmemory: 3Gi\n")
    empty_cluster.start("--config", str(path), "--memory", "2Gi")
    status, reply = empty_cluster.api("GET", "/v1/status")
    assert status == 200
    node = reply["nodes"][0]
    assert node["millicpu"] == 3000 and node["memory_bytes"] == 2 << 30


def test_nothing_without_a_token(standing):
    for path in ("/v1/training_projects", "/v1/users/me", "/v1/status", "/v1/secrets", "/v1/weights", "/metrics"):
        status, reply = standing.api("GET", path, token="", raw=True)
        assert status == 401, path
        assert b"message" in reply
        assert standing.api("GET", path, token="stoker_wrong", raw=True)[0] == 401
    assert standing.error("ps", code=4, token="stoker_wrong") == "token_invalid"


def test_both_header_schemes(standing):
    status, me = standing.api("GET", "/v1/users/me", token="", headers={"Authorization": f"Api-Key {standing.token}"})
    assert status == 200 and me["role"] == "admin"


def test_roles(cluster):
    viewer = cluster.cli("tokens", "create", "v", "--role", "viewer").out.strip()
    member = cluster.cli("tokens", "create", "m", "--role", "member").out.strip()
    folder = cluster.job_folder(["true"])
    assert cluster.cli("ps", token=viewer).code == 0
    cluster.cli("push", folder / "train.yaml", token=viewer, code=4)
    cluster.cli("push", folder / "train.yaml", token=member)
    cluster.cli("tokens", "create", "x", token=member, code=4)


def test_revoked_and_expired_tokens(cluster):
    made = json.loads(cluster.cli("tokens", "create", "t", "-o", "json").out)
    assert cluster.cli("ps", token=made["api_key"]).code == 0
    listed = {t["name"]: t for t in cluster.json("tokens", "ls")}
    cluster.cli("tokens", "rm", listed["t"]["id"], "--yes")
    cluster.cli("ps", token=made["api_key"], code=4)


def test_teams_do_not_see_each_other(cluster):
    cluster.cli("teams", "create", "red")
    token = cluster.cli("tokens", "create", "r", "--team", "red").out.strip()
    mine = cluster.push(["true"])
    folder = cluster.job_folder(["true"], project="theirs")
    theirs = json.loads(cluster.cli("push", folder / "train.yaml", "-o", "json", token=token).out)
    cluster.cli("view", mine["id"], token=token, code=3)
    assert [j["id"] for j in json.loads(cluster.cli("ps", "-a", "-o", "json", token=token).out)] == [theirs["id"]]
    status, _ = cluster.api("GET", f"/v1/training_projects/{mine['training_project']['id']}/jobs/{mine['id']}", token=token)
    assert status == 404


def test_bad_requests(standing):
    for body in (b"{", b"[]", b"{\"training_project\": 3}", b"{\"a\": 1, \"a\": 2}", b"\xff\xfe"):
        status, reply = standing.api("POST", "/v1/training_projects", body)
        assert status == 400 and reply["message"], body
    assert standing.api("GET", "/v1/nothing/here")[0] == 404
    assert standing.api("PUT", "/v1/training_projects", b"{}")[0] == 405
    status, reply = standing.api("POST", "/v1/training_projects", b"{\"x\": \"" + b"a" * (40 << 20) + b"\"}")
    assert status == 413 and re.search(r"\d+ bytes", reply["message"])


def test_dot_segments_are_refused(standing):
    for path in ("/v1/../v1/status", "/v1/%2e%2e/v1/status", "/v1/training_projects/%2e%2e/jobs"):
        with socket.create_connection(("127.0.0.1", int(standing.url.split(":")[-1])), timeout=CALL_S) as s:
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {standing.token}\r\nConnection: close\r\n\r\n".encode())
            reply = b""
            while chunk := s.recv(65536):
                reply += chunk
        assert b" 400 " in reply.split(b"\r\n")[0] or b" 404 " in reply.split(b"\r\n")[0], reply[:200]


def test_openapi_describes_every_route(cluster):
    status, doc = cluster.api("GET", "/openapi.json", token="")
    assert status == 200 and doc["openapi"].startswith("3.1")
    assert "/v1/training_projects/{project_id}/jobs/{job_id}/stop" in doc["paths"]
