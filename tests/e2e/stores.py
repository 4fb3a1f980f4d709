"""Stores that do not speak S3, each with one container: Azurite, and a server of Google Cloud Storage's JSON API."""
import base64
import contextlib
import email.utils
import hashlib
import hmac
import http.client
import http.server
import json
import os
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from conftest import CALL_S, PARTS, end_process, held_port, until

# Azurite's account, of its documentation: everybody's.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2021-08-06"
# Of the fake of Google's web identity.
PROVIDER = "projects/123456789/locations/global/workloadIdentityPools/pool/providers/stoker"
ACTS_AS = "reader@p.iam.gserviceaccount.com"


def unb64(text):
    return base64.urlsafe_b64decode(text + "==")


class Azurite:
    """Requests are signed here for themselves: what Azurite thinks of ours is the test."""

    def __init__(self, folder):
        self.port, self.line, self.used = held_port(), None, 0.0
        self.endpoint = f"http://127.0.0.1:{self.port}"
        node = shutil.which("node", path=f"{PARTS}/node/bin:{os.environ['PATH']}")
        self.command = [node, PARTS / "azurite/node_modules/azurite/dist/src/blob/main.js", "--location", str(folder), "--blobHost", "127.0.0.1",
                        "--blobPort", str(self.port), "--silent", "--disableTelemetry", "--skipApiVersionCheck"]

    def call(self, method, path, query="", body=b"", **headers):
        """The status of one request for /container/blob."""
        now = email.utils.formatdate(time.time(), usegmt=True)
        headers = {k.replace("_", "-"): v for k, v in headers.items()} | {"x-ms-date": now, "x-ms-version": VERSION}
        canonical = "".join(f"{k}:{headers[k]}\n" for k in sorted(headers) if k.startswith("x-ms-"))
        resource = f"/{ACCOUNT}/{ACCOUNT}{path}" + "".join(f"\n{k}:{v}" for k, v in sorted(urllib.parse.parse_qsl(query)))
        text = "\n".join([method, "", "", str(len(body) or ""), "", headers.get("Content-Type", ""), "", "", "", "", "", "", canonical + resource])
        signature = base64.b64encode(hmac.digest(base64.b64decode(ACCOUNT_KEY), text.encode(), "sha256")).decode()
        if self.line is None or time.monotonic() - self.used > 2:  # Azurite hangs up after five seconds
            self.line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=CALL_S)
        self.used = time.monotonic()
        try:
            self.line.request(method, f"/{ACCOUNT}{path}" + (f"?{query}" if query else ""), body or None,
                              {**headers, "Content-Length": str(len(body)), "Authorization": f"SharedKey {ACCOUNT}:{signature}"})
            reply = self.line.getresponse()
            reply.read()
            return reply.status
        except (OSError, http.client.HTTPException):
            self.line = None
            raise

    def put(self, name, body, container="data", **headers):
        status = self.call("PUT", f"/{container}/{urllib.parse.quote(name)}", body=body, x_ms_blob_type="BlockBlob",
                           **{"Content-Type": "application/octet-stream"}, **headers)
        assert status == 201, status

    def container(self, name, **headers):
        assert self.call("PUT", f"/{name}", "restype=container", **headers) == 201

    def sas(self, container="data", rights="rl", life_s=3600):
        """A service SAS of a container."""
        ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + life_s))
        fields = [rights, "", ends, f"/blob/{ACCOUNT}/{container}", "", "", "", VERSION, "c"] + [""] * 7
        signature = base64.b64encode(hmac.digest(base64.b64decode(ACCOUNT_KEY), "\n".join(fields).encode(), "sha256"))
        return urllib.parse.urlencode({"sv": VERSION, "sr": "c", "sp": rights, "se": ends, "sig": signature.decode()})

    def answers(self):
        try:
            return self.call("GET", "/", "comp=list") == 200
        except (OSError, http.client.HTTPException):
            return False


