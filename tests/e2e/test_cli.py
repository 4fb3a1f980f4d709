"""The command line: help, completion, man page, output forms, exit codes."""
import contextlib
import csv
import io
import json
import os
import pty
import select
import shlex
import signal
import sqlite3
import subprocess
import threading
import time
import unicodedata

import pytest
from conftest import CALL_S, DEADLINE_S, FINAL, ROOT, STOKER, Lines, proof
from web import Handler, serving

COMMANDS = ["init", "push", "ps", "view", "logs", "stop", "recreate", "update", "events", "exec", "metrics", "checkpoints ls",
            "checkpoints show", "checkpoints pull", "checkpoints complete", "cache summarize", "cache du", "cache rm", "weights ls", "secrets set",
            "secrets ls", "secrets rm", "projects ls", "projects rm", "teams ls", "teams create", "tokens ls", "tokens create",
            "tokens rm", "login", "doctor", "version"]


def run(*args, **kw):
    return subprocess.run([STOKER, *args], capture_output=True, text=True, timeout=CALL_S, **kw)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command):
    done = run(*command.split(), "--help")
    assert done.returncode == 0 and done.stdout.startswith(f"usage: stoker {command}")


def test_version():
    for spelled in "--version", "-V", "-v":
        assert run(spelled).stdout == run("version").stdout != ""


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_new_terminal(command):
    text, _, _ = run(*command.split(), "--help").stdout.partition("\nexamples:\n")
    assert all(len(line) <= 80 for line in text.splitlines()[1:]), text


def test_two_dashes_end_the_options(cluster):
    """What stands behind them is an argument: `stop -- NAME` without its NAME would be the newest job, or none."""
    odd = cluster.push([cluster.hold()], "--name=-x")
    newest = cluster.push([cluster.hold()])
    assert json.loads(cluster.cli("view", "-o", "json", "--", "-x").out)["id"] == odd["id"]
    assert cluster.error("view", "--", "--", code=3) == "job_not_found"
    cluster.cli("stop", "--now", "--", "-x")
    cluster.wait(odd, "TRAINING_JOB_STOPPED")
    assert cluster.job(newest)["current_status"] not in FINAL
    assert cluster.error("-o", "json", "ps", code=2) == "usage"


@pytest.mark.parametrize("group", ["cache", "checkpoints", "weights", "secrets", "projects", "teams", "tokens"])
def test_groups_have_help_too(group):
    done = run(group, "--help")
    assert done.returncode == 0 and done.stdout.startswith(f"usage: stoker {group} COMMAND")
    assert run("help", group).stdout == run(group, "-h").stdout == done.stdout
    assert all(c in done.stdout for c in COMMANDS if c.startswith(group + " ")) and "push" not in done.stdout
    assert run(group, "nonsense", "--help").returncode == run(group).returncode == 2


def test_help_completion_and_man_come_from_one_table():
    everything = run("--help").stdout
    completion, man = run("completion", "bash").stdout, run("man").stdout
    for command in COMMANDS:
        assert command in everything
        assert command in completion
        assert command.replace("-", "\\-") in man
    assert subprocess.run(["bash", "-n"], input=completion, text=True).returncode == 0
    for words, wanted in (["ca"], "cache"), (["cache", "s"], "summarize"), (["push", "--fo"], "--follow"), (["help", "pu"], "push"), \
            (["ps", "-o", "json"], "jsonl"), (["ps", "--output", ""], "csv"), (["server", "--allow-file"], "--allow-file-root"):
        script = f'{completion}\nCOMP_WORDS=({STOKER} {" ".join(words)}); COMP_CWORD={len(words)}; _stoker; echo "${{COMPREPLY[@]}}"'
        offered = subprocess.run(["bash"], input=script, text=True, capture_output=True).stdout.split()
        assert wanted in offered, (words, offered)


def test_docs_are_what_the_tables_print(tmp_path):
    """The checked-in reference is a print of the tables."""
    for page in ("settings", "api", "cli", "errors", "locks", "job-file", "environment"):
        printed = run(f"print-{page}").stdout
        assert printed == (ROOT / "docs" / f"{page}.md").read_text(), f"docs/{page}.md is stale: make docs"


