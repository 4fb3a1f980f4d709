#!/usr/bin/env python3
"""Make the seeds of the fuzzers of src/format anew, with real savers: seeds.py [TORCH_PYTHON]

Run from anywhere, after `tools/parts.sh trainer savers`. TORCH_PYTHON is a Python with another torch, for seeds of
another version: they are named after it. Only files of up to 24 KiB become seeds.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SAVERS = HERE.parent / "savers"
PARTS = pathlib.Path(os.environ.get("STOKER_PARTS", pathlib.Path.home() / ".cache/stoker-parts"))
MOST = 24 << 10

# Saver, pattern of the file below its folder, corpus, name of the seed.
TORCH = [
    ("torch", "ckpt.pt", "zip", "torch"),
    ("legacy", "legacy.pt", "pickle", "legacy"),
    ("module", "*.pth", "zip", "module"),
    ("script", "*.pt", "zip", "script"),
    ("shards", "*/model-00001-of-*.safetensors", "safetensors", "shard"),
    ("shards", "*/model-00005-of-*.safetensors", "safetensors", "begins-as-a-pickle"),
    ("shards", "*/*.index.json", "json_file", "index"),
    ("shards", "*/config.json", "json_file", "config"),
    ("trainer", "*/rng_state.pth", "zip", "rng_state"),
    ("trainer", "*/training_args.bin", "zip", "training_args"),
    ("trainer", "*/scheduler.pt", "zip", "scheduler"),
    ("trainer", "*/trainer_state.json", "json_file", "trainer_state"),
    ("dcp-2", "step-2/.metadata", "dcp_metadata", "two-ranks"),
    ("dcp-2", "step-1/__0_0.distcp", "distcp", "chain"),
    ("dcp-2", "step-2/__0_0.distcp", "distcp", "one"),
]
JAX = [
    ("orbax", "1/default/manifest.ocdbt", "ocdbt", "manifest"),
    ("orbax", "1/default/d/*", "ocdbt", "nodes"),
    ("orbax", "1/_CHECKPOINT_METADATA", "json_file", "orbax"),
    ("flax", "checkpoint_1", "msgpack", "flax"),
    ("gguf", "*.gguf", "gguf", "model"),
    ("gguf-types", "*.gguf", "gguf", "types"),
    ("h5", "*.h5", "hdf5", "earliest"),
    ("h5-latest", "*.h5", "hdf5", "latest"),
    ("npz", "*.npz", "zip", "npz"),
    ("npz-packed", "*.npz", "zip", "npz-packed"),
    ("keras", "*.keras", "zip", "keras"),
    ("npy", "*.npy", "npy", "floats"),
    ("npy-objects", "*.npy", "npy", "objects"),
]


def keep(path, corpus, name):
    target = HERE / "corpus" / corpus / name
    size = path.stat().st_size
    if size > MOST:
        print(f"{corpus}/{name}: {size} bytes: too large for a seed")
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)
    print(f"{corpus}/{name}: {size} bytes")


def run(python, script, rows, out, suffix=""):
    for saver in dict.fromkeys(row[0] for row in rows):
        subprocess.run([python, SAVERS / script, "save", saver, out / saver, "2"], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, env=dict(os.environ, SAVER_SIZE="24"))
    for saver, pattern, corpus, name in rows:
        keep(sorted((out / saver).glob(pattern))[0], corpus, name + suffix)


def main():
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder)
        if len(sys.argv) > 1:
            rows = [row for row in TORCH if row[0] in ("torch", "legacy", "module", "dcp-2")]
            version = subprocess.run([sys.argv[1], "-c", "import torch; print(torch.__version__.split('+')[0])"], check=True,
                                     capture_output=True, text=True).stdout.strip()
            run(sys.argv[1], "torch_savers.py", rows, out, "-" + version)
            return
        run(PARTS / "trainer/bin/python", "torch_savers.py", TORCH, out)
        run(PARTS / "savers/bin/python", "jax_savers.py", JAX, out)
        with tarfile.open(out / "x.tar", "w") as tar:
            tar.add(out / "shards/checkpoint-1/config.json", "checkpoint-1/config.json")
        keep(out / "x.tar", "tarball", "shards")


if __name__ == "__main__":
    main()
