"""volume_size_gib held by the file system itself, in a virtual machine whose kernel can: tests/vm.py."""
import errno
import json
import os
import pathlib
import re
import sys

from conftest import STOKER

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import vm  # noqa: E402

GIB = 1 << 30
# The first four commands are those of docs/operating.md.
MACHINE = """
fail() { echo "FAILED: $*"; tail -n 40 /srv/server.log /srv/stoker/data/runs/*/runner.log; exit 1; }
truncate -s 8G /srv/stoker.img
mkfs.ext4 -q -O project,quota /srv/stoker.img
mkdir /srv/stoker
mount -o loop,prjquota /srv/stoker.img /srv/stoker || fail mount

stoker server --data /srv/stoker/data --listen 127.0.0.1:8000 --cpus 2 --memory 1Gi >/srv/server.out 2>/srv/server.log &
until grep -q '^listening' /srv/server.out; do kill -0 $! || fail server; sleep 0.2; done
export STOKER_URL=http://127.0.0.1:8000 STOKER_TOKEN=$(cat /srv/stoker/data/admin-token)

# push NAME: the job of /jobs/NAME, and its id in $job
push() { job=$(stoker push "/jobs/$1/train.yaml" -o json | sed -n 's/^ *"id": *"\\([^"]*\\)".*/\\1/p' | head -n 1); [ -n "$job" ] || fail push "$1"; }
ended() { stoker view "$job" -o json | tr -d '\\n ' | grep -qE 'TRAINING_JOB_(COMPLETED|FAILED|STOPPED|DEPLOY_FAILED)"'; }
wait_for() { n=0; until "$@"; do n=$((n+1)); [ $n -lt 300 ] || fail "$@"; sleep 0.3; done; }
show() { echo "== view"; stoker view "$job" -o json; echo "== logs"; stoker logs "$job"; echo "== checkpoints"; stoker checkpoints ls "$job" --all -o json; echo "== end"; }
"""


def job(command):
    runtime = {"start_commands": [command], "checkpointing_config": {"enabled": True, "settle": "10m", "volume_size_gib": 1}}
    return {"project": "p", "job": {"compute": {"cpu_count": 1, "memory": "256Mi"}, "runtime": runtime}}


def run(folder, jobs, script):
    """What a script in the machine wrote, in parts: {title: text}."""
    files = {"/usr/bin/stoker": STOKER}
    for name in ("bwrap", "mkfs.ext4", "chattr", "lsattr", "nsenter"):
        files[f"/usr/bin/{name}"] = vm.program(name)
    files["/etc/mke2fs.conf"] = "/etc/mke2fs.conf"
    for name, command in jobs.items():
        (folder / name).write_text(json.dumps(job(command)))
        files[f"/jobs/{name}/train.yaml"] = str(folder / name)
    code, text = vm.run(MACHINE + script, files)
    assert code == 0, text[-6000:]
    found = {}
    for title, body in re.findall(r"^== (\w+)\n(.*?)(?=^== )", text, re.M | re.S):
        found.setdefault(title, []).append(body)
    return found


# Not to be uploaded: *.tmp. The first one takes no time; the second one is a fast writer.
FILL = ("cd $BT_CHECKPOINT_DIR; fallocate -l 900m a.tmp; dd if=/dev/zero of=b.tmp bs=1M; code=$?; "
        "echo disk $(($(stat -c %b a.tmp) * 512 + $(stat -c %b b.tmp) * 512)); rm *.tmp; exit $code")
RESERVE = "fallocate -l 3g $BT_CHECKPOINT_DIR/x.tmp; code=$?; rm $BT_CHECKPOINT_DIR/x.tmp; exit $code"
# What was removed and waits for its upload makes room: 2 MiB are left without it. It has a second name then.
KEEP = ("cd $BT_CHECKPOINT_DIR; mkdir checkpoint-0 checkpoint-1; fallocate -l 1018m a.tmp; fallocate -l 4m checkpoint-0/w.bin; "
        "until [ $(stat -c %h checkpoint-0/w.bin) = 2 ]; do sleep 0.2; done; fallocate -l 4m b.tmp && echo early; rm -r checkpoint-0; "
        "n=0; until fallocate -l 4m b.tmp; do n=$((n+1)); [ $n -lt 200 ] || exit 1; sleep 0.2; done; rm *.tmp; "
        "echo 1 > checkpoint-1/w.bin; echo blocks $(stat -f -c %b .)")
