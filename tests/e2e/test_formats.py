"""`stoker checkpoints check` on what real savers write: whole, cut at every border, torn in the middle, with a part missing."""
import json
import os
import pathlib
import random
import shutil
import subprocess
import tarfile

import pytest
from conftest import PARTS, ROOT, STOKER

pytestmark = pytest.mark.timeout(900)

SAVERS = ROOT / "tests/savers"
CUTS = 150  # of one file, beside its borders
BORDERS = (b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6", b"PK\6\7", b"\x89HDF", b"GGUF", b"\x93NUMPY", b"FRHP", b"TREE", b"OHDR")

# Saver: the layout that it is recognised as.
TORCH = {
    "torch": "torch_file", "legacy": "torch_file", "module": "torch_file", "script": "torch_file", "shards": "model",
    "bin-shards": "model", "adapter": "peft", "trainer": "hf_trainer", "accelerate": "accelerate", "lightning": "lightning",
}
JAX = {
    "orbax": "orbax", "orbax-zarr": "orbax", "flax": "flax", "keras": "keras", "keras-h5": "keras", "gguf": "gguf", "gguf-types": "gguf",
    "h5": "file", "h5-latest": "file", "npz": "file", "npz-packed": "file", "npy": "file", "npy-objects": "file",
}


def saver(script, *args):
    python = PARTS / ("savers" if script == "jax_savers.py" else "trainer") / "bin/python"
    env = dict(os.environ, PYTHONPATH=str(PARTS / "savers/for-torch") if script == "torch_savers.py" else "")
    done = subprocess.run([python, SAVERS / script, *map(str, args)], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return [pathlib.Path(line.split(" ", 1)[1]) for line in done.stdout.splitlines() if line.startswith("saved ")]


def check(path, *flags, whole=True):
    done = subprocess.run([STOKER, "checkpoints", "check", path, "-o", "json", *map(str, flags)], capture_output=True, text=True, timeout=300)
    assert done.returncode == (0 if whole else 1), (path, done.stdout[-3000:], done.stderr)
    return json.loads(done.stdout)


def verdicts(report):
    return {f["path"]: f["verdict"] for f in report["files"]}


def problems(report):
    return {(p["path"], p["fault"]) for p in report["problems"]}


def least(path, body):
    """How many bytes hold all there is: what follows is padding, which no reader asks for."""
    if path.suffix == ".gguf":
        return len(body) - 31
    if body[:1] in b"{[":
        return len(body.rstrip())
    return len(body)


def cuts(path):
    """Places to cut: around every border, and elsewhere at random."""
    body = path.read_bytes()
    end = least(path, body)
    at = {0, 1, len(body) // 2, end - 1}
    for magic in BORDERS:
        place = body.find(magic)
        while place >= 0:
            at |= {place - 1, place, place + 1, place + len(magic)}
            place = body.find(magic, place + 1)
    if len(at) > CUTS:
        at = set(random.Random(1).sample(sorted(at), CUTS)) | {end - 1}
    at |= set(random.Random(2).sample(range(end), min(CUTS, end)))
    if path.suffix == ".distcp":  # a row of archives: cut between two it is a shorter row, which .metadata knows better
        at = {a for a in at if body[a - 22:a - 18] != b"PK\5\6"}
    return body, sorted(a for a in at if 0 <= a < end)


def never_whole_when_cut(files, folder):
    """All cuts of all files, each in a folder of its own: the file keeps its name. Checked by one call."""
    n = 0
    for path in files:
        body, places = cuts(path)
        for at in places:
            place = folder / f"{n}-{at}"
            place.mkdir(parents=True)
            (place / path.name).write_bytes(body[:at])
            n += 1
    done = subprocess.run([STOKER, "checkpoints", "check", folder, "-o", "json"], capture_output=True, text=True, timeout=600)
    found = json.loads(done.stdout)["files"]
    assert len(found) == n > 100
    assert [f["path"] for f in found if f["verdict"] == "whole"] == []
    shutil.rmtree(folder)


def whole_and_cut(script, out, layouts, tmp_path):
    """What the savers wrote is whole, of the right layout, and no file of it is when it is cut."""
    seen, files = {}, {}
    for path in saver(script, "save-all", out):
        name = path.relative_to(out).parts[0]
        if name not in layouts:
            continue
        report = check(path)
        seen[name] = report["layout"]
        for f in report["files"]:
            assert f["verdict"] != "torn", (path, f)
            assert f["bytes_read"] <= 3 * f["size_bytes"] + 8192
            if f["verdict"] == "whole" and f["format"] != "marker":
                files[name, pathlib.Path(f["path"]).name] = path / f["path"] if path.is_dir() else path
    assert seen == layouts
    never_whole_when_cut(files.values(), tmp_path / "cuts")


def test_torch_savers(tmp_path):
    out = tmp_path / "out"
    whole_and_cut("torch_savers.py", out, TORCH, tmp_path)
    # an exception inside torch.save leaves an archive that any zip tool takes, and tensors are missing
    for torn in (out / "torn").iterdir():
        report = check(torn, whole=False)
        assert report["state"] == "torn" and report["files"][0]["format"] == "torch zip"
    trainer_with_a_part_missing(out / "trainer")
    shards_with_a_part_missing(out / "shards/checkpoint-1")


def trainer_with_a_part_missing(out):
    for gone, path in (("model.safetensors", "model.safetensors"), ("optimizer.pt", "optimizer.pt"), ("trainer_state.json", None)):
        copy = out / "copy"
        shutil.copytree(out / "checkpoint-4", copy)
        (copy / gone).unlink()
        report = check(copy, whole=False)
        assert problems(report) == ({(path, "missing")} if path else set())
        assert report["state"] == ("hole" if path else "waiting")
        shutil.rmtree(copy)
    # what no rule asks for, the complete checkpoint before it does
    assert check(out / "checkpoint-4", "--like", out / "checkpoint-2")["state"] == "proven"
    shutil.copytree(out / "checkpoint-4", copy)
    (copy / "training_args.bin").unlink()
    assert check(copy)["state"] == "plausible"
    check(copy, "--like", out / "checkpoint-2", whole=False)
    assert len(subprocess.run([STOKER, "checkpoints", "check", "--all", out, "-o", "json"], capture_output=True, text=True,
                              check=False).stdout) > 1000


def shards_with_a_part_missing(model):
    assert check(model)["state"] == "proven"
    gone = sorted(model.glob("model-0000*-of-*.safetensors"))[2]
    body = gone.read_bytes()
    gone.unlink()
    assert problems(check(model, whole=False)) == {(gone.name, "missing")}
    # a shard of an older save: whole by itself, and not what the index names
    shutil.copyfile(sorted(model.glob("model-*.safetensors"))[0], gone)
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {str(i): gone.name for i in range(99)}}))
    assert problems(check(model, whole=False)) == {(gone.name, "size")}
    # all of its length, and nothing in it
    gone.unlink()
    with open(gone, "wb") as f:
        f.truncate(len(body))
    assert verdicts(check(model, whole=False))[gone.name] == "torn"


