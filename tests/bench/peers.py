"""What the rows are measured against, and the servers that all of them read: found, started on private ports, stopped."""
import base64
import hmac
import json
import mmap
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
PARTS = pathlib.Path(os.environ.get("STOKER_PARTS", pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
                                    / "stoker-parts"))
PEERS = "run `tools/parts.sh bench`"
START_S, STOP_S = 30, 20
KEY, SECRET = "bench-user", "bench-secret-key"
AZURE, AZURE_KEY = "devstoreaccount1", "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # Azurite's, everybody's
AZURE_VERSION = "2021-08-06"


def tool(name):
    """The path of a program of the parts, else of the machine; None."""
    for folder in ("peers/bin", "bin", "olah/bin"):
        if os.access(PARTS / folder / name, os.X_OK):
            return str(PARTS / folder / name)
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def version(name, *args):
    path = tool(name)
    if not path:
        return ""
    done = subprocess.run([path, *(args or ("--version",))], capture_output=True, text=True, timeout=30)
    found = re.search(r"\d+\.\d+(\.\d+)*", done.stdout + done.stderr)
    return found.group(0) if found else "?"


def go_version(name, module):
    """Of a program that `go install` built: it names only Go's own, but its module's is inside."""
    path = tool(name)
    if not path:
        return ""
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as content:
        found = re.search(rb"mod\t" + re.escape(module.encode()) + rb"\t(v[0-9.]+)-?(\d{8})?", content)
        return (found[2] or found[1]).decode() if found else "?"


def wheel_version(folder, name):
    """Of a package in one of the parts' virtual environments, whose program does not say it."""
    found = [p.name.split("-")[1].removesuffix(".dist") for p in (PARTS / folder).glob(f"lib/python3*/site-packages/{name}-*.dist-info")]
    return found[0] if found else ""


def minio_version():
    return go_version("minio", "github.com/minio/minio")


def free_port(address="127.0.0.1"):
    with socket.socket() as s:
        s.bind((address, 0))
        return s.getsockname()[1]


def until(what, deadline=START_S, pause=0.02):
    end = time.monotonic() + deadline
    while not (found := what()):
        if time.monotonic() > end:
            raise RuntimeError(f"nothing after {deadline} s")
        time.sleep(pause)
    return found


def answers(url):
    try:
        urllib.request.urlopen(url, timeout=5).read()
        return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


class Server:
    """A process of ours, stopped by its id; also when the row was broken off before it was ready."""
    process = None
    begun = []

    def begin(self, argv, log, **kw):
        with open(log, "ab") as out:
            self.process = subprocess.Popen([str(a) for a in argv], stderr=out, start_new_session=True,
                                            **{"stdin": subprocess.DEVNULL, "stdout": out, **kw})
        Server.begun.append(self)
        return self

    @property
    def pid(self):
        return self.process.pid

    def stop(self, how=signal.SIGTERM):
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def stop_all():
    for server in reversed(Server.begun):
        server.stop()


