"""Which slow tests stay together on one worker (`pytest --dist loadgroup`), and which are begun first.

xdist's own groups are marks that it hangs on a test's id, which pytest 9.2 lets nobody change any more.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it has no types

KUBERNETES = "tests/kubernetes/"  # all of its tests share one cluster
ALONE = "tests/rehearsal/"  # each of its tests starts the hosts that it needs, or none
ONE_LAB = "tests/rehearsal/lab/"  # but these, which share hosts
# Longest first, by how ids begin: what is begun last is what all others wait for.
LONGEST = (
    KUBERNETES,
    "tests/checks/test_mutations.py",
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


def group_of(nodeid: str) -> str:
    """The name of a test's group."""
    if nodeid.startswith(KUBERNETES):
        return KUBERNETES
    goes_alone = nodeid.startswith(ALONE) and not nodeid.startswith(ONE_LAB)
    return nodeid if goes_alone else nodeid.partition("::")[0]


def put_longest_first(items: list[pytest.Item]) -> None:
    """Sort tests into the order in which their groups are to be begun."""
    items.sort(key=lambda item: _turn(item.nodeid))


def _turn(nodeid: str) -> int:
    """Where a test's group stands in the order."""
    return next((i for i, begins in enumerate(LONGEST) if nodeid.startswith(begins)), len(LONGEST))
