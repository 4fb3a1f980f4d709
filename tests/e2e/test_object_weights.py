"""Mirrored weights with `--objects s3://`: the bucket has all of them, the server's folder and a node's cache are caches of it."""
import concurrent.futures
import hashlib
import http.client
import json
import shutil
import socket
import subprocess
import threading

import boto3
import pytest
from conftest import DEADLINE_S, STOKER, until
from s3 import KEY, PREFIX, SECRET, Weather, flags, minio, store  # noqa: F401

MIB = 1 << 20


def body_of(seed, size):
    return hashlib.shake_128(seed.encode()).digest(size)


def model(cluster, name="model", files=("a.bin", "sub/b.bin", "sub/c.bin"), size=20 * MIB):
    """A source: one large file, small ones, and the digest of all as `sha256sum` prints it."""
    folder = cluster.folder / "sources" / name
    for i, file in enumerate(files):
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body_of(name + file, size if i == 0 else 3000 + i))
    return folder


def weights(folder):
    return [{"source": f"file://{folder}", "mount_location": "/w"}]


SUM = "cd /w && find . -type f | LC_ALL=C sort | xargs cat | sha256sum"


def sum_of(name, files=("a.bin", "sub/b.bin", "sub/c.bin"), size=20 * MIB):
    whole = b"".join(body_of(name + f, size if i == 0 else 3000 + i) for i, f in enumerate(files))
    return hashlib.sha256(whole).hexdigest() + "  -"


def start(cluster, store, *more):
    (cluster.folder / "sources").mkdir(exist_ok=True)
    return cluster.start(*flags(cluster, store), "--allow-file-root", str(cluster.folder / "sources"), *more)


def blob_keys(store):
    return [k for k in store.keys(PREFIX) if k.startswith(f"{PREFIX}/blobs/")]


