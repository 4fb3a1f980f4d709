"""On a machine with an NVIDIA GPU, for real: STOKER_GPU_PYTHON names a Python whose torch, triton and transformers find it. Elsewhere not collected."""
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import textwrap
import time
import urllib.request

import pytest
from conftest import CALL_S, CLUSTER, ROOT, new_cluster, until
from containers import local_image, root_tar

pytestmark = pytest.mark.timeout(600)

PYTHON = os.environ["STOKER_GPU_PYTHON"]
TRAIN = (ROOT / "tests/e2e/recipes/serve/train.py").read_text()
LONG = 300  # seconds for what loads torch from a cold disk


def smi(query, *flags):
    """Rows of nvidia-smi."""
    out = subprocess.run(["nvidia-smi", *flags, f"--query-{query}", "--format=csv,noheader,nounits"], check=True, capture_output=True, text=True, timeout=CALL_S).stdout
    return [[cell.strip() for cell in line.split(",")] for line in out.splitlines() if line.strip()]


def shared():
    """Folders of that Python that jobs would not see."""
    said = subprocess.run([PYTHON, "-c", "import sys; print(sys.prefix); print(sys.base_prefix)"], check=True, capture_output=True, text=True, timeout=CALL_S).stdout
    return [flag for folder in sorted(set(said.split())) if not folder.startswith("/usr") for flag in ("--share", folder)]


@pytest.fixture(scope="module")
def machine():
    with new_cluster() as c:
        c.start("--hub-upstream", "off", *shared())
        yield c


@pytest.fixture
def site(machine, request):
    request.node.stash[CLUSTER] = machine
    return machine


@pytest.fixture(scope="module")
def gpu(machine):
    """What a job asks for to have one of this machine's."""
    kind = machine.api("GET", "/v1/training/capacity")[1]["gpu_capacities"][0]["gpu_type"]
    return {"cpu_count": 2, "memory": "16Gi", "accelerator": f"{kind}:1"}


def push(c, program, compute, **kw):
    """A job that runs one Python program."""
    files = {"main.py": textwrap.dedent(program), **kw.pop("files", {})}
    return c.push([f"{PYTHON} main.py"], files=files, compute=compute, **kw)


def run(c, program, compute, **kw):
    job = push(c, program, compute, **kw)
    c.wait(job, "TRAINING_JOB_COMPLETED", deadline=LONG)
    return [json.loads(line[5:]) for line in c.user_lines(job) if line.startswith("said ")], job


def ended_with(c, job):
    return c.wait(job, deadline=LONG)


def test_the_machine_is_known(site):
    names = smi("gpu=name,memory.total,uuid")
    rows = site.api("GET", "/v1/training/capacity")[1]["gpu_capacities"]
    assert sum(row["baseline"] for row in rows) == len(names), (rows, names)
    assert all(any(row["gpu_type"].partition("_")[0] in name for name, *_ in names) for row in rows), (rows, names)
    assert re.search(rf"{len(names)} GPUs? \(", site.cli("doctor").out), site.cli("doctor")


def test_a_job_has_its_own(site, gpu):
    (said,), job = run(site, """
        import glob, json, os, subprocess, torch
        x = torch.randn(2048, 2048, device="cuda")
        pinned = torch.ones(1 << 26).pin_memory()
        print("said", json.dumps({
            "devices": torch.cuda.device_count(), "right": torch.allclose((x @ x).cpu(), x.cpu() @ x.cpu(), atol=1e-1, rtol=1e-2),
            "pinned": pinned.cuda(non_blocking=True).sum().item(), "visible": os.environ["CUDA_VISIBLE_DEVICES"],
            "nodes": sorted(glob.glob("/dev/nvidia[0-9]*")), "smi": subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout, "uid": os.getuid()}))
        """, gpu)
    assert said["devices"] == 1 and said["right"] and said["pinned"] == 1 << 26 and len(said["nodes"]) == 1, said
    assert said["visible"] in [uuid for uuid, in smi("gpu=uuid")] and said["visible"] in said["smi"], said
    assert site.job(job)["instance_type"]["gpu_memory_limit_mib"] in range(int(smi("gpu=memory.total")[0][0]) - 2048, int(smi("gpu=memory.total")[0][0]) + 2048)


