"""Jobs that run an HTTP server (runtime.serve), asked through /deployments/NAME: by OpenAI's own client, and while things go wrong."""
import contextlib
import json
import sys
import threading
import time
from concurrent import futures

import pytest
from conftest import DEADLINE_S, PARTS, ROOT, until

sys.path.append(str(PARTS / "openai"))
import openai  # noqa: E402

ENGINE = (ROOT / "tests/e2e/recipes/serve/engine.py").read_text()


def push(cluster, name, health="/health", **job):
    return cluster.push(["python3 engine.py"], files={"engine.py": ENGINE}, runtime={"serve": {"name": name, "health": health}}, **job)


def make(cluster, job, name, code=0):
    """A file that the engine waits for."""
    cluster.cli("exec", job["id"], "--", "sh", "-c", f"touch $BT_SCRATCH_DIR/{name}", code=code)


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


def test_a_name_is_no_path_of_the_hub(cluster):
    """/NAME/raw/REVISION/FILE and /OWNER/NAME/resolve/REVISION/FILE are files of a repository, but not below /deployments/."""
    for path in ("raw/v1/models", "resolve/v1/models", "mine/raw/main/x", "mine/resolve/main/x"):
        status, said = cluster.api("GET", f"/deployments/{path}")
        assert status == 404 and f'serves "{path.partition("/")[0]}"' in said["message"], said


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
    assert ai.chat.completions.create(**say("new")).choices[0].message.content == "new"
    # this engine ends at once when it gets SIGTERM, as llama-server does: it gets it afterwards
    for scratch in (cluster.folder / "data/runs").glob("*/scratch"):
        (scratch / "go").touch()
    assert ["".join(c.choices[0].delta.content for c in s) for s in streams] == ["slow is it "] * 2
    cluster.wait(served, "TRAINING_JOB_STOPPED")
    assert "it answers the requests that it has first: 1" in cluster.logs(served)
    cluster.cli("stop", second["id"])
    until(lambda: rows(cluster) == [])


def test_who_leaves_and_comes_back(cluster, served):
    ai = client(cluster, "tiny")
    stream = ai.chat.completions.create(**say("slow and gone"), stream=True)
    next(stream)
    assert rows(cluster)[0]["requests_in_flight"] == 1
    stream.close()
    until(lambda: rows(cluster)[0]["requests_in_flight"] == 0)
    assert rows(cluster)[0]["failures"] == 0
    # the server starts again, and hears of the job by its runner: who asks before that waits
    cluster.kill()
    cluster.restart()
    assert ai.chat.completions.create(**say("still here")).choices[0].message.content == "still here"


SAVE = """mkdir -p $BT_CHECKPOINT_DIR/checkpoint-%d && cd $BT_CHECKPOINT_DIR/checkpoint-%d && cp $BT_WORKING_DIR/* . &&
python3 -c 'import struct; h = b"{}"; open("model.safetensors", "wb").write(struct.pack("<Q", len(h)) + h)'"""


def trained(cluster, steps, files):
    """A job that has saved checkpoints, each with these files and weights without a tensor."""
    job = cluster.push([SAVE % (n, n) for n in steps], files=files, runtime={"checkpointing_config": {"enabled": True}})
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    return job


COMMAND = ("--command", "python3 /models/mine/engine.py", "--name", "mine")


def deployed(cluster, job, *arguments, env="first"):
    return cluster.json("deploy", job, *COMMAND, "-e", f"ENGINE_NAME={env}", "-e", "ENGINE_READY=1", "--memory", "128Mi", *arguments)


def view(cluster, name="mine"):
    said = cluster.api("GET", f"/v1/deployments/{name}")[1]
    return said["deployment"] | {"jobs": said["replicas"]}


def is_up(cluster, revision, n=1):
    """Its jobs of this revision are ready, and alone."""
    def loaded():
        v = view(cluster)
        for job in v["jobs"]:
            if job["status"] == "TRAINING_JOB_RUNNING" and not job["ready"]:
                cluster.cli("exec", job["training_job_id"], "--", "sh", "-c", "touch $BT_SCRATCH_DIR/loaded", code=None)
        return v["state"] == "READY" and [(j["revision"], j["ready"]) for j in v["jobs"]] == [(revision, True)] * n and v
    return until(loaded)


@contextlib.contextmanager
def asking(cluster):
    """Requests without a pause while something happens; none of them may fail."""
    answers, over = [], threading.Event()

    def ask(ai):
        while not over.is_set() or answers[-1] == "first":
            answers.append(ai.chat.completions.create(**say("and now")).model)

    with futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, client(cluster, "mine"))
        try:
            yield answers
        finally:
            over.set()
        asked.result(timeout=60)


