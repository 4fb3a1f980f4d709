"""What a mirror keeps of another Hub, as people see it: listed, checked, removed, evicted and fetched again."""
import http.client
import os
import subprocess

from conftest import CALL_S, STOKER, until
from hub import hub_server
from test_hub import Stream, get, path_of, right, start

MIB = 1 << 20


def kept(cluster, files):
    """The row of the repository, once it has so many files."""
    def look():
        rows = [w for w in cluster.json("weights", "ls") if w["source"].startswith("hf://team/")]
        return rows if [w["files"] for w in rows] == [files] else None
    return until(look)[0]


def test_what_is_kept(empty_cluster):
    c = empty_cluster
    data = {"config.json": b"{}", "w.bin": os.urandom(3 * MIB)}
    with hub_server() as hub:
        hub.repo("Team/Model", data)
        start(c, hub)
        for path, body in data.items():
            assert right(get(c, "Team/Model", path), body)
        row = kept(c, 2)
        assert row["source"] == "hf://team/model" and len(row["revision"]) == 40 and row["bytes"] > 3 * MIB and row["state"] == "READY"
        assert row["id"] in c.cli("weights", "ls").out
        c.cli("cache", "gc", "--yes")
        c.cli("cache", "verify")
        sent = hub.sent("w.bin")
        assert right(get(c, "Team/Model", "w.bin"), data["w.bin"]) and hub.sent("w.bin") == sent, "collecting keeps it"
        c.stop()
        checked = subprocess.run([STOKER, "server", "--data", c.data, "--check"], capture_output=True, text=True, timeout=CALL_S)
        assert checked.returncode == 0 and " 0 faults" in checked.stdout, checked
        blob = max((c.data / "store/blobs").rglob("?" * 64), key=lambda p: p.stat().st_size)
        blob.rename(blob.with_suffix(".away"))
        checked = subprocess.run([STOKER, "server", "--data", c.data, "--check"], capture_output=True, text=True, timeout=CALL_S)
        assert checked.returncode != 0 and "files/w.bin" in checked.stdout, checked
        blob.with_suffix(".away").unlink()

        c.restart()
        assert right(get(c, "Team/Model", "w.bin"), data["w.bin"]) and hub.sent("w.bin") == 2 * sent, "it comes back"
        freed = c.cli("weights", "rm", row["id"], "--yes")
        assert "freed" in freed.err + freed.out
        assert [w for w in c.json("weights", "ls") if w["source"] == row["source"]] == []
        assert not [p for p in (c.data / "store/blobs").rglob("?" * 64) if p.stat().st_size > MIB]
        assert right(get(c, "Team/Model", "w.bin"), data["w.bin"]) and hub.sent("w.bin") == 3 * sent
        assert kept(c, 1)["id"] == row["id"]


def test_the_least_recently_used_goes(empty_cluster):
    """The mirror's limit holds for what clients fetch, too."""
    c = empty_cluster
    with hub_server() as hub:
        for n in range(6):
            hub.repo(f"many/m{n}", {"w.bin": os.urandom(2 * MIB)})
        start(c, hub, "--mirror-bytes", "7MB")
        for n in range(6):
            body = hub.repos["models", f"many/m{n}"].at("main").files["w.bin"].data
            assert right(get(c, f"many/m{n}", "w.bin"), body)
            until(lambda: any(w["source"] == f"hf://many/m{n}" and w["files"] for w in c.json("weights", "ls")))
        held = sum(p.stat().st_size for p in (c.data / "store/blobs").rglob("?" * 64))
        assert held <= 7_000_000
        left = {w["source"] for w in c.json("weights", "ls")}
        assert "hf://many/m5" in left and "hf://many/m0" not in left


def test_a_full_mirror_says_what_fills_it(empty_cluster):
    c = empty_cluster
    with hub_server() as hub:
        data = {"first.bin": os.urandom(3 * MIB), "second.bin": os.urandom(3 * MIB), "large.bin": os.urandom(6 * MIB)}
        hub.repo("team/model", data)
        start(c, hub, "--mirror-bytes", "5MB")
        with hub.fault("cdn", path="first.bin", hold=2 * MIB) as fault:
            first = Stream(c, path_of("team/model", "first.bin"))
            assert first.read(1000) == data["first.bin"][:1000]
            full = get(c, "team/model", "second.bin")
            assert full.status == 507 and "fetches under way use 3.15 MB of the 5.00 MB" in full.headers["X-Error-Message"], full
            assert "--mirror-bytes" in full.headers["X-Error-Message"] and "second.bin of team/model" in full.headers["X-Error-Message"], full
            large = get(c, "team/model", "large.bin")
            assert large.status == 507 and "the whole mirror may hold 5.00 MB" in large.headers["X-Error-Message"], large
            fault.go.set()
            assert first.read(4 * MIB) == data["first.bin"][1000:]
            first.close()
        until(lambda: right(get(c, "team/model", "second.bin"), data["second.bin"]))


def test_killed_before_a_ref(empty_cluster):
    """Between the manifest and the ref that names it: the next server has the files, and names them."""
    c = empty_cluster
    data = os.urandom(3 * MIB)
    with hub_server() as hub:
        hub.repo("team/model", {"w.bin": data})
        start(c, hub)
        c.stop()
        c.start(env={"STOKER_CRASH_AT": "hub:manifest"})
        try:
            get(c, "team/model", "w.bin")
        except (OSError, http.client.HTTPException):
            pass  # it may die while it answers
        assert c.process.wait(CALL_S) == 9
        c.restart()
        assert right(get(c, "team/model", "w.bin"), data) and hub.sent("w.bin") <= 2 * len(data)
        assert kept(c, 1)["bytes"] > 3 * MIB
        sent = hub.sent("w.bin")
        assert right(get(c, "team/model", "w.bin"), data) and hub.sent("w.bin") == sent
