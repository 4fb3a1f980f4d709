"""A language model as GGUF, without a library: whatever it is asked, it says the words that it was made of. To "~" it says "~" until it is full.

    parrot.py FILE.gguf "to be or not" [SPLITS [TYPE]]

It is a llama of one layer that adds nothing: each token leads to the next one by its own row of the output.
"""
import array
import random
import struct
import sys

WIDTH, CONTEXT = 64, 16384
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"  # the last token of each prompt is ":"
UNKNOWN, START, END = range(3)
U16, U32, I32, F32, TEXT, ARRAY = 2, 4, 5, 6, 8, 9


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def key(name, kind, value):
    if kind == TEXT:
        return text(name) + struct.pack("<I", TEXT) + text(value)
    if isinstance(value, list):
        items = b"".join(map(text, value)) if kind == ARRAY else struct.pack(f"<{len(value)}{'f' if kind == F32 else 'i'}", *value)
        return text(name) + struct.pack("<IIQ", ARRAY, TEXT if kind == ARRAY else kind, len(value)) + items
    return text(name) + struct.pack({U16: "<IH", U32: "<II", I32: "<Ii", F32: "<If"}[kind], kind, value)


def vocabulary(words):
    """Tokens, their kinds, and which one follows on which."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{n:02X}>" for n in range(256)]
    kinds = [2, 3, 3] + [6] * 256
    said = [":"] + ["\u2581" + word for word in words]
    tokens += said + ["~"]
    kinds += [1] * (len(said) + 1)
    first = tokens.index(":")
    follows = {first + n: first + n + 1 for n in range(len(words))} | {first + len(words): END, len(tokens) - 1: len(tokens) - 1}
    return tokens, kinds, follows


def tensors(n_tokens, follows):
    """(name, shape, values), the fastest dimension first."""
    rows = random.Random(7)
    embedding = [[rows.gauss(0, 1) for _ in range(WIDTH)] for _ in range(n_tokens)]
    output = [[0.0] * WIDTH for _ in range(n_tokens)]
    for before, after in follows.items():
        output[after] = [a + b for a, b in zip(output[after], embedding[before])]
    one, none = [1.0] * WIDTH, [0.0] * WIDTH * WIDTH
    yield "token_embd.weight", (WIDTH, n_tokens), sum(embedding, [])
    yield "output.weight", (WIDTH, n_tokens), sum(output, [])
    yield "output_norm.weight", (WIDTH,), one
    for name in ("attn_norm", "ffn_norm"):
        yield f"blk.0.{name}.weight", (WIDTH,), one
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        yield f"blk.0.{name}.weight", (WIDTH, WIDTH), none


def write(path, keys, parts):
    infos, data = b"", b""
    for name, shape, values in parts:
        infos += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += array.array("f", values).tobytes()
        data += bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(parts), len(keys)) + b"".join(keys) + infos
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)


def main(path, words, splits="1", kind="model"):
    splits = int(splits)
    tokens, kinds, follows = vocabulary(words.split())
    keys = [key("general.architecture", TEXT, "llama"), key("general.type", TEXT, kind), key("general.name", TEXT, "parrot")]
    keys += [key(f"llama.{name}", U32, value) for name, value in (
        ("context_length", CONTEXT), ("embedding_length", WIDTH), ("block_count", 1), ("feed_forward_length", WIDTH),
        ("attention.head_count", 1), ("attention.head_count_kv", 1), ("rope.dimension_count", WIDTH))]
    keys += [key("llama.attention.layer_norm_rms_epsilon", F32, 1e-5), key("tokenizer.ggml.model", TEXT, "llama"),
             key("tokenizer.ggml.tokens", ARRAY, tokens), key("tokenizer.ggml.scores", F32, [0.0] * len(tokens)),
             key("tokenizer.ggml.token_type", I32, kinds), key("tokenizer.chat_template", TEXT, TEMPLATE)]
    keys += [key(f"tokenizer.ggml.{name}_token_id", U32, n) for name, n in (("unknown", UNKNOWN), ("bos", START), ("eos", END))]
    parts = list(tensors(len(tokens), follows))
    if splits == 1:
        return write(path, keys, parts)
    for n in range(splits):
        split = [key("split.no", U16, n), key("split.count", U16, splits), key("split.tensors.count", I32, len(parts))]
        write(f"{path[:-5]}-{n + 1:05}-of-{splits:05}.gguf", (keys if n == 0 else []) + split, parts[n::splits])


main(*sys.argv[1:])
