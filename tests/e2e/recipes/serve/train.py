"""Trains a language model of bytes that learns one answer by heart, and saves it twice, the first time with its tokenizer and chat template."""
import os

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

LEARNT = "user: Hello\nassistant: to be or not to be"
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "


def byte_tokenizer():
    words = ["<end>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    model = Tokenizer(models.BPE(vocab={word: number for number, word in enumerate(words)}, merges=[]))
    model.pre_tokenizer, model.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<end>", chat_template=TEMPLATE)


def main():
    torch.manual_seed(7)
    tokenizer = byte_tokenizer()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_positions=256, n_embd=48, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0))
    batch = tokenizer(LEARNT, return_tensors="pt").input_ids
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(1, 121):
        loss = model(batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 60 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
            folder = f"{os.environ['BT_CHECKPOINT_DIR']}/checkpoint-{step}"
            model.save_pretrained(folder)
            if step == 60:
                tokenizer.save_pretrained(folder)


main()