@pytest.mark.parametrize("args, error", [
    (["pus"], "command_unknown"), (["push", "--folow"], "usage"), (["push", "-z"], "usage"), (["view", "-o", "csv"], "usage"),
    (["checkpoints", "ls", "@", "-p", "p"], "usage"), (["cache"], "usage"), (["ps", "-o", "xml"], "usage"), (["view", "a", "b"], "usage"),
    (["recreate"], "usage"), (["logs", "-n", "few"], "usage"),
])
def test_wrong_usage(standing, args, error):
    assert standing.error(*args, code=2) == error


@pytest.mark.parametrize("args, meant", [(["pus"], "push"), (["push", "--folow"], "--follow"), (["cache"], "summarize")])
def test_a_slip_is_answered_with_the_word_meant(args, meant):
    assert meant in run(*args).stderr


@pytest.mark.parametrize("columns", [50, 80, 120])
def test_why_it_failed_is_whole_on_a_narrow_terminal(cluster, columns):
    """A reason takes several lines rather than losing its end; and nothing of a job commands the reader's terminal."""
    script = "printf '%s' some words that are long enough to need more than one line;\n\x1b[31m: \x1b]0;title\x07\x9b2J\nexit 3\n"
    job = cluster.push([script], "--name", "talks")
    cluster.wait(job, "TRAINING_JOB_FAILED")
    why = "some words that are long enough to need more than one line; [31m: ]0;title"
    for words in ["ps", "-a"], ["events", job["id"]], ["view", job["id"]]:
        shown = cluster.cli(*words, env={"COLUMNS": str(columns)}).out
        assert why in " ".join(shown.split()), shown
        assert not set("\x1b\x07\x9b") & set(shown)
        assert words[0] == "view" or all(len(line) <= columns for line in shown.splitlines()), shown
    followed = cluster.cli("recreate", job["id"], "-f", code=10)
    assert why in " ".join(followed.err.split()) and not set("\x1b\x07\x9b") & set(followed.out + followed.err)


@pytest.mark.parametrize("what, error", [("secrets", "secret_not_found"), ("tokens", "token_not_found"), ("weights", "weights_not_found")])
def test_what_is_not_there_is_named(standing, what, error):
    refused = standing.refusal(what, "rm", "nosuch", "-y", code=3)["error"]
    assert refused["id"] == error and "nosuch" in refused["message"]
    assert standing.error(what, "rm", "nosuch", stdin="", code=2) == "confirmation_required"


def test_an_empty_value_says_how_to_give_it(standing):
    assert "stoker secrets set s < FILE" in standing.cli("secrets", "set", "s", stdin="", code=2).err
    assert "stoker login --url URL < FILE" in standing.cli("login", "--url", standing.url, stdin="", code=2).err


@pytest.mark.parametrize("text", ["2024", "null", "@x", "*a", "it's: {", "\"and\" \\"])
def test_flags_take_text_as_it_is(cluster, text):
    """A name of digits is a name, and a variable keeps its lines."""
    job = cluster.push(["true"], "--name", text, "-e", f"X={text}\n\tmore")
    assert job["name"] == text
    assert cluster.job(job)["spec"]["runtime"]["environment_variables"]["X"] == text + "\n\tmore"


def test_output_forms(cluster):
    job = cluster.push(["true"], "--name", "a,b")
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert [j["id"] for j in cluster.json("ps", "-a")] == [job["id"]]
    lines = cluster.cli("ps", "-a", "-o", "jsonl").out.splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["a,b"]
    rows = list(csv.DictReader(io.StringIO(cluster.cli("ps", "-a", "-o", "csv").out)))
    assert rows[0]["NAME"] == "a,b"
    table = cluster.cli("ps", "-a").out
    assert table.split()[:3] == ["JOB", "NAME", "PROJECT"] and "\033" not in table
    wide = cluster.cli("ps", "-a", env={"COLUMNS": "60"}).out
    assert all(len(line) <= 60 for line in wide.splitlines())


def test_wide_characters_take_two_columns(cluster):
    """Of a name in an East Asian script a terminal needs twice the columns that it has letters."""
    def columns(text):
        return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)

    name = "日本語の名前はとても長いです。本当に"
    job = cluster.push(["true"], "--name", name, project="wide")
    for env in {}, {"COLUMNS": "60"}:
        lines = cluster.cli("ps", "-a", "-p", "wide", env=env).out.splitlines()
        row = next(line for line in lines if line.startswith(job["id"]))
        assert columns(row[:row.index("admin")]) == lines[0].index("USER"), lines
        assert not env or all(columns(line) <= 60 for line in lines), lines
        assert (name in row) == (not env) and ("…" in row) == bool(env), lines


