"""From training to an answer: a model trained in a job, deployed with an engine that really runs it, asked by OpenAI's own client."""
import sys

import pytest
from conftest import PARTS, ROOT, until
from hub import hub_server

sys.path.append(str(PARTS / "openai"))
import openai  # noqa: E402

pytestmark = pytest.mark.timeout(900)

ENGINE = PARTS / "transformers"  # its Python has torch, too
TRAIN = (ROOT / "tests/e2e/recipes/serve/train.py").read_text()
LONG = 300  # seconds for what imports torch on a machine that has other things to do


@pytest.fixture
def hub():
    with hub_server() as h:
        yield h


def deploy(cluster, checkpoint, *flags):
    """Its job, once it is the only one."""
    made = cluster.json("deploy", checkpoint, "--name", "mine", "--engine", "transformers", "-e", f"PATH={ENGINE}/bin:/usr/bin:/bin", "-e", "OMP_NUM_THREADS=1", *flags)
    until(lambda: [(r["revision"], r["ready"]) for r in cluster.json("deployments", "view", "mine")["replicas"]] == [(made["revision"], True)], LONG)
    return {"id": made["training_job_id"]}


def ask(ai, text, **kw):
    return ai.chat.completions.create(model="mine", messages=[{"role": "user", "content": text}], temperature=0, max_tokens=12, **kw)


def test_from_training_to_an_answer(empty_cluster, hub):
    cluster = empty_cluster.start("--cpus", "2", "--memory", "8Gi", "--share", str(ENGINE), "--hf-endpoint", hub.url, "--allow-source-network", "127.0.0.0/8")
    job = cluster.push([f"{ENGINE}/bin/python3 train.py"], files={"train.py": TRAIN}, compute={"cpu_count": 1, "memory": "2Gi"},
                       runtime={"checkpointing_config": {"enabled": True}, "environment_variables": {"OMP_NUM_THREADS": "1"}})
    cluster.wait(job, "TRAINING_JOB_COMPLETED", deadline=LONG)

    first = deploy(cluster, f"{job['id']}/checkpoint-60")
    ai = openai.OpenAI(base_url=f"{cluster.url}/deployments/mine/v1", api_key=cluster.token, max_retries=0, timeout=120)
    assert [model.id for model in ai.models.list()] == ["mine"]
    whole = ask(ai, "Hello")
    [choice] = whole.choices
    assert whole.model == "mine" and choice.finish_reason == "length" and whole.usage.completion_tokens == 12, whole
    said = choice.message.content
    assert said and choice.message.role == "assistant"
    assert ask(ai, "Hello").choices[0].message.content == said
    chunks = list(ask(ai, "Hello", stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == said and len(chunks) > 3, chunks
    assert chunks[-1].choices[0].finish_reason == "length" and {chunk.model for chunk in chunks} == {"mine"}
    with pytest.raises(openai.BadRequestError) as refused:
        ai.chat.completions.create(model="other", messages=[{"role": "user", "content": "Hello"}])
    assert "pinned to 'mine'" in refused.value.body["detail"]
    # who comes to the port without the key gets nothing
    asked = cluster.cli("exec", first["id"], "--", "sh", "-c", "curl -s -o /dev/null -w %{http_code} http://127.0.0.1:$STOKER_SERVE_PORT/v1/models")
    assert asked.out == "401", asked

    # the newest one takes its place, though its job saved no tokenizer: its base model has one, and the chat template in a file of its own
    assert "has no tokenizer" in cluster.refusal("deploy", job["id"], "--engine", "transformers")["error"]["message"]
    cluster.cli("checkpoints", "pull", f"{job['id']}/checkpoint-60", cluster.folder / "base")
    saved = {path.name: path.read_bytes() for path in (cluster.folder / "base").rglob("*") if path.is_file()}
    assert "chat_template.jinja" in saved
    hub.tokens.add("hf_mine")
    hub.repo("me/base", saved, readers={"hf_mine"})
    cluster.cli("secrets", "set", "hf-access-token", stdin="hf_mine")  # it is private: the team's token is for such
    second = deploy(cluster, job["id"], "--base-model", "me/base")
    assert ask(ai, "Hello").choices[0].message.content == "to be or not"
    cluster.cli("deployments", "stop", "mine")
    cluster.wait(second, "TRAINING_JOB_STOPPED")
    with pytest.raises(openai.InternalServerError, match="is stopped"):
        ask(ai, "Hello")
    cluster.cli("deployments", "rm", "mine", "--yes")
