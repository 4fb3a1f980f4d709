"""The runner of a root server is not root once it has its job: what it can still reach, asked as the runner itself."""
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest
import python_index
from conftest import CALL_S, PARTS, ROOT, until
from containers import devices_stay, local_image, no_idmapped_mounts, podman

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only a root server has runners of another user")


def as_runner(pid, *argv, uid=0):
    """Somebody who has taken the runner over: in its namespaces, with its ids and all of its rights there. uid 1: the first id of its job."""
    return subprocess.run(["nsenter", "-t", str(pid), "-U", "-m", "-S", str(uid), "-G", str(uid), *map(str, argv)], capture_output=True, text=True, timeout=CALL_S)


def status_of(pid, name):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return next(line.split()[1:] for line in f if line.startswith(f"{name}:"))


LINK = """
import json, os, socket, sys
sock, launch, key, folder = sys.argv[1:]
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sock)
token = json.load(open(launch))["token"]
question = {"token": token, "verb": "link", "key": key, "to": "sitecustomize.py"}
socket.send_fds(s, [json.dumps(question).encode()], [os.open(folder, os.O_RDONLY | os.O_DIRECTORY)])
print(s.recv(16384).decode())
"""


def cmdline(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
        return f.read()
    return ""


def listing(folder):
    return sorted((str(p), p.lstat().st_mode, p.lstat().st_uid, p.lstat().st_size) for p in folder.rglob("*"))


def test_a_runner_reaches_its_attempt_and_nothing_else(cluster):
    first, second = (cluster.push([f"echo mine > $BT_SCRATCH_DIR/f; {cluster.hold()}"]) for _ in range(2))
    for job in (first, second):
        cluster.wait(job, "TRAINING_JOB_RUNNING")
    folders = {f for f in (cluster.data / "runs").iterdir() if (f / "runner.json").exists()}
    assert len(folders) == 2
    pids = {f: json.loads((f / "runner.json").read_text())["pid"] for f in folders}
    uids = {f: status_of(pid, "Uid") for f, pid in pids.items()}
    assert all(len(set(u)) == 1 and int(u[0]) > 0x70000000 for u in uids.values()), uids
    assert len({u[0] for u in uids.values()}) == 2  # each has its own
    for folder, pid in pids.items():
        assert status_of(pid, "NoNewPrivs") == ["1"] and status_of(pid, "Seccomp") == ["2"]
        other, = folders - {folder}
        assert as_runner(pid, "cat", folder / "launch.json").returncode == 0  # the question can be answered with yes
        assert as_runner(pid, "sh", "-c", f"cat {folder}/scratch/f && chown 1:1 {folder}/scratch/f").stdout == "mine\n"
        for path in ("master.key", "admin-token", "stoker.db", "objects", "store", "logs", "keeper.sock"):
            assert (cluster.data / path).exists() or path == "stoker.db" and cluster.database_flags(), path
            done = as_runner(pid, "ls", "-d", cluster.data / path)
            assert "No such file" in done.stderr, (path, done)
        assert as_runner(pid, "ls", other).returncode != 0
        assert as_runner(pid, "ls", cluster.data / "runs").stdout.split() == [folder.name]
        # of the host: what everybody may read
        (cluster.folder / "private").write_text("x")
        assert as_runner(pid, "cat", cluster.folder / "private").returncode != 0
        assert as_runner(pid, "cat", "/etc/shadow").returncode != 0
        assert as_runner(pid, "cat", "/etc/passwd").returncode == 0
        assert as_runner(pid, "touch", "/etc/made-by-a-runner").returncode != 0
        # no way back: not by its mounts, not by other processes, not by what the sockets lie in
        inside = as_runner(pid, "unshare", "-m", "sh", "-c", f"umount -l {cluster.data}; umount -l {cluster.folder}; ls {cluster.data}/master.key")
        assert inside.returncode != 0, inside
        assert as_runner(pid, "sh", "-c", f"mount --bind {cluster.data} /mnt").returncode != 0
        assert as_runner(pid, "rm", "-f", cluster.data / "sockets" / "server.sock").returncode != 0
        # its groups are for what is its own: no process of anybody else is moved into them, by no descriptor of its own
        groups = [g for g in (folder / "cgroups").read_text().split() if os.path.isdir(g)]
        assert groups
        for group in groups:
            moved = as_runner(pid, "sh", "-c", f"echo {pids[other]} > {group}/cgroup.procs")
            assert moved.returncode != 0, group
            assert str(pids[other]) not in open(f"{group}/cgroup.procs", encoding="utf-8").read().split()
        for process in (1, cluster.process.pid, pids[other]):
            assert as_runner(pid, "ls", f"/proc/{process}/root/").returncode != 0
            assert as_runner(pid, "kill", "-0", process).returncode != 0
        # and it holds no folder open by a mount that is not its own
        with open(f"/proc/{pid}/mountinfo", encoding="utf-8") as f:
            mounts = {line.split()[0] for line in f}
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if os.path.isdir(f"/proc/{pid}/fd/{fd}"):
                    with open(f"/proc/{pid}/fdinfo/{fd}", encoding="utf-8") as f:
                        mount = next(line.split()[1] for line in f if line.startswith("mnt_id:"))
                    assert mount in mounts, os.readlink(f"/proc/{pid}/fd/{fd}")
    cluster.end_jobs()


def test_weights_are_not_a_runners_to_change(empty_cluster):
    """The node cache has second names of the store's own files. A runner reads them, and makes, changes and removes nothing there."""
    c = empty_cluster
    source = c.folder / "sources" / "model"
    (source / "one").mkdir(parents=True)
    (source / "w.bin").write_text("as it was")
    (source / "one" / "w.bin").write_text("as it was, too")
    c.start("--cpus", "4", "--memory", "4Gi", "--allow-file-root", str(source.parent))
    weights = [{"source": f"file://{source}", "mount_location": "/models/m"}]
    tree_command = r'cat /models/m/w.bin /models/m/one/w.bin; find /models/m -printf "%m %U %P\n" | sort'
    job = c.push([tree_command, c.hold()], weights=weights)
    c.wait(job, "TRAINING_JOB_RUNNING")
    until(lambda: "as it was, too" in c.logs(job))
    folder, = (c.data / "runs").iterdir()
    pid = json.loads((folder / "runner.json").read_text())["pid"]
    files = [p for p in (c.data / "node" / "trees").rglob("w.bin")]
    assert len(files) == 2 and all(p.stat().st_nlink == 2 for p in files)  # one machine keeps one copy
    before = listing(c.data / "node")
    for path in files:
        assert "as it was" in as_runner(pid, "cat", path).stdout
        for attempt in (f"chmod u+w {path}", f"chown 0:0 {path}", f"echo evil > {path}", f"truncate -s 0 {path}", f"ln {path} {folder}/mine", f"rm {path}",
                        f"touch {path.parent}/new", f"mount -o remount,rw {c.data}/node; echo evil > {path}",
                        f"unshare -m sh -c 'mount -o remount,rw,bind {c.data}/node; umount {c.data}/node; echo evil > {path}'"):
            assert as_runner(pid, "sh", "-c", attempt).returncode != 0, attempt
    node = c.data / "node"
    tree, = (node / "trees").iterdir()
    lease = node / "leases" / f"{tree.name}.lease"
    assert as_runner(pid, "ls", node).stdout.split() == ["built", "making", "trees"]  # and nothing that it could lock
    for uid in 0, 1:
        assert as_runner(pid, "ls", tree, uid=uid).stdout.split() == ["one", "w.bin"]
    for attempt in (f"mv {tree} {tree}-away", f"chmod u+w {tree}", f"echo 0 0 0 > {lease}", f"rm {lease}", f"touch {node}/lock && flock -n {node}/lock touch {node}/x",
                    f"mkdir {node}/blobs/aa", f"echo evil > {node}/tmp/x", f"ln -s / {node}/damaged/x", f"mkdir {node}/leases/{'0' * 64}.lease"):
        assert as_runner(pid, "sh", "-c", attempt).returncode != 0, attempt
    # of all others there is nothing, whoever knows their names: below the mounts of its own lies an empty folder of its own
    (source.parent / "other").mkdir()
    (source.parent / "other" / "w.bin").write_text("of somebody else")
    other = c.push([c.hold()], weights=[{"source": f"file://{source.parent}/other", "mount_location": "/models/m"}])
    c.wait(other, "TRAINING_JOB_RUNNING")
    theirs, = {t.name for t in (node / "trees").iterdir()} - {tree.name}
    stranger = next(p for p in c.runners() if p != pid)
    assert as_runner(stranger, "cat", node / "trees" / theirs / "w.bin").stdout == "of somebody else"
    for uid in 0, 1:
        for who, its, not_its in ((pid, tree.name, theirs), (stranger, theirs, tree.name)):
            assert as_runner(who, "ls", node / "trees", uid=uid).stdout.split() == [its]
            for attempt in (f"cat {node}/trees/{not_its}/w.bin", f"cat {node}/trees/{its}/../{not_its}/w.bin", f"ls {node}/blobs", f"umount -l {node}/trees",
                            f"mount --bind {node} /mnt", f"umount -l {node}/trees/{its}; cat {node}/trees/*/w.bin",
                            f"unshare -m sh -c 'umount -l {node}/trees/{its} {node}/trees {node} {c.data} {c.folder}; cat {node}/trees/{not_its}/w.bin'"):
                assert as_runner(who, "unshare", "-m", "sh", "-c", attempt, uid=uid).returncode != 0, attempt
    c.release(other)
    c.wait(other, "TRAINING_JOB_COMPLETED")
    before = listing(node)
    # nor by asking the server, which opens what it may read: a folder that it can only read is not its own
    digest = hashlib.sha256(b"as it was").hexdigest()
    objects = c.data / "sockets" / "objects.sock"
    for into, why in ((tree, "not yours"), (objects.parent, "not yours to write to"), (folder, None)):  # its own it may, though the kernel links nothing there
        asked = as_runner(pid, "python3", "-c", LINK, objects, folder / "launch.json", f"blobs/sha256/{digest[:2]}/{digest}", into)
        answer = json.loads(asked.stdout or asked.stderr)
        assert (answer["status"] == 403) == (why is not None) and (why or "") in (answer["message"] or ""), answer
    # nor by what it has open
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
            if target.startswith(f"{node}/"):
                flags = next(int(line.split()[1], 8) for line in open(f"/proc/{pid}/fdinfo/{fd}", encoding="utf-8") if line.startswith("flags:"))
                assert target == str(lease) and flags & os.O_ACCMODE == os.O_RDONLY, target
    assert listing(node) == before
    assert not c.keepers()  # its keeper has ended with the stages
    c.release(job)
    c.wait(job, "TRAINING_JOB_COMPLETED")
    until(lambda: not list((c.data / "runs").iterdir()))
    again = c.push([tree_command], weights=weights)
    c.wait(again, "TRAINING_JOB_COMPLETED")
    assert "already on this node" in c.logs(again) and c.user_lines(again) == c.user_lines(job)


@contextlib.contextmanager
def slow_build(cluster):
    """A server, the index of a package whose build waits at a gate, and a runtime that needs it."""
    with contextlib.closing(python_index.Index()) as index:
        index.files.update([python_index.source("slow", "1.0", index.call("gate/go"))])
        cluster.start("--cpus", "4", "--memory", "4Gi", env={"PATH": f"{PARTS}/uv/bin:/usr/sbin:/usr/bin:/sbin:/bin"})
        yield index, {"python": {"requirements": ["slow"]}, "environment_variables": {"UV_INDEX_URL": index.url, "PIP_INDEX_URL": index.url}}


def test_a_killed_keeper_is_named(empty_cluster):
    """The job that waits for it fails and says why; nothing is left of either, and the next one builds."""
    c = empty_cluster
    with slow_build(c) as (index, runtime):
        job = c.push(["true"], runtime=runtime)
        until(lambda: index.hits["gate go"] == 1)
        keeper, = c.keepers()
        os.kill(keeper, signal.SIGKILL)
        view = c.wait(job, "TRAINING_JOB_DEPLOY_FAILED")
        assert "keeps the node cache" in view["error_message"], view
        # it is the machine's doing, as the death of a runner is
        twice = c.push(["true"], runtime=runtime, retry={"max_attempts": 2, "on": ["node_fail"]})
        until(lambda: index.hits["gate go"] == 2 and len(c.keepers()) == 1)
        os.kill(c.keepers()[0], signal.SIGKILL)
        until(lambda: index.hits["gate go"] == 3)
        c.cli("stop", twice["id"], "--now")
        c.wait(twice, "TRAINING_JOB_STOPPED")
        again = c.push(["true"], runtime=runtime)
        until(lambda: index.hits["gate go"] == 4 and len(c.runners()) == 1)
        pid, = c.runners()
        keeper, = c.keepers()
        os.kill(pid, signal.SIGKILL)
        c.wait(again, "TRAINING_JOB_DEPLOY_FAILED")
        until(lambda: not os.path.exists(f"/proc/{keeper}"))
        # a link in place of what it fills leads the keeper nowhere
        swapped = c.push(["true"], runtime=runtime)
        until(lambda: index.hits["gate go"] == 5 and len(c.runners()) == 1)
        victim = c.data / "node" / "trees" / "victim"
        victim.mkdir()
        was = victim.lstat()
        making = next(p for p in (c.data / "node" / "making").iterdir() if (c.data / "runs" / p.name).exists())
        rights = ["setpriv", "--reuid", "1", "--regid", "1", "--clear-groups", "--inh-caps", "+dac_override", "--ambient-caps", "+dac_override"]
        swap = f"cd {making} && mv environment was && ln -s ../../trees/victim environment"
        done = as_runner(c.runners()[0], *rights, "sh", "-c", swap)
        assert done.returncode == 0, done
        index.gates["go"].set()
        c.wait(swapped, "TRAINING_JOB_DEPLOY_FAILED")
        assert victim.lstat() == was
        victim.rmdir()
        last = c.push(["python -c 'import slow'"], runtime=runtime)
        c.wait(last, "TRAINING_JOB_COMPLETED")
        until(lambda: not list((c.data / "node" / "making").iterdir()))
        assert len(list((c.data / "node" / "built").iterdir())) == 1


def test_control_groups_are_given_back(empty_cluster):
    """Root makes them before it is known whether anything will run in them: also of a job that is not deployed, and of an environment that is there already."""
    c = empty_cluster
    with slow_build(c) as (index, runtime):
        index.gates["go"].set()
        c.wait(c.push(["true"], runtime=runtime), "TRAINING_JOB_COMPLETED")
        job = c.push([c.hold()], runtime=runtime)
        c.wait(job, "TRAINING_JOB_RUNNING")
        saved = [pathlib.Path(line) for path in (c.data / "runs").glob("*/*cgroups") for line in path.read_text().split()]
        assert any(p.name.endswith("-py") for p in saved) and any(p.is_dir() for p in saved), saved
        mark = "-".join(saved[0].name.split("-")[:2])
        c.release(job)
        c.wait(job, "TRAINING_JOB_COMPLETED")
        assert "already on this node" in c.logs(job)
        c.wait(c.push(["true"], runtime={**runtime, "python": {"requirements": ["slow==9"]}}), "TRAINING_JOB_DEPLOY_FAILED")
        until(lambda: not list((c.data / "runs").iterdir()))
        assert not [at for at, folders, _ in os.walk("/sys/fs/cgroup") if os.path.basename(at).startswith(mark)]


def test_an_environment_is_changed_by_nobody(empty_cluster):
    """Once an environment is whole, no runner can change it. Before, only the one that fills it can, which can fill no other."""
    with slow_build(empty_cluster) as (index, runtime):
        check_environment(empty_cluster, index, runtime)


def check_environment(c, index, runtime):
    job = c.push(["python -c 'import slow; print(slow.__file__)'", c.hold()], runtime=runtime)
    until(lambda: index.hits["gate go"] == 1)
    keeper, = c.keepers()
    pid, = c.runners()
    node = c.data / "node"
    built, = (node / "built").iterdir()
    filled = node / "making" / next((c.data / "runs").iterdir()).name / "environment"
    other = c.push([c.hold()], weights=[])
    c.wait(other, "TRAINING_JOB_RUNNING")
    stranger, = set(c.runners()) - {pid}
    uids = {p: status_of(p, "Uid")[0] for p in (pid, stranger, keeper)}
    assert len(set(uids.values())) == 3 and "0" not in uids.values(), uids
    assert as_runner(pid, "chmod", "775", filled).returncode == 0  # it fills it
    inside = subprocess.Popen(["nsenter", "-t", str(pid), "-U", "-m", "-S", "0", "-G", "0", "sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
    inside.stdin.write(f"cd {filled} && echo inside\n")  # and has it open still when it is whole
    inside.stdin.flush()
    assert inside.stdout.readline() == "inside\n"
    for uid in (0, 1):
        for attempt in (f"mv {built} {built}-away", f"mkdir {node}/making/other",
                        f"mv {filled.parent} {node}/making/other", f"kill {keeper}", f"ls /proc/{keeper}/root/"):
            assert as_runner(pid, "sh", "-c", attempt, uid=uid).returncode != 0, attempt
        for attempt in (f"touch {filled}/theirs", f"chmod 777 {filled}", f"rm -r {filled}/lib"):
            assert as_runner(stranger, "sh", "-c", attempt, uid=uid).returncode != 0, attempt
    assert status_of(keeper, "NoNewPrivs") == ["1"] and status_of(keeper, "Seccomp") == ["2"]
    for path in ("runs", "cache", "master.key", "objects", "store"):
        assert (c.data / path).exists() and as_runner(keeper, "ls", c.data / path).returncode != 0, path
    index.gates["go"].set()
    c.wait(job, "TRAINING_JOB_RUNNING")
    module = next(p for p in built.rglob("slow.py") if "site-packages" in str(p))
    assert not filled.parent.exists()
    before = listing(node)
    name = module.relative_to(built)
    said, _ = inside.communicate(f"test -e {name} && echo there\nls .. && echo out\necho evil >> {name} && echo evil\nchmod u+w {name} && echo evil\n"
                                 f"chmod u+w . && echo evil\nmv {name} x && echo evil\n touch x && echo evil\n", timeout=CALL_S)
    assert "there" in said.split() and not {"evil", "out"} & set(said.split()), said
    for runner in (pid, stranger):
        for uid in (0, 1):
            for attempt in (f"touch {built}/x", f"chmod u+w {module}", f"echo evil > {module}", f"mv {module} {module}-away", f"rm {module}"):
                assert as_runner(runner, "sh", "-c", attempt, uid=uid).returncode != 0, attempt
    assert listing(node) == before
    c.end_jobs()


def test_what_it_took_is_given_back(cluster):
    """Groups and ids, which it could take as root, and cannot give back any more: the server's sweep does."""
    job = cluster.push(["true"])
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    until(lambda: not list((cluster.data / "runs").iterdir()))

    def is_ours(claim):
        try:
            return str(cluster.data) in claim.read_text()
        except FileNotFoundError:  # another server's, given back just now
            return False

    assert not [c for c in pathlib.Path("/run/stoker/ids").iterdir() if c.name != "lock" and is_ours(c)]


def test_a_sweep_has_the_rights_of_its_runner(empty_cluster):
    """A runner that was taken over leaves a link where its checkpoints are, and dies: the sweep that sends what it left can read no more than it could."""
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi")
    secret = c.folder / "secret"
    (secret / "checkpoint-1").mkdir(parents=True)
    (secret / "checkpoint-1" / "model.bin").write_text("of root alone")
    secret.chmod(0o700)
    job = c.push(["mkdir $BT_CHECKPOINT_DIR/checkpoint-0; echo x > $BT_CHECKPOINT_DIR/checkpoint-0/a", c.hold()],
                 runtime={"checkpointing_config": {"enabled": True, "settle": "1s"}})
    c.wait(job, "TRAINING_JOB_RUNNING")
    until(lambda: c.json("checkpoints", "ls", job["id"]))
    folder, = (c.data / "runs").iterdir()
    pid = json.loads((folder / "runner.json").read_text())["pid"]
    moved = as_runner(pid, "sh", "-c", f"mv {folder}/ckpt {folder}/was && ln -s {secret} {folder}/ckpt")
    assert moved.returncode == 0, moved
    os.kill(pid, signal.SIGKILL)
    c.wait(job, "TRAINING_JOB_FAILED")
    until(lambda: not folder.exists())
    assert "checkpoint-1" not in json.dumps(c.json("checkpoints", "ls", job["id"], "--all"))
    assert not [p for p in (c.data / "objects").rglob("*") if p.is_file() and b"of root alone" in p.read_bytes()]


def test_root_is_not_led_by_what_a_runner_left(empty_cluster):
    """A runner that was taken over forges all that root reads of its folder, and dies: another job goes on, no process is killed, no file is written."""
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi")
    victim = c.push([c.hold()])
    c.wait(victim, "TRAINING_JOB_RUNNING")
    theirs, = (c.data / "runs").iterdir()
    job = c.push(["mkdir $BT_CHECKPOINT_DIR/checkpoint-1; echo x > $BT_CHECKPOINT_DIR/checkpoint-1/a", c.hold()],
                 runtime={"checkpointing_config": {"enabled": True, "settle": "1s"}})
    c.wait(job, "TRAINING_JOB_RUNNING")
    until(lambda: c.json("checkpoints", "ls", job["id"]))
    mine, = set((c.data / "runs").iterdir()) - {theirs}
    pid = json.loads((mine / "runner.json").read_text())["pid"]
    group = pathlib.PurePath((mine / "cgroups").read_text().split()[0]).name
    out = c.folder / "out"
    out.mkdir()
    stranger = subprocess.Popen(["sleep", "600"])
    said = json.loads((mine / "ship.json").read_text())
    said.update(objstore=f"dir:{out}")
    forged = {"exit.json": (theirs / "launch.json").read_text(), "ship.json": json.dumps(said), "cgroups": f"{mine}/{group}\n" * 5,
              f"{group}/cgroup.procs": f"{stranger.pid}\n", "ckpt/checkpoint-2/evil.sh": "echo evil"}
    os.kill(pid, signal.SIGSTOP)
    holder = subprocess.Popen(["nsenter", "-t", str(pid), "-U", "-m", "-S", "0", "-G", "0", "sh"], stdin=subprocess.PIPE, text=True)
    script = [f"cd {mine}", f"mkdir {group} ckpt/checkpoint-2", *(f"rm -f {n}; cat > {n} <<'EOF'\n{t}\nEOF" for n, t in forged.items()),
              f"ln -sf /proc/sys/kernel/hostname {group}/cgroup.kill", f"ln -sfn ../{theirs.name}/launch.json launch.json", "rm -f cores runner.log runner.json",
              "mkfifo cores runner.log runner.json"]
    holder.communicate("\n".join(script) + "\n", timeout=CALL_S)
    assert (mine / "launch.json").is_symlink() and (mine / "cores").is_fifo() and (mine / group / "cgroup.procs").exists()
    os.kill(pid, signal.SIGKILL)
    third = c.push(["echo is-up"])  # its runner counts the cores of the others
    c.wait(third, "TRAINING_JOB_COMPLETED")
    c.wait(job, "TRAINING_JOB_FAILED")
    until(lambda: not mine.exists())
    assert stranger.poll() is None and not list(out.iterdir())
    stranger.kill()
    stranger.wait()
    assert c.job(victim)["current_status"] == "TRAINING_JOB_RUNNING"
    c.kill()
    c.restart()  # and tells live runners where it is
    assert c.job(victim)["current_status"] == "TRAINING_JOB_RUNNING"
    c.release(victim)
    c.wait(victim, "TRAINING_JOB_COMPLETED")


def test_what_a_runner_started_ends_with_it(empty_cluster):
    """Also what has left its session: its group is swept with the job's."""
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi")
    job = c.push([c.hold()])
    c.wait(job, "TRAINING_JOB_RUNNING")
    folder, = (c.data / "runs").iterdir()
    pid = json.loads((folder / "runner.json").read_text())["pid"]
    group = next((line.partition("::")[2] for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().split("\n") if line.startswith("0::")), "")
    if not group.endswith("/runner"):
        pytest.skip("no hierarchy of version 2 here")
    at = next(line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().split("\n") if " - cgroup2 " in line)
    child = subprocess.Popen(["sh", "-c", f"echo $$ > {at}{group}/cgroup.procs && exec setsid sleep 600"])
    until(lambda: str(child.pid) in pathlib.Path(f"{at}{group}/cgroup.procs").read_text().split())
    os.kill(pid, signal.SIGKILL)
    c.wait(job, "TRAINING_JOB_FAILED")
    assert child.wait(60) == -signal.SIGKILL
    until(lambda: not os.path.exists(os.path.dirname(f"{at}{group}")))


def test_who_stays_root_is_named(empty_cluster):
    """A runner cannot give up root where the data folder's mounts translate no ids: `stoker doctor` and the server's log say so."""
    c = empty_cluster
    with no_idmapped_mounts(c.data):
        c.start("--cpus", "4", "--memory", "4Gi")
        job = c.push([c.hold()])
        c.wait(job, "TRAINING_JOB_RUNNING")
        pid, = c.runners()
        assert status_of(pid, "Uid")[0] == "0"
        why = "the data folder's file system has no idmapped mounts"
        assert f"runners stay root: {why}" in c.cli("doctor").out and f"| `{why}` |" in (ROOT / "docs/operating.md").read_text()
        assert "jobs of a team share one user id, and runners stay root" in c.log.read_text()
        c.end_jobs()
        c.stop()


def test_the_runner_of_an_image_is_not_root_either(empty_cluster):
    """podman runs as the job; the image's files are the job's to read, the machine's other images are not, and it is held while the job runs."""
    if not all(map(shutil.which, ("podman", "busybox"))):
        pytest.skip("podman and busybox are needed")
    c = empty_cluster
    command = "cat /own/file; echo changed >/own/file; cat /own/file; echo kept > $BT_SCRATCH_DIR/f; cat /proc/self/uid_map"
    with devices_stay(), local_image(c.folder, [("own/file", "of the image\n")], ["ENV MARK=of-the-image", "WORKDIR /own"]) as name:
        c.start("--cpus", "4", "--memory", "4Gi")
        job = c.push([command, "echo $MARK", c.hold()], image={"base_image": name})
        c.wait(job, "TRAINING_JOB_RUNNING")
        until(lambda: "of-the-image" in c.user_lines(job))
        folder, = (c.data / "runs").iterdir()
        pid = json.loads((folder / "runner.json").read_text())["pid"]
        uid = int(status_of(pid, "Uid")[0])
        assert uid > 0x70000000 and status_of(pid, "NoNewPrivs") == ["1"]
        shown = c.user_lines(job)
        assert shown[:2] == ["of the image", "changed"] and shown[2].split()[0] == "0" and int(shown[2].split()[2]) < 65536
        # nothing that belongs to it is root's: not podman, not conmon, not what runs in the container
        session = [int(p) for p in os.listdir("/proc") if p.isdigit() and f"{folder.name}" in cmdline(p)]
        assert session and all(int(status_of(p, "Uid")[0]) > 0x70000000 for p in session if p != c.process.pid), session
        assert any("conmon" in cmdline(p) for p in session)
        for path in (c.data / "master.key", "/var/lib/containers/storage/overlay-images"):
            assert as_runner(pid, "ls", path).returncode != 0, path
        assert as_runner(pid, "cat", "/etc/shadow").returncode != 0
        # who has all rights over podman's own mounts can make none of the image's writable, and have none of its devices
        conmon = next(p for p in session if "conmon" in cmdline(p))
        for flags in ("rw", "dev", "rw,dev"):
            assert as_runner(conmon, "mount", "-o", f"remount,bind,{flags}", "/tmp/image").returncode != 0, flags
        assert as_runner(conmon, "mount", "-t", "tmpfs", "none", "/mnt").returncode == 0  # they are rights, though
        # a command of a person sees the same, with the image's variables
        done = c.cli("exec", job["id"], "--", "sh", "-c", "echo $MARK; cat /own/file; cat $BT_SCRATCH_DIR/f; kill -0 1 && echo one")
        assert done.out.split() == ["of-the-image", "changed", "kept", "one"]
        # the image is in use
        image = podman("image", "inspect", "--format", "{{.Id}}", name).strip()
        refused = subprocess.run(["podman", "rmi", image], capture_output=True, text=True, timeout=CALL_S, check=False)
        assert refused.returncode != 0 and "in use" in refused.stderr, refused
        holders = podman("ps", "-a", "--filter", f"ancestor={image}", "--format", "{{.Names}}").split()
        assert len(holders) == 1
        c.end_jobs()
        until(lambda: holders[0] not in podman("ps", "-a", "--format", "{{.Names}}").split())
    until(lambda: not [p for p in os.listdir("/proc") if p.isdigit() and folder.name in cmdline(p) and "conmon" in cmdline(p)])


def test_a_killed_runner_takes_its_container_along(empty_cluster):
    if not all(map(shutil.which, ("podman", "busybox"))):
        pytest.skip("podman and busybox are needed")
    c = empty_cluster
    with devices_stay(), local_image(c.folder) as name:
        c.start("--cpus", "4", "--memory", "4Gi")
        job = c.push(["echo up; busybox sleep 777.5"], image={"base_image": name})
        until(lambda: "up" in c.user_lines(job))
        folder, = (c.data / "runs").iterdir()
        assert [p for p in os.listdir("/proc") if p.isdigit() and "sleep\x00777.5" in cmdline(p)]
        os.kill(json.loads((folder / "runner.json").read_text())["pid"], signal.SIGKILL)
        c.wait(job, "TRAINING_JOB_FAILED")
        until(lambda: not [p for p in os.listdir("/proc") if p.isdigit() and "sleep\x00777.5" in cmdline(p)])
        until(lambda: podman("ps", "-a", "--filter", f"ancestor={name}", "--format", "{{.Names}}").split() == [])
