"""A Hub of our own, as mirrors and clients see the real one: repositories with commits and branches, large files behind signed
addresses of another host, private and gated ones, and Xet hints wherever the real one gives them. It fails as it is told.

Routes: /api/whoami-v2, /api/{models,datasets,spaces}/ID[/revision/REV | /tree/REV[/PATH] | /paths-info/REV | /refs | /auth-check]
and /[datasets/ | spaces/]ID/resolve/REV/PATH; on the second address, which plays the storage host, /cdn/ID/PATH?Signature=...
"""
import contextlib
import hashlib
import json
import os
import re
import socket
import struct
import threading
import time
import urllib.parse

import web
from conftest import CALL_S, held_port

LFS_MIN = 64 << 10  # files from this size on are kept by Git-LFS, so redirected and known by SHA-256
CHUNK = 256 << 10
PREFIX = {"models": "", "datasets": "datasets/", "spaces": "spaces/"}
SHOWN = ("README.md", ".gitattributes")  # of a gated repository, too: who reads the terms has not accepted them
XET_ROUTE = "/api/models/xet/xet-read-token/main"


def git_id(kind, data):
    return hashlib.sha1(b"%s %d\0" % (kind, len(data)) + data).hexdigest()


class File:
    def __init__(self, data):
        self.data, self.size, self.lfs = data, len(data), len(data) >= LFS_MIN
        self.sha256 = hashlib.sha256(data).hexdigest()
        self.pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {self.size}\n".encode()
        self.oid = git_id(b"blob", self.pointer if self.lfs else data)
        self.etag = self.sha256 if self.lfs else self.oid
        self.xet = hashlib.sha256(b"xet" + self.sha256.encode()).hexdigest()


def git_trees(files):
    """{folder: id} as git has them; the root is ""."""
    inside = {"": {}}  # folder -> {name in it: (what git sorts by, mode, id)}
    for path, f in files.items():
        folder, _, name = path.rpartition("/")
        inside.setdefault(folder, {})[name] = (name, b"100644", f.oid)
        while folder:
            folder = folder.rpartition("/")[0]
            inside.setdefault(folder, {})
    ids = {}
    for folder in sorted(inside, key=lambda x: (-x.count("/") if x else 1, x)):
        rows = sorted(inside[folder].items(), key=lambda row: row[1][0].encode())
        ids[folder] = git_id(b"tree", b"".join(b"%s %s\0" % (mode, name.encode()) + bytes.fromhex(oid) for name, (_, mode, oid) in rows))
        if folder:
            above, _, name = folder.rpartition("/")
            inside[above][name] = (name + "/", b"40000", ids[folder])
    return ids


class Commit:
    def __init__(self, repo, files, number):
        self.files = files
        self.folders = git_trees(files)
        self.sha = git_id(b"commit", f"{repo.type} {repo.id} {number} {self.folders['']}".encode())
        self.date = f"2026-08-{20 + number % 8:02d}T13:44:43.000Z"


class Repo:
    def __init__(self, type_, id_, readers=None, granted=None):
        self.type, self.id = type_, id_
        self.readers = readers  # tokens that may see it; None: it is public
        self.granted = granted  # tokens whose accounts have accepted its terms; None: it has none
        self.commits, self.refs, self.tags = {}, {}, {}

    def commit(self, files, ref="main"):
        """The files of a branch from now on; returns the commit's id."""
        made = Commit(self, {path: data if isinstance(data, File) else File(data) for path, data in files.items()}, len(self.commits))
        self.commits[made.sha] = made
        self.refs[ref] = made.sha
        return made.sha

    def at(self, rev):
        return self.commits.get(self.refs.get(rev) or self.tags.get(rev) or rev)


