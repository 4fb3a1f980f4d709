"""A job, or anybody else on the machine, who gets hold of the server's port is sent no token; and does not get hold of it."""
import contextlib
import hashlib
import hmac
import json
import os
import re
import socket
import subprocess
import threading

import pytest
from conftest import CALL_S, STOKER, Lines, held_port, until

# Tries to listen where the server listens, in every way that the kernel offers, until the file `go` is there; then says how often
# it succeeded, and what it was told.
SQUATTER = r"""
import os, socket, sys
port, got, heard = int(sys.argv[1]), 0, b""
options = [[], ["SO_REUSEADDR"], ["SO_REUSEPORT"], ["SO_REUSEADDR", "SO_REUSEPORT"]]
hosts = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")]
while not os.path.exists("/tmp/go"):
    for family, host in hosts:
        for names in options:
            s = socket.socket(family)
            for name in names:
                s.setsockopt(socket.SOL_SOCKET, getattr(socket, name), 1)
            try:
                if family == socket.AF_INET6:
                    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                s.bind((host, port))
                s.listen(100)
                s.settimeout(1)
                got += 1
                c, _ = s.accept()
                c.settimeout(1)
                heard += c.recv(65536)
            except OSError:
                pass
            s.close()
print("got", got, "heard", heard, flush=True)
"""


def squat(cluster):
    """A job that is after the port, and tries already."""
    job = cluster.push([f"echo trying; exec python3 squat.py {cluster.port}"], files={"squat.py": SQUATTER})
    until(lambda: "trying" in cluster.user_lines(job))
    return job


def kill_and_start(cluster):
    cluster.kill()
    cluster.start()


def stop_and_start(cluster):
    cluster.stop()
    cluster.start()


@pytest.mark.parametrize("again", [kill_and_start, stop_and_start])
def test_the_port_is_never_free(cluster, again):
    job = squat(cluster)
    for _ in range(4):
        again(cluster)
        assert cluster.json("ps")
    cluster.release(job)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job)[-1] == "got 0 heard b''"


def keepers(cluster):
    return [line for line in cluster.processes() if "keep-port" in line]


def test_without_a_server_callers_are_told(cluster):
    """As long as a job runs; without one the port is let go, and nothing stays behind."""
    job = cluster.push([cluster.hold()])
    cluster.wait(job, "TRAINING_JOB_RUNNING")
    cluster.stop()
    assert len(keepers(cluster)) == 1
    assert until(lambda: cluster.error("ps")) == "unavailable"
    answer = raw(cluster.port, b"GET /v1/users/me HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 503 ") and json.loads(answer.split(b"\r\n\r\n")[1])["error"]["id"] == "unavailable"
    cluster.start()
    cluster.release(job)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    until(lambda: len(keepers(cluster)) == 1)
    cluster.stop()
    until(lambda: not cluster.processes())
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", cluster.port), timeout=5)


def raw(port, data):
    with socket.create_connection(("127.0.0.1", port), timeout=CALL_S) as s:
        s.sendall(data)
        answer = b""
        while piece := s.recv(65536):
            answer += piece
        return answer


def test_a_killed_keeper_comes_back(cluster):
    first = keepers(cluster)[0].split()[0]
    os.kill(int(first), 9)
    until(lambda: [k for k in keepers(cluster) if k.split()[0] != first])
    job = squat(cluster)
    kill_and_start(cluster)
    cluster.release(job)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job)[-1] == "got 0 heard b''"


def test_another_port_is_let_go(cluster):
    """A server that moves while a job runs keeps the new port, and no longer the old one."""
    job = cluster.push([cluster.hold()])
    cluster.wait(job, "TRAINING_JOB_RUNNING")
    old = cluster.port
    cluster.kill()
    cluster.port = held_port()
    cluster.start()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", old), timeout=5)
    cluster.release(job)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_socket_from_systemd(empty_cluster, host):
    """systemd holds the port; the unit's --listen does not count."""
    cluster = empty_cluster
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as s:
        s.bind((host, 0))
        s.listen(100)
        cluster.port = s.getsockname()[1]
        with open(cluster.log, "ab") as log:
            cluster.process = subprocess.Popen(
                ["bash", "-c", f'exec 3<&{s.fileno()} {s.fileno()}<&-; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"', "sh", STOKER, "server",
                 "--data", str(cluster.data), "--listen", "127.0.0.1:1"],
                pass_fds=[s.fileno()], stdout=subprocess.PIPE, stderr=log, env=cluster.environment(), text=True)
        line = Lines(cluster.process).next() or cluster.log.read_text()
        assert line.split()[-1] == f"http://{'[::1]' if ':' in host else host}:{cluster.port}"
        cluster.url = line.split()[-1]
        job = cluster.push(["env | grep -c ^LISTEN_ || true"])
        cluster.wait(job, "TRAINING_JOB_COMPLETED")
        assert cluster.user_lines(job) == ["0"] and not keepers(cluster)
        cluster.stop()
        socket.create_connection((host, cluster.port), timeout=5).close()  # systemd would start it again


