"""What the savers have in common: the command line, ranks, and a death at a chosen moment.

    SCRIPT list
    SCRIPT save NAME OUT [STEPS]   saves STEPS checkpoints with the framework's own code
    SCRIPT save-all OUT            two of each that needs one process, below OUT/NAME
    SCRIPT load NAME PATH...       loads each with the framework's own code; prints {path: null, or why it cannot be loaded}

In the environment of `save`:
    SAVER_SIZE      numbers in the largest tensor [200]
    SAVER_PAUSE     seconds between two checkpoints [0]
    SAVER_DIE       "files:N" or "bytes:N": SIGKILL to the process group when OUT holds so much; or "ms:N": after so long
"""
import json
import os
import signal
import socket
import subprocess
import sys
import time

SIZE = int(os.environ.get("SAVER_SIZE", "200"))


def amount(out):
    files = total = 0
    for folder, _, names in os.walk(out):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
                files += 1
            except OSError:
                pass
    return {"files": files, "bytes": total}


def killer(out, what, limit):
    """A process of its own: the trainer's threads may hold the interpreter while they write."""
    if os.fork() > 0:
        return
    parent, group, begun = os.getppid(), os.getpgid(0), time.monotonic()
    while os.getppid() == parent:
        if (amount(out)[what] if what != "ms" else (time.monotonic() - begun) * 1000) >= limit:
            os.killpg(group, signal.SIGKILL)
        time.sleep(0.0002)
    os._exit(0)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start_ranks(n):
    """This program again, n times, as the ranks of one job."""
    env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE=str(n), LOCAL_WORLD_SIZE=str(n))
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env=dict(env, RANK=str(r), LOCAL_RANK=str(r))) for r in range(n)]
    codes = [r.wait() for r in ranks]
    return max(abs(c) for c in codes)


def save(saver, out, steps):
    os.makedirs(out, exist_ok=True)
    what, _, limit = os.environ.get("SAVER_DIE", "").partition(":")
    first = "RANK" not in os.environ
    if what and first:
        os.setpgid(0, 0)
        killer(out, what, int(limit))
    if saver.ranks > 1 and first:
        return start_ranks(saver.ranks)
    chief = os.environ.get("RANK", "0") == "0"
    for step in saver.steps(out, steps):
        if chief:
            print(f"saved {os.path.abspath(step)}", flush=True)
        time.sleep(float(os.environ.get("SAVER_PAUSE", "0")))
    if not first:  # all is saved; the threads of a process group may abort what ends in its own order
        sys.stdout.flush()
        os._exit(0)
    return 0


class Saver:
    """save(out, step) -> path; or every(out, steps), which yields a path for each that it saved. needs: modules that a save imports."""

    def __init__(self, save=None, load=None, ranks=1, every=None, needs=()):
        self.one, self.load, self.ranks, self.every, self.needs = save, load, ranks, every, needs

    def steps(self, out, steps):
        if self.every:
            yield from self.every(out, steps)
            return
        for step in range(1, steps + 1):
            yield self.one(out, step)


def main(savers):
    if sys.argv[1:] == ["list"]:
        print("\n".join(savers))
        return 0
    if sys.argv[1] == "save-all":
        for name, saver in savers.items():
            if saver.ranks == 1:
                save(saver, os.path.join(sys.argv[2], name), 2)
        return 0
    verb, name, path = sys.argv[1:4]
    if verb == "save":
        return save(savers[name], path, int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    found = {}
    for path in sys.argv[3:]:
        try:
            savers[name].load(path)
            found[path] = None
        except BaseException as e:  # some frameworks exit, some raise what is no Exception
            found[path] = f"{type(e).__name__}: {e}"
    print("\nloaded " + json.dumps(found), flush=True)
    return 0
