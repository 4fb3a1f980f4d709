"""s3:// from a real MinIO; https:// and hf:// from a server that misbehaves as it is told."""
import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys

import pytest
from conftest import CALL_S, ROOT, Lines, end_process, held_port, until
from s3 import KEY, KEYS, SECRET, s3_server

@pytest.fixture
def minio(empty_cluster):
    with s3_server(empty_cluster.folder, "minio") as server:
        yield server


INSIDE = ("--allow-source-network", "127.0.0.0/8")


def train(cluster, **weights):
    """A job that prints the digest of big.bin of this source."""
    return cluster.push(["sha256sum < /d/big.bin"], weights=[{"source": "s3://data/train", "mount_location": "/d", **weights}])


def fetched(cluster, job, content):
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    return cluster.user_lines(job)[0].split()[0] == hashlib.sha256(content).hexdigest()


def refusal(cluster, job):
    return cluster.wait(job, "TRAINING_JOB_DEPLOY_FAILED")["error_id"]


@pytest.mark.parametrize("kind", ["rclone", "gofakes3"])
def test_other_s3_servers(empty_cluster, kind):
    """rclone answers a range with 200 and the right Content-Range, where S3 says 206."""
    with s3_server(empty_cluster.folder, kind) as (endpoint, s3):
        big = os.urandom(40 << 20)
        s3.put_object(Bucket="data", Key="train/big.bin", Body=big)
        part = s3.get_object(Bucket="data", Key="train/big.bin", Range="bytes=5-9")["ResponseMetadata"]["HTTPStatusCode"]
        assert part == {"rclone": 200, "gofakes3": 206}[kind]
        cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--s3-endpoint", endpoint, *INSIDE)
        cluster.cli("secrets", "set", "aws", stdin=KEYS)
        assert fetched(cluster, train(cluster, auth_secret_name="aws"), big)


def allow_strangers(s3, *actions):
    """A bucket policy, as for public data."""
    arn = "arn:aws:s3:::data"
    s3.put_bucket_policy(Bucket="data", Policy=json.dumps({"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Principal": {"AWS": ["*"]}, "Action": [a], "Resource": [arn if a == "s3:ListBucket" else f"{arn}/*"]} for a in actions]}))


def test_public_buckets(empty_cluster, minio):
    """Without a secret requests are not signed; a bucket that is not public says what is missing."""
    endpoint, s3 = minio
    big = os.urandom(20 << 20)
    s3.put_object(Bucket="data", Key="train/big.bin", Body=big)
    cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--s3-endpoint", endpoint, *INSIDE)
    assert refusal(cluster, train(cluster)) == "source_unauthorized"
    allow_strangers(s3, "s3:GetObject")  # each object by its name, no list
    assert refusal(cluster, train(cluster)) == "source_unauthorized"
    assert fetched(cluster, train(cluster, source="s3://data/train/big.bin"), big)
    allow_strangers(s3, "s3:GetObject", "s3:ListBucket")
    assert fetched(cluster, train(cluster), big)


def test_a_region_is_learned(empty_cluster):
    with s3_server(empty_cluster.folder, "minio", MINIO_SITE_REGION="eu-north-7") as (endpoint, s3):
        big = os.urandom(20 << 20)
        s3.put_object(Bucket="data", Key="train/big.bin", Body=big)
        cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--s3-endpoint", endpoint, *INSIDE)
        cluster.cli("secrets", "set", "aws", stdin=KEYS)
        assert fetched(cluster, train(cluster, auth_secret_name="aws"), big)