class Nginx(Server):
    """Static files; those under /api/ look like a Hub's listing, those under /bench/ are the files."""

    def __init__(self, folder, www, rate_mb_s=0, http="", server="", address="127.0.0.1", tls=False):
        """rate_mb_s: what a connection gets; 0 is all there is. http, server: more of its configuration. tls: at tls_url, too."""
        port = free_port(address)
        self.url = f"http://{address}:{port}"
        if tls:
            self.certificate, key, tls_port = folder / "nginx.pem", folder / "nginx.key", free_port(address)
            subprocess.run([tool("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=bench",
                            "-addext", f"subjectAltName=IP:{address}", "-keyout", key, "-out", self.certificate], check=True, capture_output=True)
            self.tls_url = f"https://{address}:{tls_port}"
            server += f" listen {address}:{tls_port} ssl backlog=1024; ssl_certificate {self.certificate}; ssl_certificate_key {key}; ssl_protocols TLSv1.3;"
        conf = folder / "nginx.conf"
        conf.write_text(f"""
            daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.err;
            events {{ worker_connections 4096; }}
            http {{
              access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; sendfile_max_chunk 512k;
              client_body_temp_path {folder}/nx1; proxy_temp_path {folder}/nx2; fastcgi_temp_path {folder}/nx3;
              uwsgi_temp_path {folder}/nx4; scgi_temp_path {folder}/nx5; {http}
              server {{ listen {address}:{port} backlog=1024; root {www}; autoindex on;
                        default_type application/octet-stream; limit_rate {rate_mb_s * 1000}k; {server} }}
            }}""")
        self.begin([tool("nginx"), "-e", folder / "nginx.err", "-c", conf], folder / "nginx.out")
        until(lambda: answers(self.url))


class Olah(Server):
    """A mirror of a Hub, on a folder of its own."""

    def __init__(self, folder, upstream):
        port, at, host = free_port(), folder / "olah", upstream.removeprefix("http://")
        at.mkdir()
        self.url = f"http://127.0.0.1:{port}"
        here = f"127.0.0.1:{port}"
        self.begin([tool("olah-cli"), "--host", "127.0.0.1", "--port", port, "--hf-scheme", "http", "--hf-netloc", host, "--hf-lfs-netloc", host,
                    "--mirror-scheme", "http", "--mirror-netloc", here, "--mirror-lfs-netloc", here, "--repos-path", at / "repos",
                    "--log-path", at / "logs"], folder / "olah.out", cwd=at)
        until(lambda: self.process.poll() is not None or answers(self.url))
        if self.process.poll() is not None:
            raise RuntimeError(f"olah: {(folder / 'olah.out').read_text()[-300:]}")


class Minio(Server):
    """A folder in its drive is a bucket."""

    def __init__(self, folder):
        port = free_port()
        self.url, self.drive = f"http://127.0.0.1:{port}", folder / "minio"
        (self.drive / "bench").mkdir(parents=True)
        env = {**os.environ, "MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}
        self.begin([tool("minio"), "server", self.drive, "--address", f"127.0.0.1:{port}"], folder / "minio.out", env=env)
        until(lambda: answers(self.url + "/minio/health/ready"))

    def stored(self, key):
        """Bytes of an object on the drive (with its checksums, some 32 a MiB)."""
        return sum(p.stat().st_size for p in (self.drive / "bench" / key).rglob("part.*"))

    def forget(self, key):
        shutil.rmtree(self.drive / "bench" / key, ignore_errors=True)


class Versity(Server):
    """S3 over a folder: a folder in its drive is a bucket."""

    def __init__(self, folder):
        port = free_port()
        self.url, self.drive = f"http://127.0.0.1:{port}", folder / "versitygw"
        (self.drive / "bench").mkdir(parents=True)
        self.begin([tool("versitygw"), "--port", f"127.0.0.1:{port}", "--access", KEY, "--secret", SECRET, "--quiet", "posix", self.drive], folder / "versitygw.out")
        until(lambda: answers(self.url))


class Google(Server):
    """Google Cloud Storage's JSON API, of a public bucket."""

    def __init__(self, folder):
        port = free_port()
        self.url, self.drive = f"http://127.0.0.1:{port}", folder / "gcs"
        self.drive.mkdir()
        self.begin([tool("fake-gcs-server"), "-scheme", "http", "-host", "127.0.0.1", "-port", port, "-backend", "filesystem", "-filesystem-root", self.drive,
                    "-external-url", self.url, "-log-level", "error"], folder / "gcs.out")
        until(lambda: answers(self.url))
        made = urllib.request.Request(f"{self.url}/storage/v1/b?project=bench", b'{"name": "bench"}', {"Content-Type": "application/json"})
        urllib.request.urlopen(made, timeout=5).read()


class Azurite(Server):
    def __init__(self, folder):
        port = free_port()
        self.url, self.drive = f"http://127.0.0.1:{port}", folder / "azurite"
        self.drive.mkdir()
        self.begin([shutil.which("node", path=f"{PARTS}/node/bin:{os.environ['PATH']}"), PARTS / "azurite/node_modules/azurite/dist/src/blob/main.js",
                    "--location", self.drive, "--blobHost", "127.0.0.1", "--blobPort", port, "--silent", "--disableTelemetry", "--skipApiVersionCheck"],
                   folder / "azurite.out")
        until(lambda: answers(self.url))

    def sas(self):
        """What lets whoever has it read the container `bench` for a day."""
        ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 86400))
        fields = ["rl", "", ends, f"/blob/{AZURE}/bench", "", "", "", AZURE_VERSION, "c"] + [""] * 7
        signature = base64.b64encode(hmac.digest(base64.b64decode(AZURE_KEY), "\n".join(fields).encode(), "sha256"))
        return urllib.parse.urlencode({"sv": AZURE_VERSION, "sr": "c", "sp": "rl", "se": ends, "sig": signature.decode()})


