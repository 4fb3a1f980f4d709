"""An S3 server that takes everything and keeps nothing: create, part, complete, HEAD, PUT. The bytes of a body are
dropped by the kernel (MSG_TRUNC), so that what is measured is the client.

    sink.py          prints "port=N"; GET /size/<key> says how many bytes of that key have arrived
"""
import hashlib
import re
import socket
import socketserver
import sys
import threading
import urllib.parse

CHUNK = 4 << 20
HEAD_MAX = 64 << 10
sizes, lock = {}, threading.Lock()
ETAG = '"' + hashlib.md5(b"").hexdigest() + '-2"'  # of parts: nobody takes it for the content's MD5


class Handler(socketserver.BaseRequestHandler):
    def head(self):
        while b"\r\n\r\n" not in self.rest:
            got = self.request.recv(HEAD_MAX)
            if not got or len(self.rest) > HEAD_MAX:
                return None
            self.rest += got
        head, _, self.rest = self.rest.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        return first.split(" ")[:2], {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}

    def drain(self, n):
        taken = min(n, len(self.rest))
        self.rest, left = self.rest[taken:], n - taken
        if self.hold is None and left:
            self.hold = bytearray(CHUNK)
        while left:
            got = self.request.recv_into(self.hold, min(left, CHUNK), socket.MSG_TRUNC)
            if got == 0:
                raise ConnectionError
            left -= got

    def answer(self, status, body=b"", **headers):
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {headers.pop('length', len(body))}", f"ETag: {ETAG}"]
        self.request.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + body)

    def handle(self):
        self.rest, self.hold = b"", None
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while (found := self.head()) is not None:
                self.one(*found)
        except ConnectionError:
            pass

    def one(self, first, headers):
        method, target = first
        path, _, query = target.partition("?")
        key = urllib.parse.unquote(path).strip("/")
        n = int(headers.get("content-length", 0))
        if headers.get("expect", "").lower() == "100-continue":
            self.request.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.drain(n)
        if method == "PUT" and n:
            with lock:
                sizes[key] = sizes.get(key, 0) + int(headers.get("x-amz-decoded-content-length", n))
            self.answer("200 OK")
        elif method == "GET" and key.startswith("size/"):
            self.answer("200 OK", str(sizes.pop(key[5:], 0)).encode())
        elif method == "HEAD" and "/" in key:
            self.answer("200 OK" if key in sizes else "404 Not Found", length=sizes.get(key, 0))
        elif method == "POST" and re.search(r"(^|&)uploads(=|&|$)", query):
            with lock:
                sizes[key] = 0
            self.answer("200 OK", f"<InitiateMultipartUploadResult><Bucket>bench</Bucket><Key>{key}</Key><UploadId>1</UploadId>"
                                  f"</InitiateMultipartUploadResult>".encode())
        elif method == "POST":
            self.answer("200 OK", f"<CompleteMultipartUploadResult><Key>{key}</Key><ETag>{ETAG}</ETag>"
                                  f"</CompleteMultipartUploadResult>".encode())
        else:
            self.answer("200 OK", b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>" if method == "GET" else b"")


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


server = Server(("127.0.0.1", 0), Handler)
print(f"port={server.server_address[1]}", flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
server.serve_forever()
