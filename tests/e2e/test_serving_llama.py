"""GGUF files, deployed with the real llama-server and asked by OpenAI's own client."""
import json
import sys
import threading
from concurrent import futures

from conftest import PARTS, ROOT, until

sys.path.append(str(PARTS / "openai"))
import openai  # noqa: E402

ENGINE = PARTS / "llama"
PARROT = (ROOT / "tests/e2e/recipes/serve/parrot.py").read_text()
SAVE = """cd $BT_CHECKPOINT_DIR && mkdir parts two adapter && cp $BT_WORKING_DIR/parrot.py $BT_SCRATCH_DIR && p="python3 $BT_SCRATCH_DIR/parrot.py" &&
$p parts/z.gguf 'that is the question' 3 && $p parts/a.gguf none 1 imatrix &&
$p two/f16.gguf one && cp two/f16.gguf two/q4.gguf && $p adapter/a.gguf none 1 adapter && $p parrot-1.gguf 'to be or not'"""
LONG = 1500  # tokens: about a second


def deploy(cluster, job, checkpoint, *options):
    return json.loads(cluster.cli("deploy", f"{job['id']}/{checkpoint}", "--name", "mine", "-e", f"PATH={ENGINE}/bin:/usr/bin:/bin", "-o", "json", *options).out)


def is_up(cluster, made):
    until(lambda: [(r["revision"], r["ready"]) for r in cluster.api("GET", "/v1/deployments/mine")[1]["replicas"]] == [(made["revision"], True)])


def ask(ai, **kw):
    return ai.chat.completions.create(model="mine", messages=[{"role": "user", "content": "Hello"}], temperature=0, **kw)


def endless(ai, n):
    return ai.completions.create(model="mine", prompt="~", temperature=0, max_tokens=n, stream=True)


def test_from_gguf_files_to_an_answer(empty_cluster):
    cluster = empty_cluster.start("--cpus", "2", "--memory", "8Gi", "--share", str(ENGINE))
    job = cluster.push([SAVE], files={"parrot.py": PARROT}, runtime={"checkpointing_config": {"enabled": True}})
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    for checkpoint, words in (("two", "has f16.gguf and q4.gguf"), ("adapter", "a.gguf, an adapter, and not the model")):
        assert words in cluster.refusal("deploy", f"{job['id']}/{checkpoint}")["error"]["message"]

    # a model in three files, beside what it was quantized by
    made = deploy(cluster, job, "parts", "--", "--ctx-size", "4096", "--slots")
    is_up(cluster, made)
    status, slots = cluster.api("GET", "/deployments/mine/slots")
    assert status == 200 and {slot["n_ctx"] for slot in slots} == {4096}, slots
    ai = openai.OpenAI(base_url=f"{cluster.url}/deployments/mine/v1", api_key=cluster.token, max_retries=0, timeout=120)
    assert [model.id for model in ai.models.list()] == ["mine"]
    whole = ask(ai)
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason, whole.model) == (" that is the question", "stop", "mine"), whole
    chunks = list(ask(ai, stream=True))
    assert [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content] == [" that", " is", " the", " question"]
    asked = cluster.cli("exec", made["training_job_id"], "--", "sh", "-c", "curl -s -o /dev/null -w %{http_code} http://127.0.0.1:$STOKER_SERVE_PORT/props")
    assert asked.out == "401", asked
    # who leaves ends the work
    stream = endless(ai, 1_000_000)
    next(stream)
    stream.close()
    until(lambda: "cancel task" in cluster.cli("deployments", "logs", "mine").out)

    # a checkpoint that is one file takes its place, and breaks no answer off: llama-server does, when it is told to end
    second = deploy(cluster, job, "parrot-1.gguf")
    over = threading.Event()

    def until_over():
        said = []
        while not over.is_set() or said[-1] != " to be or not":
            said.append(ask(ai).choices[0].message.content)
        return set(said)

    with futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(until_over)
        try:
            cluster.wait({"id": second["training_job_id"]}, "TRAINING_JOB_RUNNING")
            stream = endless(ai, LONG)
            is_up(cluster, second)
            said = list(stream)
        finally:
            over.set()
        assert asked.result(timeout=60) == {" that is the question", " to be or not"}
    assert (len(said), said[-1].choices[0].finish_reason) == (LONG + 1, "length"), said[-1]
    cluster.cli("deployments", "rm", "mine", "--yes")
    cluster.wait({"id": second["training_job_id"]}, "TRAINING_JOB_STOPPED")
