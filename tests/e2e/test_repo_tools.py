"""Tools that are built on a Hub, unmodified: datasets, transformers, optimum-neuron and the hf command read from Stoker and write to it."""
import json
import os
import pathlib
import subprocess
import tempfile
import textwrap

import pytest
from conftest import CALL_S, CLUSTER, PARTS, new_cluster
from hub import hub_server

COMPILER = "neuronxcc-2.21.33363.0+82129205"  # optimum-neuron 0.4.5 looks for this version
OFFICIAL = "aws-neuron/optimum-neuron-cache"
PEOPLE = {"ann": ("red", "member"), "vic": ("red", "viewer"), "eve": ("blue", "member")}


def entry(name):
    return f"{COMPILER}/MODULE_{name}+d41d8cd9"


@pytest.fixture(scope="module")
def both():
    with hub_server() as hub, new_cluster() as c:
        hub.repo(OFFICIAL, {f"{entry('official')}/{name}": data for name, data in (("model.neff", b"of others"), ("model.done", b""))})
        c.start("--cpus", "4", "--memory", "4Gi", "--hub-upstream", hub.url, "--allow-source-network", "127.0.0.0/8", "--hub-regular-bytes", "100000")
        c.tokens = c.people(PEOPLE)
        yield c


@pytest.fixture
def site(both, request):
    request.node.stash[CLUSTER] = both
    return both


class Tools:
    """Programs with a home of their own, as a person who is logged in."""

    def __init__(self, c, venv, also=None, person="ann", **env):
        self.home = pathlib.Path(tempfile.mkdtemp(dir=c.folder, prefix="tools-"))
        self.bin = PARTS / venv / "bin"
        self.env = {k: v for k, v in os.environ.items() if not k.upper().startswith(("HF_", "HUGGING", "STOKER_", "PYTHON")) and "proxy" not in k.lower()}
        self.env.update(HOME=str(self.home), HF_HOME=str(self.home), HF_ENDPOINT=c.url, HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1",
                        HF_HUB_ETAG_TIMEOUT="60", HF_HUB_DOWNLOAD_TIMEOUT="60", PYTHONWARNINGS="ignore", **env)
        if person:
            self.env["HF_TOKEN"] = c.tokens[person]
        if also:
            self.env["PYTHONPATH"] = str(PARTS / "tools" / also / "site-packages")

    def run(self, *command, code=0):
        """What it writes to stdout."""
        done = subprocess.run([self.bin / command[0], *map(str, command[1:])], env=self.env, cwd=self.home, capture_output=True, text=True, timeout=CALL_S, check=False)
        assert code is None or done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout if done.returncode == 0 else done.stderr

    def python(self, code, **values):
        """What the code has printed last, as JSON."""
        given = "".join(f"{k} = {v!r}\n" for k, v in values.items())
        script = self.home / "script.py"
        script.write_text(given + textwrap.dedent(code))
        return json.loads(self.run("python", script).splitlines()[-1])


@pytest.mark.parametrize("xet", [True, False])
def test_datasets(site, xet):
    tools = Tools(site, "clients", "datasets", **({} if xet else {"HF_HUB_DISABLE_XET": "1"}))
    seen = tools.python("""
        import json
        from datasets import Dataset, DatasetDict, get_dataset_config_names, load_dataset
        from huggingface_hub import DatasetCard, HfApi, metadata_update
        from huggingface_hub.errors import HfHubHTTPError
        seen, rows = {}, 5000
        id_ = f"ann/{name}"
        made = DatasetDict({"train": Dataset.from_dict({"n": list(range(rows)), "text": [f"row {i} \\u00fc" for i in range(rows)]}),
                            "test": Dataset.from_dict({"n": [1, 2], "text": ["a", "b"]})})
        made.push_to_hub(name, private=True)
        seen["whole"] = load_dataset(id_)["train"].to_dict() == made["train"].to_dict()
        seen["streamed"] = [r["n"] for r in load_dataset(id_, split="train", streaming=True)] == list(range(rows))
        def shards():
            return sum(f.startswith("more/") for f in HfApi().list_repo_files(id_, repo_type="dataset"))
        Dataset.from_dict({"a": list(range(9))}).push_to_hub(id_, config_name="more", split="train", num_shards=4)
        seen["shards"] = [shards()]
        Dataset.from_dict({"a": list(range(5))}).push_to_hub(id_, config_name="more", split="train", num_shards=2)
        seen["shards"].append(shards())
        seen["more"] = [sorted(get_dataset_config_names(id_)), load_dataset(id_, "more", split="train")["a"][:]]
        Dataset.from_dict({"a": [1]}).push_to_hub(id_, config_name="new", revision="dev")
        seen["branch"] = load_dataset(id_, "new", split="train", revision="dev").num_rows
        metadata_update(id_, {"license": "mit"}, repo_type="dataset")
        seen["card"] = DatasetCard.load(id_).data.license
        for who, call in (("viewer", lambda: made.push_to_hub(id_, token=viewer)), ("stranger", lambda: load_dataset(id_, token=stranger, cache_dir="elsewhere"))):
            try:
                seen[who] = bool(call())
            except HfHubHTTPError as e:
                seen[who] = e.response.status_code
        print(json.dumps(seen))""", name=f"set-{xet}", viewer=site.tokens["vic"], stranger=site.tokens["eve"])
    assert seen == {"whole": True, "streamed": True, "shards": [4, 2], "more": [["default", "more"], [0, 1, 2, 3, 4]], "branch": 1, "card": "mit",
                    "viewer": 403, "stranger": 404}


