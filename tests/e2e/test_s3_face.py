"""Uploads as boto3 sends them and as broken clients do: each fault gets S3's own error, and nothing stays behind."""
import datetime
import hashlib
import hmac
import os
import re
import socket
import sqlite3
import time
import urllib.parse

import boto3
import botocore.auth
import botocore.awsrequest
import botocore.credentials
import botocore.exceptions
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from conftest import CALL_S, until

MIB = 1 << 20
DAY_S = 86400


class Upload:
    """Credentials for one key, and ways of using them well and badly."""

    def __init__(self, cluster):
        self.cluster = cluster
        status, reply = cluster.api("GET", "/v1/blobs/credentials/train")
        assert status == 200
        self.bucket, self.key, self.creds = reply["s3_bucket"], reply["s3_key"], reply["creds"]
        self.url = f"{self.creds['endpoint_url']}/{self.bucket}/{self.key}"

    def client(self, **change):
        return boto3.client("s3", **{**self.creds, **change}, config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}))

    def error(self, call, *args, client=None, **kw):
        """The code of the refusal, whose message must be readable."""
        with pytest.raises(botocore.exceptions.ClientError) as e:
            getattr(client or self.client(), call)(*args, Bucket=self.bucket, Key=self.key, **kw)
        assert len(e.value.response["Error"]["Message"]) > 10
        return e.value.response["Error"]["Code"]

    def head(self, body_length, clock=0, payload="UNSIGNED-PAYLOAD", headers=None):
        """The bytes of a signed PUT, without its body; `clock` seconds off."""
        rq = botocore.awsrequest.AWSRequest("PUT", self.url, headers={"X-Amz-Content-SHA256": payload, **(headers or {})})
        keys = botocore.credentials.Credentials(self.creds["aws_access_key_id"], self.creds["aws_secret_access_key"], self.creds["aws_session_token"])
        signer = botocore.auth.S3SigV4Auth(keys, "s3", "us-east-1")
        stamp = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=clock)).strftime("%Y%m%dT%H%M%SZ")
        rq.context["timestamp"] = stamp
        rq.headers["X-Amz-Date"] = stamp
        rq.headers["X-Amz-Security-Token"] = keys.token
        text = signer.string_to_sign(rq, signer.canonical_request(rq))
        auth = ["AWS4-HMAC-SHA256 Credential=" + signer.scope(rq), "SignedHeaders=" + signer.signed_headers(signer.headers_to_sign(rq)),
                "Signature=" + signer.signature(text, rq)]
        parts = urllib.parse.urlsplit(self.url)
        lines = [f"PUT {parts.path} HTTP/1.1", f"Host: {parts.netloc}", f"Content-Length: {body_length}", "Connection: close", "Authorization: " + ", ".join(auth)]
        lines += [f"{k}: {v}" for k, v in rq.headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def raw(self, data, answered=True, half=False):
        """The answer to these bytes; not answered: hangs up instead of waiting for one; half: says that no more comes."""
        parts = urllib.parse.urlsplit(self.url)
        with socket.create_connection((parts.hostname, parts.port), timeout=CALL_S) as s:
            s.sendall(data)
            answer = b""
            if half:
                s.shutdown(socket.SHUT_WR)
            if not answered:
                time.sleep(0.3)  # it has been read by then, or not: both must be fine
                return answer
            while piece := s.recv(65536):
                answer += piece
            return answer

    def stored(self):
        path = self.cluster.data / "objects" / self.key
        return path.read_bytes() if path.exists() else None

    def leftovers(self):
        return sorted(p.name for p in (self.cluster.data / "objects/.tmp").iterdir())


@pytest.fixture
def upload(cluster):
    return Upload(cluster)


@pytest.fixture
def trained(cluster):
    """(cluster, a job that left three checkpoints)"""
    job = cluster.push([f"mkdir $BT_CHECKPOINT_DIR/c{n}; echo {n} > $BT_CHECKPOINT_DIR/c{n}/w" for n in range(3)],
                       runtime={"checkpointing_config": {"enabled": True}})
    return cluster, cluster.wait(job, "TRAINING_JOB_COMPLETED")


def clean(upload):
    """The janitor's pass at start, two days later."""
    c = upload.cluster
    c.stop()
    for entry in (c.data / "objects/.tmp").iterdir():
        os.utime(entry, (time.time() - 2 * DAY_S,) * 2)
    with sqlite3.connect(c.data / "stoker.db") as db:
        db.execute("UPDATE uploads SET created_ms = created_ms - ?, expires_ms = expires_ms - ?", (3 * DAY_S * 1000,) * 2)
    db.close()
    c.restart()
    until(lambda: not upload.leftovers())


def test_put_once_and_in_parts_out_of_order(upload):
    upload.client().put_object(Bucket=upload.bucket, Key=upload.key, Body=b"small")
    assert upload.stored() == b"small"
    data = os.urandom(21 * MIB)
    client = upload.client()
    (upload.cluster.folder / "f").write_bytes(data)
    client.upload_file(str(upload.cluster.folder / "f"), upload.bucket, upload.key, Config=TransferConfig(multipart_chunksize=8 * MIB))
    assert hashlib.sha256(upload.stored()).digest() == hashlib.sha256(data).digest()
    begun = client.create_multipart_upload(Bucket=upload.bucket, Key=upload.key)["UploadId"]
    parts = [(n, data[(n - 1) * 8 * MIB:n * 8 * MIB]) for n in (3, 1, 2)]
    etags = {n: client.upload_part(Bucket=upload.bucket, Key=upload.key, UploadId=begun, PartNumber=n, Body=body)["ETag"] for n, body in parts}
    client.complete_multipart_upload(Bucket=upload.bucket, Key=upload.key, UploadId=begun,
                                     MultipartUpload={"Parts": [{"PartNumber": n, "ETag": etags[n]} for n in (1, 2, 3)]})
    assert upload.stored() == data and upload.leftovers() == []


def test_who_may(upload):
    wrong = {"aws_secret_access_key": "wrong" * 8}
    assert upload.error("put_object", Body=b"x", client=upload.client(**wrong)) == "SignatureDoesNotMatch"
    assert upload.error("put_object", Body=b"x", client=upload.client(aws_access_key_id="NOBODY")) == "InvalidAccessKeyId"
    assert upload.error("put_object", Body=b"x", client=upload.client(aws_session_token="other")) == "InvalidToken"
    assert upload.error("get_object") == "AccessDenied"
    other = Upload(upload.cluster)
    other.key = upload.key
    assert other.error("put_object", Body=b"x") == "AccessDenied"
    other.bucket = "elsewhere"
    assert other.error("put_object", Body=b"x") == "NoSuchBucket"  # to those who are known; to others not even that
    assert other.error("put_object", Body=b"x", client=other.client(**wrong)) == "SignatureDoesNotMatch"
    status, body = upload.cluster.api("GET", "/s3/elsewhere/x", token="", raw=True)
    assert status == 403 and upload.bucket not in body.decode()
    upload.client().put_object(Bucket=upload.bucket, Key=upload.key, Body=b"x")
    assert upload.error("delete_object") == "AccessDenied" and upload.stored() == b"x"  # they are for writing
    assert upload.error("copy_object", CopySource=f"{upload.bucket}/{upload.key}") == "NotImplemented"
    (upload.cluster.data / "objects" / upload.key).unlink()
    anybody = upload.cluster.api
    for path in "/s3/stoker", "/s3/stoker?location", "/s3/stoker?list-type=2", f"/s3/stoker/{upload.key}":
        for method in "GET", "HEAD":
            assert anybody(method, path, token="", raw=True)[0] in (403, 501), (method, path)
    upload.client().head_bucket(Bucket=upload.bucket)
    with sqlite3.connect(upload.cluster.data / "stoker.db") as db:
        db.execute("UPDATE uploads SET expires_ms = 1")
    db.close()
    assert upload.error("put_object", Body=b"x") == "ExpiredToken"
    assert upload.stored() is None and upload.leftovers() == []


def test_clocks_that_are_off(upload):
    for off, ok in (60, True), (-60, True), (3600, False), (-3600, False):
        answer = upload.raw(upload.head(4, clock=off) + b"data")
        if ok:
            assert answer.startswith(b"HTTP/1.1 200"), answer
        else:
            assert answer.startswith(b"HTTP/1.1 403") and b"<Code>RequestTimeTooSkewed</Code>" in answer, answer
    assert upload.stored() == b"data"


def test_bodies_that_are_cut_or_lie(upload):
    upload.raw(upload.head(5 * MIB) + os.urandom(2 * MIB), answered=False)
    answer = upload.raw(upload.head(5 * MIB) + os.urandom(2 * MIB), half=True)  # no more comes, and it listens
    assert b" 200 " not in answer.split(b"\r\n")[0], answer
    assert upload.error("put_object", Body=b"x", ContentMD5="1B2M2Y8AsgTpgAmY7PhCfg==") == "BadDigest"
    assert upload.error("put_object", Body=b"x", ChecksumSHA256="47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=") == "BadDigest"
    assert upload.stored() is None
    # longer than its length: the digest is that of all of it
    answer = upload.raw(upload.head(4, payload=hashlib.sha256(b"data and more").hexdigest()) + b"data and more")
    assert b"<Code>XAmzContentSHA256Mismatch</Code>" in answer and upload.stored() is None, answer
    # without a digest, what is behind the body is no part of it
    answer = upload.raw(upload.head(4) + b"data and more")
    assert answer.startswith(b"HTTP/1.1 200") and upload.stored() == b"data", answer
    until(lambda: not upload.leftovers())


def signed_chunks(upload, chunks, seed, spoil=lambda n, text: text):
    """The body that goes with a head whose signature is `seed`: each chunk signed over the one before it."""
    key, day = f"AWS4{upload.creds['aws_secret_access_key']}".encode(), seed["date"][:8]
    for part in day, "us-east-1", "s3", "aws4_request":
        key = hmac.digest(key, part.encode(), "sha256")
    last, body = seed["signature"], b""
    for n, chunk in enumerate([*chunks, b""]):
        text = "\n".join(["AWS4-HMAC-SHA256-PAYLOAD", seed["date"], f"{day}/us-east-1/s3/aws4_request", last,
                          hashlib.sha256(b"").hexdigest(), hashlib.sha256(chunk).hexdigest()])
        last = hmac.new(key, text.encode(), "sha256").hexdigest()
        body += f"{len(chunk):x};chunk-signature={spoil(n, last)}\r\n".encode() + chunk + b"\r\n"
    return body


def test_chunks_that_are_signed_one_by_one(upload):
    chunks = [os.urandom(n) for n in (65536, 65536, 1024)]
    whole = sum(map(len, chunks))

    def send(change=lambda body: body, declared=whole, **kw):
        length = len(signed_chunks(upload, chunks, {"date": "20260101T000000Z", "signature": "0" * 64}))
        head = upload.head(length, payload="STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
                           headers={"Content-Encoding": "aws-chunked", "x-amz-decoded-content-length": str(declared)})
        seed = {"date": re.search(rb"X-Amz-Date: (\S+)", head)[1].decode(), "signature": re.search(rb"Signature=(\w+)", head)[1].decode()}
        return upload.raw(head + change(signed_chunks(upload, chunks, seed, **kw)))

    assert send().startswith(b"HTTP/1.1 200") and upload.stored() == b"".join(chunks)
    (upload.cluster.data / "objects" / upload.key).unlink()
    for n in 0, 2, 3:  # the first, the last with bytes, the empty one at the end
        assert b"<Code>SignatureDoesNotMatch</Code>" in send(spoil=lambda at, text, n=n: "0" * 64 if at == n else text)
    flip = lambda body: body[:70000] + bytes([body[70000] ^ 1]) + body[70001:]
    assert b"<Code>SignatureDoesNotMatch</Code>" in send(flip)
    assert b"<Code>SignatureDoesNotMatch</Code>" in send(lambda body: body.replace(b";chunk-signature=", b";chunk-autograph=", 1))
    for wrong in whole - 1, whole + 1:
        assert b"<Code>IncompleteBody</Code>" in send(declared=wrong)
    assert upload.stored() is None
    until(lambda: not upload.leftovers())


def test_lists_in_both_versions(trained):
    """Any S3 tool looks at checkpoints with a token that a proxy adds; both versions page the same."""
    cluster, job = trained
    prefix = f"training_projects/{job['training_project']['id']}/"

    def pages(version, **more):
        found, mark = [], {}
        for _ in range(50):
            query = urllib.parse.urlencode({"prefix": prefix, "max-keys": 2, **version, **more, **mark})
            status, body = cluster.api("GET", "/s3/stoker?" + query, raw=True)
            assert status == 200, body
            found += re.findall(r"<(?:Key|CommonPrefixes><Prefix)>([^<]+)<", body.decode())
            if b"<IsTruncated>false" in body:
                return found
            name, tag = ("continuation-token", "NextContinuationToken") if version else ("marker", "NextMarker")
            mark = {name: re.search(f"<{tag}>([^<]+)<", body.decode())[1]}
        raise AssertionError("pages without end")

    plain = pages({})
    assert len([k for k in plain if k.endswith("/w")]) == 3 and plain == pages({"list-type": 2}) == sorted(plain)
    below = {"prefix": f"{prefix}jobs/{job['id']}/rank-0/", "delimiter": "/"}
    folders = pages({}, **below)
    assert folders == pages({"list-type": 2}, **below) and len(folders) == len(set(folders)) >= 3


def test_parts_that_do_not_fit(upload):
    client = upload.client()
    here = {"Bucket": upload.bucket, "Key": upload.key}
    begun = client.create_multipart_upload(**here)["UploadId"]
    etag = {n: client.upload_part(**here, UploadId=begun, PartNumber=n, Body=bytes([n]) * 5 * MIB)["ETag"] for n in (1, 2)}

    def complete(*parts):
        return upload.error("complete_multipart_upload", UploadId=begun, MultipartUpload={"Parts": [{"PartNumber": n, "ETag": e} for n, e in parts]})

    assert complete((1, etag[1]), (2, etag[2]), (3, etag[1])) == "InvalidPart"  # the third never came
    assert complete((1, etag[2]), (2, etag[1])) == "InvalidPart"
    assert complete((2, etag[2]), (1, etag[1])) == "InvalidPartOrder"
    assert complete((1, etag[1]), (1, etag[1])) == "InvalidPartOrder"  # twice the same
    assert complete() == "MalformedXML"
    assert upload.error("upload_part", UploadId=begun, PartNumber=10001, Body=b"x") == "InvalidArgument"
    assert upload.error("upload_part", UploadId="none", PartNumber=1, Body=b"x") == "NoSuchUpload"
    # a part that was sent again counts as it came last
    etag[1] = client.upload_part(**here, UploadId=begun, PartNumber=1, Body=b"9" * 5 * MIB)["ETag"]
    client.complete_multipart_upload(**here, UploadId=begun, MultipartUpload={"Parts": [{"PartNumber": n, "ETag": etag[n]} for n in (1, 2)]})
    assert upload.stored() == b"9" * 5 * MIB + b"\2" * 5 * MIB
    assert complete((1, etag[1])) == "NoSuchUpload"
    begun = client.create_multipart_upload(**here)["UploadId"]
    client.abort_multipart_upload(**here, UploadId=begun)
    assert upload.error("upload_part", UploadId=begun, PartNumber=1, Body=b"x") == "NoSuchUpload"
    assert upload.leftovers() == []


def test_nothing_is_left_behind_after_the_janitor(upload):
    client = upload.client()
    begun = client.create_multipart_upload(Bucket=upload.bucket, Key=upload.key)["UploadId"]
    client.upload_part(Bucket=upload.bucket, Key=upload.key, UploadId=begun, PartNumber=1, Body=bytes(5 * MIB))
    upload.raw(upload.head(5 * MIB) + bytes(MIB), answered=False)
    client.put_object(Bucket=upload.bucket, Key=upload.key, Body=b"that no job names")
    kept = upload.cluster.push(["cat f"], files={"f": "named by a job\n"})
    upload.cluster.wait(kept, "TRAINING_JOB_COMPLETED")
    assert upload.leftovers()
    clean(upload)
    until(lambda: upload.stored() is None)
    again = upload.cluster.json("recreate", kept["id"])
    upload.cluster.wait(again, "TRAINING_JOB_COMPLETED")
    assert upload.cluster.user_lines(again) == ["named by a job"]


@pytest.mark.timeout(1800)
def test_slow_senders_keep_nobody_from_the_workers(empty_cluster):
    """As many as may read a body at once send a byte now and then: others are answered meanwhile, those are cut off, and a large body in pieces is
    taken."""
    cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--workers", "4")
    uploads = [Upload(cluster) for _ in range(2)]
    parts = urllib.parse.urlsplit(uploads[0].url)
    slow = [socket.create_connection((parts.hostname, parts.port), timeout=CALL_S) for _ in uploads]
    asked = socket.create_connection((parts.hostname, parts.port), timeout=CALL_S)
    asked.sendall(b"POST /v1/training_jobs/search HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + cluster.token.encode() +
                  b"\r\nContent-Length: 1000\r\n\r\n")  # a body that is kept in memory costs no worker at all
    for s, upload in zip(slow, uploads):
        s.sendall(upload.head(MIB))
    assert cluster.api("GET", "/v1/users/me")[0] == 200 and trickle(slow) == 2
    until(lambda: trickle([*slow, asked]) < 3, deadline=600, pause=0.5)  # one is cut off: its worker is free
    big = os.urandom(20 * MIB)
    fast = Upload(cluster)
    fast.client().put_object(Bucket=fast.bucket, Key=fast.key, Body=big)
    assert fast.stored() == big
    until(lambda: trickle(slow) == 0, deadline=600, pause=0.5)
    assert [u.stored() for u in uploads] == [None, None]
    for s in (*slow, asked):
        s.close()


def trickle(sockets):
    """A byte to each; how many are still open."""
    still = 0
    for s in sockets:
        try:
            s.sendall(b" ")
            still += 1
        except OSError:
            pass
    return still
