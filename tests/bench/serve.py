"""A deployment's first token: through Stoker, through nginx as a proxy, and from the engine alone. The engine is bench_tokens, which only sends; what is
between it and its clients is what is measured. And how long a deployment takes to its first token when its model is on the node."""
import json
import shutil
import struct
import subprocess
import time
import urllib.error
import urllib.request

import peers
from harness import MIB, Contender, Row, Run, Wrong, run
from load import STOKER
from peers import PEERS, tool, version

PROGRAM = "build/rel/tests/bench/bench_tokens"
TOKENS, GAP_MS = 8, 20  # fifty a second
# streams at once: requests on each
LOADS = {1: 30, 64: 12, 512: 4}
PATH = "/v1/chat/completions"
DEADLINE_S = 60


def started(stoker, folder, program):
    """The engine as a job that serves; the port that it has got."""
    where = folder / "job"
    where.mkdir()
    shutil.copy(program, where)
    command = f"echo $STOKER_SERVE_PORT > $BT_SCRATCH_DIR/port; exec ./bench_tokens serve $STOKER_SERVE_PORT {TOKENS} {GAP_MS}"
    job = {"compute": {"cpu_count": 1, "memory": "512Mi"}, "runtime": {"start_commands": [command], "serve": {"name": "bench"}}}
    (where / "train.yaml").write_text(json.dumps({"project": "bench", "job": job}))
    made = stoker.json("push", where / "train.yaml")
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        rq = urllib.request.Request(f"{stoker.url}/deployments/bench/health", headers={"Authorization": f"Bearer {stoker.env['STOKER_TOKEN']}"})
        try:
            with urllib.request.urlopen(rq, timeout=5) as reply:
                if reply.status == 200:
                    return stoker.cli("exec", made["id"], "--", "cat", "/mnt/bt-scratch/port").strip()
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the engine does not answer through Stoker")


def rows(bench):
    folder = bench.folder / "serve"
    folder.mkdir()
    program = bench.root / PROGRAM
    stoker = peers.Stoker(bench.root / STOKER, folder, "--cpus", "2", "--memory", "2Gi")
    port = started(stoker, folder, program)
    nginx = None if not tool("nginx") else peers.Nginx(folder, folder, http=f"upstream engine {{ server 127.0.0.1:{port}; keepalive 1024; }}", server=f"""
        location {PATH} {{ proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }}""")
    env = {"BENCH_TOKEN": stoker.env["STOKER_TOKEN"]}

    for streams, requests in LOADS.items():
        late = {}

        def asked(name, at, path, server=None, streams=streams, requests=requests, late=late):
            def once():
                done = run([program, "ask", at, path, streams, requests], env, server=server)
                said = json.loads(done.out)
                if said["n"] != streams * requests:
                    raise Wrong(f"{said['n']} answers")
                late.setdefault(name, []).append(Run(said["p99"]))
                return Run(said["p50"], done.cpu, done.rss, done.server_cpu, done.out)
            return once

        def port_of(server):
            return server.url.rsplit(":", 1)[1]

        field = [
            ("stoker", port_of(stoker), f"/deployments/bench{PATH}", stoker.pid, True, None, ""),
            ("nginx", nginx and port_of(nginx), PATH, nginx and nginx.pid, False, None if nginx else f"no nginx: {PEERS}", nginx and version("nginx", "-v")),
            ("the engine alone", port, PATH, None, False, None, ""),
        ]

        def contenders(field=field, asked=asked):
            return [Contender(name, asked(name, at, path, pid), v or "", ours=ours, missing=missing, peer=name != "the engine alone")
                    for name, at, path, pid, ours, missing, v in field]

        words = f"{streams} stream{'s' if streams > 1 else ''} at once, {requests} requests each"
        row = Row(f"serve-{streams}", f"first token of a deployment, {words}: median", "nginx, which checks no token and counts nothing; the engine alone is the limit", unit="ms")
        bench.play(row, contenders())
        tail = Row(f"serve-{streams}-p99", f"the same, {words}: 99th percentile", unit="ms")
        tail.contenders = contenders()
        for c, before in zip(tail.contenders, row.contenders):
            c.runs, c.problem = late.get(c.name, [])[-len(before.runs):] if before.runs else [], before.problem
        bench.rows.append(tail)
        tail.show()
        added = [f"{what} {1000 * (r.contenders[0].median() - r.contenders[-1].median()):.2f} ms" for what, r in (("median", row), ("99th percentile", tail))
                 if r.contenders[0].runs and r.contenders[-1].runs]
        print(f"   added to the engine alone: {', '.join(added)}")


# --- a start ----------------------------------------------------------------------------------------


