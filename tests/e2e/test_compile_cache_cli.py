"""Compile caches from the command line: real ones of JAX and ccache, the layouts of the others, and what is torn."""
import base64
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest
from conftest import CALL_S, PARTS, STOKER, until
from s3 import flags, minio, store  # noqa: F401
from test_repo_tools import Tools
from test_repos import ask, begin, commit, files, get, good, new, own, small  # noqa: F401

JAX = PARTS / "savers/bin/python"
OLD_S = 60
STEP = """
import jax, jax.numpy as jnp, json
seen = []
jax.monitoring.register_event_listener(lambda name, **kw: seen.append(name))
x = jax.jit(lambda x: (jnp.sin(x) @ jnp.cos(x).T).sum() * SCALE)(jnp.ones((64, 64)))
x.block_until_ready()
print(json.dumps({word: sum(name.endswith(word) for name in seen) for word in ("cache_hits", "cache_misses")}))
"""


def jax(folder, scale=1):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
    env.update(JAX_COMPILATION_CACHE_DIR=str(folder), JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
               JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1", JAX_PLATFORMS="cpu")
    done = subprocess.run([JAX, "-c", STEP.replace("SCALE", str(scale))], env=env, capture_output=True, text=True, timeout=CALL_S, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def write(folder, tree, age_s=OLD_S):
    """Files as a compiler left them a while ago."""
    for path, data in tree.items():
        file = pathlib.Path(folder) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data if isinstance(data, bytes) else data.encode())
        age(file, age_s)


def age(file, age_s=OLD_S):
    then = time.time() - age_s
    os.utime(file, (then, then))


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(pathlib.Path(folder).rglob("*")) if p.is_file()}


def held(c, id_):
    """Paths of the caches in a repository, and their contents."""
    return {p: get(c, id_, p).body for p in files(c, id_) if p != ".gitattributes" and not p.startswith(".stoker/")}


def graph(data):
    """The name that Inductor gives to what it pickles."""
    return base64.b32encode(hashlib.sha256(data).digest())[:51].decode().lower()


def group(folder, *names):
    return json.dumps({"child_paths": {n: f"{folder}/{n}" for n in names}})


MODULE = "neuronxcc-2.21.33363.0+82129205/MODULE_16398503955111834359+abb26765"
NEURON = {f"{MODULE}/model.hlo_module.pb": b"hlo", f"{MODULE}/compile_flags.json": '["-O1"]', f"{MODULE}/model.neff": os.urandom(150_000), f"{MODULE}/model.done": b"",
          "neuronxcc-2.21.33363.0+82129205/0_REGISTRY/0.4.5/llama/org/model/0123456789abcdef0123.json": "{}"}
TRITON = {"KEY/add.json": '{"num_warps": 4}', "KEY/add.cubin": b"\x7fELF of a GPU", "KEY/__grp__add.json": group("/elsewhere/KEY", "add.json", "add.cubin")}
INDUCTOR = {f"fxgraph/ab/fabc/{graph(b'a graph')}": b"a graph", "ab/cabc.py": "print()", "triton/0/KEY/mul.json": "{}", "triton/0/KEY/mul.ptx": "ptx",
            "triton/0/KEY/__grp__mul.json": group("/elsewhere/triton/0/KEY", "mul.json", "mul.ptx")}
# What each of the compilers leaves beside, or half done.
TORN = {
    "neuron": {"lock": "", f"{MODULE}/model.log": "failed", f"{MODULE}/model.hlo_module.pb.lock": "", "neuronxcc-2.21.33363.0+82129205/MODULE_7+1/model.neff": "half",
               "neuronxcc-2.21.33363.0+82129205/MODULE_8+1/model.neff": b"", "neuronxcc-2.21.33363.0+82129205/MODULE_8+1/model.done": b""},
    "triton": {"LATE/mul.json": "{}", "LATE/mul.cubin": "x", "LATE/__grp__mul.json": group("/x", "mul.json", "mul.cubin", "mul.ptx"), "tmp.pid_7_ab/x.ptx": "x"},
    "inductor": {f"fxgraph/ab/fabc/{graph(b'a longer graph')}": b"all of", "cache/0a1b": "{}", "locks/x.lock": "", "ab/.12.140.tmp": "x", "ab/cdef.so": b"\x7fELF, cut"},
    "jax": {"jit_f-00-cache": b"x\x9c torn", "jit_g-01-atime": b"12345678", ".lockfile": ""},
    "vllm": {"assets/x": "x"},
    "ccache": {"ccache.conf": "x", "a/stats": "1", "a/bcdefghijklmnopq0123456789R": "not one"},
}
WHOLE = {"neuron": NEURON, "triton": TRITON, "inductor": INDUCTOR, "jax": {}, "ccache": {"3/a/0123456789abcdefghijkR": b"\xcc\xac\x01 a result"},
         "vllm": {"torch_compile_cache/0a/rank_0_0/backbone/vllm_compile_cache.py": "x"}, "torch_extensions": {"fast/fast.so": pathlib.Path("/bin/true").read_bytes(), "fast/build.ninja": "x"},
         "cuda": {"index": "i", "1/2/abc": "x"}}


