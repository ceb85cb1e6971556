"""What a machine lacks is told with what to type."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.rehearsal.lab.prerequisites import PROGRAMS, Machine, missing

COMPLETE = Machine(system="Linux", uid=0, programs=frozenset(PROGRAMS), has_fuse=True)


def test_a_complete_machine_lacks_nothing() -> None:
    assert missing(COMPLETE) is None


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (replace(COMPLETE, system="Darwin"), ("Darwin", "Use Linux")),
        (replace(COMPLETE, uid=1000), ("not root", "sudo")),
        (
            replace(COMPLETE, programs=frozenset(PROGRAMS) - {"sudo", "ip"}),
            ("lacks 2 packages", "apt-get install iproute2 sudo"),
        ),
        (replace(COMPLETE, has_fuse=False), ("/dev/fuse", "modprobe fuse")),
    ],
    ids=["system", "root", "packages", "fuse"],
)
def test_what_is_missing_is_named_with_its_fix(machine: Machine, words: tuple[str, ...]) -> None:
    error = missing(machine)
    assert error is not None
    assert error.exit_code == 3
    for word in words:
        assert word in str(error)
