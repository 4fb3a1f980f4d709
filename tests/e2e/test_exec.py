"""Commands and shells inside running jobs: what they are given and what they print, terminals, and how they end."""
import contextlib
import fcntl
import hashlib
import os
import pathlib
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import termios
import threading

import pytest
from conftest import CALL_S, DEADLINE_S, STOKER, Lines, until
from containers import devices_stay, local_image
from test_terminal import Terminal

MIB = 1 << 20


@pytest.fixture
def job(cluster):
    return started(cluster)


def started(cluster, **kw):
    job = cluster.push(["echo up; sleep 600"], **kw)
    until(lambda: "up" in cluster.user_lines(job))
    cluster.wait(job, "TRAINING_JOB_RUNNING")
    return job


def run(cluster, job, *command, data=b"", flags=(), deadline=240):
    """(exit code, stdout, stderr) as bytes."""
    done = subprocess.run([STOKER, "exec", job["id"], *flags, "--", *command], input=data, env=cluster.cli_environment(),
                          capture_output=True, timeout=deadline, check=False)
    return done.returncode, done.stdout, done.stderr


class Shell(Terminal):
    """A session that shows a prompt of its own, so that what is typed is not taken for what came of it."""

    def __init__(self, cluster, job, *command, **env):
        super().__init__(cluster, "exec", job["id"], *(["-it", "--", *command] if command else []), TERM="xterm-256color", **env)
        self.size(31, 97)

    def size(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def type(self, text):
        os.write(self.master, text.encode())

    def does(self, line, words):
        """What comes of a line; `words` are not in it as it is typed."""
        assert words not in line
        self.seen = ""
        self.type(line + "\r")
        return self.read(words)

    def shows_size(self, words):
        until(lambda: words in self.does("stty size; echo the''-size", "the-size"))


@contextlib.contextmanager
def shell(cluster, job, *command, **env):
    s = Shell(cluster, job, *command, **env)
    try:
        yield s
    finally:
        if s.process.poll() is None:
            s.process.kill()
            s.process.wait(DEADLINE_S)
        with contextlib.suppress(OSError):
            os.close(s.master)


def inside(cluster, job, pattern):
    """Command lines in the job that hold `pattern`, but for the one that looks."""
    looks = "for p in /proc/[0-9]*; do [ $p = /proc/$$ ] || tr '\\0' ' ' <$p/cmdline 2>/dev/null && echo; done"
    return [line for line in run(cluster, job, "sh", "-c", looks)[1].decode(errors="replace").splitlines() if pattern in line]


def test_streams_are_kept_apart_and_the_code_is_passed_on(cluster, job):
    script = "i=0; while [ $i -lt 200 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done; exit 7"
    code, out, err = run(cluster, job, "sh", "-c", script)
    assert code == 7
    assert out.decode().splitlines() == [f"out {i}" for i in range(200)]
    assert err.decode().splitlines() == [f"err {i}" for i in range(200)]
    assert run(cluster, job, "sh", "-c", "kill -9 $$")[0] == 137
    code, out, err = run(cluster, job, "no-such-program")
    assert code == 127 and b"no-such-program" in err and out == b""


def test_the_end_of_stdin_is_the_end_of_its_input(cluster, job):
    assert run(cluster, job, "cat", data=b"one\ntwo") == (0, b"one\ntwo", b"")
    assert run(cluster, job, "wc", "-c")[1].strip() == b"0"
    # A shell reads its lines from there, as `ssh host <script`.
    done = subprocess.run([STOKER, "exec", job["id"]], input=b"cd /; pwd; exit 4", env=cluster.cli_environment(),
                          capture_output=True, timeout=CALL_S, check=False)
    assert (done.returncode, done.stdout) == (4, b"/\n")
    # One that reads no more of it ends all the same.
    assert run(cluster, job, "head", "-c", "3", data=b"abc" * MIB) == (0, b"abc", b"")
    # What is not given any ends at once, though the input stays open.
    silent = subprocess.Popen([STOKER, "exec", job["id"], "--", "true"], stdin=subprocess.PIPE, env=cluster.cli_environment())
    assert silent.wait(DEADLINE_S) == 0


def test_20_megabytes_both_ways(cluster, job):
    data = random.Random(5).randbytes(20 * MIB)
    code, out, err = run(cluster, job, "sh", "-c", "tee /tmp/all; sha256sum /tmp/all >&2", data=data)
    assert code == 0 and err.split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert hashlib.sha256(out).hexdigest() == hashlib.sha256(data).hexdigest()


def test_more_than_may_run_at_once(cluster, job):
    """16 run, the next ones are told so, and neither the job nor those that run notice."""
    script = "echo here; until [ -e /tmp/all-may-go ]; do sleep 0.1; done"
    here = [subprocess.Popen([STOKER, "exec", job["id"], "--", "sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             env=cluster.cli_environment()) for _ in range(15)]
    try:
        assert [Lines(p).next() for p in here] == ["here"] * 15
        last = subprocess.Popen([STOKER, "exec", job["id"], "--", "sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=cluster.cli_environment())
        here.append(last)
        assert Lines(last).next() == "here"
        for _ in range(3):
            assert run(cluster, job, "true") == (126, b"", b"stoker: this job already runs as many commands as allowed\n")
        last.kill()  # its place is free once its end was noticed
        last.wait(DEADLINE_S)
        until(lambda: run(cluster, job, "touch", "/tmp/all-may-go")[0] == 0)
        assert [p.wait(DEADLINE_S) for p in here[:15]] == [0] * 15
    finally:
        for p in here:
            p.kill()
            p.wait(DEADLINE_S)
            p.stdout.close()


class Cutter:
    """A proxy that cuts each connection once it has carried so many bytes, in whatever they are the middle of."""

    def __init__(self, target, every):
        self.target, self.every, self.cuts = target, every, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):  # closed: it is the end
            while True:
                threading.Thread(target=self.carry, args=self.listener.accept()[:1], daemon=True).start()

    def carry(self, near):
        with contextlib.suppress(OSError), near, socket.create_connection(self.target) as far:
            left = self.every
            while left > 0:
                for side in select.select([near, far], [], [])[0]:
                    data = side.recv(min(65536, left))
                    if not data:
                        return
                    (far if side is near else near).sendall(data)
                    left -= len(data)
            self.cuts += 1

    def close(self):
        self.listener.close()


def test_connections_that_are_cut(cluster, job):
    """Both directions go on where they were."""
    host, port = cluster.url.split("//")[1].split(":")
    data = random.Random(7).randbytes(2 * MIB)
    with contextlib.closing(Cutter((host, int(port)), 700_001)) as proxy:
        done = subprocess.run([STOKER, "exec", job["id"], "--", "cat"], input=data, capture_output=True, timeout=240, check=False,
                              env={**cluster.cli_environment(), "STOKER_URL": proxy.url})
        assert (done.returncode, done.stdout == data, done.stderr) == (0, True, b"")
        assert proxy.cuts > 2


def test_by_a_server_with_a_certificate(empty_cluster, certificate):
    c = empty_cluster
    machine = ["--cpus", "2", "--memory", "1Gi"]
    c.start(*machine)
    job = started(c)
    c.stop()
    c.launch([STOKER, "server", "--data", str(c.data), "--listen", f"127.0.0.1:{c.port}", "--tls-cert", certificate[0], "--tls-key", certificate[1], *machine])
    env = {**c.cli_environment(), "STOKER_URL": f"https://localhost:{c.port}", "STOKER_CA_FILE": certificate[0]}
    data = random.Random(9).randbytes(4 * MIB)
    done = subprocess.run([STOKER, "exec", job["id"], "--", "sh", "-c", "cat; echo err >&2; exit 6"], input=data, env=env, capture_output=True,
                          timeout=CALL_S, check=False)
    assert (done.returncode, done.stdout == data, done.stderr) == (6, True, b"err\n")
    stopped = subprocess.run([STOKER, "stop", "--all", "--now", "-y"], env=env, capture_output=True, timeout=CALL_S, check=False)
    assert stopped.returncode == 0, stopped
    until(lambda: not c.runners())
    c.stop()  # the helpers of a cluster know no certificates


def test_a_reader_that_stops_holds_up_the_command(cluster, job):
    """The command cannot get further than what is on the way, and nothing of it is lost."""
    script = "i=0; while [ $i -lt 400 ]; do head -c 65536 /dev/zero; i=$((i+1)); echo $i >/tmp/far; done"
    client = subprocess.Popen([STOKER, "exec", job["id"], "--", "sh", "-c", script], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, env=cluster.cli_environment())
    try:
        def far():
            return int(run(cluster, job, "sh", "-c", "cat /tmp/far 2>/dev/null")[1] or 0)  # empty while it is written

        seen = [until(far)]
        until(lambda: seen.append(far()) or (len(seen) > 4 and len(set(seen[-4:])) == 1))
        assert seen[-1] < 100, "megabytes are kept somewhere"
        out = client.communicate(timeout=CALL_S)[0]
        assert client.returncode == 0 and len(out) == 400 * 65536
    finally:
        client.kill()
        client.wait(DEADLINE_S)


def test_what_nobody_reads_holds_up_no_runner(cluster, job):
    """The command has ended, but not all that it printed is on the way when its job ends."""
    client = subprocess.Popen([STOKER, "exec", job["id"], "--", "sh", "-c", "head -c 380000 /dev/zero; touch /tmp/all"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, env=cluster.cli_environment())
    try:
        until(lambda: run(cluster, job, "test", "-e", "/tmp/all")[0] == 0)
        cluster.cli("stop", job["id"], "--now")
        until(lambda: not cluster.runners())
    finally:
        client.kill()
        client.wait(DEADLINE_S)
        client.stdout.close()


def test_a_shell(cluster, job):
    with shell(cluster, job) as s:
        s.does("echo $TERM-$((40+2))", "xterm-256color-42")
        s.shows_size("31 97")
        s.size(44, 120)
        s.shows_size("44 120")
        s.does("tty | grep -c /dev/pts/ && test -t 0 && test -t 1 && echo all-''terminals", "all-terminals")
        s.does("cd /tmp && pwd", "/tmp\r\n")  # it is one shell
        s.type("sleep 987.5\r")
        until(lambda: inside(cluster, job, "sleep 987.5"))
        s.type("\x03")
        until(lambda: not inside(cluster, job, "sleep 987.5"))
        s.does("echo code-$?", "code-130")  # Ctrl-C ended the command and not the session
        assert s.process.poll() is None
        s.type("exit 5\r")
        assert s.end() == 5


def ended(s):
    """[its code], when it has one; what it prints meanwhile is read."""
    if select.select([s.master], [], [], 0)[0]:
        os.read(s.master, 65536)
    return None if s.process.poll() is None else [s.process.poll()]


def modes(fd):
    return termios.tcgetattr(fd)[:4]


@pytest.mark.parametrize("end", ["exit", "tilde", "signal", "restart"])
def test_the_terminal_is_given_back(cluster, job, end):
    """As it was, and the command is gone, in whatever way the session ends."""
    s = Shell.__new__(Shell)
    with contextlib.ExitStack() as stack:
        master, slave = os.openpty()  # kept open here: its modes outlive the session
        stack.callback(os.close, slave)
        stack.callback(os.close, master)
        s.master, s.seen, before = master, "", modes(slave)
        # not by way of a shell: dash loses a Ctrl-C that comes between two of its commands
        s.process = subprocess.Popen([STOKER, "exec", job["id"], "-t", "--", "sleep", "988.5"], stdin=slave,
                                     stdout=slave, stderr=slave, env=cluster.cli_environment(), start_new_session=True,
                                     preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        until(lambda: inside(cluster, job, "sleep 988.5"))
        assert modes(slave) != before
        if end == "exit":
            s.type("\x03")
        elif end == "tilde":
            s.type("\r~.")
        elif end == "signal":
            s.process.terminate()
        else:
            cluster.kill()
            cluster.restart()
        code = until(lambda: ended(s))[0]
        assert code == {"exit": 130, "tilde": 130, "signal": 143, "restart": 3}[end]
        assert modes(slave) == before
    until(lambda: not inside(cluster, job, "sleep 988.5"))


def test_who_is_gone_takes_the_command_along(cluster, job):
    """kill -9 of the client: SIGHUP within 25 seconds, SIGKILL for what ignores it."""
    script = "trap '' HUP; echo is''-up; sleep 989.5; echo not reached"
    client = subprocess.Popen([STOKER, "exec", job["id"], "--", "sh", "-c", script], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, env=cluster.cli_environment())
    assert Lines(client).next() == "is-up"
    assert inside(cluster, job, "sleep 989.5")
    client.kill()
    client.wait(DEADLINE_S)
    client.stdout.close()
    until(lambda: not inside(cluster, job, "989.5"))


def on_machine(words):
    return [p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if words in p.read_bytes().replace(b"\0", b" ").decode(errors="replace")]


def test_a_server_that_does_not_come_back_takes_the_command_along(cluster, job):
    """Nobody hears of the client any more: SIGHUP after 20 seconds. The job goes on."""
    client = subprocess.Popen([STOKER, "exec", job["id"], "--", "sh", "-c", "echo is''-up; exec sleep 992.5"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=cluster.cli_environment())
    assert Lines(client).next() == "is-up"
    cluster.kill()
    client.kill()
    client.wait(DEADLINE_S)
    client.stdout.close()

    def gone():
        with contextlib.suppress(OSError):  # one that ends while it is looked at
            return not on_machine("sleep 992.5")
    until(gone)
    cluster.restart()
    assert run(cluster, job, "echo", "on")[1] == b"on\n"


def test_nobody_reads_what_it_prints(cluster, job):
    client = subprocess.Popen([STOKER, "exec", job["id"], "--", "sh", "-c", "while echo y; do :; done"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cluster.cli_environment())
    assert Lines(client).next() == "y"
    client.stdout.close()
    client.stderr.read()
    client.stderr.close()
    assert client.wait(DEADLINE_S) == 141
    until(lambda: not inside(cluster, job, "while echo y"))


def test_values_of_secrets_are_not_shown(cluster):
    cluster.cli("secrets", "set", "key", stdin="a-value-to-hide")
    job = started(cluster, runtime={"environment_variables": {"KEY": {"secret": "key"}}})
    assert run(cluster, job, "sh", "-c", "echo x${KEY}y; echo z${KEY} >&2") == (0, b"x[redacted]y\n", b"z[redacted]\n")
    with shell(cluster, job) as s:
        s.does("echo x${KEY}y", "x[redacted]y")
    assert "a-value-to-hide" not in cluster.log.read_text()


def test_who_may_not_run_commands(cluster, job):
    def made(name, *flags):
        return cluster.json("tokens", "create", name, *flags)["api_key"]

    cluster.cli("teams", "create", "blue")
    blue = made("of-blue", "--team", "blue")
    assert cluster.error("exec", job["id"], "--", "true", token=made("v", "--role", "viewer"), code=4, stdin="") == "role_required"
    assert cluster.cli("exec", job["id"], "--", "true", token=blue, code=None, stdin="").code == 3
    base = f"/v1/training_projects/{job['training_project']['id']}/jobs/{job['id']}/exec"
    status, reply = cluster.api("POST", base, {"command": ["cat"], "input": True})
    assert status == 200
    assert cluster.api("GET", f"{base}/{reply['exec_id']}", token=blue)[0] == 404
    status, reply = cluster.api("GET", f"{base}/{reply['exec_id']}")  # the caller may, but did not ask for what it is
    assert status == 426 and "Upgrade: stoker-exec" in reply["message"]


def test_words_about_what_cannot_be(cluster, job):
    assert cluster.error("exec", job["id"], "-t", "--", "sh", stdin="", code=2) == "invalid"
    cluster.cli("stop", job["id"], "--now")
    cluster.wait(job, "TRAINING_JOB_STOPPED")
    assert cluster.error("exec", job["id"], "--", "true", code=5, stdin="") == "job_not_running"


@pytest.mark.parametrize("kind", ["plain", "podman"])
def test_in_every_sandbox(empty_cluster, kind):
    cluster = empty_cluster
    if kind == "podman" and not all(map(shutil.which, ("podman", "busybox"))):
        pytest.skip("podman and busybox are needed")
    with devices_stay(), local_image(cluster.folder) if kind == "podman" else contextlib.nullcontext() as image:
        cluster.start("--cpus", "4", "--memory", "4Gi", *(["--sandbox", "plain"] if kind == "plain" else []))
        job = started(cluster, **({} if image is None else {"image": {"base_image": image}}))
        data = random.Random(6).randbytes(2 * MIB)
        code, out, err = run(cluster, job, "sh", "-c", "cat; echo err >&2; exit 6", data=data)
        assert (code, out == data, err) == (6, True, b"err\n")
        with shell(cluster, job) as s:
            s.shows_size("31 97")
            s.size(44, 120)
            s.shows_size("44 120")
            s.type("sleep 990.5\r")
            until(lambda: inside(cluster, job, "sleep 990.5"))
            s.type("\x03")
            until(lambda: not inside(cluster, job, "sleep 990.5"))
            s.does("echo still''-here", "still-here")
            s.type("sleep 991.5\r")
            until(lambda: inside(cluster, job, "sleep 991.5"))
            s.process.terminate()
            s.process.wait(DEADLINE_S)
        until(lambda: not inside(cluster, job, "sleep 991.5"))
        cluster.end_jobs()