@pytest.fixture
def caches(tmp_path):
    """A folder with a cache of each kind, whole entries and others."""
    for kind in {*WHOLE, *TORN}:
        write(tmp_path / "all" / kind, {**WHOLE.get(kind, {}), **TORN.get(kind, {})})
    return tmp_path / "all"


def in_repo(device):
    by_device = ("triton", "inductor", "vllm", "torch_extensions", "cuda")
    found = {path: data for path, data in NEURON.items()}
    for kind in by_device:
        found.update({f"{kind}/{device}/{path}": data for path, data in WHOLE[kind].items()})
    found.update({f"ccache/{path}": data for path, data in WHOLE["ccache"].items()})
    found = {path: data if isinstance(data, bytes) else data.encode() for path, data in found.items()}
    for path in found:
        if "__grp__" in path:  # as jobs have it
            kind, _, rest = path.partition("/")
            place = f"/opt/stoker/compile/{kind}/{os.path.dirname(rest.partition('/')[2])}"
            found[path] = group(place, *json.loads(found[path])["child_paths"]).replace(": ", ":").replace(", ", ",").encode()
    return found


def push(c, *args, **kw):
    return {row["kind"]: row for row in c.json("compile-cache", "push", *args, **kw)}


def pull(c, *args, **kw):
    return {row["kind"]: row for row in c.json("compile-cache", "pull", *args, **kw)}


def test_jax_compiles_once(own, tmp_path):  # noqa: F811
    """What one machine has compiled, another one finds: in a folder of the same name, which is in JAX's keys."""
    c, here = own, tmp_path / "jax"
    first = jax(here)
    assert first["cache_hits"] == 0 and first["cache_misses"] > 0
    for file in here.iterdir():
        age(file)
    cut = next(here.glob("jit__lambda*-cache"))
    (here / ("torn" + cut.name)).write_bytes(cut.read_bytes()[:-1])
    age(here / ("torn" + cut.name))
    sent = push(c, "Default/jax", "--kind", f"jax={here}", "--device", "My CPU")["jax"]
    assert (sent["new"], sent["torn"], sent["device"]) == (first["cache_misses"], 1, "my-cpu")
    shutil.rmtree(here)
    assert pull(c, "Default/jax", "--kind", "jax", "--device", "My CPU", env={"JAX_COMPILATION_CACHE_DIR": str(here)})["jax"]["new"] == sent["new"]
    assert jax(here) == {"cache_hits": first["cache_misses"], "cache_misses": 0}
    again = jax(here, scale=2)
    assert again["cache_misses"] > 0
    for file in here.iterdir():
        age(file)
    more = push(c, "Default/jax", "--kind", f"jax={here}", "--device", "My CPU")["jax"]
    assert (more["new"], more["there"]) == (again["cache_misses"], sent["new"])


def test_ccache_compiles_once(own, tmp_path):  # noqa: F811
    if shutil.which("ccache") is None:
        pytest.skip("no ccache")
    c, source = own, tmp_path / "x.c"
    source.write_text("int x(void) { return 7; }\n")

    def build(folder):
        env = {**{k: v for k, v in os.environ.items() if not k.startswith("CCACHE_")}, "CCACHE_DIR": str(folder)}
        subprocess.run(["ccache", "gcc", "-c", source, "-o", tmp_path / "x.o"], env=env, check=True, cwd=tmp_path)
        counted = subprocess.run(["ccache", "--print-stats"], env=env, check=True, capture_output=True, text=True).stdout
        count = dict(row.split("\t")[:2] for row in counted.splitlines())
        return int(count["direct_cache_hit"]), int(count["cache_miss"])

    assert build(tmp_path / "here") == (0, 1)
    for file in (tmp_path / "here").rglob("*"):
        age(file)
    assert push(c, "Default/c", "--kind", "ccache", env={"CCACHE_DIR": str(tmp_path / "here")})["ccache"]["new"] == 2
    assert pull(c, "Default/c", "--kind", f"ccache={tmp_path / 'there'}")["ccache"]["new"] == 2
    assert build(tmp_path / "there") == (1, 0)


