"""Processes that wait in the kernel: who does through two looks, and who only happened to."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from infra.agent.facts.command_lines import LIMIT_S
from infra.agent.facts.stuck import stuck_processes
from tests.agent.stubborn_host import StubbornHost

KERNEL_THREAD = 0x00200040


def put_thread(
    host: StubbornHost, task: int, state: str, *, flags: int = 4194560, switches: int = 7
) -> None:
    """A thread of process 40."""
    folder = f"/proc/40/task/{task}"
    host.put(f"{folder}/stat", f"{task} (npu (smi) x) {state} 1 40 40 0 -1 {flags} 12 0\n")
    host.put(
        f"{folder}/status",
        f"voluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t0\n",
    )
    host.put(f"{folder}/wchan", "rpc_wait_bit_killable")
    host.put("/proc/40/cmdline", "npu-smi\0info\0")


def test_a_thread_that_does_not_run_between_two_looks_is_stuck(host: StubbornHost) -> None:
    put_thread(host, 40, "S")
    put_thread(host, 41, "D")
    slept: list[float] = []
    rows = stuck_processes(host, slept.append)
    assert rows == [
        {"pid": 40, "task": 41, "command": "npu-smi info", "where": "rpc_wait_bit_killable"}
    ]
    assert slept == [0.5]


def test_one_that_ran_in_between_ended_or_came_back_is_not(host: StubbornHost) -> None:
    put_thread(host, 41, "D")
    assert stuck_processes(host, lambda _: put_thread(host, 41, "D", switches=8)) == []
    assert stuck_processes(host, lambda _: put_thread(host, 41, "S")) == []


def test_one_that_does_not_let_its_command_line_be_read_is_told_all_the_same(
    host: StubbornHost, hang: Callable[[Path], None]
) -> None:
    """Its memory is locked, as in a wedged driver."""
    put_thread(host, 41, "D")
    put_thread(host, 42, "D")
    host.put("/proc/40/comm", "npu-smi\n")
    hang(Path(host.path("/proc/40/cmdline")))
    begun = time.monotonic()
    rows = stuck_processes(host, lambda _: None)
    assert time.monotonic() - begun < 2 * LIMIT_S
    assert [(row["task"], row["command"]) for row in rows] == [
        (41, "[npu-smi] (no answer)"),
        (42, "[npu-smi] (no answer)"),
    ]


def test_the_kernel_s_own_threads_may_wait(host: StubbornHost) -> None:
    put_thread(host, 41, "D", flags=KERNEL_THREAD)
    slept: list[float] = []
    assert stuck_processes(host, slept.append) == []
    assert slept == []  # nobody waits, so nobody is looked at twice
