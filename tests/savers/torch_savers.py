"""Real savers of the torch world, each with the framework's own code; see common.py."""
import dataclasses
import glob
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from common import SIZE, Saver, main  # noqa: E402

import torch  # noqa: E402

if torch.__version__ < "2":
    # Debian's torch 1.13 is older than its Python 3.11, which wants the defaults in dataclasses to be hashable.
    real = dataclasses._process_class

    def lenient(cls, init, repr, eq, order, unsafe_hash, *rest):
        if cls.__module__.startswith("torch.distributed.") and not rest[0] and "__hash__" not in cls.__dict__:
            unsafe_hash = True
        return real(cls, init, repr, eq, order, unsafe_hash, *rest)

    dataclasses._process_class = lenient

os.environ.update(TRANSFORMERS_OFFLINE="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")


def tensors(step=1):
    torch.manual_seed(step)
    return {
        "embed.weight": torch.randn(SIZE, 4),
        "norm.weight": torch.ones(8, dtype=torch.float16),
        "steps": torch.arange(5),
        "mask": torch.tensor([True, False]),
        "bf": torch.randn(3).to(torch.bfloat16),
        "complex": torch.tensor([1 + 2j]),
        "empty": torch.empty(0),
    }


def small_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, max(SIZE // 8, 4)), torch.nn.ReLU(), torch.nn.Linear(max(SIZE // 8, 4), 1))


def bert():
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(BertConfig(
        vocab_size=max(SIZE, 50), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16))


# ---- torch.save ----

def save_torch(out, step):
    model = small_model()
    path = os.path.join(out, "ckpt.pt")
    torch.save({"model": tensors(step), "net": model.state_dict(), "step": step, "note": None, "lr": 0.1}, path)
    return path


def load_torch(path):
    assert torch.load(path)["step"] > 0


def save_legacy(out, step):
    path = os.path.join(out, "legacy.pt")
    torch.save(tensors(step), path, _use_new_zipfile_serialization=False)
    return path


def save_torn(out, step):
    """An exception that passes through torch.save, as from a signal handler: its archive is closed all the same."""
    path = os.path.join(out, f"torn-{step}.pt")
    real, left = torch.serialization._open_zipfile_writer_file.__enter__, [3 + step]

    class Writer:
        def __init__(self, under):
            self.under = under

        def write_record(self, *args):
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            self.under.write_record(*args)

    torch.serialization._open_zipfile_writer_file.__enter__ = lambda self: Writer(real(self))
    try:
        torch.save(tensors(step), path)
    except KeyboardInterrupt:
        pass
    finally:
        torch.serialization._open_zipfile_writer_file.__enter__ = real
    return path


def save_module(out, step):
    path = os.path.join(out, f"module-{step}.pth")
    torch.save(small_model(), path)
    return path


def save_script(out, step):
    path = os.path.join(out, f"script-{step}.pt")
    torch.jit.save(torch.jit.script(small_model()), path)
    return path


# ---- transformers, peft ----

def save_shards(out, step, safe=True):
    path = os.path.join(out, f"checkpoint-{step}")
    bert().save_pretrained(path, max_shard_size="4KB", safe_serialization=safe)
    return path


def load_model(path):
    from transformers import AutoModelForSequenceClassification

    _, info = AutoModelForSequenceClassification.from_pretrained(path, output_loading_info=True)
    assert not info["missing_keys"], info


def save_adapter(out, step):
    from peft import LoraConfig, get_peft_model

    path = os.path.join(out, f"adapter-{step}")
    get_peft_model(bert(), LoraConfig(r=2, target_modules=["query"])).save_pretrained(path)
    return path


def load_adapter(path):
    from peft import PeftModel

    PeftModel.from_pretrained(bert(), path)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return {"input_ids": torch.tensor([1, 2, 3, i % 9]), "attention_mask": torch.ones(4, dtype=torch.long),
                "labels": torch.tensor(i % 2)}


def trainer(out, steps, resume=None):
    from transformers import Trainer, TrainingArguments

    args = TrainingArguments(
        output_dir=out, max_steps=steps * 2, save_steps=2, logging_steps=1, report_to=[], per_device_train_batch_size=4, use_cpu=True,
        disable_tqdm=True, save_total_limit=3, ddp_backend="gloo" if "RANK" in os.environ else None)
    made = Trainer(bert(), args, train_dataset=Rows())
    made.train(resume_from_checkpoint=resume)
    return made


def every_trainer(out, steps):
    trainer(out, steps)
    yield os.path.join(out, f"checkpoint-{steps * 2}")


def load_trainer(path):
    with open(os.path.join(path, "trainer_state.json")) as f:
        step = json.load(f)["global_step"]
    out = path.rstrip("/") + ".resumed"
    assert trainer(out, step // 2 + 1, resume=path).state.global_step > step


# ---- accelerate ----

def accelerated(out):
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration

    made = Accelerator(cpu=True, project_config=ProjectConfiguration(project_dir=out, automatic_checkpoint_naming=True))
    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    model, optimizer, schedule = made.prepare(model, optimizer, schedule)
    return made, model, optimizer


def every_accelerate(out, steps):
    made, model, optimizer = accelerated(out)
    for step in range(steps):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        made.save_state()
        yield os.path.join(out, "checkpoints", f"checkpoint_{step}")


def load_accelerate(path):
    accelerated(path + ".resumed")[0].load_state(path)


# ---- torch.distributed.checkpoint: the one of this torch, which had another place before 2.0 ----

def dcp_module():
    if torch.__version__ >= "2":
        import torch.distributed.checkpoint as dcp
    else:
        from torch.distributed._shard import checkpoint as dcp
    return dcp


def sharded(dcp):
    world = torch.distributed.get_world_size()
    if torch.__version__ >= "2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        return distribute_tensor(torch.randn(SIZE, 4), init_device_mesh("cpu", (world,)), [Shard(0)])
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec

    return sharded_tensor.rand(ChunkShardingSpec(dim=0, placements=[f"rank:{r}/cpu" for r in range(world)]), SIZE, 4)


def every_dcp(out, steps):
    dcp = dcp_module()
    torch.distributed.init_process_group("gloo")
    for step in range(1, steps + 1):
        path = os.path.join(out, f"step-{step}")
        state = {"model": tensors(step)["embed.weight"], "sharded": sharded(dcp), "step": step}
        writer = dcp.FileSystemWriter(path, single_file_per_rank=step % 2 == 1)
        if hasattr(dcp, "save"):
            dcp.save(state, storage_writer=writer)
        else:
            dcp.save_state_dict(state, writer)
        yield path
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def load_dcp(path):
    dcp = dcp_module()
    state = {"model": torch.zeros(SIZE, 4)}
    if hasattr(dcp, "load"):
        dcp.load(state, checkpoint_id=path)
    else:
        dcp.load_state_dict(state, dcp.FileSystemReader(path), no_dist=True)
    assert state["model"].abs().sum() > 0


# ---- Lightning ----

def every_lightning(out, steps):
    import lightning as L

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = small_model()

        def training_step(self, batch, _):
            return self.net(batch).sum()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    keep = L.pytorch.callbacks.ModelCheckpoint(out, save_top_k=-1, save_last=True, every_n_train_steps=2)
    made = L.Trainer(max_steps=steps * 2, accelerator="cpu", logger=False, callbacks=[keep], enable_progress_bar=False,
                     enable_model_summary=False, default_root_dir=out)
    made.fit(Module(), torch.utils.data.DataLoader(torch.ones(64, 4), batch_size=4))
    yield keep.best_model_path or sorted(glob.glob(os.path.join(out, "*.ckpt")))[-1]


def load_lightning(path):
    assert torch.load(path)["state_dict"]


BERT = ["transformers.models.bert.modeling_bert"]
TRAINER = [*BERT, "transformers.trainer", "transformers.training_args", "accelerate"]
SAVERS = {
    "torch": Saver(save_torch, load_torch),
    "legacy": Saver(save_legacy, torch.load),
    "torn": Saver(save_torn, torch.load),
    "module": Saver(save_module, torch.load),
    "script": Saver(save_script, torch.jit.load),
    "shards": Saver(save_shards, load_model, needs=BERT),
    "bin-shards": Saver(lambda out, step: save_shards(out, step, False), load_model),
    "adapter": Saver(save_adapter, load_adapter),
    "trainer": Saver(every=every_trainer, load=load_trainer, needs=TRAINER),
    "trainer-2": Saver(every=every_trainer, load=load_trainer, ranks=2, needs=TRAINER),
    "accelerate": Saver(every=every_accelerate, load=load_accelerate, needs=["accelerate"]),
    "dcp-2": Saver(every=every_dcp, load=load_dcp, ranks=2),
    "lightning": Saver(every=every_lightning, load=load_lightning, needs=["lightning"]),
}

if __name__ == "__main__":
    sys.exit(main(SAVERS))