def test_only_what_is_whole(own, caches, tmp_path):  # noqa: F811
    c, id_ = own, "Default/caches"
    made = c.cli("compile-cache", "push", id_, "--from", caches, "-d", "gpu")
    assert f"made the private repository {id_}" in made.err and "torn" in made.out
    assert held(c, id_) == in_repo("gpu")
    assert ask(c, f"/api/models/{id_}").json()["private"] is True
    assert [x["title"].startswith("compile caches of ") for x in ask(c, f"/api/models/{id_}/commits/main").json()] == [True, False], "one commit"
    # once more: nothing
    rows = push(c, id_, "--from", caches, "-d", "gpu")
    assert sum(r["new"] for r in rows.values()) == 0 and rows["neuron"]["there"] == len(NEURON)
    assert {kind for kind, r in rows.items() if r["torn"]} == {"neuron", "triton", "inductor", "jax", "ccache"}, rows
    assert len(ask(c, f"/api/models/{id_}/commits/main").json()) == 2, "no commit of nothing"
    # nothing is replaced, and what is being written waits
    write(caches / "inductor", {"ab/cabc.py": "other"})
    write(caches / "inductor", {"ab/cnew.py": "new"}, age_s=0)
    waits = c.cli("compile-cache", "push", id_, "--from", caches, "-d", "gpu")
    assert "1 young" in waits.out and "1 young file may still be written to" in waits.err and "has all of it" not in waits.err
    assert held(c, id_) == in_repo("gpu")
    age(caches / "inductor/ab/cnew.py")
    assert push(c, id_, "--from", caches, "-d", "gpu")["inductor"]["new"] == 1


def test_links_and_strangers(own, tmp_path):  # noqa: F811
    """A link is not followed, to whatever it leads; a folder of somebody else is not taken for a cache of ours."""
    c, folder = own, tmp_path / "inductor"
    (tmp_path / "secret").write_text("secret")
    write(folder, {"ab/ca.py": "a"})
    os.symlink(tmp_path / "secret", folder / "ab/cb.py")
    os.symlink(tmp_path, folder / "away")
    write(folder, {".git/x": "x", "ab/line\nend.py": "x"})  # which no repository may have
    row = push(c, "Default/x", "--kind", f"inductor={folder}", "-d", "gpu")["inductor"]
    assert (row["new"], row["other"]) == (1, 4) and list(held(c, "Default/x")) == ["inductor/gpu/ab/ca.py"]
    with (folder / "ab/large.py").open("wb") as f:
        f.truncate((2 << 30) + 1)
    (folder / "/".join("d" * 40)).mkdir(parents=True)
    said = c.cli("compile-cache", "push", "Default/x", "--kind", f"inductor={folder}", "-d", "gpu").err
    assert f"left out: {folder}/ab/large.py: it has more than 2 GiB" in said and f"{'/'.join('d' * 33)}: too many folders in each other" in said, said
    if os.geteuid() == 0:
        os.chown(folder, 12345, 12345)
        env = {"TORCHINDUCTOR_CACHE_DIR": str(folder)}
        write(folder, {"ab/cc.py": "c"})
        said = c.cli("compile-cache", "push", "Default/x", "-d", "gpu", env=env)
        assert "somebody else" in said.err and "inductor" not in said.out
        assert push(c, "Default/x", "--kind", f"inductor={folder}", "-d", "gpu")["inductor"]["new"] == 1


