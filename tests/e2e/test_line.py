"""The thin line through every layer: push, run, log, state, exit; and what survives kill -9."""
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest
from conftest import CALL_S, ROOT, STOKER, Lines, until


def read(path):
    try:
        return path.read_bytes()
    except OSError:  # it ended meanwhile
        return b""


def test_hello(cluster):
    job = cluster.push(["echo hello; echo oops >&2; pwd"])
    assert job["current_status"] in ("TRAINING_JOB_PENDING", "TRAINING_JOB_CREATED", "TRAINING_JOB_DEPLOYING", "TRAINING_JOB_RUNNING")
    done = cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert done["end"]["kind"] == "exit" and done["end"]["code"] == 0
    assert sorted(cluster.user_lines(job)) == ["/b10/workspace", "hello", "oops"]
    assert "sandbox:" in cluster.logs(job, "--system")


def test_push_follow_exits_with_the_outcome(cluster):
    ok = cluster.job_folder(["echo fine"])
    assert "fine" in cluster.cli("push", "-f", ok / "train.yaml").out
    bad = cluster.job_folder(["echo before", "exit 3", "echo never"])
    result = cluster.cli("push", "-f", bad / "train.yaml", code=10)
    assert "before" in result.out and "never" not in result.out
    assert "exit code 3" in result.err


def test_commands_stop_at_the_first_failure(cluster):
    job = cluster.push(["echo one", "false", "echo three"])
    done = cluster.wait(job, "TRAINING_JOB_FAILED")
    assert cluster.user_lines(job) == ["one"]
    assert done["end"]["code"] == 1


@pytest.mark.parametrize("moment", ["created", "running", "ended"])
def test_server_killed(cluster, moment):
    """kill -9 of the server loses no state and no running job, and user code starts once."""
    job = cluster.push(["echo start $BT_TRAINING_JOB_ID; for i in 1 2 3 4 5 6; do echo tick $i; sleep 0.5; done; echo end"])
    if moment == "running":
        until(lambda: "tick 2" in cluster.logs(job))
    elif moment == "ended":
        cluster.wait(job, "TRAINING_JOB_COMPLETED")
    cluster.kill()
    time.sleep(1)
    cluster.restart()
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job) == [f"start {job['id']}"] + [f"tick {i}" for i in range(1, 7)] + ["end"]


def test_server_killed_again_and_again(cluster):
    job = cluster.push(["for i in $(seq 1 40); do echo line $i; sleep 0.1; done"])
    for _ in range(4):
        time.sleep(0.7)
        cluster.kill()
        cluster.restart()
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job) == [f"line {i}" for i in range(1, 41)]


def test_sigterm_drains_and_the_job_goes_on(cluster):
    job = cluster.push([cluster.hold(), "echo survived"])
    cluster.wait(job, "TRAINING_JOB_RUNNING")
    cluster.stop()
    cluster.restart()
    cluster.release(job)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert "survived" in cluster.logs(job)


def test_stop_gives_grace(cluster):
    job = cluster.push(["trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.1; done"])
    until(lambda: "up" in cluster.user_lines(job))
    cluster.cli("stop", job["id"])
    done = cluster.wait(job, "TRAINING_JOB_STOPPED")
    assert "asked" in cluster.logs(job)
    assert done["end"]["kind"] == "stopped"


def test_stop_kills_the_whole_tree(cluster):
    mark = f"98765.{os.getpid()}"  # of this run: others may be testing on this machine
    job = cluster.push([f"trap '' TERM; setsid sleep {mark} & echo up; while :; do sleep 0.1; done"],
                       limits={"stop_grace": "1s"})
    until(lambda: "up" in cluster.user_lines(job))
    cluster.cli("stop", job["id"])
    cluster.wait(job, "TRAINING_JOB_STOPPED")
    until(lambda: not [p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in read(p)])


