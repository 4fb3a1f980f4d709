"""A member with a token and a job file against the server of a machine: what such a job must not reach.

Each test is an attack that got through once, or its next variant. Only ids, states, and what is really there are judged."""
import json
import os
import pathlib
import resource
import stat
import subprocess
import sys

import pytest
from conftest import STOKER, until
from s3 import KEYS, minio  # noqa: F401

ROOT = os.geteuid() == 0
pytestmark = pytest.mark.skipif(not ROOT, reason="attacks are made on a server that is root")
CACHE = {"cache_config": {"enabled": True}}


def failed(cluster, job):
    """The error id of a job that never ran."""
    done = cluster.wait(job)
    assert done["current_status"] == "TRAINING_JOB_DEPLOY_FAILED", cluster.logs(job)
    return done["error_id"]


def ran(cluster, commands, **kw):
    """The lines that a job printed, which came to its end."""
    job = cluster.push(commands, **kw)
    done = cluster.wait(job)
    assert done["current_status"] == "TRAINING_JOB_COMPLETED", cluster.logs(job)
    return [line.split(" ", 1)[-1] for line in cluster.user_lines(job)]


def refused(cluster, **kw):
    """The error id of a push that is refused."""
    folder = cluster.job_folder(["true"], **kw)
    return cluster.error("push", folder / "train.yaml")


def checkpoints(path, **more):
    return {"runtime": {"checkpointing_config": {"enabled": True, "checkpoint_path": path}, **more}}


# --- what is mounted, and where ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/usr", "/lib64", "/bin", "/usr/lib/x", "/usr/bin", "/", "/boot/x", "/var", "/root", "/sbin/y",
                                  "/proc/1/root/tmp", "/sys/x", "/dev/shm/x", "/etc/x", "/run/x", "/tmp", "/home"])
def test_no_place_of_the_system(standing, path):
    assert refused(standing, **checkpoints(path)) == "place_system"
    load = {"runtime": {"load_checkpoint_config": {"enabled": True, "download_folder": path}}}
    assert refused(standing, **load) == "place_system"


@pytest.mark.parametrize("path", ["/root/.cache/user_artifacts/f/x", "/root/.cache/user_artifacts", "/root/.cache/team_artifacts/x"])
def test_no_place_in_a_cache(standing, path):
    """What one job left there would decide what is mounted for the next."""
    assert refused(standing, **checkpoints(path, **CACHE)) == "place_shared"


@pytest.mark.parametrize("path", ["/mnt/../usr", "/mnt/./x", "/mnt//x", "usr"])
def test_places_are_plain(standing, path):
    assert refused(standing, **checkpoints(path)) == "spec_invalid"


def test_a_sandbox_that_fails_is_no_reason_for_a_weaker_one(empty_cluster):
    """Whatever makes it fail for one job: it does not run."""
    cluster, tools = empty_cluster, empty_cluster.folder / "tools"
    tools.mkdir()
    real = subprocess.run(["sh", "-c", "command -v bwrap"], capture_output=True, text=True, check=True).stdout.strip()
    (tools / "bwrap").symlink_to(real)
    cluster.folder.chmod(0o711)  # runners, who are not root, find it there too
    cluster.start("--cpus", "4", "--memory", "4Gi", env={"PATH": f"{tools}:{os.environ['PATH']}"})
    assert ran(cluster, ["echo is-up"]) == ["is-up"]
    (tools / "bwrap").unlink()
    (tools / "bwrap").write_text("#!/bin/sh\nexit 1\n")
    (tools / "bwrap").chmod(0o755)
    job = cluster.push(["echo is-up"])
    assert failed(cluster, job) == "sandbox_failed"
    assert cluster.user_lines(job) == []


@pytest.mark.parametrize("tree", ["ln -s /usr/nowhere x", "ln -s .. x", "ln -s /oldroot/etc x"])
def test_links_in_the_code_are_not_followed(cluster, tree, tmp_path):
    """A checkpoint folder inside the workspace: the code that is there decides nothing outside of it."""
    folder = cluster.job_folder(["ls -ld /b10/workspace/x | cut -c1"], **checkpoints("/b10/workspace/x/y"))
    (folder / "sub").mkdir()
    subprocess.run(["sh", "-c", tree], cwd=folder, check=True)
    before = sorted(os.listdir("/usr"))
    job = json.loads(cluster.cli("push", folder / "train.yaml", "-o", "json").out)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job) == ["d"]  # the link was not sent
    assert sorted(os.listdir("/usr")) == before and not os.path.exists("/etc/y")


