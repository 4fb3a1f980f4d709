"""A machine as Debian 12 boots it, in a virtual machine (tests/vm.py): its kernel, control groups of version 2 alone, crun. What a job of the
host and one in an image can reach there, and that both are held to their memory."""
import json
import os
import pathlib
import re
import shutil
import sys

import pytest
from conftest import STOKER
from containers import root_tar

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import vm  # noqa: E402

pytestmark = pytest.mark.skipif(not all(map(shutil.which, ("podman", "crun", "busybox"))), reason="podman, crun and busybox are needed")

SEES = "echo uid $(busybox id -u) of $(busybox tr -s ' ' </proc/self/uid_map); busybox ls -n /proc/self/cgroup"
JOBS = {"host": SEES, "image": SEES + "; echo held; busybox sleep 1000", "host-oom": "busybox tail /dev/zero", "image-oom": "busybox tail /dev/zero"}
MACHINE = """
fail() { echo "FAILED: $*"; tail -n 40 /srv/server.log /srv/stoker/data/runs/*/runner.log; exit 1; }
truncate -s 3G /srv/stoker.img
mkfs.ext4 -q /srv/stoker.img
mkdir -p /srv/stoker /var/lib/containers
mount -o loop /srv/stoker.img /srv/stoker || fail mount
mkdir /srv/stoker/images
mount --bind /srv/stoker/images /var/lib/containers
podman import --quiet /image.tar localhost/machine:1 || fail import
echo "== groups"; ls /sys/fs/cgroup; echo "== end"
stoker server --data /srv/stoker/data --listen 127.0.0.1:8000 --cpus 2 --memory 1Gi >/srv/server.out 2>/srv/server.log &
until grep -q '^listening' /srv/server.out; do kill -0 $! || fail server; sleep 0.2; done
export STOKER_URL=http://127.0.0.1:8000 STOKER_TOKEN=$(cat /srv/stoker/data/admin-token)
show() { echo "== view"; stoker view $1 -o json; echo "== logs"; stoker logs $1; echo "== end"; }
for name in host host-oom image-oom; do
	stoker push "/jobs/$name/train.yaml" --name $name -f >/dev/null 2>&1
	show $name
done
stoker push /jobs/image/train.yaml --name image >/dev/null || fail push
timeout 200 stoker logs -f image | grep -m 1 -q held || fail "no job in an image"
show image
echo "== exec"; stoker exec image -- sh -c 'busybox cat /own; echo $MARK'; echo "== end"
runner=$(sed -n 's/.*"pid": *\\([0-9]*\\).*/\\1/p' $(ls -td /srv/stoker/data/runs/*/runner.json | head -n 1))
echo "== runner"; sed -n 's/^Uid:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/$runner/status; echo "== end"
stoker stop image >/dev/null
n=0; until [ -z "$(podman ps -aq)" ]; do n=$((n+1)); [ $n -lt 200 ] || fail "a container is left"; sleep 0.3; done
"""


def job(command, image):
    what = {"compute": {"cpu_count": 1, "memory": "256Mi"}, "runtime": {"start_commands": [command]}}
    return {"project": "p", "job": {**what, **({"image": {"base_image": "localhost/machine:1"}} if image else {})}}


def test_jobs_on_it(tmp_path):
    files = {"/usr/bin/stoker": STOKER, "/image.tar": str(root_tar(tmp_path, [("own", "of the image\n")])), "/usr/bin/conmon": "/usr/bin/conmon"}
    for name in ("bwrap", "podman", "crun", "mkfs.ext4"):
        files[f"/usr/bin/{name}"] = vm.program(name)
    files.update({path: path for path in ("/usr/share/containers/seccomp.json", "/etc/containers/policy.json") if os.path.exists(path)})
    for name, command in JOBS.items():
        (tmp_path / name).write_text(json.dumps(job(command, not name.startswith("host"))))
        files[f"/jobs/{name}/train.yaml"] = str(tmp_path / name)
    code, text = vm.run(MACHINE, files)
    assert code == 0, text[-6000:]
    found = {}
    for title, body in re.findall(r"^== (\w+)\n(.*?)(?=^== )", text, re.M | re.S):
        found.setdefault(title, []).append(body)
    assert "cgroup.controllers" in found["groups"][0]
    views, logs = list(map(json.loads, found["view"])), found["logs"]
    for at, kind, status in ((0, "bwrap", "COMPLETED"), (3, "podman image", "RUNNING")):
        view, log = views[at], logs[at]
        assert view["current_status"] == f"TRAINING_JOB_{status}", log
        line = next(line for line in log.splitlines() if "sandbox:" in line)
        assert f"sandbox: {kind}" in line and "userns" in line and "mem=256Mi(cgroup v2) cpu=1" in line, line
        # root of a range of its own
        assert re.search(r"uid 0 of +0 +\d+ +65535$", log, re.M), log
    for view, log in zip(views[1:3], logs[1:3], strict=True):
        assert view["current_status"] == "TRAINING_JOB_FAILED" and view["end"]["kind"] == "oom", (view, log)
    assert found["exec"][0].split("\n")[0] == "of the image"
    assert int(found["runner"][0]) > 0x70000000