def test_a_public_socket_from_systemd_needs_tls(empty_cluster):
    with socket.socket() as s:
        s.bind(("0.0.0.0", 0))
        s.listen(100)
        done = subprocess.run(["bash", "-c", f'exec 3<&{s.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"', "sh", STOKER, "server", "--data",
                               str(empty_cluster.data)], pass_fds=[s.fileno()], env=empty_cluster.environment(), timeout=CALL_S, capture_output=True)
    assert done.returncode == 2 and b"--insecure" in done.stderr


# --- what a client says to an impostor

class Impostor:
    """Listens at the server's address and keeps what it hears. `answer(request, body)` makes the reply, None hangs up."""

    def __init__(self, port, answer):
        self.answer, self.heard = answer, []
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", port))
        self.socket.listen(100)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                s, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(s,), daemon=True).start()

    def talk(self, s):
        with contextlib.suppress(OSError), s:
            data = b""
            while True:
                while b"\r\n\r\n" not in data:
                    piece = s.recv(65536)
                    if not piece:
                        return
                    self.heard.append(piece)
                    data += piece
                head, _, data = data.partition(b"\r\n\r\n")
                length = int((re.search(rb"(?i)content-length: (\d+)", head) or [0, 0])[1])
                while len(data) < length:
                    piece = s.recv(65536)
                    self.heard.append(piece)
                    data += piece
                body, data = data[:length], data[length:]
                reply = self.answer(head, body)
                if reply is None:
                    return
                s.sendall(reply)

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def reply(body, status=b"200 OK", headers=b""):
    return b"HTTP/1.1 " + status + b"\r\nContent-Type: application/json\r\nContent-Length: " + str(len(body)).encode() + b"\r\n" + headers + b"\r\n" + body


def guessed_proof(head, body):
    return reply(json.dumps({"address": "127.0.0.1:8000", "proof": hashlib.sha256(body).hexdigest()}).encode())


def echoed_challenge(head, body):
    if b'"challenge"' not in body:  # asked without one
        return reply(b"{}")
    return reply(json.dumps({"address": "127.0.0.1:8000", "proof": json.loads(body)["challenge"]}).encode())


