"""The caches of compilers: what a job waits for until they are on its disk, beside the archive that people unpack for that, a copy, and a
client of the Hub."""
import json
import os
import re
import shutil
import subprocess
import time

import peers
from harness import Contender, Row, Run, Wrong, run
from load import STOKER
from peers import PARTS

FILES, SIZE = 3000, 8192
DOWNLOAD = """
import sys
from huggingface_hub import snapshot_download
snapshot_download(sys.argv[1], local_dir=sys.argv[2])
"""


def rows(bench):
    folder = bench.folder / "compiled"
    cache, to = folder / "cache", folder / "to"
    for i in range(FILES):
        path = cache / f"{i % 256:02x}/{i}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(SIZE))
    python = PARTS / "clients/bin/python"
    stoker = peers.Stoker(bench.root / STOKER, folder, "--cpus", "4", "--memory", "4Gi", "--hub-upstream", "off")
    team = next(t["name"] for t in stoker.json("teams", "ls"))
    time.sleep(6)  # younger ones may still be written
    stoker.cli("compile-cache", "push", f"{team}/compile-cache", "--kind", f"cuda={cache}")
    subprocess.run(["tar", "-cf", folder / "cache.tar", "-C", cache, "."], check=True, timeout=60)
    job = folder / "job"
    job.mkdir()
    doc = {"project": "bench", "job": {"compute": {"cpu_count": 1, "memory": "256Mi"},
                                       "runtime": {"start_commands": ["find $CUDA_CACHE_PATH -type f | wc -l"], "compile_cache": {"enabled": True}}}}
    (job / "train.yaml").write_text(json.dumps(doc))
    env = {**bench.aws, "HOME": str(folder), "HF_HOME": str(folder / "home"), "HF_ENDPOINT": stoker.url, "HF_TOKEN": stoker.env["STOKER_TOKEN"], "HF_HUB_DISABLE_PROGRESS_BARS": "1"}

    def ours():
        said = subprocess.run([bench.root / STOKER, "push", "-f", job / "train.yaml"], env=stoker.env, capture_output=True, text=True, timeout=120, check=False).stdout
        took = re.search(rf"compile cache \S+: {FILES} files, .* in (\d+) ms", said)
        if not took or f"\n{FILES}\n" not in said:
            raise Wrong(" ".join(said.split())[-300:])
        return Run(int(took[1]) / 1000)

    def gone():
        shutil.rmtree(to, ignore_errors=True)
        shutil.rmtree(folder / "home", ignore_errors=True)

    def all_there(_):
        if sum(len(names) for _, _, names in os.walk(to)) < FILES:
            raise Wrong("not all files are there")

    row = Row("compiled-fill", f"{FILES} files of {SIZE} bytes of a compile cache, on the job's disk before its commands", "unpacking an archive that lies on the node", unit="ms")
    bench.play(row, [
        Contender("stoker, in a job", ours, ours=True),
        Contender("tar -x", lambda: run(["sh", "-c", f"mkdir {to} && tar -xf {folder}/cache.tar -C {to}"]), peers.version("tar"), check=all_there, tidy=gone),
        Contender("cp -r", lambda: run(["cp", "-r", cache, to]), "a copy alone", check=all_there, tidy=gone, peer=False),
        Contender("snapshot_download from stoker", lambda: run([python, "-c", DOWNLOAD, f"{team}/compile-cache", to], env=env, server=stoker.pid), check=all_there, tidy=gone, peer=False,
                  missing=None if python.exists() else f"no {python}: run `tools/parts.sh clients`"),
        Contender("stoker compile-cache pull", lambda: run([bench.root / STOKER, "compile-cache", "pull", f"{team}/compile-cache", "--kind", f"cuda={to}"], env=stoker.env, server=stoker.pid),
                  check=all_there, tidy=gone, peer=False),
    ])
    stoker.stop()
    shutil.rmtree(folder)