def test_a_job_without_has_none(site):
    """Nor may it make a device of its own, or find one by another way."""
    (said,), _ = run(site, """
        import ctypes, glob, json, os, stat
        tried = {}
        for path in ("/tmp/gpu", "/dev/shm/gpu"):
            for device in (os.makedev(195, 255), os.makedev(195, 0)):
                try:
                    os.mknod(path, 0o666 | stat.S_IFCHR, device)
                    os.open(path, os.O_RDWR)
                    tried[path] = "opened"
                except OSError as e:
                    tried[path] = e.strerror
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        import torch
        print("said", json.dumps({"nodes": glob.glob("/dev/nvidia*") + glob.glob("/dev/dri/*"), "found": torch.cuda.is_available(), "tried": tried}))
        """, {"cpu_count": 1, "memory": "4Gi"})
    assert said["nodes"] == [] and not said["found"] and "opened" not in said["tried"].values(), said


def test_processes_share_tensors(site, gpu):
    """By CUDA's handles and by pidfds, as data loaders and inference servers do."""
    (said,), _ = run(site, """
        import json, os
        import torch, torch.multiprocessing as mp

        def child(queue, back):
            x = queue.get()
            x += 1
            torch.cuda.synchronize()
            back.put(float(x.sum()))
            queue.get()

        if __name__ == "__main__":
            context, told = mp.get_context("spawn"), []
            for expandable in (False, True):
                torch.cuda.memory._set_allocator_settings(f"expandable_segments:{expandable}")
                queue, back = context.Queue(), context.Queue()
                process = context.Process(target=child, args=(queue, back))
                process.start()
                x = torch.zeros(1 << 20, device="cuda")
                queue.put(x)
                told.append(back.get(timeout=100))
                queue.put(None)
                process.join()
                told.append(float(x.sum()))
            print("said", json.dumps(told))
        """, gpu)
    assert said == [float(1 << 20)] * 4


def test_use_is_measured(site, gpu):
    job = push(site, """
        import os, time, torch
        held = torch.empty(8 << 30, dtype=torch.uint8, device="cuda").fill_(1)
        x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        print("begun", flush=True)
        while not os.path.exists("/tmp/go"):
            for _ in range(50):
                y = x @ x
            torch.cuda.synchronize()
        """, gpu)
    until(lambda: "begun" in site.logs(job), LONG)

    def last(kind):
        points = site.json("metrics", job["id"])[kind].get("0") or [{"value": 0}]
        return points[-1]["value"]

    until(lambda: last("gpu_utilization") > 0.5, 30)
    used, = smi("gpu=memory.used,utilization.gpu")
    assert abs(last("gpu_memory_usage_bytes") - int(used[0]) * 2**20) < 2**30 and last("gpu_memory_usage_bytes") > 8 << 30, used
    # a job of another that wants one waits for it
    second = site.push(["echo mine"], compute=gpu)
    assert site.job(second)["current_status"] in ("TRAINING_JOB_CREATED", "TRAINING_JOB_PENDING") and site.job(second)["place_in_line"] is not None
    assert "GPU-" in site.cli("exec", job["id"], "--", "nvidia-smi", "-L").out
    site.release(job)
    site.wait(job, "TRAINING_JOB_COMPLETED")
    site.wait(second, "TRAINING_JOB_COMPLETED")


def test_idle_and_busy(site, gpu):
    hung = push(site, """
        import time, torch
        held = torch.ones(1 << 30, device="cuda")
        time.sleep(600)
        """, gpu, limits={"idle_gpu": "4s", "stop_grace": "1s"})
    job = ended_with(site, hung)
    assert job["current_status"] == "TRAINING_JOB_FAILED" and job["end"]["kind"] == "idle", job
    busy = push(site, """
        import time, torch
        x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        end = time.monotonic() + 12
        while time.monotonic() < end:
            for _ in range(20):
                y = x @ x
            torch.cuda.synchronize()
        """, gpu, limits={"idle_gpu": "6s"})
    assert ended_with(site, busy)["current_status"] == "TRAINING_JOB_COMPLETED", site.logs(busy)