HOSTILE = {
    "yes to everything": lambda head, body: reply(b'{"id": "x", "name": "admin", "role": "admin"}'),
    "a guessed proof": guessed_proof,
    "the challenge again": echoed_challenge,
    "not found": lambda head, body: reply(b'{"message": "no"}', b"404 Not Found"),
    "unauthorized": lambda head, body: reply(b'{"message": "send it once more"}', b"401 Unauthorized", b"WWW-Authenticate: Bearer\r\n"),
    "basic": lambda head, body: reply(b"", b"401 Unauthorized", b"WWW-Authenticate: Basic\r\n"),
    "elsewhere": lambda head, body: reply(b"", b"307 Temporary Redirect", b"Location: http://127.0.0.1:1/\r\n"),
    "continue": lambda head, body: b"HTTP/1.1 100 Continue\r\n\r\n",
    "no length": lambda head, body: b"HTTP/1.1 200 OK\r\n\r\n{}",
    "chunks without end": lambda head, body: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 100000,
    "a head without end": lambda head, body: b"HTTP/1.1 200 OK\r\n" + b"X-Any: y\r\n" * 100000,
    "a huge reply": lambda head, body: reply(b"x" * (64 << 20)),
    "an upgrade": lambda head, body: b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    "no HTTP": lambda head, body: b"220 smtp.example.org\r\n\r\n",
    "nothing": lambda head, body: None,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_an_impostor_gets_no_token(cluster, kind):
    token = cluster.token
    cluster.stop()
    until(lambda: not cluster.processes())
    impostor = Impostor(cluster.port, HOSTILE[kind])
    folder = cluster.job_folder(["true"], files={"secret.txt": "the code is secret"})
    try:
        for command in (["ps"], ["view", "abc"], ["push", folder / "train.yaml"], ["secrets", "set", "x"], ["doctor"]):
            env = {"STOKER_ERRORS": "json"}
            done = subprocess.run([STOKER, *map(str, command)], env=cluster.environment(STOKER_URL=cluster.url, STOKER_TOKEN=token, **env),
                                  input="a secret value\n", capture_output=True, text=True, timeout=CALL_S, errors="replace")
            assert done.returncode != 0, done
        done = subprocess.run([STOKER, "ps"], env=cluster.environment(STOKER_ERRORS="json"), capture_output=True, text=True, timeout=CALL_S)
        assert done.returncode != 0, "by the login that the server wrote"
        assert json.loads(done.stderr.splitlines()[-1])["error"]["id"] in ("server_unproven", "token_invalid", "unavailable")
    finally:
        impostor.close()
    heard = b"".join(impostor.heard)
    assert heard, "it was asked"
    for secret in (token.encode(), b"Authorization", b"a secret value", b"secret.txt"):
        assert secret not in heard


def relay_to(port):
    """Passes every request on to the real server, which is at another port."""
    def answer(head, body):
        with socket.create_connection(("127.0.0.1", port), timeout=CALL_S) as s:
            s.sendall(head + b"\r\n\r\n" + body)
            got = b""
            while b"\r\n\r\n" not in got:
                got += s.recv(65536)
            length = int(re.search(rb"(?i)content-length: (\d+)", got)[1])
            while len(got.split(b"\r\n\r\n", 1)[1]) < length:
                got += s.recv(65536)
            return got
    return answer


def test_who_passes_the_challenge_on_is_found_out(cluster):
    """The server has moved; an impostor at the old port has the real one answer. A login remembers where its server was."""
    login = cluster.home / ".config/stoker/login.json"
    before = login.read_text()
    old = cluster.port
    cluster.stop()
    until(lambda: not cluster.processes())
    cluster.port = held_port()
    cluster.start()
    login.write_text(before)
    impostor = Impostor(old, relay_to(cluster.port))
    try:
        done = subprocess.run([STOKER, "ps"], env=cluster.environment(STOKER_ERRORS="json"), capture_output=True, text=True, timeout=CALL_S)
        assert json.loads(done.stderr.splitlines()[-1])["error"]["id"] == "server_unproven"
        assert cluster.token.encode() not in b"".join(impostor.heard)
        # A tunnel is the same thing, wanted: who logs in through it is told the server's own port, and that is remembered.
        tunnel = {"XDG_CONFIG_HOME": str(cluster.folder / "tunnel")}
        done = subprocess.run([STOKER, "login", "--url", f"http://127.0.0.1:{old}"], input=cluster.token, env=cluster.environment(**tunnel),
                              capture_output=True, text=True, timeout=CALL_S)
        assert done.returncode == 0, done
        done = subprocess.run([STOKER, "ps"], env=cluster.environment(**tunnel), capture_output=True, text=True, timeout=CALL_S)
        assert done.returncode == 0, done
    finally:
        impostor.close()


def prove(cluster, token, challenge, known=None):
    key = hashlib.sha256((known or token).encode())
    status, answer = cluster.api("POST", "/v1/proof", {"token": key.hexdigest()[:16], "challenge": challenge}, token="")
    if status != 200:
        return answer["error"]["id"]
    text = f"stoker proof 1\n{challenge}\n{answer['address']}".encode()
    return hmac.new(key.digest(), text, hashlib.sha256).hexdigest() == answer["proof"] and answer["address"]


def test_what_a_proof_is(cluster):
    """As the documentation has it, made anew with Python's own HMAC; and what is refused."""
    challenge = "0123456789abcdef" * 4
    assert prove(cluster, cluster.token, challenge) == f"127.0.0.1:{cluster.port}"
    made = cluster.json("tokens", "create", "bob", "--role", "member")
    assert prove(cluster, made["api_key"], challenge) == f"127.0.0.1:{cluster.port}"
    assert prove(cluster, "stoker_" + "x" * 43, challenge) == "token_invalid"
    cluster.cli("tokens", "rm", made["id"], "-y")
    assert prove(cluster, made["api_key"], challenge) == "token_invalid"
    for token, text in (("", challenge), ("%" * 16, challenge), ("A" * 16, challenge), ("0" * 16, ""), ("0" * 16, challenge + "0"), ("0" * 16, "g" * 64)):
        assert cluster.api("POST", "/v1/proof", {"token": token, "challenge": text}, token="")[0] == 400


# --- a stolen runner's token

def runner_request(cluster, path, token, body):
    data = json.dumps(body).encode()
    return (b"POST " + path.encode() + b" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token.encode() + b"\r\nConnection: close\r\n"
            b"Content-Type: application/json\r\nContent-Length: " + str(len(data)).encode() + b"\r\n\r\n" + data)


def answer_to(cluster, path, token):
    """Status and body, without what differs from one request to the next."""
    if path.startswith("/s3/"):
        data = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n".encode()
    else:
        data = runner_request(cluster, path, token, {"query": "{ __typename }"})
    head, _, body = raw(cluster.port, data).partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0], re.sub(rb"<RequestId>[^<]*", b"", body)


