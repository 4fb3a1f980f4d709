"""What compilers make in one job is there in the next: filled before the commands run, kept at checkpoints and at the end."""
import hashlib
import json
import os
import shutil
import signal
import subprocess
import textwrap
import time

import pytest
from conftest import CLUSTER, PARTS, new_cluster, until
from hub_client import Client

PEOPLE = {"ann": ("red", "member"), "zed": ("red", "member"), "eve": ("blue", "member")}
PLACE = "/opt/stoker/compile"
JAX = """
    import os, time
    import jax, jax.numpy as jnp
    hits = {}
    jax.monitoring.register_event_listener(lambda event, **_: hits.__setitem__(event, hits.get(event, 0) + 1))
    f = jax.jit(lambda x: jnp.sin(x @ x).sum() * SALT)
    f(jnp.ones((64, 64))).block_until_ready()
    print("jax", hits.get("/jax/compilation_cache/cache_hits", 0), hits.get("/jax/compilation_cache/cache_misses", 0), flush=True)
"""


@pytest.fixture(scope="module")
def both():
    with new_cluster() as c:
        c.start("--cpus", "8", "--memory", "16Gi", "--hub-upstream", "off", "--share", str(PARTS / "savers"), "--share", str(PARTS / "clients"))
        c.tokens = c.people(PEOPLE)
        yield c


@pytest.fixture
def site(both, request):
    request.node.stash[CLUSTER] = both
    return both


def push(c, commands, person="ann", repo=None, files=None, runtime=None, **job):
    cache = {"enabled": True, **({"repo": repo} if repo else {})}
    env = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PLATFORMS": "cpu", **(runtime or {}).pop("environment_variables", {})}
    folder = c.job_folder(commands, project=f"red/{person}", files=files, runtime={"compile_cache": cache, "environment_variables": env, **(runtime or {})}, **job)
    return json.loads(c.cli("push", folder / "train.yaml", "-o", "json", env={"STOKER_TOKEN": c.tokens[person]}).out)


def run(c, commands, status="TRAINING_JOB_COMPLETED", **kw):
    job = push(c, commands, **kw)
    c.wait(job, status)
    return job


def jax(c, salt, **kw):
    job = run(c, [f"{PARTS}/savers/bin/python main.py"], files={"main.py": textwrap.dedent(JAX).replace("SALT", salt)}, compute={"cpu_count": 1, "memory": "2Gi"}, **kw)
    return job, [int(x) for x in next(x for x in c.user_lines(job) if x.startswith("jax ")).split()[1:]]


def listing(c, repo, person="ann"):
    return Client(c.folder, c.url, "2.4", c.tokens[person]).run(f"""
        said({{f: (pathlib.Path(hf_hub_download("{repo}", f, force_download=True)).read_text(errors="replace")[:100000]) for f in api.list_repo_files("{repo}")}})""")


def test_the_next_job_compiles_nothing(site):
    first, (hits, misses) = jax(site, "3.5")
    assert hits == 0 and misses > 0
    assert "compile cache red/compile-cache: nothing for" in site.logs(first) and "added" in site.logs(first)
    second, (hits, misses) = jax(site, "3.5", person="zed")  # another member, another project of the team
    assert hits > 0 and misses == 0, site.logs(second)
    assert "added" not in site.logs(second)
    files = listing(site, "red/compile-cache")
    records = [json.loads(text) for path, text in files.items() if path.startswith(".stoker/harvests/")]
    assert [r["job"] for r in records] == [first["id"]]
    record = records[0]
    assert record["facts"]["jax"] and record["facts"]["python"].startswith("3.") and record["facts"]["env.JAX_PLATFORMS"] == "cpu" and record["facts"]["place"] == PLACE
    assert record["before"] is None and set(record["entries"]) <= set(files) and all(e.startswith(f"jax/{record['device']}/") for e in record["entries"])
    # another team has its own, and does not see this one
    assert Client(site.folder, site.url, "2.4", site.tokens["eve"]).run("""said(names(api.list_repo_files, "red/compile-cache"))""")[0] == "RepositoryNotFoundError"


