"""Weights of jobs that are repositories of the server's own Hub: uploaded by the real client, named by hf://, and never copied."""
import hashlib
import json
import os
import textwrap

import pytest
from conftest import CLUSTER, PARTS, new_cluster, until
from hub import hub_server
from hub_client import PRELUDE, Client
from s3 import flags, minio  # noqa: F401
from test_object_weights import blob_keys, forget
from test_repos import blobs, good, move, remove
from test_wired import program

PEOPLE = {"ann": ("red", "member"), "bob": ("red", "member"), "chief": ("red", "admin"), "eve": ("blue", "member")}
FLAGS = ["--cpus", "4", "--memory", "8Gi", "--hub-ttl", "0s", "--allow-source-network", "127.0.0.0/8", *(x for part in ("hub", "clients") for x in ("--share", str(PARTS / part)))]
BIG = os.urandom(3 << 20)  # by LFS
FILES = {"config.json": b'{"a": 1}', "big.bin": BIG, "deep/er/notes.txt": b"notes", "deep/same.bin": BIG}


def sums(files):
    return {path: hashlib.sha256(data).hexdigest() for path, data in sorted(files.items())}


def upload(c, token, name, files=None, **kw):
    """By the real client; the commit."""
    folder = c.folder / f"up-{os.urandom(4).hex()}"
    for path, data in (FILES if files is None else files).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return Client(c.folder, c.url, "2.4", token).run(f"""
        kw = {kw!r}
        revision = kw.pop("revision", None)
        api.create_repo("{name}", exist_ok=True, **kw)
        kw = dict(x for x in kw.items() if x[0] == "repo_type")
        if revision:
            api.create_branch("{name}", branch=revision, exist_ok=True, **kw)
        said(api.upload_folder(repo_id="{name}", folder_path="{folder}", revision=revision, **kw).oid)
    """)


LIST = """
import hashlib, json, pathlib
print(json.dumps({str(p.relative_to("/w")): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(pathlib.Path("/w").rglob("*")) if p.is_file()}))
"""


def push(c, token, source, commands=("python3 list.py",), code=0, **weights):
    folder = c.job_folder(list(commands), project="p", files={"list.py": LIST}, weights=[{"source": source, "mount_location": "/w", **weights}])
    done = c.cli("push", folder / "train.yaml", "-o", "json", code=code, token=token, env={"STOKER_ERRORS": "json"})
    return json.loads(done.out if done.code == 0 else done.err.splitlines()[-1])


def mounted(c, job):
    c.wait(job, "TRAINING_JOB_COMPLETED")
    return json.loads(c.user_lines(job)[-1])


def revision(c, job):
    """As the job's log has it."""
    line = next(x for x in c.logs(job).splitlines() if x.startswith("stoker: ") and "weights hf://" in x and "->" in x)
    return line.split(" at ")[1].split(":")[0], line


@pytest.fixture(scope="module")
def both():
    with hub_server() as hub, new_cluster() as c:
        c.start(*FLAGS, "--hub-upstream", hub.url, "--hf-endpoint", hub.url)
        c.tokens = {**c.people(PEOPLE), "admin": c.token}
        yield c, hub


@pytest.fixture
def site(both, request):
    request.node.stash[CLUSTER] = both[0]
    both[1].forget()
    return both[0]


def test_a_repository_of_this_server(site, both):
    first = upload(site, site.tokens["ann"], "ann/model", private=True)
    before, rows = blobs(site), site.json("weights", "ls")
    job = push(site, site.tokens["ann"], "hf://ann/model")
    got = mounted(site, job)
    assert {x: got[x] for x in FILES} == sums(FILES) and set(got) == {*FILES, ".gitattributes"}
    assert revision(site, job)[0] == first[:12] and "of this server's Hub" in revision(site, job)[1]
    assert not both[1].asked()  # nobody else was asked
    assert blobs(site) == before and site.json("weights", "ls") == rows  # each file once, and named by the repository alone
    site.cli("cache", "verify")


