"""One agent for request after request: what it keeps, what it learns, and when another one is started."""

from __future__ import annotations

import json
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from infra.agent.bundle import program
from infra.agent.host import Host
from infra.agent.lease import keep_lease
from infra.launch.lease import Owner, lease_document
from infra.remote import agent_modules as modules
from infra.remote import agent_session, exchange
from infra.remote.agent_modules import agent_modules
from infra.remote.agent_session import AgentSession, _ReportReader
from infra.remote.connecting import SshOptions
from infra.remote.failures import AgentFailed, LostConnection, OverTime
from infra.remote.host import SshHost
from infra.remote.outcome import Outcome
from infra.remote.ssh_target import resolve_target
from infra.remote.sudo import PROMPT, STARTED, Dialogue, SudoPassword
from tests.remote.loopback_sshd import Sshd, inventory_host
from tests.remote.opened import open_host

READ: dict[str, object] = {"operation": "read", "paths": ["/proc/self/stat"]}
LIMIT_S = 20.0


@pytest.fixture
def opened(sshd: Sshd, options: SshOptions) -> Iterator[SshHost]:
    host = open_host(inventory_host(sshd), options)
    yield host
    host.close()


def agent_id(session: AgentSession) -> int:
    """The process id of the agent that answers."""
    files = session.ask(READ, timeout_s=LIMIT_S)["files"]
    assert isinstance(files, dict)
    return int(files["/proc/self/stat"].split()[0])


def is_there(process: int) -> bool:
    """Whether it runs: who has ended may keep its number until the machine's first process looks for it."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


@pytest.fixture
def slow(tmp_path: Path) -> dict[str, object]:
    """A request that is in work until somebody writes to a pipe, which nobody does."""
    os.mkfifo(tmp_path / "pipe")
    return {"operation": "read", "paths": [str(tmp_path / "pipe")]}


def program_with(**changes: tuple[str, str]) -> Callable[[object], bytes]:
    """The agent as it travels to somebody who reads, with other words in some of its modules."""

    def packed(_: object) -> bytes:
        texts = dict(agent_modules(READ))
        for module, (words, others) in changes.items():
            assert words in texts[module]
            texts[module] = texts[module].replace(words, others)
        text = zlib.compress(program(texts).encode())
        return b"%d\n" % len(text) + text

    return packed


# One that waits only a moment for its next request.
IMPATIENT = program_with(conversation=("IDLE_LIMIT_S = 300.0", "IDLE_LIMIT_S = 0.2"))


@pytest.fixture
def leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Where the agent's leases lie. A holder may be silent for a second there."""
    text = agent_modules(READ)["lease"]
    changed = text.replace("/run/moe-infra/leases", f"{tmp_path}/run/moe-infra/leases")
    changed = changed.replace("SILENCE_S = 18.0", "SILENCE_S = 1.0")
    assert changed.count(str(tmp_path)) == changed.count("SILENCE_S = 1.0") == 1
    monkeypatch.setattr(agent_session, "agent_program", program_with(lease=(text, changed)))
    return Host(str(tmp_path))


def lease_of(operator: str, **keys: object) -> dict[str, object]:
    owner = Owner(operator=operator, machine="", process=1, started="")
    return {**lease_document("s", operator, owner, "fab up"), "takes": None, "held_s": None, **keys}


def holder(leases: Host) -> dict[str, object]:
    found = json.loads(leases.read_bytes("/run/moe-infra/leases/s.json"))
    assert isinstance(found, dict)
    return found


def wait_until_gone(process: int) -> None:
    deadline = time.monotonic() + 5
    while is_there(process):
        assert time.monotonic() < deadline, "the agent stays"
        time.sleep(0.02)


def wait_until_heard(session: AgentSession) -> None:
    """Until sshd has told of the agent's end."""
    talk = session._talk
    assert talk is not None
    deadline = time.monotonic() + 5
    while not talk.is_over:
        assert time.monotonic() < deadline, "nobody tells of the agent's end"
        time.sleep(0.02)


def test_what_turns_out_to_be_missing_is_sent_and_the_request_answered(
    opened: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules, "parts_of", lambda _: [])
    item = {"id": "mtu", "kind": "mtu", "target": "lo", "want": None}
    request = {"operation": "state", "mode": "check", "stack": "s", "items": [item]}
    session = AgentSession(opened)
    assert "kinds.links" not in modules.agent_modules(request)
    along = session.ask({**READ, "also": [request]}, timeout_s=LIMIT_S)["also"]
    assert isinstance(along, list)
    assert [row["id"] for row in along[0]["items"]] == ["mtu"]