def test_transformers(site):
    seen = Tools(site, "trainer", "neuron").python("""
        import json, pathlib, torch
        from huggingface_hub import HfApi
        from transformers import AutoConfig, AutoModel, BertConfig, BertModel, BertTokenizerFast

        def same(a, b):
            a, b = a.state_dict(), b.state_dict()
            return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
        seen, api = {}, HfApi()
        words = pathlib.Path("vocab.txt")
        words.write_text("[PAD] [UNK] [CLS] [SEP] [MASK] hello world".replace(" ", chr(10)))
        model = BertModel(BertConfig(vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64))
        model.push_to_hub("tiny", private=True)
        BertTokenizerFast("vocab.txt").push_to_hub("ann/tiny")
        seen["files"] = sorted(api.list_repo_files("ann/tiny"))
        seen["same"] = same(model, AutoModel.from_pretrained("ann/tiny"))
        model.push_to_hub("red/shards", max_shard_size="200KB", revision="dev")
        seen["shards"] = sum(f.startswith("model-") for f in api.list_repo_files("red/shards", revision="dev"))
        seen["same shards"] = same(model, AutoModel.from_pretrained("red/shards", revision="dev"))
        for again in range(2):
            model.save_pretrained("out", push_to_hub=True, repo_id="ann/saved")
        seen["saved"] = len(api.list_repo_commits("ann/saved"))
        try:
            AutoConfig.from_pretrained("ann/tiny", token=stranger, cache_dir="elsewhere")
        except OSError as e:
            seen["stranger"] = "is not a valid model identifier" in str(e)
        print(json.dumps(seen))""", stranger=site.tokens["eve"])
    assert seen.pop("shards") > 1
    assert seen == {"same": True, "same shards": True, "saved": 2, "stranger": True, "files": [
        ".gitattributes", "README.md", "config.json", "model.safetensors", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]}


