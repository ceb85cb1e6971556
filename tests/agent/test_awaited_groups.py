"""A look at units that waits until the groups of a host have met: whoever asks learns of it at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from infra.agent.group.operation import await_groups
from infra.agent.group.record import fresh_record, save_record
from tests.agent.stubborn_host import StubbornHost

STACK, LONG_S = "s", 30.0


def save(host: StubbornHost, group: str, phase: str) -> None:
    record = fresh_record()
    save_record(host, STACK, group, record._replace(memory=record.memory._replace(phase=phase)))


@pytest.fixture
def told(host: StubbornHost, stand_in: Callable[[str, str], None]) -> StubbornHost:
    """A host whose systemd has one unit."""
    host.put("/run/systemd/system/x", "")
    stand_in("systemctl", "echo ActiveState=active")
    return host


def look(host: StubbornHost, *awaits: str, await_s: float) -> list[tuple[object, object]]:
    asked = {"units": ["a.service"], "stack": STACK, "awaits": list(awaits), "await_s": await_s}
    rows = host.ask("units", action="status", **asked)["groups"]
    assert isinstance(rows, list)
    return [(row["group"], row["phase"]) for row in rows]


@pytest.mark.parametrize("end", ["run", "failed"])
def test_a_look_waits_until_the_groups_that_it_awaits_have_met_or_failed(
    told: StubbornHost, end: str
) -> None:
    save(told, "decode/0", "adopt")
    later = threading.Timer(0.2, save, (told, "decode/0", end))
    later.start()
    assert look(told, "decode/0", await_s=LONG_S) == [("decode/0", end)]
    later.join()


def test_a_group_that_nobody_has_handed_over_yet_is_waited_for_too(told: StubbornHost) -> None:
    later = threading.Timer(0.2, save, (told, "decode/0", "run"))
    later.start()
    assert look(told, "decode/0", await_s=LONG_S) == [("decode/0", "run")]
    later.join()


def test_a_look_waits_no_longer_than_it_was_told_and_only_for_what_it_awaits(
    told: StubbornHost,
) -> None:
    save(told, "decode/0", "adopt")
    assert look(told, "decode/0", await_s=0.1) == [("decode/0", "adopt")]
    save(told, "prefill/0", "run")
    begun = time.monotonic()
    await_groups(told, STACK, {"awaits": ["prefill/0"], "await_s": LONG_S})
    assert time.monotonic() - begun < LONG_S / 2