def test_what_a_source_may_say(site):
    token = site.tokens["ann"]
    first = upload(site, token, "ann/revs", {"a.txt": b"one", "sub/b.txt": b"b"})
    Client(site.folder, site.url, "2.4", token).run('api.create_tag("ann/revs", tag="v1"); said(1)')
    second = upload(site, token, "ann/revs", {"a.txt": b"two"})
    third = upload(site, token, "ann/revs", {"a.txt": b"three"}, revision="deep/branch")
    for rev, commit_, text in (("", second, b"two"), ("@main", second, b"two"), ("@v1", first, b"one"), ("@deep%2Fbranch", third, b"three"), (f"@{first}", first, b"one"),
                               (f"@{first[:8]}", first, b"one")):
        job = push(site, token, f"hf://ann/revs{rev}")
        assert mounted(site, job)["a.txt"] == hashlib.sha256(text).hexdigest(), rev
        assert revision(site, job)[0] == commit_[:12]
    assert mounted(site, push(site, token, "hf://ANN/Revs@main/sub")) == sums({"b.txt": b"b"})
    assert mounted(site, push(site, token, "hf://ann/revs", allow_patterns=["**/*.txt", "*.txt"], ignore_patterns=["sub/**"])) == sums({"a.txt": b"two"})
    for type_, prefix in (("dataset", "datasets/"), ("space", "spaces/")):
        upload(site, token, "red/typed", {"x": type_.encode()}, repo_type=type_, **({"space_sdk": "static"} if type_ == "space" else {}))
        assert mounted(site, push(site, token, f"hf://{prefix}red/typed"))["x"] == hashlib.sha256(type_.encode()).hexdigest()
    site.cli("secrets", "set", "other", "--team", "red", stdin="hf_of_the_other_hub")
    assert mounted(site, push(site, token, "hf://ann/revs", auth_secret_name="other", allow_patterns=["a.txt"])) == sums({"a.txt": b"two"})
    # refused at once, in words
    assert "has no revision v2" in json.dumps(push(site, token, "hf://ann/revs@v2", code=3))
    for source, words, more in (("hf://ann/revs@main/none", "no such folder", {}), ("hf://ann/revs", "leave none of its", {"allow_patterns": ["*.bin"]})):
        job = push(site, token, source, **more)
        assert site.wait(job)["current_status"] == "TRAINING_JOB_DEPLOY_FAILED" and words in site.logs(job)


def test_a_cache_of_the_library(site):
    token = site.tokens["ann"]
    first = upload(site, token, "ann/cached", private=True)
    code = """
        print("found", snapshot_download("ann/cached").rsplit("/")[-1])
        said(digests(snapshot_download("ann/cached")))
    """
    folder = site.job_folder([f"HF_HUB_OFFLINE=1 {program()} main.py"], project="p", files={"main.py": PRELUDE + textwrap.dedent(code)},
                             weights=[{"source": "hf://ann/cached", "layout": "hub", "ignore_patterns": [".gitattributes"]}])
    job = json.loads(site.cli("push", folder / "train.yaml", "-o", "json", token=token).out)
    assert mounted(site, job) == sums(FILES) and f"found {first}" in site.logs(job)


def test_whose_it_is(site, both):
    """In the order, and with the rights, of the Hub itself."""
    hub = both[1]
    upload(site, site.tokens["ann"], "ann/secret", {"x": b"ann's"}, private=True)
    upload(site, site.tokens["eve"], "eve/open", {"x": b"eve's"})
    upload(site, site.tokens["eve"], "eve/both", {"x": b"eve's"})
    upload(site, site.tokens["eve"], "blue/secret", {"x": b"blue's"}, private=True)
    upload(site, site.tokens["eve"], "blue/open", {"x": b"blue's"})
    upload(site, site.tokens["ann"], "red/secret", {"x": b"red's"}, private=True)
    for id_ in ("eve/both", "blue/open"):
        hub.repo(id_, {"x": b"the other Hub's"})

    def reads(person, source, **kw):
        return mounted(site, push(site, site.tokens[person], source, **kw))["x"]

    def is_(data):
        return hashlib.sha256(data).hexdigest()

    for person, source, data in (("ann", "ann/secret", b"ann's"), ("chief", "ann/secret", b"ann's"), ("bob", "red/secret", b"red's"), ("bob", "eve/open", b"eve's"),
                                 ("bob", "blue/open", b"blue's"), ("bob", "eve/both", b"the other Hub's"), ("eve", "eve/both", b"eve's")):
        assert reads(person, f"hf://{source}") == is_(data), (person, source)
    # who names an endpoint means that Hub alone
    assert reads("bob", "hf://blue/open", endpoint=hub.url) == is_(b"the other Hub's")
    # what is not for the caller's eyes is not there: as any other name that is nobody's
    words = set()
    for person, source in (("bob", "ann/secret"), ("eve", "ann/secret"), ("eve", "red/secret"), ("ann", "blue/secret"), ("bob", "ann/absent")):
        job = push(site, site.tokens[person], f"hf://{source}")
        assert site.wait(job)["current_status"] == "TRAINING_JOB_DEPLOY_FAILED"
        words.add(site.job(job)["error_message"].replace(source, "NAME"))
    assert len(words) == 1 and "no such repository" in words.pop()
    # the same of a job that is made again by somebody else
    job = push(site, site.tokens["ann"], "hf://ann/secret")
    mounted(site, job)
    assert "no such repository" in json.dumps(site.refusal("recreate", job["id"], token=site.tokens["bob"]))
    again = json.loads(site.cli("recreate", job["id"], "-o", "json", token=site.tokens["ann"]).out)
    assert mounted(site, again)["x"] == is_(b"ann's")


