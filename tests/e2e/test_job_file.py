"""The job file: every mistake at once, with its place and what was meant."""
import json
import re

import pytest

GOOD = "project: p\njob:\n  runtime:\n    start_commands: ['true']\n"


def push(cluster, text, *flags, code=2):
    folder = cluster.folder / "f"
    folder.mkdir(exist_ok=True)
    (folder / "train.yaml").write_text(text)
    return cluster.cli("push", folder / "train.yaml", *flags, code=code)


def test_more_mistakes_than_a_message_holds(cluster):
    many = "".join(f"  wrong_key_number_{i}: 1\n" for i in range(60))
    words = push(cluster, GOOD + many).err
    assert all(f"job.wrong_key_number_{i}" in words for i in range(60)) and "60 mistakes" in words


def test_every_mistake_at_once(cluster):
    said = push(cluster, """project: p
job:
  compute: { node_cuont: 2, memory: lots, cpu_count: -1 }
  runtime:
    start_commands: "not a list"
    environment_variables: { A: 1, B: { secret: } }
  weights:
    - { source: "ftp://x/y", mount_location: data }
    - { source: "hf://a/b", mount_location: /proc/x }
""").err
    for words in ("job.compute.node_cuont", 'did you mean "node_count"', "job.compute.memory", "job.compute.cpu_count",
                  "job.runtime.start_commands", "job.weights[0].source", "job.weights[0].mount_location",
                  "job.weights[1].mount_location"):
        assert words in said, f"{words!r} not in:\n{said}"
    assert re.search(r"train\.yaml:3:\d+: ", said)
    assert cluster.json("ps", "-a") == []


@pytest.mark.parametrize("text, words", [
    ("", "is empty"),
    ("project: p\n", "job"),
    ("- a\n", "should be a map, not a list"),
    ("project: p\njob: *x\n", "line 2"),
    ("project: &a p\njob: {}\n", "anchors"),
    ("project: !!str p\n", "tags"),
    ("project: p\nproject: q\n", "already given"),
    ("project: [\n", "line"),
    ("project: p\nteam: nobody\njob: {runtime: {start_commands: ['true']}}\n", "nobody"),
])
def test_malformed(cluster, text, words):
    said = push(cluster, text, code=None)
    assert said.code in (2, 3) and words in said.err, said


def test_unknown_key_of_the_root(cluster):
    assert 'did you mean "project"' in push(cluster, GOOD + "projcet: x\n").err


def test_what_this_server_cannot_do_is_refused_by_name(cluster):
    assert "interactive_session" in push(cluster, GOOD + "  interactive_session: {trigger: on_startup}\n").err
    assert "gs://" in push(cluster, GOOD + "  weights: [{source: 'gs://b/x', mount_location: /w}]\n").err


def test_larger_than_the_machine(cluster):
    said = push(cluster, GOOD + "  compute: {memory: 900Gi}\n", code=5).err
    assert "900 GiB" in said and "the largest node has" in said
    assert "500 CPUs" in push(cluster, GOOD + "  compute: {cpu_count: 500}\n", code=5).err
    assert "H100" in push(cluster, GOOD + "  compute: {accelerator: 'H100:2'}\n", code=5).err


def test_unknown_secrets_are_all_named(cluster):
    said = push(cluster, GOOD + "    environment_variables: {A: {secret: one}, B: {secret: two}}\n", code=None)
    assert said.code in (2, 3) and "one" in said.err and "two" in said.err


def test_dry_run_pushes_nothing(cluster):
    assert "nothing was pushed" in push(cluster, GOOD, "--dry-run", code=0).err
    assert cluster.json("ps", "-a") == [] and cluster.json("projects", "ls") == []
    # what a push to it would say is said before there is a project, too, and leaves none
    assert "900 GiB" in push(cluster, GOOD + "  compute: {memory: 900Gi}\n", "--dry-run", code=5).err
    assert "nobody" in push(cluster, GOOD + "team: nobody\n", "--dry-run", code=3).err
    cluster.cli("teams", "create", "lab")
    assert "nothing was pushed" in push(cluster, GOOD + "team: lab\n", "--dry-run", code=0).err
    assert cluster.json("projects", "ls") == []
    assert not [p for p in (cluster.data / "objects").rglob("*") if p.is_file()]


