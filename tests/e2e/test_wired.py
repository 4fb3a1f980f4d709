"""Jobs talk to the server's Hub by themselves: with a token of their own, and with weights that are a cache of huggingface_hub."""
import json
import pathlib
import subprocess
import textwrap
import time

import pytest
from conftest import CALL_S, CLUSTER, PARTS, STOKER, new_cluster, until
from hub import hub_server
from hub_client import PRELUDE, VERSIONS

PEOPLE = {"ann": ("red", "member"), "zed": ("red", "member"), "chief": ("red", "admin"), "eve": ("blue", "member")}
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
TINY = "org/tiny"
SHARED = [PARTS / "hub", PARTS / "clients", PARTS / "trainer"]
FLAGS = ["--cpus", "8", "--memory", "16Gi", "--hub-ttl", "1s", "--allow-source-network", "127.0.0.0/8", *(x for path in SHARED for x in ("--share", str(path)))]


@pytest.fixture(scope="module")
def both():
    with hub_server() as hub, new_cluster() as c:
        hub.repo(MODEL, {str(p.relative_to(PARTS / "model")): p.read_bytes() for p in (PARTS / "model").rglob("*") if p.is_file()})
        hub.repo(TINY, {"config.json": b"{}", "deep/er/data.bin": b"x" * 100_000, "more/notes.txt": b"notes", "empty": b""})
        c.start(*FLAGS, "--hub-upstream", hub.url, "--hf-endpoint", hub.url)
        c.tokens = c.people(PEOPLE)
        yield c, hub


@pytest.fixture
def site(both, request):
    request.node.stash[CLUSTER] = both[0]
    return both[0]


def program(version="2.4"):
    """How a job calls Python with this version of huggingface_hub."""
    number, _, without = version.partition(" ")
    newest = not (PARTS / "hub" / number).is_dir()
    env = [] if newest else [f"PYTHONPATH={PARTS / 'hub' / number}"]
    env += ["HF_HUB_DISABLE_XET=1"] if without else []
    return " ".join(["env", *env, "HF_HUB_DISABLE_PROGRESS_BARS=1", "PYTHONDONTWRITEBYTECODE=1", str(PARTS / ("clients" if newest else "hub") / "bin/python")])


def push(c, code, person="ann", version="2.4", flags=(), **job):
    """A job that runs Python; beside it `said(value)` is what it answers."""
    files = {"main.py": PRELUDE + textwrap.dedent(code), **job.pop("files", {})}
    folder = c.job_folder([f"{program(version)} main.py"], project=f"red/{person}", files=files, **job)
    return json.loads(c.cli("push", folder / "train.yaml", *flags, "-o", "json", env={"STOKER_TOKEN": c.tokens[person]}).out)


def refused(c, person="ann", **job):
    folder = c.job_folder(["true"], project="red/p", **job)
    return c.refusal("push", folder / "train.yaml", env={"STOKER_TOKEN": c.tokens[person]})


def answer(c, job, status="TRAINING_JOB_COMPLETED"):
    c.wait(job, status)
    lines = [x for x in c.user_lines(job) if x.startswith(("{", "[", '"'))]
    assert lines, c.logs(job)
    return json.loads(lines[-1])


def client(c, code, person="ann", **env):
    from hub_client import Client

    return Client(c.folder, c.url, "2.4", c.tokens[person]).run(textwrap.dedent(code), **env)


# --- the token


