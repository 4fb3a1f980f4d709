"""A mirror between members and Hubs that mean no good."""
import concurrent.futures
import contextlib
import os
import time

import pytest
from conftest import until
from hub import hub_server
from test_hub import UPSTREAM, Stream, ask, files, fresh, get, path_of, right, start

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def own(empty_cluster):
    with hub_server() as hub:
        hub.tokens.add(UPSTREAM)
        hub.repo("team/model", files("model"))
        yield start(empty_cluster, hub, "--hub-ttl", "1"), hub


def member(c, name, secret):
    """A token of a team of its own."""
    c.cli("teams", "create", name)
    c.cli("secrets", "set", "hf_access_token", "--team", name, stdin=secret)
    return c.json("tokens", "create", name, "--team", name)["api_key"]


@pytest.mark.parametrize("asks", (True, False))
def test_a_gate_has_no_side_door(own, asks):
    """What a Hub shows of a gated repository to everybody, and its old name, open nothing of what another team has brought."""
    c, hub = own
    hub.auth_check = asks
    hub.tokens.add("hf_other")
    hub.repo("team/gated", files("gated"), granted={UPSTREAM})
    hub.renamed["models", "old/gated"] = "team/gated"
    inside, outside = member(c, "inside", UPSTREAM), member(c, "outside", "hf_other")
    commit = hub.repos["models", "team/gated"].at("main")
    for id_ in ("team/gated", "old/gated"):
        assert right(get(c, id_, "w.safetensors", token=inside), commit.files["w.safetensors"].data)
        for rev in ("main", commit.sha):
            for path in ("w.safetensors", "config.json", "README.md"):
                a = get(c, id_, path, rev=rev, token=outside)
                assert (a.status, a.code) == (403, "GatedRepo"), (id_, path, a)


def test_paths_with_nul(own):
    """A form may have any byte; what is behind a NUL is no part of a path that is there."""
    c, _ = own
    for tail in (b"", b"A" * (3 << 20)):
        a = ask(c, "/api/models/team/model/paths-info/main", "POST", headers=FORM, body=b"paths=config.json\0" + tail + b"&paths=README.md")
        assert a.status == 200 and [x["path"] for x in a.json()] == ["README.md"], a


def test_bytes_of_a_try_that_was_given_up(own):
    """Who was sent some of them gets no whole file, though the next try is verified."""
    c, hub = own
    data = os.urandom(4 << 20)
    hub.repo("team/torn", {"w.bin": data})
    with hub.fault("cdn", path="w.bin", times=1, slow=3 << 20, corrupt=5, cut=3 << 20) as torn, hub.fault("cdn", path="w.bin", times=1, whole=True) as whole:
        a = get(c, "team/torn", "w.bin")
        assert torn.hits == whole.hits == 1
    assert a.status == 200 and not a.whole and len(a.body) < len(data), a
    assert right(get(c, "team/torn", "w.bin"), data)


def test_a_right_that_ended_stays_so(own):
    """Also when the Hub cannot be asked any more."""
    c, hub = own
    repo = hub.repo("team/private", files("private"), readers={UPSTREAM})
    inside = member(c, "inside", UPSTREAM)
    revs = "main", repo.refs["main"]
    for rev in revs:
        assert get(c, "team/private", "w.safetensors", rev, token=inside).status == 200
    repo.readers = set()
    for rev in revs:
        until(lambda rev=rev: get(c, "team/private", "w.safetensors", rev, token=inside).code == "RepoNotFound", deadline=30)
    hub.down()
    time.sleep(6)  # a refusal is the answer for so long
    for rev in revs:
        a = get(c, "team/private", "w.safetensors", rev, token=inside)
        assert a.status in (502, 504), a


def test_a_hub_at_fault(own):
    """Whatever it answers, it is no fault of the client's."""
    c, hub = own
    hub.repo("team/deep", {"/".join(["d"] * 200) + "/f": b"x"})
    hub.repo("team/both", {"f": b"file", "f/g": b"in a folder"})
    for id_ in ("team/deep", "team/both"):
        assert ask(c, f"/api/models/{id_}").status == 502
    for n, to in enumerate(("http://169.254.169.254/latest", "http://10.0.0.1/", "file:///etc/passwd", "/api/models/team/sent3/revision/main")):
        hub.repo(f"team/sent{n}", {"f": b"x"})
        with hub.fault("info", path=f"team/sent{n}", redirect=to) as fault:
            assert ask(c, f"/api/models/team/sent{n}").status == 502 and fault.hits, to
        id_ = fresh(hub, os.urandom(100_000))
        with hub.fault("get", path=id_, redirect=to.replace("/api/models/team/sent3/revision/main", "ftp://127.0.0.1/")) as fault:
            assert get(c, id_, "w.bin").status == 502 and fault.hits, to


