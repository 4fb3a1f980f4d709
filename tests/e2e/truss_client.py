"""The unmodified truss client in a home of its own, pointed at a cluster by http_proxy."""
import json
import os
import pty
import select
import signal
import subprocess
import termios
import textwrap
import threading
import time

import pytest
from conftest import CALL_S, PARTS, Lines, end_process

TRUSS = PARTS / "clients/bin/truss"
PYTHON = PARTS / "clients/bin/python"
OLDER = PARTS / "clients/truss-0.18.35"  # a folder for PYTHONPATH

# What `truss` does, from behind its imports: they are a second of work, and alike for all commands of one home and environment.
BEGUN = """
import atexit, gc, json, os, sys, traceback
from truss.cli.cli import truss_cli
gc.collect()
gc.freeze()  # what is there stays where it is, shared by all
said = os.fdopen(os.dup(1), "w", buffering=1)
for line in sys.stdin:
    args, folder, files = json.loads(line)
    child = os.fork()
    if child == 0:
        said.close()
        os.chdir(folder)
        for fd, path in enumerate(files):
            os.dup2(os.open(path, os.O_RDWR), fd)
        sys.argv, code = ["truss", *args], 1
        try:
            truss_cli()
        except SystemExit as e:
            code = e.code if isinstance(e.code, int) else int(e.code is not None)
        except BaseException:
            traceback.print_exc()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=said)
"""


class Begun:
    """One process of the client that forks for each command."""

    def __init__(self, home, env):
        self.env, self.busy, self.files = dict(env), threading.Lock(), [home.with_suffix(".out"), home.with_suffix(".err")]
        self.process = subprocess.Popen([PYTHON, "-c", BEGUN], env=env, cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)
        self.codes = Lines(self.process)

    def run(self, args, folder, timeout):
        for path in self.files:
            path.write_text("")
        self.process.stdin.write(json.dumps([args, str(folder), [os.devnull, *map(str, self.files)]]).encode() + b"\n")
        self.process.stdin.flush()
        code = self.codes.next(timeout)
        assert code is not None, f"the client's imports failed: exit {self.process.wait(CALL_S)}"
        return subprocess.CompletedProcess(args, int(code), *(path.read_text() for path in self.files))

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        end_process(self.process)


class Client:
    def __init__(self, cluster, token=None, name="truss-home"):
        self.cluster = cluster
        self.begun = self.asked = None
        self.home = cluster.folder / name
        self.home.mkdir()
        (self.home / ".trussrc").write_text("[baseten]\nremote_provider = baseten\nremote_url = http://localhost:8000\n"
                                            f"api_key = {token or cluster.token}\n")
        self.env = {k: v for k, v in os.environ.items() if not k.lower().startswith(("no_proxy", "aws_", "stoker_", "baseten_"))}
        self.env.update(HOME=str(self.home), http_proxy=cluster.url, TRUSS_NO_UPDATE_CHECK="1", COLUMNS="200",
                        BASETEN_TRUSS_AUTH_KEYRING_DISABLED="1", NO_COLOR="1")

    def run(self, *args, code=0, cwd=None, timeout=CALL_S, env=None):
        done = self.call([str(a) for a in args], {**self.env, **(env or {})}, cwd or self.home, timeout)
        if code is not None:
            assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def call(self, args, env, folder, timeout):
        """By a process of its own, until one environment is asked for again; then by one that has begun with it, if that has nothing else to do."""
        if self.begun is None and env == self.asked:
            self.begun = Begun(self.home, env)
            self.cluster.at_end.callback(self.begun.close)
        self.asked = env
        if self.begun and env == self.begun.env and self.begun.busy.acquire(blocking=False):
            try:
                return self.begun.run(args, folder, timeout)
            finally:
                self.begun.busy.release()
        return subprocess.run([TRUSS, *args], env=env, capture_output=True, text=True, cwd=folder, timeout=timeout)

    def train(self, *args, **kw):
        return self.run("train", *args, "--non-interactive", **kw)

    def typed(self, *args, answer=None, prompt=None, steps=(), timeout=CALL_S):
        """On a terminal: types each answer once its prompt has come after the one before; (exit code, what was shown)."""
        steps = list(steps) or [(prompt, answer)]
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(self.home)
            os.execve(TRUSS, ["truss", *map(str, args)], {**self.env, "TERM": "xterm"})
        shown, end, seen = b"", time.monotonic() + timeout, 0
        while time.monotonic() < end:
            if not select.select([fd], [], [], 0.2)[0]:
                continue
            try:
                data = os.read(fd, 65536)
            except OSError:
                break
            if not data:
                break
            shown += data
            if b"\x1b[6n" in data:  # where is the cursor?
                os.write(fd, b"\x1b[1;1R")
            while steps and (at := shown.find(steps[0][0].encode(), seen)) >= 0:
                # a prompt that is read key by key; a return that comes sooner is none
                while steps[0][1] and termios.tcgetattr(fd)[3] & termios.ICANON and time.monotonic() < end:
                    time.sleep(0.05)
                time.sleep(0.3)  # it is drawn before its keys are read
                seen = len(shown) if steps[0][1] else at
                os.write(fd, steps.pop(0)[1].encode())
        shown = shown.decode(errors="replace")
        if time.monotonic() >= end:
            os.kill(pid, signal.SIGKILL)
        os.close(fd)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert time.monotonic() < end, f"not done after {timeout} s, not typed: {steps}\n{shown}"
        return code, shown

    def project(self, commands, job="", runtime="", name="demo", files=None, compute='cpu_count=1, memory="256Mi"'):
        folder = self.cluster.folder / f"truss-{len(list(self.cluster.folder.glob('truss-*')))}"
        folder.mkdir()
        (folder / "config.py").write_text(textwrap.dedent(f"""\
            from truss_train import *
            from truss_train.definitions import *
            from truss.base.truss_config import Accelerator, AcceleratorSpec, WeightsSource
            project = TrainingProject(name="{name}", job=TrainingJob(
                image=Image(base_image="busybox:latest"),
                compute=Compute({compute}),
                runtime=Runtime(start_commands={commands!r}, {runtime}), {job}))
            """))
        for path, content in (files or {}).items():
            (folder / path).write_text(content)
        return folder

    def push(self, commands, *flags, cwd=None, **kw):
        """Pushes and returns the job as the API shows it."""
        self.train("push", "config.py", *flags, cwd=cwd or self.project(commands, **kw))
        return latest(self.cluster)


@pytest.fixture
def truss(empty_cluster):
    # the images of truss jobs cannot be fetched here: the host's root stands in, and the log says so
    empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--images", "host", "--oidc-issuer", "https://stoker.example/")
    return Client(empty_cluster)


def latest(cluster):
    """The newest job, whoever pushed it."""
    (job,) = cluster.json("ps", "-a", "--everyone", "--limit", 1)
    return cluster.job(job)


def document(text):
    """The JSON object in what the client printed."""
    return json.loads(text[text.index("{"):text.rindex("}") + 1])


def messages(text):
    """What comes after "[time]: (replica) " of each log line that the client printed."""
    found = []
    for line in text.splitlines():
        if line.startswith("[20") and "]: " in line:
            rest = line.split("]: ", 1)[1]
            found.append(rest.split(") ", 1)[1] if rest.startswith("(") and ") " in rest else rest)
    return found