def test_a_file_where_a_mount_needs_a_folder(cluster):
    folder = cluster.job_folder(["true"], **checkpoints("/b10/workspace/x/y"))
    (folder / "x").touch()
    job = json.loads(cluster.cli("push", folder / "train.yaml", "-o", "json").out)
    assert failed(cluster, job) == "mount_refused"


def test_a_link_for_the_old_hugging_face_folder(cluster):
    """A job puts a link in its place; the next one has it mounted."""
    data = cluster.data
    first = ["rm -rf $BT_PROJECT_CACHE_DIR/huggingface", f"ln -s {data} $BT_PROJECT_CACHE_DIR/huggingface"]
    ran(cluster, first, runtime=CACHE)
    legacy = {"cache_config": {"enabled": True, "enable_legacy_hf_mount": True}}
    seen = ran(cluster, ["ls -A /root/.cache/huggingface/ | wc -l", "cat /root/.cache/huggingface/master.key | wc -c",
                         "touch /root/.cache/huggingface/was-here || true"], runtime=legacy)
    assert [line for line in seen if line.isdigit()] == ["0", "0"]
    assert not (data / "was-here").exists()


def test_the_old_hugging_face_folder_is_the_projects(cluster):
    legacy = {"cache_config": {"enabled": True, "enable_legacy_hf_mount": True}}
    ran(cluster, ["echo kept >/root/.cache/huggingface/f"], runtime=legacy)
    assert ran(cluster, ["cat $BT_PROJECT_CACHE_DIR/huggingface/f", "cat /root/.cache/huggingface/f"], runtime=legacy) == ["kept", "kept"]


def test_a_link_at_a_place_of_the_host(cluster):
    """A name on the host that leads to a system folder is that folder."""
    link = pathlib.Path(f"/srv/stoker-{os.getpid()}")
    link.symlink_to("/usr")
    try:
        job = cluster.push(["true"], **checkpoints(str(link)))
        assert failed(cluster, job) == "place_system"
        job = cluster.push(["true"], **checkpoints(f"{link}/lib/made"))
        assert failed(cluster, job) == "place_system"
        assert not os.path.exists("/usr/lib/made")
    finally:
        link.unlink()


# --- whose ids --------------------------------------------------------------------------------------------------------


def of_host(path):
    st = os.stat(path)
    return st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)


@pytest.mark.parametrize("kind", ["bwrap", "plain"])
def test_a_job_has_ids_of_its_own(empty_cluster, kind):
    """No process of a job is root's, or the server's; two jobs that run at once are not each other's."""
    cluster = empty_cluster
    cluster.start("--cpus", "4", "--memory", "4Gi", "--sandbox", kind)
    jobs = [cluster.push(["touch $BT_SCRATCH_DIR/up", f"sleep {4242 + i}.{os.getpid()}"]) for i in range(2)]
    owners = []
    for i, job in enumerate(jobs):
        cluster.wait(job, "TRAINING_JOB_RUNNING")
        found = until(lambda: [p for p in pathlib.Path("/proc").glob("[0-9]*")
                               if command_of(p).startswith(f"sleep {4242 + i}.{os.getpid()}")])
        status = dict(line.split(":", 1) for line in (found[0] / "status").read_text().splitlines())
        uids, gids = set(status["Uid"].split()), set(status["Gid"].split())
        assert len(uids) == len(gids) == 1 and int(*uids) >= 60000 and int(*gids) >= 60000
        assert status["Groups"].split() in ([], ["65534"]) or int(status["Groups"].split()[0]) >= 60000
        owners += uids
    assert len(set(owners)) == 2
    for job in jobs:
        cluster.cli("stop", job["id"], "--now")


def command_of(process):
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def test_nothing_of_the_host_changes_its_mode(cluster):
    """The host's programs, those that run in the sandbox among them, and its devices."""
    bwrap = subprocess.run(["sh", "-c", "command -v bwrap"], capture_output=True, text=True, check=True).stdout.strip()
    paths = [bwrap, "/bin/sh", "/dev/full", "/dev/null", "/dev/zero", "/dev/tty", "/dev/urandom", "/etc/passwd", "/sys/kernel", "/usr"]
    before = [of_host(p) for p in paths]
    tries = [f"for p in /proc/1/exe /proc/self/exe /proc/1/root/bin/sh /dev/* /sys/kernel {' '.join(paths)}; do "
             "chmod 4777 $p; chown 12:12 $p; touch $p; done 2>/dev/null; true",
             "python3 -c 'import os; [os.fchmod(os.open(p, os.O_RDONLY), 0o606) for p in (\"/proc/1/exe\", \"/dev/full\")]' 2>/dev/null; true",
             "mount -o remount,rw /sys 2>/dev/null; mknod $BT_SCRATCH_DIR/sda b 8 0 2>/dev/null; unshare -Urm true 2>/dev/null; true"]
    ran(cluster, tries)
    assert [of_host(p) for p in paths] == before


