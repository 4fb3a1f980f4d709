"""runtime.python: environments that are built once from a job's requirements, by pip and by uv, in the sandboxes that there are."""
import contextlib
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile

import pytest
import yaml
from conftest import FINAL, PARTS, ROOT, held_port, until
from python_index import Index, source, wheel

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PLACE = "/opt/stoker/python"
FAILED = "TRAINING_JOB_DEPLOY_FAILED"
DONE = "TRAINING_JOB_COMPLETED"


def start(cluster, *flags, uv=True, **env):
    """The builder is the one that the server's PATH has: uv, else pip, which takes seconds to install itself."""
    env["PATH"] = f"{PARTS}/uv/bin:{SYSTEM_PATH}" if uv else SYSTEM_PATH
    return cluster.start("--cpus", "12", "--memory", "8Gi", *flags, env=env)


@pytest.fixture
def make_index():
    with contextlib.ExitStack() as made:
        def make(*packages, **kw):
            one = Index(*packages, **kw)
            made.callback(one.close)
            return one
        yield make


@pytest.fixture
def index(make_index):
    return make_index(wheel("leaf", "1.0"), wheel("leaf", "2.0"), wheel("tree", "1.0", requires=["leaf"]), wheel("other", "1.0"))


def runtime(python, index=None, **more):
    """A runtime with this environment, from our index alone."""
    env = {"PIP_INDEX_URL": index.url, "UV_INDEX_URL": index.url} if index else {}
    return {"python": python, "environment_variables": {**env, **more.pop("env", {})}, **more}


def push(cluster, python, index, commands=("true",), *flags, files=None, **more):
    return cluster.push(list(commands), *flags, files=files, runtime=runtime(python, index, **more))


def tell(*modules):
    """A command that prints where Python is and what versions it sees."""
    words = ", ".join(f"{m}.version" for m in modules)
    return f"python3 -c 'import sys{''.join(', ' + m for m in modules)}; print(\"told\", sys.prefix, {words})'"


def told(cluster, job):
    return [line.split()[1:] for line in cluster.user_lines(job) if line.startswith("told ")]


def run(cluster, *args, **kw):
    job = push(cluster, *args, **kw)
    cluster.wait(job, DONE)
    return job


def fails(cluster, job, error_id):
    view = cluster.wait(job, FAILED)
    assert view["error_id"] == error_id, view
    return view


def trees(cluster):
    """Environments that are published, and folders that there are for any."""
    node = cluster.data / "node"
    return len(list(node.glob("trees/*/list"))), len(list(node.glob("built/*")))


@pytest.mark.parametrize("uv", [False, True], ids=["pip", "uv"])
def test_built_once_and_first_on_the_path(empty_cluster, index, uv):
    cluster = start(empty_cluster, uv=uv)
    files = {"needs/all.txt": "tree  # and what it needs\n-r more.txt\n-c ../limits.txt\n", "needs/more.txt": "other\n", "limits.txt": "leaf<2\n"}
    commands = [tell("tree", "leaf", "other"), "echo told $VIRTUAL_ENV $(command -v python) $(command -v python3)",
                "touch $VIRTUAL_ENV/x 2>/dev/null && echo told writable; grep -c == $VIRTUAL_ENV/installed.txt >/dev/null"]
    job = run(cluster, {"requirements": "./needs/all.txt"}, index, commands, files=files)
    expected = [[PLACE, "1.0", "1.0", "1.0"], [PLACE, f"{PLACE}/bin/python", f"{PLACE}/bin/python3"]]
    assert told(cluster, job) == expected
    asked = sum(index.hits.values())
    again = run(cluster, {"requirements": "needs/all.txt"}, index, commands, files={**files, "train.py": "# changed"})
    assert told(cluster, again) == expected
    assert sum(index.hits.values()) == asked and trees(cluster) == (1, 1)  # the same words: nothing is asked for
    # one file that another names has changed: another environment
    changed = run(cluster, {"requirements": "needs/all.txt"}, index, commands[:1], files={**files, "limits.txt": "leaf>=2\n"})
    assert told(cluster, changed) == [[PLACE, "1.0", "2.0", "1.0"]]
    assert trees(cluster) == (2, 2)