def test_while_the_job_waits(site, both):
    """It is the repository that was meant: one that takes the name later is another one, and so is that of the other Hub."""
    token, hub = site.tokens["ann"], both[1]
    first = upload(site, token, "ann/moves", {"x": b"first"})
    upload(site, token, "ann/goes", {"x": b"goes"})
    hub.repo("ann/goes", {"x": b"a stranger's"})
    hub.repo("org/slow", {"x": b"slow"})
    with hub.fault("info", path="org/slow", hold=0) as slow:
        ahead = [push(site, token, "hf://org/slow", ["true"]) for _ in range(16)]  # no more jobs are fetched for at once
        moved, gone = (push(site, token, f"hf://ann/{name}") for name in ("moves", "goes"))
        good(move(site, "ann/moves", "ann/moved", token))
        good(remove(site, "ann/goes", token))
        second = upload(site, token, "ann/moves", {"x": b"another"})
        assert "weights of jobs ahead" in json.dumps(site.job(moved))
        slow.go.set()
        for job in ahead:
            site.wait(job)
    assert mounted(site, moved)["x"] == hashlib.sha256(b"first").hexdigest() and revision(site, moved)[0] == first[:12] != second[:12]
    assert site.wait(gone)["current_status"] == "TRAINING_JOB_DEPLOY_FAILED" and "no such repository on this server" in site.logs(gone)
    assert not hub.asked(path="ann/goes")


def test_the_old_name_leads_there(site):
    token = site.tokens["ann"]
    upload(site, token, "ann/old-name", {"x": b"x"})
    good(move(site, "ann/old-name", "ann/new-name", token))
    assert mounted(site, push(site, token, "hf://ann/old-name"))["x"] == hashlib.sha256(b"x").hexdigest()


def test_a_retry_has_the_same_commit(site):
    token = site.tokens["ann"]
    first = upload(site, token, "ann/retried", {"x": b"first"})
    folder = site.job_folder(["python3 list.py; test $BT_RETRY_COUNT -gt 0 || { until test -e /tmp/go; do sleep 0.1; done; exit 1; }"], project="p", files={"list.py": LIST},
                             weights=[{"source": "hf://ann/retried", "mount_location": "/w"}], retry={"on": ["failure"], "max_attempts": 2})
    job = json.loads(site.cli("push", folder / "train.yaml", "-o", "json", token=token).out)
    until(lambda: any(x.startswith("{") for x in site.user_lines(job)))
    upload(site, token, "ann/retried", {"x": b"second"})
    site.release(job)
    site.wait(job, "TRAINING_JOB_COMPLETED")
    seen = [json.loads(x)["x"] for x in site.user_lines(job) if x.startswith("{")]
    assert seen == [hashlib.sha256(b"first").hexdigest()] * 2 and revision(site, job)[0] == first[:12]
    again = json.loads(site.cli("recreate", job["id"], "-o", "json", token=token).out)
    until(lambda: any(x.startswith("{") for x in site.user_lines(again)))
    assert json.loads(next(x for x in site.user_lines(again) if x.startswith("{")))["x"] == seen[0]
    site.cli("stop", again["id"], "--now")


def test_deleted_beside_a_job(site):
    """What a job has stays until it is over, and goes then: no row of weights holds it."""
    token = site.tokens["ann"]
    data = os.urandom(200_000)
    upload(site, token, "ann/held", {"x": data})
    job = push(site, token, "hf://ann/held", [site.hold(), "python3 list.py"])
    site.wait(job, "TRAINING_JOB_RUNNING")
    good(remove(site, "ann/held", token))
    site.cli("cache", "gc", "--yes")
    digest = hashlib.sha256(data).hexdigest()
    assert digest in blobs(site)
    site.release(job)
    assert mounted(site, job)["x"] == digest
    assert "no such repository" in json.dumps(site.refusal("recreate", job["id"], token=token))