def test_what_a_job_may_do(site):
    client(site, """
        for name, private in (("ann/mine", True), ("ann/other", True), ("red/ours", True), ("red/results", True)):
            api.create_repo(name, private=private)
            api.upload_file(repo_id=name, path_or_fileobj=name.encode(), path_in_repo="x.txt")
        said("done")
    """)
    client(site, """
        api.create_repo("zed/secret", private=True)
        api.create_repo("zed/open")
        said("done")
    """, person="zed")
    client(site, """said(api.create_repo("blue/theirs", private=True).repo_id)""", person="eve")
    job = push(site, """
        import urllib.request
        def http(path, method="GET", **headers):
            rq = urllib.request.Request(os.environ["HF_ENDPOINT"] + path, method=method, headers={"Authorization": "Bearer " + os.environ["HF_TOKEN"], **headers})
            try:
                return urllib.request.urlopen(rq).status
            except urllib.error.HTTPError as e:
                return e.code
        print("token", os.environ["HF_TOKEN"])
        out = {"me": api.whoami()["name"]}
        out["reads"] = {name: pathlib.Path(hf_hub_download(name, "x.txt")).read_text() for name in ("ann/mine", "red/ours", "red/results")}
        for name in ("ann/other", "zed/secret", "blue/theirs"):
            out[name] = names(hf_hub_download, name, "x.txt")
        out["listed"] = sorted(m.id for m in api.list_models())
        api.upload_file(repo_id="ann/mine", path_or_fileobj=b"new", path_in_repo="new.txt")
        api.create_repo("results", exist_ok=False, repo_type="dataset")
        api.upload_file(repo_id="ann/results", repo_type="dataset", path_or_fileobj=b"y" * 200_000, path_in_repo="big.bin")
        api.create_branch("red/results", branch="b")
        api.create_tag("red/results", tag="v1")
        for name, call in {
            "push": lambda: api.upload_file(repo_id="red/ours", path_or_fileobj=b"no", path_in_repo="no"),
            "push to open": lambda: api.upload_file(repo_id="zed/open", path_or_fileobj=b"no", path_in_repo="no"),
            "create": lambda: api.create_repo("ann/new"),
            "create in team": lambda: api.create_repo("red/new"),
            "create elsewhere": lambda: api.create_repo("zed/new"),
            "delete": lambda: api.delete_repo("ann/mine"),
            "move": lambda: api.move_repo("ann/mine", "ann/moved"),
            "settings": lambda: api.update_repo_settings("ann/mine", private=False),
            "squash": lambda: api.super_squash_history("ann/mine"),
        }.items():
            try:
                call()
                out[name] = "done"
            except Exception as e:
                out[name] = getattr(getattr(e, "response", None), "status_code", str(e))
        out["elsewhere"] = {path: http(path) for path in ("/v1/training_projects", "/v1/users/me", "/v1/secrets", "/metrics", "/s3/stoker/", "/v1/runner/claim")}
        out["token"] = [os.environ["HF_TOKEN"][:20], os.environ["HF_TOKEN"][20:]]
        said(out)
    """, runtime={"hub": {"push": ["mine", "datasets/results", "red/results"]}})
    out = answer(site, job)
    assert out["me"] == "ann"
    assert out["reads"] == {name: name for name in ("ann/mine", "red/ours", "red/results")}
    for name in ("ann/other", "zed/secret", "blue/theirs"):
        assert "RepositoryNotFoundError" in out[name], (name, out)
    assert {"ann/mine", "red/ours", "zed/open"} <= set(out["listed"]) and not {"ann/other", "zed/secret", "blue/theirs"} & set(out["listed"])
    for name in ("push", "push to open", "create", "create in team", "create elsewhere", "delete", "move", "settings", "squash"):
        assert out[name] == 403, (name, out)
    assert all(code in (401, 403, 404, 405) for code in out["elsewhere"].values()) and out["elsewhere"]["/v1/users/me"] == 403, out
    assert client(site, """said([sorted(api.list_repo_files("ann/mine")), sorted(api.list_repo_files("ann/results", repo_type="dataset"))])""") == [
        [".gitattributes", "new.txt", "x.txt"], [".gitattributes", "big.bin"]]
    # it is in no log and no row, and dies with the job
    assert "stokerjob_" in out["token"][0] and "".join(out["token"]) not in site.logs(job) and "token [redacted]" in site.logs(job)
    token = "".join(out["token"])
    assert token.startswith("stokerjob_")
    assert site.api("GET", "/api/models/ann/mine", token=token)[0] == 401
    assert token.encode() not in (site.data / "stoker.db").read_bytes() + (site.data / "stoker.db-wal").read_bytes()


