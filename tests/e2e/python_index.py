"""A package index of our own: wheels and source packages that a test made, who asked for what, and gates that hold a build up.

/simple/NAME/ lists a project's files, /files/FILE serves one, /mark/WORD counts, /gate/WORD answers when it is opened.
"""
import base64
import collections
import contextlib
import hashlib
import http.server
import io
import re
import tarfile
import threading
import zipfile

from conftest import CALL_S


def wheel(name, version, files=None, requires=()):
    """(file name, bytes) of a pure wheel whose module of the same name has a `version`."""
    info = f"{name}-{version}.dist-info"
    content = {f"{name}.py": f"version = {version!r}\n", **(files or {}),
               f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
                                   + "".join(f"Requires-Dist: {r}\n" for r in requires),
               f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for path, text in content.items():
            z.writestr(path, text)
        z.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in [*content, f"{info}/RECORD"]))
    return f"{name}-{version}-py3-none-any.whl", out.getvalue()


BACKEND = """
import base64, os, zipfile
NAME, VERSION, FILES, WHEEL = {name!r}, {version!r}, {{}}, {wheel!r}

def build():
{code}

def get_requires_for_build_wheel(config_settings=None):
    return []

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    FILES.update(build() or {{}})
    path = os.path.join(wheel_directory, f"{{NAME}}-{{VERSION}}-py3-none-any.whl")
    with open(path, "wb") as f:
        f.write(base64.b64decode(WHEEL))
    with zipfile.ZipFile(path, "a") as z:
        for name, text in FILES.items():
            z.writestr(name, text)
    return os.path.basename(path)
"""


def source(name, version, code):
    """(file name, bytes) of a source package. Building it runs `code`, the body of a function that may return more files for the wheel."""
    import base64
    body = "\n".join("    " + line for line in code.strip().splitlines())
    backend = BACKEND.format(name=name, version=version, code=body, wheel=base64.b64encode(wheel(name, version)[1]).decode())
    files = {"PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
             "pyproject.toml": f'[project]\nname = "{name}"\nversion = "{version}"\n'
                               '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
             "backend.py": backend}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as t:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{path}")
            entry.size = len(text.encode())
            t.addfile(entry, io.BytesIO(text.encode()))
    return f"{name}-{version}.tar.gz", out.getvalue()


class Index:
    def __init__(self, *packages, password=None):
        self.files = dict(packages)
        self.hits = collections.Counter()
        self.gates = collections.defaultdict(threading.Event)
        index, want = self, None
        if password:
            want = "Basic " + base64.b64encode(password.encode()).decode()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, status, body=b"", kind="text/html", **more):
                self.send_response(status)
                for key, value in {"Content-Type": kind, "Content-Length": str(len(body)), **more}.items():
                    self.send_header(key.replace("_", "-"), value)
                self.end_headers()
                with contextlib.suppress(BrokenPipeError):
                    self.wfile.write(body if self.command == "GET" else b"")

            def do_GET(self):
                if want and self.headers.get("Authorization") != want:
                    return self.answer(401, WWW_Authenticate='Basic realm="test"')
                what, _, name = self.path.strip("/").partition("/")
                index.hits[f"{what} {name}"] += 1
                if what == "simple":
                    found = [f for f in index.files if re.match(rf"{re.escape(name.replace('-', '_'))}-\d", f)]
                    links = "".join(f'<a href="/files/{f}#sha256={hashlib.sha256(index.files[f]).hexdigest()}">{f}</a><br>' for f in found)
                    return self.answer(200 if found else 404, f"<!DOCTYPE html><html><body>{links}</body></html>".encode())
                if what == "files" and name in index.files:
                    # as large registries do: what has a version never changes
                    return self.answer(200, index.files[name], "application/octet-stream", Cache_Control="max-age=31536000, immutable")
                if what == "gate":
                    index.gates[name].wait(CALL_S)
                self.answer(200 if what in ("mark", "gate") else 404)

            do_HEAD = do_GET

            def log_message(self, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

        self.server = Server(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_port}"
        self.base = f"http://{self.host}"
        self.url = f"{self.base}/simple"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def with_password(self, password):
        return f"http://{password}@{self.host}/simple"

    def call(self, word):
        """Python that asks for /WORD."""
        return f"import urllib.request; urllib.request.urlopen({self.base!r} + {'/' + word!r}).read()"

    def downloads(self, name):
        return sum(n for what, n in self.hits.items() if what.startswith(f"files {name}-"))

    def close(self):
        for gate in self.gates.values():
            gate.set()
        self.server.shutdown()
        self.server.server_close()