def test_no_server(empty_cluster):
    env = empty_cluster.environment(STOKER_URL="http://127.0.0.1:1", STOKER_TOKEN="x")
    done = run("ps", env=env)
    assert done.returncode == 1 and "stoker server" in done.stderr
    done = run("ps", "-o", "json", env=empty_cluster.environment())
    assert done.returncode == 4 and json.loads(done.stderr)["error"]["id"] == "not_logged_in"


def test_next_steps_go_to_stderr(cluster):
    folder = cluster.job_folder(["true"])
    result = cluster.cli("push", folder / "train.yaml")
    assert "stoker logs" in result.err and len(result.out.split()) == 1
    assert cluster.cli("push", folder / "train.yaml", "-q").err == ""


def test_events_tell_the_story(cluster):
    job = cluster.push(["true"])
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    kinds = [(e["kind"], e["to"]) for e in cluster.json("events", job["id"])]
    reached = [to for kind, to in kinds if kind == "state"]
    assert reached[-1] and [s for s in reached if s]
    assert any("COMPLETED" in (to or "").upper() for _, to in kinds)


def test_sizes_and_times_for_programs(cluster):
    job = cluster.push(["head -c 1234567 /dev/zero > $BT_PROJECT_CACHE_DIR/f; mkdir $BT_CHECKPOINT_DIR/checkpoint-1",
                        "echo 12 > $BT_CHECKPOINT_DIR/checkpoint-1/a"], project="numbers",
                       runtime={"cache_config": {"enabled": True}, "checkpointing_config": {"enabled": True, "settle": "1s"}})
    cluster.wait(job, "TRAINING_JOB_COMPLETED")

    def rows(*args):
        return list(csv.DictReader(io.StringIO(cluster.cli(*args, "-o", "csv").out)))
    (file,) = [r for r in rows("cache", "ls", "numbers") if r["PATH"] == "f"]
    assert (file["SIZE"], file["SIZE_BYTES"]) == ("1.23 MB", "1234567")
    (row,) = rows("checkpoints", "ls", "-p", "numbers")
    assert (row["CHECKPOINT"], row["JOB"], row["SIZE_BYTES"]) == ("checkpoint-1", job["id"], "3")
    assert row["AGE"] == cluster.json("checkpoints", "ls", job["id"])[0]["created_at"]
    (line,) = cluster.cli("checkpoints", "show", job["id"] + "/latest", "-o", "jsonl").out.splitlines()
    (file,) = json.loads(line)["checkpoint_files"]
    assert (file["relative_file_name"], file["size_bytes"]) == ("checkpoint-1/a", 3)
    assert "1 CPU, 256Mi" in cluster.cli("view", job["id"]).out
    assert "mem=256Mi" in cluster.logs(job) or "memory" in cluster.logs(job).split("not enforced:")[1]


def test_a_job_too_short_for_a_sample_has_its_last_one(cluster):
    job = cluster.push(["python3 -c 'a = bytearray(60 << 20); sum(range(3000000))'"])
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    (node,) = cluster.json("metrics", job["id"])["per_node_metrics"]
    cpu, memory = ([p["value"] for p in node["metrics"][name]] for name in ("cpu_usage", "cpu_memory_usage_bytes"))
    assert max(cpu) > 0, node
    # where starting python takes a second there is one before it, and the last one is no peak
    assert max(memory) > (10 << 20 if len(memory) == 1 else 0), node


def test_watching_ends_with_an_interrupt(cluster):
    cluster.wait(cluster.push(["true"]), "TRAINING_JOB_COMPLETED")
    for command in (["ps", "-a", "-w"], ["metrics", "-w"]):
        process = subprocess.Popen([STOKER, *command], stdout=subprocess.PIPE, env=cluster.cli_environment())
        try:
            lines = Lines(process)
            lines.until(lambda line: line.strip() and line in lines.seen[:-1])  # something is printed again
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()
            process.communicate()