def test_a_checkpoint_is_deployed_and_the_next_one_rolled_in(cluster):
    job = trained(cluster, (1, 2), {"engine.py": ENGINE})
    made = deployed(cluster, f"{job['id']}/checkpoint-1")
    assert made["name"] == "mine" and made["state"] in ("CREATED", "STARTING") and made["url"] == f"{cluster.url}/deployments/mine", made
    is_up(cluster, 1)
    ai = client(cluster, "mine")
    assert [m.id for m in ai.models.list()] == ["first"]
    # the newest one takes its place when it is ready; who asks meanwhile is answered
    said = cluster.cli("deploy", job["id"], *COMMAND, "--env", "ENGINE_NAME=second")
    assert "checkpoint-2" in said.err and "revision 2" in said.err and said.out.strip() == made["url"], said
    stream = ai.chat.completions.create(**say("slow is it"), stream=True)
    assert [m.id for m in ai.models.list()] == ["first"] and view(cluster)["revision"] == 2
    make(cluster, {"id": made["training_job_id"]}, "go")
    assert "".join(c.choices[0].delta.content for c in stream) == "slow is it "
    with asking(cluster) as answers:
        is_up(cluster, 2)
    assert set(answers) == {"first", "second"}, answers
    # one that ends by itself leaves the one before in its place, and says so
    said = deployed(cluster, job["id"], env="third", *("--command", "echo no engine; exit 127"))
    until(lambda: view(cluster)["reason"] and "has ended by itself" in view(cluster)["reason"])
    assert [m.id for m in ai.models.list()] == ["second"] and "no engine" in cluster.cli("logs", said["training_job_id"]).out
    v = view(cluster)
    assert v["state"] == "READY" and v["revision"] == 3 and [j["revision"] for j in v["jobs"]] == [2], v
    # an engine that ends is started again, also one that says that all is well
    with pytest.raises(openai.APIConnectionError):
        list(ai.chat.completions.create(**say("and leave"), stream=True))
    until(lambda: "attempt 1 of 100 ended (job failed: its server has ended" in cluster.cli("logs", v["jobs"][0]["training_job_id"]).out)


def test_how_many_and_none(cluster):
    job = trained(cluster, (1,), {"engine.py": ENGINE})
    deployed(cluster, job["id"])
    is_up(cluster, 1)
    ai = client(cluster, "mine")
    cluster.cli("deployments", "scale", "mine", "--replicas", "2")
    v = is_up(cluster, 1, 2)
    said = cluster.api("GET", "/metrics", raw=True)[1].decode()
    assert 'stoker_deployment_replicas{team="Default",name="mine"} 2' in said and 'stoker_deployment_replicas_ready{team="Default",name="mine"} 2' in said, said
    # a job of it is not made again outside of it; one that a person stops is replaced
    refused = cluster.refusal("recreate", v["jobs"][0]["training_job_id"])["error"]
    assert refused["id"] == "job_of_deployment" and f"`stoker stop {v['jobs'][0]['training_job_id']}`" in refused["message"], refused
    said = cluster.cli("stop", v["jobs"][0]["training_job_id"])
    assert "belongs to deployment mine, which starts another in its place" in said.err and "`stoker deployments stop mine` ends both" in said.err, said
    assert cluster.job({"id": v["jobs"][0]["training_job_id"]})["kept_by_deployment"] == "mine" and cluster.job(job)["kept_by_deployment"] is None
    until(lambda: v["jobs"][0]["training_job_id"] not in [j["training_job_id"] for j in view(cluster)["jobs"]])
    is_up(cluster, 1, 2)
    cluster.cli("deployments", "scale", "mine", "--replicas", "1")
    is_up(cluster, 1)
    assert "key " in cluster.cli("deployments", "logs", "mine").out and "READY" in cluster.cli("deployments", "view", "mine").out
    # stopped, it refuses; its name and its jobs' command stay
    cluster.cli("deployments", "stop", "mine")
    until(lambda: view(cluster)["jobs"] == [])
    assert view(cluster)["state"] == "STOPPED"
    status, said = cluster.api("GET", "/deployments/mine/v1/models")
    assert status == 503 and "stoker deployments start mine" in said["message"], said
    cluster.kill()
    cluster.restart()
    assert view(cluster)["state"] == "STOPPED" and view(cluster)["jobs"] == []
    cluster.cli("deployments", "start", "mine")
    is_up(cluster, 1)
    assert [m.id for m in ai.models.list()] == ["first"]
    # a project is not deleted beneath it
    assert "stoker deployments rm mine" in cluster.refusal("projects", "rm", "p", "--confirm", "p")["error"]["message"]
    cluster.cli("deployments", "rm", "mine", "--yes")
    assert cluster.error("deployments", "view", "mine") == "deployment_not_found"
    assert cluster.api("GET", "/deployments/mine/v1/models")[0] == 404
    until(lambda: rows(cluster) == [])
    assert cluster.api("GET", "/deployments/mine/v1/models")[0] == 404