def test_the_page_shows_what_push_takes(empty_cluster):
    """Each YAML block of docs/python.md, put where it belongs."""
    cluster = start(empty_cluster, "--gpus", "H200:16")
    for name in ("my_index", "wandb"):
        cluster.cli("secrets", "set", name, stdin="x\n")
    blocks = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs/python.md").read_text(), re.M | re.S)
    assert len(blocks) > 5
    for text in blocks:
        doc = yaml.safe_load(text)
        for outer, inner in (("runtime", {"python", "environment_variables", "start_commands"}), ("job", {"runtime", "compute", "image"})):
            doc = {outer: doc} if inner & set(doc) else doc
        doc = {"project": "mine", **doc}
        doc["job"]["runtime"].setdefault("start_commands", ["true"])
        folder = pathlib.Path(tempfile.mkdtemp(dir=cluster.folder))
        (folder / "requirements.txt").write_text("leaf\n")
        (folder / "train.yaml").write_text(yaml.safe_dump(doc))
        cluster.cli("push", folder / "train.yaml", "--dry-run")


def test_short_forms_and_exec(empty_cluster, index):
    cluster = start(empty_cluster)
    version = ".".join(subprocess.run(["/usr/bin/python3", "--version"], capture_output=True, text=True, check=True).stdout.split()[1].split(".")[:2])
    one = run(cluster, "r.txt", index, [tell("leaf")], files={"r.txt": "leaf==1.0\n"})
    two = run(cluster, ["leaf==1.0"], index, [tell("leaf")])
    assert told(cluster, one) == told(cluster, two) == [[PLACE, "1.0"]]
    assert trees(cluster) == (1, 1)  # the same content
    named = run(cluster, {"requirements": ["leaf==1.0"], "version": version}, index, [tell("leaf")])
    assert told(cluster, named) == [[PLACE, "1.0"]]
    bare = push(cluster, {}, index, [tell(), cluster.hold()])
    until(lambda: told(cluster, bare))
    out = cluster.cli("exec", bare["id"], "--", "python3", "-c", "import sys; print(sys.prefix)").out
    assert out.strip() == PLACE
    cluster.release(bare)
    cluster.wait(bare, DONE)


BACKEND = """
import zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    info, name = "mine-7.dist-info", "mine-7-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as z:
        z.write("src/mine/__init__.py", "mine/__init__.py")
        z.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: mine\\nVersion: 7\\n")
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nGenerator: own\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        z.writestr(f"{info}/RECORD", "")
    return name
"""