def test_nothing_is_left_on_it(site, gpu):
    """What the job has started away from itself lets go of the GPU before the next job gets it."""
    job = site.push([f"setsid {PYTHON} main.py > /tmp/out 2>&1 & until grep -q held /tmp/out; do sleep 0.1; done; echo begun; sleep 600"], compute=gpu, files={"main.py": textwrap.dedent("""
        import signal, time, torch
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        x = torch.empty(16 << 30, dtype=torch.uint8, device="cuda").fill_(1)
        print("held", flush=True)
        time.sleep(600)
        """)})
    until(lambda: "begun" in site.logs(job), LONG)
    assert int(smi("gpu=memory.used")[0][0]) > 16 << 10
    after = site.push(["nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits"], compute=gpu)
    site.cli("stop", job["id"], "--now")
    site.wait(after, "TRAINING_JOB_COMPLETED")
    assert int(site.user_lines(after)[0]) < 2048, site.logs(after)
    assert smi("compute-apps=pid") == []


COMPILED = """
    import glob, json, os, time
    import torch, triton, triton.language as tl

    @triton.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(512, 512) for _ in range(6))
        def forward(self, x):
            for layer in self.layers:
                x = torch.nn.functional.gelu(layer(x)) * torch.sigmoid(x) + x
            return torch.softmax(x, -1).sum()

    torch.manual_seed(1)
    before = sum(len(f) for _, _, f in os.walk(os.environ["TRITON_CACHE_DIR"]))
    x, net = torch.randn(64, 512, device="cuda"), Net().cuda()
    began = time.monotonic()
    out = torch.empty_like(x)
    add[(64,)](x, x, out, x.numel(), BLOCK=512)
    assert torch.equal(out, x + x)
    alone = time.monotonic() - began
    began = time.monotonic()
    loss = torch.compile(net)(x)
    loss.backward()
    torch.cuda.synchronize()
    counters = torch._dynamo.utils.counters["inductor"]
    print("said", json.dumps({"before": before, "after": sum(len(f) for _, _, f in os.walk(os.environ["TRITON_CACHE_DIR"])), "triton_s": alone, "compile_s": time.monotonic() - began,
                              "hit": counters["fxgraph_cache_hit"], "miss": counters["fxgraph_cache_miss"]}), flush=True)
    """


def test_nothing_is_compiled_twice(site, gpu):
    cache = {"compile_cache": {"enabled": True, "repo": "gpu"}}
    (first,), job = run(site, COMPILED, gpu, runtime=dict(cache))
    assert first["miss"] > 0 and first["hit"] == 0, (first, site.logs(job))
    (second,), again = run(site, COMPILED, gpu, runtime=dict(cache))
    print("compiled", first, second)
    assert second["hit"] > 0 and second["miss"] == 0, (second, site.logs(again))
    assert second["after"] == second["before"] >= first["after"], (first, second, site.logs(again))
    assert "added" not in site.logs(again), site.logs(again)
    why = site.cli("compile-cache", "why", job["id"]).out
    assert "first" in why, why
    assert "nvidia" in site.cli("compile-cache", "ls", "gpu").out


JAX = """
    import json, os, time
    import jax, jax.numpy as jnp
    hits = {}
    jax.monitoring.register_event_listener(lambda event, **_: hits.__setitem__(event, hits.get(event, 0) + 1))
    began = time.monotonic()
    f = jax.jit(lambda x: jax.nn.softmax(jnp.tanh(x @ x.T) @ x).sum())
    value = float(jax.grad(lambda x: f(x))(jnp.ones((512, 512)) * 0.01).sum())
    print("said", json.dumps({"on": jax.devices()[0].platform, "value": value, "seconds": time.monotonic() - began, "hit": hits.get("/jax/compilation_cache/cache_hits", 0),
                              "miss": hits.get("/jax/compilation_cache/cache_misses", 0)}))
    """


def test_nothing_of_jax_is_compiled_twice(site, gpu):
    runtime = {"compile_cache": {"enabled": True, "repo": "jax"}, "environment_variables": {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}}
    (first,), job = run(site, JAX, gpu, runtime=dict(runtime))
    assert first["on"] == "gpu" and first["miss"] > 0, (first, site.logs(job))
    (second,), again = run(site, JAX, gpu, runtime=dict(runtime))
    print("jax", first, second)
    assert second["hit"] > 0 and second["miss"] == 0 and second["value"] == first["value"], (first, second, site.logs(again))
    assert "added" not in site.logs(again), site.logs(again)


