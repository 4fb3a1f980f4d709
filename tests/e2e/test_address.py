"""A server behind another address: URLs of objects follow the one that the client used."""
import http.client
import json
import socket
import subprocess

from conftest import CALL_S, STOKER, until
from web import Handler, serving

CHECKPOINT = ["mkdir $BT_CHECKPOINT_DIR/checkpoint-1; echo weights > $BT_CHECKPOINT_DIR/checkpoint-1/model.bin"]
RUNTIME = {"checkpointing_config": {"enabled": True, "settle": "1s"}}


def forwarder(port, extra, keep_host=False):
    """A reverse proxy in front of `port`; extra(handler) gives the headers that it adds."""
    class Forwarder(Handler):
        def forward(self):
            body = self.body()
            headers = {k: v for k, v in self.headers.items() if keep_host or k.lower() != "host"}
            upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=CALL_S)
            upstream.request(self.command, self.path, body, {**headers, **extra(self)})
            reply = upstream.getresponse()
            own = ("content-length", "transfer-encoding", "connection")
            self.answer(reply.status, reply.read(), [h for h in reply.getheaders() if h[0].lower() not in own])
            upstream.close()

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = forward

    return Forwarder


def round_trip(cluster, url, **env):
    """Push, wait, pull: all that touches objects, through this address alone."""
    env = cluster.environment(STOKER_URL=url, STOKER_TOKEN=cluster.token, **env)
    folder = cluster.job_folder(CHECKPOINT, runtime=RUNTIME)

    def run(*args):
        done = subprocess.run([STOKER, *map(str, args)], env=env, capture_output=True, text=True, timeout=CALL_S, cwd=folder, check=False)
        assert done.returncode == 0, done
        return done.stdout
    run("push", "-f")
    run("checkpoints", "pull", "@/latest", "here")
    assert (folder / "here/rank-0/checkpoint-1/model.bin").read_text() == "weights\n"
    assert not [line for line in run("doctor").splitlines() if line.startswith("fail")]


def endpoint(cluster, **headers):
    status, reply = cluster.api("GET", "/v1/blobs/credentials/train", headers=headers)
    assert status == 200
    return reply["creds"]["endpoint_url"]


def test_tls_on_every_address(empty_cluster, certificate):
    """The certificate is for localhost; the server only knows that it listens everywhere."""
    c, machine = empty_cluster, ["--gpus", "H100:1", "--cpus", "2", "--memory", "1Gi"]
    c.start(*machine)
    team = c.json("teams", "ls")[0]["id"]
    c.api("PATCH", "/v1/training/capacity", {"team_id": team, "gpu_type": "H100", "max_gpus": 0})  # what asks for one waits
    c.stop()
    c.launch([STOKER, "server", "--data", str(c.data), "--listen", f"0.0.0.0:{c.port}", "--tls-cert", certificate[0], "--tls-key",
              certificate[1], *machine])
    env = c.environment(STOKER_URL=f"https://localhost:{c.port}", STOKER_TOKEN=c.token, STOKER_CA_FILE=certificate[0])

    def run(*args):
        return subprocess.run([STOKER, *map(str, args)], env=env, capture_output=True, text=True, timeout=CALL_S, check=False)
    pushed = run("push", c.job_folder(["true"], compute={"accelerator": "H100:1", "memory": "256Mi"}) / "train.yaml")
    assert pushed.returncode == 0, pushed
    doctor = run("doctor")
    assert doctor.returncode == 0, doctor
    stopped = run("stop", "--all", "--now", "-y")
    assert stopped.returncode == 0, stopped
    until(lambda: json.loads(run("ps", "-o", "json").stdout) == [])
    c.stop()  # the helpers of a cluster know no certificates


def test_a_tunnel_from_another_port(cluster):
    with serving(forwarder(cluster.port, lambda h: {}, keep_host=True)) as port:
        url = f"http://127.0.0.1:{port}"
        assert endpoint(cluster, Host=f"127.0.0.1:{port}") == f"{url}/s3"
        round_trip(cluster, url)


def test_a_proxy_that_ends_tls(cluster, certificate):
    """It is on this machine, so it is believed; Host is its own."""
    with serving(forwarder(cluster.port, lambda h: {"X-Forwarded-Proto": "https", "X-Forwarded-Host": h.headers["Host"]}), certificate) as port:
        round_trip(cluster, f"https://localhost:{port}", STOKER_CA_FILE=certificate[0])
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "stoker.example.com, inner:1"}
    assert endpoint(cluster, **forwarded) == "https://stoker.example.com/s3"
    assert endpoint(cluster, Host="[::1]:99") == "http://[::1]:99/s3"
    own = f"{cluster.url}/s3"
    for nonsense in "a b", "a/b", "x@y", "a\"b", "a:99999", "-" * 300, "[::1", "a?b", "a#b":
        assert endpoint(cluster, **{"X-Forwarded-Host": nonsense}) == own, nonsense
    assert endpoint(cluster, **{"X-Forwarded-Proto": "gopher"}) == own


def test_who_is_no_proxy_is_not_believed(empty_cluster):
    empty_cluster.start("--trusted-proxy", "192.0.2.0/24", "--cpus", "1", "--memory", "1Gi")
    assert endpoint(empty_cluster, **{"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example.com"}) == f"{empty_cluster.url}/s3"
    assert empty_cluster.stop() is None
    code = subprocess.run([STOKER, "server", "--data", str(empty_cluster.data), "--trusted-proxy", "nonsense"], env=empty_cluster.environment(),
                          capture_output=True, timeout=CALL_S, check=False).returncode
    assert code == 2


def test_a_base_url_wins(empty_cluster):
    empty_cluster.start("--base-url", "https://stoker.example.com", "--cpus", "1", "--memory", "1Gi")
    assert endpoint(empty_cluster, Host="elsewhere:1", **{"X-Forwarded-Host": "there:2"}) == "https://stoker.example.com/s3"


def test_the_front_page_says_where_it_is(cluster):
    page = cluster.api("GET", "/", token="", headers={"Host": "stoker.lan:81"}, raw=True)[1].decode()
    assert "http://stoker.lan:81" in page and "localhost:8000" not in page.replace("remote_url = http://localhost:8000", "")
    assert "http_proxy=http://stoker.lan:81" in page  # the stock client knows one address alone
    page = cluster.api("GET", "/", token="", headers={"Host": "localhost:8000"}, raw=True)[1].decode()
    assert "http_proxy" not in page


def test_a_client_of_a_plain_proxy(cluster):
    """The stock client is told http_proxy: its targets are whole URLs of a host that is none."""
    with socket.create_connection(("127.0.0.1", cluster.port), timeout=CALL_S) as s:
        s.sendall(f"GET http://localhost:8000/v1/blobs/credentials/train HTTP/1.1\r\nHost: localhost:8000\r\n"
                  f"Authorization: Bearer {cluster.token}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while chunk := s.recv(65536):
            answer += chunk
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["creds"]["endpoint_url"] == f"{cluster.url}/s3"
