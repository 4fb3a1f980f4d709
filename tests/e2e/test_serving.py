"""Jobs that run an HTTP server (runtime.serve), asked through /deployments/NAME: by OpenAI's own client, and while things go wrong."""
import contextlib
import json
import sys

import pytest
from conftest import PARTS, ROOT, until

sys.path.append(str(PARTS / "openai"))
import openai  # noqa: E402

ENGINE = (ROOT / "tests/e2e/recipes/serve/engine.py").read_text()


def push(cluster, name, health="/health", **job):
    return cluster.push(["python3 engine.py"], files={"engine.py": ENGINE}, runtime={"serve": {"name": name, "health": health}}, **job)


def make(cluster, job, name):
    """A file that the engine waits for."""
    cluster.cli("exec", job["id"], "--", "sh", "-c", f"touch $BT_SCRATCH_DIR/{name}")


def rows(cluster, **kw):
    return [row for row in cluster.api("GET", "/v1/deployments", **kw)[1]["deployments"]]


def ready(cluster, name, n=1):
    return until(lambda: len([r for r in rows(cluster) if r["name"] == name and r["state"] == "READY"]) == n)


def client(cluster, name, token=None):
    return openai.OpenAI(base_url=f"{cluster.url}/deployments/{name}/v1", api_key=token or cluster.token, max_retries=0, timeout=120)


def say(text):
    return {"model": "echo", "messages": [{"role": "user", "content": text}]}


@pytest.fixture
def served(cluster):
    job = push(cluster, "tiny")
    until(lambda: "key" in cluster.logs(job))
    make(cluster, job, "loaded")
    ready(cluster, "tiny")
    return job


def test_before_it_is_there(cluster):
    assert cluster.api("GET", "/deployments/tiny/v1/models")[0] == 404
    job = push(cluster, "tiny")
    cluster.wait(job, "TRAINING_JOB_RUNNING")
    status, said = cluster.api("GET", "/deployments/tiny/v1/models")
    assert status == 503 and job["id"] in said["message"] and said["error"]["id"] == "unavailable", said
    until(lambda: [(r["state"], r["training_job_id"]) for r in rows(cluster)] == [("STARTING", job["id"])])
    make(cluster, job, "loaded")
    ready(cluster, "tiny")
    assert cluster.api("GET", "/deployments/tiny/v1/models")[1]["data"][0]["id"] == "echo"
    [row] = cluster.json("deployments", "ls")
    assert row["url"] == f"{cluster.url}/deployments/tiny" and row["requests"] == 1, row
    log = cluster.logs(job)
    assert "serving as tiny" in log and "key [redacted]" in log.replace("***", "[redacted]"), log


def test_the_client_of_openai(cluster, served):
    ai = client(cluster, "tiny")
    assert [m.id for m in ai.models.list()] == ["echo"]
    whole = ai.chat.completions.create(**say("one two three"))
    assert whole.choices[0].message.content == "one two three" and whole.usage.total_tokens == 6
    # what comes is there before the end
    stream = ai.chat.completions.create(**say("slow down here"), stream=True)
    assert [next(stream).choices[0].delta.content for _ in range(2)] == ["slow ", "down "]
    make(cluster, served, "go")
    assert [chunk.choices[0].delta.content for chunk in stream] == ["here "]
    with pytest.raises(openai.NotFoundError, match="no /v1/files"):
        ai.files.list()
    # 50 at once, and a body of megabytes
    streams = [ai.chat.completions.create(**say(f"a b {n}"), stream=True) for n in range(50)]
    assert ["".join(c.choices[0].delta.content for c in s) for s in streams] == [f"a b {n} " for n in range(50)]
    long = "word " * 400_000
    assert ai.chat.completions.create(**say(long)).usage.prompt_tokens == 400_000


