"""Webhooks: a real receiver checks what it is sent as the documentation says, fails, hangs, and comes back."""
import base64
import hashlib
import hmac
import http.server
import json
import queue
import re
import threading

import pytest
from conftest import DEADLINE_S, until

KEY = "whsec_" + base64.b64encode(b"a key of 32 bytes, well, almost.").decode()
TOKEN = "T0KEN-of-this-webhook"


class Receiver:
    """Keeps every request; answers what `answers` says first, then 204. None: it never answers."""

    def __init__(self, *answers):
        self.got = queue.Queue()
        self.answers, self.free = list(answers), threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.got.put((self.path, dict(self.headers.items()), body))
                code = outer.answers.pop(0) if outer.answers else 204
                if code is None:
                    outer.free.wait(DEADLINE_S)
                    return
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hooks/{TOKEN}"

    def next(self):
        path, headers, body = self.got.get(timeout=DEADLINE_S)
        assert path == f"/hooks/{TOKEN}"
        return {k.lower(): v for k, v in headers.items()}, json.loads(body), body

    def close(self):
        self.free.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver():
    made = []

    def make(*answers):
        made.append(Receiver(*answers))
        return made[-1]

    yield make
    for r in made:
        r.close()


@pytest.fixture
def near(empty_cluster):
    return empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--allow-source-network", "127.0.0.0/8")


def hook(cluster, name, receiver, key=None):
    cluster.cli("secrets", "set", name, stdin=receiver.url + (f"\n{key}" if key else "") + "\n")


def events(cluster, job):
    return [e["message"] for e in cluster.json("events", job["id"]) if e["kind"] == "notify"]


def signature(headers, body):
    """What docs/operating.md tells a receiver to do."""
    text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    key = base64.b64decode(KEY[len("whsec_"):])
    return "v1," + base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()


def test_told_signed_and_without_secrets(near, receiver):
    r = receiver()
    hook(near, "ops", r, KEY)
    near.cli("secrets", "set", "hf", stdin="hf_0123456789abcdef")
    job = near.push(["sh -c 'echo $HF_TOKEN; exit 3' hf_0123456789abcdef"], name="n",
                    notify=[{"webhook": "ops", "on": ["running", "failed"]}],
                    runtime={"environment_variables": {"HF_TOKEN": {"secret": "hf"}}})
    done = near.wait(job, "TRAINING_JOB_FAILED")
    seen = {}
    for _ in range(2):
        headers, said, body = r.next()
        assert headers["webhook-signature"] == signature(headers, body)
        assert re.fullmatch(r"msg_[a-z0-9]{20}", headers["webhook-id"]) and headers["content-type"] == "application/json"
        assert b"hf_0123" not in body and TOKEN.encode() not in body
        seen[said["type"]] = said
    assert set(seen) == {"job.running", "job.failed"}
    done = json.loads(json.dumps(done).replace("hf_0123456789abcdef", "[redacted]"))  # its command says it
    failed, data = seen["job.failed"], seen["job.failed"]["data"]
    assert f"p/n ({job['id']}): job failed: exit code 3" in failed["text"] and "[redacted]" in failed["text"]
    for field in ("id", "name", "current_status", "training_project", "team", "reason", "error_message", "end",
                  "attempt", "created_at", "started_at", "ended_at", "user"):
        assert data[field] == done[field], field
    assert near.api("GET", failed["url"].removeprefix(near.url))[1]["training_job"]["id"] == job["id"]
    assert seen["job.running"]["data"]["current_status"] == "TRAINING_JOB_RUNNING"
    assert seen["job.running"]["data"]["ended_at"] is None
    until(lambda: sorted(events(near, job)) == ["delivered to webhook ops: failed", "delivered to webhook ops: running"])
    near.stop()
    for path in near.data.rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes(), path
    assert TOKEN not in near.log.read_text()