class Fault:
    """What goes wrong with requests of one kind: info, tree, paths, refs, auth, head, get, cdn, or `api` for the first five.

    status=CODE, headers={...}   answers so            reset=True      closes with RST
    cut=N       closes after N bytes of a body         hold=K          no byte from K on, or no answer, until `go` is set
    corrupt=K   the byte at K of the file is another   length=K        says that so many bytes more, or less, come
    etag=TEXT   another one                            redirect=URL    is to be asked there
    slow=RATE   bytes a second                         garbage=True    a page that is no answer
    whole=True  all of the file, whatever range is asked for
    """
    API = ("info", "tree", "paths", "refs", "auth")

    def __init__(self, where, path="", times=None, **what):
        self.where, self.path, self.times, self.what = where, path, times, what
        self.hits = 0
        self.go = threading.Event()
        self.reached = threading.Event()  # it has struck

    def holds(self, kind, path):
        return (kind == self.where or self.where == "api" and kind in self.API) and self.path in path


class Hub:
    def __init__(self):
        self.lock = threading.Lock()
        self.repos, self.renamed, self.tokens, self.faults = {}, {}, set(), []
        self.page = 1000
        self.xet = True
        self.redirects = True  # large files are at the storage host
        self.auth_check = True  # it has that route
        self.signature_uses = None  # a signed address works so often
        self.signatures = {}
        self.requests = []
        self.connections = set()
        self.hosts = [(address, held_port(address)) for address in ("127.0.0.1", "127.0.0.2")]
        self.url, self.cdn = (f"http://{address}:{port}" for address, port in self.hosts)
        self.servers = []
        self.up()

    # --- what a test says

    def repo(self, id_, files=None, type_="models", **kw):
        made = self.repos[type_, id_.lower()] = Repo(type_, id_, **kw)
        if files is not None:
            made.commit(files)
        return made

    @contextlib.contextmanager
    def fault(self, where, **kw):
        f = Fault(where, **kw)
        self.faults.append(f)
        try:
            yield f
        finally:
            self.faults.remove(f)
            f.go.set()

    def up(self):
        hub = self

        class Handler(HubHandler):
            pass

        Handler.hub = hub
        for host in self.hosts:
            server = web.Server(host, Handler)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
            self.servers.append(server)

    def down(self):
        """As when the whole host is gone: what is under way breaks off, and nobody listens."""
        for server in self.servers:
            server.shutdown()
            server.server_close()
        self.servers.clear()
        with self.lock:
            for connection in self.connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def close(self):
        for f in self.faults:
            f.go.set()
        if self.servers:
            self.down()

    # --- what a test asks

    def forget(self):
        with self.lock:
            self.requests.clear()

    def asked(self, *kinds, path=""):
        with self.lock:
            return [r for r in self.requests if (not kinds or r["kind"] in kinds) and path in r["path"]]

    def sent(self, path=""):
        """Bytes of files."""
        return sum(r["bytes"] for r in self.asked("get", "cdn", path=path))

    def leaks(self):
        """Requests that brought a token to the storage host."""
        return [r for r in self.asked() if r["host"] == self.hosts[1] and r["token"]]


