"""A rolling restart that ends in a drain: the router serves on, says whom it leaves out, and the next run goes on."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from infra.rehearsal.lab import registry
from infra.rehearsal.lab.client import Lab
from infra.spec.load import PROJECT
from tests.cli.commands import FAB, need_lab, run
from tests.cli.rack import end, until, until_said
from tests.naming import in_time

# Real sshd, systemd and vllm-router on one simulated host with two replicas: each call of `fab` takes seconds.
pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.fault]

STACK = "vllm-shared-replicas"
HOST = "host-0"
FIRST, SECOND = "unified/0", "unified/1"
MEMORY = f"/run/moe-infra/groups/{STACK}/router.left-out"
INT, KILL = signal.SIGINT, signal.SIGKILL


@dataclass(frozen=True)
class Served:
    """A host on which two replicas and their router run."""

    inventory: str
    lab: Lab

    def words(self, *words: str) -> list[str]:
        return [FAB, words[0], "--stack", STACK, "--inventory", self.inventory, *words[1:]]

    def fab(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run(*self.words(*words))

    def sh(self, command: str) -> str:
        return self.lab.run(HOST, ["sh", "-c", command]).stdout.decode()

    def groups(self) -> dict[str, dict[str, Any]]:
        document = json.loads(self.fab("status", "--json").stdout)
        return {row["group"]: row for row in document["groups"]}

    def tokens(self) -> list[int]:
        """What each of some requests through the router got."""
        model = json.loads(self.sh("curl -s -m 5 localhost:8000/v1/models"))["data"][0]["id"]
        body = json.dumps({"model": model, "prompt": "a " * 400, "max_tokens": 4})
        asked = f"curl -s -m 20 -H 'Content-Type: application/json' -d '{body}' localhost:8000/v1/completions"
        answers = [json.loads(self.sh(asked)) for _ in range(6)]
        return [answer["usage"]["completion_tokens"] for answer in answers]

    def begin_rolling(self) -> subprocess.Popen[str]:
        """A rolling restart, once the router has been told to leave the first replica out."""
        started = subprocess.Popen(
            self.words("restart", "--rolling"),
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        until(lambda: FIRST in self.sh(f"cat {MEMORY} 2>/dev/null"))
        return started


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    need_lab()
    done = run(FAB, "rehearse", "--stack", STACK, "--keep", "--to-step", "start", "--json")
    document = json.loads(done.stdout)
    try:
        assert done.returncode == 0, done.stderr
        lab = Lab(next(one for one in registry.read_entries() if one.id == document["id"]))
        yield Served(document["inventory"], lab)
    finally:
        run(FAB, "rehearse", "--stop", document["id"])


def epochs(groups: dict[str, dict[str, Any]]) -> dict[str, int]:
    return {name: int(row["epoch"]) for name, row in groups.items()}


def check_whole_again(served: Served, before: dict[str, int]) -> None:
    """The next run restarts both replicas, one after the other, and the router has both."""
    done = served.fab("restart", "--rolling")
    assert done.returncode == 0, done.stderr
    after = served.groups()
    assert epochs(after) == {name: epoch + 1 for name, epoch in before.items()}
    assert not any(row["left_out"] for row in after.values())
    assert served.tokens() == [4] * 6
    assert served.fab("verify", "--timeout", "5").returncode == 0


def test_killed_in_a_drain_it_leaves_a_router_that_serves_and_says_whom_it_leaves_out(
    served: Served,
) -> None:
    before = epochs(served.groups())
    ended = end(served.begin_rolling(), KILL)
    assert ended.code == -KILL
    with in_time():
        status = served.fab("status")
    assert f"{FIRST}, epoch {before[FIRST]}: the router leaves it out until" in status.stderr
    groups = served.groups()
    assert epochs(groups) == before  # nobody was stopped
    assert {name: row["left_out"] for name, row in groups.items()} == {FIRST: True, SECOND: False}
    assert served.tokens() == [4] * 6
    check_whole_again(served, before)


def test_interrupted_in_a_drain_it_gives_the_router_back_what_it_took(served: Served) -> None:
    before = epochs(served.groups())
    started = served.begin_rolling()
    with in_time():
        ended = end(started, INT)
    assert ended.code == 130, ended.said
    assert f"the router sends requests to {FIRST} again" in ended.said
    groups = served.groups()
    assert epochs(groups) == before
    assert not any(row["left_out"] for row in groups.values())
    assert served.tokens() == [4] * 6
    check_whole_again(served, before)


def test_killed_between_two_replicas_the_second_is_restarted_by_the_next_run(
    served: Served,
) -> None:
    before = epochs(served.groups())
    started = served.begin_rolling()
    until_said(started, f"{FIRST}: the next epoch has begun")
    end(started, KILL)
    until(lambda: epochs(served.groups())[FIRST] == before[FIRST] + 1)
    until(lambda: served.fab("status").returncode == 0)
    assert served.tokens() == [4] * 6
    assert served.fab("up").returncode == 0
    groups = served.groups()
    assert epochs(groups) == {FIRST: before[FIRST] + 1, SECOND: before[SECOND]}
    assert not any(row["left_out"] for row in groups.values())
    check_whole_again(served, epochs(groups))