def test_a_token_that_is_forged(site):
    job = push(site, """
        import time
        said(os.environ["HF_TOKEN"][:-2] + "|" + os.environ["HF_TOKEN"][-2:])
        while not os.path.exists("stop"):
            time.sleep(0.1)
    """)
    until(lambda: any("|" in x for x in site.user_lines(job)), 60)
    first, last = json.loads(next(x for x in site.user_lines(job) if "|" in x)).split("|")
    other = "00" if last != "00" else "11"
    assert site.api("GET", "/api/whoami-v2", token=first + last)[0] == 200
    for bad in (first + other, first, first + last + "0", "stokerjob_", "stokerjob__", "stokerjob_" + job["id"] + "_" + "0" * 64, first.upper() + last):
        assert site.api("GET", "/api/whoami-v2", token=bad)[0] == 401, bad
    # of an attempt whose job is stopped
    site.cli("stop", job["id"], "--now")
    site.wait(job)
    assert site.api("GET", "/api/whoami-v2", token=first + last)[0] == 401


def test_a_job_with_a_hub_of_its_own(site):
    job = push(site, """said([os.environ.get(x) for x in ("HF_ENDPOINT", "HF_TOKEN")])""", runtime={"environment_variables": {"HF_TOKEN": "hf_mine"}})
    assert answer(site, job) == [None, "hf_mine"]
    assert "HF_TOKEN is set by the job, so HF_ENDPOINT is not set to this server's Hub" in site.logs(job)
    job = push(site, """said([os.environ.get(x) for x in ("HF_ENDPOINT", "HF_TOKEN")])""", runtime={"environment_variables": {"HF_ENDPOINT": "https://huggingface.co"}})
    assert answer(site, job) == ["https://huggingface.co", None]


def test_what_a_file_may_name(site):
    client(site, """said([api.create_repo("zed/named", private=True).repo_id, api.create_repo("zed/seen").repo_id])""", person="zed")
    for names, words in ((["zed/named"], "runtime.hub.push[0]: token"), (["x", "zed/none"], "not in zed"), (["blue/x"], "blue is another team"), (["zed/seen"], "may not write to zed/seen"),
                         (["a/b/c"], "is no repository"), ([""], "is empty"), (["datasets/"], "is no repository"), ([1], "should be text"), ("x", "should be a list")):
        assert words in json.dumps(refused(site, runtime={"hub": {"push": names}})), names
    long = {"STOKER_TOKEN": site.json("tokens", "create", "a" * 200, "--team", "red", "--role", "member")["api_key"]}  # no namespace is called so
    folder = site.job_folder(["true"], project="red/p", runtime={"hub": {"push": ["results"]}})
    assert "write OWNER/NAME" in json.dumps(site.refusal("push", folder / "train.yaml", env=long))
    unseen, absent = (refused(site, runtime={"hub": {"push": [f"zed/{name}"]}})["error"] for name in ("named", "absent"))
    assert unseen == absent  # what is private is not told
    assert "leave one of them out" in json.dumps(refused(site, runtime={"hub": {"push": ["x"]}, "environment_variables": {"HF_TOKEN": "x"}}))
    assert site.push(["true"], project="red/p", runtime={"hub": {"push": ["zed/named", "red/x"]}})["id"]  # an administrator


def test_a_proxy_is_not_asked_for_the_hub(site):
    for given, seen in ((("a.example", ""), ["a.example,127.0.0.1", "127.0.0.1"]), (("", ""), ["127.0.0.1", "127.0.0.1"]), (("b, 127.0.0.1", "127.0.0.1"), ["b, 127.0.0.1", "127.0.0.1"]),
                        (("*", "*"), ["*", "*"])):
        job = push(site, """said([api.whoami()["name"], os.environ.get("NO_PROXY"), os.environ.get("no_proxy")])""",
                   runtime={"environment_variables": {"http_proxy": "http://127.0.0.1:1", "NO_PROXY": given[0], "no_proxy": given[1]}})
        assert answer(site, job) == ["ann", *seen]


