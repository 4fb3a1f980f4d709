"""The CLI as a person at a terminal sees it, and what it tells of jobs that wait, run and were stopped."""
import os
import pty
import select
import struct
import subprocess
import termios
import time
import fcntl
import re

import pytest
from conftest import CALL_S, DEADLINE_S, STOKER, Lines, until

GPU = {"cpu_count": 1, "memory": "256Mi", "accelerator": "H100:1"}


class Terminal:
    """A command on a pseudo-terminal of its own."""

    def __init__(self, cluster, *args, columns=100, **env):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = cluster.cli_environment()
        for name in ("NO_COLOR", "COLUMNS"):
            environment.pop(name, None)
        environment.update(env)
        self.process = subprocess.Popen([STOKER, *map(str, args)], stdin=slave, stdout=slave, stderr=slave,
                                        env=environment, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.seen = ""

    def read(self, until_text=None, deadline=DEADLINE_S):
        end = time.monotonic() + deadline
        while time.monotonic() < end and (until_text is None or until_text not in self.seen):
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    data = os.read(self.master, 65536)
                except OSError:  # the other side is closed
                    data = b""
                if not data:
                    break
                self.seen += data.decode(errors="replace")
            elif self.process.poll() is not None:
                break
        assert until_text is None or until_text in self.seen, self.seen
        return self.seen

    def end(self):
        self.read()
        code = self.process.wait(DEADLINE_S)
        os.close(self.master)
        return code


@pytest.fixture
def gpus(empty_cluster):
    return empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--gpus", "H100:2")


def test_push_follow_and_colours(gpus):
    folder = gpus.job_folder(["echo words of the job"])
    shown = Terminal(gpus, "push", "-f", folder / "train.yaml")
    assert shown.end() == 0
    assert "words of the job\r\n" in shown.seen and "\033[32mCOMPLETED" in shown.seen
    assert "stoker logs" not in shown.seen, "who follows needs no hint how to follow"
    plain = Terminal(gpus, "push", "-f", folder / "train.yaml", NO_COLOR="1")
    assert plain.end() == 0 and "\033[3" not in plain.seen and "COMPLETED" in plain.seen


def test_interrupt_detaches(gpus):
    folder = gpus.job_folder(["echo up", gpus.hold(), "echo end"])
    shown = Terminal(gpus, "push", "-f", folder / "train.yaml")
    shown.read("\nup")
    os.write(shown.master, b"\003")
    assert shown.end() == 130
    job = gpus.json("view", "@")
    assert f"stoker stop {job['id']}" in shown.seen
    gpus.release(job)
    gpus.wait(job, "TRAINING_JOB_COMPLETED")


def test_a_narrow_table_keeps_what_one_types(gpus):
    job = gpus.push(["true"], "--name", "a-name-that-is-rather-long", project="a-project-with-a-long-name")
    gpus.wait(job, "TRAINING_JOB_COMPLETED")
    shown = Terminal(gpus, "ps", "-a", columns=60)
    assert shown.end() == 0
    lines = shown.seen.replace("\r", "").splitlines()
    assert all(len(line) <= 62 for line in lines) and lines[1].split()[0] == job["id"], lines


def test_gpus_are_shared_out(gpus):
    """Two jobs of one GPU each get different ones; the third waits and says for what; a stop is no error."""
    jobs = [gpus.push(["echo gpu=$CUDA_VISIBLE_DEVICES of $BT_NUM_GPUS; sleep 600"], compute=GPU) for _ in range(3)]
    for job in jobs[:2]:
        until(lambda job=job: "gpu=" in gpus.logs(job))
    got = sorted(line for job in jobs[:2] for line in gpus.user_lines(job))
    assert got == ["gpu=0 of 1", "gpu=1 of 1"]
    reason = "waits for 1 x H100 (0 free of 2), 1st in line"
    until(lambda: gpus.job(jobs[2])["reason"] == reason)
    assert gpus.job(jobs[2])["current_status"] == "TRAINING_JOB_PENDING"
    assert reason in gpus.cli("view", jobs[2]["id"]).out
    until(lambda: reason in gpus.logs(jobs[2], "--system"))
    running = gpus.job(jobs[0])
    assert running["started_at"] and running["ended_at"] is None
    until(lambda: [r for r in gpus.cli("ps", "-o", "csv").out.splitlines() if jobs[0]["id"] in r and re.search(r",[1-9]\w*s,", r)])
    assert jobs[2]["id"] in gpus.cli("stop", jobs[2]["id"]).err
    assert "30 s" in gpus.cli("stop", jobs[0]["id"]).err  # the grace that it has
    gpus.cli("stop", jobs[1]["id"], "--now")
    for job in jobs:
        done = gpus.wait(job, "TRAINING_JOB_STOPPED")
        assert done["error_message"] is None and done["reason"], done
        assert done["ended_at"]


@pytest.mark.parametrize("accelerator", ["H100:4", "B200:1"])
def test_refusals_are_lines(gpus, accelerator):
    """What the server says, without the request it said it to."""
    folder = gpus.job_folder(["true"], compute={**GPU, "accelerator": accelerator})
    err = gpus.cli("push", folder / "train.yaml", code=5).err.splitlines()[-1]
    assert accelerator.partition(":")[0] in err and "http" not in err
    assert gpus.error("push", folder / "train.yaml", code=5) == "job_never_fits"


def test_doctor_on_a_broken_set_up(gpus):
    assert "0 failed" in gpus.cli("doctor").out
    for env, words in [({"STOKER_TOKEN": "stoker_wrong"}, "token"), ({"STOKER_URL": "http://127.0.0.1:1"}, "stoker server"),
                       ({"STOKER_URL": "nonsense"}, "http://")]:
        done = subprocess.run([STOKER, "doctor"], env={**gpus.cli_environment(), **env}, capture_output=True, text=True,
                              timeout=CALL_S, check=False)
        assert done.returncode == 1
        assert "fail" in done.stdout and words in done.stdout, done


def test_followers_do_not_hold_up_the_end(gpus):
    """SIGTERM with jobs and parked followers: seconds, and exit code 0; the job goes on."""
    job = gpus.push(["echo up", gpus.hold(), "echo through"])
    until(lambda: "up" in gpus.logs(job))
    followers = [subprocess.Popen([STOKER, "logs", job["id"], "-f"], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, env=gpus.cli_environment()) for _ in range(8)]
    for f in followers:
        Lines(f).until(lambda line: line == "up")  # its next call is the one that is parked
    gpus.process.terminate()
    assert gpus.process.wait(DEADLINE_S) == 0
    gpus.restart()
    gpus.release(job)
    gpus.wait(job, "TRAINING_JOB_COMPLETED")
    assert "through" in gpus.logs(job)
    ends = [f.communicate(timeout=CALL_S)[0] for f in followers]
    assert all(b"through" in end for end in ends) and [f.returncode for f in followers] == [0] * len(followers), \
        "a follower waits for the server to be back"


def test_a_progress_bar_is_one_line_that_is_redrawn(cluster):
    folder = cluster.job_folder([rf'for i in 1 2 3 4 5; do printf "step $i\r"; {cluster.hold("$i")}; done; echo word >&2; {cluster.hold()}; printf "step 6\n"'])
    terminal = Terminal(cluster, "push", "-f", folder / "train.yaml", columns=80)
    for gate, shown in *((i, f"step {i}") for i in range(1, 6)), ("go", "word\r\nstep 5"):
        terminal.read(shown)
        cluster.release(cluster.json("view", "@"), gate)
    assert terminal.end() == 0
    seen = terminal.seen
    assert "step 1\r\x1b[J" in seen and "step 1step" not in seen, seen
    # Another line goes above the open one, which is drawn again below it.
    above = seen.index("word\r\n")
    assert seen[:above].rstrip().endswith("\x1b[J") and seen[above:].startswith("word\r\nstep 5"), seen
    assert "step 6\r\n" in seen[above:] and seen.count("step 6") == 1


def test_interrupted_exec_says_that_the_command_goes_on(cluster):
    job = cluster.push(["echo up; sleep 600"])
    until(lambda: "up" in cluster.user_lines(job))
    terminal = Terminal(cluster, "exec", job["id"], "--", "sh", "-c", "echo inside; until test -e /tmp/go; do sleep 0.1; done; echo end >/b10/workspace/ended; sleep 600")
    terminal.read("inside")
    os.write(terminal.master, b"\x03")
    assert terminal.end() == 130 and "detached" in terminal.seen and "GET" not in terminal.seen
    cluster.release(job)
    until(lambda: "end" in cluster.cli("exec", job["id"], "--", "cat", "ended", code=None).out)
    cluster.cli("stop", job["id"], "--now")