def test_an_endpoint_of_its_own(empty_cluster, minio, faulty):
    """Two stores and two Hubs in one job; only the hosts that the administrator allows."""
    endpoint, s3 = minio
    big, other = os.urandom(20 << 20), os.urandom(20 << 20)
    s3.put_object(Bucket="data", Key="train/big.bin", Body=big)
    with s3_server(empty_cluster.folder, "rclone") as (second, s3b):
        s3b.put_object(Bucket="data", Key="train/big.bin", Body=other)
        cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--s3-endpoint", endpoint, *INSIDE,
                                      "--allow-endpoint", second, "--allow-endpoint", f"http://127.0.0.1:{faulty}")
        cluster.cli("secrets", "set", "aws", stdin=KEYS)
        rows = [{"source": "s3://data/train", "auth_secret_name": "aws", "endpoint": e, "mount_location": f"/{i}"}
                for i, e in enumerate((endpoint, second, None))]
        rows.append({"source": "hf://team/model", "endpoint": f"http://127.0.0.1:{faulty}", "mount_location": "/hub"})
        job = cluster.push(["sha256sum < /0/big.bin", "sha256sum < /1/big.bin", "sha256sum < /2/big.bin", "cat /hub/config.json"],
                           weights=[{k: v for k, v in row.items() if v} for row in rows])
        cluster.wait(job, "TRAINING_JOB_COMPLETED")
        lines = cluster.user_lines(job)
        assert [line.split()[0] for line in lines[:3]] == [hashlib.sha256(x).hexdigest() for x in (big, other, big)]
        assert lines[3] == '{"hidden_size": 8}'
        assert {w["endpoint"] for w in cluster.json("weights", "ls")} == {None, endpoint, second, f"http://127.0.0.1:{faulty}"}
        cluster.cli("weights", "prefetch", "s3://data/train", "--secret", "aws", "--endpoint", second)
        refused = cluster.job_folder(["true"], weights=[{"source": "s3://data/train", "mount_location": "/d", "endpoint": "https://example.org"}])
        assert cluster.error("push", refused / "train.yaml") == "source_endpoint_denied"
        # neither another port, nor another scheme, nor a name that only looks alike
        host, port = second[len("http://"):].split(":")
        for wrong in (f"http://{host}:{int(port) + 1}", f"https://{host}:{port}", f"http://{host}.example.org:{port}",
                      f"http://example.org/{host}:{port}"):
            assert cluster.error("weights", "prefetch", "s3://data/train", "--endpoint", wrong) == "source_endpoint_denied", wrong
        for source, wrong in (("https://127.0.0.1/x", second), ("s3://data/train", "127.0.0.1"), ("s3://data/train", second + "/?x=1"),
                              ("s3://data/train", f"http://{host}:{port}@example.org")):
            assert cluster.error("weights", "prefetch", source, "--endpoint", wrong, code=2) == "source_invalid"


def test_s3_source(empty_cluster, minio):
    endpoint, s3 = minio
    big = os.urandom(40 << 20)
    s3.put_object(Bucket="data", Key="train/big.bin", Body=big)
    for i in range(30):
        s3.put_object(Bucket="data", Key=f"train/small/{i:02d} +=.txt", Body=f"{i}\n".encode())
    s3.put_object(Bucket="data", Key="other/x", Body=b"not wanted")
    cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--s3-endpoint", endpoint, "--allow-source-network", "127.0.0.0/8")
    source = [{"source": "s3://data/train", "mount_location": "/d", "auth_secret_name": "aws"}]
    cluster.cli("secrets", "set", "aws", stdin=json.dumps({"access_key": KEY, "secret_key": SECRET}))
    assert refusal(cluster, cluster.push(["true"], weights=source)) == "source_secret_invalid"
    cluster.cli("secrets", "set", "aws", stdin=json.dumps({"aws_access_key_id": KEY, "aws_secret_access_key": SECRET}))
    job = cluster.push(["sha256sum < /d/big.bin; ls /d/small | wc -l; cat '/d/small/07 +=.txt'; ls /d"], weights=source)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    lines = cluster.user_lines(job)
    assert lines[0].split()[0] == hashlib.sha256(big).hexdigest() and lines[1:3] == ["30", "7"] and "x" not in lines
    cluster.cli("secrets", "set", "aws", stdin=json.dumps({"aws_access_key_id": KEY, "aws_secret_access_key": "wrong-secret"}))
    s3.put_object(Bucket="data", Key="train/new", Body=b"1")
    denied = cluster.push(["true"], weights=[{**source[0], "allow_patterns": ["new"]}])
    assert refusal(cluster, denied) == "source_denied"


