"""r2:// and cw:// from MinIO, gs:// from a server of Google's API, azure:// from Azurite."""
import base64
import hashlib
import io
import json
import os
import threading
import urllib.parse

import pytest
from conftest import CALL_S, until
from s3 import KEYS, S3Server, Weather, s3_running, s3_server
from stores import ACCOUNT, ACCOUNT_KEY, ACTS_AS, PROVIDER, azurite, google, unb64

ODD = "sub/a b+c%&=?#é.txt"
INSIDE = ("--cpus", "4", "--memory", "4Gi", "--allow-source-network", "127.0.0.0/8", "--allow-source-network", "::1/128")


def fetched(cluster, big, *rows):
    """One job with the sources of `rows`, each of which has big.bin and a file with an odd name; what it saw is right."""
    weights = [{k: v for k, v in {"mount_location": f"/{i}", **row}.items() if v} for i, row in enumerate(rows)]
    commands = [f"sha256sum < /{i}/big.bin; cat '/{i}/{ODD}'; ls /{i}" for i in range(len(rows))]
    job = cluster.push(commands, weights=weights)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    lines = cluster.user_lines(job)
    assert lines == [f"{hashlib.sha256(big).hexdigest()}  -", "odd", "big.bin", "sub"] * len(rows)
    return job


def refusal(cluster, **row):
    job = cluster.push(["true"], weights=[{"mount_location": "/d", **row}])
    row = cluster.wait(job, "TRAINING_JOB_DEPLOY_FAILED")
    return row["error_id"], row["error_message"]


def test_stores_that_speak_s3(empty_cluster):
    """R2's bucket stands behind its account; CoreWeave's is a name below its host."""
    big = os.urandom(20 << 20)
    with s3_server(empty_cluster.folder, "minio", MINIO_DOMAIN="store.localhost") as (endpoint, s3):
        port = endpoint.rpartition(":")[2]
        host = f"http://store.localhost:{port}"
        for name, body in (("train/big.bin", big), (f"train/{ODD}", b"odd\n"), ("other", b"not wanted")):
            s3.put_object(Bucket="data", Key=name, Body=body)
        cluster = empty_cluster.start(*INSIDE, "--allow-endpoint", endpoint, "--allow-endpoint", host)
        cluster.cli("secrets", "set", "keys", stdin=KEYS)
        fetched(cluster, big,
                {"source": "r2://0123456789abcdef.data/train", "endpoint": endpoint, "auth_secret_name": "keys"},
                {"source": "cw://data/train", "endpoint": host, "auth_secret_name": "keys"},
                {"source": "gs://data/train", "endpoint": endpoint, "auth_secret_name": "keys"})
        ids = [refusal(cluster, source=s, endpoint=endpoint)[0] for s in ("r2://acc.data/train", "cw://data/train")]
        assert ids == ["source_unauthorized"] * 2
        assert cluster.error("weights", "prefetch", "r2://acc.data/train", "--endpoint", "https://example.org") == "source_endpoint_denied"


class Watched(Weather):
    """What is asked of the store."""

    def __init__(self, store):
        super().__init__(store)
        self.seen, self.gate = [], threading.Event()
        self.gate.set()

    def forward(self, rq):
        body = rq.rfile.read(int(rq.headers.get("Content-Length", 0)))
        rq.rfile, line = io.BytesIO(body), rq.rfile
        self.seen.append((rq.command, rq.path, {k.lower(): v for k, v in rq.headers.items()}, body))
        self.gate.wait(CALL_S)
        super().forward(rq)
        rq.rfile = line


