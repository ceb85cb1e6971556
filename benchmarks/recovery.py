"""From a rank's death to serving again, and what clients lose while a replica restarts; on simulated hosts and engines.

python benchmarks/recovery.py                 # the tables of docs/performance.md; root, some three minutes
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from infra.rehearsal.lab import registry  # noqa: E402
from infra.rehearsal.lab.client import Lab  # noqa: E402

FAB = Path(sys.executable).with_name("fab")
LARGE, ROUTED = "a3-2p1d", "gb200-2p1d"
GOAL_S = 5.0
LIMIT_S = 120.0
CLIENTS = 4
PAUSE_S = 0.05
SETTLE_S = 8.0
OK = 200


@dataclass(frozen=True)
class Site:
    """A kept rehearsal that serves."""

    stack: str
    inventory: str
    lab: Lab

    def fab(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `fab` on it."""
        argv = [str(FAB), words[0], "--stack", self.stack, "--inventory", self.inventory]
        return _run(*argv, *words[1:])

    def sh(self, host: str, command: str) -> str:
        """Shell words on a host, without SSH."""
        return self.lab.run(host, ["sh", "-c", command], limit_s=LIMIT_S).stdout.decode()


def main() -> None:
    """Print one table for deaths, one for restarts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="deaths that are measured")
    runs = parser.parse_args().runs
    with _kept(LARGE) as site:
        rows = [_death(site) for _ in range(runs)]
    print("| from a rank's death | best s | median s | goal s |")
    print("|---|---|---|---|")
    for name, goal in (
        ("until all of its group's units have been started again", f"{GOAL_S:g}"),
        ("from there until every engine answers and a request went through", "the engines' own"),
        ("together", ""),
    ):
        found = [row[name] for row in rows]
        print(f"| {name} | {min(found):.1f} | {statistics.median(found):.1f} | {goal} |")
    with _kept(ROUTED) as site:
        print("\n| restart | requests | lost | longest s |")
        print("|---|---|---|---|")
        for name, words in (
            ("none", ()),
            ("prefill replica 0 of two", ("restart", "--role", "prefill", "--replica", "0")),
            ("both prefill replicas, rolling", ("restart", "--role", "prefill", "--rolling")),
        ):
            clients = _restart(site, words)
            print(f"| {name} | {clients.sent} | {len(clients.lost)} | {clients.longest_s:.1f} |")
            for reason in sorted(set(clients.lost)):
                print(f"  {clients.lost.count(reason)}: {reason}", file=sys.stderr)


def _death(site: Site) -> dict[str, float]:
    """Kill one decode rank; when its group's units were started again, and when all of it served."""
    status = json.loads(site.fab("status", "--json").stdout)
    group = next(row for row in status["groups"] if row["group"].startswith("decode/"))
    units = [row for row in status["processes"] if row["id"].startswith("decode-")]
    victim, router = units[len(units) // 2], status["router"]
    begun = time.monotonic()
    site.sh(victim["host"], f"systemctl kill -s KILL --kill-who=main {victim['unit']}")
    hosts = sorted({row["host"] for row in units})
    started = 0.0
    last = 0.0
    while started < begun or not _answers(site, hosts):
        started = min(_started(site, host, units) for host in hosts)
        last = max(_last_started(site, host, units) for host in hosts)
        if time.monotonic() - begun > LIMIT_S:
            sys.exit(f"{group['group']} has not come back within {LIMIT_S:g} s")
        time.sleep(0.05)
    while reason := _chat(site, router["host"], 20.0):
        if time.monotonic() - begun > LIMIT_S:
            sys.exit(f"nothing goes through the router within {LIMIT_S:g} s: {reason}")
        time.sleep(0.05)
    served = time.monotonic()
    return {
        "until all of its group's units have been started again": last - begun,
        "from there until every engine answers and a request went through": served - last,
        "together": served - begun,
    }


def _stamps(site: Site, host: str, units: list[dict[str, Any]]) -> list[float]:
    """When each unit of a host was started, in this process's monotonic seconds."""
    names = " ".join(row["unit"] for row in units if row["host"] == host)
    text = site.sh(host, f"systemctl show -p InactiveExitTimestampMonotonic --value {names}")
    its_now = float(site.sh(host, "python3 -ISc 'import time; print(time.monotonic())'"))
    ahead = time.monotonic() - its_now  # a simulated host counts from its own boot
    return [int(line) / 1e6 + ahead for line in text.split()]


def _started(site: Site, host: str, units: list[dict[str, Any]]) -> float:
    return min(_stamps(site, host, units))


def _last_started(site: Site, host: str, units: list[dict[str, Any]]) -> float:
    return max(_stamps(site, host, units))


def _answers(site: Site, hosts: list[str]) -> bool:
    """Whether every engine of some hosts is healthy."""
    return all(_healthy(site, host) for host in hosts)


def _healthy(site: Site, host: str) -> bool:
    document = json.loads(
        site.lab.read_file(host, f"/etc/moe-infra/{site.stack}/watch/groups.json")
    )
    urls = [
        url.replace("/metrics", "/health") for row in document["groups"] for url in row["metrics"]
    ]
    asked = " ".join(f"-o /dev/null {url}" for url in urls)
    codes = site.sh(host, f"curl -s -m 2 -w '%{{http_code}}\\n' {asked}").split()
    return codes == ["200"] * len(urls)


def _chat(site: Site, host: str, limit_s: float) -> str | None:
    """Send one chat request through the router; why it failed, None when it did not."""
    body = {
        "model": _plan(site)["model"],
        "messages": [{"role": "user", "content": "What is 17? " * 200}],
    }
    body |= {"max_tokens": 8}
    try:
        connection = site.lab.http(host, _plan(site)["port"], limit_s)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        finally:
            connection.close()
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    if answer.status == OK and '"choices"' in text:
        return None
    return f"HTTP {answer.status}: {text[:160]}"


_PLANS: dict[str, dict[str, Any]] = {}


def _plan(site: Site) -> dict[str, Any]:
    """What clients of a stack have to know: model and port."""
    if site.stack not in _PLANS:
        plan = json.loads(_run(str(FAB), "plan", "--stack", site.stack, "--json").stdout)
        port = int(plan["processes"][-1]["endpoint"].rpartition(":")[2])
        argv = plan["processes"][0]["argv"]
        name = "--served-model-name"
        model = argv[argv.index(name) + 1] if name in argv else plan["model"]
        _PLANS[site.stack] = {"model": model, "port": port}
    return _PLANS[site.stack]


@dataclass
class Clients:
    """What clients have met."""

    sent: int = 0
    longest_s: float = 0.0
    lost: list[str] = field(default_factory=list)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def note(self, reason: str | None, seconds: float) -> None:
        """Count a request."""
        with self.guard:
            self.sent += 1
            self.longest_s = max(self.longest_s, seconds)
            if reason is not None:
                self.lost.append(reason)


def _restart(site: Site, words: tuple[str, ...]) -> Clients:
    """Send requests all the while that a command runs, and for some seconds around it."""
    router = json.loads(site.fab("status", "--json").stdout)["router"]["host"]
    clients, over = Clients(), threading.Event()

    def send() -> None:
        while not over.wait(PAUSE_S):
            begun = time.monotonic()
            reason = _chat(site, router, 60.0)
            clients.note(reason, time.monotonic() - begun)

    threads = [threading.Thread(target=send) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    time.sleep(2)
    if words:
        done = site.fab(*words)
        if done.returncode:
            sys.exit(done.stderr)
    time.sleep(SETTLE_S)
    over.set()
    for thread in threads:
        thread.join()
    return clients


@contextmanager
def _kept(stack: str) -> Iterator[Site]:
    done = _run(str(FAB), "rehearse", "--stack", stack, "--keep", "--to-step", "start", "--json")
    document = json.loads(done.stdout)
    try:
        if done.returncode:
            sys.exit(done.stderr)
        entry = next(one for one in registry.read_entries() if one.id == document["id"])
        yield Site(stack, document["inventory"], Lab(entry))
    finally:
        _run(str(FAB), "rehearse", "--stop", document["id"])


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=300
    )


if __name__ == "__main__":
    main()