def test_a_launcher_of_processes(site, gpu):
    """What a file of several nodes says, on one: torchrun and NCCL."""
    program = """
        import json, os, torch, torch.distributed as dist
        dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
        x = torch.ones(1 << 20, device="cuda")
        dist.all_reduce(x)
        print("said", json.dumps({"sum": float(x.sum()), "world": dist.get_world_size()}), flush=True)
        dist.destroy_process_group()
        """
    command = f"{PYTHON} -m torch.distributed.run --nnodes $BT_GROUP_SIZE --node_rank $BT_NODE_RANK --nproc_per_node $BT_NUM_GPUS --master_addr $BT_LEADER_ADDR --master_port 29511 main.py"
    job = site.push([command], files={"main.py": textwrap.dedent(program)}, compute=gpu)
    site.wait(job, "TRAINING_JOB_COMPLETED", deadline=LONG)
    assert f'said {{"sum": {float(1 << 20)}, "world": 1}}' in site.user_lines(job), site.logs(job)


def test_a_library_of_cuda_is_built_once(site, gpu):
    program = """
        import json, time
        from torch.utils.cpp_extension import load_inline
        import torch
        began = time.monotonic()
        lib = load_inline("twice_of", cpp_sources="torch::Tensor twice(torch::Tensor x);", functions=["twice"], cuda_sources='''
            __global__ void k(float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2; }
            torch::Tensor twice(torch::Tensor x) { k<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), x.numel()); return x; }''')
        x = torch.ones(1000, device="cuda")
        lib.twice(x)
        print("said", json.dumps({"sum": float(x.sum()), "seconds": time.monotonic() - began}))
        """
    runtime = {"compile_cache": {"enabled": True, "repo": "lib"}, "environment_variables": {"TORCH_CUDA_ARCH_LIST": "9.0", "PATH": f"{pathlib.Path(PYTHON).parent}:/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin"}}
    (first,), _ = run(site, program, gpu, runtime=dict(runtime))
    (second,), job = run(site, program, gpu, runtime=dict(runtime))
    print("built", first, second)
    assert first["sum"] == second["sum"] == 2000, (first, second, site.logs(job))


RESUMED = """
    import json, os, pathlib
    import torch
    torch.manual_seed(3)
    torch.use_deterministic_algorithms(True)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    folder, before, first = pathlib.Path(os.environ["BT_CHECKPOINT_DIR"]), os.environ.get("STOKER_RESUME_FROM"), 0
    if before:
        state = torch.load(f"{before}/state.pt", map_location="cuda")
        net.load_state_dict(state["net"]), optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    for step in range(first + 1, 101):
        x = torch.randn(256, 64, generator=torch.Generator().manual_seed(step)).cuda()
        loss = ((net(x) - x.sum(-1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        if step % 20 == 0:
            (folder / f"step-{step}").mkdir()
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, folder / f"step-{step}/state.pt")
        if step == 50 and "DIE" in os.environ and not before:
            os.kill(os.getpid(), 9)
    print("said", json.dumps({"first": first, "loss": loss.item()}))
    """


def test_training_goes_on_from_its_checkpoint(site, gpu):
    runtime = {"checkpointing_config": {"enabled": True}, "load_checkpoint_config": {"enabled": True}}
    (whole,), _ = run(site, RESUMED, gpu, project="whole", runtime={**runtime, "environment_variables": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}})
    (resumed,), job = run(site, RESUMED, gpu, project="killed", runtime={**runtime, "environment_variables": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "DIE": "1"}}, retry={"on": ["failure"], "max_attempts": 3})
    assert whole["first"] == 0 and resumed["first"] == 40, (whole, resumed, site.logs(job))
    assert resumed["loss"] == whole["loss"], (whole, resumed)