def objects(store):
    """The weights in it."""
    bucket = boto3.resource("s3", endpoint_url=store.endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1").Bucket("data")
    return [o for o in bucket.objects.filter(Prefix=PREFIX) if "/blobs/" in o.key or "/manifests/" in o.key]


def forget(cluster, *names):
    """What another machine does not have."""
    for name in names:
        folder = cluster.data / name
        for path in [folder, *folder.rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)
        shutil.rmtree(folder)


def test_the_bucket_is_enough(empty_cluster, store):
    """The folder, the node's cache and the source are gone: the same weights are there for the next job."""
    c = start(empty_cluster, store)
    folder = model(c)
    job = c.push([SUM], weights=weights(folder))
    c.wait(job, "TRAINING_JOB_COMPLETED")
    assert c.user_lines(job) == [sum_of("model")]
    assert len(blob_keys(store)) == 3 and len([k for k in store.keys(PREFIX) if "/manifests/" in k]) == 1
    for key in blob_keys(store):
        assert hashlib.sha256(store.body(key)).hexdigest() == key.rpartition("/")[2]

    c.stop()
    forget(c, "store", "node")
    shutil.rmtree(folder)
    c.restart()
    again = c.json("recreate", job["id"])
    c.wait(again, "TRAINING_JOB_COMPLETED")
    assert c.user_lines(again) == [sum_of("model")]
    assert "fetched from the object store" in c.logs(again)
    assert not any((c.data / "store/blobs").rglob("?" * 64))  # the server has not fetched them
    third = c.json("recreate", job["id"])
    c.wait(third, "TRAINING_JOB_COMPLETED")
    assert "already on this node" in c.logs(third)


def test_objects_in_another_folder(empty_cluster):
    """`--objects dir:`, a folder that the next server has too."""
    c = empty_cluster
    (c.folder / "sources").mkdir()
    c.start("--cpus", "4", "--memory", "4Gi", "--objects", f"dir:{c.folder}/objects", "--allow-file-root", str(c.folder / "sources"))
    folder = model(c)
    job = c.push([SUM], weights=weights(folder))
    c.wait(job, "TRAINING_JOB_COMPLETED")
    assert len([p for p in (c.folder / "objects/blobs").rglob("?" * 64)]) == 3
    c.stop()
    forget(c, "store", "node")
    shutil.rmtree(folder)
    c.restart()
    again = c.json("recreate", job["id"])
    c.wait(again, "TRAINING_JOB_COMPLETED")
    assert c.user_lines(again) == [sum_of("model")]


def test_a_folder_that_lacks_some(empty_cluster, minio):
    """Files that the server's folder has are links; the others come from the bucket."""
    c = start(empty_cluster, minio)
    job = c.push([SUM], weights=weights(model(c)))
    c.wait(job, "TRAINING_JOB_COMPLETED")
    forget(c, "node")
    c.stop()
    c.restart()
    large = hashlib.sha256(body_of("modela.bin", 20 * MIB)).hexdigest()
    (c.data / "store/blobs/sha256" / large[:2] / large).unlink()
    again = c.json("recreate", job["id"])
    c.wait(again, "TRAINING_JOB_COMPLETED")
    assert c.user_lines(again) == [sum_of("model")]
    assert "fetched from the object store" in c.logs(again)
    tree = next((c.data / "node/trees").iterdir())
    assert {p.name: p.stat().st_nlink for p in tree.rglob("*.bin")} == {"a.bin": 2, "b.bin": 2, "c.bin": 2}
    assert [p.name for p in (c.data / "node/blobs").rglob("?" * 64)] == [large]


@pytest.mark.parametrize("label", ["weights:fetched", "weights:put"])
def test_the_server_dies_while_it_puts(empty_cluster, minio, label):
    """Blobs, manifest, row: killed in between, the next server goes on, and sends nothing again that is there."""
    c = start(empty_cluster, minio)
    c.stop()
    c.start(env={"STOKER_CRASH_AT": label})
    job = c.push([SUM], weights=weights(model(c)))
    assert c.process.wait(DEADLINE_S) == 9
    before = {o.key: o.last_modified for o in objects(minio)}
    assert len(before) == (4 if label == "weights:put" else 0)
    c.restart()
    c.wait(job, "TRAINING_JOB_COMPLETED")
    assert c.user_lines(job) == [sum_of("model")]
    after = {o.key: o.last_modified for o in objects(minio)}
    assert len(after) == 4 and {k: after[k] for k in before} == before


def test_a_store_that_goes_away_is_waited_for(empty_cluster, minio):
    """While weights are put, and while a runner gets them."""
    c = start(empty_cluster, minio)
    folder = model(c)
    minio.kill()
    asked = subprocess.Popen([STOKER, "weights", "prefetch", f"file://{folder}"], env=c.cli_environment(), stdout=subprocess.DEVNULL)
    until(lambda: "weights to the object store" in c.log.read_text())
    minio.start()
    assert asked.wait(DEADLINE_S) == 0 and c.json("weights", "ls")[0]["state"] == "READY"
    assert len(objects(minio)) == 4
    job = c.push([SUM], weights=weights(folder))
    c.wait(job, "TRAINING_JOB_COMPLETED")
    forget(c, "store")
    c.stop()
    forget(c, "node")
    c.start(env={"STOKER_CRASH_AT": "claim:after"})  # the runner is there, and has not staged anything
    again = c.json("recreate", job["id"])
    assert c.process.wait(DEADLINE_S) == 9
    minio.kill()
    c.restart()
    until(lambda: "waiting for the object store" in json.dumps(c.job(again)))
    minio.start()
    c.wait(again, "TRAINING_JOB_COMPLETED")
    assert c.user_lines(again) == [sum_of("model")]


def test_the_folder_is_a_cache_with_a_limit(empty_cluster, minio):
    """What goes from it is no loss: the rows stay, and a job whose source is gone gets its weights from the bucket."""
    c = start(empty_cluster, minio, "--mirror-bytes", "50Mi")
    folders = [model(c, name) for name in ("one", "two", "three")]
    jobs = [c.push([SUM], weights=weights(folder)) for folder in folders]
    for job, name in zip(jobs, ("one", "two", "three")):
        c.wait(job, "TRAINING_JOB_COMPLETED")
        assert c.user_lines(job) == [sum_of(name)]
    assert len(objects(minio)) == 12 and [w["state"] for w in c.json("weights", "ls")] == ["READY"] * 3
    assert sum(p.stat().st_size for p in (c.data / "store/blobs").rglob("*") if p.is_file()) < 50 * MIB
    for folder in folders:
        shutil.rmtree(folder)
    for job, name in zip(jobs, ("one", "two", "three")):
        again = c.json("recreate", job["id"])
        c.wait(again, "TRAINING_JOB_COMPLETED")
        assert c.user_lines(again) == [sum_of(name)]
    c.stop()
    assert c.cli("server", "--data", c.data, *c.flags, "--check", "--log-level", "error").out.endswith(": 0 faults\n")


def test_deleted_weights_leave_the_bucket(empty_cluster, minio):
    """By name, and what nothing names; blobs that other weights have stay."""
    c = start(empty_cluster, minio)
    one, two = model(c, "one"), model(c, "two")
    shutil.copy(one / "sub/b.bin", two / "sub/b.bin")
    for folder in (one, two):
        c.wait(c.push(["true"], weights=weights(folder)), "TRAINING_JOB_COMPLETED")
    assert len(objects(minio)) == 7
    row = next(w for w in c.json("weights", "ls") if w["source"].endswith("one"))
    c.cli("weights", "rm", row["id"], "--yes")
    left = objects(minio)
    assert len(left) == 4 and sum(o.size for o in left if "/blobs/" in o.key) == sum(p.stat().st_size for p in two.rglob("*.bin"))
    digest = hashlib.sha256(b"loose").hexdigest()
    minio.client.put_object(Bucket="data", Key=f"{PREFIX}/blobs/sha256/{digest[:2]}/{digest}", Body=b"loose")
    assert "in the object store" in c.cli("cache", "gc", "--older-than", "0s", "--dry-run").out and len(objects(minio)) == 5
    assert "in the object store" in c.cli("cache", "gc", "--older-than", "0s", "--yes").out
    assert sorted(o.key for o in objects(minio)) == sorted(o.key for o in left)


def test_what_the_bucket_has_lost_is_found_and_put_again(empty_cluster, minio):
    c = start(empty_cluster, minio)
    folder = model(c)
    job = c.push([SUM], weights=weights(folder))
    c.wait(job, "TRAINING_JOB_COMPLETED")
    assert c.cli("cache", "verify").code == 0
    lost = next(o for o in objects(minio) if "/blobs/" in o.key and o.size > MIB)
    minio.client.delete_object(Bucket="data", Key=lost.key)
    shutil.rmtree(folder)
    said = c.cli("cache", "verify", code=None)
    assert "missing in the object store" in said.out and said.code != 0, said
    assert len([o for o in objects(minio) if "/manifests/" in o.key]) == 0
    again = c.json("recreate", job["id"])
    c.wait(again, "TRAINING_JOB_COMPLETED")
    assert len(objects(minio)) == 4 and lost.key in [o.key for o in objects(minio)]


def damage(minio, key):
    """Other bytes of the same number."""
    body = bytearray(minio.body(key))
    body[len(body) // 2] ^= 1
    minio.client.put_object(Bucket="data", Key=key, Body=bytes(body))


def wrong(minio):
    """What its name does not say."""
    return [o.key for o in objects(minio) if hashlib.sha256(minio.body(o.key)).hexdigest() != o.key.rpartition("/")[2]]


def manifests(minio):
    return [o.key for o in objects(minio) if "/manifests/" in o.key]


def test_what_the_bucket_has_wrong_is_found_and_put_again(empty_cluster, store):
    """A flipped bit of a large file and of a small one that two weights share, and one in a list of files; nothing else is touched."""
    c = start(empty_cluster, store)
    one, two, three = model(c, "one"), model(c, "two"), model(c, "three")
    shutil.copy(one / "sub/b.bin", two / "sub/b.bin")
    jobs = []
    for folder in (one, two, three):
        jobs.append(c.push([SUM], weights=weights(folder)))
        c.wait(jobs[-1], "TRAINING_JOB_COMPLETED")
    assert c.cli("cache", "verify").code == 0
    before = sorted(o.key for o in objects(store))
    large = f"{PREFIX}/blobs/sha256/" + (lambda h: f"{h[:2]}/{h}")(hashlib.sha256(body_of("onea.bin", 20 * MIB)).hexdigest())
    shared = f"{PREFIX}/blobs/sha256/" + (lambda h: f"{h[:2]}/{h}")(hashlib.sha256((one / "sub/b.bin").read_bytes()).hexdigest())
    digest, = [w["manifest"] for w in c.json("weights", "ls") if w["source"].endswith("three")]
    for key in (large, shared, f"{PREFIX}/manifests/{digest}"):
        damage(store, key)
    said = c.cli("cache", "verify", code=None)
    assert said.code != 0 and said.out.count("damaged in the object store: put there again from the folder") == 4, said
    assert "sub/b.bin" in said.out and "its list of files" in said.out, said
    assert sorted(o.key for o in objects(store)) == before and wrong(store) == []
    assert c.cli("cache", "verify").code == 0
    c.stop()
    forget(c, "node")
    c.restart()
    for job in jobs:
        again = c.json("recreate", job["id"])
        c.wait(again, "TRAINING_JOB_COMPLETED")
        assert c.user_lines(again) == c.user_lines(job)
    assert sorted(o.key for o in objects(store)) == before and wrong(store) == []
    assert c.cli("cache", "verify").code == 0
    assert "mirror row" not in c.log.read_text()  # what is only put has none of its own


def test_damage_without_a_folder_comes_from_the_source(empty_cluster, minio):
    c = start(empty_cluster, minio)
    job = c.push([SUM], weights=weights(model(c)))
    c.wait(job, "TRAINING_JOB_COMPLETED")
    damage(minio, max(objects(minio), key=lambda o: o.size).key)
    c.stop()
    forget(c, "store", "node")
    c.restart()
    assert "damaged in the object store" in c.cli("cache", "verify", code=None).out
    assert len(objects(minio)) == 2
    again = c.json("recreate", job["id"])
    c.wait(again, "TRAINING_JOB_COMPLETED")
    assert c.user_lines(again) == [sum_of("model")] and wrong(minio) == []


def test_verify_waits_for_a_store_that_is_away(empty_cluster, minio):
    """An answer that is cut, then none for a while: it goes on where it was, and finds nothing."""
    weather = Weather(minio)
    try:
        c = start(empty_cluster, weather)
        c.wait(c.push(["true"], weights=weights(model(c))), "TRAINING_JOB_COMPLETED")
        cut = threading.Event()

        def fault(method, path):
            if cut.is_set():
                return "status", 503
            if method == "GET" and "/blobs/" in path:
                cut.set()
                return "cut", 5 * MIB
            return None

        weather.fault = fault
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            verify = pool.submit(c.cli, "cache", "verify", code=None)
            until(lambda: weather.struck > 20)
            assert not verify.done() and "it is away: waiting" in c.api("GET", "/v1/maintenance")[1]["maintenance"]["doing"]
            weather.fault = lambda method, path: None
            said = verify.result(DEADLINE_S)
        assert said.code == 0, said
    finally:
        weather.close()


def test_one_object_that_the_store_does_not_give(empty_cluster, minio):
    """It is named and stays; the store is not taken for away, and the others are read."""
    weather = Weather(minio)
    try:
        c = start(empty_cluster, weather)
        c.wait(c.push(["true"], weights=weights(model(c))), "TRAINING_JOB_COMPLETED")
        bad, other = sorted((o for o in objects(minio) if "/blobs/" in o.key), key=lambda o: o.size)[:2]
        damage(minio, other.key)
        weather.fault = lambda method, path: ("status", 500) if method == "GET" and bad.key in path else None
        said = c.cli("cache", "verify", code=None)
        assert said.code != 0 and "cannot be read in the object store" in said.out and "damaged in the object store" in said.out, said
        keys = [o.key for o in objects(minio)]
        assert bad.key in keys and other.key in keys and wrong(minio) == []
    finally:
        weather.close()


def test_verify_leaves_what_a_fetch_relies_on(empty_cluster, minio):
    """Another team's put is in the middle of the same weights when one of their objects is found to be missing, and one to be damaged."""
    weather = Weather(minio)
    try:
        c = start(empty_cluster, weather)
        folder = model(c)
        c.wait(c.push(["true"], weights=weights(folder)), "TRAINING_JOB_COMPLETED")
        small, _, large = sorted((o.key for o in objects(minio) if "/blobs/" in o.key), key=lambda k: len(minio.body(k)))
        minio.client.delete_object(Bucket="data", Key=large)
        damage(minio, small)
        held, go = threading.Event(), threading.Event()

        def hold(method, path):
            if method in ("PUT", "POST") and large in path and not go.is_set():
                held.set()
                go.wait(DEADLINE_S)

        weather.fault = hold
        same = c.folder / "sources/same"
        shutil.copytree(folder, same)
        job = c.push([SUM], weights=weights(same))
        assert held.wait(DEADLINE_S)
        here = c.data / "store" / small.removeprefix(f"{PREFIX}/")
        aside = here.rename(c.folder / "aside")  # else the folder would mend it
        said = c.cli("cache", "verify", code=None)
        aside.rename(here)
        go.set()
        assert said.code != 0 and said.out.count("a fetch relies on it just now") == 2, said
        assert len(manifests(minio)) == 1 and small in [o.key for o in objects(minio)]
        c.wait(job, "TRAINING_JOB_COMPLETED")
        assert "damaged in the object store: put there again from the folder" in c.cli("cache", "verify", code=None).out
    finally:
        weather.close()


def test_a_runner_reads_its_own_weights_only(empty_cluster, minio):
    c = start(empty_cluster, minio)
    jobs = [c.push([c.hold()], weights=weights(model(c, name))) for name in ("one", "two")]
    for job in jobs:
        c.wait(job, "TRAINING_JOB_RUNNING")
    starts = [json.loads(p.read_text()) for p in c.data.glob("runs/*/launch.json")]
    own = {job["id"]: [w["manifest"] for w in c.json("weights", "ls") if w["source"].endswith(name)][0] for job, name in zip(jobs, ("one", "two"))}

    def sign(token, method, key):
        line = http.client.HTTPConnection("local")
        line.sock = socket.socket(socket.AF_UNIX)
        line.sock.connect(str(c.data / "server.sock"))
        line.request("POST", "/runner/v1/sign_all", json.dumps({"request": [{"method": method, "key": key}, {"method": "GET", "key": "stoker.json"}]}),
                     {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
        answer, other = json.loads(line.getresponse().read())["answer"]
        assert other["status"] == 403
        return answer["status"] or 200

    seen = []
    for start_ in starts:
        mine = [m for m in own.values() if sign(start_["token"], "GET", f"manifests/{m}") == 200]
        assert len(mine) == 1
        seen += mine
        for manifest in own.values():
            lines = minio.body(f"{PREFIX}/manifests/{manifest}").decode().splitlines()[1:]
            keys = [f"blobs/sha256/{d[:2]}/{d}" for d in (line.split()[0] for line in lines)]
            assert len(keys) == 3
            for key in [f"manifests/{manifest}", *keys]:
                for method in ("GET", "HEAD"):
                    assert sign(start_["token"], method, key) == (200 if [manifest] == mine else 403), key
                for method in ("PUT", "DELETE", "POST"):
                    assert sign(start_["token"], method, key) == 403, key
        digest = keys[0].rpartition("/")[2]
        for key in [f"blobs/sha256/00/{digest}", f"blobs/{digest}", digest, f"blobs/sha256/{digest[:2]}/{digest.upper()}", "manifests/", "blobs/sha256/"]:
            assert sign(start_["token"], "GET", key) in (400, 403), key
    assert sorted(seen) == sorted(own.values())
    for job in jobs:
        c.release(job)
        c.wait(job, "TRAINING_JOB_COMPLETED")