def test_runner_killed_is_lost_not_silent(cluster):
    job = cluster.push(["echo up; sleep 1000"])
    until(lambda: "up" in cluster.user_lines(job))  # an id may hold these letters, too
    runner = [p for p in cluster.processes() if " runner " in p]
    assert runner
    for line in runner:
        os.kill(int(line.split()[0]), signal.SIGKILL)
    done = cluster.wait(job, "TRAINING_JOB_FAILED")
    assert done["end"]["kind"] == "lost"
    until(lambda: not [p for p in cluster.processes() if " server " not in p and " keep-port " not in p])


def test_terminal_states_are_final(cluster):
    job = cluster.push(["true"])
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.error("stop", job["id"], code=5) == "job_ended"
    assert cluster.job(job)["current_status"] == "TRAINING_JOB_COMPLETED"


def test_idempotent_push(cluster):
    folder = cluster.job_folder(["true"])
    one = cluster.json("push", folder / "train.yaml", "--idempotency-key", "k1")
    two = cluster.json("push", folder / "train.yaml", "--idempotency-key", "k1")
    other = cluster.json("push", folder / "train.yaml", "--idempotency-key", "k2")
    assert one["id"] == two["id"] != other["id"]


def test_recreate_runs_the_same_code(cluster):
    job = cluster.push(["cat note.txt"], files={"note.txt": "kept\n"})
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    again = cluster.json("recreate", job["id"])
    assert again["id"] != job["id"]
    cluster.wait(again, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(again) == ["kept"]


def test_names_prefixes_and_the_newest(cluster):
    job = cluster.push(["true"], "--name", "my-job")
    assert cluster.json("view", "my-job")["id"] == job["id"]
    assert cluster.json("view", job["id"][:4])["id"] == job["id"]
    assert cluster.json("view", "@")["id"] == job["id"]
    assert cluster.error("view", "nothing-like-it", code=3) == "job_not_found"


def test_exec_runs_inside_the_job(cluster):
    job = cluster.push(["echo inner > /tmp/inside; echo up; sleep 600"])
    until(lambda: "up" in cluster.user_lines(job))
    assert cluster.cli("exec", job["id"], "--", "cat", "/tmp/inside").out == "inner\n"
    cluster.cli("exec", job["id"], "--", "sh", "-c", "exit 7", code=7)
    cluster.cli("stop", job["id"], "--now")
    cluster.wait(job, "TRAINING_JOB_STOPPED")


def test_a_job_that_made_it_at_last_has_no_error(cluster):
    folder = cluster.job_folder(["test $BT_RETRY_COUNT = 1 || exit 75"], retry={"on": ["exit:75"], "max_attempts": 2})
    done = cluster.cli("push", "-f", folder / "train.yaml")
    assert "attempt 1 of 2" in done.out and done.err.splitlines()[-1].endswith(": COMPLETED"), done
    job = cluster.json("view", "@")
    assert job["attempt"] == 2 and job["error_message"] is None and job["reason"] is None, job


def test_the_shell_does_not_speak_as_the_platform(cluster):
    """Lines that begin with "stoker:" are the platform's own."""
    job = cluster.push(["no-such-command || true"])
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    said = [line for line in cluster.logs(job).splitlines() if "command not found" in line or "no-such-command: not found" in line]
    assert len(said) == 1 and not said[0].startswith("stoker:"), cluster.logs(job)


def test_exit_evidence(cluster):
    timeout = cluster.job_folder(["sleep 600"], limits={"max_duration": "1s", "stop_grace": "1s"})
    cluster.cli("push", timeout / "train.yaml", "-f", code=124)
    assert cluster.json("view", "@")["end"]["kind"] == "timeout"
    signaled = cluster.push(["kill -SEGV $$"])
    end = cluster.wait(signaled, "TRAINING_JOB_FAILED")["end"]
    assert (end["kind"], end["code"]) in (("signal", 11), ("exit", 139))


def test_out_of_memory_is_told_apart(cluster):
    job = cluster.push(["python3 -c 'x = bytearray(900 << 20)'"])
    done = cluster.wait(job, "TRAINING_JOB_FAILED")
    assert done["end"]["kind"] == "oom", cluster.logs(job, "--system")


def test_every_line_once_and_in_order(cluster):
    job = cluster.push(["seq 1 100000"])
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job) == [str(i) for i in range(1, 100001)]


