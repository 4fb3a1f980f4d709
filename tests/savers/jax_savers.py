"""Real savers of the JAX world, and GGUF, HDF5 and NumPy, each with the library's own code; see common.py."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from common import SIZE, Saver, main  # noqa: E402

os.environ.update(KERAS_BACKEND="jax", JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="3")
import numpy as np  # noqa: E402


def arrays(step=1):
    rng = np.random.default_rng(step)
    return {"embed": rng.random((SIZE, 4), dtype=np.float32), "norm": np.ones(8, np.float16), "steps": np.arange(5)}


# ---- Orbax ----

def every_orbax(out, steps):
    import orbax.checkpoint as ocp

    with ocp.CheckpointManager(os.path.abspath(out), options=ocp.CheckpointManagerOptions(max_to_keep=3)) as manager:
        for step in range(1, steps + 1):
            manager.save(step, args=ocp.args.StandardSave(arrays(step)))
            manager.wait_until_finished()
            yield os.path.join(out, str(step))


def load_orbax(path):
    import orbax.checkpoint as ocp

    step, above = os.path.basename(path.rstrip("/")), os.path.dirname(os.path.abspath(path))
    with ocp.CheckpointManager(above) as manager:
        got = manager.restore(int(step), args=ocp.args.StandardRestore(arrays()))
    assert np.asarray(got["embed"]).shape == (SIZE, 4)


def save_orbax_zarr(out, step):
    import orbax.checkpoint as ocp

    path = os.path.join(os.path.abspath(out), f"zarr-{step}")
    ocp.PyTreeCheckpointer(use_ocdbt=False).save(path, arrays(step))
    return path


def load_orbax_zarr(path):
    import orbax.checkpoint as ocp

    assert ocp.PyTreeCheckpointer(use_ocdbt=False).restore(os.path.abspath(path))["embed"].shape == (SIZE, 4)


# ---- Flax ----

def save_flax(out, step):
    import flax
    from flax.training import checkpoints

    flax.config.update("flax_use_orbax_checkpointing", False)
    return checkpoints.save_checkpoint(os.path.abspath(out), arrays(step), step, keep=3)


def load_flax(path):
    from flax import serialization

    with open(path, "rb") as f:
        assert serialization.msgpack_restore(f.read())["embed"].shape == (SIZE, 4)


# ---- Keras ----

def keras_model():
    import keras

    made = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(max(SIZE // 8, 4)), keras.layers.Dense(1)])
    made.compile("adam", "mse")
    made.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0)
    return made


def save_keras(out, step):
    path = os.path.join(out, f"model-{step}.keras")
    keras_model().save(path)
    return path


def load_keras(path):
    import keras

    keras.models.load_model(path)


def save_weights(out, step):
    path = os.path.join(out, f"model-{step}.weights.h5")
    keras_model().save_weights(path)
    return path


def load_weights(path):
    keras_model().load_weights(path)


# ---- GGUF, HDF5, NumPy ----

def save_gguf(out, step):
    import gguf

    path = os.path.join(out, f"model-{step}.gguf")
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(2)
    w.add_array("tokenizer.ggml.tokens", ["<s>", "</s>", "a"])
    w.add_array("tokenizer.ggml.scores", [0.0, 0.5, 1.0])
    for name, value in arrays(step).items():
        w.add_tensor(name, value)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def load_gguf(path):
    import gguf

    assert sum(t.data.size for t in gguf.GGUFReader(path).tensors) > SIZE


def save_gguf_types(out, step):
    """One tensor of each type of ggml that the library has the size of."""
    import gguf
    from gguf.constants import GGML_QUANT_SIZES

    path = os.path.join(out, f"types-{step}.gguf")
    w = gguf.GGUFWriter(path, "llama")
    for kind, (_, size) in GGML_QUANT_SIZES.items():
        w.add_tensor(kind.name, np.zeros((2, size), np.uint8), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def save_h5(out, step, libver="earliest"):
    import h5py

    path = os.path.join(out, f"{libver}-{step}.h5")
    with h5py.File(path, "w", libver=libver) as f:
        for name, value in arrays(step).items():
            f[name] = value
    return path


def load_h5(path):
    import h5py

    with h5py.File(path) as f:
        assert f["embed"].shape == (SIZE, 4)


def save_npz(out, step, packed=False):
    path = os.path.join(out, f"{'packed' if packed else 'plain'}-{step}.npz")
    (np.savez_compressed if packed else np.savez)(path, **arrays(step))
    return path


def save_npz_torn(out, step):
    """An exception while the second array is written: zipfile finishes the archive all the same."""
    path = os.path.join(out, f"torn-{step}.npz")
    try:
        np.savez(path, first=np.arange(5), second=np.array([b"x" * 100, lambda: None], dtype=object))
    except Exception:  # a function cannot be pickled; which error it is depends on the version
        pass
    return path


def save_h5_open(out, step):
    """A writer that ended without closing its file."""
    path = os.path.join(out, f"open-{step}.h5")
    if os.fork() == 0:
        import h5py

        f = h5py.File(path, "w", libver="latest" if step % 2 else "earliest")
        f["first"] = np.arange(1000)
        f.flush()
        f["second"] = np.arange(100000)
        os.kill(os.getpid(), 9)
    os.wait()
    return path


def load_npz(path):
    with np.load(path) as f:
        assert all(f[name].size > 0 for name in f.files)


def save_npy(out, step):
    path = os.path.join(out, f"embed-{step}.npy")
    np.save(path, arrays(step)["embed"])
    return path


def save_objects(out, step):
    path = os.path.join(out, f"objects-{step}.npy")
    np.save(path, np.array([{"a": 1}, None], dtype=object))
    return path


def load_npy(path):
    np.load(path, allow_pickle=True)


SAVERS = {
    "orbax": Saver(every=every_orbax, load=load_orbax, needs=["orbax.checkpoint"]),
    "orbax-zarr": Saver(save_orbax_zarr, load_orbax_zarr),
    "flax": Saver(save_flax, load_flax, needs=["flax.training.checkpoints"]),
    "keras": Saver(save_keras, load_keras, needs=["keras"]),
    "keras-h5": Saver(save_weights, load_weights),
    "gguf": Saver(save_gguf, load_gguf, needs=["gguf"]),
    "gguf-types": Saver(save_gguf_types, load_gguf),
    "h5": Saver(save_h5, load_h5),
    "h5-latest": Saver(lambda out, step: save_h5(out, step, "latest"), load_h5),
    "npz": Saver(save_npz, load_npz),
    "npz-packed": Saver(lambda out, step: save_npz(out, step, True), load_npz),
    "npz-torn": Saver(save_npz_torn, load_npz),
    "h5-open": Saver(save_h5_open, load_h5),
    "npy": Saver(save_npy, load_npy),
    "npy-objects": Saver(save_objects, load_npy),
}

if __name__ == "__main__":
    sys.exit(main(SAVERS))