NINJA = """
    set -e
    mkdir -p $TORCH_EXTENSIONS_DIR/py/fast; cd $TORCH_EXTENSIONS_DIR/py/fast
    say() { [ -e "$1" ] && [ "$(cat "$1")" = "$2" ] || printf '%s\\n' "$2" > "$1"; }
    say main.cpp 'int f(int x) { return 2 * x; }'
    say other.cpp 'int g(int x) { return 3 * x; }'
    say build.ninja "$(printf 'ninja_required_version = 1.3\\nrule compile\\n  command = g++ -MMD -MF $out.d -fPIC -c $in -o $out\\n  depfile = $out.d\\n  deps = gcc\\nrule link\\n  command = g++ -shared $in -o $out\\nbuild main.o: compile main.cpp\\nbuild other.o: compile other.cpp\\nbuild fast.so: link main.o other.o\\ndefault fast.so')"
    ninja -d explain 2>&1 | grep -v '^\\[' | tail -5
    """


@pytest.mark.skipif(not shutil.which("ninja"), reason="no ninja")
def test_an_extension_is_not_built_again(site):
    """As PyTorch does it: sources are written if they differ, then ninja decides, by times and records."""
    first = run(site, [NINJA], repo="extension")
    assert "ninja: no work to do." not in site.user_lines(first)
    second = run(site, [NINJA], repo="extension")
    assert site.user_lines(second) == ["ninja: no work to do."], site.logs(second)
    assert "added" not in site.logs(second)
    changed = run(site, [NINJA.replace("return 2 * x", "return 4 * x")], repo="extension")
    assert any("main.cpp" in line for line in site.user_lines(changed)), site.logs(changed)


def test_the_variables_of_all_compilers(site):
    job = run(site, ["env | grep -E 'CACHE|TORCH_EXT|TRITON' | sort", "ls -la $TRITON_CACHE_DIR $CCACHE_DIR", "touch $CUDA_CACHE_PATH/x"], repo="vars",
              runtime={"environment_variables": {"TRITON_CACHE_DIR": "/tmp"}})
    lines = site.user_lines(job)
    for line in (f"NEURON_COMPILE_CACHE_URL={PLACE}/neuron", f"TORCHINDUCTOR_CACHE_DIR={PLACE}/inductor", f"JAX_COMPILATION_CACHE_DIR={PLACE}/jax", f"VLLM_CACHE_ROOT={PLACE}/vllm",
                 f"TORCH_EXTENSIONS_DIR={PLACE}/torch_extensions", f"CUDA_CACHE_PATH={PLACE}/cuda", f"CCACHE_DIR={PLACE}/ccache", "TRITON_CACHE_DIR=/tmp", "CUSTOM_CACHE_REPO=ann/vars"):
        assert line in lines, (line, lines)


NEURON = "neuronxcc-2.21.33363.0+82129205"


def test_what_is_torn_is_left_out(site):
    make = f"""
        cd $NEURON_COMPILE_CACHE_URL
        m={NEURON}/MODULE_1+d41d8cd9; mkdir -p $m; echo hlo > $m/model.hlo_module.pb; echo '[]' > $m/compile_flags.json; echo neff > $m/model.neff; : > $m/model.done
        m={NEURON}/MODULE_2+d41d8cd9; mkdir -p $m; echo hlo > $m/model.hlo_module.pb; echo half > $m/model.neff; : > $m/model.hlo_module.pb.lock
        m={NEURON}/MODULE_3+d41d8cd9; mkdir -p $m; echo failed > $m/model.log
        cd $JAX_COMPILATION_CACHE_DIR; printf 'no frame' > jit_torn-{"0" * 64}-cache; touch .lockfile
        ln -s /etc/passwd $TRITON_CACHE_DIR/link; mkfifo $TRITON_CACHE_DIR/fifo; mkdir -p $TRITON_CACHE_DIR/tmp.pid_1_x; echo x > $TRITON_CACHE_DIR/tmp.pid_1_x/k.cubin
    """
    run(site, [make], repo="torn")
    files = set(listing(site, "ann/torn"))
    assert {f for f in files if not f.startswith(".")} == {f"{NEURON}/MODULE_1+d41d8cd9/{x}" for x in ("model.hlo_module.pb", "compile_flags.json", "model.neff", "model.done")}, files


