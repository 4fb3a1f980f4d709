"""Names that a job chose, as people see them: nothing in them commands the terminal, turns the text around or hides."""
import json
import shlex
import unicodedata

from conftest import until
from test_terminal import Terminal

RUNTIME = {"cache_config": {"enabled": True}, "checkpointing_config": {"enabled": True, "settle": "1s"}}
HIDDEN = {"bidi": "\u202e", "isolate": "\u2066", "mark": "\u200f", "arabic": "\u061c", "line": "\u2028", "paragraph": "\u2029",
          "joiner": "\u200d", "space": "\u200b", "bom": "\ufeff"}
CONTROLS = {"csi": "\u009b", "escape": "\033", "newline": "\n", "delete": "\177"}
CHECKPOINT = "checkpoint-1" + "".join(HIDDEN.values())
FILE = "a" + "".join(HIDDEN.values()) + "z.bin"
CACHED = "c" + "".join([*HIDDEN.values(), *CONTROLS.values()]) + "[31mz"


def escaped(name):
    """As the command line shows it."""
    return "".join(c if c.isprintable() else {"\n": "\\n"}.get(c, f"\\u{ord(c):04x}") for c in name)


def assert_seen(text, *but):
    hidden = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c != "\n" and c not in but}
    assert not hidden, (hidden, text)


def test_names_are_escaped_for_people_and_exact_for_programs(cluster):
    folder = "$BT_CHECKPOINT_DIR/" + shlex.quote(CHECKPOINT)
    job = cluster.push([f"mkdir {folder}", f"echo x > {folder}/{shlex.quote(FILE)}", f"echo x > {folder}/refused$(printf '\\302\\2332J')",
                        f"echo x > $BT_PROJECT_CACHE_DIR/{shlex.quote(CACHED)}", f"echo said {shlex.quote(CHECKPOINT)}"],
                       "--name", "job" + HIDDEN["bidi"], runtime=RUNTIME, project="pro\u202eject")
    cluster.wait(job, "TRAINING_JOB_FAILED")  # a file was refused
    until(lambda: cluster.json("checkpoints", "ls", job["id"], "--all"))
    of_people = {
        "ps": ("ps", "-a"), "view": ("view", job["id"]), "ls": ("checkpoints", "ls", job["id"], "--all"),
        "show": ("checkpoints", "show", f"{job['id']}/{CHECKPOINT}"), "events": ("events", job["id"]), "system": ("logs", job["id"], "--system"),
        "cache": ("cache", "ls", "pro\u202eject"), "du": ("cache", "du", "pro\u202eject"), "projects": ("projects", "ls"),
        "pin": ("checkpoints", "pin", f"{job['id']}/{CHECKPOINT}"), "nothing": ("checkpoints", "show", f"{job['id']}/\u202e\u009b"),
        "command": ("\u202e\033",), "file": ("push", "/\u202e\033.yaml"),
    }
    said = {}
    for what, words in of_people.items():
        got = cluster.cli(*words, code=None)
        assert_seen(got.out + got.err)
        said[what] = got.out + got.err
    for what in "view", "ls", "show":
        assert escaped(CHECKPOINT) in said[what], said[what]
    assert escaped(FILE) in said["show"] and escaped(CACHED) in said["cache"] and escaped(CACHED) in said["du"]
    assert "job\\u202e" in said["ps"] and "pro\\u202eject" in said["ps"]
    assert "refused\\u009b2J" in said["system"], said["system"]
    # what the job writes is the job's
    assert f"said {CHECKPOINT}" in cluster.cli("logs", job["id"], "--raw").out
    raw = [line for line in cluster.cli("logs", job["id"], "--raw").out.split("\n") if line.startswith("stoker:")]
    assert_seen("\n".join(raw))
    # JSON: the name itself, in JSON's own escapes
    for words, name in ((("checkpoints", "ls", job["id"], "--all"), CHECKPOINT), (("cache", "ls", "pro\u202eject"), CACHED), (("view", job["id"]), "job\u202e")):
        for form in "json", "jsonl":
            text = cluster.cli(*words, "-o", form).out
            assert_seen(text)
            listed = [json.loads(line) for line in text.splitlines()] if form == "jsonl" else json.loads(text)
            rows = listed.get("file_summaries", [listed]) if isinstance(listed, dict) else listed
            assert name in [row.get("checkpoint_id") or row.get("path") or row.get("name") for row in rows], rows
    assert f'"{CACHED}"' in cluster.cli("cache", "ls", "pro\u202eject", "-o", "csv").out
    shown = Terminal(cluster, "cache", "ls", "pro\u202eject", "-o", "csv")
    assert shown.end() == 0
    assert_seen(shown.seen, "\r")
    error = cluster.cli("view", "no\u202esuch\u009b", code=3, env={"STOKER_ERRORS": "json"}).err
    assert_seen(error)
    page = cluster.api("GET", "/training/%E2%80%AEp/logs/%C2%9Bj", raw=True)[1].decode()
    assert_seen(page)
    assert "\\u202ep" in page and "\\u009bj" in page
    assert_seen(cluster.log.read_text())