def first_lines(cluster, *command):
    """`stoker COMMAND | head -1`: what it ends with."""
    process = subprocess.Popen([STOKER, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cluster.cli_environment())
    try:
        assert Lines(process).next()
        process.stdout.close()
        return process.wait(DEADLINE_S), process.stderr.read().decode()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_nobody_reads_on(cluster):
    """Who follows a job into `head` gets the prompt back, while the job prints and while it is silent."""
    loud = cluster.push(["while sleep 0.2; do echo tick; done"])
    cluster.wait(loud, "TRAINING_JOB_RUNNING")
    assert first_lines(cluster, "logs", "-f", loud["id"]) == (0, "")
    silent = cluster.push([cluster.hold()])
    cluster.wait(silent, "TRAINING_JOB_RUNNING")
    assert first_lines(cluster, "logs", "-f", silent["id"]) == (0, "")
    assert first_lines(cluster, "ps", "-w")[0] == 0
    folder = cluster.job_folder(["while sleep 0.2; do echo tick; done"])
    code, said = first_lines(cluster, "push", "-f", folder)
    pushed = cluster.json("view", "@")
    assert code == 130 and f"stoker stop {pushed['id']}" in said
    code, said = first_lines(cluster, "recreate", "-f", loud["id"])
    assert code == 130 and f"stoker stop {cluster.json('view', '@')['id']}" in said
    assert cluster.job(pushed)["current_status"] not in FINAL


def test_a_full_disk_ends_a_follower(cluster):
    job = cluster.push([cluster.hold()])
    with open("/dev/full", "w") as full:
        done = subprocess.run([STOKER, "logs", "-f", job["id"]], stdout=full, stderr=subprocess.PIPE, timeout=CALL_S,
                              env=cluster.cli_environment(STOKER_ERRORS="json"))
    assert done.returncode != 0 and json.loads(done.stderr)["error"]["id"] == "no_space"


def test_log_of_one_attempt(cluster):
    job = cluster.push(["echo attempt number $BT_RETRY_COUNT; exit 75"], "-y", retry={"on": ["exit:75"], "max_attempts": 2})
    cluster.wait(job, "TRAINING_JOB_FAILED")
    for number in (0, 1):
        log = cluster.logs(job, "--attempt", number)
        assert f"attempt number {number}" in log and f"attempt number {1 - number}" not in log
    assert cluster.error("logs", job["id"], "--attempt", 2, code=3) == "not_found"


def test_a_token_tells_its_team(cluster):
    cluster.cli("teams", "create", "optics")
    cluster.cli("tokens", "create", "of-optics", "--team", "optics")
    assert any("of-optics" in line and " optics " in line for line in cluster.cli("tokens", "ls").out.splitlines())


@contextlib.contextmanager
def answering(reply, gate=None):
    """A server that answers everything with `reply`, once the gate is open."""
    class Answers(Handler):
        def do_GET(self):
            body = self.body()
            if self.path == "/v1/proof":
                return self.answer(200, proof(json.loads(body), "x", self.server.server_port))
            assert gate is None or gate.wait(CALL_S)
            return self.answer(200, reply)

        do_POST = do_GET

    with serving(Answers) as port:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            if gate:
                gate.set()


def test_a_slow_answer_is_waited_for_visibly(empty_cluster):
    gate = threading.Event()
    ours, theirs = pty.openpty()
    with answering({"teams": []}, gate) as url:
        cli = subprocess.Popen([STOKER, "teams", "ls", "-o", "json"], stdout=subprocess.PIPE, stderr=theirs, text=True,
                               env=empty_cluster.environment(STOKER_URL=url, STOKER_TOKEN="x"))
        shown, end = b"", time.monotonic() + DEADLINE_S
        while b"waiting for the server, " not in shown and time.monotonic() < end:
            if select.select([ours], [], [], 1)[0]:
                shown += os.read(ours, 4096)
        gate.set()
        out, _ = cli.communicate(timeout=CALL_S)
    os.close(ours)
    os.close(theirs)
    assert b"waiting for the server, " in shown and cli.returncode == 0 and json.loads(out) == []


@pytest.mark.parametrize("words", [["cache", "ls"], ["cache", "du"]])
def test_a_part_of_a_cache_does_not_pass_for_the_whole(empty_cluster, words):
    entry = {"path": "d/f", "size_bytes": 5, "modified": "2026-01-01T00:00:00.000Z", "file_type": "file", "permissions": "-rw-r--r--"}
    reply = {"training_projects": [{"id": "abc", "name": "p"}], "timestamp": "2026-01-01T00:00:00.000Z", "file_summaries": [entry],
             "truncated": True, "total_files": 300000, "total_size_bytes": 7000}
    with answering(reply) as url:
        done = run(*words, "-p", "p", env=empty_cluster.environment(STOKER_URL=url, STOKER_TOKEN="x"))
    assert done.returncode == 0 and all(w in done.stderr for w in ("300000 files", "7.00 kB", "warning"))


def test_errors_have_ids(cluster):
    """By -o json, by STOKER_ERRORS, over HTTP and of a job: the same short word, and nobody has to match sentences."""
    shown = cluster.cli("view", "nothere", "-o", "json", code=3)
    error = json.loads(shown.err)["error"]
    assert error["id"] == "job_not_found" and "nothere" in error["message"] and shown.out == ""
    assert cluster.error("stop", "nothere", code=3) == "job_not_found"
    assert cluster.error("ps", "--frob", code=2) == cluster.error("update", code=2) == "usage"
    assert cluster.error("ps", token="wrong", code=4) == "token_invalid"
    assert cluster.cli("ps", token="wrong", code=4).err.count("`stoker login") == 1  # what to do is said once
    for words, named in (("ps -n -5", "-5"), ("ps --bogus", "--bogus"), ("cache du -d x --bogus", "--depth")):
        error = json.loads(cluster.cli(*words.split(), "-o", "json", code=2).err)["error"]  # -o after the mistake; the first is told
        assert error["id"] == "usage" and named in error["message"]
    # a command that does not know -o, or is none
    for words, error_id in (("frob -o json", "command_unknown"), ("frob --output=jsonl", "command_unknown"), ("cache frob -ojson", "usage"),
                            ("-o json ps", "usage"), ("help frob -o json", "command_unknown"), ("stop x -o json", "usage"),
                            ("login --output json --frob", "usage"), ("server --frob -o json", "invalid")):
        said = cluster.cli(*words.split(), code=2)
        assert json.loads(said.err)["error"]["id"] == error_id and said.out == "", words
    for words in "frob -o table", "stop --frob -- -o json", "frob json":
        assert cluster.cli(*words.split(), code=2).err.startswith("stoker: "), words
    status, reply = cluster.api("GET", "/v1/training_projects/none/jobs/none")
    assert status == 404 and reply["error"] == {"id": "job_not_found", "message": reply["message"]}
    status, reply = cluster.api("POST", "/v1/training_projects", {"training_project": {"name": ""}})
    assert status == 400 and reply["error"]["message"] == reply["message"]
    folder = cluster.job_folder(["true"], compute={"cpu_count": 4000})
    assert cluster.error("push", folder / "train.yaml", code=5) == "job_never_fits"
    (folder / "train.yaml").write_text("project: p\njob: {runtime: {start_commands: 7}}\n")
    assert cluster.error("push", folder / "train.yaml", code=2) == "spec_invalid"
    job = cluster.push(["echo no"], weights=[{"source": "https://localhost:1/x", "mount_location": "/w"}])
    failed = cluster.wait(job, "TRAINING_JOB_DEPLOY_FAILED")
    assert failed["error_id"] == "address_denied" and failed["error_message"]


@pytest.mark.parametrize("word, instead", [
    ("top", "metrics"), ("list", "ps"), ("run", "push"), ("status", "view"), ("cancel", "stop"), ("kill", "stop"), ("attach", "logs"),
    ("ssh", "exec"), ("whoami", "doctor"), ("scp", "checkpoints pull"), ("nodes", "doctor"), ("job", "ps"), ("ckpt", "checkpoints ls"),
    ("token", "tokens ls"), ("frobnicate", "--help")])
def test_words_of_other_tools(word, instead):
    done = run(word, env={**os.environ, "STOKER_ERRORS": "json"})
    error = json.loads(done.stderr)["error"]
    assert done.returncode == 2 and error["id"] == "command_unknown" and f"stoker {instead}" in error["message"]


@pytest.mark.parametrize("args, stdin, error", [
    (["logs", "-n", "-1"], None, "usage"), (["ps", "--limit", "-5"], None, "usage"), (["tokens", "create", "x", "--expires-days", "0"], None, "usage"), (["logs", "--node", "-1"], None, "usage"),
    (["secrets", "set", "bad name"], "x", "secret_name_invalid"), (["secrets", "set", ""], "x", "secret_name_invalid"),
    (["login", "--url", "127.0.0.1:8461"], None, "url_invalid"), (["login", "--url", "http://"], None, "url_invalid"),
    (["weights", "prefetch", "s3://me/tiny@main"], None, "source_invalid")])
def test_values_that_mean_something_else(standing, args, stdin, error):
    assert standing.error(*args, stdin=stdin, code=2) == error


def test_a_secret_on_the_command_line_is_not_repeated(cluster):
    done = cluster.cli("secrets", "set", "WANDB=abc123", stdin="", code=2)
    assert "abc123" not in done.err and cluster.json("secrets", "ls") == []
    assert cluster.error("secrets", "set", "WANDB=abc123", stdin="") == "secret_name_invalid"


def test_a_folder_stands_for_its_job_file(cluster):
    folder = cluster.job_folder(["true"])
    for words in ["push", "."], ["push", f"{folder}/"], ["push", folder]:
        cluster.cli(*words, "--dry-run", cwd=folder)
    (folder / "train.yaml").unlink()
    cluster.error("push", ".", cwd=folder, code=3)


def test_init_says_where_it_wrote(cluster, tmp_path):
    shown = cluster.cli("init", "first", cwd=tmp_path).err
    (line,) = [w for w in shown.splitlines() if w.strip().startswith("stoker push")]
    cluster.cli(*line.split("#")[0].split()[1:], cwd=tmp_path)


def test_an_empty_job_file_is_answered_with_one_that_works(cluster, tmp_path):
    (tmp_path / "train.yaml").write_text("")
    (tmp_path / "train.py").write_text("print('trained')")
    assert cluster.error("push", cwd=tmp_path, code=2) == "job_file_empty"
    shown = cluster.cli("push", cwd=tmp_path, code=2).err
    (tmp_path / "train.yaml").write_text("\n".join(line for line in shown.splitlines() if line.startswith("    ")))
    assert "trained" in cluster.cli("push", "-f", cwd=tmp_path).out


@pytest.mark.parametrize("flags", [["-s", "job.foo=1"], ["-s", "compute.cpu_count=2"], ["-s", "job.compute.memory=lots"], ["-n", " x "]])
def test_a_flag_is_blamed_for_its_value(standing, flags):
    done = standing.cli("push", standing.job_folder(["true"]) / "train.yaml", *flags, code=2)
    assert "train.yaml" not in done.err and "--" in done.err


@pytest.mark.parametrize("size", ["512", '"4"'])
def test_a_size_wants_its_unit(standing, size):
    folder = standing.job_folder(["true"])
    (folder / "train.yaml").write_text("project: p\njob: {compute: {memory: %s}, runtime: {start_commands: [x]}}\n" % size)
    assert standing.error("push", folder / "train.yaml", code=2) == "unit_missing"
    done = run("server", "--memory", size.strip('"'), "--data", str(folder / "data"))
    assert done.returncode == 2 and not (folder / "data").exists()


def test_tokens_expire_and_say_so(cluster):
    done = cluster.cli("tokens", "create", "ann", "--expires-days", "3")
    assert f"stoker login --url {cluster.url}" in done.err
    head, *rows = [line.split() for line in cluster.cli("tokens", "ls").out.splitlines()]
    assert head[-1] == "EXPIRES" and {row[1]: row[-1] for row in rows} == {"admin": "never", "ann": "2d"}


def test_a_project_is_shown_with_its_team(cluster):
    """Two teams, one name: what ps shows is what -p takes."""
    cluster.cli("teams", "create", "vision")
    folder = cluster.job_folder(["true"], project="hello")
    jobs = [cluster.json("push", folder / "train.yaml")]
    doc = json.loads((folder / "train.yaml").read_text())
    (folder / "train.yaml").write_text(json.dumps({"team": "vision", **doc}))
    jobs.append(cluster.json("push", folder / "train.yaml"))
    assert cluster.error("ps", "-a", "-p", "hello", code=5) == "name_ambiguous"
    rows = [line.split() for line in cluster.cli("ps", "-a").out.splitlines()[1:]]
    assert len({row[2] for row in rows}) == 2
    for row in rows:
        assert [j["id"] for j in cluster.json("ps", "-a", "-p", row[2])] == [row[0]]


def test_a_missing_python_is_explained(cluster):
    job = cluster.push(["mkdir empty; PATH=$PWD/empty; python train.py"])
    assert "python3" in cluster.wait(job, "TRAINING_JOB_FAILED")["error_message"]
    other = cluster.push(["no-such-program"])
    assert "python3" not in cluster.wait(other, "TRAINING_JOB_FAILED")["error_message"]


EVERY_DAY = ["init", "push", "ps", "view", "logs", "stop", "recreate", "exec", "checkpoints ls", "checkpoints pull", "checkpoints show",
             "cache summarize", "cache ls", "cache du", "cache quota", "cache rm", "cache gc", "cache verify", "secrets ls", "secrets set",
             "secrets rm", "login", "doctor", "metrics", "events", "tokens create", "weights prefetch"]


@pytest.mark.parametrize("command", EVERY_DAY)
def test_two_examples_that_parse(command):
    """Each names its command, takes only options that exist, and is in --help, the man page and the reference alike."""
    page, man, reference = run(*command.split(), "--help").stdout, run("man").stdout, run("print-cli").stdout
    examples = [line.strip() for line in page.split("\nexamples:\n")[1].splitlines()]
    assert len(examples) >= 2
    for line in examples:
        words = shlex.split(line.split(" < ")[0], comments=True)
        assert words[:1 + len(command.split())] == ["stoker", *command.split()], line
        # without a server and with --help in front of "--": options and their values are read, nothing is done
        at = words.index("--") if "--" in words else len(words)
        assert run(*words[1:at], "--help", *words[at:]).stdout == page, line
        assert line in reference and line.replace("-", "\\-") in man, line


def rows_of_checkpoints(cluster, job, names):
    """Checkpoints as rows like the job's own: what a job cannot be made to name is in old databases."""
    cluster.stop()
    db = sqlite3.connect(cluster.data / "stoker.db")
    columns = [row[1] for row in db.execute("PRAGMA table_info(checkpoints)")]
    for i, name in enumerate(names):
        values = {**{c: c for c in columns}, "name": "?", "created_ms": f"created_ms + {i + 1}"}
        db.execute(f"INSERT INTO checkpoints ({', '.join(columns)}) SELECT {', '.join(values[c] for c in columns)} FROM checkpoints "
                   "WHERE job_id = ? AND name = 'checkpoint-1'", (name, job["id"]))
    db.commit()
    db.close()
    cluster.restart()


def test_view_is_one_page(cluster):
    cluster.cli("secrets", "set", "hf", stdin="hf_s3cret")
    job = cluster.push(["mkdir $BT_CHECKPOINT_DIR/checkpoint-1; echo 1 > $BT_CHECKPOINT_DIR/checkpoint-1/a", "echo second"], "--name", "page",
                       runtime={"checkpointing_config": {"enabled": True, "settle": "1s"},
                                "environment_variables": {"LR": "2e-5", "HF_TOKEN": {"secret": "hf"}, "LONG": "x" * 5000}})
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    rows_of_checkpoints(cluster, job, [f"checkpoint-{i}" for i in range(2, 151)])
    page = cluster.cli("view", job["id"]).out
    assert len(page.splitlines()) < 50 and all(len(line) < 300 for line in page.splitlines())
    assert [f"checkpoint-{i} " in page for i in (145, 146, 150)] == [False, True, True] and "150" in page
    assert f"stoker checkpoints ls {job['id']}" in page and f"stoker events {job['id']}" in page
    for fact in "echo second", "LR=2e-5", "HF_TOKEN", "hf", "admin", "Default/p":
        assert fact in page, fact
    assert "s3cret" not in page
    assert len(cluster.json("checkpoints", "ls", job["id"])) == 150


def test_names_do_not_command_the_terminal(cluster):
    job = cluster.push(["mkdir $BT_CHECKPOINT_DIR/checkpoint-1; echo 1 > $BT_CHECKPOINT_DIR/checkpoint-1/a"],
                       runtime={"checkpointing_config": {"enabled": True, "settle": "1s"}})
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    evil = "ck\x1b[31m\x07\x9b2J\x02" + "1"
    rows_of_checkpoints(cluster, job, [evil])
    for words in ["view", job["id"]], ["checkpoints", "ls", job["id"], "--all"], ["checkpoints", "show", f"{job['id']}/{evil}"]:
        done = cluster.cli(*words, code=None)
        assert "ck" in done.out and not set("\x1b\x07\x9b\x02") & set(done.out + done.err), words
    for words in ["view", evil], ["checkpoints", "rm", f"{job['id']}/nosuch{evil}", "-y"], ["secrets", "rm", evil, "-y"], [evil], ["ps", f"--{evil}"]:
        done = cluster.cli(*words, code=None)
        assert done.code != 0 and not set("\x1b\x07\x9b\x02") & set(done.out + done.err), words