def test_what_only_root_may_read(cluster, tmp_path):
    """Under a root server the host's files of mode 0600 are there, but not for a job."""
    folder = pathlib.Path(f"/srv/stoker-secret-{os.getpid()}")
    folder.mkdir(mode=0o755)
    try:
        (folder / "key").write_text("private")
        (folder / "key").chmod(0o600)
        (folder / "open").write_text("open")
        (folder / "shut").mkdir(mode=0o700)
        (folder / "shut" / "file").write_text("private")
        tries = [f"cat {folder}/open; echo", f"cat {folder}/key {folder}/shut/file 2>/dev/null || echo no",
                 f"chmod 644 {folder}/key 2>/dev/null; cat {folder}/key 2>/dev/null || echo no",
                 f"chown 0 {folder}/key 2>/dev/null; cp {folder}/key $BT_SCRATCH_DIR/k 2>/dev/null || echo no",
                 f"mv {folder}/shut {folder}/seen 2>/dev/null; cat {folder}/seen/file 2>/dev/null || echo no",
                 "cat /etc/shadow 2>/dev/null | wc -c"]
        assert ran(cluster, tries) == ["open", "no", "no", "no", "no", "0"]
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)


def test_a_setuid_program_in_a_cache(cluster):
    """What a job leaves in a cache is nobody's on the host, and has no rights in the next job."""
    ran(cluster, ["cp /bin/sleep $BT_PROJECT_CACHE_DIR/s", "chmod 4755 $BT_PROJECT_CACHE_DIR/s"], runtime=CACHE)
    left = [p for p in cluster.data.glob("cache/projects/*/s")]
    assert len(left) == 1 and left[0].stat().st_uid >= 60000
    assert ran(cluster, ["stat -c %u $BT_PROJECT_CACHE_DIR/s", "rm $BT_PROJECT_CACHE_DIR/s && echo gone"], runtime=CACHE) == ["0", "gone"]


def test_a_job_installs_what_it_likes(cluster):
    """It is root of its own view: what it changes there works, and vanishes."""
    lines = ran(cluster, ["echo changed >/etc/hostname && cat /etc/hostname", "mkdir -p /usr/local/x && touch /usr/local/x/y && echo made",
                          "rm -rf /usr/share/doc && test ! -e /usr/share/doc && echo removed", "id -u"])
    assert lines == ["changed", "made", "removed", "0"]
    assert os.path.exists("/usr/share/doc") and not os.path.exists("/usr/local/x")


# --- what is found in the sandbox -------------------------------------------------------------------------------------

READ_KEY = """import ctypes
c = ctypes.CDLL(None)
keys = [c.syscall(250, 10, ring, b"user", b"stoker-attack", 0) for ring in (-3, -4, -5)]
print(f"keys-{sum(k > 0 for k in keys)}")
"""


@pytest.mark.parametrize("kind", ["bwrap", "plain"])
def test_the_servers_keyring(empty_cluster, kind):
    """A key in the session of whoever started the server: no job finds it. Its calls are refused anyway; the kernel's list of
    what a process has needs none."""
    cluster = empty_cluster
    cluster.folder.joinpath("with-key.py").write_text(
        "import ctypes, os, sys\nc = ctypes.CDLL(None)\nassert c.syscall(250, 1, None) > 0\n"
        "assert c.syscall(248, b'user', b'stoker-attack', b'value', 5, -3) > 0\nos.execv(sys.argv[1], sys.argv[1:])\n")
    cluster.launch([sys.executable, cluster.folder / "with-key.py", STOKER, "server", "--data", cluster.data, "--listen", "127.0.0.1:0",
                    "--cpus", "4", "--memory", "4Gi", "--sandbox", kind])
    listed = "cat /proc/keys 2>/dev/null | grep -c stoker-attack || true"
    assert ran(cluster, ["python3 find.py", listed], files={"find.py": READ_KEY}) == ["keys-0", "0"]