def test_a_role(empty_cluster):
    """The keys in the secret are shown to the service that gives out a role's, and files are read with those."""
    big, role = os.urandom(20 << 20), "arn:aws:iam::123456789012:role/reader"
    with s3_running(empty_cluster.folder, "minio") as store:
        for name, body in (("train/big.bin", big), (f"train/{ODD}", b"odd\n")):
            store.client.put_object(Bucket="data", Key=name, Body=body)
        watched = Watched(store)
        try:
            cluster = empty_cluster.start(*INSIDE, "--s3-endpoint", watched.endpoint)
            cluster.cli("secrets", "set", "keys", stdin=KEYS)
            auth = {"auth_method": "aws_assume_role", "aws_assume_role_arn": role, "aws_assume_role_region": "us-east-1", "auth_secret_name": "keys"}
            fetched(cluster, big, {"source": "s3://data/train", "auth": auth})
            asked = [headers for method, path, headers, body in watched.seen if method == "POST"]
            assert len(asked) == 1 and "/us-east-1/sts/aws4_request" in asked[0]["authorization"]
            assert all("x-amz-security-token" in headers for method, path, headers, body in watched.seen if method != "POST") and len(watched.seen) > 3

            # keys that may not; a role that is none; what cannot be
            cluster.cli("secrets", "set", "wrong", stdin=KEYS.replace("minio-secret-key", "another-secret-key"))
            id, said = refusal(cluster, source="s3://data/train", allow_patterns=["big.bin"], auth={**auth, "auth_secret_name": "wrong"})
            assert id == "source_denied" and role in said and "another-secret-key" not in said, said
            for change, where in (({"aws_assume_role_arn": "reader"}, "aws_assume_role_arn"), ({"aws_assume_role_arn": None}, "aws_assume_role_arn"),
                                  ({"aws_assume_role_region": "a/b"}, "aws_assume_role_region"), ({"auth_secret_name": None}, "auth_secret_name"),
                                  ({"auth_method": "CUSTOM_SECRET"}, "aws_assume_role_arn")):
                row = {"source": "s3://data/train", "mount_location": "/d", "auth": {k: v for k, v in {**auth, **change}.items() if v}}
                said = cluster.refusal("push", cluster.job_folder(["true"], weights=[row]) / "train.yaml", code=2)
                assert f"job.weights[0].auth.{where}" in json.dumps(said), (change, said)
            row = {"source": "gs://data/train", "mount_location": "/d", "auth": auth}
            said = cluster.refusal("push", cluster.job_folder(["true"], weights=[row]) / "train.yaml", code=2)
            assert "is for s3:// sources" in json.dumps(said)
        finally:
            watched.close()


class Revoking(Weather):
    """Refuses keys, and is in no hurry."""
    revoked, refused = (), 0

    def forward(self, rq):
        if any(f"Credential={key}/" in rq.headers.get("Authorization", "") for key in self.revoked):
            self.refused += 1
            text = b"<Error><Code>InvalidAccessKeyId</Code><Message>The key does not exist in our records.</Message></Error>"
            rq.send_response(403)
            rq.send_header("Content-Length", str(len(text)))
            rq.end_headers()
            return rq.wfile.write(text)
        return super().forward(rq)


def test_a_key_that_is_replaced_while_it_is_used(empty_cluster):
    """The new one is set, and the old one revoked: the fetch that runs goes on, and what it has it keeps."""
    cluster, n, size = empty_cluster, 200, 50_000
    with s3_running(cluster.folder, "gofakes3") as store:
        for i in range(n):
            store.client.put_object(Bucket="data", Key=f"train/{i:03}", Body=bytes([i]) * size)
        revoking = Revoking(store)
        try:
            revoking.fault = lambda method, path: ("slow", size) if path.startswith("/data/train/") else None
            cluster.start(*INSIDE, "--s3-endpoint", revoking.endpoint)
            cluster.cli("secrets", "set", "keys", stdin=KEYS.replace("minio-user", "old-user"))
            job = cluster.push(["cat /d/* | sha256sum"], weights=[{"source": "s3://data/train", "mount_location": "/d", "auth_secret_name": "keys"}])
            until(lambda: (cluster.job(job).get("progress") or {}).get("done_bytes", 0) > size)
            cluster.cli("secrets", "set", "keys", stdin=KEYS.replace("minio-user", "new-user"))
            revoking.revoked = ("old-user",)
            cluster.wait(job, "TRAINING_JOB_COMPLETED")
            assert revoking.refused > 0
            assert cluster.user_lines(job)[0].split()[0] == hashlib.sha256(b"".join(bytes([i]) * size for i in range(n))).hexdigest()

            # and who did not say the new one is told
            cluster.cli("secrets", "set", "keys", stdin=KEYS.replace("minio-user", "old-user"))
            assert refusal(cluster, source="s3://data/train", allow_patterns=["000"], auth_secret_name="keys")[0] == "source_denied"
        finally:
            revoking.close()


def claims(token):
    return json.loads(unb64(token.split(".")[1]))


