#!/usr/bin/env python3
"""A source of files that can be told to misbehave: a Hub, an S3 bucket and plain files over one folder.

    faulty.py --root DIR [--port 0] [--tls CERT KEY]

prints `port=N cdn=M` once it listens on 127.0.0.1 (the second port plays the storage host that the Hub
redirects to) and serves until its standard input ends or it is killed. Only Python's own library is used.

What is served, all of it the files below DIR:

    /api/models/OWNER/REPO/revision/REV      commit of REV: main, v1, refs/pr/1, or the commit itself
    /api/models/OWNER/REPO/tree/SHA[/FOLDER] its files, in pages (also datasets, spaces)
    /OWNER/REPO/resolve/SHA/PATH             200, or for large files a 302 to the other port, signed
    /BUCKET?list-type=2&prefix=...           ListObjectsV2, in pages        (endpoint http://HOST:PORT)
    /BUCKET/KEY                              GET and HEAD with Range
    /plain/PATH                              a plain file: ETag, Range, HEAD
    /stats                                   JSON: requests, body bytes sent, by path; /stats?clear starts anew

A repository or bucket whose name begins with `missing` does not exist. The storage host answers 400 to a
request with Authorization, and counts it as a `leak` in /stats.

Faults stand in the path, in front of all else, so that they can be part of an endpoint:

    http://127.0.0.1:N/f/FAULT[,FAULT...]/...

A fault holds for the bytes of files; with `list.` in front (list.status=503:2) for listings and lookups, with
`head.` for HEAD of files. V:N means: only the first N times for each path.

    status=CODE[:N]   answers CODE          retry-after=S    with this header
    reset[:N]         closes with RST       slow=BYTES       per second
    cut=K[:N]         closes after K bytes of a body, whatever length was announced
    stall=K[:N]       sends K bytes, then nothing
    corrupt[=K]       the byte at offset K of the file (default 0) is another one
    length=+K|-K      the file is K bytes longer or shorter than it was listed
    lie               the promised digest is wrong (Hub: lfs oid and blob id)
    loop              redirects to itself   gzip             Content-Encoding: gzip
    norange           ignores Range         nohead           405 to HEAD
    part200[=K]       a part comes with status 200, and a Content-Range that begins K bytes too late
    nolength          no Content-Length     noetag, nodate   no ETag, no Last-Modified
    etag=N            another ETag after N requests of a path
    expire=N          a signed URL works N times, then 403
    auth=TOKEN        needs it as bearer token, or as access key of an AWS signature
    gated             403 GatedRepo         page=K           entries of a page (1000)
    endless           pages go on for ever  garbage          listings are not what they should be
    digest            plain files have Repr-Digest, `linked` X-Linked-Etag, as the Hub's resolve has
"""
import argparse
import base64
import gzip
import hashlib
import json
import os
import socket
import struct
import sys
import threading
import time
import urllib.parse
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.sax.saxutils import escape

LFS_MIN = 256 << 10  # files from this size on are kept by Git-LFS, so redirected and known by SHA-256
CHUNK = 256 << 10

LOCK = threading.Lock()
STATS = {}
STATS_WAIT_S = 60
ACTIVE = [0]  # requests that are being answered
TIMES = {}  # (fault, path) -> how often it has struck
DIGESTS = {}
ARGS = None
CDN_PORT = 0


def clear_stats():
    STATS.clear()
    STATS.update(requests=0, bytes=0, leaks=0, connections=0, at_once=0, at_once_max=0, paths={}, methods={})


class Faults:
    """`a=1,list.b` as a question: has it, and does it strike once more for this path?"""

    def __init__(self, text, scope, path):
        self.table = {}
        self.text = text
        self.path = path
        for item in filter(None, text.split(",")):
            name, _, value = item.partition("=")
            if not value and ":" in name:
                name, _, times = name.partition(":")
                value = ":" + times
            where, dot, rest = name.partition(".")
            if dot:
                name = rest
            if (where if dot else "body") == scope or name in ("page", "endless", "garbage", "lie", "auth", "gated",
                                                               "expire", "etag", "noetag", "nodate", "digest", "linked", "length"):
                self.table[name] = value

    def __contains__(self, name):
        return name in self.table

    def value(self, name, default=0):
        if name not in self.table:
            return None
        text = self.table[name].partition(":")[0]
        return int(text) if text.lstrip("+-").isdigit() else (text or default)

    def strikes(self, name):
        """Its value, or None when it is absent or has struck often enough."""
        if name not in self.table:
            return None
        times = self.table[name].partition(":")[2]
        with LOCK:
            n = TIMES.get((self.text, name, self.path), 0)
            if times and n >= int(times):
                return None
            TIMES[(self.text, name, self.path)] = n + 1
        return self.value(name)