def test_nothing_is_overwritten_and_no_commit_lost(site):
    """Several jobs at once bring the same names with other contents, and names of their own."""
    def commands(i):
        return [f"for n in same own-{i}; do m=$NEURON_COMPILE_CACHE_URL/{NEURON}/MODULE_$n+d41d8cd9; mkdir -p $m; echo {i} > $m/model.neff; echo hlo > $m/model.hlo_module.pb;"
                " : > $m/model.done; done"]
    jobs = [push(site, commands(i), repo="many") for i in range(6)]
    for job in jobs:
        site.wait(job, "TRAINING_JOB_COMPLETED")
    files = listing(site, "ann/many")
    assert {files[f"{NEURON}/MODULE_own-{i}+d41d8cd9/model.neff"].strip() for i in range(6)} == {str(i) for i in range(6)}
    kept = files[f"{NEURON}/MODULE_same+d41d8cd9/model.neff"]
    job = run(site, [f"echo other > $NEURON_COMPILE_CACHE_URL/{NEURON}/MODULE_same+d41d8cd9/model.neff"], repo="many")
    assert listing(site, "ann/many")[f"{NEURON}/MODULE_same+d41d8cd9/model.neff"] == kept, site.logs(job)
    assert "compile cache ann/many: 0 files added, 0 B; 1 more had come from elsewhere" in site.logs(job)


@pytest.mark.skipif(not shutil.which("ccache"), reason="no ccache")
def test_one_that_a_disk_has_lost(site):
    """It is compiled again, and kept; all others are filled."""
    def touch(text):
        return ["ls $CUDA_CACHE_PATH | tr '\\n' ' '", *(f"[ -e $CUDA_CACHE_PATH/{n} ] || echo {n} {text} > $CUDA_CACHE_PATH/{n}" for n in ("one", "two"))]
    run(site, touch("first"), repo="lost")
    digest = hashlib.sha256(b"one first\n").hexdigest()
    (site.data / "store/blobs/sha256" / digest[:2] / digest).unlink()
    second = run(site, touch("second"), repo="lost")
    assert site.user_lines(second) == ["two "] and "1 file added" in site.logs(second), site.logs(second)
    assert site.user_lines(run(site, touch("third"), repo="lost")) == ["one two "]
    assert [text for path, text in sorted(listing(site, "ann/lost").items()) if path.endswith(("/one", "/two"))] == ["one second\n", "two first\n"]


def test_what_was_used_is_not_what_was_made(site):
    """ccache sets the times of an entry that it uses, unless they are those of this moment."""
    commands = ["echo 'int x;' > /tmp/x.c; cd /tmp; ccache gcc -c x.c -o x.o; ccache --print-stats | grep -E '^(direct_cache_hit|cache_miss)'"]
    run(site, commands, repo="used")
    job = run(site, [*commands, "find $CCACHE_DIR -type f -exec touch {} +"], repo="used")
    assert "direct_cache_hit\t1" in site.user_lines(job) and "more had come" not in site.logs(job), site.logs(job)
    assert sum(f.startswith(".stoker/harvests/") for f in listing(site, "ann/used")) == 1


def test_a_job_that_is_killed_keeps_what_its_checkpoints_saw(site):
    make = f"m=$NEURON_COMPILE_CACHE_URL/{NEURON}/MODULE_%s+d41d8cd9; mkdir -p $m; echo neff > $m/model.neff; echo hlo > $m/model.hlo_module.pb; : > $m/model.done"
    job = push(site, [make % "early", "sleep 6; mkdir -p $BT_CHECKPOINT_DIR/checkpoint-1; echo x > $BT_CHECKPOINT_DIR/checkpoint-1/model.bin; touch $BT_CHECKPOINT_DIR/checkpoint-1/DONE",
                      "sleep 600"], repo="killed", runtime={"checkpointing_config": {"enabled": True, "marker": "DONE"}})
    until(lambda: "added" in site.logs(job), 120)
    assert f"{NEURON}/MODULE_early+d41d8cd9/model.neff" in listing(site, "ann/killed")
    site.cli("stop", job["id"], "--now")
    site.wait(job)