def test_who_may_ask(cluster, served):
    people = cluster.people({"anna": ("red", "viewer"), "otto": ("blue", "member")})
    default = cluster.json("tokens", "create", "vera", "--team", "Default", "--role", "viewer")["api_key"]
    assert cluster.api("GET", "/deployments/tiny/v1/models", token="")[0] == 401
    for token in people.values():
        assert cluster.api("GET", "/deployments/tiny/v1/models", token=token)[0] == 404
        assert rows(cluster, token=token) == []
    assert client(cluster, "tiny", default).chat.completions.create(**say("x")).choices[0].message.content == "x"
    # its own headers go no further
    said = cluster.api("GET", "/deployments/tiny/headers", headers={"Cookie": "a=b", "X-Mine": "1"})[1]
    assert "X-Mine" in said["error"]["headers"] and "Cookie" not in said["error"]["headers"], said
    # a job of the team asks with its own token
    ask = ('python3 -c "import os, urllib.request as u; print(u.urlopen(u.Request(os.environ[\'HF_ENDPOINT\'] + \'/deployments/tiny/v1/models\', '
           'headers={\'Authorization\': \'Bearer \' + os.environ[\'HF_TOKEN\']})).read().decode())"')
    job = cluster.push([ask])
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert '"echo"' in cluster.logs(job)


def test_an_engine_that_dies(cluster):
    job = push(cluster, "tiny", retry={"on": ["failure"], "max_attempts": 5})
    cluster.wait(job, "TRAINING_JOB_RUNNING")
    make(cluster, job, "loaded")
    ready(cluster, "tiny")
    ai = client(cluster, "tiny")
    stream = ai.chat.completions.create(**say("and then die"), stream=True)
    seen = []
    with pytest.raises(openai.APIConnectionError):
        for chunk in stream:
            seen.append(chunk.choices[0].delta.content)
    assert seen == ["and ", "then "]
    # it is started again, and says so until it is ready
    with contextlib.suppress(openai.APIStatusError):
        ai.models.list()
    until(lambda: cluster.logs(job).count("key ") == 2)
    until(lambda: cluster.cli("exec", job["id"], "--", "sh", "-c", "touch $BT_SCRATCH_DIR/loaded", code=None).code == 0)
    ready(cluster, "tiny")
    assert ai.chat.completions.create(**say("again")).choices[0].message.content == "again"


def test_a_job_that_is_stopped_answers_to_the_end(cluster, served):
    ai = client(cluster, "tiny")
    second = push(cluster, "tiny", limits={"stop_grace": "60s"})
    cluster.wait(second, "TRAINING_JOB_RUNNING")
    make(cluster, second, "loaded")
    ready(cluster, "tiny", 2)
    # each of the two has one: the one with fewer requests is asked
    streams = [ai.chat.completions.create(**say("slow is it"), stream=True) for _ in range(2)]
    assert sorted(r["requests_in_flight"] for r in rows(cluster)) == [1, 1]
    cluster.cli("stop", served["id"])
    until(lambda: [r["training_job_id"] for r in rows(cluster) if r["state"] == "READY"] == [second["id"]])
    make(cluster, second, "go")
    assert ai.chat.completions.create(**say("new")).choices[0].message.content == "new"
    ended = [s for s in streams if "".join(c.choices[0].delta.content for c in whole(s)) == "slow is it "]
    assert len(ended) >= 1
    cluster.cli("stop", second["id"])
    until(lambda: rows(cluster) == [])


def whole(stream):
    """What comes, of one whose engine may end."""
    with contextlib.suppress(Exception):
        yield from stream


def test_who_leaves_and_comes_back(cluster, served):
    ai = client(cluster, "tiny")
    stream = ai.chat.completions.create(**say("slow and gone"), stream=True)
    next(stream)
    assert rows(cluster)[0]["requests_in_flight"] == 1
    stream.close()
    until(lambda: rows(cluster)[0]["requests_in_flight"] == 0)
    assert rows(cluster)[0]["failures"] == 0
    # the server starts again, and hears of the job by its runner
    cluster.kill()
    cluster.restart()
    ready(cluster, "tiny")
    assert ai.chat.completions.create(**say("still here")).choices[0].message.content == "still here"


SAVE = """mkdir -p $BT_CHECKPOINT_DIR/checkpoint-%d && cd $BT_CHECKPOINT_DIR/checkpoint-%d && cp $BT_WORKING_DIR/* . &&
python3 -c 'import struct; h = b"{}"; open("model.safetensors", "wb").write(struct.pack("<Q", len(h)) + h)'"""


