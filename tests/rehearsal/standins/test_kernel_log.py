"""A command line of journalctl that asks for the kernel's log, as the stand-in hands it on to journalctl."""

from __future__ import annotations

import pytest

from infra.rehearsal.standins.kernel_log import without_kernel


@pytest.mark.parametrize(
    ("asked", "handed_on"),
    [
        ("-k", ""),
        ("-k -b -g Xid", "-b -g Xid"),
        ("-q -k -b -o short-iso --no-pager", "-q -b -o short-iso --no-pager"),
        ("-qkb", "-qb"),
        ("-kgXid", "-gXid"),
        ("--dmesg -n5", "-n5"),
        ("--dm", ""),
        ("-k --frobnicate", "--frobnicate"),
        ("-g -k", None),
        ("-gk", None),
        ("-u kube -o cat", None),
        ("-tk --grep=-k", None),
        ("-b-1 -n", None),
        ("--disk-usage", None),
        ("--d", None),
        ("-q -- -k", None),
        ("- k", None),
        ("", None),
    ],
)
def test_only_the_kernel_is_taken_from_a_command_line(asked: str, handed_on: str | None) -> None:
    words = without_kernel(asked.split())
    assert (words if words is None else " ".join(words)) == handed_on
