"""A PostgreSQL of the test's own: in its folder, at a private port, with a role that has a password."""
import contextlib
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile

import pytest
from conftest import CALL_S, folders, held_port, until

PASSWORD = "a-pass-word-4711"


def bin_folder():
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name))
    assert found, "no PostgreSQL here: tools/parts.sh unit installs it"
    return found[-1]


class Postgres:
    def __init__(self, host=None):
        """On a host of rack.py, or on this machine."""
        self.host, self.address = host, host.address if host else "127.0.0.1"
        self.bin = bin_folder()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pg-", dir=folders()))
        self.port = held_port()
        if os.getuid() == 0:  # it refuses to run as root
            who = pwd.getpwnam("postgres")
            os.chown(self.folder, who.pw_uid, who.pw_gid)
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self.run("initdb", "-D", self.data, "-U", "stoker", "--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={secret}", "-E", "UTF8",
                 "--locale=C.UTF-8", "--no-sync")
        with open(self.data / "pg_hba.conf", "a", encoding="ascii") as f:
            f.write("host all all 10.99.0.0/16 scram-sha-256\n")
        self.pgpass = self.folder / "pgpass"
        self.pgpass.write_text(f"*:*:*:*:{PASSWORD}\n")
        self.pgpass.chmod(0o600)
        self.start()

    @property
    def data(self):
        return self.folder / "data"

    @property
    def env(self):
        return {"PGPASSFILE": str(self.pgpass)}

    def url(self, database="postgres", user="stoker", more=""):
        return f"postgresql://{user}@{self.address}:{self.port}/{database}{more}"

    def run(self, program, *args):
        drop = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"] if os.getuid() == 0 else []
        done = subprocess.run([*drop, self.bin / program, *args], cwd=self.folder, capture_output=True, text=True, timeout=CALL_S)
        assert done.returncode == 0, done
        return done.stdout

    def start(self):
        options = f"-p {self.port} -k {self.folder} -h {self.address} -c max_connections=60"
        drop = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"] if os.getuid() == 0 else []
        command = [*drop, self.bin / "pg_ctl", "-D", self.data, "-l", self.folder / "log", "-s", "-w", "-o", options, "start"]
        # not by run(): what it starts would keep the pipe open
        done = subprocess.run(self.host.enter(*command) if self.host else command,
                              cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=CALL_S)
        assert done.returncode == 0, (self.folder / "log").read_text()

    def stop(self, mode="fast"):
        self.run("pg_ctl", "-D", self.data, "-m", mode, "-s", "-w", "stop")

    def pids(self):
        first = int((self.data / "postmaster.pid").read_text().split()[0])
        below = pathlib.Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [first, *map(int, below)]

    def signal(self, which):
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, which)

    def kill(self):
        """As a machine without power: the server and all of its sessions."""
        pids = self.pids()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not any(pathlib.Path(f"/proc/{p}").exists() for p in pids))
        self.forget()

    def forget(self):
        """After a death: a process of that number may be another one by now."""
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def sql(self, text, database="postgres"):
        return self.run("psql", "-h", self.folder, "-p", str(self.port), "-U", "stoker", "-d", database, "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1",
                        "-c", text).strip()

    def close(self):
        with contextlib.suppress(AssertionError, FileNotFoundError):
            if self.host is None:  # else it ends with its machine
                self.signal(signal.SIGCONT)
                self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def server():
    p = Postgres()
    yield p
    p.close()


@pytest.fixture
def target(server, request):
    """The URL of a database that is new."""
    name = "t" + "".join(c for c in request.node.name if c.isalnum())[:50].lower()
    server.sql(f"CREATE DATABASE {name}")
    return server.url(name)
