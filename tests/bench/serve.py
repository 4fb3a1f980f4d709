"""A deployment's first token: through Stoker, through nginx as a proxy, and from the engine alone. The engine is bench_tokens, which only sends; what is
between it and its clients is what is measured."""
import json
import shutil
import time
import urllib.request

import peers
from harness import Contender, Row, Run, Wrong, run
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