def test_a_server_that_is_killed_tells_again(empty_cluster, receiver):
    """Between the answer and the row: the receiver knows the second one by its id."""
    r = receiver()
    c = empty_cluster.start("--cpus", "4", "--memory", "4Gi", "--allow-source-network", "127.0.0.0/8",
                            env={"STOKER_CRASH_AT": "notify:told"})
    hook(c, "ops", r)
    job = c.push(["true"], notify=[{"webhook": "ops", "on": ["completed"]}])
    first = r.next()
    assert c.process.wait(DEADLINE_S) == 9
    assert "webhook-signature" not in first[0]  # the secret has no second line
    c.restart()
    again = r.next()
    assert again[0]["webhook-id"] == first[0]["webhook-id"] and again[2] == first[2]
    assert again[1]["data"]["id"] == job["id"]
    until(lambda: events(c, job) == ["delivered to webhook ops: completed"])


def test_tried_again(near, receiver):
    r = receiver(302, 503)
    hook(near, "ops", r)
    job = near.push(["true"], notify=[{"webhook": "ops", "on": ["completed"]}])
    ids = {r.next()[0]["webhook-id"] for _ in range(3)}
    assert len(ids) == 1
    until(lambda: len(events(near, job)) == 2)
    assert events(near, job) == [
        "delivery to webhook ops failed: completed: it answered 302, and redirects are not followed; retrying",
        "delivered to webhook ops: completed, attempt 3"]


def test_one_that_hangs_holds_nobody_up(near, receiver):
    dead, alive = receiver(*[None] * 50), receiver()
    hook(near, "dead", dead)
    hook(near, "alive", alive)
    both = [{"webhook": "dead"}, {"webhook": "alive"}]
    jobs = [near.push(["true"], notify=both) for _ in range(3)]
    told = {alive.next()[1]["data"]["id"] for _ in jobs}
    assert told == {j["id"] for j in jobs}
    for job in jobs:
        near.wait(job, "TRAINING_JOB_COMPLETED")
    dead.free.set()
    until(lambda: all(any("dead" in e for e in events(near, j)) for j in jobs))


def test_another_attempt_and_another_job(near, receiver):
    r = receiver()
    hook(near, "ops", r)
    job = near.push(["test $BT_RETRY_COUNT = 1 || exit 75"], retry={"on": ["exit:75"], "max_attempts": 2},
                    notify=[{"webhook": "ops", "on": ["running", "retrying", "completed"]}])
    said = sorted((s["type"], s["data"]["attempt"]) for s in (r.next()[1] for _ in range(4)))
    assert said == [("job.completed", 2), ("job.retrying", 1), ("job.running", 1), ("job.running", 2)]
    again = json.loads(near.cli("recreate", job["id"], "-o", "json").out)
    said = [r.next()[1]["data"] for _ in range(4)]
    assert {s["id"] for s in said} == {again["id"]} and said[0]["recreated_from"] == job["id"]


def test_refused_before_it_runs(near, receiver):
    """By name and place, and the URL is not repeated."""
    def push(**notify):
        folder = near.job_folder(["true"], notify=[notify])
        return near.refusal("push", folder / "train.yaml", code=2)

    [problem] = push(webhook="ops", on=["complete"])["problems"]
    assert problem["path"] == "job.notify[0].on[0]" and problem["line"] and '"completed"' in problem["message"], problem
    said = push(webhook=f"https://h/{TOKEN}")
    assert [p["path"] for p in said["problems"]] == ["job.notify[0].webhook"] and TOKEN not in str(said)
    assert push(webhook="ops")["error"]["id"] == "secret_not_set"
    near.cli("secrets", "set", "ops", stdin=TOKEN)
    said = push(webhook="ops")
    assert said["error"]["id"] == "invalid" and "ops" in said["error"]["message"] and TOKEN not in str(said)
    assert near.json("ps", "-a") == []


def test_the_guard_of_sources_holds(cluster, receiver):
    """Nothing on this machine's own network is called unless it is allowed."""
    r = receiver()
    hook(cluster, "ops", r)
    folder = cluster.job_folder(["true"], notify=[{"webhook": "ops"}])
    assert "--allow-source-network" in cluster.cli("push", folder / "train.yaml", code=2).err
    cluster.cli("secrets", "set", "ops", stdin=r.url.replace("http:", "https:"))
    job = json.loads(cluster.cli("push", folder / "train.yaml", "-o", "json").out)
    cluster.wait(job, "TRAINING_JOB_COMPLETED")
    until(lambda: events(cluster, job))
    assert "internal network" in events(cluster, job)[0] and TOKEN not in events(cluster, job)[0]
    assert r.got.empty()