def test_a_second_name_of_the_data_folder(cluster):
    """A folder is mounted twice on the host: what is hidden is hidden by both names, and its files are nobody's to read."""
    again = pathlib.Path(f"/srv/stoker-again-{os.getpid()}")
    again.mkdir()
    subprocess.run(["mount", "--bind", cluster.data.parent, again], check=True)
    try:
        seen = again / cluster.data.name
        (seen / "open").write_text("for all")
        os.chmod(seen / "open", 0o644)
        assert ran(cluster, [f"ls -A {seen} 2>/dev/null | wc -l", f"cat {seen}/open {seen}/master.key 2>/dev/null | wc -c"]) == ["0", "0"]
    finally:
        subprocess.run(["umount", "-l", again], check=True)
        again.rmdir()


def test_a_home_of_the_servers_user_elsewhere(empty_cluster):
    """Files in the home of whoever runs the server, where no list of homes has it."""
    cluster = empty_cluster
    home = pathlib.Path(f"/srv/stoker-home-{os.getpid()}")
    (home / ".ssh").mkdir(parents=True)
    try:
        (home / ".ssh" / "config").write_text("Host x")
        cluster.start("--cpus", "4", "--memory", "4Gi", env={"HOME": str(home)})
        assert ran(cluster, [f"cat {home}/.ssh/config 2>/dev/null | wc -c", f"ls -A {home} | wc -l"]) == ["0", "0"]
    finally:
        subprocess.run(["rm", "-rf", home], check=True)


def test_files_that_the_server_reads_secrets_from(empty_cluster, minio):  # noqa: F811
    """They may lie anywhere, and belong to the user that jobs have too, where that is not root."""
    cluster = empty_cluster
    folder = pathlib.Path(f"/srv/stoker-keys-{os.getpid()}")
    folder.mkdir()
    try:
        names = "s3.json", "pgpass", "sslkey", "config.yaml"
        (folder / "s3.json").write_text(KEYS)
        for name in names[1:]:
            (folder / name).write_text("backfill: true\n")
            (folder / f"real-{name}").symlink_to(folder / name)
        for name in names:
            (folder / name).chmod(0o600)
        (folder / "other").write_text("seen")
        cluster.start("--cpus", "4", "--memory", "4Gi", "--config", str(folder / "real-config.yaml"), "--objects", "s3://data/x", "--objects-endpoint", minio.endpoint,
                      "--objects-credentials", str(folder / "s3.json"), env={"PGPASSFILE": str(folder / "real-pgpass"), "PGSSLKEY": str(folder / "sslkey")})
        assert ran(cluster, [f"for i in {folder}/*; do [ -L $i ] || [ ! -s $i ] || echo $i; done"]) == [str(folder / "other")]
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)


def test_state_that_lies_outside_of_the_data_folder(empty_cluster):
    """The objects and rows of all jobs, which belong to the user that jobs have too, where that is not root."""
    cluster = empty_cluster
    folder = pathlib.Path(f"/srv/stoker-state-{os.getpid()}")
    (folder / "objects").mkdir(parents=True)
    folder.chmod(0o755)
    try:
        (folder / "other").write_text("seen")
        cluster.start("--cpus", "4", "--memory", "4Gi", "--objects", f"dir:{folder}/objects", "--database", f"sqlite:{folder}/rows.db")
        assert (folder / "rows.db-wal").stat().st_size and (folder / "objects" / "stoker.json").exists()
        assert ran(cluster, [f"ls -A {folder}/objects | wc -l", f"for i in {folder}/*; do [ ! -s $i ] || [ -d $i ] || echo $i; done"]) == ["0", str(folder / "other")]
    finally:
        cluster.end_jobs()
        subprocess.run(["rm", "-rf", folder], check=True)


def test_the_commands_end_though_their_init_is_held(cluster):
    """A debugger of the job's own on the first process of its sandbox."""
    hold = "import ctypes, os, time\nassert ctypes.CDLL(None).ptrace(16, 1, None, None) == 0\nopen('held', 'w')\ntime.sleep(3000)\n"
    job = cluster.push(["python3 hold.py & while [ ! -e held ]; do sleep 0.1; done"], files={"hold.py": hold})
    assert cluster.wait(job)["current_status"] == "TRAINING_JOB_COMPLETED", cluster.logs(job)