@contextlib.contextmanager
def misbehaving(root, *flags):
    """tests/mock/faulty.py over a folder; yields its port."""
    process = subprocess.Popen([sys.executable, ROOT / "tests/mock/faulty.py", "--root", str(root), *flags],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield int(re.search(r"port=(\d+)", Lines(process).next() or "")[1])
    finally:
        end_process(process)


@pytest.fixture
def faulty(empty_cluster):
    """The server of faulty.py over a small repository; yields its port."""
    root = empty_cluster.folder / "hub"
    (root / "sub").mkdir(parents=True)
    (root / "config.json").write_text('{"hidden_size": 8}')
    (root / "sub/model.safetensors").write_bytes(os.urandom(20 << 20))
    empty_cluster.repository = root
    with misbehaving(root) as port:
        yield port


def start(cluster, port, fault=""):
    return cluster.start("--cpus", "4", "--memory", "4Gi", "--hf-endpoint", f"http://127.0.0.1:{port}{fault}",
                         "--allow-source-network", "127.0.0.0/8")


HUB = [{"source": "hf://team/model@main", "mount_location": "/w"}]


def test_hub_source(empty_cluster, faulty):
    cluster = start(empty_cluster, faulty)
    job = cluster.push(["sha256sum < /w/sub/model.safetensors; cat /w/config.json"], weights=HUB)
    done = cluster.wait(job, "TRAINING_JOB_COMPLETED")
    digest = hashlib.sha256((cluster.repository / "sub/model.safetensors").read_bytes()).hexdigest()
    assert cluster.user_lines(job)[0].startswith(digest)
    assert len(done["weights"][0]["revision"]) == 40, "the branch was resolved to a commit and frozen"


@pytest.mark.parametrize("fault", ["status=503:2", "cut=1000:2", "reset:1", "norange", "status=429:1,retry-after=1", "list.status=503:2"])
def test_passing_faults_are_waited_out(empty_cluster, faulty, fault):
    cluster = start(empty_cluster, faulty, f"/f/{fault}")
    job = cluster.push(["sha256sum < /w/sub/model.safetensors"], weights=HUB)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job)[0].split()[0] == hashlib.sha256((cluster.repository / "sub/model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("fault, error", [
    ("corrupt", "digest_mismatch"), ("lie", "digest_mismatch"), ("length=-5", "source_changed"), ("loop", "source_redirect_denied"),
    ("auth=token", "source_unauthorized"), ("gated", "source_unauthorized"), ("list.garbage", "source_broken"), ("gzip", "source_broken"),
])
def test_lying_sources_fail_before_user_code(empty_cluster, faulty, fault, error):
    cluster = start(empty_cluster, faulty, f"/f/{fault}")
    job = cluster.push(["echo never"], weights=HUB)
    done = cluster.wait(job, "TRAINING_JOB_DEPLOY_FAILED")
    assert done["error_id"] == error and "hf://team/model" in done["error_message"], done["error_message"]
    assert "never" not in cluster.user_lines(job)
    assert all(w["state"] != "READY" for w in cluster.json("weights", "ls"))


def test_missing_repository_and_revision(empty_cluster, faulty):
    cluster = start(empty_cluster, faulty)
    for source, error in (("hf://team/missing-one", "source_unauthorized"), ("hf://team/model@nothing", "source_not_found")):
        job = cluster.push(["true"], weights=[{"source": source, "mount_location": "/w"}])
        assert refusal(cluster, job) == error


def test_a_certificate_that_nobody_vouches_for(empty_cluster, certificate):
    with misbehaving(empty_cluster.folder, "--tls", *certificate) as port:
        cluster = empty_cluster.start("--allow-source-network", "127.0.0.0/8")
        assert cluster.error("weights", "prefetch", f"https://localhost:{port}/plain/cert.pem") == "certificate_untrusted"


def test_a_source_that_refuses_is_not_taken_for_a_bad_login(empty_cluster, faulty):
    cluster = start(empty_cluster, faulty, "/f/auth=token")
    assert cluster.error("weights", "prefetch", "hf://team/model@main", code=4) == "source_unauthorized"


def test_patterns_tell_mirrors_apart(empty_cluster, faulty):
    cluster = start(empty_cluster, faulty)
    cluster.cli("weights", "prefetch", "hf://team/model@main")
    cluster.cli("weights", "prefetch", "hf://team/model@main", "--allow", "*.json", "--ignore", "sub/**")
    rows = [line.split("  ")[-1].strip() for line in cluster.cli("weights", "ls").out.splitlines()]
    assert rows[0] == "PATTERNS" and sorted(rows[1:]) == ["*.json !sub/**", "-"]


