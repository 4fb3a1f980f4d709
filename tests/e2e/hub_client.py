"""The unmodified huggingface_hub, of several versions, in a home of its own."""
import json
import os
import subprocess
import tempfile
import textwrap

from conftest import CALL_S, PARTS

# What differs on the wire: requests, httpx, httpx2; the newest also without hf_xet.
VERSIONS = ("0.20", "0.36", "1.33", "2.4", "2.4 without xet")

PRELUDE = """
import hashlib, json, os, pathlib, sys
from huggingface_hub import HfApi, HfFileSystem, hf_hub_download, snapshot_download
api = HfApi()

def names(call, *a, **kw):  # of the classes of what a call raises
    try:
        call(*a, **kw)
    except Exception as e:
        return [c.__name__ for c in type(e).__mro__]
    return []

def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()

def digests(folder):
    return {str(p.relative_to(folder)): digest(p) for p in sorted(pathlib.Path(folder).rglob("*")) if p.is_file()}

def said(value):
    print("\\n" + json.dumps(value))
"""


class Client:
    """HF_HOME is a new folder for each client."""

    def __init__(self, folder, url, version, token=None):
        self.home = tempfile.mkdtemp(dir=folder, prefix="hf-")
        self.cache = os.path.join(self.home, "hub")
        number, _, without = version.partition(" ")
        newest = not (PARTS / "hub" / number).is_dir()
        self.python = PARTS / ("clients" if newest else "hub") / "bin/python"
        self.env = {k: v for k, v in os.environ.items() if not k.upper().startswith(("HF_", "HUGGING", "STOKER_", "PYTHON")) and "proxy" not in k.lower()}
        # Deadlines are against hangs, on a machine that does much else.
        self.env.update(HOME=self.home, HF_HOME=self.home, HF_ENDPOINT=url, HF_HUB_DISABLE_PROGRESS_BARS="1", HF_HUB_ETAG_TIMEOUT="60",
                        HF_HUB_DOWNLOAD_TIMEOUT="60")
        if token:
            self.env["HF_TOKEN"] = token
        if not newest:
            self.env["PYTHONPATH"] = str(PARTS / "hub" / number)
        if without:
            self.env["HF_HUB_DISABLE_XET"] = "1"

    def begin(self, code, **env):
        return subprocess.Popen([self.python, "-c", PRELUDE + textwrap.dedent(code)], env={**self.env, **env}, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def end(self, process):
        """What the code has said() last."""
        out, err = process.communicate(timeout=CALL_S)
        assert process.returncode == 0, f"exit {process.returncode}\n{out}\n{err}"
        return json.loads(out.splitlines()[-1])

    def run(self, code, **env):
        return self.end(self.begin(code, **env))