def test_web_identity(empty_cluster):
    """A real store trusts this server as an issuer: no secret anywhere, and each project is another subject."""
    big, cluster = os.urandom(20 << 20), empty_cluster
    store = S3Server(cluster.folder, "minio")
    watched = Watched(store)
    audience = watched.endpoint.removeprefix("http://")
    role = "arn:minio:iam:::role/" + base64.urlsafe_b64encode(hashlib.sha1(audience.encode()).digest()).decode().rstrip("=")  # as MinIO names it
    try:
        cluster.start(*INSIDE, "--s3-endpoint", watched.endpoint, "--allow-endpoint", store.endpoint)
        store.env |= {"MINIO_IDENTITY_OPENID_CONFIG_URL": f"{cluster.url}/.well-known/openid-configuration", "MINIO_IDENTITY_OPENID_CLIENT_ID": audience,
                      "MINIO_IDENTITY_OPENID_ROLE_POLICY": "readwrite"}
        store.start()
        until(store.has_policies)
        store.client.create_bucket(Bucket="data")
        for name, body in (("train/big.bin", big), (f"train/{ODD}", b"odd\n")):
            store.client.put_object(Bucket="data", Key=name, Body=body)
        auth = {"auth_method": "aws_oidc", "aws_oidc_role_arn": role, "aws_oidc_region": "us-east-1"}
        job = fetched(cluster, big, {"source": "s3://data/train", "auth": auth})
        asked = [dict(urllib.parse.parse_qsl(body.decode())) for method, path, headers, body in watched.seen if method == "POST"]
        assert len(asked) == 1 and "authorization" not in next(h for m, p, h, b in watched.seen if m == "POST")
        team = next(t["id"] for t in cluster.json("teams", "ls") if t["default"])
        said = claims(asked[0]["WebIdentityToken"])
        assert said["iss"] == cluster.url and said["aud"] == audience and 0 < said["exp"] - said["iat"] <= 600
        assert said["sub"] == f"v=1:org=stoker:team={team}:project={job['training_project']['id']}:type=training"
        assert asked[0]["RoleSessionName"] == f"stoker-{job['id']}" and asked[0]["Action"] == "AssumeRoleWithWebIdentity"
        assert all("x-amz-security-token" in headers for method, path, headers, body in watched.seen if method != "POST")

        # what is public, and what is not
        status, keys = cluster.api("GET", "/.well-known/jwks.json", token="")
        assert status == 200 and set(keys["keys"][0]) == {"kty", "use", "alg", "kid", "n", "e"}
        assert asked[0]["WebIdentityToken"].rpartition(".")[2] not in cluster.log.read_text() and b"PRIVATE KEY" not in (cluster.data / "stoker.db").read_bytes()

        # at the same time: jobs of one project share a fetch, those of another one ask for themselves
        watched.gate.clear()
        watched.seen.clear()
        row = {"source": "s3://data/train", "mount_location": "/d", "allow_patterns": ["sub/*"], "auth": auth}
        jobs = [cluster.push(["true"], weights=[row], project=name) for name in ("q", "q", "r")]
        until(lambda: len(watched.seen) == 2)
        watched.gate.set()
        for job in jobs:
            cluster.wait(job, "TRAINING_JOB_COMPLETED")
        subjects = [claims(dict(urllib.parse.parse_qsl(body.decode()))["WebIdentityToken"])["sub"] for method, path, headers, body in watched.seen if method == "POST"]
        assert sorted(s.split(":")[3] for s in subjects) == sorted({f"project={job['training_project']['id']}" for job in jobs}), subjects

        # another role; a store that is another audience; who cannot be believed at all
        id, words = refusal(cluster, source="s3://data/train", allow_patterns=["big.bin"], auth={**auth, "aws_oidc_role_arn": role[:-3] + "xyz"})
        assert id == "source_denied" and "RoleArn" in words and f"issuer {cluster.url}, audience {audience}, subject v=1:org=stoker:team=" in words, words
        id, words = refusal(cluster, source="s3://data/train", endpoint=store.endpoint, auth=auth)
        assert id == "source_denied" and "must match configured OpenID Client ID" in words and f"audience {store.endpoint.removeprefix('http://')}," in words, words
        google = {"auth_method": "GCP_OIDC", "gcp_oidc_service_account": ACTS_AS, "gcp_oidc_workload_id_provider": PROVIDER}
        row = {"source": "gs://data/train", "mount_location": "/d", "auth": google}
        assert cluster.error("push", cluster.job_folder(["true"], weights=[row]) / "train.yaml", code=2) == "issuer_not_public"
    finally:
        watched.close()
        if store.process:
            store.close()


