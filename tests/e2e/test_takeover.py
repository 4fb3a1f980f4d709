"""The server's machine burns: rows in PostgreSQL, objects in S3, and another machine that knows everything and goes on."""
import contextlib
import hashlib
import os
import shutil

from conftest import until
from postgres import server, target  # noqa: F401
from s3 import PREFIX, flags, s3_running
from test_objects import CKPT, save
from test_standby import AGAIN, Pair, lose_power, role


def test_a_machine_burns(empty_cluster, server, target):  # noqa: F811
    """Code, weights, checkpoints, logs and secrets of jobs that ended, and of one that ran: it goes on elsewhere from its checkpoint."""
    a = empty_cluster
    weights = a.folder / "weights"
    weights.mkdir()
    (weights / "big.bin").write_bytes(os.urandom(5 << 20))
    digest = hashlib.sha256((weights / "big.bin").read_bytes()).hexdigest()
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(s3_running(a.folder, "minio"))
        pair = Pair(server, target, a, stack)
        pair.flags += [*flags(a, store), "--allow-file-root", str(weights)]
        a.start(*pair.flags, env=server.env)
        b = pair.standby("--node-lost", "10s")
        a.cli("secrets", "set", "key", stdin="a-value-of-mine")
        source = [{"source": f"file://{weights}", "mount_location": "/w"}]
        done = a.push(["for i in $(seq 2000); do echo line $i; done; sha256sum < /w/big.bin"], weights=source)
        a.wait(done, "TRAINING_JOB_COMPLETED")
        lines = a.user_lines(done)
        assert lines == [f"line {i}" for i in range(1, 2001)] + [f"{digest}  -"]
        runs = a.push(["cat hello.txt; test $SECRET = a-value-of-mine; sha256sum < /w/big.bin",
                       f"if test $BT_RETRY_COUNT -eq 0; then {save('checkpoint-1', 3)}; {a.hold()}; fi",
                       "sha256sum < $(find $STOKER_RESUME_FROM -name w.bin)"],
                      files={"hello.txt": "from the archive\n"}, weights=source, **AGAIN,
                      runtime={**CKPT, "load_checkpoint_config": {"enabled": True}, "environment_variables": {"SECRET": {"name": "key"}}})
        until(lambda: any(k.endswith("checkpoint-1.json") for k in store.keys(f"{PREFIX}/training_projects/")) and len(a.user_lines(runs)) == 3)
        before = a.user_lines(runs)
        until(lambda: before[-1].encode() in b"".join(store.body(k) for k in store.keys(f"{PREFIX}/logs/{runs['id']}/")))
        lose_power(a)
        shutil.rmtree(a.data, ignore_errors=True)  # nothing of it is left
        shutil.rmtree(weights)
        until(lambda: role(b) == "leader")
        assert b.user_lines(done) == lines
        b.wait(runs, "TRAINING_JOB_COMPLETED")
        after = b.user_lines(runs)
        assert after[:3] == before and after[3:] == ["from the archive", f"{digest}  -", before[2]], after
        assert {s["name"] for s in b.json("secrets", "ls")} == {"key"}
        recreated = b.json("recreate", done["id"])  # the source of its weights is gone
        b.wait(recreated, "TRAINING_JOB_COMPLETED")
        assert b.user_lines(recreated) == lines