def test_it_sleeps_and_the_first_request_wakes_it(cluster):
    job = trained(cluster, (1,), {"engine.py": ENGINE})
    deployed(cluster, job["id"], "--scale-to-zero", "1s")
    until(lambda: view(cluster)["state"] == "SCALED_TO_ZERO" and view(cluster)["jobs"] == [])
    with pytest.raises(openai.InternalServerError, match="do not wait"):
        client(cluster, "mine").chat.completions.create(**say("long " * 250_000))
    until(lambda: view(cluster)["state"] == "SCALED_TO_ZERO" and view(cluster)["jobs"] == [])
    with futures.ThreadPoolExecutor(5) as pool:  # all of them wait for the one job
        said = list(pool.map(lambda n: client(cluster, "mine").chat.completions.create(**say(f"wake up {n}")).choices[0].message.content, range(5)))
    assert said == [f"wake up {n}" for n in range(5)]
    assert [e["revision"] for e in view(cluster)["jobs"]] in ([1], [])
    # a reply that takes its time is no silence
    stream = client(cluster, "mine").chat.completions.create(**say("slow it is"), stream=True)
    time.sleep(4)
    [running] = [j for j in view(cluster)["jobs"] if j["ready"]]
    make(cluster, {"id": running["training_job_id"]}, "go")
    assert "".join(c.choices[0].delta.content for c in stream) == "slow it is "
    until(lambda: view(cluster)["state"] == "SCALED_TO_ZERO")


@contextlib.contextmanager
def dying(cluster, label):
    """The server ends at this step of what is done with it; the next one finds what it left."""
    cluster.stop()
    cluster.start(env={"STOKER_CRASH_AT": label})
    yield
    assert cluster.process.wait(DEADLINE_S) == 9, label
    cluster.restart()


def jobs_of(cluster, revision=None):
    return [(j["revision"], j["training_job_id"]) for j in view(cluster)["jobs"] if revision in (None, j["revision"])]


def test_the_server_dies_at_each_step(cluster):
    """Each kill needs a server of its own: a second each, and as long until the runners are heard."""
    job = trained(cluster, (1,), {"engine.py": ENGINE})
    with dying(cluster, "push:before"):
        cluster.cli("deploy", job["id"], *COMMAND, code=None)
    assert rows(cluster) == [] and cluster.json("ps") == []
    with dying(cluster, "push:after"):
        cluster.cli("deploy", job["id"], *COMMAND, "-e", "ENGINE_NAME=first", "--memory", "128Mi", code=None)
    is_up(cluster, 1)
    [first] = jobs_of(cluster)
    ai = client(cluster, "mine")
    # the next revision is not ready: a server that starts has not heard of the one before, and leaves it
    cluster.cli("deploy", job["id"], *COMMAND, "-e", "ENGINE_NAME=second", "--memory", "128Mi")
    cluster.kill()
    cluster.restart()
    assert ai.models.list().data[0].id == "first"  # who asks at once waits until its runner is heard
    assert [j["training_job_id"] for j in view(cluster)["jobs"] if j["ready"]] == [first[1]] and len(jobs_of(cluster)) == 2
    # it is ready, and the one before has not been told
    with dying(cluster, "deployment:stop"):
        [(_, second)] = jobs_of(cluster, 2)
        cluster.wait({"id": second}, "TRAINING_JOB_RUNNING")
        make(cluster, {"id": second}, "loaded", code=None)  # the server may die of it before the command has ended
    is_up(cluster, 2)
    assert ai.models.list().data[0].id == "second" and jobs_of(cluster) == [(2, second)]
    # one job more, and then none
    with dying(cluster, "push:after"):
        cluster.cli("deployments", "scale", "mine", "--replicas", "2")
    is_up(cluster, 2, 2)
    with dying(cluster, "deployment:stop"):
        cluster.cli("deployments", "stop", "mine", code=None)
    until(lambda: jobs_of(cluster) == [])
    assert view(cluster)["state"] == "STOPPED" and cluster.api("GET", "/deployments/mine/v1/models")[0] == 503
    # it falls asleep; who woke it asks again
    with dying(cluster, "deployment:stop"):
        deployed(cluster, job["id"], "--replicas", "1", "--scale-to-zero", "1s")
    until(lambda: view(cluster)["state"] == "SCALED_TO_ZERO" and jobs_of(cluster) == [])
    with dying(cluster, "push:after"), contextlib.suppress(openai.APIConnectionError):
        ai.models.list()
    assert ai.models.list().data[0].id == "first"
    until(lambda: view(cluster)["state"] == "SCALED_TO_ZERO" and cluster.json("ps") == [])


