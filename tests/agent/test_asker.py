"""An agent that nobody waits for ends in time: whatever cleans up, however it is hung up on, and while it writes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.remote.agent_call import framed_request
from infra.spec.load import PROJECT

LIMIT_S = 10.0
# More than all buffers between an agent and its reader.
NUM_BYTES = 1 << 20


@contextmanager
def an_agent(mode: str, end: int = subprocess.PIPE) -> Iterator[subprocess.Popen[bytes]]:
    """An agent of our own, whose standard input stays open."""
    with subprocess.Popen(
        [sys.executable, "-m", "infra.agent", mode],
        cwd=PROJECT,
        stdin=end,
        stdout=end,
        stderr=subprocess.PIPE,
    ) as agent:
        try:
            yield agent
        finally:
            agent.kill()


def say(agent: subprocess.Popen[bytes], request: dict[str, object]) -> None:
    assert agent.stdin is not None
    agent.stdin.write(framed_request(request))
    agent.stdin.flush()


def wait_until_there(path: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.01)


def test_an_agent_does_not_outlive_its_time_for_what_cleans_up_behind_it(tmp_path: Path) -> None:
    """Its main thread would go on as long: another one may hold the lease by then."""
    begun, go, cleaned = tmp_path / "begun", tmp_path / "go", tmp_path / "cleaned"
    command = {
        "id": "one",
        "argv": ["sh", "-c", f"touch {begun}; exec sleep 60"],
        "timeout_s": 60,
        "behind": ["sh", "-c", f"until test -e {go}; do sleep 0.02; done; touch {cleaned}"],
    }
    with an_agent("framed") as agent:
        say(agent, {"operation": "facts", "commands": [command], "deadline_s": 2.0})
        wait_until_there(begun)
        agent.wait(LIMIT_S / 2)  # what cleans up has not ended by then
        go.touch()
        wait_until_there(cleaned)


def test_a_socket_that_is_closed_unread_is_the_end_of_standard_input(tmp_path: Path) -> None:
    """Some sshd give a pair of sockets for standard input and output; reading fails there, and does not end."""
    ours, theirs = socket.socketpair()
    os.mkfifo(tmp_path / "pipe")
    with ours, theirs, an_agent("turns", theirs.fileno()) as agent:
        theirs.close()
        for path in ("/none", str(tmp_path / "pipe")):
            ours.sendall(framed_request({"operation": "read", "paths": [path]}))
        # until it waits for what nobody writes, with its first report unread
        writer = os.open(tmp_path / "pipe", os.O_WRONLY)
        ours.close()
        assert agent.wait(LIMIT_S) == 1
        os.close(writer)


@pytest.mark.parametrize("mode", ["framed", "turns"])
def test_a_report_that_nobody_reads_is_given_up_in_time(mode: str, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (NUM_BYTES // 8))
    for place in range(8):
        (tmp_path / str(place)).symlink_to("large")
    paths = [str(tmp_path / str(place)) for place in range(8)]
    with an_agent(mode) as agent:
        say(agent, {"operation": "read", "paths": paths, "deadline_s": 1.0})
        assert agent.wait(LIMIT_S) == 1
        assert agent.stderr is not None
        assert agent.stderr.read() == b"moe-infra:over-time\n"


def test_what_is_said_behind_a_large_report_is_the_next_request(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 100_000)
    request: dict[str, object] = {"operation": "read", "paths": [str(tmp_path / "large")]}
    with an_agent("turns") as agent:
        limit = threading.Timer(LIMIT_S, agent.kill)
        limit.start()
        assert agent.stdout is not None
        for _ in range(50):
            say(agent, request)
            assert agent.stdout.readline() == b"\n"
            _, _, length = agent.stdout.readline().partition(b" ")
            assert len(agent.stdout.read(int(length) + 1)) > 100_000
        limit.cancel()
