"""Rows about starting: from the command to the first line of the user's code, with nothing to fetch and with a large
model that is there already.

The user's code prints the time by bash's EPOCHREALTIME; a container without bash counts until its line arrives."""
import json
import os
import shutil
import subprocess
import tempfile
import time

import peers
from harness import MIB, Contender, Row, Run, Wrong
from peers import PEERS, tool, version

SAY = "echo first $EPOCHREALTIME"
DEADLINE_S = 120
STOKER = "build/rel/src/stoker"


def until_line(argv, env=None, cwd=None, extra=()):
    """Runs to the end; wall seconds until the line "first ..." was printed, or arrived."""
    with tempfile.TemporaryFile("w+") as err:
        since = time.time()
        process = subprocess.Popen([str(a) for a in argv], env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=err, text=True, errors="replace")
        wall, seen = None, []
        for line in process.stdout:
            at = time.time()
            words = line.split()
            if "first" in words and wall is None:
                rest = words[words.index("first") + 1:]
                wall = (float(rest[0]) if rest else at) - since
            seen.append(line.rstrip())
        if process.wait(DEADLINE_S) != 0 or wall is None:
            err.seek(0)
            raise Wrong(f"exit status {process.returncode}: {' '.join((err.read() or ' '.join(seen)).split())[-300:]}")
    for word in extra:
        if word not in " ".join(seen):
            raise Wrong(f"the job did not say {word}: {' '.join(seen)[-300:]}")
    return Run(wall)


def push_folder(server, folder, name, commands, weights=(), **runtime):
    where = folder / name
    where.mkdir()
    job = {"compute": {"cpu_count": 1, "memory": "512Mi"}, "runtime": {"start_commands": commands, **runtime}, "weights": list(weights)}
    (where / "train.yaml").write_text(json.dumps({"project": name, "job": job}))  # JSON is YAML

    def once(extra=()):
        return until_line([server.binary, "push", "-f", where / "train.yaml"], server.env, extra=extra)
    return once


def busybox_image(folder):
    """An image of one static program, by podman import; its name, or None."""
    podman, box = tool("podman"), tool("busybox")
    if not podman or not box:
        return None
    root = folder / "image"
    (root / "bin").mkdir(parents=True)
    shutil.copy(box, root / "bin/busybox")
    (root / "bin/sh").symlink_to("busybox")
    subprocess.run(["tar", "-C", str(root), "-cf", str(folder / "image.tar"), "."], check=True)
    subprocess.run([podman, "import", str(folder / "image.tar"), "localhost/stoker-bench:1"], check=True, capture_output=True)
    return "localhost/stoker-bench:1"


def absent(*names):
    gone = [n for n in names if not tool(n)]
    return f"no {gone[0]}: {PEERS}" if gone else None


def first_line(bench):
    folder = bench.folder / "start"
    folder.mkdir()
    row = Row("start", "from the command to the first line of the user's code", "none; the limit is fork and exec", unit="ms")
    bash = [tool("bash"), "-c", SAY]
    bwrap = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--unshare-pid", "--die-with-parent"]
    image = busybox_image(folder)
    run_podman = [tool("podman"), "--runtime", "runc", "run", "--rm", "--network", "none",
                  "--ulimit", "nofile=1000:1000", "--ulimit", "nproc=1000:1000", image, "/bin/sh", "-c", "echo first"]
    slurm = server = None
    try:
        gone = absent("srun", "slurmctld", "slurmd", "munged")
        if not gone:
            try:
                slurm = peers.Slurm(folder)
            except (RuntimeError, OSError) as e:
                gone = f"its daemons did not start: {e}"
        server = peers.Stoker(bench.root / STOKER, folder, "--cpus", "4", "--memory", "4Gi")
        bench.play(row, [
            Contender("stoker push -f", push_folder(server, folder, "hello", [SAY]), ours=True),
            Contender("srun", lambda: until_line([tool("srun"), "-Q", *bash], slurm.env), version("slurmd", "-V"),
                      missing=gone),
            Contender("podman run", lambda: until_line(run_podman), version("podman") + " runc, busybox",
                      missing=absent("podman", "runc", "busybox")),
            Contender("bwrap", lambda: until_line([tool("bwrap"), *bwrap, *bash]), version("bwrap") + " alone",
                      missing=absent("bwrap")),
            Contender("bash", lambda: until_line(bash), version("bash") + " alone", peer=False),
        ], ("fork and exec of a program that does nothing", bench.limits["fork_exec_s"]))
    finally:
        for part in (server, slurm):
            if part:
                part.stop()
        if image:
            subprocess.run([tool("podman"), "rmi", "-f", image], capture_output=True, check=False)


def warm_model(bench):
    """Pushed once to mirror the model; then what a push costs when it is in the mirror and in the node's cache."""
    folder = bench.folder / "warm"
    folder.mkdir()
    model = bench.repository("one")
    size = os.path.getsize(model / "model.bin")
    row = Row("warm", f"start with a model of {size // MIB} MiB that is mirrored and in the node's cache",
              "mount ready < 10 ms: beside the same push without weights", unit="ms")
    server = peers.Stoker(bench.root / STOKER, folder, "--cpus", "4", "--memory", "4Gi", "--allow-file-root", str(bench.www))
    try:
        weights = [{"source": f"file://{model}", "mount_location": "/models/m"}]
        say = ["test \"$(stat -c %s /models/m/model.bin)\" = " + str(size) + " && " + SAY + " || echo no model"]
        warm = push_folder(server, folder, "warm", say, weights)
        since = time.monotonic()
        warm()
        cold = time.monotonic() - since
        bench.play(row, [
            Contender("stoker push -f, model", warm, ours=True),
            Contender("stoker push -f, no weights", push_folder(server, folder, "bare", [SAY]), ours=True),
        ], ("fork and exec of a program that does nothing", bench.limits["fork_exec_s"]))
        print(f"   the first push, which mirrored the model: {cold:.2f} s to the job's end")
    finally:
        server.stop()


def warm_python(bench):
    """Pushed once to build the environment from PyPI; then what a push costs when it is in the node's cache."""
    folder = bench.folder / "python"
    folder.mkdir()
    numpy = "numpy==1.26.4"
    row = Row("python", f"start with a Python environment ({numpy}) that is in the node's cache",
              "environment ready < 100 ms: beside the same push without one", unit="ms")
    uv = peers.PARTS / "uv/bin/uv"
    env = {**os.environ, "UV_CACHE_DIR": str(folder / "uv"), "UV_PYTHON_DOWNLOADS": "never"}
    run_uv = [uv, "run", "--no-project", "--with", numpy, "--python", "python3"]
    there = "test -d $VIRTUAL_ENV/lib/python3*/site-packages/numpy && " + SAY + " || echo no numpy"
    server = peers.Stoker(bench.root / STOKER, folder, "--cpus", "4", "--memory", "4Gi")
    try:
        with_it = push_folder(server, folder, "with", [there], python=[numpy])
        since = time.monotonic()
        with_it()
        cold = time.monotonic() - since
        bench.play(row, [
            Contender("stoker push -f, environment", with_it, ours=True),
            Contender("stoker push -f, none", push_folder(server, folder, "without", [SAY]), ours=True),
            Contender("uv run --with", lambda: until_line([*run_uv, tool("bash"), "-c", SAY], env), "no sandbox",
                      missing=None if uv.exists() else f"no uv: {PEERS}"),
        ], ("fork and exec of a program that does nothing", bench.limits["fork_exec_s"]))
        print(f"   the first push, which built the environment: {cold:.2f} s to the job's end")
    finally:
        server.stop()