def test_pull(own, caches, tmp_path):  # noqa: F811
    c, id_, there = own, "Default/caches", tmp_path / "there"
    push(c, id_, "--from", caches, "-d", "gpu")
    write(there / "inductor", {"ab/cabc.py": "mine"})
    rows = pull(c, id_, "--to", there, "-d", "gpu")
    got, want = tree(there), in_repo("gpu")
    for path, data in want.items():
        kind, _, rest = path.partition("/")
        local = f"neuron/{path}" if kind.startswith("neuronxcc") else f"ccache/{rest}" if kind == "ccache" else f"{kind}/{rest.partition('/')[2]}"
        if "__grp__" in local:
            names = json.loads(got.pop(local))["child_paths"]
            assert names and all(pathlib.Path(p).parent == (there / local).parent and os.path.exists(p) for p in names.values()), "they are where they are said to be"
        elif local == "inductor/ab/cabc.py":
            assert got.pop(local) == b"mine"
        else:
            assert got.pop(local) == data, local
    assert got == {}, "nothing else came, no temporary file either"
    assert rows["inductor"]["there"] == 1
    assert all(r["new"] == 0 for r in pull(c, id_, "--to", there, "-d", "gpu").values())
    said = c.cli("compile-cache", "pull", id_, "--to", tmp_path / "other", "-d", "another", "--quiet")
    assert "neuron" in said.out and "inductor" not in said.out, "what is for every machine"
    # half an entry, as a harvest that was cut short leaves it, is nobody's
    good(commit(c, id_, small(f"{MODULE}9/model.neff", b"x"), small("triton/gpu/HALF/a.json", b"{}"), small("README.md", b"x")))
    rows = pull(c, id_, "--to", there, "-d", "gpu")
    assert (rows["neuron"]["torn"], rows["triton"]["torn"], sum(r["new"] for r in rows.values())) == (1, 1, 0)


def test_damaged_on_the_way(own, caches, tmp_path):  # noqa: F811
    """What is not what the repository lists is not kept."""
    c, id_ = own, "Default/caches"
    push(c, id_, "--from", caches, "-d", "gpu")
    neff = NEURON[f"{MODULE}/model.neff"]
    for path in (c.data / "store").rglob("*"):
        if path.is_file() and path.stat().st_size == len(neff) and path.read_bytes() == neff:
            path.chmod(0o644)
            path.write_bytes(bytes(len(neff)))
    assert c.cli("compile-cache", "pull", id_, "--to", tmp_path / "there", "-d", "gpu", code=None).code != 0
    there = tree(tmp_path / "there")
    assert not any(p.endswith(("model.neff", "model.done")) or ".part" in p for p in there), there


def test_ls_du_rm(own, caches):  # noqa: F811
    c, id_ = own, "Default/caches"
    assert c.error("compile-cache", "ls", id_) == "hub_repo_not_found"
    assert c.cli("compile-cache", "du").err.startswith("no repository")
    new(c, None)  # one that is no cache
    push(c, id_, "--from", caches, "-d", "gpu")
    empty = new(c, None, "Default")
    assert c.cli("compile-cache", "ls", empty).err.startswith("it holds no")
    rows = {r["folder"]: r for r in c.json("compile-cache", "ls", id_)}
    assert set(rows) == {"neuronxcc-2.21.33363.0+82129205", "ccache", *(f"{k}/gpu" for k in ("triton", "inductor", "vllm", "torch_extensions", "cuda"))}
    assert [(rows["inductor/gpu"][k]) for k in ("kind", "device", "entries", "files", "bytes")] == \
        ["inductor", "gpu", 2, len(INDUCTOR), sum(len(d) for p, d in in_repo("gpu").items() if p.startswith("inductor/"))]
    assert rows["neuronxcc-2.21.33363.0+82129205"]["entries"] == 1 and rows["ccache"]["device"] is None
    assert "inductor" in c.cli("compile-cache", "ls", id_).out
    # when: of each as it was changed
    time.sleep(8)
    second = time.time()
    write(caches / "triton", {"N/launcher.so": pathlib.Path("/bin/true").read_bytes()})
    push(c, id_, "--from", caches, "-d", "gpu")
    push(c, id_, "--from", caches, "-d", "other")
    later = {r["folder"]: r for r in c.json("compile-cache", "ls", id_)}
    assert later["inductor/gpu"] == rows["inductor/gpu"] and later["ccache"] == rows["ccache"]
    assert later["triton/gpu"]["changed_at"] > rows["triton/gpu"]["changed_at"] and later["inductor/other"]["changed_at"] >= later["triton/gpu"]["changed_at"]
    (du,) = c.json("compile-cache", "du")
    assert du["repository"] == id_ and du["kinds"] == "neuron, inductor, triton, vllm, torch_extensions, cuda, ccache"
    # removed
    before = held(c, id_)
    assert c.error("compile-cache", "rm", id_) == "confirmation_required"
    assert c.error("compile-cache", "rm", id_, "--kind", "rust", "--yes", code=2) == "usage"
    assert "nothing like that" in c.cli("compile-cache", "rm", id_, "--device", "none", "--yes").err
    assert "nothing like that" in c.cli("compile-cache", "rm", id_, "--older-than", "1h", "--yes").err
    between = f"{int(time.time() - second) + 5}s"  # since the pushes before the second one, whatever all that took
    c.cli("compile-cache", "rm", id_, "--older-than", between, "--kind", "triton", "--yes")
    assert set(before) - set(held(c, id_)) == {f"triton/gpu/{p}" for p in TRITON}, "not what came later"
    c.cli("compile-cache", "rm", id_, "--device", "other", "--kind", "inductor", "--kind", "vllm", "--yes")
    assert {r["folder"] for r in c.json("compile-cache", "ls", id_) if r["device"] == "other"} == {"triton/other", "torch_extensions/other", "cuda/other"}
    c.cli("compile-cache", "rm", id_, "--yes")
    assert held(c, id_) == {} and c.json("compile-cache", "ls", id_) == []


