"""Several machines out of namespaces, whose power can be cut and whose cable can be pulled: then nobody gets a FIN or a RST.

A host is a process, its init, with namespaces for the network, processes, mounts, its name and System V IPC. Its files are the machine's: who
wants folders of its own names them. All hosts and this process are on a bridge, 10.99.N.0/24; this process is 10.99.N.254. Each init reads
from a pipe of ours: when we end, by whatever, they do, and with them bridge, cables and addresses."""
import contextlib
import itertools
import os
import signal
import subprocess

from conftest import CALL_S


def call(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=CALL_S, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done
    return done.stdout


def init(*flags):
    """A process in new namespaces that ends when our end of its input does; `sh` waits for whoever has lost his parent."""
    return subprocess.Popen(["unshare", *flags, "sh", "-c", "echo up; cat >/dev/null; exit"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL)


class Host:
    """A machine of the rack, switched on."""

    def __init__(self, rack, number):
        self.rack, self.number, self.address = rack, number, rack.address(number)
        self.cable = f"stk{os.getpid()}.{number}"
        self.boot()

    def boot(self):
        self.process = init("--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--mount-proc", "--kill-child")
        assert self.process.stdout.readline() == b"up\n"
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(children, encoding="ascii") as f:
            self.pid = int(f.read())
        self.rack.inside("ip", "link", "add", self.cable, "type", "veth", "peer", "name", "eth0", "address", f"02:00:00:99:00:{self.number:02x}",
                         "netns", self.pid)
        self.rack.inside("ip", "link", "set", self.cable, "master", "br0", "up")
        self.run("hostname", f"host{self.number}")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    def enter(self, *command):
        """The command line that runs a command there."""
        return ["nsenter", "-t", str(self.pid), "--net", "--mount", "--pid", "--uts", "--ipc", "--wd=/", "--", *map(str, command)]

    def run(self, *command):
        return call(*self.enter(*command))

    def signal(self, process, which):
        """To what such a command line has started. `nsenter` stops with it, and goes on when it is told to."""
        if which == signal.SIGCONT:
            process.send_signal(which)
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as f:
            os.kill(int(f.read()), which)

    def unplug(self):
        self.rack.inside("ip", "link", "set", self.cable, "down")

    def plug(self):
        self.rack.inside("ip", "link", "set", self.cable, "up")

    def cut_power(self):
        """The cable first, so that its kernel says no good-bye for it. That kernel goes on trying for a while: a cable of the same name must not wait."""
        if self.process is None:
            return
        self.rack.inside("ip", "link", "delete", self.cable)
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(CALL_S)  # unshare: when all of its processes are gone
        self.process.stdin.close()
        self.process.stdout.close()
        self.process = None


class Rack:
    def __init__(self):
        self.net = 1 + os.getpid() % 250
        self.switch = init("--net")
        assert self.switch.stdout.readline() == b"up\n"
        self.hosts, self.numbers = [], itertools.count(1)
        self.inside("ip", "link", "add", "br0", "type", "bridge")
        self.inside("ip", "link", "set", "br0", "up")
        self.ours = f"stk{os.getpid()}"
        call("ip", "link", "add", self.ours, "type", "veth", "peer", "name", "tests", "netns", self.switch.pid)
        self.inside("ip", "link", "set", "tests", "master", "br0", "up")
        call("ip", "address", "add", f"{self.address(254)}/24", "dev", self.ours)
        call("ip", "link", "set", self.ours, "up")

    def address(self, number):
        return f"10.99.{self.net}.{number}"

    def inside(self, *command):
        return call("nsenter", "-t", self.switch.pid, "--net", "--", *command)

    def host(self):
        self.hosts.append(Host(self, next(self.numbers)))
        return self.hosts[-1]

    def close(self):
        for h in self.hosts:
            h.cut_power()
        call("ip", "link", "delete", self.ours)
        self.switch.stdin.close()
        self.switch.wait(CALL_S)


@contextlib.contextmanager
def a_rack():
    rack = Rack()
    try:
        yield rack
    finally:
        rack.close()