class Sink(Server):
    def __init__(self, folder):
        self.begin([sys.executable, HERE / "sink.py"], folder / "sink.out", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.url = "http://127.0.0.1:" + self.process.stdout.readline().decode().strip().removeprefix("port=")

    def taken(self, key):
        with urllib.request.urlopen(f"{self.url}/size/bench/{key}", timeout=10) as reply:
            return int(reply.read())


class Slurm:
    """One controller and one node on this machine, with a munge of their own."""

    def __init__(self, folder):
        self.folder, self.parts = folder / "slurm", []
        ports = free_port(), free_port()
        host = socket.gethostname().split(".")[0]
        for sub in ("munge", "state", "spool"):
            (self.folder / sub).mkdir(parents=True, mode=0o700)
        os.chmod(self.folder / "munge", 0o755)
        key = self.folder / "munge/key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        sock = self.folder / "munge/socket"
        conf = self.folder / "slurm.conf"
        conf.write_text("\n".join([
            "ClusterName=bench", f"SlurmctldHost={host}(127.0.0.1)", f"SlurmctldPort={ports[0]}", "SlurmUser=root",
            "SlurmdUser=root", "AuthType=auth/munge", f"AuthInfo=socket={sock}", "CredType=cred/munge",
            f"StateSaveLocation={self.folder}/state", f"SlurmdSpoolDir={self.folder}/spool",
            f"SlurmctldPidFile={self.folder}/ctld.pid", f"SlurmdPidFile={self.folder}/d.pid",
            f"SlurmctldLogFile={self.folder}/ctld.log", f"SlurmdLogFile={self.folder}/d.log",
            "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "MpiDefault=none", "ReturnToService=2",
            "SchedulerType=sched/builtin", "SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU", "SwitchType=switch/none",
            f"NodeName={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={os.cpu_count()}",
            f"PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP", ""]))
        self.env = {**os.environ, "SLURM_CONF": str(conf)}
        self.start("munged", "-F", "-f", f"--socket={sock}", f"--key-file={key}", f"--log-file={self.folder}/munge/log",
                   f"--pid-file={self.folder}/munge/pid", f"--seed-file={self.folder}/munge/seed", "--num-threads=2")
        until(sock.exists)
        self.start("slurmctld", "-D", "-f", conf)
        self.start("slurmd", "-D", "-f", conf)
        until(self.idle)

    def start(self, name, *args):
        self.parts.append(Server().begin([tool(name), *args], self.folder / f"{name}.out", env=getattr(self, "env", None)))

    def idle(self):
        done = subprocess.run([tool("sinfo"), "-h", "-o", "%t"], env=self.env, capture_output=True, text=True, timeout=20)
        return done.stdout.strip() == "idle"

    def stop(self):
        for part in reversed(self.parts):
            part.stop()


class Stoker(Server):
    """Our server on a data folder of its own."""

    def __init__(self, binary, folder, *flags, says="listening on http://"):
        self.binary, self.data = binary, folder / "data"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER_", "AWS_"))}
        self.env.update(HOME=str(folder), XDG_CONFIG_HOME=str(folder / "config"), NO_COLOR="1")
        self.begin([binary, "server", "--data", self.data, "--listen", "127.0.0.1:0", *flags], folder / "stoker.log",
                   env=self.env, stdout=subprocess.PIPE)
        line = self.process.stdout.readline().decode()
        if not line.startswith(says):
            raise RuntimeError(f"stoker server: {(folder / 'stoker.log').read_text()[-500:]}")
        self.url = line.split()[-1]
        self.env.update(STOKER_URL=self.url, STOKER_TOKEN=(self.data / "admin-token").read_text().strip())

    def cli(self, *args):
        done = subprocess.run([self.binary, *args], env=self.env, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise RuntimeError(f"stoker {args[0]}: {done.stderr[-500:]}")
        return done.stdout

    def json(self, *args):
        return json.loads(self.cli(*args, "-o", "json"))
