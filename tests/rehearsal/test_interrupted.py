"""Whatever ends `fab rehearse` in whichever step, nothing of it stays on the machine."""

from __future__ import annotations

import os
import signal

import pytest

from infra.rehearsal.folders import PREFIX
from tests.rehearsal.command import FAB, Shell, end, wait_for

pytestmark = [pytest.mark.lab]

# SIGTERM and SIGHUP are not caught: they end the command as SIGKILL does, so that one step stands for all.
SIGNALS = (signal.SIGINT, signal.SIGKILL)
# The last line that is said before a step is in the middle of its work.
BEFORE = {"provision": "prefill-0 runs at", "hosts": "provision  ", "start": "installed on"}


@pytest.mark.pulumi
@pytest.mark.usefixtures("pulumi_is_possible")
@pytest.mark.slow  # eight rehearsals of up to ten seconds
@pytest.mark.parametrize(
    ("number", "step"),
    [
        *((number, step) for number in SIGNALS for step in BEFORE),
        (signal.SIGTERM, "start"),
        (signal.SIGHUP, "start"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_nothing_outlives_an_end_in_a_step(step: str, number: signal.Signals, shell: Shell) -> None:
    words = ("--stack", "gb200-2p1d") if step == "provision" else ("--stack", "a3-2p1d")
    process = shell.start(FAB, "rehearse", *words)
    wait_for(process, BEFORE[step])
    programs = " ".join(shell.look(process))
    if step == "provision":  # the engine, its language host and the emulated provider
        for program in ("pulumi up", "pulumi-language-python", "infra.rehearsal.cloud.plugin"):
            assert program in programs
    if step == "start":
        assert "systemd" in programs
    done = end(process, number)
    assert done.code == (130 if number == signal.SIGINT else -number)
    assert "\nTraceback" not in done.err
    if number == signal.SIGINT:
        assert "Interrupted" in done.err
    shell.assert_nothing_left(empty_folders=number == signal.SIGKILL)


def test_the_next_start_removes_what_a_killed_one_left(shell: Shell) -> None:
    forgotten, of_somebody, new = (shell.temporary / f"{PREFIX}{i}" for i in range(3))
    for folder in (forgotten, of_somebody, new):
        folder.mkdir()
    (forgotten / "lab.log").touch()
    (of_somebody / "notes").touch()
    for folder in (forgotten, of_somebody):
        os.utime(folder, (0, 0))
    assert shell.fab("rehearse", "--stack", "a3-2p1d", "--to-step", "plan").code == 0
    assert sorted(shell.temporary.iterdir()) == [of_somebody, new]