def test_neither_server_nor_runner_dumps_core(empty_cluster):
    """Whoever started it may allow dumps: most machines have a limit of 0, under which nothing would be shown here."""
    cluster = empty_cluster
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        cluster.start("--cpus", "4", "--memory", "4Gi")
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
    if before[1] == 0:
        pytest.skip("no process of this machine may dump core")
    job = cluster.push(["sleep 3000"])
    cluster.wait(job, "TRAINING_JOB_RUNNING")
    [runner] = [p for p in pathlib.Path("/proc").glob("[0-9]*") if f" runner {cluster.data}/" in command_of(p)]
    for process in pathlib.Path(f"/proc/{cluster.process.pid}"), runner:
        limits = (process / "limits").read_text().splitlines()
        assert next(line for line in limits if line.startswith("Max core file size")).split()[4] == "0", process
    cluster.cli("stop", job["id"], "--now")


CALLS = """import ctypes, errno, os, platform, subprocess, threading
c = ctypes.CDLL(None, use_errno=True)
calls = {"unshare": (272, 0x10000000), "setns": (308, 0, 0), "keyctl": (250, 0, -3, 0), "bpf": (321, 0, 0, 0), "mount": (165, 0, 0, 0, 0, 0),
         "perf_event_open": (298, 0, 0, 0, 0, 0), "clone": (56, 0x10000011, 0, 0, 0, 0), "userfaultfd": (323, 0), "io_uring_setup": (425, 1, 0),
         "clone3": (435, 0, 0), "x32 getpid": (0x40000000 + 39,)}
for name, (number, *arguments) in calls.items():
    r = c.syscall(number, *map(ctypes.c_long, arguments))
    if name == "clone" and r == 0:
        os._exit(0)
    print(name, errno.errorcode[ctypes.get_errno()] if r == -1 else r)
thread = threading.Thread(target=subprocess.run, args=(["true"],))
thread.start()
thread.join()
print("works", [line.split()[1] for line in open("/proc/self/status") if line.startswith("Seccomp:")])
"""


@pytest.mark.parametrize("kind", ["bwrap", "plain"])
def test_calls_by_which_kernels_are_attacked(empty_cluster, kind):
    """Of the job itself, and of a command that is run in it."""
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers are of another machine")
    cluster = empty_cluster
    cluster.start("--cpus", "4", "--memory", "4Gi", "--sandbox", kind)
    job = cluster.push(["cp calls.py $BT_SCRATCH_DIR/; python3 calls.py; touch $BT_SCRATCH_DIR/up; sleep 3000"], files={"calls.py": CALLS})
    cluster.wait(job, "TRAINING_JOB_RUNNING")
    wanted = {"unshare": "EPERM", "setns": "EPERM", "keyctl": "EPERM", "bpf": "EPERM", "mount": "EPERM", "perf_event_open": "EPERM",
              "clone": "EPERM", "userfaultfd": "EPERM", "io_uring_setup": "ENOSYS", "clone3": "ENOSYS", "x32 getpid": "ENOSYS",
              "works": "['2']"}
    inside = cluster.cli("exec", job["id"], "--", "sh", "-c", "while [ ! -e $BT_SCRATCH_DIR/up ]; do sleep 0.1; done; python3 $BT_SCRATCH_DIR/calls.py")
    assert dict(line.rsplit(" ", 1) for line in inside.out.splitlines()) == wanted
    printed = "\n".join(cluster.user_lines(job))
    for name, answer in wanted.items():
        assert f"{name} {answer}" in printed
    cluster.cli("stop", job["id"], "--now")


# --- what enters a job ------------------------------------------------------------------------------------------------


def test_no_program_of_the_host_runs_as_the_jobs(cluster):
    """CVE-2019-5736: the job's own shell, which `exec` starts, is a script for the very program that starts it. It would run
    in the job, with the job's libraries, and the job could hold on to its file. That program is in no file, and not the job's to run."""
    job = cluster.push(["printf '#!/proc/self/exe\\n' > /tmp/sh; chmod 755 /tmp/sh; mv /tmp/sh $(readlink -f /bin/sh); touch /tmp/planted",
                        "exec python3 -c 'import time; time.sleep(3000)'"])
    cluster.wait(job, "TRAINING_JOB_RUNNING")
    until(lambda: list((cluster.data / "runs").glob("*/upper/root/tmp/planted")))
    done = cluster.cli("exec", job["id"], "--", "true", code=None)
    assert done.code == 120, done  # it could not start the shell; any other answer is of a program that ran
    cluster.cli("stop", job["id"], "--now")