@pytest.mark.parametrize("version", ["0.20", "2.4"])  # by requests, by httpx
def test_a_server_with_a_certificate_of_its_own(empty_cluster, certificate, version):
    c = empty_cluster
    c.start(*FLAGS, "--hub-upstream", "off")
    folder = c.job_folder([f"{program(version)} main.py", "grep -c BEGIN $SSL_CERT_FILE"], files={"main.py": PRELUDE + "said([api.whoami()['name'], os.environ['HF_ENDPOINT']])"})
    c.stop()
    c.launch([STOKER, "server", "--data", str(c.data), "--listen", f"0.0.0.0:{c.port}", "--tls-cert", certificate[0], "--tls-key", certificate[1],
              "--base-url", f"https://localhost:{c.port}", *FLAGS])
    env = c.environment(STOKER_URL=f"https://localhost:{c.port}", STOKER_TOKEN=c.token, STOKER_CA_FILE=certificate[0])
    done = subprocess.run([STOKER, "push", "-f", str(folder / "train.yaml")], env=env, capture_output=True, text=True, timeout=CALL_S, check=False)
    assert done.returncode == 0, done
    assert json.dumps(["admin", f"https://localhost:{c.port}"]) in done.stdout
    assert int(done.stdout.splitlines()[[x.isdigit() for x in done.stdout.splitlines()].index(True)]) > 50  # the machine's authorities, too
    subprocess.run([STOKER, "stop", "--all", "--now", "-y"], env=env, capture_output=True, timeout=CALL_S, check=False)
    c.stop()


# --- weights as a cache


@pytest.mark.parametrize("version", VERSIONS)
def test_weights_in_a_cache(site, both, version):
    hub = both[1]
    name = f"org/cached-{VERSIONS.index(version)}"
    repo = hub.repo(name, {"config.json": b"{}", "deep/er/data.bin": b"x" * 100_000, "more/notes.txt": b"notes", "empty": b""})
    offline = f"""
        from huggingface_hub import constants, scan_cache_dir
        said({{"cache": constants.HF_HUB_CACHE, "offline": digests(snapshot_download("{name}")), "file": digest(hf_hub_download("{name}", "deep/er/data.bin")),
              "missing": names(hf_hub_download, "{name}", "more/notes.txt"), "scan": sorted(r.repo_id for r in scan_cache_dir().repos)}})
    """
    online = f"""print("online", pathlib.Path(hf_hub_download("{name}", "more/notes.txt")).read_text(), snapshot_download("{name}").rsplit("/")[-1])"""
    folder = site.job_folder([f"HF_HUB_OFFLINE=1 {program(version)} offline.py", f"{program(version)} online.py",
                              "while [ ! -e /mnt/bt-scratch/go ]; do sleep 0.1; done", f"{program(version)} online.py"], project="red/p",
                             files={"offline.py": PRELUDE + textwrap.dedent(offline), "online.py": PRELUDE + online},
                             weights=[{"source": f"hf://{name}", "layout": "hub", "ignore_patterns": ["more/**"]}])
    job = json.loads(site.cli("push", folder / "train.yaml", "-o", "json").out)
    first = repo.refs["main"]
    until(lambda: any(x.startswith("online") for x in site.user_lines(job)), 120)
    out = json.loads(next(x for x in site.user_lines(job) if x.startswith("{")))
    files = repo.commits[first].files
    assert out["cache"] == "/opt/stoker/hub" and out["scan"] == [name]
    assert out["offline"] == {path: f.sha256 for path, f in files.items() if not path.startswith("more/")}
    assert out["file"] == files["deep/er/data.bin"].sha256 and "LocalEntryNotFoundError" in out["missing"]
    assert f"online notes {first}" in site.logs(job)
    second = repo.commit({**files, "more/notes.txt": b"others"})
    time.sleep(1.5)  # --hub-ttl
    site.cli("exec", job["id"], "--", "touch", "/mnt/bt-scratch/go")
    site.wait(job, "TRAINING_JOB_COMPLETED")
    assert f"online others {second}" in site.logs(job)


LYING = """
#include <fcntl.h>
#include <stdarg.h>
#include <sys/file.h>
#include <unistd.h>
/* As on file systems where everybody gets the lock that he asks for. */
int flock(int fd, int how) { (void)fd; (void)how; return (int)write(2, "LOCK\\n", 5) * 0; }
int lockf(int fd, int how, off_t n) { (void)fd; (void)how; (void)n; return (int)write(2, "LOCK\\n", 5) * 0; }
"""