def test_a_follower_sees_a_line_while_the_job_runs(cluster):
    job = cluster.push([cluster.hold("one"), "echo now", cluster.hold("two")])
    follower = subprocess.Popen([STOKER, "logs", job["id"], "-f"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                env=cluster.cli_environment())
    cluster.wait(job, "TRAINING_JOB_RUNNING")
    cluster.release(job, "one")
    Lines(follower).until(lambda line: line.startswith("now"))
    assert cluster.job(job)["current_status"] == "TRAINING_JOB_RUNNING"
    cluster.release(job, "two")
    follower.communicate(timeout=CALL_S)
    assert follower.returncode == 0
    cluster.wait(job, "TRAINING_JOB_COMPLETED")


def test_interrupt_detaches_and_the_job_goes_on(cluster):
    folder = cluster.job_folder(["echo up", cluster.hold(), "echo end"])
    push = subprocess.Popen([STOKER, "push", "-f", str(folder / "train.yaml")], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env=cluster.cli_environment())
    Lines(push).until(lambda line: line.startswith("up"))
    push.send_signal(signal.SIGINT)
    words = push.communicate(timeout=CALL_S)[1].decode()
    job = cluster.json("view", "@")
    assert push.returncode == 130 and f"stoker stop {job['id']}" in words, words
    cluster.release(job)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert "end" in cluster.user_lines(job)


def test_carriage_returns_are_folded_when_shown(cluster):
    job = cluster.push([r"printf '10%%\r50%%\r100%%\n'"])
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job) == ["100%"]
    job = cluster.push([r'for i in 1 2 3 4; do printf "step $i\r"; sleep 0.3; done; echo; echo after'])
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job) == ["step 4", "after"]
    raw = subprocess.run([STOKER, "logs", "job-1", "--raw"], capture_output=True, check=True,
                         env=cluster.cli_environment()).stdout
    assert b"10%\r50%\r100%" in raw


def test_pieces_of_a_line_are_joined(cluster):
    job = cluster.push(["printf open", cluster.hold("one"), "echo other >&2", cluster.hold("two"), "printf last"])
    for gate, shown in ("one", "open"), ("two", "other"):
        until(lambda: shown in cluster.logs(job))
        cluster.release(job, gate)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    lines = cluster.logs(job).splitlines()
    assert [line for line in lines if "stoker:" not in line] == ["other", "openlast"]
    assert "stoker: job completed" in lines[-1] and lines[-1].startswith("stoker:")


def test_queue_says_why_and_where(cluster):
    big = {"cpu_count": 4, "memory": "1Gi"}
    first = cluster.push(["sleep 600"], compute=big)
    cluster.wait(first, "TRAINING_JOB_RUNNING")
    second = cluster.push(["true"], compute=big)
    third = cluster.push(["true"], "--priority", "5", compute=big)
    assert second["current_status"] == "TRAINING_JOB_PENDING"
    until(lambda: "1st" in (cluster.job(third)["reason"] or ""))
    until(lambda: "2nd" in (cluster.job(second)["reason"] or ""))
    cluster.cli("update", second["id"], "--priority", "9")
    until(lambda: "1st" in (cluster.job(second)["reason"] or ""))
    cluster.cli("stop", second["id"])
    cluster.wait(second, "TRAINING_JOB_STOPPED")
    cluster.cli("stop", first["id"], "--now")
    cluster.wait(third, "TRAINING_JOB_COMPLETED")