def digests(path):
    st = path.stat()
    key = (str(path), st.st_mtime_ns, st.st_size)
    with LOCK:
        if key in DIGESTS:
            return DIGESTS[key]
    sha256, git, md5 = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % st.st_size), hashlib.md5()
    with path.open("rb") as f:
        while block := f.read(1 << 20):
            for h in (sha256, git, md5):
                h.update(block)
    found = {"sha256": sha256.hexdigest(), "git": git.hexdigest(), "md5": md5.hexdigest(), "size": st.st_size,
             "mtime": st.st_mtime}
    with LOCK:
        DIGESTS[key] = found
    return found


def walk():
    root = ARGS.root
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def commit():
    h = hashlib.sha1()
    for name in walk():
        h.update(f"{name} {digests(ARGS.root / name)['git']}\n".encode())
    return h.hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "faulty"
    wbufsize = 1 << 16

    def log_message(self, *args):
        if ARGS.verbose:
            sys.stderr.write("%s %s\n" % (self.command, self.path))

    def setup(self):
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with LOCK:
            STATS["connections"] += 1

    # --- answers

    def answer(self, status, body=b"", headers=(), kind="application/json", slow=None):
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        for at in range(0, len(body), 16) if slow else ():
            self.wfile.write(body[at:at + 16])
            time.sleep(16 / int(slow))
        if not slow:
            self.wfile.write(body)

    def hub_error(self, status, code, text):
        self.answer(status, {"error": text}, [("X-Error-Code", code), ("X-Error-Message", text)])

    def s3_error(self, status, code, text, headers=()):
        self.answer(status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{text}</Message></Error>".encode(),
                    headers, "application/xml")

    def redirect(self, to):
        self.answer(302, b"", [("Location", to)])

    def hang_up(self, rst=False):
        self.close_connection = True
        if rst:  # closed for good, with unsent data thrown away: the other end sees a reset
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())
        else:
            self.connection.shutdown(socket.SHUT_RDWR)

    # --- faults that hold for every kind of request

    def strike(self, faults):
        """True when a fault has answered."""
        if faults.strikes("reset") is not None:
            self.hang_up(rst=True)
            return True
        status = faults.strikes("status")
        if status is not None:
            extra = [("Retry-After", str(faults.value("retry-after")))] if "retry-after" in faults else []
            if self.face == "s3":
                self.s3_error(status, "SlowDown" if status == 503 else "AccessDenied", "as you wished", extra)
            else:
                self.answer(status, {"error": "as you wished"}, extra)
            return True
        if "loop" in faults:
            self.redirect(self.path)
            return True
        if "nohead" in faults and self.command == "HEAD":
            self.answer(405)
            return True
        return False

    def allowed(self, faults):
        token = faults.value("auth")
        given = self.headers.get("Authorization", "")
        if self.face == "s3":
            if token is None and not given:
                return True  # a public bucket
            if given.startswith("AWS4-HMAC-SHA256 Credential=") and (
                    token is None or given.split("Credential=")[1].startswith(f"{token}/")):
                return True
            self.s3_error(403, "AccessDenied" if not given else "InvalidAccessKeyId", "no such key")
            return False
        if "gated" in faults:
            self.hub_error(403, "GatedRepo", "Access to this model is restricted")
            return False
        if token is None or given == f"Bearer {token}":
            return True
        if self.face == "hub":
            self.hub_error(401, "RepoNotFound", "Invalid username or password.")
        else:
            self.answer(401, {"error": "who are you?"}, [("WWW-Authenticate", "Bearer")])
        return False

    # --- the bytes of a file

    def send_file(self, name, faults, headers, etag):
        path = ARGS.root / name
        if not path.is_file() or ".." in name:
            self.missing_file(name)
            return
        if self.strike(faults):
            return
        size = path.stat().st_size + int(faults.value("length") or 0)
        after = faults.value("etag")
        if after is not None:
            with LOCK:
                n = TIMES[("etag", faults.text, name)] = TIMES.get(("etag", faults.text, name), 0) + 1
            if n > int(after):
                etag = "changed-" + etag[:8]
        match = self.headers.get("If-Match")
        if match and match.strip('"') != etag:
            if self.face == "s3":
                self.s3_error(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
            else:
                self.answer(412)
            return
        first, last, status = 0, size - 1, 200
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes=") and "norange" not in faults:
            a, _, b = asked[6:].partition("-")
            first = int(a) if a else max(0, size - int(b))
            last = min(int(b), size - 1) if a and b else size - 1
            if first >= size:
                self.answer(416, b"", [("Content-Range", f"bytes */{size}")])
                return
            status = 206
        body_gzip = None
        if "gzip" in faults:
            body_gzip = gzip.compress(path.read_bytes()[first:last + 1])
        self.send_response(200 if "part200" in faults else status)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Accept-Ranges", "none" if "norange" in faults else "bytes")
        if "noetag" not in faults:
            self.send_header("ETag", f'"{etag}"')
        if status == 206:
            off = int(faults.value("part200") or 0)
            self.send_header("Content-Range", f"bytes {first + off}-{last + off}/{size}")
        if body_gzip is not None:
            self.send_header("Content-Encoding", "gzip")
        count = len(body_gzip) if body_gzip is not None else last - first + 1
        if "nolength" in faults:
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(count))
        for header in headers:
            self.send_header(*header)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.send_body(path, first, count, body_gzip, faults)

    def send_body(self, path, first, count, ready, faults):
        cut, stall = faults.strikes("cut"), faults.strikes("stall")
        stop = cut if cut is not None else stall
        slow = faults.value("slow")
        at, end = first, first + count
        with LOCK:
            STATS["at_once"] += 1
            STATS["at_once_max"] = max(STATS["at_once_max"], STATS["at_once"])
        under_way = 1
        try:
            with path.open("rb") as f:
                f.seek(first)
                while at < end:
                    n = min(CHUNK, end - at)
                    if slow:
                        n = min(n, max(1, int(slow) // 20))
                    if stop is not None:
                        n = min(n, int(stop) - (at - first))
                        if n <= 0:
                            break
                    if ready is not None:
                        block = ready[at - first:at - first + n]
                    else:
                        block = bytearray(f.read(n))
                        block += b"\0" * (n - len(block))  # length=+K
                        where = faults.value("corrupt")
                        if where is not None and at <= int(where) < at + n:
                            block[int(where) - at] ^= 0xff
                    at += n
                    with LOCK:  # before it goes: who has the last byte may ask for the numbers, or for another file
                        STATS["bytes"] += n
                        STATS["paths"][self.where]["bytes"] += n
                        if at >= end:
                            STATS["at_once"] -= under_way
                            under_way = 0
                    self.wfile.write(block)
                    if slow:
                        time.sleep(n / int(slow))
            if stop is not None and at < end:
                self.wfile.flush()
                self.stalled = stall is not None and cut is None
                if not self.stalled:
                    self.hang_up()
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True
        finally:
            with LOCK:
                STATS["at_once"] -= under_way

    def missing_file(self, name):
        if self.face == "s3":
            self.s3_error(404, "NoSuchKey", "The specified key does not exist.")
        elif self.face == "hub":
            self.hub_error(404, "EntryNotFound", f"Entry {name} not found")
        else:
            self.answer(404)

    # --- the Hub

    def hub_api(self, parts, query):
        """/api/models/owner/repo/(revision|tree)/..."""
        self.face = "hub"
        faults = Faults(self.faults, "list", self.where)
        if not self.allowed(faults) or self.strike(faults):
            return
        if len(parts) < 6 or parts[3].startswith("missing"):
            self.hub_error(404, "RepoNotFound", "Repository not found")
            return
        sha = commit()
        rev = urllib.parse.unquote(parts[5])
        if rev not in ("main", "v1", "refs/pr/1", sha):
            self.hub_error(404, "RevisionNotFound", f"Invalid rev id: {rev}")
        elif "garbage" in faults:
            self.answer(200, b"<html>welcome</html>", kind="text/html")
        elif parts[4] == "revision":
            self.answer(200, {"id": f"{parts[2]}/{parts[3]}", "sha": sha, "private": False, "gated": False,
                              "siblings": [{"rfilename": n} for n in walk()]})
        else:
            self.hub_tree(sha, "/".join(urllib.parse.unquote(p) for p in parts[6:]), query, faults)

    def hub_tree(self, sha, folder, query, faults):
        inside = [n for n in walk() if not folder or n.startswith(folder + "/")]
        if folder and not inside:
            self.hub_error(404, "EntryNotFound", f"{folder} does not exist on {sha}")
            return
        page, at = int(faults.value("page") or 1000), int(query.get("cursor", ["0"])[0])
        items = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": str(Path(n).parent)}
                 for n in inside[at:at + 1] if "/" in n]
        for name in inside[at:at + page]:
            d = digests(ARGS.root / name)
            wrong = "lie" in faults
            item = {"type": "file", "path": name, "size": d["size"], "oid": "f" * 40 if wrong else d["git"]}
            if d["size"] >= LFS_MIN:
                item["lfs"] = {"oid": "f" * 64 if wrong else d["sha256"], "size": d["size"], "pointerSize": 134}
                item["xetHash"] = "e" * 64
            items.append(item)
        headers = []
        if at + page < len(inside) or "endless" in faults:
            following = at if "endless" in faults else at + page
            again = urllib.parse.urlsplit(self.path)
            rest = urllib.parse.urlencode({"recursive": "true", "expand": "false", "cursor": following})
            headers.append(("Link", f'<{self.origin()}{again.path}?{rest}>; rel="next"'))
        self.answer(200, [] if "endless" in faults else items, headers, slow=faults.value("slow"))

    def origin(self):
        return f"{'https' if ARGS.tls else 'http'}://{self.headers.get('Host')}"

    def hub_resolve(self, parts):
        self.face = "hub"
        name = "/".join(urllib.parse.unquote(p) for p in parts[4:])
        faults = Faults(self.faults, "head" if self.command == "HEAD" else "body", self.where)
        if not self.allowed(faults):
            return
        path = ARGS.root / name
        if parts[1].startswith("missing"):
            self.hub_error(404, "RepoNotFound", "Repository not found")
        elif not path.is_file():
            self.missing_file(name)
        elif digests(path)["size"] < LFS_MIN:
            self.send_file(name, faults, [("X-Repo-Commit", parts[3])], digests(path)["git"])
        else:
            d = digests(path)
            until = "%x" % time.time_ns()
            where = f"http{'s' if ARGS.tls else ''}://127.0.0.1:{CDN_PORT}"
            spec = f"/f/{self.faults}" if self.faults else ""
            self.answer(302, b"", [
                ("Location", f"{where}{spec}/cdn/{urllib.parse.quote(name)}?Expires={until}&Signature=sig-{until}"),
                ("X-Linked-Etag", f'"{d["sha256"]}"'), ("X-Linked-Size", str(d["size"])),
                ("X-Repo-Commit", parts[3])])

    def cdn(self, parts, query):
        self.face = "cdn"
        if self.headers.get("Authorization"):
            with LOCK:
                STATS["leaks"] += 1
            self.answer(400, {"error": "a token went to another host"})
            return
        faults = Faults(self.faults, "body", self.where)
        limit = faults.value("expire")
        if limit is not None:
            signature = query.get("Signature", [""])[0]
            with LOCK:
                n = TIMES[("signature", signature)] = TIMES.get(("signature", signature), 0) + 1
            if n > int(limit):
                self.answer(403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>",
                            kind="application/xml")
                return
        name = "/".join(urllib.parse.unquote(p) for p in parts[1:])
        self.send_file(name, faults, [], "cdn-" + name.replace("/", "-"))

    # --- S3 and plain files

    def s3(self, parts, query):
        self.face = "s3"
        listing = len(parts) == 1 or parts[1] == ""
        scope = "list" if listing else "head" if self.command == "HEAD" else "body"
        faults = Faults(self.faults, scope, self.where)
        if not self.allowed(faults):
            return
        if parts[0].startswith("missing"):
            self.s3_error(404, "NoSuchBucket", "The specified bucket does not exist")
        elif not listing:
            name = "/".join(urllib.parse.unquote(p) for p in parts[1:])
            path = ARGS.root / name
            self.send_file(name, faults, [], digests(path)["md5"] if path.is_file() else "")
        elif not self.strike(faults):
            self.s3_list(parts[0], query, faults)

    def s3_list(self, bucket, query, faults):
        prefix = query.get("prefix", [""])[0]
        most = min(int(query.get("max-keys", ["1000"])[0]), int(faults.value("page") or 1000))
        after = query.get("continuation-token", [""])[0]
        keys = [n for n in walk() if n.startswith(prefix) and n > after]
        more = len(keys) > most or "endless" in faults
        keys = keys[:most]
        rows = []
        for name in keys:
            d = digests(ARGS.root / name)
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(d["mtime"]))
            rows.append(f"<Contents><Key>{escape(name)}</Key><LastModified>{stamp}</LastModified>"
                        f"<ETag>&quot;{d['md5']}&quot;</ETag><Size>{d['size']}</Size></Contents>")
        if "garbage" in faults:
            rows = ["<Contents><Key>x</Key>"]
        if "endless" in faults:
            rows, keys = [], ["!"]
        token = f"<NextContinuationToken>{escape(keys[-1])}</NextContinuationToken>" if more and keys else ""
        xml = (f"<?xml version='1.0' encoding='UTF-8'?><ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
               f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(keys)}</KeyCount>"
               f"<MaxKeys>{most}</MaxKeys><IsTruncated>{str(more).lower()}</IsTruncated>{token}{''.join(rows)}"
               f"</ListBucketResult>")
        self.answer(200, xml.encode(), kind="application/xml")

    def plain(self, parts):
        self.face = "plain"
        name = "/".join(urllib.parse.unquote(p) for p in parts[1:])
        faults = Faults(self.faults, "head" if self.command == "HEAD" else "body", self.where)
        if not self.allowed(faults):
            return
        path, headers, etag = ARGS.root / name, [], ""
        if path.is_file():
            d = digests(path)
            etag = d["md5"]
            promised = "f" * 64 if "lie" in faults else d["sha256"]
            if "nodate" not in faults:
                headers.append(("Last-Modified", formatdate(d["mtime"], usegmt=True)))
            if "digest" in faults:
                raw = base64.b64encode(bytes.fromhex(promised)).decode()
                headers.append(("Repr-Digest", f"sha-256=:{raw}:"))
            if "linked" in faults:
                headers.append(("X-Linked-Etag", f'"{promised}"'))
        self.send_file(name, faults, headers, etag)

    def stats(self, query):
        """Of requests that are over: those under way, also for a client that is gone, end first."""
        end = time.monotonic() + STATS_WAIT_S
        while ACTIVE[0] > 0 and time.monotonic() < end:
            time.sleep(0.01)
        with LOCK:
            text = json.dumps(STATS)
            if "clear" in query:
                clear_stats()
                TIMES.clear()
        self.answer(200, text.encode())

    # --- where a request goes

    def do_GET(self):
        self.stalled = False
        if urllib.parse.urlsplit(self.path).path == "/stats":
            self.stats(urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query, keep_blank_values=True))
            return
        with LOCK:
            ACTIVE[0] += 1
        try:
            self.serve()
        finally:
            with LOCK:
                ACTIVE[0] -= 1
        if self.stalled:
            time.sleep(3600)
            self.hang_up()

    def serve(self):
        url = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(url.query, keep_blank_values=True)
        parts = url.path.split("/")[1:]
        self.faults, self.face = "", "plain"
        if parts[:1] == ["f"] and len(parts) > 2:
            self.faults = urllib.parse.unquote(parts[1])
            parts = parts[2:]
        self.where = "/".join(parts)
        with LOCK:
            STATS["requests"] += 1
            STATS["methods"][self.command] = STATS["methods"].get(self.command, 0) + 1
            entry = STATS["paths"].setdefault(self.where, {"requests": 0, "bytes": 0})
            entry["requests"] += 1
        if parts[0] == "cdn":
            self.cdn(parts, query)
        elif parts[0] == "api":
            self.hub_api(parts, query)
        elif parts[0] == "plain":
            self.plain(parts)
        elif parts[0] in ("datasets", "spaces") and "resolve" in parts[3:4]:
            self.hub_resolve(parts[1:])
        elif "resolve" in parts[2:3]:
            self.hub_resolve(parts)
        else:
            self.s3(parts, query)

    do_HEAD = do_GET


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        pass  # clients that are killed, and connections that a fault has closed


def listen(port):
    server = Server(("127.0.0.1", port), Handler)
    if ARGS.tls:
        import ssl
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*ARGS.tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def main():
    global ARGS, CDN_PORT
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="the folder whose files are served")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tls", nargs=2, metavar=("CERT", "KEY"), help="serve https with these PEM files")
    parser.add_argument("--verbose", action="store_true", help="print each request to stderr")
    ARGS = parser.parse_args()
    clear_stats()
    CDN_PORT = listen(0)
    print(f"port={listen(ARGS.port)} cdn={CDN_PORT}", flush=True)
    while sys.stdin.buffer.read1(4096):
        pass


if __name__ == "__main__":
    main()