WAIT = "sleep 1000"
JOBS = {"fill": FILL, "reserve": RESERVE, "keep": KEEP, "wait": WAIT}
SCRIPT = """
echo "== doctor"; stoker doctor; echo "== end"
for name in fill reserve keep; do push $name; stoker logs -f "$job" >/dev/null; wait_for ended; show; done

# Who takes over a runner changes no limit.
size() { stat -f -c %b "$folder/ckpt" 2>/dev/null; }
running() { stoker view "$job" -o json | grep -q TRAINING_JOB_RUNNING; }
one() { [ "$(ls /srv/stoker/data/runs | wc -l)" = 1 ]; }
push wait; wait_for running; wait_for one
folder=$(ls -d /srv/stoker/data/runs/*)
pid=$(sed -n 's/.*"pid": *\\([0-9]*\\).*/\\1/p' "$folder/runner.json")
as_runner() { /usr/bin/nsenter -t "$pid" -U -m -S 0 -G 0 "$@"; }
echo "== runner"; cat "/proc/$pid/status"; echo "== projects"; lsattr -Rpa /srv/stoker/data; echo "== end"
as_runner lsattr -dp "$folder/ckpt" || fail lsattr
as_runner busybox touch "$folder/ckpt/mine" || fail "not its folder"
as_runner chattr -p 7 "$folder/ckpt" && fail "another project"
as_runner chattr -p 0 "$folder/ckpt/mine" && fail "no project"
as_runner chattr -P "$folder/ckpt" && fail "no project of what is made there"
[ "$(size)" = 262144 ] || fail "$(size) blocks"

# It dies, and its sweeper takes the limit away.
free() { [ ! -e "$folder" ] || [ "$(size)" -gt 262144 ]; }
kill -KILL "$pid" || fail kill
wait_for free
wait_for ended
"""


def test_the_volume(tmp_path):
    """Not a byte more than the limit comes to the disk, and a job that fails by it is told why."""
    found = run(tmp_path, JOBS, SCRIPT)
    fill, reserve, keep = zip(map(json.loads, found["view"]), found["logs"], map(json.loads, found["checkpoints"]), strict=True)
    for view, log, _ in (fill, reserve):
        assert view["current_status"] == "TRAINING_JOB_FAILED", log
        assert view["error_id"] == "volume_full" and view["end"]["kind"] == "disk", view
        assert os.strerror(errno.EDQUOT) in log, log
        assert sum("volume is full" in line for line in log.splitlines() if "stoker:" in line and "job failed" not in line) <= 1, log
    assert "disk=quota(volume)" in found["doctor"][0] and "runners are unprivileged" in found["doctor"][0], found["doctor"]
    status = dict(line.split(":", 1) for line in found["runner"][0].splitlines())
    assert min(map(int, status["Uid"].split())) > 0x70000000 and status["NoNewPrivs"].strip() == "1", status
    # of those that have ended nothing has an id any more
    projects = {path: int(n) for n, path in re.findall(r"^ *(\d+) \S+ (\S+)$", found["projects"][0], re.M)}
    folders = {path.partition("/ckpt")[0] for path, n in projects.items() if n > 0}
    assert len(folders) == 1 and len(projects) > 10, projects
    took = int(re.search(r"^disk (\d+)", fill[1], re.M)[1])
    assert GIB - (1 << 20) < took <= GIB, took
    view, log, checkpoints = keep
    assert view["current_status"] == "TRAINING_JOB_COMPLETED", log
    # complete or not goes by how often the shipper had looked when it was removed: its bytes are kept
    assert {k["checkpoint_id"]: k["size_bytes"] for k in checkpoints} == {"checkpoint-0": 4 << 20, "checkpoint-1": 2}, (checkpoints, log)
    assert "early" not in log and "stays root" not in log, log
    assert f"blocks {GIB // 4096}\n" in log and "disk=quota(volume)" in log, log