@pytest.mark.parametrize("uv", [False, True], ids=["pip", "uv"])
def test_an_own_package(empty_cluster, index, uv):
    """The two ways of docs/python.md, without the index: it stays in the job's folder, or is built into the scratch folder."""
    cluster = start(empty_cluster, uv=uv)
    files = {"src/mine/__init__.py": "version = 7\n", "backend.py": BACKEND,
             "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'}
    commands = ["(cd /tmp && PYTHONPATH=$BT_WORKING_DIR/src " + tell("mine", "leaf") + ")"]
    if not uv:  # uv's environment has no pip
        commands += ["pip install --no-deps --target $BT_SCRATCH_DIR/own .",
                     "cd /tmp && PYTHONPATH=$BT_SCRATCH_DIR/own " + tell("mine", "leaf")]
    job = run(cluster, ["leaf==1.0"], index, commands, files=files)
    assert told(cluster, job) == [[PLACE, "7", "1.0"]] * (1 if uv else 2)


def test_system_site_packages(empty_cluster, index):
    """What the interpreter has of its own is seen by this key alone, and counts as there."""
    cluster = start(empty_cluster, uv=True)
    index.files.update([wheel("needs_pip", "1.0", requires=["pip>1"])])
    own = "python3 -c 'import sys, pip; print(\"told\", pip.__file__.startswith(sys.prefix))'"
    with_it = run(cluster, {"requirements": ["needs-pip"], "system_site_packages": True}, index, [own, tell("needs_pip")])
    assert told(cluster, with_it)[1] == [PLACE, "1.0"]
    assert not any(what.startswith("files pip-") for what in index.hits)
    job = push(cluster, ["needs-pip"], index)
    fails(cluster, job, "python_requirements_failed")  # our index has no pip, and here nothing else is seen


@pytest.mark.parametrize("uv", [False, True], ids=["pip", "uv"])
def test_a_requirement_that_fails(empty_cluster, index, uv):
    cluster = start(empty_cluster, uv=uv)
    view = fails(cluster, push(cluster, ["leaf", "nosuch==9"], index), "python_requirements_failed")
    assert "nosuch" in view["error_message"]  # in the words of pip or uv
    port = held_port()
    view = fails(cluster, push(cluster, [f"leaf @ git+http://127.0.0.1:{port}/leaf.git"], index), "python_requirements_failed")
    why = view["error_message"]
    assert why.count("fatal: ") == 1 and "originates from a subprocess" not in why, why  # git's own words, once
    assert trees(cluster) == (0, 0)


@pytest.mark.parametrize("uv", [False, True], ids=["pip", "uv"])
def test_what_is_said_names_the_users_file(empty_cluster, index, uv):
    """And the line in it, where pip says one; uv counts characters from its begin."""
    cluster = start(empty_cluster, uv=uv)
    files = {"needs/all.txt": "# these\n\n-r more.txt\n-c ../limits.txt\nother\n", "needs/more.txt": "\n\nleaf>=1 <2\n", "limits.txt": "\nleaf<2\n"}
    view = fails(cluster, push(cluster, "needs/all.txt", index, files=files), "python_requirements_failed")
    assert "needs/more.txt" in view["error_message"] and (uv or "line 3 of needs/more.txt" in view["error_message"])
    files["needs/more.txt"] = "\n\nleaf\n"
    files["limits.txt"] = "\nleaf>=1 <2\n"
    view = fails(cluster, push(cluster, "needs/all.txt", index, files=files), "python_requirements_failed")
    assert "limits.txt" in view["error_message"] and (uv or "line 2 of limits.txt" in view["error_message"])
    view = fails(cluster, push(cluster, ["leaf", "other>=1 <2"], index), "python_requirements_failed")
    assert "runtime.python.requirements" in view["error_message"] and (uv or "line 2 of runtime" in view["error_message"])
    files["limits.txt"] = "\nleaf<2\n"
    job = run(cluster, "needs/all.txt", index, [tell("leaf", "other")], files=files)
    assert told(cluster, job) == [[PLACE, "1.0", "1.0"]]


@pytest.mark.parametrize("uv", [False, True], ids=["pip", "uv"])
def test_one_hash_calls_for_all(empty_cluster, make_index, uv):
    """Whoever pins by hash is not given what nobody has pinned, whichever program builds."""
    leaf, other = wheel("leaf", "1.0"), wheel("other", "1.0")
    index = make_index(leaf, other)
    pin, own = (f"{n}==1.0 --hash=sha256:{hashlib.sha256(w[1]).hexdigest()}" for n, w in (("leaf", leaf), ("other", other)))
    cluster = start(empty_cluster, uv=uv)
    fails(cluster, push(cluster, [pin, "other==1.0"], index), "python_requirements_failed")
    job = run(cluster, [pin, own], index, [tell("leaf", "other")])
    assert told(cluster, job) == [[PLACE, "1.0", "1.0"]]


def test_what_cannot_be_required(empty_cluster, index):
    cluster = start(empty_cluster)

    def refused(python, files=None):
        folder = cluster.job_folder(["true"], runtime=runtime(python, index), files=files)
        assert cluster.error("push", folder / "train.yaml", code=2) == "python_requirements_invalid"
        return folder

    for line in ("-e .", "./pkg", "/srv/x.whl", "file:///srv/x.whl", "--index-url https://me:word@h/simple", "-r ../r.txt", "--trusted-host h",
                 "--target /x", "two words", "x @ https://${NOT_SET}@h/x.whl"):
        refused("r.txt", {"r.txt": f"leaf\n{line}\n"})
    refused("numpy")
    folder = refused("gone.txt")
    assert cluster.error("push", folder / "train.yaml", "--dry-run", code=2) == "python_requirements_invalid"
    assert cluster.json("ps", "-a") == []
    # a file that is there, and is not sent
    refused("r.txt", {"r.txt": "leaf\n", ".stokerignore": "r.txt\n"})
    refused("r.txt", {"r.txt": "-r needs/more.txt\n", "needs/more.txt": "leaf\n", ".gitignore": "needs/\n"})
    sent = {"r.txt": "leaf\n", ".gitignore": "*.txt\n", ".stokerignore": "!r.txt\n"}
    cluster.wait(push(cluster, "r.txt", index, files=sent), DONE)
    # the runner looks for itself
    dangling = cluster.job_folder(["true"], runtime=runtime("r.txt", index), files={"x": "leaf\n", ".stokerignore": "x\n"})
    (dangling / "r.txt").symlink_to("x")
    fails(cluster, json.loads(cluster.cli("push", dangling / "train.yaml", "-o", "json").out), "python_requirements_invalid")
    link = cluster.job_folder(["true"], runtime=runtime("r.txt", index), files={"x": ""})
    (link / "r.txt").symlink_to("x")
    assert cluster.wait(json.loads(cluster.cli("push", link / "train.yaml", "-o", "json").out))["current_status"] == DONE


@pytest.mark.parametrize("uv", [False, True], ids=["pip", "uv"])
def test_the_status_says_what_builds(empty_cluster, uv):
    cluster = start(empty_cluster, uv=uv)
    words = cluster.api("GET", "/v1/status")[1]["python"]
    version = subprocess.run(["/usr/bin/python3", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    assert version in words and ("uv " in words) == uv
    assert f"python: {words}" in cluster.cli("doctor").out


def test_a_version_that_is_not_there(empty_cluster, index):
    cluster = start(empty_cluster)
    view = fails(cluster, push(cluster, {"requirements": ["leaf"], "version": "3.4"}, index), "python_not_found")
    assert "3.4" in view["error_message"] and view["error_message"].count(f"({os.path.realpath('/usr/bin/python3')})") == 1
    assert index.downloads("leaf") == 0


SPY = """
import json, pathlib
seen = {{}}
for path in {read!r}:
    try:
        seen[path] = pathlib.Path(path).read_bytes().decode(errors="replace")[:100] if pathlib.Path(path).is_file() else sorted(os.listdir(path))[:5]
    except OSError as e:
        seen[path] = None
wrote = []
for path in {write!r}:
    try:
        pathlib.Path(path).write_text("spy")
        wrote.append(path)
    except OSError:
        pass
seen["environ"] = sorted(os.environ)
return {{"spied.json": json.dumps([seen, wrote])}}
"""


@pytest.mark.parametrize("uv", [False, True], ids=["pip", "uv"])
def test_a_source_package_is_not_trusted(empty_cluster, make_index, uv):
    """A build script has what a job has, and less: none of the job's own secrets."""
    cluster = empty_cluster
    outside = cluster.folder / "outside"
    outside.mkdir()
    read = [str(cluster.data / "master.key"), str(cluster.data / "admin-token"), str(cluster.data), "/etc/shadow"]
    write = [str(outside / "x"), str(cluster.data / "node/x"), str(cluster.data / "x"), "/usr/local/spy", "/etc/spy"]
    index = make_index(source("spy", "1.0", SPY.format(read=read, write=write)))
    start(cluster, uv=uv)
    cluster.cli("secrets", "set", "hf", stdin="hf_secretsecret\n")
    job = run(cluster, ["spy"], index, ["python3 -c 'import spy, pathlib; print(pathlib.Path(spy.__file__).with_name(\"spied.json\").read_text())'"],
              env={"HF_TOKEN": {"secret": "hf"}, "STEPS": "3"})
    seen, wrote = json.loads(next(line for line in cluster.user_lines(job) if line.startswith("[")))
    environ = seen.pop("environ")
    assert not any(seen[path] for path in read), seen
    assert "HF_TOKEN" not in environ and "STEPS" not in environ and "PIP_INDEX_URL" in environ
    for path in write:  # in the sandbox it may; here nothing arrives
        assert not pathlib.Path(path).exists(), (path, wrote)


def test_a_package_that_fills_the_disk_while_it_is_built(empty_cluster, make_index):
    """What packages run when they are built is held to the limits of a job."""
    fill = "import os, tempfile, time\nf = open(os.path.join(tempfile.gettempdir(), 'x'), 'wb')\nwhile True: f.write(bytes(1 << 20)); time.sleep(0.005)"
    index = make_index(source("greedy", "1.0", fill))
    start(empty_cluster, "--scratch-size", "100MB")
    fails(empty_cluster, push(empty_cluster, ["greedy"], index), "scratch_quota_exceeded")


def test_ten_at_once_are_one_build(empty_cluster, make_index):
    index = make_index()
    index.files.update([source("slow", "1.0", index.call("mark/built") + "; " + index.call("gate/go"))])
    cluster = start(empty_cluster)
    jobs = [push(cluster, ["slow"], index, [tell("slow")]) for _ in range(10)]
    until(lambda: index.hits["gate go"] == 1 and len(cluster.runners()) == 10)
    waiting = until(lambda: [v for v in map(cluster.job, jobs) if v["stage"] == "python" and v["progress"]] or None)
    assert waiting
    index.gates["go"].set()
    for job in jobs:
        cluster.wait(job, DONE)
        assert told(cluster, job) == [[PLACE, "1.0"]]
    assert index.hits["mark built"] == 1 and trees(cluster) == (1, 1)


def test_stopped_while_it_is_built(empty_cluster, make_index):
    """Whoever waited for it goes on by himself."""
    index = make_index()
    index.files.update([source("slow", "1.0", index.call("mark/built") + "; " + index.call("gate/go"))])
    cluster = start(empty_cluster)
    first = push(cluster, ["slow"], index, [tell("slow")])
    until(lambda: index.hits["mark built"] == 1)
    second = push(cluster, ["slow"], index, [tell("slow")])
    cluster.cli("stop", first["id"])
    cluster.wait(first, "TRAINING_JOB_STOPPED")
    until(lambda: index.hits["mark built"] == 2)
    index.gates["go"].set()
    cluster.wait(second, DONE)
    assert told(cluster, second) == [[PLACE, "1.0"]] and trees(cluster) == (1, 1)


@pytest.mark.parametrize("sandbox", ["bwrap", "plain"])
def test_a_killed_build_is_never_given(empty_cluster, make_index, sandbox):
    index = make_index()
    index.files.update([source("slow", "1.0", index.call("mark/built") + "; " + index.call("gate/go"))])
    cluster = start(empty_cluster, "--sandbox", sandbox)
    first = push(cluster, ["slow"], index, [tell("slow")])
    until(lambda: index.hits["gate go"] == 1)
    runners, keepers = cluster.runners_and_keepers()
    for pid in keepers + runners:  # a keeper that is left cleans up behind its runner
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert trees(cluster) == (0, 1)
    cluster.wait(first, *FINAL)
    index.gates["go"].set()
    second = push(cluster, ["slow"], index, [tell("slow")])
    cluster.wait(second, DONE)
    assert told(cluster, second)[0][1:] == ["1.0"]
    assert index.hits["mark built"] == 2 and trees(cluster) == (1, 1)


def test_what_was_changed_is_built_again(empty_cluster, index):
    cluster = start(empty_cluster)
    run(cluster, ["leaf==1.0"], index)
    until(lambda: not cluster.runners())  # who has it mounted keeps it
    (leaf,) = (cluster.data / "node/built").glob("*/lib/*/site-packages/leaf.py")
    leaf.chmod(0o644)
    leaf.write_text("version = '6.6.6'\n")
    job = run(cluster, ["leaf==1.0"], index, [tell("leaf")])
    assert told(cluster, job) == [[PLACE, "1.0"]]
    assert trees(cluster) == (1, 1)


def test_the_budget_holds(empty_cluster, index):
    """The least recently used environment goes."""
    cluster = start(empty_cluster, "--node-cache-bytes", "60M")
    index.files.update(wheel(name, "1.0", {f"{name}.bin": os.urandom(20_000_000).hex()[:20_000_000]}) for name in ("one", "two", "three"))
    for name in ("one", "two", "three"):
        run(cluster, [name], index)
        assert sum(f.lstat().st_size for f in (cluster.data / "node/built").rglob("*")) < 60e6
    published, folders = trees(cluster)
    assert published == folders < 3
    asked = sum(index.hits.values())
    run(cluster, ["three"], index)
    assert sum(index.hits.values()) == asked
    run(cluster, ["one"], index)  # it had to go
    assert sum(index.hits.values()) > asked
    cluster.cli("cache", "verify")
    until(lambda: not cluster.runners())  # a runner that is about to end still holds its own
    gone = cluster.cli("cache", "gc", "--older-than", "0s", "--yes").out
    assert gone and trees(cluster) == (0, 0)


def test_waits_for_what_running_jobs_use(empty_cluster, index):
    """Its size is known from the last time: nothing is built before there is room for it."""
    cluster = start(empty_cluster, "--node-cache-bytes", "60M")
    index.files.update(wheel(name, "1.0", {f"{name}.bin": os.urandom(20_000_000).hex()[:20_000_000]}) for name in ("one", "two", "three"))
    run(cluster, ["three"], index)
    held = [push(cluster, [name], index, [cluster.hold()]) for name in ("one", "two")]
    for job in held:
        cluster.wait(job, "TRAINING_JOB_RUNNING")
    asked = index.hits["simple three"]
    job = push(cluster, ["three"], index)
    until(lambda: "waiting for space in the node cache" in cluster.logs(job))
    assert index.hits["simple three"] == asked
    cluster.release(held[0])
    cluster.wait(job, DONE)
    assert index.hits["simple three"] > asked
    cluster.release(held[1])
    cluster.wait(held[1], DONE)


def test_two_nodes_share_one(empty_cluster, make_index):
    index = make_index()
    index.files.update([source("slow", "1.0", index.call("mark/built"))])
    cluster = start(empty_cluster)
    job = cluster.push([tell("slow")], compute={"node_count": 2, "cpu_count": 1, "memory": "512Mi"}, runtime=runtime(["slow"], index))
    cluster.wait(job, DONE)
    for rank in ("0", "1"):
        assert f"told {PLACE} 1.0" in cluster.logs(job, "--node", rank)
    assert index.hits["mark built"] == 1


@pytest.mark.parametrize("uv", [False, True], ids=["pip", "uv"])
def test_a_private_index(empty_cluster, make_index, uv):
    """Credentials come by reference. A token that is replaced builds nothing anew; another index does."""
    index = make_index(wheel("leaf", "1.0"), password="me:w0rd-of-the-index")
    cluster = start(empty_cluster, uv=uv)
    env = {"PIP_INDEX_URL": {"secret": "index"}, "UV_INDEX_URL": {"secret": "index"}}
    cluster.cli("secrets", "set", "index", stdin=index.with_password("me:w0rd-of-the-index") + "\n")
    job = run(cluster, ["leaf"], None, [tell("leaf")], env=env)
    asked = sum(index.hits.values())
    assert told(cluster, job) == [[PLACE, "1.0"]] and asked > 0
    cluster.cli("secrets", "set", "index", stdin=index.with_password("me:another") + "\n")
    run(cluster, ["leaf"], None, [tell("leaf")], env=env)
    assert sum(index.hits.values()) == asked
    if not uv:
        return  # one who takes his time, and has shown what matters
    # by ${NAME} in the file, which holds none
    cluster.cli("secrets", "set", "word", stdin="w0rd-of-the-index\n")
    line = f"--index-url http://me:${{WORD}}@{index.host}/simple\nleaf\n"
    run(cluster, "r.txt", None, [tell("leaf")], files={"r.txt": line}, env={"WORD": {"secret": "word"}})
    assert sum(index.hits.values()) > asked
    cluster.cli("secrets", "set", "word", stdin="wrong\n")
    failed = push(cluster, "r.txt", None, files={"r.txt": line + "other\n"}, env={"WORD": {"secret": "word"}})
    fails(cluster, failed, "python_requirements_failed")
    kept = [p for p in cluster.data.rglob("*") if p.is_file() and b"w0rd-of-the-index" in p.read_bytes()]
    assert not kept, kept
    assert "w0rd-of-the-index" not in cluster.logs(job) + cluster.logs(failed)


@pytest.mark.parametrize("uv", [False, True], ids=["pip", "uv"])
def test_downloads_are_kept_in_the_projects_cache(empty_cluster, index, uv):
    cluster = start(empty_cluster, uv=uv)
    more = {"cache_config": {"enabled": True}, "env": {"PIP_TRUSTED_HOST": index.host}}  # pip keeps nothing of plain HTTP else
    run(cluster, ["leaf==1.0"], index, **more)
    asked = index.downloads("leaf")
    assert asked > 0 and not index.downloads("other")
    job = run(cluster, ["leaf==1.0", "other"], index, [tell("leaf", "other")], **more)
    assert told(cluster, job) == [[PLACE, "1.0", "1.0"]]
    assert index.downloads("leaf") == asked and index.downloads("other")


def test_teams_share_none(empty_cluster, index):
    """A team's caches take part in its builds: what comes of them is for that team."""
    cluster = start(empty_cluster)
    run(cluster, ["leaf==1.0"], index)
    cluster.cli("teams", "create", "others")
    folder = cluster.job_folder(["true"], project="q", runtime=runtime(["leaf==1.0"], index))
    job = json.loads(cluster.cli("push", folder / "train.yaml", "--set", "team=others", "-o", "json").out)
    cluster.wait(job, DONE)
    assert trees(cluster) == (2, 2)


def test_plain_uses_it_where_it_lies(empty_cluster, index):
    cluster = start(empty_cluster, "--sandbox", "plain")
    job = run(cluster, ["leaf==1.0"], index, [tell("leaf"), "echo told $VIRTUAL_ENV"])
    (where, version), (named,) = told(cluster, job)
    # of a server that is root the job has ids of its own, and sees its folders below a root that is made for it
    place = "/run/stoker/stage/" if os.geteuid() == 0 else str(cluster.data / "node/built")
    assert version == "1.0" and where == named and place in where
    asked = sum(index.hits.values())
    assert told(cluster, run(cluster, ["leaf==1.0"], index, [tell("leaf")])) == [[where, "1.0"]]
    assert sum(index.hits.values()) == asked


def test_the_real_registry(empty_cluster):
    """By hash, as everything that we take from there."""
    cluster = start(empty_cluster, uv=False)
    pin = "idna==3.4 --hash=sha256:90b77e79eaa3eba6de819a0c442c0b4ceefc341a7a2ab77d7562bf49f425c5c2\n"
    env = {name: os.environ[name] for name in ("PIP_INDEX_URL", "PIP_CERT") if name in os.environ}
    job = run(cluster, "r.txt", None, ["python3 -c 'import idna, sys; print(\"told\", sys.prefix, idna.__version__)'"], files={"r.txt": pin}, env=env)
    assert told(cluster, job) == [[PLACE, "3.4"]]
