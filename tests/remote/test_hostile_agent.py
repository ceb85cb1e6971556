"""A host where something else answers for the agent: one clear failure of that host, soon, and others go on."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from infra.agent.conversation import MARKER
from infra.errors import HostsFailed
from infra.launch.fleet import SshFleet
from infra.remote.agent_call import call_agent, read_answer
from infra.remote.agent_session import AgentSession
from infra.remote.agent_stream import open_agent_stream
from infra.remote.connecting import SshOptions
from infra.remote.failures import NoReport
from infra.remote.outcome import Outcome
from infra.remote.report_shapes import ROWS, refuse_misshapen
from tests.remote.loopback_sshd import Sshd, inventory_host
from tests.remote.opened import open_host

READ: dict[str, object] = {"operation": "read", "paths": []}
LIMIT_S = 60.0
ENDLESS = {
    "noise": "yes no-such-marker",
    "one report": f"printf '\\n{MARKER} 999999999\\n'; yes",
    "reports": f"while :; do printf '\\n{MARKER} 3\\n[1]\\n'; head -c 100000 /dev/zero; done",
    "last words": "yes >&2",
}


@contextmanager
def answering(sshd: Sshd, script: str) -> Iterator[None]:
    """Whoever logs in gets this script for an agent."""
    keys = sshd.folder / "authorized_keys"
    before = keys.read_text()
    program = sshd.folder / "evil"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    keys.write_text("".join(f'command="{program}" {line}\n' for line in before.splitlines()))
    try:
        yield
    finally:
        keys.write_text(before)


# 64 MiB come over SSH before they are found to be too many
@pytest.mark.slow
@pytest.mark.parametrize("script", ENDLESS.values(), ids=ENDLESS)
def test_an_agent_that_never_ends_is_hung_up_on(
    sshd: Sshd, options: SshOptions, script: str
) -> None:
    with answering(sshd, script):
        host = open_host(inventory_host(sshd), options)
        for ask in (call_agent, _in_a_session):
            begun = time.monotonic()
            with pytest.raises(HostsFailed, match=r"answers with more than 64 MiB"):
                ask(host, READ, timeout_s=LIMIT_S)
            assert time.monotonic() - begun < LIMIT_S
        host.close()


def _in_a_session(host: object, request: dict[str, object], *, timeout_s: float) -> object:
    return AgentSession(host).ask(request, timeout_s=timeout_s)  # type: ignore[arg-type]  # an SshHost


def said(document: object) -> str:
    """A script that answers a document."""
    text = json.dumps(document)
    return f"printf '\\n%s %d\\n' {MARKER} {len(text)}; printf %s {shlex.quote(text)}"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ([1, 2], "gave no report"),
        ({"items": {}}, "items is no list"),
        ({"items": [[]]}, "a row of items is no map"),
        (
            {"items": [{"id": 7, "group": "", "state": "", "why": ""}]},
            "id of a row of items is no str",
        ),
        (
            {"also": [{"groups": [{"group": "a", "epoch": "x"}]}]},
            "epoch of a row of groups is no int",
        ),
        ({"listening": [{"port": 1.5}]}, "port of a row of listening is no int"),
    ],
)
def test_an_answer_of_another_shape_fails_its_host(
    sshd: Sshd, options: SshOptions, answer: object, why: str
) -> None:
    with answering(sshd, said(answer)):
        host = open_host(inventory_host(sshd), options)
        with pytest.raises(NoReport, match=why):
            call_agent(host, READ, timeout_s=LIMIT_S)
        host.close()


@pytest.mark.parametrize(
    "script",
    [
        "printf '\\nmoe-infra-stream\\n99999999999999999999\\n'; yes",
        "printf '\\nmoe-infra-stream\\n-5\\n'",
    ],
)
def test_a_stream_of_another_kind_fails_its_host(
    sshd: Sshd, options: SshOptions, script: str
) -> None:
    with answering(sshd, script):
        host = open_host(inventory_host(sshd), options)
        stream = open_agent_stream(host, READ, timeout_s=LIMIT_S)
        with pytest.raises(NoReport, match="no stream of an agent"):
            list(stream.chunks())
        stream.close()
        host.close()


def test_other_hosts_answer_beside_a_hostile_one(sshd: Sshd, options: SshOptions) -> None:
    """The first login meets somebody else's program, the second one the agent."""
    taken = sshd.folder / "taken"
    once = f"[ -e {taken} ] || {{ touch {taken}; {said([])}; exit; }}"
    hosts = {name: replace(inventory_host(sshd), name=name) for name in ("evil", "good")}
    with answering(sshd, f'{once}; eval "$SSH_ORIGINAL_COMMAND"'):
        fleet = SshFleet(hosts, options, asks_once=True)
        answers = {name: fleet.ask({name: READ}, timeout_s=LIMIT_S)[name] for name in hosts}
        fleet.close()
    taken.unlink()
    assert isinstance(answers["evil"], HostsFailed)
    assert isinstance(answers["good"], dict)
    assert answers["good"]["files"] == {}


@pytest.mark.parametrize(
    "text",
    [
        '{"a":' * 2_000 + "1" + "}" * 2_000,
        '{"a": ' + "9" * 5_000 + "}",
        '{"a": NaN}',
        '{"a": [' + "1," * 4_100_000 + "1]}",
    ],
    ids=["deep", "digits", "constant", "values"],
)
def test_json_that_nothing_can_go_on_with_is_no_report(text: str) -> None:
    told = f"\n{MARKER} {len(text)}\n{text}\n".encode()
    with pytest.raises(NoReport, match="gave no report"):
        read_answer("a", Outcome(exit_code=0, stdout=told, stderr=b""))


def test_every_shape_is_one_of_a_documented_report() -> None:
    import infra.agent  # noqa: PLC0415 - its docstring is the list

    assert all(
        f'"{key}"' in str(infra.agent.__doc__) or key == "also"
        for key in ROWS
        if key != "checkpoints"
    )
    refuse_misshapen("a", {key: [] for key in ROWS})