def test_a_gang_on_one_machine(cluster):
    job = cluster.push(["echo rank $BT_NODE_RANK of $BT_GROUP_SIZE leader $BT_LEADER_ADDR"],
                       compute={"cpu_count": 1, "memory": "256Mi", "node_count": 2})
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    lines = cluster.logs(job)
    assert "[0] rank 0 of 2" in lines and "[1] rank 1 of 2" in lines


def test_gpus_of_two_types(empty_cluster):
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--gpus", "H100:1,L4:2")
    job = c.push(["echo gpu=$CUDA_VISIBLE_DEVICES"], compute={"cpu_count": 1, "memory": "256Mi", "accelerator": "L4:2"})
    c.wait(job, "TRAINING_JOB_COMPLETED")
    assert c.user_lines(job) == ["gpu=1,2"]
    folder = c.job_folder(["true"], compute={"cpu_count": 1, "memory": "256Mi", "accelerator": "H100:2"})
    assert c.error("push", folder / "train.yaml", code=5) == "job_never_fits"
    rows = c.api("GET", "/v1/training/capacity")[1]["gpu_capacities"]
    assert {r["gpu_type"]: r["baseline"] for r in rows} == {"H100": 1, "L4": 2}, rows


def documented():
    """{variable: (when it is set, its example)}, as docs/environment.md says."""
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| .* \| `(.*)` \|$", (ROOT / "docs/environment.md").read_text(), re.M)
    assert len(rows) > 30 and len({name for name, *_ in rows}) == len(rows)
    return {name: (when, example) for name, when, example in rows}


def environment(cluster, job):
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    lines = cluster.user_lines(job)
    return dict(line.split("=", 1) for line in lines)


SHELL = {"PWD", "OLDPWD", "SHLVL", "_"}
FOLDERS = {"BT_WORKING_DIR", "BT_SCRATCH_DIR", "BT_CHECKPOINT_DIR", "BT_LOAD_CHECKPOINT_DIR", "BT_PROJECT_CACHE_DIR", "BT_TEAM_CACHE_DIR",
           "BT_RW_CACHE_DIR", "HOME", "PWD", "STOKER_RESUME_FROM"}


