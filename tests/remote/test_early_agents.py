"""Agents that are started before anybody asks them."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from infra.errors import StackError
from infra.remote.agent_modules import agent_modules
from infra.remote.agent_session import AgentSession
from infra.remote.connecting import SshOptions
from infra.remote.early_agents import EarlyAgents
from infra.remote.failures import Unreachable
from tests.ports import free_port
from tests.remote.loopback_sshd import Sshd, inventory_host
from tests.remote.opened import open_host

STATE: dict[str, object] = {
    "operation": "state",
    "mode": "check",
    "stack": "s",
    "items": [{"id": "mtu", "kind": "mtu", "target": "lo", "want": None}],
    "prunes": True,
    "tells_releases": True,
}
LIMIT_S = 20.0


def wait_until_settled(session: AgentSession) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not session.is_settled:
        assert time.monotonic() < deadline, "the agent is not started"
        time.sleep(0.01)


def test_an_agent_that_was_started_early_answers_and_has_what_it_needs(
    sshd: Sshd, options: SshOptions
) -> None:
    host = inventory_host(sshd)
    early = EarlyAgents([host], options, ["state", "units"])
    taken = early.take(host)
    assert taken is not None
    opened, session = taken
    wait_until_settled(session)
    begun = session._talk
    assert begun is not None
    assert set(agent_modules(STATE)) <= session._carried
    assert "items" in session.ask(STATE, timeout_s=LIMIT_S)
    assert session._talk is begun
    opened.close()


def test_whoever_asks_waits_for_the_agent_that_is_on_its_way(
    sshd: Sshd, options: SshOptions
) -> None:
    opened = open_host(inventory_host(sshd), options)
    session = AgentSession(opened)
    start = session.prepare(["read"])
    timer = threading.Timer(0.2, start)
    timer.start()
    asked = {"operation": "read", "paths": []}
    assert session.ask(asked, timeout_s=LIMIT_S)["files"] == {}
    assert {"preparing", "reading"} <= session._carried  # the one that was prepared
    timer.join()
    opened.close()


def test_a_host_that_cannot_be_reached_says_so_to_who_asks_first(
    sshd: Sshd, options: SshOptions
) -> None:
    away = inventory_host(sshd, "away", port=free_port())
    taken = EarlyAgents([away], options, ["read"]).take(away)
    assert taken is not None
    opened, session = taken
    wait_until_settled(session)
    refusal = session._refusal
    with pytest.raises(Unreachable) as met:
        session.ask({"operation": "read", "paths": []}, timeout_s=LIMIT_S)
    assert met.value is refusal  # it was not tried a second time
    with pytest.raises(Unreachable) as again:
        session.ask({"operation": "read", "paths": []}, timeout_s=LIMIT_S)
    assert again.value is not refusal
    opened.close()


def test_agents_are_taken_once_and_the_others_hung_up_on(sshd: Sshd, options: SshOptions) -> None:
    first, second = inventory_host(sshd, "first"), inventory_host(sshd, "second")
    early = EarlyAgents([first, second], options, ["read"])
    taken = early.take(first)
    assert taken is not None
    assert early.take(first) is None
    assert early.are_waiting
    left, session = early._opened[second], early._sessions[second]
    for each in (taken[1], session):
        wait_until_settled(each)
    early.close()
    assert left._connection is None
    assert taken[0]._connection is not None
    taken[0].close()


def test_an_ssh_argument_that_cannot_be_read_is_refused_at_once(
    sshd: Sshd, options: SshOptions
) -> None:
    wrong = inventory_host(sshd, ssh_arguments=("-Z",))
    with pytest.raises(StackError, match="-Z"):
        EarlyAgents([wrong], options, ["read"])


def test_nobody_waits_for_a_host_that_nobody_asks(sshd: Sshd, options: SshOptions) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        silent = inventory_host(sshd, port=listener.getsockname()[1])
        early = EarlyAgents([silent], options, ["read"])
        session = early._sessions[silent]
        greeted, _ = listener.accept()
        early.close()
        assert not session.is_settled  # it is connecting still
        # the interpreter's end waits for threads that are no daemons
        assert all(t.daemon for t in threading.enumerate() if t.name == "early")
    greeted.close()
    wait_until_settled(session)
