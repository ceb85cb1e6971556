"""A flooded port: members are heard far within the time that a host may be silent, whoever floods it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.agent.group.rules import RUN, Order
from infra.agent.group.talk import Orders, Question, exchange, start_server
from infra.render.supervision import LIMITS
from tests.agent.flooder import KINDS
from tests.agent.test_group_talk import ASKED, HERE, MakeChannel, ask_soon, channel
from tests.ports import free_port

__all__ = ["channel"]  # a fixture
pytestmark = [pytest.mark.slow]  # processes that flood for seconds

STRANGER = "127.0.0.9"
FLOOD_S = 4.0
# A fifth of the silence after which a host counts as lost, on top of what other tests beside this one cost.
BEARABLE_S = LIMITS["lost_s"] / 5


@pytest.fixture
def port(channel: MakeChannel) -> int:
    """Where a leader answers members at `HERE`."""

    def answer(_question: Question) -> Orders:
        return {"decode/0": Order(5, RUN)}

    found = free_port()
    start_server((HERE, found), channel(), answer)
    ask_soon((HERE, found), channel("h1"))
    return found


@pytest.fixture
def flooders() -> Iterator[list[subprocess.Popen[bytes]]]:
    begun: list[subprocess.Popen[bytes]] = []
    yield begun
    for one in begun:
        one.kill()
        one.wait()


def silences(channel: MakeChannel, port: int) -> list[float]:
    """How long the leader heard nothing of a member that asks as watchers do, each time, in seconds."""
    member, found = channel("h1"), list[float]()
    end, heard = time.monotonic() + FLOOD_S, time.monotonic()
    while time.monotonic() < end:
        try:
            exchange((HERE, port), "h0", member, ASKED)
        except OSError:
            time.sleep(0.05)
            continue
        found.append(time.monotonic() - heard)
        heard = time.monotonic()
        time.sleep(0.02)
    return [*found, time.monotonic() - heard]


@pytest.mark.parametrize("source", [HERE, STRANGER], ids=["a member's", "a stranger's"])
@pytest.mark.parametrize("kind", KINDS)
def test_members_are_heard_through_a_flood(
    channel: MakeChannel,
    port: int,
    flooders: list[subprocess.Popen[bytes]],
    kind: str,
    source: str,
) -> None:
    others, quiet = threading.active_count(), max(silences(channel, port))
    words = [sys.executable, str(Path(__file__).with_name("flooder.py")), kind, str(port), source]
    flooders += [subprocess.Popen(words) for _ in range(3)]
    time.sleep(0.3)
    longest = max(silences(channel, port))
    assert all(one.poll() is None for one in flooders)
    assert longest < quiet + BEARABLE_S, (quiet, longest)
    assert threading.active_count() - others < 100