def by_socket(cluster, data, user=None):
    """The answer at the server's Unix socket; `user`: asked as somebody else, who was let into the folder by mistake."""
    script = ("import socket,sys;s=socket.socket(socket.AF_UNIX);s.settimeout(60);s.connect(sys.argv[1]);s.sendall(sys.stdin.buffer.read());d=b''\n"
              "while True:\n p=s.recv(65536)\n if not p: break\n d+=p\nsys.stdout.buffer.write(d)")
    return subprocess.run(["python3", "-c", script, str(cluster.data / "server.sock")], input=data, capture_output=True, user=user, timeout=CALL_S)


def test_a_stolen_runner_token(cluster):
    """Who has it, but is not a process of the server's user at its socket, can do nothing with it."""
    job = cluster.push([cluster.hold()])
    cluster.wait(job, "TRAINING_JOB_RUNNING")
    start = json.loads(next(cluster.data.glob("runs/*/launch.json")).read_text())
    beat = runner_request(cluster, "/runner/v1/heartbeat", start["token"], {
        "seq": 1, "stage": "running", "done_bytes": 0, "total_bytes": 0, "rate_bytes_s": 0, "idle": False})
    exit_record = runner_request(cluster, "/runner/v1/exit", start["token"], {"code": 0})
    for stolen in (beat, exit_record, runner_request(cluster, "/runner/v1/claim", start["token"], {"nonce": "x" * 24})):
        answer = raw(cluster.port, stolen)
        assert answer.startswith(b"HTTP/1.1 401 ") and json.loads(answer.split(b"\r\n\r\n")[1])["error"]["id"] == "token_invalid"
    assert cluster.api("GET", "/v1/users/me", token=start["token"])[0] == 401
    # To the faces that check their callers themselves it is a token that nobody has, as their protocols say that.
    for path in ("/graphql/", "/s3/stoker"):
        stolen, unknown = [answer_to(cluster, path, token) for token in (start["token"], "stoker_" + "x" * 43)]
        assert stolen == unknown
    if os.geteuid() == 0:
        for path in (cluster.folder, cluster.data):
            path.chmod(0o755)
        (cluster.data / "server.sock").chmod(0o666)
        assert by_socket(cluster, beat, user=65534).stdout == b""
        cluster.data.chmod(0o700)
    assert by_socket(cluster, beat).stdout.startswith(b"HTTP/1.1 200 "), "as this user it is the runner's"
    # A claim is taken once, whoever has the token.
    again = by_socket(cluster, runner_request(cluster, "/runner/v1/claim", start["token"], {"nonce": "x" * 24})).stdout
    assert again.startswith(b"HTTP/1.1 409 "), again[:200]
    assert cluster.job(job)["current_status"] == "TRAINING_JOB_RUNNING"
    cluster.release(job)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")


def test_jobs_see_neither_socket(cluster):
    sockets = [str(cluster.data / name) for name in ("server.sock", "keeper.sock")]
    job = cluster.push([f"for s in {' '.join(sockets)}; do test -e $s && echo there; done; echo done"])
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job) == ["done"]