def trained(cluster, steps, files):
    """A job that has saved checkpoints, each with these files and weights without a tensor."""
    job = cluster.push([SAVE % (n, n) for n in steps], files=files, runtime={"checkpointing_config": {"enabled": True}})
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    return job


def test_a_checkpoint_is_deployed_and_the_next_one_rolled_in(cluster):
    job = trained(cluster, (1, 2), {"engine.py": ENGINE})
    made = cluster.json("deploy", f"{job['id']}/checkpoint-1", "--name", "mine", "--command", "python3 /models/mine/engine.py", "-e", "ENGINE_NAME=first")
    assert made["name"] == "mine" and made["state"] == "CREATED" and made["url"] == f"{cluster.url}/deployments/mine", made
    first = {"id": made["training_job_id"]}
    cluster.wait(first, "TRAINING_JOB_RUNNING")
    make(cluster, first, "loaded")
    ready(cluster, "mine")
    ai = client(cluster, "mine")
    assert [m.id for m in ai.models.list()] == ["first"]
    # the newest one, under the same name; then the old one goes
    said = cluster.cli("deploy", job["id"], "--name", "mine", "--command", "python3 /models/mine/engine.py", "--env", "ENGINE_NAME=second", "--memory", "128Mi")
    assert "checkpoint-2" in said.err and said.out.strip() == made["url"], said
    second = {"id": next(r["training_job_id"] for r in until(lambda: len(rows(cluster)) == 2 and rows(cluster)) if r["training_job_id"] != first["id"])}
    make(cluster, second, "loaded")
    ready(cluster, "mine", 2)
    cluster.cli("stop", first["id"])
    until(lambda: [m.id for m in ai.models.list()] == ["second"] and len(rows(cluster)) == 1)
    assert cluster.job(second)["spec"]["compute"]["memory"] == "128Mi"


def test_what_cannot_be_deployed(cluster):
    config = json.dumps({"model_type": "llama", "_name_or_path": "/models/base"})
    job = trained(cluster, (1,), {"config.json": config})
    for arguments, words in (((), "a folder of the job"), (("--engine", "llama.cpp"), "convert_hf_to_gguf.py"), (("--engine", "tgi"), "none of vllm"),
                             (("--name", "No", "--command", "true"), "lower-case"), (("--engine", "vllm", "--command", "x"), "one of them")):
        assert words in cluster.refusal("deploy", job["id"], *arguments)["error"]["message"]
    assert cluster.error("deploy", f"{job['id']}/checkpoint-9") == "checkpoint_not_found"
    none = cluster.push(["true"])
    cluster.wait(none, "TRAINING_JOB_COMPLETED")
    assert cluster.error("deploy", none["id"]) == "checkpoint_not_found"
    # an engine that is not there says so, and how to get it
    job = trained(cluster, (1,), {"config.json": config, "tokenizer.json": "{}"})
    made = cluster.json("deploy", job["id"])
    assert made["name"].startswith("job-"), made
    cluster.wait({"id": made["training_job_id"]}, "TRAINING_JOB_FAILED")  # once: the next attempt would not find it either
    [said] = cluster.user_lines({"id": made["training_job_id"]})
    assert "vllm is not installed where this job runs" in said and "--image vllm/vllm-openai:latest" in said, said


@pytest.mark.parametrize("serve, words", [
    ({"name": "Tiny"}, "lower-case"), ({"name": "-a"}, "hyphen"), ({"name": "a" * 64}, "63"), ({}, "name"),
    ({"name": "a", "health": "up"}, "slash"), ({"name": "a", "port": 8000}, "port")])
def test_words(cluster, serve, words):
    folder = cluster.job_folder(["true"], runtime={"serve": serve})
    said = cluster.refusal("push", folder / "train.yaml", code=2)
    assert "serve" in json.dumps(said) and words in json.dumps(said), said


def test_one_node_only(cluster):
    folder = cluster.job_folder(["true"], runtime={"serve": {"name": "a"}}, compute={"node_count": 2, "cpu_count": 1, "memory": "64Mi"})
    assert "node_count" in json.dumps(cluster.refusal("push", folder / "train.yaml", code=2))