# What a training by optimum-neuron does with its cache. All of it is the tool's own code but for the compiler: that one is closed, and
# a folder stands in for its local cache.
TRAINING = """
    import json, multiprocessing, os, pathlib, tempfile
    from huggingface_hub import HfApi
    import optimum.neuron.cache.hub_cache as hub_cache
    from optimum.neuron.utils.cache_utils import get_hf_hub_cache_repo, has_write_access_to_repo

    class Local:
        exists = staticmethod(os.path.exists)

        def __init__(self):
            self.cache_url = self.cache_path = tempfile.mkdtemp()
    hub_cache.CompileCache.__init__ = lambda self, url: None

    # ({graph: was it there?}, was the cache pushed?)
    def train(repo, token, graphs, fails=()):
        os.environ.update(CUSTOM_CACHE_REPO=repo, HF_TOKEN=token)
        cache = hub_cache.CompileCacheHfProxy(get_hf_hub_cache_repo(), Local(), token=token)
        found = {}
        for graph in graphs:
            at = pathlib.Path(cache.cache_path, compiler, f"MODULE_{graph}+d41d8cd9")
            found[graph] = cache.exists(f"{at}/model.done")
            at.mkdir(parents=True)
            if found[graph]:
                cache.download_file(f"{at}/model.neff", at / "model.neff")
                assert (at / "model.neff").read_text().startswith("of ")
                continue
            assert not cache.exists(f"{at}/model.log"), "it failed somewhere else"
            (at / "model.hlo_module.pb.lock").touch()
            if graph in fails:
                (at / "model.log").write_text("failed")
                continue
            (at / "model.neff").write_text(f"of {graph} " * 20000)
            (at / "model.done").touch()
        may = has_write_access_to_repo(repo)
        if may:
            cache.synchronize()
        return [found, may]

    def files(repo):
        return sorted(f.split("/", 1)[1] for f in HfApi(token=ann).list_repo_files(repo) if "/" in f)

    def commits(repo):
        return len(HfApi(token=ann).list_repo_commits(repo))
    own, seen = "ann/optimum-neuron-cache", {}
    seen["official"] = train(official, ann, ["official", "new"])
    seen["first"] = train(own, ann, ["a", "bad"], fails=["bad"])
    seen["files"] = files(own)
    seen["second"] = train(own, ann, ["a", "bad"])
    before = commits(own)
    train(own, ann, ["a"])
    seen["nothing new"] = commits(own) - before
    HfApi(token=ann).create_repo("red/public-cache")
    seen["viewer"] = train("red/public-cache", vic, ["x"])
    seen["member"] = train("red/public-cache", ann, ["x"])
    seen["another team"] = train("red/public-cache", eve, ["x"])
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        seen["at once"] = pool.starmap(train, [(own, ann, [f"v{i}", f"w{i}", "common"]) for i in range(workers)], chunksize=1)
    seen["all"] = [f.split("+")[0] for f in files(own) if f.endswith("model.done")]
    seen["neffs"] = sum(f.endswith("model.neff") for f in files(own))
    print(json.dumps(seen))"""


def test_neuron_cache(site):
    tools = Tools(site, "trainer", "neuron")
    named = tools.python("""
        import json, pathlib, sys
        from optimum.commands.optimum_cli import main
        named = []
        for words in (["create"], ["set", official]):
            sys.argv = ["optimum-cli", "neuron", "cache", *words]
            main()
            named.append(pathlib.Path("optimum_neuron_custom_cache").read_text())
        print(json.dumps(named))""", official=OFFICIAL)
    assert named == ["ann/optimum-neuron-cache", OFFICIAL]
    workers = 6
    seen = tools.python(TRAINING, official=OFFICIAL, compiler=COMPILER, workers=workers, **site.tokens)
    assert [pushed for _, pushed in seen.pop("at once")] == [True] * workers
    graphs = ["a", "bad", "common", *(f"{x}{i}" for x in "vw" for i in range(workers))]
    assert seen.pop("all") == sorted(f"MODULE_{g}" for g in graphs) and seen.pop("neffs") == len(graphs)
    assert seen == {
        "official": [{"official": True, "new": False}, False], "first": [{"a": False, "bad": False}, True],
        "files": ["MODULE_a+d41d8cd9/model.done", "MODULE_a+d41d8cd9/model.neff"], "second": [{"a": True, "bad": False}, True], "nothing new": 0,
        "viewer": [{"x": False}, False], "member": [{"x": False}, True], "another team": [{"x": True}, False]}


def test_the_hf_command(site):
    tools = Tools(site, "clients", person=None)

    def hf(*words, **kw):
        return tools.run("hf", *words, **kw)
    hf("auth", "login", "--token", site.tokens["ann"])
    assert json.loads(hf("auth", "whoami", "--json"))["user"] == "ann"
    folder, out = tools.home / "folder", tools.home / "out"
    (folder / "sub").mkdir(parents=True)
    (folder / "w.bin").write_bytes(os.urandom(300_000))
    (folder / "sub/a.txt").write_text("small")
    hf("repos", "create", "by-hf", "--private")
    hf("upload", "by-hf", folder)
    hf("upload", "ann/by-hf", folder / "sub/a.txt", "b.txt", "--revision", "dev")
    hf("repos", "tag", "create", "ann/by-hf", "v1")
    hf("repos", "delete-files", "ann/by-hf", "sub/*")
    hf("repos", "move", "ann/by-hf", "red/by-hf")
    hf("download", "red/by-hf", "--revision", "v1", "--local-dir", out)
    assert (out / "w.bin").read_bytes() == (folder / "w.bin").read_bytes() and (out / "sub/a.txt").read_text() == "small"
    hf("download", "ann/by-hf", "--local-dir", tools.home / "new")
    assert (tools.home / "new/w.bin").exists() and not (tools.home / "new/sub").exists()
    hf("repos", "delete", "red/by-hf", "--yes")
    assert "not found" in hf("download", "red/by-hf", code=1)
