"""The emulated provider as a program: what it says to the engine that has started it."""

from __future__ import annotations

import socket

import pytest

from infra.rehearsal.cloud.plugin import tell


def test_an_engine_that_does_not_listen_costs_a_line_and_not_the_operation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the connection and says nothing
        tell(f"127.0.0.1:{silent.getsockname()[1]}", "EMULATION: nothing is real", 0.3)
    assert capsys.readouterr().err == "EMULATION: nothing is real\n"