def trained(stoker, folder, program, size):
    """A job that has saved a model of that size, and the engine beside it."""
    where = folder / "train"
    where.mkdir()
    shutil.copy(program, where)
    for name in ("config.json", "tokenizer.json"):
        (where / name).write_text("{}")
    head = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    (where / "head").write_bytes(struct.pack("<Q", len(head)) + head)
    save = f"mkdir $BT_CHECKPOINT_DIR/checkpoint-1 && cd $BT_CHECKPOINT_DIR/checkpoint-1 && cp $BT_WORKING_DIR/*.json $BT_WORKING_DIR/bench_tokens . && " \
           f"{{ cat $BT_WORKING_DIR/head; head -c {size} /dev/urandom; }} > model.safetensors"
    job = {"compute": {"cpu_count": 1, "memory": "2Gi"}, "runtime": {"start_commands": [save], "checkpointing_config": {"enabled": True}}}
    (where / "train.yaml").write_text(json.dumps({"project": "train", "job": job}))
    made = stoker.json("push", where / "train.yaml")
    peers.until(lambda: stoker.json("view", made["id"])["current_status"] == "TRAINING_JOB_COMPLETED", 4 * DEADLINE_S, 0.2)
    return made["id"]


def first_answer(url, token=""):
    """Until there is one; a server that is not there yet refuses."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        try:
            rq = urllib.request.Request(url, b"{}", {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
            with urllib.request.urlopen(rq, timeout=DEADLINE_S) as reply:
                if reply.status == 200 and reply.read(1):
                    return
        except (urllib.error.HTTPError, OSError):
            time.sleep(0.002)
    raise Wrong("no answer")


def warm(bench):
    folder, program, size = bench.folder / "deploy", bench.root / PROGRAM, bench.size
    folder.mkdir()
    stoker = peers.Stoker(bench.root / STOKER, folder, "--cpus", "4", "--memory", "8Gi")

    def engine(at):
        return f"cp {at}/bench_tokens $BT_SCRATCH_DIR/engine; chmod +x $BT_SCRATCH_DIR/engine; exec $BT_SCRATCH_DIR/engine serve $STOKER_SERVE_PORT {TOKENS} {GAP_MS}"
    try:
        job = trained(stoker, folder, program, size)
        bare = folder / "bare"
        bare.mkdir()
        shutil.copy(program, bare)
        (bare / "train.yaml").write_text(json.dumps({"project": "bare", "job": {
            "compute": {"cpu_count": 1, "memory": "512Mi"}, "runtime": {"start_commands": [engine(".")], "serve": {"name": "bare"}}}}))

        def deployed():
            since = time.monotonic()
            stoker.cli("deploy", f"{job}/checkpoint-1", "--name", "warm", "--memory", "512Mi", "--command", f"sh -c '{engine('/models/warm')}'")
            first_answer(f"{stoker.url}/deployments/warm{PATH}", stoker.env["STOKER_TOKEN"])
            return Run(time.monotonic() - since)

        def pushed():
            since = time.monotonic()
            stoker.cli("push", bare / "train.yaml")
            first_answer(f"{stoker.url}/deployments/bare{PATH}", stoker.env["STOKER_TOKEN"])
            return Run(time.monotonic() - since)

        def alone():
            port = peers.free_port()
            since = time.monotonic()
            process = subprocess.Popen([program, "serve", str(port), str(TOKENS), str(GAP_MS)], stdout=subprocess.DEVNULL)
            try:
                first_answer(f"http://127.0.0.1:{port}{PATH}")
                return Run(time.monotonic() - since)
            finally:
                process.kill()
                process.wait()

        def gone(name):
            def tidy():
                for row in stoker.json("deployments", "ls"):
                    if row["name"] == name == "warm":
                        stoker.cli("deployments", "rm", name, "--yes")
                    elif row["name"] == name:
                        stoker.cli("stop", row["training_job_id"])
                peers.until(lambda: all(row["name"] != name for row in stoker.json("deployments", "ls")), DEADLINE_S, 0.1)
            return tidy
        row = Row("deploy-warm", f"from the command to the first token of a deployment, its model of {size // MIB} MiB on the node",
                  "none; the same engine as a job without a model, and alone", unit="ms")
        bench.play(row, [
            Contender("stoker deploy, model", deployed, ours=True, tidy=gone("warm")),
            Contender("stoker push, serve, no model", pushed, ours=True, tidy=gone("bare")),
            Contender("the engine alone", alone, peer=False),
        ], ("fork and exec of a program that does nothing", bench.limits["fork_exec_s"]))
    finally:
        stoker.stop()