def test_a_mirrored_revision_by_its_manifest(empty_cluster, faulty):
    """Nobody asks where it came from: another job has it when the Hub is gone, whole or in part, and nobody but the team."""
    cluster = start(empty_cluster, faulty)
    cluster.cli("weights", "prefetch", HUB[0]["source"])
    row = cluster.json("weights", "ls")[0]
    digits = row["manifest"][:12]
    assert digits in cluster.cli("weights", "ls").out
    cluster.stop()
    cluster.start("--cpus", "4", "--memory", "4Gi", "--hf-endpoint", f"http://127.0.0.1:{held_port()}", *INSIDE)

    def seen(source, **more):
        job = cluster.push(["cd /w; find . -type f | sort; sha256sum < config.json"], weights=[{"source": source, "mount_location": "/w", **more}])
        done = cluster.wait(job, "TRAINING_JOB_COMPLETED")
        return done["weights"][0]["revision"], cluster.user_lines(job)

    config = hashlib.sha256((cluster.repository / "config.json").read_bytes()).hexdigest() + "  -"
    assert seen(f"bt://sha256:{row['manifest']}") == (row["revision"], ["./config.json", "./sub/model.safetensors", config])
    assert seen(f"bt://sha256:{digits}", ignore_patterns=["**/*.safetensors"]) == (row["revision"], ["./config.json", config])
    cluster.cli("weights", "prefetch", f"bt://sha256:{digits}")
    assert [w["id"] for w in cluster.json("weights", "ls")] == [row["id"]]

    # what there is not
    assert cluster.error("weights", "prefetch", "bt://sha256:000000000000") == "source_not_found"
    assert cluster.error("weights", "prefetch", f"bt://sha256:{digits}", "--allow", "*.gguf") == "source_empty"
    key = cluster.people({"stranger": ("others", "member")})["stranger"]
    assert cluster.error("weights", "prefetch", f"bt://sha256:{digits}", token=key) == "source_not_found"
    cluster.cli("weights", "rm", row["id"], "--yes")
    assert cluster.error("push", cluster.job_folder(["true"], weights=[{"source": f"bt://sha256:{digits}", "mount_location": "/w"}]) / "train.yaml") == "source_not_found"


def test_a_name_that_cannot_be_is_said_with_its_source(empty_cluster, faulty):
    (empty_cluster.repository / "new\nline").write_text("x")
    cluster = start(empty_cluster, faulty)
    assert cluster.error("weights", "prefetch", "hf://team/model@main", code=2) == "source_invalid"
    assert 'hf://team/model@main: "new?line"' in cluster.cli("weights", "prefetch", "hf://team/model@main", code=2).err
    cluster.cli("weights", "prefetch", "hf://team/model@main", "--ignore", "new*")


def test_a_killed_server_resumes_the_fetch(empty_cluster, faulty):
    cluster = start(empty_cluster, faulty, "/f/slow=400000")
    job = cluster.push(["sha256sum < /w/sub/model.safetensors"], weights=HUB)
    until(lambda: (cluster.job(job).get("progress") or {}).get("done_bytes", 0) > 1 << 20)
    cluster.kill()
    cluster.restart()
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job)[0].split()[0] == hashlib.sha256((cluster.repository / "sub/model.safetensors").read_bytes()).hexdigest()


def test_jobs_that_ask_together_share_one_fetch(empty_cluster, faulty):
    cluster = start(empty_cluster, faulty)
    cluster.cli("teams", "create", "lab")
    jobs = [cluster.push(["true"], *team, weights=HUB) for team in ([], ["--set", "team=lab"]) for _ in range(2)]
    for job in jobs:
        cluster.wait(job, "TRAINING_JOB_COMPLETED")
    import urllib.request
    size = (cluster.repository / "sub/model.safetensors").stat().st_size

    def sent():
        stats = json.loads(urllib.request.urlopen(f"http://127.0.0.1:{faulty}/stats", timeout=CALL_S).read())
        return sum(v["bytes"] for path, v in stats["paths"].items() if path.endswith("model.safetensors"))
    until(lambda: sent() >= size)  # it counts what it has written already
    assert sent() == size, "an object is fetched from its origin once, whoever asks"
    listed = cluster.json("weights", "ls")  # one a team, of the same content
    assert len(listed) == 2 and len({w["manifest"] for w in listed}) == 1
    for left, w in zip((size, 0), listed):
        cluster.cli("weights", "rm", w["id"], "-y")
        assert left <= sum(p.stat().st_size for p in (cluster.data / "store/blobs").rglob("*") if p.is_file()) <= left + 1000