def test_prefetched(site, both):
    token = site.tokens["ann"]
    upload(site, token, "ann/fetched", {"x": b"1234"})
    rows = site.json("weights", "ls")
    said = site.cli("weights", "prefetch", "hf://ann/fetched", "--allow", "x", token=token)
    assert "is mirrored: 4 B" in said.out + said.err and site.json("weights", "ls") == rows and not both[1].asked()


def test_without_an_upstream(empty_cluster):
    c = empty_cluster
    c.start(*FLAGS, "--hub-upstream", "off", "--hf-endpoint", "http://127.0.0.1:9")
    tokens = c.people(PEOPLE)
    upload(c, tokens["eve"], "eve/open", {"x": b"eve's"})
    upload(c, tokens["ann"], "ann/mine", {"x": b"mine"}, private=True)
    assert mounted(c, push(c, tokens["bob"], "hf://eve/open"))["x"] == hashlib.sha256(b"eve's").hexdigest()
    job = push(c, tokens["ann"], "hf://ann/mine")
    assert mounted(c, job)["x"] == hashlib.sha256(b"mine").hexdigest()
    c.stop()
    c.restart()
    c.cli("cache", "verify")
    assert not [x for x in c.json("weights", "ls")]


def test_no_other_hub(empty_cluster):
    """Without an upstream the weights of jobs come from none either, unless --hf-endpoint names one. What a job has had it keeps."""
    c = empty_cluster
    with hub_server() as hub:
        for name in "there", "late":
            hub.repo(f"org/{name}", {"x": name.encode()})
        c.start(*FLAGS, "--hf-endpoint", hub.url)
        tokens = c.people(PEOPLE)
        job = push(c, tokens["bob"], "hf://org/there")
        mounted(c, job)
        c.stop()
        c.start(*FLAGS, "--hub-upstream", "off")
        hub.forget()
        said = push(c, tokens["bob"], "hf://org/there", code=None)["error"]
        assert said["id"] == "source_endpoint_denied" and "job.weights[0]: hf://org/there: no repository of this server" in said["message"] and "--hub-upstream off" in said["message"], said
        said = c.cli("weights", "prefetch", "hf://org/late", code=None, token=tokens["bob"])
        assert said.code != 0 and "--hub-upstream off" in said.err, said
        upload(c, tokens["eve"], "eve/open", {"x": b"eve's"})
        assert mounted(c, push(c, tokens["bob"], "hf://eve/open"))["x"] == hashlib.sha256(b"eve's").hexdigest()
        again = json.loads(c.cli("recreate", job["id"], "-o", "json", token=tokens["bob"]).out)
        assert mounted(c, again)["x"] == hashlib.sha256(b"there").hexdigest() and not hub.asked()
        c.stop()
        c.start(*FLAGS, "--hub-upstream", "off", "--hf-endpoint", hub.url)
        assert mounted(c, push(c, tokens["bob"], "hf://org/late"))["x"] == hashlib.sha256(b"late").hexdigest()


def test_in_a_bucket(empty_cluster, minio):  # noqa: F811
    """The folder is a cache: what only the bucket has is brought from there, and nothing is stored twice."""
    c = empty_cluster
    c.start(*FLAGS[4:], "--hub-upstream", "off", *flags(c, minio))
    upload(c, c.token, "admin/model")
    before = blob_keys(minio)
    for lost in (), ("store/blobs", "store/manifests", "node"):
        c.stop()
        forget(c, *lost)
        c.restart()
        assert {x: d for x, d in mounted(c, push(c, c.token, "hf://admin/model")).items() if x in FILES} == sums(FILES)
    assert blob_keys(minio) == before


def test_what_the_store_has_lost(site):
    """Said in words, and good again when it is uploaded again."""
    token, data = site.tokens["ann"], os.urandom(200_000)
    upload(site, token, "ann/lost", {"x": data})
    digest = hashlib.sha256(data).hexdigest()
    path, = (site.data / "store/blobs").rglob(digest)
    path.unlink()
    job = push(site, token, "hf://ann/lost")
    assert site.wait(job)["current_status"] == "TRAINING_JOB_DEPLOY_FAILED" and 'hf://ann/lost: the store has lost "x"' in site.logs(job)
    assert str(site.data) not in site.logs(job)
    upload(site, token, "ann/lost", {"x": data, "y": b"y"})
    assert mounted(site, push(site, token, "hf://ann/lost"))["x"] == digest
