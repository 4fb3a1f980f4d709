"""Fine-tune a sentence encoder by the Hugging Face Trainer to tell which topic of Python's documentation a passage is from.

Everything it needs comes from the platform: the model is mounted read-only, the prepared dataset is kept in
the project's cache for the next job, checkpoints are written to a folder that is shipped while training goes on.
"""
import hashlib
import json
import os
import pathlib
import pydoc_data.topics
import time

import torch
from transformers import (AutoModelForSequenceClassification, AutoTokenizer, PrinterCallback, Trainer, TrainerCallback,
                          TrainingArguments)

MODEL = os.environ.get("MODEL", "/models/minilm")
STEPS = int(os.environ.get("STEPS", "24"))
CACHE = pathlib.Path(os.environ["BT_PROJECT_CACHE_DIR"])
CHECKPOINTS = os.environ["BT_CHECKPOINT_DIR"]
TOPICS = 6
TOKENS = 48


def passages():
    """Paragraphs of the longest topics, with the topic's number."""
    longest = sorted(pydoc_data.topics.topics.items(), key=lambda item: -len(item[1]))[:TOPICS]
    for label, (_, text) in enumerate(longest):
        for paragraph in text.split("\n\n"):
            words = " ".join(paragraph.split())
            if len(words) > 80:
                yield words, label


def dataset(tokenizer):
    """Tokenized once a project: later jobs find it in the cache."""
    key = hashlib.sha256(json.dumps([tokenizer.name_or_path, TOPICS, TOKENS]).encode()).hexdigest()[:16]
    path = CACHE / f"topics-{key}.pt"
    if path.exists():
        print(f"dataset: found in the project cache ({path.name})", flush=True)
        return torch.load(path)
    texts, labels = zip(*passages())
    encoded = tokenizer(list(texts), truncation=True, padding="max_length", max_length=TOKENS, return_tensors="pt")
    rows = [{"input_ids": encoded["input_ids"][i], "attention_mask": encoded["attention_mask"][i],
             "labels": torch.tensor(labels[i])} for i in range(len(labels))]
    temporary = path.with_suffix(f".{os.environ['BT_TRAINING_JOB_ID']}.tmp")
    torch.save(rows, temporary)
    temporary.rename(path)
    print(f"dataset: {len(rows)} passages tokenized and kept in the project cache", flush=True)
    return rows


class Report(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            print(f"step {state.global_step}/{state.max_steps} loss {logs['loss']:.4f}", flush=True)


def main():
    started = time.time()
    torch.manual_seed(7)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=TOPICS)
    print(f"model: {MODEL} loaded in {time.time() - started:.1f} s", flush=True)
    arguments = TrainingArguments(output_dir=CHECKPOINTS, max_steps=STEPS, per_device_train_batch_size=8,
                                  learning_rate=2e-4, logging_steps=max(1, STEPS // 6), save_steps=max(1, STEPS // 2),
                                  save_total_limit=1, report_to=[], disable_tqdm=True, use_cpu=True, seed=7)
    trainer = Trainer(model=model, args=arguments, train_dataset=dataset(tokenizer), callbacks=[Report()])
    trainer.remove_callback(PrinterCallback)
    loaded = os.environ.get("BT_LOAD_CHECKPOINT_DIR")
    resume = None
    if loaded:
        found = sorted(pathlib.Path(loaded).glob("rank-*/checkpoint-*"), key=lambda p: int(p.name.rsplit("-", 1)[1]))
        resume = str(found[-1]) if found else None
        print(f"resuming from {resume}", flush=True)
    trainer.train(resume_from_checkpoint=resume)
    print(f"done: {trainer.state.global_step} steps in {time.time() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
