"""Private images from a real registry (Debian's docker-registry): pulled with the credentials a job names, else refused by name."""
import base64
import contextlib
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess
import urllib.error
import urllib.request

import pytest
from conftest import CALL_S, ROOT, end_process, held_port, until
from containers import devices_stay, local_image, local_name, no_idmapped_mounts, podman, root_tar
from web import Handler, serving

pytestmark = pytest.mark.skipif(not all(map(shutil.which, ("podman", "docker-registry", "busybox"))),
                                reason="podman, docker-registry and busybox are needed")

# htpasswd's lines of these names, with the passwords of the tests
USERS = """alice:$2y$05$Jnb8pVsIqr950CcDXNsJwe3TW8T3zNaLOTMSq9T05xBxN1yuJD4h.
AWS:$2y$05$8p4YjceeVhiPH8KuyYeMB.RcDzvslB4VxILWUPP00idVQ01YYrYn2
_json_key:$2y$05$koYBbJsAuFkON1PQxfZQqeFjXOjtwd7QQL1mJGHV5YWpcZvYS.K.S
"""
PASSWORD = "right"
GCP_JSON = '{"type":"service_account","private_key":"made up for a test"}'


class Registry:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder) / "registry"
        self.folder.mkdir()
        self.ids = set()  # of the images that it made
        self.host = f"127.0.0.1:{held_port()}"
        (self.folder / "users").write_text(USERS)
        (self.folder / "config.yml").write_text(json.dumps({
            "version": 0.1, "storage": {"filesystem": {"rootdirectory": str(self.folder / "data")}},
            "http": {"addr": self.host}, "auth": {"htpasswd": {"realm": "test", "path": str(self.folder / "users")}}}))
        # plain HTTP is allowed for this registry alone, and only to those that are given this file
        (self.folder / "registries.conf").write_text(f'[[registry]]\nlocation = "{self.host}"\ninsecure = true\n')
        self.environment = {"CONTAINERS_REGISTRIES_CONF": str(self.folder / "registries.conf")}
        self.process = subprocess.Popen(["docker-registry", "serve", str(self.folder / "config.yml")],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answers(self):
        try:
            urllib.request.urlopen(f"http://{self.host}/v2/", timeout=5)
        except urllib.error.HTTPError as e:
            return e.code == 401
        except OSError:
            return False

    def image(self, name, mark="from-the-image"):
        """An image of one shell, in the registry and not in this machine's storage."""
        whole = self.built(name, mark)
        podman("push", "--quiet", "--tls-verify=false", "--creds", f"alice:{PASSWORD}", whole)
        podman("rmi", whole)
        return whole

    def built(self, name, mark, *flags):
        """The same in this machine's storage alone."""
        whole = f"{self.host}/{name}"
        self.ids.add(podman("import", "--quiet", *flags, "--change", f"ENV MARK={mark}", root_tar(self.folder), whole).strip())
        return whole

    def digest(self, name):
        """What the registry says that a name stands for."""
        _, _, path = name.partition("/")
        repository, tag = path.split(":")
        kinds = [f"application/vnd.{kind}+json" for kind in (
            "oci.image.index.v1", "oci.image.manifest.v1", "docker.distribution.manifest.v2", "docker.distribution.manifest.list.v2")]
        request = urllib.request.Request(f"http://{self.host}/v2/{repository}/manifests/{tag}", method="HEAD", headers={
            "Accept": ", ".join(kinds), "Authorization": "Basic " + base64.b64encode(f"alice:{PASSWORD}".encode()).decode()})
        with urllib.request.urlopen(request, timeout=CALL_S) as reply:
            return reply.headers["Docker-Content-Digest"]

    def forget(self):
        """Removes its images from this machine's storage, by any name that they have come to have."""
        def gone():
            for image in self.ids:
                subprocess.run(["podman", "rmi", "--force", image], capture_output=True, timeout=CALL_S, check=False)
            return not any(subprocess.run(["podman", "image", "exists", image], timeout=CALL_S, check=False).returncode == 0 for image in self.ids)

        until(gone)

    def stop(self):
        end_process(self.process)

    def close(self):
        self.forget()
        end_process(self.process)


@pytest.fixture
def registry(empty_cluster):
    r = Registry(empty_cluster.folder)
    try:
        until(r.answers)
        yield r
        empty_cluster.end_jobs()
    finally:
        r.close()


def image(name, host, method="REGISTRY_SECRET", **parts):
    parts = parts or {"registry_secret_docker_auth": {"secret_ref": {"secret": "registry-login"}}}
    return {"base_image": name, "docker_auth": {"auth_method": method, "registry": host, **parts}}


def refused(cluster, image, error="image_denied"):
    job = cluster.wait(cluster.push(["echo ran"], image=image), "TRAINING_JOB_DEPLOY_FAILED")
    assert job["error_id"] == error, job["error_message"]
    return job["error_message"]


def test_private_image(empty_cluster, registry):
    cluster, host, name = empty_cluster, registry.host, registry.image("team/shell:1")
    cluster.start("--cpus", "4", "--memory", "4Gi", env={**registry.environment, "HTTP_PROXY": "http://ann:passw0rd@127.0.0.1:9"})

    message = refused(cluster, {"base_image": name})
    assert name in message and "image.docker_auth" in message
    unset = cluster.refusal("push", cluster.job_folder(["true"], image=image(name, host)) / "train.yaml")["error"]
    assert unset["id"] == "secret_not_set" and "registry-login" in unset["message"]

    cluster.cli("secrets", "set", "registry-login", stdin="no-colon-in-this-one")
    message = refused(cluster, image(name, host), "registry_secret_invalid")
    assert '"registry-login"' in message and "no-colon" not in message

    cluster.cli("secrets", "set", "registry-login", stdin="alice:wrong-password")
    message = refused(cluster, image(name, host))
    assert host in message and "stoker secrets set registry-login" in message
    assert "wrong-password" not in message

    cluster.cli("secrets", "set", "registry-login", stdin=f"alice:{PASSWORD}\n")
    message = refused(cluster, image(name, "other.example"))
    assert "other.example" in message and "docker_auth.registry" in message
    message = refused(cluster, image(f"{host}/team/shell:2", host), "image_not_found")
    assert "team/shell:2" in message

    job = cluster.wait(cluster.push(["echo $MARK", "ls /", "cat /proc/1/environ", "export"], image=image(name, f"http://{host}/v2/")), "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job)[0] == "from-the-image" and "passw0rd" not in cluster.logs(job)
    assert not [folder for folder, _, names in os.walk(cluster.data) if "registry-auth.json" in names]  # some go meanwhile
    # there now: a job may use it without pulling
    cluster.wait(cluster.push(["true"], image={"base_image": name}), "TRAINING_JOB_COMPLETED")


def test_registry_is_away(empty_cluster):
    cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi")
    message = refused(cluster, {"base_image": f"127.0.0.1:{held_port()}/team/shell:1"}, "registry_unreachable")
    assert "podman load" in message


def test_podman_is_killed_while_it_pulls(empty_cluster):
    """From a registry that takes the connection and says nothing. The image may well be there: it is not called missing."""
    cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        name = f"127.0.0.1:{silent.getsockname()[1]}/team/shell:1"
        job = cluster.push(["true"], image={"base_image": name})

        def pulling():
            listed = subprocess.run(["pgrep", "-f", f"^podman pull .*{name}"], capture_output=True, text=True, check=False)
            return [int(p) for p in listed.stdout.split()]
        for pid in until(pulling):
            os.kill(pid, signal.SIGKILL)
        job = cluster.wait(job, "TRAINING_JOB_DEPLOY_FAILED")
        assert job["error_id"] == "image_pull_failed", job["error_message"]
        until(lambda: not pulling())


def test_google_key(empty_cluster, registry):
    cluster, name = empty_cluster, registry.image("team/shell:1")
    cluster.start("--cpus", "4", "--memory", "4Gi", env=registry.environment)
    cluster.cli("secrets", "set", "gcp", stdin=GCP_JSON)
    auth = image(name, registry.host, "GCP_SERVICE_ACCOUNT_JSON",
                 gcp_service_account_json_docker_auth={"service_account_json_secret_ref": {"secret": "gcp"}})
    job = cluster.wait(cluster.push(["echo $MARK"], image=auth), "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job) == ["from-the-image"]


@contextlib.contextmanager
def aws(password):
    """What ECR answers to GetAuthorizationToken: a password in exchange for a signed request. Yields (URL, requests)."""
    seen = []

    class Exchange(Handler):
        def do_POST(self):
            body = self.body()
            seen.append((dict(self.headers.items()), body))
            ok = "Credential=AKIATEST/" in self.headers["Authorization"]
            reply = {"authorizationData": [{"authorizationToken": base64.b64encode(f"AWS:{password}".encode()).decode()}]} if ok else \
                {"__type": "UnrecognizedClientException", "message": "The security token included in the request is invalid."}
            self.answer(200 if ok else 400, reply)

    with serving(Exchange) as port:
        yield f"http://127.0.0.1:{port}/", seen


def test_aws_keys(empty_cluster, registry):
    cluster, name = empty_cluster, registry.image("team/shell:1")
    auth = image(name, registry.host, "AWS_IAM", aws_iam_docker_auth={
        "access_key_secret_ref": {"secret": "aws-id"}, "secret_access_key_secret_ref": {"secret": "aws-key"}})
    with aws("aws-password") as (url, seen):
        cluster.start("--cpus", "4", "--memory", "4Gi", env={**registry.environment, "AWS_ENDPOINT_URL_ECR": url})
        cluster.cli("secrets", "set", "aws-id", stdin="AKIAWRONG")
        cluster.cli("secrets", "set", "aws-key", stdin="the-secret-key")
        message = refused(cluster, auth, "invalid")
        assert '"aws-id"' in message and '"aws-key"' in message and "the-secret-key" not in message
        cluster.cli("secrets", "set", "aws-id", stdin="AKIATEST")
        job = cluster.wait(cluster.push(["echo $MARK"], image=auth), "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job) == ["from-the-image"]
    headers, body = seen[-1]
    assert body == b"{}" and headers["X-Amz-Target"].endswith(".GetAuthorizationToken")
    assert "/us-east-1/ecr/aws4_request" in headers["Authorization"]


def test_workdir_of_an_image_comes_along(empty_cluster):
    """Also where cp is busybox's, which does nothing when the target folder is there and -n was said."""
    files = (("app/lib/deep", "from the image"), ("app/run.sh", "image"), ("app/.hidden", "also"))
    with local_image(empty_cluster.folder, files, ["WORKDIR /app"]) as name:
        cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi")
        job = cluster.push(["cat lib/deep; echo; cat .hidden; echo; cat run.sh; echo; busybox nproc"], files={"run.sh": "code"},
                           image={"base_image": name})
        cluster.wait(job, "TRAINING_JOB_COMPLETED")
        assert cluster.user_lines(job) == ["from the image", "also", "code", "1"], "the code wins, and it has its own core"


def test_errors_name_the_line_of_the_command(empty_cluster):
    """Busybox's sh counts otherwise than bash and dash do."""
    with local_image(empty_cluster.folder) as name:
        cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi")
        job = cluster.push(["no-such-1\n\nno-such-3 || :", "\nif then"], image={"base_image": name})
        cluster.wait(job, "TRAINING_JOB_FAILED")
        lines = re.findall(r"line (\d+): (\S+) ", "\n".join(cluster.user_lines(job)))
        assert lines == [("1", "no-such-1:"), ("3", "no-such-3:"), ("2", "syntax")]


@pytest.fixture(autouse=True)
def no_other_devices(request):
    with devices_stay(fcntl.LOCK_EX if "fabric" in request.fixturenames else fcntl.LOCK_SH):
        yield


@pytest.fixture
def fabric(no_other_devices):
    """A card's device where none is: what reads as /dev/zero does."""
    folder = pathlib.Path("/dev/infiniband")
    if os.geteuid() != 0 or folder.exists():
        pytest.skip("wants to make /dev/infiniband")
    folder.mkdir()
    try:
        os.mknod(folder / "uverbs0", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        (folder / "uverbs0").chmod(0o666)
        yield "/dev/infiniband/uverbs0"
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("kind", ["bwrap", "podman"])
def test_what_network_cards_and_data_loaders_want(empty_cluster, fabric, kind):
    """Without a GPU, too: half of the memory as /dev/shm, memory that may be locked, the cards. The log's first lines say it."""
    with local_image(empty_cluster.folder) if kind == "podman" else contextlib.nullcontext() as name:
        cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi")
        job = cluster.push(["busybox df -k /dev/shm | busybox awk 'END { print $2 }'", "ulimit -l", f"head -c 3 {fabric} | busybox wc -c"],
                           **({"image": {"base_image": name}} if name else {}))
        cluster.wait(job, "TRAINING_JOB_COMPLETED")
        shm, locked, read = cluster.user_lines(job)
        has = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024
        assert has * 0.45 <= int(shm) <= has * 0.55 and read == "3"
        said = re.search(r"memlock=(\S+)", cluster.logs(job, "--system"))[1]
        assert locked == (said if said == "unlimited" else str(int(said.removesuffix("Mi")) * 1024))
        assert " shm=" in cluster.logs(job, "--system")


def test_what_a_container_writes_over_its_image(empty_cluster):
    """It is in podman's storage and not in the attempt's folder, and counts all the same."""
    with local_image(empty_cluster.folder) as name:
        cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--scratch-size", "10MB")
        jobs = [cluster.push([f"cat /dev/zero > {where}/x"], image={"base_image": name}) for where in ("/tmp", "$BT_SCRATCH_DIR")]
        assert [cluster.wait(job, "TRAINING_JOB_FAILED")["error_id"] for job in jobs] == ["scratch_quota_exceeded"] * 2
        within = cluster.push(["head -c 8M /dev/zero > /tmp/x; sleep 1"], image={"base_image": name})
        cluster.wait(within, "TRAINING_JOB_COMPLETED")


def test_a_writer_outlives_the_commands_of_a_container(empty_cluster):
    """However the last of them ends: exec leaves no shell that could say so."""
    left = "(mkdir $BT_CHECKPOINT_DIR/half; exec 5> $BT_CHECKPOINT_DIR/half/w.bin; while echo x >&5; do sleep 0.01; done) & sleep 3; "
    with local_image(empty_cluster.folder) as name:
        cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi")
        jobs = [cluster.push([left + last], image={"base_image": name}, runtime={"checkpointing_config": {"enabled": True}})
                for last in ("true", "exec sleep 0.1", "exit 0")]
        for job in jobs:
            cluster.wait(job, "TRAINING_JOB_COMPLETED")
            row, = cluster.json("checkpoints", "ls", job["id"], "--all")
            assert row["state"] == "INCOMPLETE" and "w.bin" in row["reason"], row


def ends(cluster, job):
    """A job that has printed $MARK: the word that is in its image, and what is shown of the image."""
    job = cluster.wait(job, "TRAINING_JOB_COMPLETED")
    return cluster.user_lines(job)[0], job["image"]


def logged_in(cluster, registry):
    cluster.start("--cpus", "4", "--memory", "4Gi", env=registry.environment)
    cluster.cli("secrets", "set", "registry-login", stdin=f"alice:{PASSWORD}")
    return cluster


def test_a_moved_tag_moves_no_job(empty_cluster, registry):
    """Recreations and retries have the image of the first start, by its digest; a new push has what the tag names now."""
    name, cluster = registry.image("team/shell:1", "old"), logged_in(empty_cluster, registry)
    first, other = (cluster.push(["echo $MARK"], image=image(name, registry.host)) for _ in range(2))
    old = registry.digest(name)
    mark, shown = ends(cluster, first)
    assert (mark, shown["digest"]) == ("old", old) and shown["reference"] == f"{registry.host}/team/shell@{old}"
    assert old in cluster.cli("view", first["id"]).out
    assert ends(cluster, other) == (mark, shown), "its own, and the same"

    registry.image("team/shell:1", "new")
    new = registry.digest(name)
    assert new != old
    again = cluster.json("recreate", first["id"])
    assert ends(cluster, again) == ("old", shown)
    pushed = cluster.push(["echo $MARK"], image=image(name, registry.host))
    mark, now = ends(cluster, pushed)
    assert (mark, now["digest"]) == ("new", new), "the tag is asked for although an image of that name is here"

    registry.forget()  # the old one is in no storage, and no tag names it
    assert ends(cluster, cluster.json("recreate", again["id"])) == ("old", shown), "recreated from a recreated one, pulled by digest"

    retried = cluster.push(["echo $MARK", "test $BT_RETRY_COUNT = 1"], retry={"max_attempts": 2, "on": ["exit:1"]},
                           image=image(name, registry.host))
    assert ends(cluster, retried) == ("new", now)


def test_digests_of_images_that_were_built_here(empty_cluster, registry):
    """The storage of a machine that built an image knows two digests of it: the one that the registry has is shown."""
    name, cluster = registry.built("team/shell:1", "built"), logged_in(empty_cluster, registry)
    podman("push", "--quiet", "--tls-verify=false", "--creds", f"alice:{PASSWORD}", name)
    mark, shown = ends(cluster, cluster.push(["echo $MARK"], image=image(name, registry.host)))
    assert (mark, shown["digest"]) == ("built", registry.digest(name))

    by_digest = f"{registry.host}/team/shell@{registry.digest(name)}"
    assert ends(cluster, cluster.push(["echo $MARK"], image=image(by_digest, registry.host))) == ("built", shown)
    registry.forget()
    assert ends(cluster, cluster.push(["echo $MARK"], image=image(by_digest, registry.host))) == ("built", shown)


def test_images_of_several_platforms(empty_cluster, registry):
    """The list's digest is what a tag stands for."""
    cluster, many = logged_in(empty_cluster, registry), f"{registry.host}/team/many:1"
    podman("manifest", "create", many)
    podman("manifest", "add", many, f"containers-storage:{registry.built('team/here:1', 'here')}")
    podman("manifest", "add", many, f"containers-storage:{registry.built('team/there:1', 'there', '--arch', 'riscv64')}")
    podman("manifest", "push", "--quiet", "--all", "--tls-verify=false", "--creds", f"alice:{PASSWORD}", many, f"docker://{many}")
    podman("manifest", "rm", many)
    registry.forget()
    job = cluster.push(["echo $MARK"], image=image(many, registry.host))
    mark, shown = ends(cluster, job)
    assert (mark, shown["digest"]) == ("here", registry.digest(many))
    registry.forget()
    assert ends(cluster, cluster.json("recreate", job["id"])) == (mark, shown)


def test_a_registry_that_is_away_stops_no_image_that_is_here(empty_cluster, registry):
    name, cluster = registry.image("team/shell:1", "old"), logged_in(empty_cluster, registry)
    first = cluster.push(["echo $MARK"], image=image(name, registry.host))
    mark, shown = ends(cluster, first)
    registry.stop()
    assert ends(cluster, cluster.json("recreate", first["id"])) == (mark, shown)
    assert ends(cluster, cluster.push(["echo $MARK"], image=image(name, registry.host))) == (mark, shown)
    registry.forget()
    job = cluster.wait(cluster.json("recreate", first["id"]), "TRAINING_JOB_DEPLOY_FAILED")
    assert job["error_id"] == "registry_unreachable"


def test_an_image_of_this_machine_has_an_id_alone(empty_cluster, registry):
    name, cluster = local_name(empty_cluster.folder), empty_cluster
    cluster.start("--cpus", "4", "--memory", "4Gi")

    def build(mark):
        name_there = registry.built("team/built:1", mark)
        podman("tag", name_there, name)
        podman("untag", name_there, name_there)

    try:
        build("old")
        first = cluster.push(["echo $MARK"], image={"base_image": name})
        mark, shown = ends(cluster, first)
        assert mark == "old" and shown["reference"] is shown["digest"] is None and len(shown["id"]) == 64
        build("new")
        assert ends(cluster, cluster.json("recreate", first["id"])) == (mark, shown)
        assert ends(cluster, cluster.push(["echo $MARK"], image={"base_image": name}))[0] == "new"
        podman("rmi", "--force", shown["id"])
        job = cluster.wait(cluster.json("recreate", first["id"]), "TRAINING_JOB_DEPLOY_FAILED")
        assert job["error_id"] == "image_not_found"
    finally:
        podman("rmi", "--force", name)


def test_variables_of_an_image(empty_cluster):
    """What a job in an image gets beside the table: the image's own, and what podman sets."""
    page = (ROOT / "docs/environment.md").read_text()
    known = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.M))
    proxies = {"HTTP_PROXY": "http://proxy.example.org:3128", "HTTPS_PROXY": "http://proxy.example.org:3128", "no_proxy": "127.0.0.1"}
    with local_image(empty_cluster.folder, changes=["ENV MARK=of-the-image"]) as name:
        c = empty_cluster.start("--cpus", "4", "--memory", "4Gi", env={**proxies, "TZ": "Europe/Berlin"})
        job = c.push(["busybox env"], image={"base_image": name})
        c.wait(job, "TRAINING_JOB_COMPLETED")
        got = dict(line.split("=", 1) for line in c.user_lines(job))
    assert got.pop("MARK") == "of-the-image"
    assert {n for n in got if known.get(n, "").startswith("no `image`")} == {"PATH"}, "it is the image's own"
    assert {n: got[n] for n in got if known.get(n) == "set for the server"} == proxies
    more = set(got) - set(known)
    assert more and all(f"`{n}`" in page for n in more), more


@pytest.mark.parametrize("idmapped", [True, False])
def test_podman_without_overlays(empty_cluster, idmapped):
    """It keeps images whole then, and the runner gives up root all the same. It stays root where mounts of podman's storage translate no ids: podman
    shows the image then, as it does for a server that is not root."""
    with contextlib.ExitStack() as end:
        check_whole_image(empty_cluster, end, idmapped)


def check_whole_image(c, end, idmapped):
    storage = c.folder / "storage"
    if not idmapped:
        if os.geteuid() != 0:
            pytest.skip("only a root server has runners that give up root")
        end.enter_context(no_idmapped_mounts(storage))
    conf = c.folder / "storage.conf"
    conf.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{storage}"\nrunroot = "{c.folder}/storage-run"\n')
    env = {"CONTAINERS_STORAGE_CONF": str(conf)}

    def vfs(*args):
        return subprocess.run(["podman", *map(str, args)], env={**os.environ, **env}, capture_output=True, text=True, timeout=CALL_S, check=True).stdout

    vfs("import", "--quiet", "--change", "ENV MARK=of-the-image", root_tar(c.folder), "localhost/vfs:1")
    c.start("--cpus", "4", "--memory", "4Gi", env=env)
    job = c.push(["echo $MARK", c.hold()], image={"base_image": "localhost/vfs:1"})
    c.wait(job, "TRAINING_JOB_RUNNING")
    folder, = (c.data / "runs").iterdir()
    pid = json.loads((folder / "runner.json").read_text())["pid"]
    why = "the file system of podman's storage has no idmapped mounts"
    said = f"the runner stays root: {why}"
    assert f"| `{why}` |" in (ROOT / "docs/operating.md").read_text()
    assert (os.stat(f"/proc/{pid}").st_uid == os.geteuid()) == (not idmapped or os.geteuid() != 0)
    assert (said in (folder / "runner.log").read_text()) == (said in c.logs(job)) == (not idmapped)
    until(lambda: c.user_lines(job) == ["of-the-image"])
    assert c.cli("exec", job["id"], "--", "sh", "-c", "echo $MARK").out == "of-the-image\n"
    c.end_jobs()
    until(lambda: not vfs("ps", "-aq").split())
    vfs("rmi", "localhost/vfs:1")  # nobody has it mounted any more
