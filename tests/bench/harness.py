"""What every row is made of: contenders that run in turns, each run a process whose wall time, CPU and peak memory the
kernel reports, checked for its exit status and for what it left behind; medians, and ratios to the best peer."""
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

LAUNCHER = pathlib.Path(__file__).resolve().parents[2] / "build/rel/tests/bench/bench_run"
RUN_DEADLINE_S = 300
MIB = 1 << 20


class Wrong(Exception):
    """A run that failed, or left something else behind than it should have."""


class Run:
    def __init__(self, wall, cpu=None, rss=None, server_cpu=None, out=""):
        self.wall, self.cpu, self.rss, self.server_cpu, self.out = wall, cpu, rss, server_cpu, out


def cpu_of(pid):
    """CPU seconds of a process that lives, and of its children that have ended."""
    if pid is None:
        return 0.0
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return sum(int(x) for x in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def run(argv, env=None, cwd=None, server=None):
    """One process to its end, measured by bench_run: wall seconds, CPU seconds and peak MiB by wait4."""
    before = cpu_of(server)
    with tempfile.NamedTemporaryFile("r") as cost:
        done = subprocess.run([LAUNCHER, cost.name, str(RUN_DEADLINE_S), *map(str, argv)], env=env, cwd=cwd, capture_output=True,
                              stdin=subprocess.DEVNULL, text=True, errors="replace")
        said = json.loads(cost.read() or "{}")
    status = said.get("status", done.returncode)
    if status != 0:
        raise Wrong(f"exit status {status}: {' '.join((done.stderr or done.stdout).split())[-300:]}")
    return Run(said["wall"], said["cpu"], said["rss_kib"] / 1024, cpu_of(server) - before if server else None, done.stdout)


class Contender:
    """once() is one measured run and gives a Run; check(run) raises Wrong; tidy() removes what the run made."""

    def __init__(self, name, once, version="", check=None, tidy=None, ours=False, missing=None, peer=True):
        self.name, self.once, self.version, self.check, self.tidy = name, once, version, check, tidy
        self.ours, self.missing, self.peer = ours, missing, peer and not ours
        self.runs, self.problem = [], None

    def turn(self, keep):
        if self.problem or self.missing:
            return
        try:
            done = self.once()
            if self.check:
                self.check(done)
            if keep:
                self.runs.append(done)
        except (Wrong, OSError, subprocess.SubprocessError) as e:
            self.problem = str(e)
        finally:
            if self.tidy:
                self.tidy()

    def median(self, what="wall"):
        values = [v for v in (getattr(r, what) for r in self.runs) if v is not None]
        return statistics.median(values) if values else None

    def span(self):
        walls = [r.wall for r in self.runs]
        return min(walls), max(walls)


class Row:
    """limit: (what, seconds) of the machine, or None; bar: the words of the figure to beat."""

    def __init__(self, key, title, bar="", size=None, unit="s"):
        self.key, self.title, self.bar, self.size, self.unit = key, title, bar, size, unit
        self.contenders, self.limit = [], None

    def play(self, contenders, rounds):
        self.contenders = contenders
        for turn in range(rounds + 1):
            for c in contenders:
                c.turn(turn > 0)
            print(f"  {self.key}: {'warm-up' if turn == 0 else f'round {turn} of {rounds}'}", file=sys.stderr, flush=True)

    def best_peer(self):
        walls = [c.median() for c in self.contenders if c.peer and c.runs]
        return min(walls) if walls else None

    def ratio(self, c):
        """Ours: how many times as fast as the best peer. A peer: how many times as fast ours is."""
        ours = next((o for o in self.contenders if o.ours and o.runs), None)
        if c.ours:
            return self.best_peer() / c.median() if self.best_peer() else None
        return c.median() / ours.median() if ours and c.peer else None

    def show(self):
        scale, digits = (1000, 2) if self.unit == "ms" else (1, 3)
        best = self.best_peer()
        print(f"\n## {self.title}")
        if self.bar:
            print(f"   bar: {self.bar}")
        print(f"   {'':34} {'median ' + self.unit:>10} {'min - max':>17} {'GB/s':>6} {'CPU s':>7} {'MiB':>6} {'server CPU':>10}  "
              f"{'ratio':>6}")
        for c in self.contenders:
            name = f"{c.name} {c.version}".strip()
            if c.missing or c.problem:
                print(f"   {name[:34]:34} {'skipped: ' + c.missing if c.missing else 'FAILED: ' + c.problem}")
                continue
            wall, (low, high) = c.median(), c.span()
            rate = figure(self.size / wall / 1e9 if self.size else None, ".2f")
            ratio = figure(self.ratio(c), ".2f") + (" the best peer" if c.ours and best else "")
            print(f"   {name[:34]:34} {wall * scale:10.{digits}f} {low * scale:8.{digits}f} -{high * scale:7.{digits}f} {rate:>6} "
                  f"{figure(c.median('cpu'), '.2f'):>7} {figure(c.median('rss'), '.0f'):>6} "
                  f"{figure(c.median('server_cpu'), '.2f'):>10} {ratio:>6}")
        if self.limit:
            what, seconds = self.limit
            print(f"   {'limit: ' + what:55} {seconds * scale:.{digits}f} {self.unit}")
        sys.stdout.flush()

    def record(self):
        def of(c):
            found = {"name": c.name, "version": c.version, "ours": c.ours}
            if c.missing:
                return {**found, "skipped": c.missing}
            if c.problem:
                return {**found, "failed": c.problem}
            low, high = c.span()
            return {**found, "wall_s": c.median(), "wall_min_s": low, "wall_max_s": high, "cpu_s": c.median("cpu"),
                    "rss_mib": c.median("rss"), "server_cpu_s": c.median("server_cpu"), "runs": len(c.runs),
                    "ratio": self.ratio(c)}
        return {"row": self.key, "title": self.title, "bar": self.bar, "bytes": self.size,
                "limit": {"what": self.limit[0], "seconds": self.limit[1]} if self.limit else None,
                "contenders": [of(c) for c in self.contenders]}


def figure(value, form):
    return "-" if value is None else format(value, form)


def raise_limits():
    """Some clients open a file per object."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else max(soft, 65536), hard))
