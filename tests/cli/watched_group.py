"""Two simulated hosts with a group of ranks that watchers look after in a hurry: what tests of groups share."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from infra.rehearsal.lab import registry
from infra.rehearsal.lab.client import Lab
from tests.cli.commands import FAB, begin, need_lab, run
from tests.naming import until_named

STACK = "a2-2n-dp4tp4"
HOSTS = ("unified-0", "unified-1")
WATCH = f"moe-{STACK}-watch"
CONFIG = f"/etc/moe-infra/{STACK}/watch/groups.json"
FACTS = "/var/lib/moe-rehearsal/host.json"
# Believed sooner than in production, for the tests' time; long enough for a machine that does other things. A row of
# restarts is forgotten soon, so that no test waits longer for the faults of those before it.
HASTE = {"lost_s": 4.0, "max_restarts": 20, "stable_s": 1.0}
# Longer than any of these tests looks at ranks that load.
LOAD_S = 600.0
PATIENCE = {"first_s": 60.0, "silent_s": 60.0, "stuck_s": 4.0, "idle_s": 600.0}
LIMIT_S = 60.0
# As long a host may be silent before SSH believes it.
CONNECT_S = 10.0
REPLACES = f"`fab replace-host {HOSTS[1]} NEW --stack {STACK} "


@dataclass(frozen=True)
class Site:
    """Two hosts with a group of four ranks that has been handed over to its watchers."""

    inventory: str
    lab: Lab
    installed: dict[str, bytes]

    def words(self, *words: str) -> list[str]:
        return [FAB, words[0], "--stack", STACK, "--inventory", self.inventory, *words[1:]]

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start `fab` with the stack and inventory."""
        return begin(*self.words(*words), stdout=subprocess.PIPE)

    def fab(self, *words: str) -> tuple[int, str, str]:
        done = run(*self.words(*words), timeout_s=LIMIT_S)
        return done.returncode, done.stdout, done.stderr

    def status_says(self, code: int, *words: str) -> str:
        """An operator types `fab status` now: how it leaves, and what it names; what it says last."""
        left, _, err = self.fab("status")
        assert left == code, err
        assert not [word for word in words if word not in err], err
        return err.splitlines()[-1]

    @contextmanager
    def slow_loads(self) -> Iterator[None]:
        """Engines that are started now load for longer than anybody looks; in the end one of them dies of it."""
        before = [self.lab.read_file(host, FACTS) for host in HOSTS]
        for host, text in zip(HOSTS, before, strict=True):
            slow = {**json.loads(text), "load_seconds": LOAD_S}
            self.lab.write_file(host, FACTS, json.dumps(slow).encode())
        try:
            yield
        finally:
            for host, text in zip(HOSTS, before, strict=True):
                self.lab.write_file(host, FACTS, text)
            self.until(lambda: self.is_running(HOSTS[1]))
            self.kill_rank()

    def kill_rank(self) -> None:
        self.sh(HOSTS[1], f"systemctl kill -s KILL --kill-who=main moe-{STACK}-engine@0")

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.fab("status", "--json")[1])
        return document

    def sh(self, host: str, command: str) -> str:
        return self.lab.run(host, ["sh", "-c", command]).stdout.decode()

    def record(self) -> dict[str, Any]:
        """What the host of rank 0 remembers."""
        text = self.sh(HOSTS[0], f"cat /var/lib/moe-infra/groups/{STACK}/*.json")
        document: dict[str, Any] = json.loads(text)["lead"]
        return document

    def until(self, what: Callable[[], bool], limit_s: float = LIMIT_S) -> float:
        """Wait for something; the seconds that it took."""
        begun = time.monotonic()
        while not what():
            assert time.monotonic() - begun < limit_s, self.record()
            time.sleep(0.2)
        return time.monotonic() - begun

    def serves_again(self, after: int) -> dict[str, Any]:
        """Wait until a newer epoch serves; its row of `groups`."""
        self.until(lambda: self.record()["epoch"] > after and self.record()["phase"] == "run")
        self.until(lambda: bool(self.status()["ok"]))
        row: dict[str, Any] = self.status()["groups"][0]
        return row

    def names(self, why: str, before: dict[str, Any], known_after_s: float = 0.0) -> None:
        """Wait, not for long, until rank 0's host knows what ended the epoch, which `fab status` shows."""

        def said() -> str:
            record = self.record()
            is_over = record["epoch"] > before["epoch"] or record["phase"] != "run"
            return str(record["why"]) if is_over else ""

        until_named(said, why, known_after_s)

    def set_limits(self, idle_s: float = PATIENCE["idle_s"], **changes: float) -> None:
        """Write other limits for the watchers, and have them read."""
        for host in HOSTS:
            document = json.loads(self.lab.read_file(host, CONFIG))
            document["limits"].update({**HASTE, **changes})
            document["patience"] = {**PATIENCE, "idle_s": idle_s}
            self.lab.write_file(host, CONFIG, json.dumps(document).encode())
            self.sh(host, f"systemctl restart {WATCH}")

    def is_running(self, host: str) -> bool:
        return self.sh(host, f"systemctl is-active moe-{STACK}-engine@0").strip() == "active"

    def engine_pids(self, host: str) -> list[int]:
        """The engine's own processes, not the container's client."""
        return [
            pid
            for pid, argv in self.lab.processes(host)
            if any(word.endswith("/engine") for word in argv[:5])
        ]


@contextmanager
def kept_site() -> Iterator[Site]:
    """The hosts, until it ends."""
    need_lab()
    done = run(FAB, "rehearse", "--stack", STACK, "--keep", "--to-step", "start", "--json")
    document = json.loads(done.stdout)
    try:
        assert done.returncode == 0, done.stderr
        entry = next(one for one in registry.read_entries() if one.id == document["id"])
        lab = Lab(entry)
        installed = {host: lab.read_file(host, CONFIG) for host in HOSTS}
        found = Site(document["inventory"], lab, installed)
        found.set_limits()
        yield found
    finally:
        run(FAB, "rehearse", "--stop", document["id"])


def have_serve(site: Site) -> None:
    """The group serves; a restart that is asked for forgets those before."""
    if not site.status()["ok"] or site.record()["phase"] != "run":
        code, _, err = site.fab("restart")
        assert code == 0, err
