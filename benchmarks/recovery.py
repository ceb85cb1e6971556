"""From a rank's death to serving again, and what clients lose while a replica restarts; on simulated hosts and engines.

python benchmarks/recovery.py                 # the tables of docs/performance.md; root, some five minutes
python benchmarks/recovery.py --only deaths --runs 9

A death is one SIGKILL to the main process of a decode rank; what follows is read from the hosts' journals afterwards
(they share this machine's clock), so that nothing asks hosts while they work. Each death is the first of its row: the
watchers are told to forget a row after three seconds of serving instead of ten minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from infra.rehearsal.lab import registry  # noqa: E402
from infra.rehearsal.lab.client import Lab  # noqa: E402

FAB = Path(sys.executable).with_name("fab")
LARGE = "a3-2p1d"
ROUTERS = {
    "gb200-2p1d": "vllm-router 0.1.17",
    "a3-2p1d": "ascend-proxy (stand-in)",
    "sglang-replicas": "sglang-router 0.3.2",
    "vllm-shared-replicas": "vllm-router 0.1.17",
}
# Whose replicas are restarted: those of which a stack has two.
ROLES = {"sglang-replicas": "unified", "vllm-shared-replicas": "unified"}
GOAL_S = 5.0
LIMIT_S = 120.0
# Of serving, after which a row of restarts is forgotten here.
STABLE_S = 3.0
LOOK_S = 0.5
ASK_S = 0.05
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
    parser.add_argument("--runs", type=int, default=9, help="deaths that are measured")
    parser.add_argument("--only", choices=("deaths", "restarts"), help="one of the two tables")
    parser.add_argument("--stack", action="append", choices=tuple(ROUTERS), help="of restarts")
    options = parser.parse_args()
    if options.only != "restarts":
        _print_deaths(options.runs)
    if options.only != "deaths":
        _print_restarts(options.stack or tuple(ROUTERS))


def _print_deaths(runs: int) -> None:
    with _kept(LARGE) as site:
        _forget_rows_soon(site)
        deaths = [_death(site) for _ in range(runs)]
    print("| from a rank's death, until | best s | median s | worst s | goal s |")
    print("|---|---|---|---|---|")
    for name in deaths[0]:
        found = [death[name] for death in deaths]
        goal = f"{GOAL_S:g}" if name == APART else ""
        numbers = f"{min(found):.1f} | {statistics.median(found):.1f} | {max(found):.1f}"
        print(f"| {name} | {numbers} | {goal} |")


def _print_restarts(stacks: Sequence[str]) -> None:
    print("\n| router | stack | restart | requests | lost | longest s |")
    print("|---|---|---|---|---|---|")
    for stack in stacks:
        role = ROLES.get(stack, "prefill")
        with _kept(stack) as site:
            for name, words in (
                ("none", ()),
                (f"{role} replica 0 of two", ("restart", "--role", role, "--replica", "0")),
                (f"both {role} replicas, rolling", ("restart", "--role", role, "--rolling")),
            ):
                clients = _restart(site, words)
                numbers = f"{clients.sent} | {len(clients.lost)} | {clients.longest_s:.1f}"
                print(f"| {ROUTERS[stack]} | {stack} | {name} | {numbers} |", flush=True)
                for reason in sorted(set(clients.lost)):
                    print(f"  {clients.lost.count(reason)}: {reason}", file=sys.stderr)


def _death(site: Site) -> dict[str, float]:
    """Kill one decode rank: seconds until each step of what follows was done on all hosts of its group."""
    group, units = _decode(site)
    victim = units[len(units) // 2]
    hosts = sorted({row["host"] for row in units})
    _await(lambda: _leads(site, group)["attempts"] == 0, "the last row of restarts is forgotten")
    before = _leads(site, group)["epoch"]
    router = json.loads(site.fab("status", "--json").stdout)["router"]["host"]
    begun = time.time()
    site.sh(victim["host"], f"systemctl kill -s KILL --kill-who=main {victim['unit']}")
    _await(lambda: _leads(site, group)["epoch"] > before, f"{group} has come back")
    _await(lambda: _chat(site, router, 20.0) is None, "a request goes through the router", ASK_S)
    served = time.time() - begun
    _await(lambda: all(_healthy(site, host) for host in hosts), "every engine answers")
    lines = [line for host in hosts for line in _lines_since(site, host, begun)]
    found = {}
    for name, (word, source) in STEPS.items():
        times = [at for at, text, unit in lines if word in text and source in unit]
        # The journal repeats an epoch's line when its row is forgotten; of all others the last host counts.
        found[name] = (min(times) if "run epoch" in word else max(times)) - begun
    found[SERVED] = served
    found[APART] = found[STARTED] + max(served - found[LOADED], 0.0)
    return found


STARTED = "all 32 units of its group have been started again"
LOADED = "every engine's own start has ended"
SERVED = "a request has gone through the router"
APART = "**serving again, the engines' own start apart**"
# What stands in the line of a journal that ends each step, and in whose.
STEPS = {
    "rank 0's host has ended the epoch": ("decode/0: stop epoch", "-watch"),
    "all of its group's units have stopped": ("Stopped moe-", "-engine"),
    "evidence is kept": ("decode/0: evidence is in", "-watch"),
    "rank 0's host has begun the next one": ("decode/0: run epoch", "-watch"),
    STARTED: ("Started moe-", "-engine"),
    LOADED: ("Application startup complete", "-engine"),
}


def _lines_since(site: Site, host: str, begun: float) -> list[tuple[float, str, str]]:
    """Lines of a host's journal: when, text, unit."""
    words = f"journalctl -o json --no-pager --since @{int(begun)} -u 'moe-{site.stack}-*'"
    found = []
    for text in site.sh(host, words).splitlines():
        line = json.loads(text)
        at = int(line["__REALTIME_TIMESTAMP"]) / 1e6
        if at >= begun:
            unit = line.get("UNIT") or line.get("_SYSTEMD_UNIT", "")
            found.append((at, str(line["MESSAGE"]), unit))
    return found


def _decode(site: Site) -> tuple[str, list[dict[str, Any]]]:
    """The decode group and its rows of `fab status`."""
    status = json.loads(site.fab("status", "--json").stdout)
    group = next(row["group"] for row in status["groups"] if row["group"].startswith("decode/"))
    return group, [row for row in status["processes"] if row["id"].startswith("decode-")]


def _forget_rows_soon(site: Site) -> None:
    """Have the watchers of decode hosts forget a row of restarts after a few seconds of serving."""
    _, units = _decode(site)
    for host in sorted({row["host"] for row in units}):
        path = f"/etc/moe-infra/{site.stack}/watch/groups.json"
        document = json.loads(site.lab.read_file(host, path))
        document["limits"]["stable_s"] = STABLE_S
        site.lab.write_file(host, path, json.dumps(document).encode())
        site.sh(host, f"systemctl restart moe-{site.stack}-watch")
    time.sleep(STABLE_S)


def _leads(site: Site, group: str) -> dict[str, Any]:
    """What the host of rank 0 remembers of a group; read without asking the host."""
    path = f"/var/lib/moe-infra/groups/{site.stack}/{group.replace('/', '+')}.json"
    document: dict[str, Any] = json.loads(site.lab.read_file("decode-0", path))["lead"]
    return document


def _await(what: Callable[[], bool], words: str, look_s: float = LOOK_S) -> None:
    begun = time.monotonic()
    while not what():
        if time.monotonic() - begun > LIMIT_S:
            sys.exit(f"not so after {LIMIT_S:g} s: {words}")
        time.sleep(look_s)


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
