"""Which files have slow tests, which of these stay together on one worker, and which are begun first.

A run that chooses slow tests loads no other files: most have none, and each worker would load all of them.

xdist's own groups are marks that it hangs on a test's id, which pytest 9.2 lets nobody change any more.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it has no types

KUBERNETES = "tests/kubernetes/"  # all of its tests share one cluster
ALONE = "tests/rehearsal/"  # each of its tests starts the hosts that it needs, or none
FUZZED = "tests/fuzz/"  # they start nothing, and share nothing
ONE_LAB = "tests/rehearsal/lab/"  # but these, which share hosts
# What `-m` says where nothing but slow tests and those of KUBERNETES are chosen, as scripts/test does.
CHOOSING_SLOW = ("slow", "slow or kubernetes", "slow and not kubernetes")
SLOW = "pytest.mark.slow"  # as files of tests say it; nothing else marks a test
# Longest first, by how ids begin: what is begun last is what all others wait for.
LONGEST = (
    KUBERNETES,
    "tests/checks/test_mutations.py",
    "tests/cli/test_group_starts.py",
    "tests/cli/test_group_faults.py",
    "tests/cli/test_preflight_on_hosts.py",
    "tests/playbooks/",
    "tests/cli/test_stage_weights.py",
    "tests/cli/test_on_hosts.py",
    "tests/cli/",
    "tests/rehearsal/cloud/",
    "tests/rehearsal/",
)


class SlowGroups(LoadScopeScheduling):  # type: ignore[misc]  # as above
    """Hands the tests of a file to one worker, for they share hosts, in their order."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def may_be_slow(path: Path) -> bool:
    """Whether a file, or what is in a folder, has slow tests or is what tests need."""
    if not path.name.startswith("test_") or path.is_dir() or KUBERNETES in path.as_posix():
        return True
    return SLOW in path.read_text(encoding="utf-8")


def group_of(nodeid: str) -> str:
    """The name of a test's group."""
    if nodeid.startswith(KUBERNETES):
        return KUBERNETES
    goes_alone = nodeid.startswith((ALONE, FUZZED)) and not nodeid.startswith(ONE_LAB)
    return nodeid if goes_alone else nodeid.partition("::")[0]


def put_longest_first(items: list[pytest.Item]) -> None:
    """Sort tests into the order in which their groups are to be begun."""
    items.sort(key=lambda item: _turn(item.nodeid))


def _turn(nodeid: str) -> int:
    """Where a test's group stands in the order."""
    return next((i for i, begins in enumerate(LONGEST) if nodeid.startswith(begins)), len(LONGEST))