def test_deployments_are_of_a_team(cluster):
    job = trained(cluster, (1,), {"engine.py": ENGINE})
    deployed(cluster, job["id"])
    people = cluster.people({"anna": ("red", "member"), "otto": ("red", "viewer")})
    viewer = cluster.json("tokens", "create", "vera", "--team", "Default", "--role", "viewer")["api_key"]
    for verb, path in (("GET", ""), ("PATCH", ""), ("POST", "/stop"), ("POST", "/start"), ("DELETE", "")):
        body = {"replicas": 3} if verb == "PATCH" else None
        assert cluster.api(verb, f"/v1/deployments/mine{path}", body, token=people["anna"])[0] == 404
        assert cluster.api(verb, f"/v1/deployments/mine{path}", body, token=viewer)[0] == (200 if verb == "GET" else 403)
        assert cluster.api(verb, f"/v1/deployments/mine{path}", body, token="")[0] == 401
    for body in ({}, {"replicas": 0}, {"replicas": 65}, {"scale_to_zero_s": -1}, {"replicas": "2"}):
        assert cluster.api("PATCH", "/v1/deployments/mine", body)[0] == 400, body
    cluster.cli("deployments", "rm", "mine", "--yes")


def test_what_cannot_be_deployed(cluster):
    config = json.dumps({"model_type": "llama", "_name_or_path": "/models/base"})
    job = trained(cluster, (1,), {"config.json": config})
    for arguments, words in (((), "a folder of the job"), (("--engine", "llama.cpp"), "convert_hf_to_gguf.py"), (("--engine", "tgi"), "none of vllm"),
                             (("--name", "No", "--command", "true"), "lower-case"), (("--engine", "vllm", "--command", "x"), "one of them"), (("--", "--host", "0.0.0.0"), "engine_options[0]: --host is not for the engine"),
                             (("--command", "x", "--", "--y"), "has its own words")):
        assert words in cluster.refusal("deploy", job["id"], *arguments)["error"]["message"]
    assert cluster.error("deploy", f"{job['id']}/checkpoint-9") == "checkpoint_not_found"
    none = cluster.push(["true"])
    cluster.wait(none, "TRAINING_JOB_COMPLETED")
    assert cluster.error("deploy", none["id"]) == "checkpoint_not_found"
    shards = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    half = trained(cluster, (1,), {"config.json": config, "model.safetensors.index.json": json.dumps(shards)})
    for name in (half["id"], f"{half['id']}/checkpoint-1"):
        said = cluster.refusal("deploy", name)["error"]["message"]
        assert "checkpoint-1" in said and "is INCOMPLETE: " in said and "-of-00002.safetensors" in said and "stoker checkpoints complete" in said, said
    adapter = trained(cluster, (1,), {"adapter_config.json": json.dumps({"base_model_name_or_path": "a/b", "peft_type": "LORA", "r": 8, "use_dora": True}),
                                      "adapter_model.safetensors": "\x02" + 7 * "\0" + "{}"})
    assert '"use_dora" is true in adapter_config.json' in cluster.refusal("deploy", adapter["id"])["error"]["message"]
    # an engine that is not there says so, and how to get it
    job = trained(cluster, (1,), {"config.json": config, "tokenizer.json": "{}"})
    made = cluster.json("deploy", job["id"])
    assert made["name"].startswith("job-"), made
    cluster.wait({"id": made["training_job_id"]}, "TRAINING_JOB_FAILED")  # once: the next attempt would not find it either
    [said] = cluster.user_lines({"id": made["training_job_id"]})
    more = json.loads(cluster.cli("deploy", job["id"], "-o", "json", "--", "--max-model-len", "8192", "--note=it's").out)
    assert " '--max-model-len' '8192' '--note=it'\\''s' --host 127.0.0.1" in cluster.job({"id": more["training_job_id"]})["spec"]["runtime"]["start_commands"][0]
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