def test_set_and_defaults(own, tmp_path):  # noqa: F811
    c = own
    write(tmp_path / "cuda", {"index": "x"})
    one = ("--kind", f"cuda={tmp_path / 'cuda'}", "-d", "gpu")
    push(c, *one)
    assert list(held(c, "Default/compile-cache")) == ["cuda/gpu/index"], "that of the team, made when it was needed"
    id_, hf = new(c, None), tmp_path / "hf"
    env = {"HF_HOME": str(hf), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert c.error("compile-cache", "set", "Default/none", env=env) == "hub_repo_not_found" and not hf.exists()
    said = c.cli("compile-cache", "set", f"models/{id_}", env=env)
    assert id_ in said.err and (hf / "optimum_neuron_custom_cache").read_text() == id_
    push(c, *one, env=env)
    assert list(held(c, id_)) == ["cuda/gpu/index"]
    assert id_ in c.cli("compile-cache", "ls", env=env).err
    assert pull(c, "--to", tmp_path / "to", "-d", "gpu", env=env)["cuda"]["new"] == 1
    assert c.cli("compile-cache", "set", id_, env={**env, "CUSTOM_CACHE_REPO": "other/one"}).err.count("other/one") == 1
    for bad in ("name", "datasets/a/b", "a/b/c", "", "../x"):
        assert c.error("compile-cache", "ls", bad, code=2) == "usage", bad
    assert c.error("compile-cache", "push", id_, "--kind", "jax", "-d", "x", code=2) == "usage", "where is it?"
    assert c.error("compile-cache", "push", id_, "--kind", "cuda=/nonexistent/x", "-d", "x") == "not_found"
    assert c.error("compile-cache", "push", id_, "--from", "/tmp", "--kind", "cuda", code=2) == "usage"


def test_optimum_neuron_finds_it(own, tmp_path):  # noqa: F811
    """A cache that was pushed, in the repository that was set: the tool's own code finds its graphs, and takes them."""
    c = own
    write(tmp_path / "neuron", {**NEURON, **TORN["neuron"]})
    tools = Tools(c, "trainer", "neuron", person=None, HF_TOKEN=c.token)
    env = {"HF_HOME": str(tools.home), "XDG_CONFIG_HOME": str(tmp_path / "config"), "NEURON_COMPILE_CACHE_URL": str(tmp_path / "neuron")}
    assert push(c, "Default/neuron", "--kind", "neuron", env=env)["neuron"]["new"] == len(NEURON)
    c.cli("compile-cache", "set", "Default/neuron", env=env)
    seen = tools.python("""
        import json, os, pathlib, tempfile
        import optimum.neuron.cache.hub_cache as hub_cache
        from optimum.neuron.utils.cache_utils import get_hf_hub_cache_repo

        class Local:
            exists = staticmethod(os.path.exists)

            def __init__(self):
                self.cache_url = self.cache_path = tempfile.mkdtemp()
        hub_cache.CompileCache.__init__ = lambda self, url: None
        repo = get_hf_hub_cache_repo()
        cache = hub_cache.CompileCacheHfProxy(repo, Local(), token=os.environ["HF_TOKEN"])
        at = pathlib.Path(cache.cache_path, module)
        at.mkdir(parents=True)
        cache.download_file(f"{at}/model.neff", at / "model.neff")
        print(json.dumps([repo, cache.exists(f"{at}/model.done"), cache.exists(f"{at}/model.log"), (at / "model.neff").stat().st_size]))""", module=MODULE)
    assert seen == ["Default/neuron", True, False, len(NEURON[f"{MODULE}/model.neff"])]


def test_rights(own, tmp_path):  # noqa: F811
    """Viewers read, members write, other teams see nothing."""
    c, id_ = own, "Default/caches"
    write(tmp_path / "cuda", {"index": "x"})
    one = (id_, "--kind", f"cuda={tmp_path / 'cuda'}", "-d", "gpu")
    c.cli("teams", "create", "blue")
    member, viewer = (c.json("tokens", "create", n, "--team", "Default", "--role", r)["api_key"] for n, r in (("ann", "member"), ("vic", "viewer")))
    stranger = c.json("tokens", "create", "eve", "--team", "blue")["api_key"]
    assert c.error("compile-cache", "push", *one, token=viewer) == "denied"
    push(c, *one, token=member)
    write(tmp_path / "cuda", {"1/a": "y"})
    assert c.error("compile-cache", "push", *one, token=viewer) == "denied"
    assert c.error("compile-cache", "rm", id_, "--yes", token=viewer) == "denied"
    assert pull(c, id_, "--to", tmp_path / "to", "-d", "gpu", token=viewer)["cuda"]["new"] == 1
    for verb in (("ls",), ("pull", "--to", tmp_path / "no", "-d", "gpu"), ("rm", "--yes"), ("set",)):
        assert c.error("compile-cache", verb[0], id_, *verb[1:], token=stranger) == "hub_repo_not_found", verb
    assert c.error("compile-cache", "push", *one, token=stranger) == "denied"
    assert c.json("compile-cache", "du", token=stranger) == []
    assert list(held(c, id_)) == ["cuda/gpu/index"]


def test_many_files_in_commits(own, tmp_path):  # noqa: F811
    c = own
    write(tmp_path / "x", {f"ab/c{n}.py": str(n) for n in range(2500)})
    assert push(c, "Default/x", "--kind", f"inductor={tmp_path / 'x'}", "-d", "gpu")["inductor"]["new"] == 2500
    assert len(ask(c, "/api/models/Default/x/commits/main").json()) == 4, "of 1000 files each, and the one that made it"
    assert pull(c, "Default/x", "--to", tmp_path / "y", "-d", "gpu")["inductor"]["new"] == 2500
    assert tree(tmp_path / "y/inductor") == tree(tmp_path / "x")


def test_several_at_once(own, tmp_path):  # noqa: F811
    """No push is lost, and of what several bring, what came first stays."""
    c = own
    new(c, None)
    good(ask(c, "/api/repos/create", "POST", None, {"name": "x", "organization": "Default"}))
    for n in range(4):
        write(tmp_path / str(n), {"ab/cboth.py": str(n) * 1000, **{f"ab/c{n}x{i}.py": f"{n}" for i in range(30)}})
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(lambda n: push(c, "Default/x", "--kind", f"inductor={tmp_path / str(n)}", "-d", "gpu"), range(4)))
    assert all(r["inductor"]["new"] + r["inductor"]["there"] == 31 for r in rows)
    found = held(c, "Default/x")
    assert len(found) == 121
    history = ask(c, "/api/models/Default/x/commits/main").json()
    first = next(x["id"] for x in reversed(history) if get(c, "Default/x", "inductor/gpu/ab/cboth.py", rev=x["id"]).status == 200)
    assert found["inductor/gpu/ab/cboth.py"] == get(c, "Default/x", "inductor/gpu/ab/cboth.py", rev=first).body