def test_who_may_push(site):
    device = next(x for x in site.logs(run(site, ["true"], repo="device")).splitlines() if "nothing for" in x).split(" for ")[1].split(" ")[0]
    Client(site.folder, site.url, "2.4", site.tokens["zed"]).run(f"""
        api.create_repo("zed/open-cache")
        api.upload_file(repo_id="zed/open-cache", path_or_fileobj=b"theirs", path_in_repo="cuda/{device}/theirs")
        api.create_repo("zed/closed-cache", private=True)
        said(1)""")
    job = run(site, ["cat $CUDA_CACHE_PATH/theirs; echo; echo mine > $CUDA_CACHE_PATH/mine", f"{PARTS}/clients/bin/python -c \"from huggingface_hub import HfApi; HfApi().upload_file(repo_id='zed/open-cache', path_or_fileobj=b'x', path_in_repo='x')\" 2>&1 | grep -o '403' | head -1"],
              repo="zed/open-cache")
    assert "theirs" in site.user_lines(job) and "403" in site.user_lines(job)
    assert "is read only for this job, so what it compiles is not kept" in site.logs(job)
    assert [f for f in listing(site, "zed/open-cache") if not f.startswith(".")] == [f"cuda/{device}/theirs"]
    for repo in ("zed/closed-cache", "zed/none", "blue/x", "huggingface/none"):
        folder = site.job_folder(["true"], project="red/ann", runtime={"compile_cache": {"enabled": True, "repo": repo}})
        assert "there is no repository" in site.refusal("push", folder / "train.yaml", env={"STOKER_TOKEN": site.tokens["ann"]})["error"]["message"], repo


def test_a_repository_that_was_renamed(site):
    Client(site.folder, site.url, "2.4", site.tokens["ann"]).run("""
        api.create_repo("ann/before")
        api.move_repo("ann/before", "ann/after")
        said(1)""")
    folder = site.job_folder(["true"], project="red/ann", runtime={"compile_cache": {"enabled": True, "repo": "before"}})
    assert "the repository ann/before is now ann/after" in json.dumps(site.refusal("push", folder / "train.yaml", env={"STOKER_TOKEN": site.tokens["ann"]}))


def test_a_repository_that_is_renamed_while_a_job_runs(site):
    """What the job compiles is kept where the repository is now, in the same team; nobody else's is written to."""
    make = f"m=$NEURON_COMPILE_CACHE_URL/{NEURON}/MODULE_%s+d41d8cd9; mkdir -p $m; echo neff > $m/model.neff; echo hlo > $m/model.hlo_module.pb; : > $m/model.done"
    ann = Client(site.folder, site.url, "2.4", site.tokens["ann"])
    ann.run('api.create_repo("red/renamed", private=True); api.create_repo("red/left", private=True); said(1)')
    jobs = [push(site, [make % "late", "until [ -e $BT_SCRATCH_DIR/go ]; do sleep 0.1; done"], person="zed", repo=repo) for repo in ("red/renamed", "red/left")]
    for job in jobs:
        site.wait(job, "TRAINING_JOB_RUNNING")
    ann.run('api.move_repo("red/renamed", "red/renamed-since"); api.move_repo("red/left", "ann/left"); said(1)')
    for job in jobs:
        site.cli("exec", job["id"], "--", "sh", "-c", "touch $BT_SCRATCH_DIR/go")
        site.wait(job, "TRAINING_JOB_COMPLETED")
    assert f"{NEURON}/MODULE_late+d41d8cd9/model.neff" in listing(site, "red/renamed-since"), site.logs(jobs[0])
    assert f"{NEURON}/MODULE_late+d41d8cd9/model.neff" not in listing(site, "ann/left"), site.logs(jobs[1])


def test_what_a_file_may_say(site):
    for cache, words in (({"enabled": True, "repo": "datasets/a/b"}, "no repository of models"), ({"enabled": True, "repo": "a/b/c"}, "no repository of models"),
                         ({"enabled": "yes"}, "should be true or false"), ({"enabled": True, "repos": "x"}, "did you mean")):
        folder = site.job_folder(["true"], project="red/ann", runtime={"compile_cache": cache})
        assert words in json.dumps(site.refusal("push", folder / "train.yaml", env={"STOKER_TOKEN": site.tokens["ann"]})), cache
    folder = site.job_folder(["true"], project="red/ann", runtime={"compile_cache": {"enabled": True}, "environment_variables": {"HF_TOKEN": "x"}})
    assert "leave one of them out" in json.dumps(site.refusal("push", folder / "train.yaml", env={"STOKER_TOKEN": site.tokens["ann"]}))


