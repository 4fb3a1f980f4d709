#!/usr/bin/env python3
"""A virtual machine for tests of what this machine's kernel may not have: file systems with project quotas.

    vm.py BINARY    runs a test program in it, with PRJQUOTA_EXT4, PRJQUOTA_XFS and FULL (a small disk) mounted; ends with its exit code

QEMU with Debian's cloud kernel (tools/parts.sh vm). Not under KVM: on machines that are virtual themselves it may be there
and hang, and the tests are short without it. The root file system is made of the programs that a test names and their
libraries; no rights are needed to make it. What the test writes comes back by a serial line; the kernel's own words go to
another one and are shown when the machine does not come to its end.
"""
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile

PARTS = pathlib.Path(os.environ.get("STOKER_PARTS") or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "stoker-parts")
TIMEOUT_S = 840  # against a hang
MEMORY = "1536"  # MiB
MODULES = ["virtio_pci", "virtio_blk", "loop", "overlay", "quota_v2", "xfs"]
PROGRAMS = ["busybox", "mount"]
SAID = "vm: exit "

# The first one only finds the disk; the second one is the machine's.
FIRST = """#!/bin/busybox sh
for m in {modules}; do /bin/busybox insmod /modules/$m.ko; done
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t ext4 /dev/vda /root && exec /bin/busybox switch_root /root /init
/bin/busybox poweroff -f
"""
INIT = """#!/bin/busybox sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
# the search for leaks at each end is most of a short program's time here, and is done outside
export ASAN_OPTIONS=detect_leaks=0
busybox --install -s /usr/bin 2>/dev/null
/usr/bin/mount -t devtmpfs dev /dev; /usr/bin/mount -t proc proc /proc; /usr/bin/mount -t sysfs sys /sys
mkdir -p /dev/shm /dev/pts
/usr/bin/mount -t tmpfs tmpfs /dev/shm; /usr/bin/mount -t tmpfs tmpfs /run; /usr/bin/mount -t devpts pts /dev/pts
/usr/bin/mount -t cgroup2 none /sys/fs/cgroup
ip link set lo up; hostname vm
stty -F /dev/ttyS1 -opost
(sh /test.sh; echo "{said}$?") 2>&1 </dev/null | cat >/dev/ttyS1
sync
poweroff -f
"""


def fail(why):
    sys.exit(f"vm.py: {why}")


def program(name):
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if not path:
        fail(f"{name} is not installed: tools/parts.sh vm")
    return path


def cpio(entries):
    """An archive in the kernel's format (newc) of {path: (mode, bytes)}."""
    out = bytearray()
    for number, (path, (mode, data)) in enumerate([*entries.items(), ("TRAILER!!!", (0, b""))], 1):
        name = path.encode() + b"\0"
        fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
        out += b"070701" + b"".join(b"%08X" % f for f in fields) + name
        out += bytes(-len(out) % 4) + data
        out += bytes(-len(out) % 4)
    return bytes(out)


def in_order(found, wanted, done):
    """Modules with those that they depend on before them, as each says itself."""
    for name in wanted:
        if name not in done and name in found:  # else the kernel has it built in
            needs = re.search(rb"depends=([^\0]*)\0", found[name].read_bytes())
            in_order(found, filter(None, needs[1].decode().split(",")) if needs else [], done)
            done[name] = found[name]
    return done


def kernel():
    """Path of the kernel, and its first file system."""
    folder = PARTS / "vm"
    images = sorted(folder.glob("boot/vmlinuz-*"))
    if not images:
        fail(f"there is no kernel in {folder}: tools/parts.sh vm")
    found = {p.stem.replace("-", "_"): p for p in folder.glob("lib/modules/*/kernel/**/*.ko")}
    modules = in_order(found, MODULES, {})
    entries = {d: (stat.S_IFDIR | 0o755, b"") for d in ("bin", "dev", "root", "modules")}
    entries["bin/busybox"] = (stat.S_IFREG | 0o755, pathlib.Path(program("busybox")).read_bytes())
    entries["dev/console"] = (stat.S_IFREG | 0o600, b"")
    entries["init"] = (stat.S_IFREG | 0o755, FIRST.format(modules=" ".join(modules)).encode())
    entries.update({f"modules/{name}.ko": (stat.S_IFREG | 0o644, p.read_bytes()) for name, p in modules.items()})
    return images[-1], cpio(entries)


