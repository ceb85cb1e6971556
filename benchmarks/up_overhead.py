"""What `fab up` takes beyond its slowest engine: 36 processes of a3-2p1d on simulated hosts.

python benchmarks/up_overhead.py              # the table of docs/performance.md; root, some four minutes

    overhead = wall clock of `fab up`, from the start of its process to its end
             - the slowest engine's own time, from its unit's start (systemd's "Started") to the line of its own
               journal that says that it serves ("Application startup complete")

Everything else is in the overhead: the interpreter's start, connections, looking, installing, systemd, noticing that
an engine is ready, a token from every rank, watchers, the router's own start and a request through it. The hosts share
this machine's clock, and lines of `fab up` are stamped as they arrive. Two kinds of engines: such as load nothing (all
36 interpreters start at once on this machine's cores), and such as take 20 s on one host, while the cores are idle.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from infra.rehearsal.lab import registry  # noqa: E402
from infra.rehearsal.lab.client import Lab  # noqa: E402

FAB = Path(sys.executable).with_name("fab")
STACK = "a3-2p1d"
GOAL_S = 2.0
SLOW_HOST, LOAD_S = "decode-1", 20.0
WORLD = "/var/lib/moe-rehearsal/host.json"
SERVES = "Application startup complete"
INTERPRETER = "import infra.tasks.program, infra.tasks.up"
# Lines of `fab up` that end a phase.
PROVEN, ROUTED = "has generated a token", "a request went through the router"

OVERHEAD = "overhead"
WALL, SLOWEST = "`fab up`", "slowest engine, unit's start to ready"
PHASES = (
    "until its unit was started",
    "from its ready line until every rank had generated a token",
    "until a request had gone through the router",
    "until the end",
)


@dataclass(frozen=True)
class Site:
    """A kept rehearsal whose hosts are tuned and have their weights."""

    inventory: str
    lab: Lab

    def argv(self, verb: str) -> list[str]:
        """A command line of `fab`."""
        return [str(FAB), verb, "--stack", STACK, "--inventory", self.inventory]

    def set_load(self, host: str, seconds: float) -> None:
        """How long engines of a host load from now on."""
        document = json.loads(self.lab.read_file(host, WORLD))
        document["load_seconds"] = seconds
        self.lab.write_file(host, WORLD, json.dumps(document).encode())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of each kind")
    parser.add_argument(
        "--load", type=float, action="append", help="only engines that load so long"
    )
    options = parser.parse_args()
    print(f"Interpreter with its modules: {_interpreter_s():.2f} s")
    with _kept() as site:
        for load_s in options.load or (0.0, LOAD_S):
            site.set_load(SLOW_HOST, load_s)
            _print_table(load_s, [_measure(site) for _ in range(options.runs)])


def _print_table(load_s: float, runs: list[dict[str, float]]) -> None:
    print(f"\n| engines that load {load_s:g} s on one host | best s | median s | goal s |")
    print("|---|---|---|---|")
    for name in (WALL, SLOWEST, OVERHEAD, *PHASES):
        found = [run[name] for run in runs]
        goal = f"{GOAL_S:g}" if name == OVERHEAD else ""
        print(f"| {name} | {min(found):.2f} | {statistics.median(found):.2f} | {goal} |")


def _measure(site: Site) -> dict[str, float]:
    """One `fab up` of a deployment that is not there, in seconds; it is gone again afterwards."""
    stamps: dict[str, float] = {}
    said: list[str] = []
    begun = time.time()
    child = subprocess.Popen(
        site.argv("up"), cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    reader = threading.Thread(target=_stamp, args=(child, stamps, said))
    reader.start()
    if child.stdout is not None:
        child.stdout.read()
    code = child.wait(timeout=120)
    ended = time.time()
    reader.join()
    if code:
        sys.exit(f"fab up left with {code}:\n{''.join(said)}")
    started, ready = _slowest(site, begun)
    subprocess.run(site.argv("down"), cwd=PROJECT, check=True, capture_output=True, timeout=120)
    proven, routed = stamps[PROVEN], stamps[ROUTED]
    times = (started - begun, proven - ready, routed - proven, ended - routed)
    return {
        WALL: ended - begun,
        SLOWEST: ready - started,
        OVERHEAD: ended - begun - (ready - started),
        **dict(zip(PHASES, times, strict=True)),
    }


def _stamp(child: subprocess.Popen[str], stamps: dict[str, float], said: list[str]) -> None:
    """When the lines that end a phase arrived."""
    for line in child.stderr or ():
        said.append(line)
        for word in (PROVEN, ROUTED):
            if word in line:
                stamps[word] = time.time()


def _slowest(site: Site, begun: float) -> tuple[float, float]:
    """Start and ready of the engine that took longest, by the hosts' journals."""
    started: dict[tuple[str, str], float] = {}
    ready: dict[tuple[str, str], float] = {}
    for host in site.lab.status():
        words = f"journalctl -o json --no-pager --since @{int(begun)} -u 'moe-{STACK}-engine@*'"
        text = site.lab.run(host.name, ["sh", "-c", words], limit_s=60).stdout.decode()
        for line in map(json.loads, text.splitlines()):
            at = int(line["__REALTIME_TIMESTAMP"]) / 1e6
            unit = str(line.get("UNIT") or line.get("_SYSTEMD_UNIT"))
            if at < begun:
                continue
            if str(line["MESSAGE"]).startswith("Started "):
                started[host.name, unit] = at
            elif SERVES in str(line["MESSAGE"]):
                ready[host.name, unit] = at
    slowest = max(ready, key=lambda one: ready[one] - started[one])
    return started[slowest], ready[slowest]


def _interpreter_s() -> float:
    found = []
    for _ in range(5):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", INTERPRETER], cwd=PROJECT, check=True)
        found.append(time.perf_counter() - begun)
    return statistics.median(found)


@contextmanager
def _kept() -> Iterator[Site]:
    argv = [str(FAB), "rehearse", "--stack", STACK, "--keep", "--to-step", "tune", "--json"]
    done = subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    try:
        if done.returncode:
            sys.exit(done.stderr)
        entry = next(one for one in registry.read_entries() if one.id == document["id"])
        yield Site(document["inventory"], Lab(entry))
    finally:
        argv = [str(FAB), "rehearse", "--stop", document["id"]]
        subprocess.run(argv, cwd=PROJECT, capture_output=True, check=False)


if __name__ == "__main__":
    main()
