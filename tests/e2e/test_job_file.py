"""The job file: every mistake at once, with its place and what was meant."""
import json
import re

import pytest

GOOD = "project: p\njob:\n  runtime:\n    start_commands: ['true']\n"


def written(cluster, text):
    folder = cluster.folder / "f"
    folder.mkdir(exist_ok=True)
    (folder / "train.yaml").write_text(text)
    return folder / "train.yaml"


def push(cluster, text, *flags, code=2):
    return cluster.cli("push", written(cluster, text), *flags, code=code)


def refusal(cluster, text, *flags, code=2):
    """(id of the error, its message)"""
    error = cluster.refusal("push", written(cluster, text), *flags, code=code)["error"]
    return error["id"], error["message"]


def paths(cluster, text, error="spec_invalid"):
    """Where the mistakes of a job file are."""
    refused = cluster.refusal("push", written(cluster, text), code=2)
    assert refused["error"]["id"] == error and all(p["message"] for p in refused["problems"])
    return [p["path"] for p in refused["problems"]]


def test_more_mistakes_than_a_message_holds(standing):
    many = "".join(f"  wrong_key_number_{i}: 1\n" for i in range(60))
    wrong = [f"job.wrong_key_number_{i}" for i in range(60)]
    assert paths(standing, GOOD + many) == wrong
    shown = push(standing, GOOD + many).err
    assert all(path in shown for path in wrong) and "60" in shown


def test_every_mistake_at_once(cluster):
    text = """project: p
job:
  compute: { node_cuont: 2, memory: lots, cpu_count: -1 }
  runtime:
    start_commands: "not a list"
    environment_variables: { A: 1, B: { secret: } }
  weights:
    - { source: "ftp://x/y", mount_location: data }
    - { source: "hf://a/b", mount_location: /proc/x }
"""
    wrong = {"job.compute.node_cuont", "job.compute.memory", "job.compute.cpu_count", "job.runtime.start_commands", "job.weights[0].source",
             "job.weights[0].mount_location", "job.weights[1].mount_location"}
    assert wrong <= set(paths(cluster, text))
    shown = push(cluster, text).err
    assert all(path in shown for path in wrong) and '"node_count"' in shown, shown
    assert re.search(r"train\.yaml:3:\d+: ", shown)
    assert cluster.json("ps", "-a") == []


@pytest.mark.parametrize("text, code, error, names", [
    ("", 2, "job_file_empty", "train.yaml"),
    ("project: p\n", 2, "spec_invalid", "job"),
    ("- a\n", 2, "spec_invalid", "train.yaml:1:1"),
    ("project: p\njob: *x\n", 2, "invalid", "line 2"),
    ("project: &a p\njob: {}\n", 2, "invalid", "line 1"),
    ("project: !!str p\n", 2, "invalid", "line 1"),
    ("project: p\nproject: q\n", 2, "invalid", '"project"'),
    ("project: [\n", 2, "invalid", "line"),
    ("project: p\nteam: nobody\njob: {runtime: {start_commands: ['true']}}\n", 3, "team_not_found", '"nobody"'),
])
def test_malformed(standing, text, code, error, names):
    found, message = refusal(standing, text, code=code)
    assert found == error and names in message, message


def test_unknown_key_of_the_root(standing):
    assert paths(standing, GOOD + "projcet: x\n") == ["projcet"]


def test_what_this_server_cannot_do_is_refused_by_name(standing):
    assert paths(standing, GOOD + "  interactive_session: {trigger: on_startup}\n") == ["job.interactive_session"]
    assert paths(standing, GOOD + "  weights: [{source: 'gs://b/x', mount_location: /w}]\n", "source_invalid") == ["job.weights[0].source"]


@pytest.mark.parametrize("compute, asked", [("memory: 900Gi", "900 GiB"), ("cpu_count: 500", "500 CPUs"), ("accelerator: 'H100:2'", "H100")])
def test_larger_than_the_machine(standing, compute, asked):
    error, message = refusal(standing, GOOD + f"  compute: {{{compute}}}\n", code=5)
    assert error == "job_never_fits" and asked in message, message


def test_unknown_secrets_are_all_named(standing):
    error, message = refusal(standing, GOOD + "    environment_variables: {A: {secret: one}, B: {secret: two}}\n", code=None)
    assert error == "secret_not_set" and "one" in message and "two" in message, message


def test_dry_run_pushes_nothing(cluster):
    push(cluster, GOOD, "--dry-run", code=0)
    assert cluster.json("ps", "-a") == [] and cluster.json("projects", "ls") == []
    # what a push to it would say is said before there is a project, too, and leaves none
    assert refusal(cluster, GOOD + "  compute: {memory: 900Gi}\n", "--dry-run", code=5)[0] == "job_never_fits"
    assert refusal(cluster, GOOD + "team: nobody\n", "--dry-run", code=3)[0] == "team_not_found"
    cluster.cli("teams", "create", "lab")
    push(cluster, GOOD + "team: lab\n", "--dry-run", code=0)
    assert cluster.json("projects", "ls") == []
    assert not [p for p in (cluster.data / "objects").rglob("*") if p.is_file() and p.name != "stoker.json"]


def test_set_and_env(cluster):
    folder = cluster.folder / "s"
    folder.mkdir()
    (folder / "train.yaml").write_text(GOOD.replace("'true'", "'echo $WORDS'"))
    job = json.loads(cluster.cli("push", folder / "train.yaml", "--set", "job.compute.memory=300Mi", "-e",
                                 "WORDS=it's: 5 #x", "-o", "json").out)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job) == ["it's: 5 #x"]
    assert cluster.job(job)["spec"]["compute"]["memory"] in ("300Mi", "314572800")


def test_the_same_rules_guard_the_api(standing):
    _, made = standing.api("POST", "/v1/training_projects", {"training_project": {"name": "q"}})
    path = f"/v1/training_projects/{made['training_project']['id']}/jobs"
    status, reply = standing.api("POST", path, {"training_job": {"compute": {"node_cuont": 2}, "runtime": {"start_commands": [3]}}})
    assert status == 400
    assert reply["error"]["id"] == "spec_invalid"
    assert {p["path"] for p in reply["problems"]} == {"training_job.compute.node_cuont", "training_job.runtime.start_commands[0]"}


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
    assert all(e["description"].endswith(".") for e in cluster.json("init", "--list-examples"))


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
    refused = cluster.refusal("push", folder / "train.yaml", "--expand-env", code=2)["error"]
    assert refused["id"] == "invalid" and "NOT_SET_ANYWHERE" in refused["message"] and "train.yaml: " in refused["message"]
    folder = cluster.job_folder(["echo ${HOME:-x}"])
    assert "${NAME}" in cluster.cli("push", folder / "train.yaml", "--expand-env", code=2).err


def test_what_can_never_run_is_refused_before_its_code_is_sent(cluster):
    folder = cluster.job_folder(["true"], project="never was", compute={"cpu_count": 4000, "memory": "1Gi"})
    refused = cluster.cli("push", folder / "train.yaml", "-o", "json", code=5).err.splitlines()
    assert len(refused) == 1 and json.loads(refused[0])["error"]["id"] == "job_never_fits", refused
    assert "never was" not in [p["name"] for p in cluster.json("projects", "ls")]