def test_names_that_no_repository_has(site):
    make = r"""
        cd $CUDA_CACHE_PATH; touch good; touch "$(printf 'new\nline')" "$(printf 'not\377text')" 'back\slash' ; mkdir .git 'a b+c'; touch .git/config 'a b+c/é'
        mkdir -p $(printf 'd/%.0s' $(seq 60)); e=$(printf 'e/%.0s' $(seq 102)); mkdir -p $e; touch $e/f
    """
    job = run(site, [make], repo="names")
    files = [f.split("/", 2)[2] for f in listing(site, "ann/names") if f.startswith("cuda/")]
    assert sorted(files) == ["a b+c/é", "back\\slash", "good"], (files, site.logs(job))


def test_more_facts_than_a_message_holds(site):
    make = f"m=$NEURON_COMPILE_CACHE_URL/{NEURON}/MODULE_1+d41d8cd9; mkdir -p $m; echo hlo > $m/model.hlo_module.pb; echo neff > $m/model.neff; : > $m/model.done"
    job = run(site, [make], repo="facts", runtime={"environment_variables": {f"VLLM_{i}": "x" * 990 for i in range(75)}})
    files = listing(site, "ann/facts")
    assert f"{NEURON}/MODULE_1+d41d8cd9/model.neff" in files, site.logs(job)
    assert len(json.loads(next(text for path, text in files.items() if path.startswith(".stoker/harvests/")))["facts"]) > 70


def test_what_is_too_deep_or_too_large(site):
    """It is left out with the compilation that it is of, and named; everything else is kept."""
    make = f"""
        for i in 1 2 3; do m=$NEURON_COMPILE_CACHE_URL/{NEURON}/MODULE_$i+d41d8cd9; mkdir -p $m; echo hlo > $m/model.hlo_module.pb; echo neff > $m/model.neff; : > $m/model.done; done
        cd $m; truncate -s 2147483649 model.neff; cd ../MODULE_2+d41d8cd9; mkdir -p $(printf 'd/%.0s' $(seq 150))
        cd $TRITON_CACHE_DIR; mkdir a; echo x > a/launcher.py; cd a; mkdir -p $(printf 'd/%.0s' $(seq 150))
    """
    job = run(site, [make], repo="deep")
    files = {f for f in listing(site, "ann/deep") if not f.startswith(".")}
    assert {f for f in files if not f.startswith("triton/")} == {f"{NEURON}/MODULE_1+d41d8cd9/{x}" for x in ("model.hlo_module.pb", "model.neff", "model.done")}, (files, site.logs(job))
    assert [f for f in files if f.startswith("triton/") and f.endswith("/a/launcher.py")], files
    said = [x.split("left out: ")[1] for x in site.logs(job).splitlines() if "left out: " in x]
    assert len(said) == 3, site.logs(job)
    assert f"neuron/{NEURON}/MODULE_3+d41d8cd9/model.neff, with what belongs to it: it has 2147483649 bytes, and a file may have 2147483648" in said, said
    assert {x[:9] for x in said if x.endswith(": too many folders in each other")} == {"neuron/ne", "triton/a/"}, said


def test_a_server_that_is_away_at_the_end(empty_cluster):
    c = empty_cluster
    c.start("--cpus", "2", "--memory", "2Gi", "--hub-upstream", "off")
    folder = c.job_folder([f"m=$NEURON_COMPILE_CACHE_URL/{NEURON}/MODULE_1+d41d8cd9; mkdir -p $m; echo neff > $m/model.neff; echo hlo > $m/model.hlo_module.pb; : > $m/model.done",
                           "while [ ! -e /mnt/bt-scratch/go ]; do sleep 0.1; done"], runtime={"compile_cache": {"enabled": True, "repo": "mine"}})
    job = json.loads(c.cli("push", folder / "train.yaml", "-o", "json").out)
    until(lambda: c.job(job)["current_status"] == "TRAINING_JOB_RUNNING", 60)
    c.cli("exec", job["id"], "--", "sh", "-c", "(sleep 3; touch /mnt/bt-scratch/go) > /dev/null 2>&1 &")
    c.kill()
    time.sleep(6)  # the commands have ended meanwhile
    c.start(*c.flags)
    c.wait(job, "TRAINING_JOB_COMPLETED")
    status, tree = c.api("GET", "/api/models/admin/mine/tree/main?recursive=true")
    assert status == 200 and f"{NEURON}/MODULE_1+d41d8cd9/model.neff" in [x["path"] for x in tree], c.logs(job)


