"""Train a small language model, byte by byte, on Python's own documentation, with the Trainer of transformers.

One line handles failures: STOKER_RESUME_FROM is the path of the newest complete checkpoint, and is unset when there is none.
"""
import os
import pydoc_data.topics

import torch
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

STEPS = int(os.environ["STEPS"])
LENGTH = 128
RESUME_FROM = os.environ.get("STOKER_RESUME_FROM")


def passages():
    """The text in pieces of LENGTH bytes; a byte is a token."""
    text = "\n\n".join(pydoc_data.topics.topics.values()).encode()
    pieces = torch.tensor(list(text[:len(text) // LENGTH * LENGTH])).view(-1, LENGTH)
    return [{"input_ids": piece, "labels": piece} for piece in pieces]


class Report(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            print(f"step {state.global_step}/{state.max_steps} loss {logs['loss']:.3f}", flush=True)


def main():
    print(f"resuming from {RESUME_FROM}" if RESUME_FROM else "starting fresh", flush=True)
    torch.manual_seed(7)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=LENGTH, n_embd=96, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0,
                                       tie_word_embeddings=False))
    arguments = TrainingArguments(output_dir=os.environ["BT_CHECKPOINT_DIR"], max_steps=STEPS, per_device_train_batch_size=8,
                                  learning_rate=1e-3, lr_scheduler_type="constant", logging_steps=10, save_steps=20, save_total_limit=2,
                                  report_to=[], disable_tqdm=True, seed=7)
    trainer = Trainer(model=model, args=arguments, train_dataset=passages(), callbacks=[Report()])
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=RESUME_FROM)
    print(f"done: {trainer.state.global_step} steps", flush=True)


if __name__ == "__main__":
    main()