def test_set_and_env(cluster):
    folder = cluster.folder / "s"
    folder.mkdir()
    (folder / "train.yaml").write_text(GOOD.replace("'true'", "'echo $WORDS'"))
    job = json.loads(cluster.cli("push", folder / "train.yaml", "--set", "job.compute.memory=300Mi", "-e",
                                 "WORDS=it's: 5 #x", "-o", "json").out)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job) == ["it's: 5 #x"]
    assert cluster.job(job)["spec"]["compute"]["memory"] in ("300Mi", "314572800")


def test_the_same_rules_guard_the_api(cluster):
    _, made = cluster.api("POST", "/v1/training_projects", {"training_project": {"name": "q"}})
    path = f"/v1/training_projects/{made['training_project']['id']}/jobs"
    status, reply = cluster.api("POST", path, {"training_job": {"compute": {"node_cuont": 2}, "runtime": {"start_commands": [3]}}})
    assert status == 400
    paths = {p["path"] for p in reply["problems"]}
    assert any("node_cuont" in p for p in paths) and any("start_commands" in p for p in paths)
    assert "did you mean" in reply["message"]


def test_init_makes_a_job_that_runs(cluster):
    folder = cluster.folder / "fresh"
    cluster.cli("init", folder)
    assert cluster.error("init", folder, code=5) == "conflict"
    result = cluster.cli("push", "-f", cwd=folder)
    assert "hello, world" in result.out
    listed = cluster.cli("init", "--list-examples").out
    assert "hello" in listed and "quickstart" in listed
    names = [e["name"] for e in cluster.json("init", "--list-examples")]
    assert {"hello", "quickstart", "resume"} <= set(names) and all(n in listed for n in names)


def test_ignore_file_and_modes(cluster):
    folder = cluster.job_folder(["ls -A | sort | tr '\\n' ' '; echo; test -x run.sh && echo executable"],
                                files={"run.sh": "x", "skip/me": "1", "keep.txt": "2", ".stokerignore": "skip/\n*.log\n", "a.log": "3"})
    (folder / "run.sh").chmod(0o755)
    job = json.loads(cluster.cli("push", folder / "train.yaml", "-o", "json").out)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job)[0].split() == [".stokerignore", "keep.txt", "run.sh", "train.yaml"]
    assert "executable" in cluster.logs(job)


def test_a_data_folder_is_never_sent(cluster):
    folder = cluster.job_folder(["find . | sort | tr '\\n' ' '; echo"],
                                files={"a": "1", "var/stoker/master.key": "k", "var/stoker/stoker.db": "d", "var/b": "2"})
    pushed = cluster.cli("push", folder / "train.yaml", "-o", "json")
    assert "var/stoker/" in pushed.err
    job = json.loads(pushed.out)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job)[0].split() == [".", "./a", "./train.yaml", "./var", "./var/b"]
    folder = cluster.job_folder(["true"], files={"master.key": "k", "stoker.db": "d"})
    assert cluster.error("push", folder / "train.yaml", code=2) == "invalid"


def test_variables_of_here_only_when_asked_for(cluster):
    folder = cluster.job_folder(['echo "[${WORD}]" "[$${WORD}]"'], runtime={"environment_variables": {"WORD": "there"}})
    plain = json.loads(cluster.cli("push", folder / "train.yaml", "-o", "json", env={"WORD": "here"}).out)
    asked = json.loads(cluster.cli("push", folder / "train.yaml", "--expand-env", "-o", "json", env={"WORD": "here"}).out)
    cluster.wait(asked, "TRAINING_JOB_COMPLETED")
    cluster.wait(plain, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(asked)[-1] == "[here] [there]" and cluster.user_lines(plain)[-1].startswith("[there] [")
    folder = cluster.job_folder(["echo ${NOT_SET_ANYWHERE}"])
    refused = cluster.cli("push", folder / "train.yaml", "--expand-env", code=2).err
    assert "the variable NOT_SET_ANYWHERE is not set" in refused and "train.yaml: " in refused
    folder = cluster.job_folder(["echo ${HOME:-x}"])
    assert "${NAME}" in cluster.cli("push", folder / "train.yaml", "--expand-env", code=2).err


def test_what_can_never_run_is_refused_before_its_code_is_sent(cluster):
    folder = cluster.job_folder(["true"], project="never/was", compute={"cpu_count": 4000, "memory": "1Gi"})
    refused = cluster.cli("push", folder / "train.yaml", code=5).err
    assert "4000" in refused and "code:" not in refused
    assert "never/was" not in [p["name"] for p in cluster.json("projects", "ls")]