def libraries(path):
    said = subprocess.run(["ldd", path], capture_output=True, text=True, timeout=60).stdout  # nothing of a static one
    return re.findall(r"(/\S+) \(0x", said)


def make_root(root, script, files):
    """A folder as the machine's root. `files`: where they are there -> here."""
    for folder in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "proc", "sys", "dev", "run", "tmp", "var/tmp", "etc", "root", "srv", "mnt"):
        (root / folder).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    texts = {"init": INIT.format(said=SAID), "test.sh": script, "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n",
             "etc/hosts": "127.0.0.1 localhost\n", "etc/os-release": "ID=vm\n"}
    for name, text in texts.items():
        (root / name).write_text(text)
    (root / "init").chmod(0o755)
    wanted = {f"/usr/bin/{name}": program(name) for name in PROGRAMS} | files
    for here in list(wanted.values()):
        wanted.update({os.path.join(os.path.realpath(os.path.dirname(lib)), os.path.basename(lib)): lib for lib in libraries(here)})
    for there, here in wanted.items():
        to = root / there.lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(here, to)
    (root / "usr/bin/sh").symlink_to("busybox")


def make_disk(path, size, command):
    with open(path, "wb") as f:
        f.truncate(size)
    subprocess.run([*command, str(path)], check=True, stdout=subprocess.DEVNULL, timeout=300)


def boot(folder, disks):
    # Nehalem: a processor without AVX and fast string instructions, which take QEMU longer than what they stand for.
    image, first = kernel()
    (folder / "first").write_bytes(first)
    command = [program("qemu-system-x86_64"), "-nodefaults", "-no-reboot", "-display", "none", "-m", MEMORY, "-smp", "2", "-cpu", "Nehalem",
               "-accel", "tcg,thread=multi", "-kernel", str(image), "-initrd", str(folder / "first"), "-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check",
               "-serial", f"file:{folder}/console", "-serial", f"file:{folder}/said"]
    for disk in disks:
        command += ["-drive", f"file={disk},format=raw,if=virtio,cache=unsafe,discard=unmap"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S)
        return done.stdout
    except subprocess.TimeoutExpired as e:
        return f"it did not end within {TIMEOUT_S} s\n{e.stdout or ''}"


def run(script, files):
    """(exit code, what it wrote) of a shell script, with these files there and vdb (ext4) and vdc (xfs) to mount."""
    with tempfile.TemporaryDirectory(prefix="stoker-vm-", dir="/var/tmp") as temporary:
        folder = pathlib.Path(temporary)
        (folder / "root").mkdir()
        make_root(folder / "root", script, files)
        make_disk(folder / "vda", 16 << 30, [program("mkfs.ext4"), "-q", "-F", "-O", "^has_journal", "-E", "root_owner=0:0", "-d", str(folder / "root")])
        make_disk(folder / "vdb", 1 << 30, [program("mkfs.ext4"), "-q", "-F", "-O", "project,quota"])
        make_disk(folder / "vdc", 1 << 30, [program("mkfs.xfs"), "-q", "-f"])
        qemu = boot(folder, [folder / "vda", folder / "vdb", folder / "vdc"])
        said = (folder / "said").read_text(errors="replace") if (folder / "said").exists() else ""
        text, mark, code = said.rpartition(SAID)
        if mark and code.strip().isdigit():
            return int(code), text
        console = (folder / "console").read_text(errors="replace") if (folder / "console").exists() else ""
        return 125, f"{said}\nthe virtual machine did not come to its end. QEMU:\n{qemu}\nits console:\n{console[-6000:]}"


UNIT = """
mkdir /mnt/ext4 /mnt/xfs /mnt/full
mount -t tmpfs -o size=64k tmpfs /mnt/full
mount -o prjquota /dev/vdb /mnt/ext4 && mount -o prjquota /dev/vdc /mnt/xfs || exit 1
CMOCKA_MESSAGE_OUTPUT=TAP PRJQUOTA_EXT4=/mnt/ext4 PRJQUOTA_XFS=/mnt/xfs FULL=/mnt/full /test
"""


def main():
    code, text = run(UNIT, {"/test": sys.argv[1]})
    sys.stdout.write(text)
    sys.stdout.flush()
    return code


if __name__ == "__main__":
    sys.exit(main())