def test_sixteen_processes_offline(site, both):
    """The real model, by name, and no lock is asked for: they would not help."""
    code = """
        import json, os, subprocess, sys
        code = "from transformers import AutoModel, AutoTokenizer; import torch; torch.set_num_threads(1); n = '%s'; m = AutoModel.from_pretrained(n); t = AutoTokenizer.from_pretrained(n); print(sum(p.numel() for p in m.parameters()), len(t('a b c').input_ids))"
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "LD_PRELOAD": "/mnt/bt-scratch/lying.so"}
        all = [subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(16)]
        said = [p.communicate() for p in all]
        print(json.dumps([[p.returncode, *map(int, out.split()), err.count("LOCK")] for p, (out, err) in zip(all, said)]))
    """.replace("%s", MODEL)
    folder = site.job_folder(["cc -shared -fPIC -o /mnt/bt-scratch/lying.so lying.c", f"HF_HUB_DISABLE_PROGRESS_BARS=1 {PARTS}/trainer/bin/python main.py",
                              "find $HF_HUB_CACHE -name '*.lock' | wc -l"], project="red/p",
                             files={"main.py": textwrap.dedent(code), "lying.c": LYING},
                             weights=[{"source": f"hf://{MODEL}@main", "layout": "hub"}, {"source": f"hf://{TINY}", "layout": "hub"}],
                             compute={"cpu_count": 2, "memory": "12Gi"})
    job = json.loads(site.cli("push", folder / "train.yaml", "-o", "json").out)
    out = answer(site, job)
    assert out == [[0, *out[0][1:]]] * 16 and out[0][1] > 20_000_000 and out[0][-1] == 0, site.logs(job)
    assert site.user_lines(job)[-1] == "0"


def test_layouts_that_cannot_be(site, both):
    good = {"source": f"hf://{TINY}", "layout": "hub"}
    for weights, words in (
        ([{**good, "layout": "x"}], 'should be \\"files\\" or \\"hub\\"'),
        ([{"source": "s3://bucket/x", "layout": "hub"}], "which is for sources that begin with hf://"),
        ([{**good, "source": f"hf://{TINY}/deep"}], "should have the form hf://owner/repo"),
        ([good, {**good, "source": f"hf://{MODEL}", "mount_location": "/elsewhere"}], "all weights with layout hub share one folder"),
        ([good, good], "is also weights[0]"),
        ([{**good, "mount_location": "/opt/x"}, {"source": f"hf://{TINY}", "mount_location": "/opt/x/y"}], "clashes with"),
        ([{"source": f"hf://{TINY}"}], "is missing"),
    ):
        assert words in json.dumps(refused(site, weights=weights)), weights


# --- over TLS


def test_a_job_trusts_the_server(empty_cluster, certificate):
    """A file may have the certificate and its key together: jobs see the certificate alone."""
    c = empty_cluster
    both = c.folder / "both.pem"
    both.write_text("".join(pathlib.Path(x).read_text() for x in reversed(certificate)))
    c.start(*FLAGS, "--hub-upstream", "off")
    c.stop()
    url = f"https://localhost:{c.port}"
    c.launch([STOKER, "server", "--data", str(c.data), "--listen", f"127.0.0.1:{c.port}", "--base-url", url, "--tls-cert", str(both), "--tls-key", str(both), *FLAGS, "--hub-upstream", "off"])
    env = {"STOKER_URL": url, "STOKER_CA_FILE": certificate[0]}
    folder = c.job_folder([f"{program()} main.py", "grep -c 'PRIVATE KEY' $SSL_CERT_FILE; tail -n 1 $SSL_CERT_FILE"], files={"main.py": PRELUDE + 'said(api.whoami()["name"])\n'})
    job = json.loads(c.cli("push", folder / "train.yaml", "-o", "json", env=env).out)
    until(lambda: json.loads(c.cli("view", job["id"], "-o", "json", env=env).out)["current_status"] == "TRAINING_JOB_COMPLETED")
    lines = c.cli("logs", job["id"], env=env).out.splitlines()
    assert {'"admin"', "0", "-----END CERTIFICATE-----"} <= {x.split(": ")[-1] for x in lines}, lines
    c.stop()  # the helpers of a cluster know no certificates