@pytest.mark.skipif(not shutil.which("ninja"), reason="no ninja")
def test_an_extension_that_is_pulled_is_not_built_again(own, tmp_path):  # noqa: F811
    c, made, there = own, tmp_path / "made/torch_extensions/fast", tmp_path / "there"
    write(made, {"main.cpp": "int f(int x) { return 2 * x; }\n", "build.ninja": """rule compile
  command = g++ -MMD -MF $out.d -fPIC -c $in -o $out
  depfile = $out.d
  deps = gcc
rule link
  command = g++ -shared $in -o $out
build main.o: compile main.cpp
build fast.so: link main.o
"""})
    subprocess.run(["ninja", "-C", made], check=True, capture_output=True, timeout=CALL_S)
    for path in made.iterdir():
        os.utime(path, (1, 1))  # not young
    os.utime(made / "fast.so", (2, 2))
    push(c, "Default/x", "--from", made.parent.parent, "-d", "gpu")
    assert pull(c, "Default/x", "--to", there, "-d", "gpu")["torch_extensions"]["new"] > 3
    said = subprocess.run(["ninja", "-C", there / "torch_extensions/fast"], check=True, capture_output=True, text=True, timeout=CALL_S).stdout
    assert "no work to do" in said, said


def test_an_interrupted_pull_leaves_whole_files(own, tmp_path):  # noqa: F811
    c, there = own, tmp_path / "there/cuda"
    tree_ = {f"{n}/x": os.urandom(20_000) for n in range(600)}
    write(tmp_path / "cuda", tree_)
    push(c, "Default/x", "--kind", f"cuda={tmp_path / 'cuda'}", "-d", "gpu")
    p = subprocess.Popen([STOKER, "compile-cache", "pull", "Default/x", "--to", there.parent, "-d", "gpu"], env=c.cli_environment(), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    until(lambda: there.is_dir() and len(list(there.iterdir())) > 5, pause=0.001)
    p.send_signal(signal.SIGINT)
    assert p.wait(CALL_S) == 130
    got = tree(there)
    assert 0 < len(got) < len(tree_) and all(tree_[path] == data for path, data in got.items()), "no temporary file either"
    row = pull(c, "Default/x", "--to", there.parent, "-d", "gpu")["cuda"]
    assert (row["new"], row["there"]) == (len(tree_) - len(got), len(got)) and tree(there) == tree_


def test_files_in_a_bucket(empty_cluster, minio, tmp_path):  # noqa: F811
    """The server sends elsewhere for them, to a host that gets no token."""
    c = empty_cluster
    c.start(*flags(c, minio))
    data = {"index": os.urandom(3 << 20)}
    write(tmp_path / "cuda", data)
    push(c, "Default/x", "--kind", f"cuda={tmp_path / 'cuda'}", "-d", "gpu")
    assert get(c, "Default/x", "cuda/gpu/index").status in (200, 302)
    assert pull(c, "Default/x", "--to", tmp_path / "to", "-d", "gpu")["cuda"]["new"] == 1
    assert tree(tmp_path / "to/cuda") == data


# --- why


def harvest(job, before, entries, facts):
    return small(f".stoker/harvests/{job}-0-1.json", json.dumps({"job": job, "rank": 0, "device": "gpu", "facts": facts, "before": before, "entries": entries}).encode())


def head(c, id_):
    return ask(c, f"/api/models/{id_}").json()["sha"]


def test_why(own):  # noqa: F811
    c = own
    id_ = new(c, None, "Default")
    job = c.push(["true"])["id"]
    other = MODULE.replace("+abb26765", "+00000000")
    newer = MODULE.replace("2.21.33363.0", "2.22.0.0").replace("16398503955111834359", "7")
    older = newer.replace("2.22.0.0+82129205", "2.21.33363.0+82129205")
    stored = {f"{MODULE}/model.done": b"", f"{MODULE}/model.neff": b"x", f"{MODULE}/compile_flags.json": b'["-O1", "--model-type=transformer"]',
              f"{older}/model.done": b"", "triton/gpu/K/add.json": b'{"num_warps": 4, "triton_version": "3.4.0"}', "jax/gpu/jit_f-00-cache": b"x",
              "cuda/another/index": b"x", "inductor/gpu/fxgraph/aa/faa/x": b"x"}
    then = {"torch": "2.9.0", "jaxlib": "0.9.1", "env.XLA_FLAGS": "--a"}
    good(commit(c, id_, harvest("earlier", None, list(stored), then), *[small(p, d) for p, d in stored.items()]))
    before = head(c, id_)
    made = {f"{other}/model.done": b"", f"{other}/compile_flags.json": b'["-O2", "--model-type=transformer"]', f"{newer}/model.done": b"",
            "triton/gpu/L/add.json": b'{"num_warps": 8, "triton_version": "3.4.0"}', "jax/gpu/jit_f-11-cache": b"x", "cuda/gpu/index": b"x",
            "inductor/gpu/fxgraph/bb/fbb/x": b"x", "vllm/gpu/torch_compile_cache/0a/x": b"x"}
    now = {**then, "jaxlib": "0.10.2"}
    assert c.error("compile-cache", "why", job, "--repo", id_) == "not_found"
    good(commit(c, id_, harvest(job, before, list(made), now), *[small(p, d) for p, d in made.items()]))
    rows = {r["entry"]: (r["kind"], r["reason"], r["detail"]) for r in c.json("compile-cache", "why", job[:5], "--repo", id_)}
    assert rows[other][:2] == ("neuron", "flags") and "-O2" in rows[other][2] and "-O1" in rows[other][2] and "transformer" not in rows[other][2]
    assert rows[newer][:2] == ("neuron", "compiler version") and "2.22.0.0" in rows[newer][2] and "2.21.33363.0" in rows[newer][2]
    assert rows["L"] == ("triton", "flags", "num_warps is 8, was 4")
    assert rows["jit_f-11-cache"] == ("jax", "compiler version", "jaxlib is 0.10.2, was 0.9.1")
    assert rows["index"][:2] == ("cuda", "device") and "another" in rows["index"][2]
    assert rows["fxgraph/bb/fbb"][:2] == ("inductor", "shapes or code")
    assert rows["torch_compile_cache/0a"][:2] == ("vllm", "first")
    assert len(rows) == 7
    assert "num_warps is 8" in c.cli("compile-cache", "why", "@", "--repo", id_).out
    # the first job of all, and a history that was squashed
    first = c.push(["true"])["id"]
    good(commit(c, id_, harvest(first, None, ["ccache/3/a/0123456789abcdefghijkR"], {})))
    assert [r["reason"] for r in c.json("compile-cache", "why", first, "--repo", id_)] == ["first"]
    good(ask(c, f"/api/models/{id_}/super-squash/main", "POST", None, {}))
    assert {r["reason"] for r in c.json("compile-cache", "why", job, "--repo", id_)} == {"first"}


def test_why_of_jobs(own, tmp_path):  # noqa: F811
    """What jobs have harvested is listed, pulled and explained, for the device that this machine is."""
    c = own

    def run(name, warps):
        kernel = json.dumps({"name": "add", "num_warps": warps, "triton_version": "3.4.0"})
        group_ = f'{{"child_paths": {{"add.json": "\'$at\'/add.json", "add.ptx": "\'$at\'/add.ptx"}}}}'
        command = f"at=$TRITON_CACHE_DIR/{name}; mkdir -p $at; echo '{kernel}' > $at/add.json; echo ptx > $at/add.ptx; echo '{group_}' > $at/__grp__add.json"
        job = c.push([command], runtime={"compile_cache": {"enabled": True}})
        c.wait(job, "TRAINING_JOB_COMPLETED")
        return job["id"]

    first, second, third = run("K", 4), run("L", 8), run("L", 8)
    (row,) = c.json("compile-cache", "ls")
    assert (row["kind"], row["entries"], row["files"]) == ("triton", 2, 6)
    assert [(r["entry"], r["reason"], r["files"]) for r in c.json("compile-cache", "why", first)] == [("K", "first", 3)]
    assert [(r["entry"], r["reason"], r["detail"]) for r in c.json("compile-cache", "why", second)] == [("L", "flags", "num_warps is 8, was 4")]
    assert [(r["entry"], r["reason"]) for r in c.json("compile-cache", "why", third)] == [("L", "path")], "it did not look"
    fourth = c.push(["test -s $TRITON_CACHE_DIR/L/add.json"], runtime={"compile_cache": {"enabled": True}})
    c.wait(fourth, "TRAINING_JOB_COMPLETED")
    said = c.refusal("compile-cache", "why", fourth["id"])["error"]
    assert said["id"] == "not_found" and fourth["id"] in said["message"], "it found all that it needed"
    # what a job wrote is what a push of this machine goes beside
    there = tmp_path / "triton"
    assert pull(c, "--kind", f"triton={there}")["triton"]["device"] == row["device"]
    assert json.loads((there / "K/__grp__add.json").read_text())["child_paths"]["add.ptx"] == str(there / "K/add.ptx")
    write(there, {"M/neg.json": "{}", "M/neg.ptx": "ptx", "M/__grp__neg.json": group(there / "M", "neg.json", "neg.ptx")})
    for file in there.rglob("*"):
        age(file)
    row = push(c, "--kind", f"triton={there}")["triton"]
    assert (row["new"], row["there"]) == (3, 6) and len(c.json("compile-cache", "ls")) == 1
    c.wait(c.push(["grep -q $TRITON_CACHE_DIR/M/neg.ptx $TRITON_CACHE_DIR/M/__grp__neg.json"], runtime={"compile_cache": {"enabled": True}}), "TRAINING_JOB_COMPLETED")