def test_every_variable(cluster):
    """A job's environment holds what the table says: no variable less, none more, and folders are where the examples have them."""
    table = documented()

    def named(*when):
        return {name for name, (w, _) in table.items() if w in when}
    plain = ["always", "no `image`", "`enable_baseten_workdir`", "set by the shell", "the job sets none of HF_ENDPOINT, HF_TOKEN, HUGGING_FACE_HUB_TOKEN"]
    inherited = named("no `image`, and set for the server")
    got = environment(cluster, cluster.push(["env"]))
    assert set(got) - inherited == named(*plain)
    load = {"enabled": True, "download_folder": table["BT_LOAD_CHECKPOINT_DIR"][1]}
    runtime = {"cache_config": {"enabled": True}, "checkpointing_config": {"enabled": True}, "load_checkpoint_config": load}
    save = "mkdir $BT_CHECKPOINT_DIR/checkpoint-500; echo 1 > $BT_CHECKPOINT_DIR/checkpoint-500/f"
    more = [*plain, "`checkpointing_config.enabled`", "`load_checkpoint_config.enabled`", "`cache_config.enabled`", "`cache_config.enabled`, no `image`"]
    first = environment(cluster, cluster.push(["env", save], "--name", "vars", runtime=runtime))
    assert set(first) - inherited == named(*more)
    job = cluster.push(["env"], "--name", "vars", runtime=runtime)
    got = environment(cluster, job)
    assert set(got) - inherited == named(*more, "a checkpoint to resume from")
    assert {n: got[n] for n in FOLDERS} == {n: table[n][1] for n in FOLDERS}
    want = {"BT_TRAINING_JOB_ID": job["id"], "BT_TRAINING_JOB_NAME": "vars", "BT_TRAINING_PROJECT_NAME": "p",
            "BT_TRAINING_PROJECT_ID": job["training_project"]["id"], "BT_NUM_GPUS": "0", "BT_RETRY_COUNT": "0",
            "BT_GROUP_SIZE": "1", "BT_NODE_RANK": "0", "CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
    assert {k: got.get(k) for k in want} == want


def test_variables_that_the_server_hands_on(empty_cluster):
    """All that the table names, and nothing else of its environment."""
    names = {name for name, (when, _) in documented().items() if when == "no `image`, and set for the server"}
    values = {n: "UTC" if n == "TZ" else f"http://{n}.example" for n in names} | {"SOMETHING_ELSE": "x", "LC_TIME": "C"}
    values |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    empty_cluster.start(env=values)
    got = environment(empty_cluster, empty_cluster.push(["env"]))
    assert {n: got.get(n) for n in names} == {n: values[n] for n in names} and not {"SOMETHING_ELSE", "LC_TIME"} & set(got)


def test_the_servers_own_variables_stay_with_it(empty_cluster):
    """A job on the machine's root sees the platform's variables, its own, and the proxies it cannot do without."""
    own = {"LD_LIBRARY_PATH": "/nowhere", "TMPDIR": "/tmp", "XDG_DATA_HOME": "/tmp/x", "CONTAINERS_CONF": "/nowhere",
           "SERVERS_OWN": "1"}
    c = empty_cluster.start(env={**own, "no_proxy": "127.0.0.1,a.example", "HTTP_PROXY": "http://ann:pass/w@rd@127.0.0.1:9"})
    job = c.push(["env -0 | tr '\\0' '\\n'; cat /proc/[0-9]*/environ | grep -qa rd@ && echo LEAK=1; " + c.hold()], runtime={"environment_variables": {"MINE": "yes"}})
    until(lambda: "MINE" in c.logs(job))
    inside = c.cli("exec", job["id"], "--", "env").out.splitlines()
    c.release(job)
    c.wait(job, "TRAINING_JOB_COMPLETED")
    for lines in (c.user_lines(job), inside):
        got = dict(line.split("=", 1) for line in lines)
        assert got["MINE"] == "yes" and got["no_proxy"] == "127.0.0.1,a.example" and got["HTTP_PROXY"] == "http://127.0.0.1:9"
        assert "LEAK" not in got
        assert not set(own) & set(got) and not [k for k in got if k.endswith("SAN_OPTIONS")], got


def test_metrics_are_sampled_and_kept(cluster):
    job = cluster.push(["python3 -c 'import time; x = bytearray(64 << 20); time.sleep(6)'"])
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    path = f"/v1/training_projects/{job['training_project']['id']}/jobs/{job['id']}/metrics"
    status, reply = cluster.api("POST", path, {})
    assert status == 200
    node = reply["per_node_metrics"][0]["metrics"]
    assert max(p["value"] for p in node["cpu_memory_usage_bytes"]) > 0


def test_homes_behind_links_are_hidden(empty_cluster):
    """/home/ann may be a link to where there is room: a job sees neither."""
    c = empty_cluster
    passwd = c.folder / "passwd"
    passwd.write_text(pathlib.Path("/etc/passwd").read_text() + "ann:x:1234:1234::/home/ann:/bin/sh\n")
    script = f"""set -e
        mount -t tmpfs none /home; mount -t tmpfs none /media; mount --bind {passwd} /etc/passwd
        mkdir /media/ann /media/all; echo private > /media/ann/file; ln -s /media/ann /home/ann
        exec {STOKER} server --data {c.data} --listen 127.0.0.1:0 --cpus 2 --memory 1Gi"""
    space = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    c.launch([*space, "sh", "-c", script])
    job = c.push(["find /media /home; cat /media/ann/file /home/ann/file || true"])
    c.wait(job, "TRAINING_JOB_COMPLETED")
    shown = c.logs(job)
    if "sandbox: bwrap" not in shown:
        pytest.skip("no sandbox here that hides")
    assert "/media/all\n" in shown and "private\n" not in shown and "/media/ann/file\n" not in shown, shown