def test_torch_ranks(tmp_path):
    for step in saver("torch_savers.py", "save", "dcp-2", tmp_path / "dcp", 2):
        report = check(step)
        assert report["state"] == "proven" and report["layout"] == "torchtitan"
        shards = sorted(step.glob("*.distcp"))
        assert {s.name[:4] for s in shards} == {"__0_", "__1_"}
        never_whole_when_cut([step / ".metadata", *shards], tmp_path / "cuts")
        left = step / "__7_0.distcp"
        shutil.copyfile(shards[0], left)
        report = check(step)
        assert report["state"] == "proven" and report["leftovers"] == [left.name]
        left.unlink()
        body = shards[1].read_bytes()
        shards[1].unlink()
        assert problems(check(step, whole=False)) == {(shards[1].name, "missing")}
        shards[1].write_bytes(body[:-1])
        assert (shards[1].name, "size") in problems(check(step, whole=False))
        shards[1].write_bytes(body)
        (step / ".metadata").rename(step / ".metadata.tmp")
        assert check(step, whole=False)["state"] == "unfinished"
        (step / ".metadata.tmp").unlink()
        assert check(step, whole=False)["state"] == "waiting"
    for checkpoint in saver("torch_savers.py", "save", "trainer-2", tmp_path / "trainer", 1):
        assert check(checkpoint, "--world-size", 2)["state"] == "proven"
        assert problems(check(checkpoint, "--world-size", 3, whole=False)) == {("rng_state_2.pth", "missing")}
        (checkpoint / "rng_state_0.pth").unlink()
        assert problems(check(checkpoint, whole=False)) == {("rng_state_0.pth", "missing")}