class HubHandler(web.Handler):
    disable_nagle_algorithm = True
    hub = None

    def setup(self):
        super().setup()
        with self.hub.lock:
            self.hub.connections.add(self.connection)

    def finish(self):
        with self.hub.lock:
            self.hub.connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    # --- answers

    def refuse(self, status, code, text, headers=()):
        headers = [*headers, ("X-Error-Message", text), ("X-Request-Id", "Root=1-hub")]
        self.answer(status, {"error": text}, [*headers, ("X-Error-Code", code)] if code else headers)

    def hang_up(self, rst=False):
        self.close_connection = True
        if rst:  # closed for good, with unsent data thrown away: the other end sees a reset
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())
        else:
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def begin(self, kind):
        """Counts the request, and finds the faults that hold for it; True when one has answered."""
        given = self.headers.get("Authorization", "")
        self.token = given.removeprefix("Bearer ") or None
        self.record = {"method": self.command, "kind": kind, "path": urllib.parse.unquote(urllib.parse.urlsplit(self.path).path),
                       "range": self.headers.get("Range"), "token": self.token, "host": self.server.server_address, "bytes": 0}
        with self.hub.lock:
            self.hub.requests.append(self.record)
            self.fault = next((f for f in self.hub.faults if f.holds(kind, self.record["path"]) and (f.times is None or f.hits < f.times)), None)
            if self.fault:
                self.fault.hits += 1
        what = self.what = self.fault.what if self.fault else {}
        if "hold" in what and kind in (*Fault.API, "head"):
            self.fault.reached.set()
            self.fault.go.wait(CALL_S)
            self.hang_up()
            return True
        if "reset" in what:
            self.hang_up(rst=True)
        elif "status" in what:
            self.answer(what["status"], {"error": "as you wished"}, list(what.get("headers", {}).items()))
        elif "redirect" in what:
            self.answer(302, b"", [("Location", what["redirect"])])
        elif "garbage" in what:
            self.answer(200, b"<html>welcome</html>", [("Content-Type", "text/html")])
        else:
            return False
        self.fault.reached.set()
        return True

    def send_file(self, f, headers, etag):
        size = f.size
        first, last, status = 0, size - 1, 200
        asked = re.fullmatch(r"bytes=(?:(\d+)-(\d*)|-(\d+))", self.headers.get("Range", ""))
        if asked and "whole" not in self.what and self.command == "GET" and not (asked[2] and int(asked[2]) < int(asked[1])):
            first = int(asked[1]) if asked[1] else max(0, size - int(asked[3]))
            last = min(int(asked[2]), size - 1) if asked[2] else size - 1
            status = 206
            if first >= size:
                self.answer(416, b"", [("Content-Range", f"bytes */{size}")])
                return
        self.send_response(status)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{self.what.get("etag", etag)}"')
        self.send_header("Content-Length", str(last + 1 - first + self.what.get("length", 0)))
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        for header in headers:
            self.send_header(*header)
        self.end_headers()
        if self.command == "GET":
            self.send_bytes(f, first, last + 1)

    def send_bytes(self, f, at, end):
        what, first, rate = self.what, at, self.what.get("slow")
        cut, hold = what.get("cut"), what.get("hold")
        end += min(0, what.get("length", 0))
        while at < end:
            n = min(end - at, CHUNK if rate is None else max(1, rate // 20))
            if cut is not None:
                n = min(n, first + cut - at)
                if n == 0:
                    self.fault.reached.set()
                    self.hang_up()
                    return
            if hold is not None and not self.fault.go.is_set():
                if at >= hold:
                    self.fault.reached.set()
                    self.fault.go.wait(CALL_S)
                else:
                    n = min(n, hold - at)
            block = memoryview(f.data)[at:at + n]
            bad = what.get("corrupt")
            if bad is not None and at <= bad < at + n:
                block = bytearray(block)
                block[bad - at] ^= 0xff
                self.fault.reached.set()
            with self.hub.lock:  # before it goes: who has the last byte may ask for the numbers
                self.record["bytes"] += n
            try:
                self.wfile.write(block)
            except OSError:
                self.close_connection = True
                return
            at += n
            if rate:
                time.sleep(n / rate)
        if what.get("length", 0) > 0:
            self.hang_up()

    # --- where a request goes

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        parts = url.path.split("/")[1:]
        query = urllib.parse.parse_qs(url.query)
        if self.server.server_address == self.hub.hosts[1]:
            self.do_cdn(query)
        elif parts[0] == "api" and len(parts) > 2 and parts[1] in PREFIX:
            self.do_repo(parts, query)
        elif parts[0] == "api":
            self.do_other(parts[1])
        else:
            type_ = parts.pop(0) if parts[0] in PREFIX else "models"
            self.do_resolve(type_, parts)

    do_HEAD = do_POST = do_GET

    def do_other(self, word):
        self.begin(word)
        known = self.token in self.hub.tokens
        if word == "agent-harnesses":
            self.answer(200, {"standardEnvVars": [], "harnesses": {}})
        elif word != "whoami-v2":
            self.refuse(404, None, "Not found")
        elif known:
            self.answer(200, {"type": "user", "name": "upstream", "fullname": "Up Stream", "orgs": [],
                              "auth": {"type": "access_token", "accessToken": {"displayName": "t", "role": "read"}}})
        else:
            self.refuse(401, None, "Invalid credentials in Authorization header")

    def find(self, type_, id_, rev, bytes_of_it):
        """(repo, commit), or None after a refusal. Who may not see a private repository is told that there is none."""
        if self.token and self.token not in self.hub.tokens:
            self.refuse(401, None, "Invalid credentials in Authorization header")
            return None
        repo = self.hub.repos.get((type_, id_.lower()))
        if repo is None or repo.readers is not None and self.token not in repo.readers:
            self.refuse(404 if self.token else 401, "RepoNotFound", "Repository not found")
            return None
        if repo.granted is not None and bytes_of_it and self.token not in repo.granted:
            self.refuse(403 if self.token else 401, "GatedRepo", f"Access to {repo.type[:-1]} {id_} is restricted.")
            return None
        commit = repo.at(rev)
        if commit is None:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {rev}")
            return None
        return repo, commit

    def moved(self, type_, parts, at):
        """The id of a path that begins with one, and what follows it. A name that is given up leads to the new one."""
        n = 1 if len(parts) == 1 or parts[1] in ("resolve", "revision", "tree", "paths-info", "refs", "auth-check") else 2
        id_ = "/".join(parts[:n])
        new = self.hub.renamed.get((type_, id_))
        if new:
            rest = urllib.parse.urlsplit(self.path)
            self.answer(307, b"", [("Location", urllib.parse.urlunsplit(("", "", rest.path.replace(at + id_, at + new, 1), rest.query, "")))])
            return None
        return id_, parts[n:]

    def do_repo(self, parts, query):
        found = self.moved(parts[1], parts[2:], f"/api/{parts[1]}/")
        if found is None:
            return
        id_, rest = found
        kind = {"": "info", "revision": "info", "tree": "tree", "paths-info": "paths", "refs": "refs", "auth-check": "auth"}.get(rest[0] if rest else "", "none")
        sent = self.body() if self.command == "POST" else b""
        if self.begin(kind):
            return
        if kind == "auth" and not self.hub.auth_check:
            self.refuse(404, None, "Not found")
            return
        rev = urllib.parse.unquote(rest[1]) if len(rest) > 1 else "main"
        it = self.find(parts[1], id_, rev, kind == "auth")
        if it is None:
            return
        repo, commit = it
        folder = "/".join(urllib.parse.unquote(p) for p in rest[2:]).strip("/")
        if kind == "info":
            self.answer(200, self.info(repo, commit, "true" in query.get("blobs", [""])[0].lower()))
        elif kind == "refs":
            branches = [{"name": n, "ref": f"refs/heads/{n}", "targetCommit": c} for n, c in repo.refs.items() if not n.startswith("refs/")]
            tags = [{"name": n, "ref": f"refs/tags/{n}", "targetCommit": c} for n, c in repo.tags.items()]
            self.answer(200, {"branches": branches, "converts": [], "tags": tags})
        elif kind == "auth":
            self.answer(200, {})
        elif kind == "tree":
            self.tree(commit, folder, query)
        elif kind == "paths":
            form = urllib.parse.parse_qs(sent.decode())
            asked = form["paths"] if form else json.loads(sent)["paths"]
            rows = {row["path"]: row for row in self.rows(commit)}
            self.answer(200, [rows[p] for p in asked if p in rows])
        else:
            self.refuse(404, None, "Not found")

    def entry(self, path, f):
        item = {"type": "file", "oid": f.oid, "size": f.size, "path": path}
        if f.lfs:
            item["lfs"] = {"oid": f.sha256, "size": f.size, "pointerSize": len(f.pointer)}
        if self.hub.xet:
            item["xetHash"] = f.xet
        return item

    def rows(self, commit):
        folders = [{"type": "directory", "oid": oid, "size": 0, "path": path} for path, oid in commit.folders.items() if path]
        return sorted([*folders, *(self.entry(*row) for row in commit.files.items())], key=lambda row: row["path"])

    def tree(self, commit, folder, query):
        if folder not in commit.folders:
            self.refuse(404, "EntryNotFound", f"{folder} does not exist on {commit.sha}", [("X-Repo-Commit", commit.sha)])
            return
        deep = "true" in query.get("recursive", [""])[0].lower()
        start = folder + "/" if folder else ""
        rows = [r for r in self.rows(commit) if r["path"].startswith(start) and (deep or "/" not in r["path"][len(start):])]
        at, headers = int(query.get("cursor", ["0"])[0]), []
        if at + self.hub.page < len(rows):
            more = urllib.parse.urlencode({**{k: v[0] for k, v in query.items()}, "cursor": at + self.hub.page})
            headers.append(("Link", f'<{self.hub.url}{urllib.parse.urlsplit(self.path).path}?{more}>; rel="next"'))
        self.answer(200, rows[at:at + self.hub.page], headers)

    def info(self, repo, commit, blobs):
        siblings = []
        for path, f in commit.files.items():
            row = {"rfilename": path}
            if blobs:
                row.update(size=f.size, blobId=f.oid)
                if f.lfs:
                    row["lfs"] = {"sha256": f.sha256, "size": f.size, "pointerSize": len(f.pointer)}
                if self.hub.xet:
                    row["xetHash"] = f.xet
            siblings.append(row)
        about = {"_id": "64aa", "id": repo.id, "author": repo.id.rpartition("/")[0], "sha": commit.sha, "private": repo.readers is not None,
                 "gated": False if repo.granted is None else "auto", "disabled": False, "downloads": 12, "likes": 3,
                 "tags": ["region:us", "license:apache-2.0"], "cardData": {"license": "apache-2.0", "language": ["en"]},
                 "lastModified": commit.date, "createdAt": "2026-08-01T00:00:00.000Z", "siblings": siblings, "usedStorage": 1}
        if repo.type == "models":
            about.update(modelId=repo.id, pipeline_tag="feature-extraction", library_name="transformers")
        if self.hub.xet:
            about["xetEnabled"] = True
        return about

    def do_resolve(self, type_, parts):
        found = self.moved(type_, parts, "/")
        if found is None:
            return
        id_, rest = found
        if self.begin("head" if self.command == "HEAD" else "get"):
            return
        if len(rest) < 3 or rest[0] != "resolve":
            self.refuse(404, None, "Not found")
            return
        path = "/".join(urllib.parse.unquote(p) for p in rest[2:])
        it = self.find(type_, id_, urllib.parse.unquote(rest[1]), path not in SHOWN)
        if it is None:
            return
        repo, commit = it
        f = commit.files.get(path)
        headers = [("X-Repo-Commit", commit.sha)]
        if f is None:
            self.refuse(404, "EntryNotFound", f"Entry {path} not found", headers)
            return
        if self.hub.xet:
            headers += [("X-Xet-Hash", f.xet), ("X-Xet-Refresh-Route", XET_ROUTE), ("Link", f'<{self.hub.url}{XET_ROUTE}>; rel="xet-auth"')]
        if f.lfs:
            headers += [("X-Linked-Etag", f'"{f.sha256}"'), ("X-Linked-Size", str(f.size))]
        if not f.lfs or not self.hub.redirects:
            self.send_file(f, headers, f.etag)
            return
        with self.hub.lock:
            signature = f"sig{len(self.hub.signatures)}"
            self.hub.signatures[signature] = [f, 0]
        to = f"{self.hub.cdn}/cdn/{repo.id}/{urllib.parse.quote(path)}?Signature={signature}&Expires=3600"
        self.answer(302, b"", [*headers, ("Location", to), ("ETag", f'"{f.oid}"')])

    def do_cdn(self, query):
        if self.begin("cdn"):
            return
        if self.token:
            self.answer(400, {"error": "a token went to another host"})
            return
        with self.hub.lock:
            entry = self.hub.signatures.get(query.get("Signature", [""])[0])
            if entry:
                entry[1] += 1
        if entry is None or self.hub.signature_uses is not None and entry[1] > self.hub.signature_uses:
            self.answer(403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>", [("Content-Type", "application/xml")])
            return
        self.send_file(entry[0], [], "cdn-" + entry[0].oid)


@contextlib.contextmanager
def hub_server():
    hub = Hub()
    try:
        yield hub
    finally:
        hub.close()
