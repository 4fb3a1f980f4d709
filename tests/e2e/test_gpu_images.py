"""What a job in an image gets of a GPU whose driver is made up: files where a driver's would lie, devices that read as /dev/zero does."""
import contextlib
import fcntl
import os
import pathlib
import stat
import subprocess

import pytest
from conftest import CALL_S, ROOT
from containers import devices_stay, local_image, no_idmapped_mounts

NODES = ("nvidia0", "nvidia1", "nvidiactl")


@pytest.fixture(params=["confined", "root"])
def machine(empty_cluster, request):
    """A server on it. The driver's folder has links as distributions make them, and a library that computing has no need of."""
    if os.geteuid() != 0:
        pytest.skip("wants to make /dev/nvidia*")
    folder = empty_cluster.folder / "driver"
    (folder / "tools").mkdir(parents=True)
    empty_cluster.folder.chmod(0o711)  # for runners, who are not root
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", folder / "libnvidia-ml.so.580.1", ROOT / "tests/unit/nvml_fake.c"], check=True, timeout=CALL_S)
    (folder / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.1")
    (folder / "libcuda.so.580.1").write_text("the driver")
    (folder / "libcuda.so.1").symlink_to("libcuda.so.580.1")
    (folder / "libnvidia-glcore.so.580.1").write_text("of screens")
    smi = folder / "tools/nvidia-smi"
    smi.write_text("#!/bin/sh\necho two\n")
    modprobe = folder / "tools/nvidia-modprobe"
    modprobe.write_text(f'#!/bin/sh\necho "$*" > {folder}/asked; mknod -m 666 /dev/nvidia-uvm c 1 5\n')
    for tool in (smi, modprobe):
        tool.chmod(0o755)
    made = [pathlib.Path("/dev") / name for name in (*NODES, "nvidia-uvm")]
    stays_root = no_idmapped_mounts(empty_cluster.data) if request.param == "root" else contextlib.nullcontext()
    with stays_root, devices_stay(fcntl.LOCK_EX):
        if pathlib.Path("/dev/nvidiactl").exists():  # nor another test's, as that one has the lock
            pytest.skip("there are GPUs")
        try:
            for node in made[:-1]:
                os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 5))
                node.chmod(0o666)
            yield empty_cluster.start("--cpus", "4", "--memory", "4Gi", env={"LD_LIBRARY_PATH": str(folder), "PATH": f"{folder}/tools:{os.environ['PATH']}"})
        finally:
            empty_cluster.end_jobs()
            empty_cluster.stop()
            for node in made:
                node.unlink(missing_ok=True)


def test_a_job_in_an_image(machine):
    gpu = {"cpu_count": 1, "memory": "256Mi", "accelerator": "A100_40GB:1"}
    look = ["cd /dev; ls -d nvidia*", "echo path $LD_LIBRARY_PATH", "ls /usr/local/nvidia/lib64", "cat /usr/local/nvidia/lib64/libcuda.so.1; echo", "(echo x > /usr/local/nvidia/lib64/libcuda.so.1) 2> /tmp/no || echo ro",
            "head -c 3 /dev/nvidia1 > /tmp/x; echo $?", "nvidia-smi", "echo seen $CUDA_VISIBLE_DEVICES"]
    libraries = ["libcuda.so.1", "libcuda.so.580.1", "libnvidia-ml.so.1", "libnvidia-ml.so.580.1"]
    for changes, mine, path in (((), None, ""), (("ENV LD_LIBRARY_PATH=/image/lib",), None, ":/image/lib"), (("ENV LD_LIBRARY_PATH=/image/lib",), "/mine", ":/mine")):
        with local_image(machine.folder, changes=changes) as image:
            job = machine.push(look, compute=gpu, image={"base_image": image}, runtime={"environment_variables": {"LD_LIBRARY_PATH": mine}} if mine else {})
            machine.wait(job, "TRAINING_JOB_COMPLETED")
            assert machine.user_lines(job) == ["nvidia-uvm", "nvidia1", "nvidiactl", f"path /usr/local/nvidia/lib64{path}", *libraries, "the driver",
                                               "ro", "0", "two", "seen GPU-22222222-bbbb"]
    assert (machine.folder / "driver/asked").read_text() == "-u -c=0\n"


def test_a_job_in_an_image_without(machine):
    with local_image(machine.folder) as image:
        job = machine.push(["ls -d /dev/nvidia* /usr/local/nvidia 2>&1 | cat", "echo path $LD_LIBRARY_PATH"], image={"base_image": image})
        machine.wait(job, "TRAINING_JOB_COMPLETED")
        assert not [line for line in machine.user_lines(job) if "No such file" not in line and line.strip() != "path"], machine.logs(job)