def test_a_busy_hub(own):
    """It asks to be left alone for minutes: nobody waits for that, nor behind those who do."""
    c, hub = own
    with hub.fault("info", path="team/model", status=429, headers={"Retry-After": "300"}), concurrent.futures.ThreadPoolExecutor(20) as pool:
        busy = [pool.submit(ask, c, f"/api/models/team/model/revision/r{n}") for n in range(20)]
        assert right(get(c, fresh(hub, b"other"), "w.bin"), b"other")
        assert {a.result().status for a in busy} <= {502, 503, 504}


def test_no_team_has_all_threads(own):
    """Nor do large files stand in the way of small ones."""
    c, hub = own
    greedy, other = member(c, "greedy", UPSTREAM), member(c, "other", UPSTREAM)
    slow = [fresh(hub, os.urandom(1_200_000)) for _ in range(30)]
    hub.repo("team/mixed", {"small": b"small", "other": b"other", "w.bin": os.urandom(1_200_000)})
    mixed = hub.repos["models", "team/mixed"].at("main").files
    with concurrent.futures.ThreadPoolExecutor(60) as pool:
        for id_ in slow:
            assert get(c, id_, "w.bin", method="HEAD", token=greedy).status == 200
        with contextlib.ExitStack() as faults:
            files_ = [faults.enter_context(hub.fault("cdn", path=id_, hold=0)) for id_ in slow]
            waits = [pool.submit(get, c, id_, "w.bin", token=greedy) for id_ in slow]
            until(lambda: sum(f.reached.is_set() for f in files_) >= 12)
            assert right(get(c, "team/mixed", "small", token=greedy), b"small")
            asked = faults.enter_context(hub.fault("info", path="team/slow", hold=0))
            asks = [pool.submit(ask, c, f"/api/models/team/slow{n}", token=greedy) for n in range(20)]
            until(lambda: asked.hits >= 8)
            assert right(get(c, "team/mixed", "other", token=other), b"other")
            assert right(get(c, "team/mixed", "w.bin", token=other), mixed["w.bin"].data)
            assert not any(f.done() for f in waits)
        assert all(right(f.result(), hub.repos["models", id_].at("main").files["w.bin"].data) for f, id_ in zip(waits, slow))
        assert {f.result().status for f in asks} <= {404, 502}


def test_no_team_has_all_places(own):
    """Of replies that follow a file while it arrives; who finds none gets one when another reply ends."""
    c, hub = own
    greedy, other = member(c, "greedy", UPSTREAM), member(c, "other", UPSTREAM)
    data = os.urandom(8 << 20)
    path = path_of(fresh(hub, data), "w.bin")
    with hub.fault("cdn", path="w.bin", hold=4 << 20) as fault, concurrent.futures.ThreadPoolExecutor(2) as pool:
        streams = [Stream(c, path, token=greedy) for _ in range(24)]
        assert all(s.read(1000) == data[:1000] for s in streams)
        waits = [pool.submit(Stream, c, path, token=greedy) for _ in range(2)]  # until a reply begins
        mine = Stream(c, path, token=other)
        assert mine.read(1000) == data[:1000]
        assert not any(w.done() for w in waits)
        streams.pop().close()
        until(lambda: any(w.done() for w in waits))
        assert not all(w.done() for w in waits)
        last = Stream(c, path, token=other)  # of those that are left
        assert last.read(1000) == data[:1000] and not fault.go.is_set()
        fault.go.set()
        waits = [w.result() for w in waits]
        assert all(s.read(1000) == data[:1000] for s in waits)
        assert all(s.read(1 << 30) == data[1000:] for s in (*streams, *waits, mine, last))
    for s in (*streams, *waits, mine, last):
        s.close()
    assert hub.sent("w.bin") == len(data)
