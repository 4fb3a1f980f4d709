"""Saves again and again, and each time all of it is killed at another moment.

    deaths.py SCRIPT NAME OUT STEPS DEATHS

First a save that nobody disturbs, into OUT/whole: it says how much a save writes. Then DEATHS saves, each into a folder of its own,
killed when so many files are there, so many bytes, or after so long; in the last one this program is killed too. Folders are named by letters: saves
of one kind are compared by the numbers in their names, and a save is not to be helped by that.

Prints "saved PATH" for each checkpoint whose save returned, as the savers do, and "over FOLDER" for each save that came to its end.
"""
import importlib
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import common


def letters(n):
    return "death-" + "".join(chr(ord("a") + n // 26 ** i % 26) for i in (1, 0))


def say(line):
    os.write(1, f"{line}\n".encode())  # whole, whoever is killed meanwhile


def one_rank(saver, out, steps, rank):
    if saver.ranks > 1:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(saver.ranks), LOCAL_WORLD_SIZE=str(saver.ranks))
    for step in saver.steps(out, steps):
        if rank == 0:
            say(f"saved {os.path.abspath(step)}")
    os._exit(0)


def save(saver, out, steps, what=None, limit=0):
    """In processes of its own; whether all of them came to their end."""
    os.makedirs(out)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(common.free_port()))
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        if what:
            common.killer(out, what, limit)
        ranks = []
        for rank in range(1, saver.ranks):
            ranks.append(os.fork())
            if ranks[-1] == 0:
                one_rank(saver, out, steps, rank)
        if ranks:
            ranks.append(os.fork())
            if ranks[-1] == 0:
                one_rank(saver, out, steps, 0)
            os._exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in ranks))
        one_rank(saver, out, steps, 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def moments(most, n):
    """By files, by bytes and by time in turn, spread over the whole save."""
    for i in range(n):
        what = ("files", "bytes", "ms")[i % 3]
        yield what, max(1, int(most[what] * (i + 1) / (n + 1)))


def main():
    script, name, out, steps, n = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
    saver = importlib.import_module(script.removesuffix(".py")).SAVERS[name]
    for module in saver.needs:
        importlib.import_module(module)
    whole = os.path.join(out, "whole")
    begun = time.monotonic()
    if not save(saver, whole, steps):
        sys.exit("a save that nobody disturbs fails")
    say("over whole")
    most = dict(common.amount(whole), ms=(time.monotonic() - begun) * 1000)
    for i, (what, limit) in enumerate(moments(most, n)):
        folder = letters(i)
        if save(saver, os.path.join(out, folder), steps, what, limit):
            say(f"over {folder}")
    os.kill(os.getpid(), signal.SIGKILL)


main()
