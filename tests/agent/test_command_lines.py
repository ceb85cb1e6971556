"""Command lines of processes: those that are told, empty, gone, or locked away."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from infra.agent.facts.command_lines import command_lines
from infra.agent.facts.device_holders import holders_of
from tests.agent.stubborn_host import StubbornHost


def test_empty_ones_are_names_in_brackets_and_those_that_have_gone_nothing(
    host: StubbornHost,
) -> None:
    host.put("/proc/7/cmdline", "vllm\0serve\0")
    host.put("/proc/8/cmdline", "")
    host.put("/proc/8/comm", "nfsd\n")
    assert command_lines(host, [9, 7, 8]) == {9: "", 7: "vllm serve", 8: "[nfsd]"}
    assert command_lines(host, []) == {}


def test_one_that_cannot_be_read_keeps_none_behind_it_waiting(
    host: StubbornHost, hang: Callable[[Path], None]
) -> None:
    for pid in (7, 9, 10):
        host.put(f"/proc/{pid}/cmdline", f"rank\0{pid}\0")
    for pid in (6, 8):
        host.put(f"/proc/{pid}/comm", "python3\n")
        hang(Path(host.path(f"/proc/{pid}/cmdline")))
    begun = time.monotonic()
    found = command_lines(host, [6, 7, 8, 9, 10], 0.5)
    assert 0.5 <= time.monotonic() - begun < 1.5
    silent = "[python3] (no answer)"
    assert found == {6: silent, 7: "rank 7", 8: silent, 9: "rank 9", 10: "rank 10"}


def test_who_holds_a_device_is_told_where_its_command_line_is_not(
    host: StubbornHost, hang: Callable[[Path], None]
) -> None:
    host.put("/dev/davinci0", "")
    host.put("/proc/8/comm", "python3\n")
    host.put("/proc/8/cgroup", "0::/system.slice/other.service\n")
    hang(Path(host.path("/proc/8/cmdline")))
    folder = Path(host.path("/proc/8/fd"))
    folder.mkdir()
    (folder / "3").symlink_to(host.path("/dev/davinci0"))
    assert holders_of(host, ["/dev/davinci0"]) == [
        {
            "device": "/dev/davinci0",
            "pid": 8,
            "control_group": "/system.slice/other.service",
            "command": "[python3] (no answer)",
        }
    ]
