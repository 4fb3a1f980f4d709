"""Fine-tune a sentence encoder to tell which topic of Python's documentation a passage is from.

Everything it needs comes from the platform: its packages by runtime.python, the model mounted read-only, the prepared dataset from the
project's cache, where it stays for the next job. Checkpoints are uploaded while training goes on.
"""
import hashlib
import json
import os
import pathlib
import pydoc_data.topics
import shutil
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

MODEL = pathlib.Path(os.environ.get("MODEL", "/models/minilm"))
STEPS = int(os.environ.get("STEPS", "24"))
CACHE = pathlib.Path(os.environ["BT_PROJECT_CACHE_DIR"])
CHECKPOINTS = pathlib.Path(os.environ["BT_CHECKPOINT_DIR"])
LOADED = os.environ.get("BT_LOAD_CHECKPOINT_DIR")
TOPICS, TOKENS, BATCH, SEED = 6, 48, 8, 7
SHAPE = json.loads((MODEL / "config.json").read_text())
HEADS, LAYERS, EPSILON = SHAPE["num_attention_heads"], SHAPE["num_hidden_layers"], SHAPE["layer_norm_eps"]


# --- data -----------------------------------------------------------------------------------------

def passages():
    """Paragraphs of the longest topics, with the topic's number."""
    longest = sorted(pydoc_data.topics.topics.items(), key=lambda item: -len(item[1]))[:TOPICS]
    for label, (_, text) in enumerate(longest):
        for paragraph in text.split("\n\n"):
            words = " ".join(paragraph.split())
            if len(words) > 80:
                yield words, label


def dataset():
    """Tokenized once a project: later jobs find it in the cache."""
    key = hashlib.sha256(json.dumps([str(MODEL), TOPICS, TOKENS]).encode()).hexdigest()[:16]
    path = CACHE / f"topics-{key}.safetensors"
    if path.exists():
        print(f"dataset: found in the project cache ({path.name})", flush=True)
        return load_file(path)
    texts, labels = zip(*passages())
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    tokenizer.enable_truncation(TOKENS)
    tokenizer.enable_padding(length=TOKENS)
    encoded = tokenizer.encode_batch(list(texts))
    rows = {"ids": np.array([e.ids for e in encoded], np.int32), "mask": np.array([e.attention_mask for e in encoded], np.float32),
            "labels": np.array(labels, np.int32)}
    temporary = path.with_suffix(f".{os.environ['BT_TRAINING_JOB_ID']}.tmp")
    save_file(rows, temporary)
    temporary.rename(path)
    print(f"dataset: {len(labels)} passages tokenized and kept in the project cache", flush=True)
    return rows


# --- the model: BERT, as its weights have it -------------------------------------------------------

def linear(p, name, x):
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def norm(p, name, x):
    x = x - x.mean(-1, keepdims=True)
    x = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + EPSILON)
    return x * p[f"{name}.weight"] + p[f"{name}.bias"]


def attention(p, name, x, mask):
    def heads(part):
        return linear(p, f"{name}.self.{part}", x).reshape(*x.shape[:2], HEADS, -1).transpose(0, 2, 1, 3)

    q, k, v = heads("query"), heads("key"), heads("value")
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1]) + (1 - mask)[:, None, None, :] * -1e9
    mixed = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(x.shape)
    return norm(p, f"{name}.output.LayerNorm", x + linear(p, f"{name}.output.dense", mixed))


def logits(p, ids, mask):
    x = p["embeddings.word_embeddings.weight"][ids] + p["embeddings.position_embeddings.weight"][: ids.shape[1]]
    x = norm(p, "embeddings.LayerNorm", x + p["embeddings.token_type_embeddings.weight"][0])
    for i in range(LAYERS):
        name = f"encoder.layer.{i}"
        x = attention(p, f"{name}.attention", x, mask)
        inner = jax.nn.gelu(linear(p, f"{name}.intermediate.dense", x), approximate=False)
        x = norm(p, f"{name}.output.LayerNorm", x + linear(p, f"{name}.output.dense", inner))
    sentence = (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    return linear(p, "classifier", sentence)


def loss(p, batch):
    return optax.softmax_cross_entropy_with_integer_labels(logits(p, batch["ids"], batch["mask"]), batch["labels"]).mean()


def pretrained():
    """The weights that are mounted, and a new head."""
    p = {name: value for name, value in load_file(MODEL / "model.safetensors").items() if value.dtype == np.float32}
    width = p["embeddings.LayerNorm.weight"].shape[0]
    p["classifier.weight"] = np.random.default_rng(SEED).normal(0, 0.02, (TOPICS, width)).astype(np.float32)
    p["classifier.bias"] = np.zeros(TOPICS, np.float32)
    return p


# --- checkpoints ----------------------------------------------------------------------------------

def flat(state):
    """The optimizer's state, each array by its path."""
    return {jax.tree_util.keystr(path): np.asarray(value) for path, value in jax.tree_util.tree_flatten_with_path(state)[0]}


def save(step, p, state):
    """A folder that gets its name when it is whole. Only the newest stays here: the older ones are in the store."""
    target = CHECKPOINTS / f"checkpoint-{step}"
    writing = CHECKPOINTS / f"checkpoint-{step}.tmp"
    writing.mkdir(parents=True, exist_ok=True)
    save_file({name: np.asarray(value) for name, value in p.items()}, writing / "model.safetensors")
    save_file(flat(state), writing / "optimizer.safetensors")
    (writing / "trainer_state.json").write_text(json.dumps({"global_step": step, "max_steps": STEPS}))
    shutil.rmtree(target, ignore_errors=True)
    writing.rename(target)
    for old in CHECKPOINTS.glob("checkpoint-*"):
        if old != target:
            shutil.rmtree(old)


def newest():
    """The newest checkpoint that this job was given, or None."""
    found = pathlib.Path(LOADED).glob("rank-*/checkpoint-*") if LOADED else []
    return max(found, key=lambda path: int(path.name.rsplit("-", 1)[1]), default=None)


def load(folder, state):
    print(f"resuming from {folder}", flush=True)
    step = json.loads((folder / "trainer_state.json").read_text())["global_step"]
    values = load_file(folder / "optimizer.safetensors")
    state = jax.tree_util.tree_map_with_path(lambda path, _: values[jax.tree_util.keystr(path)], state)
    return step, load_file(folder / "model.safetensors"), state


def main():
    started = time.time()
    jax.config.update("jax_compilation_cache_dir", str(CACHE / "jax"))  # what is compiled once is there for the next job
    optimizer = optax.adamw(optax.linear_schedule(2e-4, 0, STEPS))
    p, step = pretrained(), 0
    print(f"model: {MODEL} loaded in {time.time() - started:.1f} s", flush=True)
    state = optimizer.init(p)
    if (folder := newest()) is not None:
        step, p, state = load(folder, state)
    data = dataset()

    @jax.jit
    def train(p, state, batch):
        value, gradient = jax.value_and_grad(loss)(p, batch)
        updates, state = optimizer.update(gradient, state, p)
        return optax.apply_updates(p, updates), state, value

    while step < STEPS:
        chosen = np.random.default_rng([SEED, step]).choice(len(data["labels"]), BATCH, replace=False)
        p, state, value = train(p, state, {name: jnp.asarray(rows[chosen]) for name, rows in data.items()})
        step += 1
        if step % max(1, STEPS // 6) == 0:
            print(f"step {step}/{STEPS} loss {value:.4f}", flush=True)
        if step % max(1, STEPS // 2) == 0 or step == STEPS:
            save(step, p, state)
    print(f"done: {step} steps in {time.time() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