def test_a_checkpoint_answers(site, gpu):
    job = site.push([f"{PYTHON} train.py"], files={"train.py": TRAIN}, compute=gpu, runtime={"checkpointing_config": {"enabled": True}})
    site.wait(job, "TRAINING_JOB_COMPLETED", deadline=LONG)
    more = [flag for name in ("PYTHONPATH",) if name in os.environ for flag in ("-e", f"{name}={os.environ[name]}")]
    site.cli("deploy", f"{job['id']}/checkpoint-60", "--name", "mine", "--engine", "transformers", "-e", f"PATH={pathlib.Path(PYTHON).parent}:/usr/bin:/bin", *more)
    until(lambda: [r["ready"] for r in site.json("deployments", "view", "mine")["replicas"]] == [True], LONG)
    assert smi("compute-apps=pid,used_memory"), "the engine is not on the GPU"

    def ask(stream):
        body = {"model": "mine", "messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 12, "stream": stream}
        rq = urllib.request.Request(f"{site.url}/deployments/mine/v1/chat/completions", json.dumps(body).encode(),
                                    {"Authorization": f"Bearer {site.token}", "Content-Type": "application/json"})
        began = time.monotonic()
        with urllib.request.urlopen(rq, timeout=CALL_S) as reply:
            first = reply.readline()
            took = time.monotonic() - began
            return took, first + reply.read()

    said = json.loads(ask(False)[1])["choices"][0]["message"]["content"]
    assert said, said
    times, chunks = [], None
    for _ in range(10):
        took, body = ask(True)
        times.append(took)
        chunks = [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: {")]
        assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]) == said
    print("first line of a stream, median s:", statistics.median(times), "chunks", len(chunks))
    site.cli("deployments", "rm", "mine", "--yes")
    until(lambda: smi("compute-apps=pid") == [], 60)


SUM = r"""
    #include <cstdio>
    __global__ void fill(int *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = i; }
    int main() {
        int *x, *y = new int[1 << 20];
        cudaDeviceProp p;
        long sum = 0;
        if (cudaGetDeviceProperties(&p, 0) != cudaSuccess || cudaMalloc(&x, 4 << 20) != cudaSuccess) { puts(cudaGetErrorString(cudaGetLastError())); return 1; }
        fill<<<4096, 256>>>(x, 1 << 20);
        if (cudaMemcpy(y, x, 4 << 20, cudaMemcpyDeviceToHost) != cudaSuccess) { puts(cudaGetErrorString(cudaGetLastError())); return 1; }
        for (int i = 0; i < 1 << 20; i++) sum += y[i];
        printf("%s: %ld\n", p.name, sum);
        return 0;
    }
    """


@pytest.fixture
def image(site):
    """One with a program whose kernel the driver must compile, and the C library; nothing of a driver."""
    tar = root_tar(site.folder)
    root = site.folder / "root"
    (site.folder / "sum.cu").write_text(textwrap.dedent(SUM))
    subprocess.run(["nvcc", "-gencode", "arch=compute_75,code=compute_75", "-o", root / "bin/sum", site.folder / "sum.cu"], check=True, timeout=CALL_S)
    for line in subprocess.run(["ldd", root / "bin/sum"], check=True, capture_output=True, text=True, timeout=CALL_S).stdout.splitlines():
        path = next((word for word in line.split() if word.startswith("/")), None)
        if path and "libcuda" not in path:
            (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / path[1:])
    for path in ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"):
        shutil.copy(pathlib.Path("/lib/x86_64-linux-gnu") / path, root / "lib/x86_64-linux-gnu")
    subprocess.run(["tar", "-cf", tar, "-C", root, "."], check=True, timeout=CALL_S)
    with local_image(site.folder) as name:
        yield name


@pytest.mark.skipif(not shutil.which("podman") or not shutil.which("nvcc"), reason="podman and nvcc are needed")
def test_in_an_image(site, gpu, image):
    """The driver is the machine's: the image has none, and the machine needs no container toolkit."""
    names = [name for name, in smi("gpu=name")]
    job = site.push(["ls /dev | grep nvidia | tr '\\n' ' '; echo", "ls /usr/local/nvidia/lib64 | tr '\\n' ' '; echo", "nvidia-smi -L", "sum"], compute=gpu, image={"base_image": image})
    site.wait(job, "TRAINING_JOB_COMPLETED", deadline=LONG)
    lines = site.user_lines(job)
    print(lines)
    assert f"{names[0]}: {sum(range(1 << 20))}" in lines and len([x for x in lines if x.startswith("GPU ")]) == 1, site.logs(job)
    without = site.push(["sum && exit 3; nvidia-smi && exit 3; ls /dev | grep nvidia && exit 3; true"], image={"base_image": image})
    site.wait(without, "TRAINING_JOB_COMPLETED")