def test_google(empty_cluster):
    big = os.urandom(40 << 20)
    folder = empty_cluster.folder
    with google(folder / "google") as store:
        for name, body in (("train/big.bin", big), (f"train/{ODD}", b"odd\n"), ("other", b"not wanted")):
            store.put(name, body)
        for i in range(1100):
            store.put(f"many/{i}", b"%d" % i)
        cluster = empty_cluster.start(*INSIDE, "--allow-endpoint", store.endpoint)
        cluster.cli("secrets", "set", "gcs", stdin=store.account())
        here = {"endpoint": store.endpoint, "auth_secret_name": "gcs"}
        fetched(cluster, big, {"source": "gs://data/train", **here})
        assert store.asked == 1 and store.claims[0]["iss"] == "reader@p.iam.gserviceaccount.com"
        assert store.claims[0]["scope"] == "https://www.googleapis.com/auth/devstorage.read_only" and store.claims[0]["aud"] == f"{store.endpoint}/token"

        # two pages; one object; a new content of the same name
        job = cluster.push(["ls /m | wc -l; cat /m/1099; echo; cat /o/other"], weights=[{"source": "gs://data/many", "mount_location": "/m", **here},
                                                                                 {"source": "gs://data/other", "mount_location": "/o", **here}])
        cluster.wait(job, "TRAINING_JOB_COMPLETED")
        assert cluster.user_lines(job) == ["1100", "1099", "not wanted"]
        store.put("other", b"changed")
        job = cluster.push(["cat /o/other"], weights=[{"source": "gs://data/other", "mount_location": "/o", **here}])
        cluster.wait(job, "TRAINING_JOB_COMPLETED")
        assert cluster.user_lines(job) == ["changed"]

        # public or not
        id, words = refusal(cluster, source="gs://data/train", endpoint=store.endpoint)
        assert id == "source_unauthorized" and "no credentials configured: need either OIDC config or secret_id" in words
        store.public = True
        fetched(cluster, big, {"source": "gs://data/train", "endpoint": store.endpoint})
        store.public = False

        # secrets that are none
        account = json.loads(store.account())
        for value, words in (("hf_token", "not JSON"), (json.dumps({"type": "service_account"}), "client_email is missing"),
                             (json.dumps(account | {"private_key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}), "private_key in the service account's JSON is not an RSA private key"),
                             (json.dumps({k: v for k, v in account.items() if k != "token_uri"}), "token_uri is missing")):
            cluster.cli("secrets", "set", "wrong", stdin=value)
            id, said = refusal(cluster, source="gs://data/many", endpoint=store.endpoint, auth_secret_name="wrong", allow_patterns=["1"])
            assert id == "source_secret_invalid" and words in said and "BEGIN" not in said, said
        store.refuse = (400, {"error": "invalid_grant", "error_description": "Invalid JWT: Token must be a short-lived token"})
        id, said = refusal(cluster, source="gs://data/many", allow_patterns=["2"], **here)
        assert id == "source_denied" and "invalid_grant: Invalid JWT: Token must be" in said and "clock" in said
        store.refuse = None
        assert cluster.error("weights", "prefetch", "gs://data/x@main", code=2) == "source_invalid"

        # by web identity: the pool believes what this server has signed, and the service account lets one subject act as it
        store.trusts = cluster.url
        auth = {"auth_method": "GCP_OIDC", "gcp_oidc_service_account": ACTS_AS, "gcp_oidc_workload_id_provider": f"//iam.googleapis.com/{PROVIDER}"}
        row = {"source": "gs://data/train", "endpoint": store.endpoint, "auth": auth}
        id, said = refusal(cluster, allow_patterns=["3"], **row)
        subject = store.claims[-1]["sub"]
        assert id == "source_denied" and "PERMISSION_DENIED" in said and f"subject {subject}" in said and "Workload Identity User" in said, said
        store.subjects, asked = (subject,), store.asked
        fetched(cluster, big, row)
        assert store.asked == asked + 1
        # one that ends at once is had anew for each request
        for name in ("late/1", "late/2"):
            store.put(name, b"late")
        store.life_s, asked = 0, store.asked
        cluster.wait(cluster.push(["cat /d/1 /d/2"], weights=[{"mount_location": "/d", **row, "source": "gs://data/late"}]), "TRAINING_JOB_COMPLETED")
        assert store.asked >= asked + 3
        # another team is another subject, whatever it calls itself and what it asks for
        key = cluster.people({"stranger": (f"x:team={subject.split(':')[2]}", "member")})["stranger"]
        folder = cluster.job_folder(["true"], weights=[{"mount_location": "/d", **row}])
        job = json.loads(cluster.cli("push", folder / "train.yaml", "-o", "json", token=key).out)
        cluster.wait(job, "TRAINING_JOB_DEPLOY_FAILED")
        assert store.claims[-1]["sub"] == f"v=1:org=stoker:team={job['team']['id']}:project={job['training_project']['id']}:type=training" != subject
        store.trusts = "http://127.0.0.1:1"
        id, said = refusal(cluster, allow_patterns=["4"], **row)
        assert id == "source_denied" and "invalid_grant" in said and f"audience {store.endpoint}/{PROVIDER}" in said and "[redacted]" in said, said


def test_azure(empty_cluster):
    big = os.urandom(40 << 20)
    with azurite(empty_cluster.folder / "azure") as store:
        for name, body in (("train/big.bin", big), (f"train/{ODD}", b"odd\n"), ("other", b"not wanted")):
            store.put(name, body)
        store.container("open", x_ms_blob_public_access="container")
        store.container("each", x_ms_blob_public_access="blob")
        for name in ("open", "each"):
            store.put("train/big.bin", big, name)
            store.put(f"train/{ODD}", b"odd\n", name)
        cluster = empty_cluster.start(*INSIDE, "--allow-endpoint", store.endpoint)
        connection = f"DefaultEndpointsProtocol=https;AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};EndpointSuffix=core.windows.net"
        for name, value in (("key", ACCOUNT_KEY), ("json", json.dumps({"account_key": ACCOUNT_KEY})), ("sas", store.sas()), ("sas2", json.dumps({"sas_token": "?" + store.sas()})),
                            ("line", connection)):
            cluster.cli("secrets", "set", name, stdin=value)
        source = f"azure://{ACCOUNT}/data/train"
        rows = [{"source": source, "endpoint": store.endpoint, "auth_secret_name": name} for name in ("key", "json", "sas", "sas2", "line")]
        fetched(cluster, big, *rows, {"source": f"azure://{ACCOUNT}/open/train", "endpoint": store.endpoint})

        # two pages
        for i in range(1001):
            store.put(f"many/{i}", b"%d" % i)
        job = cluster.push(["ls /m | wc -l; cat /m/1000"], weights=[{**rows[0], "source": f"azure://{ACCOUNT}/data/many", "mount_location": "/m"}])
        cluster.wait(job, "TRAINING_JOB_COMPLETED")
        assert cluster.user_lines(job) == ["1001", "1000"]

        # one blob, also where only blobs are public
        one = {"source": f"azure://{ACCOUNT}/each/train/{ODD[:0]}big.bin", "endpoint": store.endpoint, "mount_location": "/d"}
        job = cluster.push(["sha256sum < /d/big.bin"], weights=[one])
        cluster.wait(job, "TRAINING_JOB_COMPLETED")
        assert cluster.user_lines(job) == [f"{hashlib.sha256(big).hexdigest()}  -"]
        id, words = refusal(cluster, source=source, endpoint=store.endpoint)
        assert "not public" in words and "auth_secret_name" in words, (id, words)

        for value, id, words in (("not base64!", "source_secret_invalid", "account key is not base64"), ('{"key": 1}', "source_secret_invalid", "account_key is missing"),
                                 ("sig=abc", "source_secret_invalid", "no sv and sig"), ("AccountName=another;AccountKey=" + ACCOUNT_KEY, "source_secret_invalid", "of the account another"),
                                 (base64.b64encode(b"x" * 64).decode(), "source_denied", ""), (store.sas(rights="w"), "source_denied", ""), (store.sas(life_s=-60), "source_denied", "")):
            cluster.cli("secrets", "set", "wrong", stdin=value)
            got, said = refusal(cluster, source=f"azure://{ACCOUNT}/data/other", endpoint=store.endpoint, auth_secret_name="wrong")
            assert (got, words in said) == (id, True), (value, got, said)
            assert "sig=" not in said.replace("no sv and sig", "") and value[-20:] not in said, said
        assert cluster.error("weights", "prefetch", "azure://data/x", code=2) == "source_invalid"


SAVES = ("python3 - <<'E'\nimport json, os\nd = os.environ['BT_CHECKPOINT_DIR'] + '/{name}'\nos.makedirs(d + '/sub')\nopen(d + '/sub/note', 'w').write('{name}')\n"
         "h = json.dumps({{'w': {{'dtype': 'U8', 'shape': [9], 'data_offsets': [0, 9]}}}}).encode()\n"
         "open(d + '/model.safetensors', 'wb').write(len(h).to_bytes(8, 'little') + h + b'{text}')\nE")


def save(name, text):
    """A command that writes a checkpoint with these nine bytes."""
    return SAVES.format(name=name, text=text)


LARGE = 3_000_001  # bytes: more than what is fetched in memory


def test_checkpoints_as_weights(empty_cluster):
    """bt://: what a job has saved is what another one starts from; it is fetched once, and stays what it was."""
    cluster = empty_cluster.start("--cpus", "4", "--memory", "4Gi")
    tail = "tail -c 9 /w/model.safetensors; echo; cat /w/sub/note; echo; test ! -w /w/sub/note"
    ckpt = {"checkpointing_config": {"enabled": True, "settle": "1s"}}
    large = "head -c {size} /dev/urandom > $BT_CHECKPOINT_DIR/{name}.tmp; mv $BT_CHECKPOINT_DIR/{name}.tmp $BT_CHECKPOINT_DIR/{name}/large.bin"
    first = cluster.push([command for n, text in ((1, "one......"), (2, "two......")) for name in [f"checkpoint-{n}"]
                          for command in (save(name, text), large.format(size=LARGE, name=name))], runtime=ckpt, project="train")
    cluster.wait(first, "TRAINING_JOB_COMPLETED")

    def seen(source, **row):
        job = cluster.push([tail], project="other", weights=[{"source": source, "mount_location": "/w", **row}])
        cluster.wait(job, "TRAINING_JOB_COMPLETED")
        return job, cluster.user_lines(job)

    assert seen(f"bt://train@{first['id']}/checkpoint-1")[1] == ["one......", "checkpoint-1"]
    latest, lines = seen("bt://train")
    assert lines == ["two......", "checkpoint-2"]
    assert seen(f"bt://train@{first['id']}")[1] == seen("bt://train@latest/checkpoint-2")[1] == lines
    rows = [w for w in cluster.json("weights", "ls") if w["source"] == "bt://train"]
    assert len(rows) == 1 and rows[0]["revision"].startswith(f"{first['id']}/checkpoint-2@")
    cluster.cli("weights", "prefetch", "bt://train", "--allow", "sub/*")

    # one machine keeps one copy
    inodes = [{p.stat().st_ino for p in (cluster.data / folder).rglob("*") if p.is_file() and p.stat().st_size == LARGE} for folder in ("objects", "store/blobs")]
    assert len(inodes[0]) == 2 and inodes[1] == inodes[0], inodes

    # a newer job: a new job takes its checkpoint, one that is made again has what it had, also when that is gone
    second = cluster.push([save("checkpoint-9", "nine.....")], runtime=ckpt, project="train")
    cluster.wait(second, "TRAINING_JOB_COMPLETED")
    assert seen("bt://train")[1] == ["nine.....", "checkpoint-9"]
    cluster.cli("checkpoints", "rm", f"{first['id']}/checkpoint-2", "--yes")
    again = json.loads(cluster.cli("recreate", latest["id"], "-o", "json").out)
    cluster.wait(again, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(again) == lines

    # of several nodes, each part is in a folder of its own
    both = cluster.push([save("checkpoint-1", "both.....")], runtime=ckpt, project="pair",
                        compute={"cpu_count": 1, "memory": "256Mi", "node_count": 2})
    cluster.wait(both, "TRAINING_JOB_COMPLETED")
    job = cluster.push(["cat /w/rank-0/sub/note /w/rank-1/sub/note; ls /w"], project="other", weights=[{"source": "bt://pair", "mount_location": "/w"}])
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    assert cluster.user_lines(job) == ["checkpoint-1checkpoint-1rank-0", "rank-1"]

    # what there is not
    for source, error in (("bt://nothing", "project_not_found"), ("bt://train@abcdefg", "job_not_found"), (f"bt://train@{first['id']}/checkpoint-2", "checkpoint_not_found"),
                          (f"bt://other@{first['id']}", "job_not_found")):
        assert cluster.error("weights", "prefetch", source) == error, source
    for source in ("bt://", "bt://train/", "bt://train@", "bt://loops:run/weights/a", "bt://train/../x"):
        assert cluster.error("weights", "prefetch", source, code=2) == "source_invalid", source
    assert cluster.error("weights", "prefetch", "bt://train", "--endpoint", "https://example.org", code=2) == "source_invalid"
    key = cluster.people({"stranger": ("others", "member")})["stranger"]
    assert cluster.error("weights", "prefetch", "bt://train", token=key) == "project_not_found"
