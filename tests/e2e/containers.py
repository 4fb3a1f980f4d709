"""Images of one static busybox, made with podman in this machine's storage, which all tests share."""
import contextlib
import fcntl
import shutil
import subprocess

from conftest import CALL_S

TOOLS = ("sh", "cat", "cp", "echo", "head", "kill", "ls", "sha256sum", "sleep", "stty", "tr")
PODMAN_TRIES = 5


def podman(*args):
    """A command that meets an image while another test removes it fails, and is tried again."""
    for _ in range(PODMAN_TRIES):
        result = subprocess.run(["podman", *map(str, args)], capture_output=True, text=True, timeout=CALL_S, check=False)
        if result.returncode == 0:
            return result.stdout
    raise AssertionError(f"podman {args}: {result.stderr}")


def root_tar(folder, files=()):
    """The archive of a root file system below `folder`, with `files` (path, text) beside busybox; made once."""
    root, tar = folder / "root", folder / "root.tar"
    if tar.exists():
        return tar
    (root / "bin").mkdir(parents=True)
    (root / "tmp").mkdir()
    shutil.copy(shutil.which("busybox"), root / "bin/busybox")
    for tool in TOOLS:
        (root / "bin" / tool).symlink_to("busybox")
    for path, text in files:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    subprocess.run(["tar", "-cf", tar, "-C", root, "."], check=True)
    return tar


def local_name(folder):
    """A name for an image of this test alone. A tag may hold any characters of a temporary folder's name; a repository may not."""
    return f"localhost/stoker-test:{folder.name}"


@contextlib.contextmanager
def devices_stay(how=fcntl.LOCK_SH):
    """One test makes devices of this machine and takes them away again (LOCK_EX): no container starts meanwhile."""
    with open("/var/tmp/stoker-test-devices", "w", encoding="ascii") as lock:
        fcntl.flock(lock, how)
        yield


@contextlib.contextmanager
def no_idmapped_mounts(folder):
    """`folder` is made, on a file system that has none: an overlay, in memory. For root."""
    memory = folder.with_name(f"{folder.name}-memory")
    for path in (folder, memory):
        path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", memory], check=True)
    for name in ("lower", "upper", "work"):
        (memory / name).mkdir()
    options = f"lowerdir={memory}/lower,upperdir={memory}/upper,workdir={memory}/work"
    subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder, memory], check=True)


@contextlib.contextmanager
def local_image(folder, files=(), changes=()):
    """Gives the name of an image in this machine's storage, which is removed afterwards."""
    name = local_name(folder)
    podman("import", "--quiet", *(word for change in changes for word in ("--change", change)), root_tar(folder, files), name)
    try:
        yield name
    finally:
        podman("rmi", "--force", name)