def test_a_runner_that_is_killed_in_a_harvest(site):
    """What was committed is whole; the next attempt begins with it."""
    make = (f"i=0; while [ $i -lt 400 ]; do m=$NEURON_COMPILE_CACHE_URL/{NEURON}/MODULE_$i+d41d8cd9; mkdir -p $m; head -c 100000 /dev/urandom > $m/model.neff; echo hlo > $m/model.hlo_module.pb;"
            " : > $m/model.done; i=$((i+1)); done; find $NEURON_COMPILE_CACHE_URL -name model.done | wc -l > /mnt/bt-scratch/n")
    job = push(site, [make, "while [ ! -e /mnt/bt-scratch/go ]; do sleep 0.1; done"], repo="killed-runner")
    until(lambda: site.cli("exec", job["id"], "--", "cat", "/mnt/bt-scratch/n", code=None).out.strip() == "400", 120)
    site.cli("exec", job["id"], "--", "touch", "/mnt/bt-scratch/go", code=None)
    runner = next(int(p.split()[0]) for p in site.processes() if f"runner {site.data}" in p)
    time.sleep(0.3)
    subprocess.run(["kill", "-9", str(runner)], check=False)
    site.wait(job)
    status, tree = site.api("GET", "/api/models/ann/killed-runner/tree/main?recursive=true")
    done = {x["path"].rsplit("/", 1)[0] for x in tree if x["path"].endswith("model.done")} if status == 200 else set()
    neff = {x["path"].rsplit("/", 1)[0] for x in tree if x["path"].endswith("model.neff") and x["size"] == 100000} if status == 200 else set()
    assert done == neff  # none without its result
    again = run(site, ["find $NEURON_COMPILE_CACHE_URL -name model.done | wc -l"], repo="killed-runner")
    assert str(len(done)) in site.user_lines(again)


def test_more_than_one_commit(site):
    """Two and a half times what one commit takes, each file there once, and the same back."""
    make = "cd $CUDA_CACHE_PATH; for d in $(seq 120); do mkdir $d; for f in $(seq 100); do echo $d-$f > $d/$f; done; done"
    job = run(site, [make], repo="lots")
    assert "12000 files added" in site.logs(job) or "added" in site.logs(job)
    second = run(site, ["cd $CUDA_CACHE_PATH; find . -type f | wc -l; cat */* | sort | sha256sum"], repo="lots")

    want = hashlib.sha256("".join(sorted(f"{d}-{f}\n" for d in range(1, 121) for f in range(1, 101))).encode()).hexdigest()
    assert "12000" in site.user_lines(second) and any(want in x for x in site.user_lines(second)), site.logs(second)


def test_a_machine_that_shuts_down_waits_for_no_answer(site):
    """The server hangs while a job sends what it has compiled, and the runner is told to end: it gives the request up by itself, long before it would count as stalled."""
    folder = site.data / "runs"
    before = set(folder.iterdir())
    job = push(site, [f"m=$NEURON_COMPILE_CACHE_URL/{NEURON}/MODULE_9+d41d8cd9; mkdir -p $m; echo neff > $m/model.neff; echo hlo > $m/model.hlo_module.pb; : > $m/model.done",
                      "until [ -e $BT_SCRATCH_DIR/go ]; do sleep 0.2; done"], repo="frozen")
    site.wait(job, "TRAINING_JOB_RUNNING")
    attempt, = set(folder.iterdir()) - before
    runner = json.loads((attempt / "runner.json").read_text())["pid"]
    os.kill(site.process.pid, signal.SIGSTOP)
    try:
        (attempt / "scratch" / "go").touch()
        until(lambda: (attempt / "exit.json").exists())
        os.kill(runner, signal.SIGTERM)
        until(lambda: any(b"there was no time for the rest" in p.read_bytes() for p in attempt.rglob("*") if p.is_file()))
    finally:
        os.kill(site.process.pid, signal.SIGCONT)
    site.wait(job)
    assert "compile cache ann/frozen: not all is kept: there was no time for the rest" in site.logs(job)