def test_one_agent_answers_all_requests_and_learns_what_it_needs(opened: SshHost) -> None:
    session = AgentSession(opened)
    first = agent_id(session)
    report = session.ask({"operation": "listening", "ports": [1]}, timeout_s=LIMIT_S)
    assert "error" not in report
    assert "units" in session.ask({"operation": "status"}, timeout_s=LIMIT_S)
    assert agent_id(session) == first
    opened.close()
    wait_until_gone(first)


def test_an_agent_that_may_be_about_to_end_is_asked_nothing(
    opened: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = AgentSession(opened)
    first = agent_id(session)
    monkeypatch.setattr(agent_session, "WAITS_S", 0.0)
    assert agent_id(session) != first
    wait_until_gone(first)


def test_an_error_of_the_agent_does_not_end_it(opened: SshHost) -> None:
    session = AgentSession(opened)
    first = agent_id(session)
    with pytest.raises(AgentFailed, match="'dance' is not an operation"):
        session.ask({"operation": "dance"}, timeout_s=LIMIT_S)
    assert agent_id(session) == first


def test_a_body_follows_its_own_request(opened: SshHost) -> None:
    session = AgentSession(opened)
    agent_id(session)
    with pytest.raises(AgentFailed):
        session.ask({"operation": "receive", "body": b"x" * 100_000}, timeout_s=LIMIT_S)
    assert is_there(agent_id(session))


def test_an_agent_that_has_gone_is_started_again(opened: SshHost) -> None:
    session = AgentSession(opened)
    first = agent_id(session)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(opened.run, f"kill -9 {first}", timeout_s=LIMIT_S).result()
    wait_until_heard(session)
    assert agent_id(session) != first


def test_a_connection_that_died_while_it_was_idle_is_replaced(
    opened: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_session, "FRESH_S", 0.0)
    session = AgentSession(opened)
    first = agent_id(session)
    opened.open().close()
    assert agent_id(session) != first
    wait_until_gone(first)


def test_a_limit_ends_the_request_and_what_it_started(
    opened: SshHost, slow: dict[str, object]
) -> None:
    session = AgentSession(opened)
    first = agent_id(session)
    begun = time.monotonic()
    with pytest.raises(OverTime):
        session.ask(slow, timeout_s=0.5)
    assert time.monotonic() - begun < 5
    wait_until_gone(first)
    assert agent_id(session) != first


def test_a_connection_lost_in_a_request_leaves_its_outcome_unknown(
    opened: SshHost, slow: dict[str, object]
) -> None:
    session = AgentSession(opened)
    first = agent_id(session)
    timer = threading.Timer(0.5, opened.close)
    timer.start()
    with pytest.raises(LostConnection):
        session.ask(slow, timeout_s=LIMIT_S)
    timer.join()
    wait_until_gone(first)


def test_who_asks_meanwhile_has_an_agent_of_his_own(
    opened: SshHost, slow: dict[str, object]
) -> None:
    session = AgentSession(opened)
    first = agent_id(session)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(session.ask, slow, timeout_s=1.0)
        time.sleep(0.3)
        assert agent_id(session) != first
        with pytest.raises(OverTime):
            waits.result()


def test_an_idle_agent_goes_by_itself(opened: SshHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_session, "agent_program", IMPATIENT)
    session = AgentSession(opened)
    first = agent_id(session)
    wait_until_gone(first)
    wait_until_heard(session)
    monkeypatch.undo()
    assert is_there(agent_id(session))


def test_signs_of_life_that_come_too_late_for_one_request_are_no_part_of_the_next(
    opened: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "SIGN_S", 0.0)
    monkeypatch.setattr(agent_session, "agent_program", IMPATIENT)
    session = AgentSession(opened)
    first = agent_id(session)
    assert {agent_id(session) for _ in range(20)} == {first}
    wait_until_gone(first)


def test_a_sudo_that_may_still_ask_is_given_no_sign_of_life(
    opened: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "SIGN_S", 0.05)
    dialogue = Dialogue("loop-0", SudoPassword("open sesame"), b"the rest\n")
    asks = f"sleep 0.5; printf {PROMPT} >&2; read -r word; sleep 0.5; echo {STARTED} >&2"
    script = f"{asks}; read -r more; echo $word, $more"
    done = opened.run(script, timeout_s=LIMIT_S, hold_stdin=True, reply=dialogue.reply)
    assert done.stdout == b"open sesame, the rest\n"


def test_a_long_request_of_somebody_who_lives_keeps_the_lease(
    opened: SshHost, slow: dict[str, object], leases: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "SIGN_S", 0.2)
    session = AgentSession(opened)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(session.ask, {**slow, "lease": lease_of("ann")}, timeout_s=LIMIT_S)
        for _ in range(20):
            time.sleep(0.1)
            assert not waits.done()
        assert time.monotonic() - float(str(holder(leases)["renewed"])) < 1
        (pipe,) = cast("list[str]", slow["paths"])
        Path(pipe).write_text("done")
        assert waits.result()["files"] == {pipe: "done"}


class NoOtherAgent(SshHost):
    """A host on which nothing runs that is not spoken with in turns."""

    def run(self, command: str, **_: object) -> Outcome:
        raise AssertionError(command)


@pytest.fixture
def alone(sshd: Sshd, options: SshOptions) -> Iterator[SshHost]:
    ssh_config = options.resources.ssh_config
    host = NoOtherAgent(resolve_target(inventory_host(sshd), options.defaults, ssh_config), options)
    yield host
    host.close()


@pytest.mark.parametrize(
    ("asked", "needs_another"),
    [
        ({"lease": lease_of("ann", held_s=1.0)}, False),
        ({"lease": lease_of("bob", held_s=1.0)}, True),
        ({"lease": lease_of("ann", release=True)}, True),
        ({"lease": lease_of("ann"), "also": []}, True),
        ({}, True),
    ],
    ids=["renewal", "of-another", "release", "more", "nothing"],
)
def test_a_renewal_on_a_host_at_work_starts_no_other_agent(
    alone: SshHost,
    slow: dict[str, object],
    leases: Host,
    asked: dict[str, object],
    needs_another: bool,
) -> None:
    session = AgentSession(alone)
    (pipe,) = cast("list[str]", slow["paths"])
    request = {"operation": "lease", **asked}
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(session.ask, {**slow, "lease": lease_of("ann")}, timeout_s=LIMIT_S)
        with Path(pipe).open("w") as end:  # as soon as the agent reads it
            if needs_another:
                with pytest.raises(AssertionError, match="python3"):
                    session.ask(request, timeout_s=LIMIT_S)
            else:
                assert session.ask(request, timeout_s=LIMIT_S)["lease"] is True
            end.write("done")
        assert waits.result()["files"] == {pipe: "done"}
    assert (
        session.ask({"operation": "lease"}, timeout_s=LIMIT_S)["lease"] is False
    )  # the agent's word


def test_a_long_request_of_somebody_who_is_silent_ends_before_others_may_go_on(
    opened: SshHost, slow: dict[str, object], leases: Host
) -> None:
    """Nobody has hung up: a machine that lost its power does not."""
    session = AgentSession(opened)
    first, begun = agent_id(session), time.monotonic()
    with pytest.raises(LostConnection, match="has heard nothing of this command"):
        session.ask({**slow, "lease": lease_of("ann")}, timeout_s=LIMIT_S)
    assert time.monotonic() - begun < 3
    assert float(str(holder(leases)["renewed"])) < begun + 0.9
    wait_until_gone(first)


def test_a_request_whose_lease_was_taken_ends(
    opened: SshHost, slow: dict[str, object], leases: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "SIGN_S", 0.2)
    session = AgentSession(opened)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(session.ask, {**slow, "lease": lease_of("ann")}, timeout_s=LIMIT_S)
        time.sleep(0.7)
        keep_lease(leases, lease_of("bob", takes="*"))
        with pytest.raises(LostConnection, match="its lease was taken"):
            waits.result()
    assert holder(leases)["operator"] == "bob"


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_a_report_is_found_in_pieces_of_any_size_behind_noise(size: int) -> None:
    text = b'Welcome!\nmoe-infra-report 12\nnonsense\n\nmoe-infra-report 8\n{"a": 1}\n'
    reader = _ReportReader()
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    assert [reader.take(piece) for piece in pieces].count(True) >= 1
    assert reader.report == {"a": 1}


def test_a_host_that_promises_report_after_report_is_not_read_for_ever() -> None:
    reader = _ReportReader()
    assert not reader.take(b"moe-infra-report 4000000\n" * 200_000)
    assert reader.report == {}