@contextlib.contextmanager
def azurite(folder):
    folder.mkdir()
    server = Azurite(folder)
    process = subprocess.Popen(server.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(server.answers)
        server.container("data")
        yield server
    finally:
        end_process(process)


class Google:
    """fake-gcs-server, which knows neither tokens nor pages, behind a front that gives tokens out for what a service account signs, and for what an
    issuer that it trusts signs, wants to see them, and cuts a list into pages."""

    def __init__(self, folder):
        self.folder, self.port = folder, held_port()
        self.command = [PARTS / "bin/fake-gcs-server", "-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port), "-backend", "memory",
                        "-external-url", f"http://127.0.0.1:{self.port}"]
        self.one = threading.Lock()
        self.public, self.tokens, self.asked, self.claims, self.refuse = False, set(), 0, [], None
        self.trusts, self.subjects, self.pool, self.life_s = None, (), {}, 3600  # an issuer, and who of its may act as the service account
        subprocess.run(["openssl", "genrsa", "-out", folder / "key.pem", "2048"], check=True, capture_output=True, timeout=CALL_S)
        subprocess.run(["openssl", "rsa", "-in", folder / "key.pem", "-pubout", "-out", folder / "public.pem"], check=True, capture_output=True, timeout=CALL_S)
        google = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                form = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                with google.one:  # its files are for one at a time
                    if self.path == "/v1/token":
                        google.exchange(self, form)
                    elif self.path == f"/v1/projects/-/serviceAccounts/{urllib.parse.quote(ACTS_AS, safe='')}:generateAccessToken":
                        google.act(self, form)
                    else:
                        google.token(self, form)

            def do_GET(self):
                google.forward(self)

            do_HEAD = do_GET

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def account(self, **changes):
        """What Google Cloud gives out for a key."""
        return json.dumps({"type": "service_account", "project_id": "p", "private_key_id": "key-1", "private_key": (self.folder / "key.pem").read_text(),
                           "client_email": "reader@p.iam.gserviceaccount.com", "client_id": "1", "token_uri": f"{self.endpoint}/token"} | changes)

    def answer(self, rq, status, body):
        text = json.dumps(body).encode()
        rq.send_response(status)
        rq.send_header("Content-Type", "application/json")
        rq.send_header("Content-Length", str(len(text)))
        rq.end_headers()
        rq.wfile.write(text)

    def token(self, rq, form):
        """RFC 7523, section 2.1."""
        fields = dict(urllib.parse.parse_qsl(form))
        signed, _, signature = fields["assertion"].rpartition(".")
        header, claims = (json.loads(base64.urlsafe_b64decode(p + "==")) for p in signed.split("."))
        (self.folder / "signature").write_bytes(base64.urlsafe_b64decode(signature + "=="))
        good = subprocess.run(["openssl", "dgst", "-sha256", "-verify", self.folder / "public.pem", "-signature", self.folder / "signature"],
                              input=signed.encode(), capture_output=True, timeout=CALL_S).returncode == 0
        self.asked += 1
        self.claims.append(claims)
        fresh = abs(claims["iat"] - time.time()) < 300 and 0 < claims["exp"] - claims["iat"] <= 3600
        if (fields["grant_type"], header["alg"], header["kid"]) != ("urn:ietf:params:oauth:grant-type:jwt-bearer", "RS256", "key-1") or not good or not fresh:
            return self.answer(rq, 400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
        if self.refuse:
            return self.answer(rq, *self.refuse)
        token = hashlib.sha256(form.encode()).hexdigest()
        self.tokens.add(token)
        return self.answer(rq, 200, {"access_token": token, "expires_in": 3599, "token_type": "Bearer"})

    def verified(self, token):
        """Its claims, when the key that the issuer publishes has signed it; as clouds do it: the issuer's configuration, its keys, the one of that name."""
        head, claims, signature = token.split(".")
        header, said = (json.loads(unb64(p)) for p in (head, claims))
        with urllib.request.urlopen(f"{self.trusts}/.well-known/openid-configuration", timeout=CALL_S) as reply:
            configuration = json.load(reply)
        with urllib.request.urlopen(configuration["jwks_uri"], timeout=CALL_S) as reply:
            key = next(k for k in json.load(reply)["keys"] if k["kid"] == header["kid"])
        n, e = (int.from_bytes(unb64(key[x]), "big") for x in "ne")
        rsa.RSAPublicNumbers(e, n).public_key().verify(unb64(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256())
        assert header["alg"] == key["alg"] == "RS256" and configuration["issuer"] == said["iss"] == self.trusts
        return said

    def exchange(self, rq, form):
        """RFC 8693, of a pool whose provider has the audience that Google gives it by default, but at this host."""
        fields = dict(urllib.parse.parse_qsl(form))
        try:
            said = self.verified(fields["subject_token"])
            now = time.time()
            assert said["nbf"] <= said["iat"] <= now + 1 and now < said["exp"] <= said["iat"] + 3600
            assert said["aud"] == f"{self.endpoint}/{PROVIDER}", f"the audience is {said['aud']}"
            assert fields["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange" and fields["audience"] == f"//iam.googleapis.com/{PROVIDER}"
            assert fields["subject_token_type"] == "urn:ietf:params:oauth:token-type:jwt" and fields["scope"] == "https://www.googleapis.com/auth/cloud-platform"
        except Exception as e:  # with the token in the words: nobody else should see it
            return self.answer(rq, 400, {"error": "invalid_grant", "error_description": f"{e} {fields['subject_token']}"[:2000]})
        self.claims.append(said)
        pool = hashlib.sha256(form.encode()).hexdigest()
        self.pool[pool] = said["sub"]
        return self.answer(rq, 200, {"access_token": pool, "issued_token_type": "urn:ietf:params:oauth:token-type:access_token", "token_type": "Bearer", "expires_in": 3599})

    def act(self, rq, body):
        subject = self.pool.get((rq.headers.get("Authorization") or "").removeprefix("Bearer "))
        if subject not in self.subjects or json.loads(body)["scope"] != ["https://www.googleapis.com/auth/devstorage.read_only"]:
            return self.answer(rq, 403, {"error": {"code": 403, "message": "Permission 'iam.serviceAccounts.getAccessToken' denied on resource", "status": "PERMISSION_DENIED"}})
        token = hashlib.sha256(f"{subject} {self.asked}".encode()).hexdigest()
        self.asked += 1
        self.tokens.add(token)
        return self.answer(rq, 200, {"accessToken": token, "expireTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.life_s))})

    def forward(self, rq):
        word, _, token = (rq.headers.get("Authorization") or "").partition(" ")
        if not self.public and (word, token in self.tokens) != ("Bearer", True):
            return self.answer(rq, 401, {"error": {"code": 401, "message": "Anonymous caller does not have storage.objects.list access"}})
        path, _, query = rq.path.partition("?")
        asked = dict(urllib.parse.parse_qsl(query))
        page, begin = int(asked.pop("maxResults", 0)), int(asked.pop("pageToken", 0))
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=CALL_S)
        line.request(rq.command, f"{path}?{urllib.parse.urlencode(asked)}", headers={k: v for k, v in rq.headers.items() if k.lower() in ("range", "accept-encoding")})
        reply = line.getresponse()
        data = reply.read()
        if page and reply.status == 200:
            items = json.loads(data).get("items", [])
            more = {"nextPageToken": str(begin + page)} if begin + page < len(items) else {}
            return self.answer(rq, 200, {"items": items[begin:begin + page]} | more)
        rq.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "date", "server", "content-length"):
                rq.send_header(name, value)
        rq.send_header("Content-Length", str(len(data)))
        rq.end_headers()
        rq.wfile.write(data)

    def call(self, method, path, body=b"", kind="application/json"):
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=CALL_S)
        line.request(method, path, body, {"Content-Type": kind})
        reply = line.getresponse()
        reply.read()
        return reply.status

    def put(self, name, body):
        assert self.call("POST", f"/upload/storage/v1/b/data/o?uploadType=media&name={urllib.parse.quote(name, safe='')}", body, "application/octet-stream") == 200

    def answers(self):
        try:
            return self.call("GET", "/storage/v1/b") == 200
        except OSError:
            return False


@contextlib.contextmanager
def google(folder):
    folder.mkdir()
    server = Google(folder)
    process = subprocess.Popen(server.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(server.answers)
        assert server.call("POST", "/storage/v1/b?project=p", b'{"name": "data"}') == 200
        yield server
    finally:
        server.server.shutdown()
        server.server.server_close()
        end_process(process)