def test_jax_savers(tmp_path):
    out = tmp_path / "out"
    whole_and_cut("jax_savers.py", out, JAX, tmp_path)
    for name in ("npz-torn", "h5-open"):
        for torn in (out / name).iterdir():
            assert check(torn, whole=False)["state"] == "torn"
    # a quantizer writes zeros first and the header last
    gguf = out / "gguf/model-1.gguf"
    with open(gguf, "r+b") as f:
        f.write(bytes(600))
    assert check(gguf, whole=False)["state"] == "torn"
    # Orbax: before the rename, without its commit, without its data
    step = out / "orbax/1"
    temporary = out / "orbax/1.orbax-checkpoint-tmp"
    shutil.copytree(step, temporary)
    assert check(temporary, whole=False)["state"] == "unfinished"
    shutil.rmtree(step / "default/d")
    assert problems(check(step, whole=False)) == {("default/d/", "missing")}
    marker = out / "orbax/2/_CHECKPOINT_METADATA"
    told = json.loads(marker.read_text())
    assert told["commit_timestamp_nsecs"] > 0
    marker.write_text(json.dumps(dict(told, commit_timestamp_nsecs=None)))
    assert problems(check(out / "orbax/2", whole=False)) == {("_CHECKPOINT_METADATA", "missing")}


def test_tar_without_end(tmp_path):
    path = tmp_path / "shard-0.tar"
    (tmp_path / "sample.txt").write_text("x" * 5000)
    with tarfile.open(path, "w") as tar:
        tar.add(tmp_path / "sample.txt", "000.txt")
    check(path)
    body = path.read_bytes()
    for at in (512, 5632, 5632 + 512, len(body) // 512 * 512 - 9 * 512, 5000):
        path.write_bytes(body[:min(at, 512 + 5120 + 512)])
        check(path, whole=False)


def test_preallocated_file_is_told(tmp_path):
    """All of its structure and none of its bytes: no check of the format can see it, its hole can be."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [1 << 20], "data_offsets": [0, 4 << 20]}}).encode()
    path = tmp_path / "model.safetensors"
    with open(path, "wb") as f:
        f.write(len(header).to_bytes(8, "little") + header)
        f.truncate(8 + len(header) + (4 << 20))
    report = check(path)
    if path.stat().st_blocks * 512 < 1 << 20:  # a file system with holes
        assert report["hole"] == path.name


def test_what_is_no_checkpoint(tmp_path):
    def error(*args):
        done = subprocess.run([STOKER, "checkpoints", "check", *map(str, args)], capture_output=True, text=True,
                              env=dict(os.environ, STOKER_ERRORS="json"))
        return done.returncode, json.loads(done.stderr)["error"]["id"]

    assert error(tmp_path / "nothing") == (3, "not_found")
    assert error(tmp_path) == (3, "not_found")
    (tmp_path / "a").write_text("x")
    assert error(tmp_path, "--all", "--like", tmp_path) == (2, "usage")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "loop").symlink_to(".")
    assert {f["path"] for f in check(tmp_path)["files"]} == {"a", "link"}
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0)
    if os.getuid() != 0:
        assert error(tmp_path)[1] == "denied"


def test_cost(tmp_path):
    """A large file costs its header; many files cost one walk."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [10 ** 12], "data_offsets": [0, 10 ** 12]}}).encode()
    path = tmp_path / "model.safetensors"
    with open(path, "wb") as f:
        f.write(len(header).to_bytes(8, "little") + header)
        f.truncate(8 + len(header) + 10 ** 12)
    assert check(path)["files"][0]["bytes_read"] < 4096
    many = tmp_path / "many"
    for i in range(2000):
        folder = many / f"{i % 20}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"part-{i}.json").write_text("{}\n")
    report = check(many)
    assert len(report["files"]) == 2000 and all(f["bytes_read"] <= 16 for f in report["files"])

