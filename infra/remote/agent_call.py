"""Carries the agent to a host in one execution: its sources and the request on standard input, nothing on disk."""

from __future__ import annotations

import json
import re
import shlex
import zlib
from collections import deque
from collections.abc import Mapping
from typing import Literal, cast

from infra.agent.asker import ABANDONED, OVER_TIME
from infra.agent.conversation import MARKER
from infra.errors import HostsFailed
from infra.remote.agent_modules import whole_program
from infra.remote.failures import (
    AgentFailed,
    LeaseHeld,
    LostConnection,
    NoPython,
    NoReport,
    OverTime,
    SudoRefused,
)
from infra.remote.outcome import Host, Outcome
from infra.remote.report_shapes import refuse_misshapen
from infra.remote.sudo import PROMPT, STARTED, Dialogue, SudoPassword
from infra.spec.bounded import read_json

Mode = Literal["framed", "piped", "turns"]

LAST_LINES = 10
REPORT = re.compile(rb"^" + MARKER.encode() + rb" (\d{1,9})\n", re.MULTILINE)
# A login's noise holds no marker; each that is none costs a look at all that it promises.
MOST_MARKERS = 16
# No quotes inside, so that any shell passes it on; the words of the report are found by their marker.
_BOOTSTRAP = "import sys,zlib;i=sys.stdin.buffer;exec(zlib.decompress(i.read(int(i.readline()))))"
_NO_PYTHON, _NO_SUDO, _OLD_PYTHON = (
    "moe-infra:no-python",
    "moe-infra:no-sudo",
    "moe-infra:old-python",
)
_FIND_PYTHON = f"p=$(command -v python3) || {{ echo {_NO_PYTHON} >&2; exit 127; }}"
# The same, but it says that it runs before it reads; the word is its last argument.
_ANNOUNCED = (
    "import sys,zlib;e=sys.stderr;e.write(sys.argv.pop()+chr(10));e.flush();"
    + _BOOTSTRAP.partition(";")[2]
)
_BECOME_ROOT = (
    'if [ "$(id -u)" != 0 ]; then '
    f'[ -n "$(command -v sudo)" ] || {{ echo {_NO_SUDO} >&2; exit 126; }}; '
    'set -- sudo %s "$p"; else set -- "$p"; fi'
)
_WITHOUT_PASSWORD, _WITH_PASSWORD = "-n", f"-S -p {PROMPT}"
_NOT_ALLOWED = ("not in the sudoers file", "not allowed to", "may not run sudo")
_WRONG_PASSWORD = b"incorrect password attempt"
# By what the host says: the kind of failure, the fact, the fix.
_ANSWERS: tuple[tuple[tuple[str, ...], type[HostsFailed], str, str], ...] = (
    (
        (ABANDONED,),
        LostConnection,
        "the host has heard nothing of this command for a while, or its lease was taken; it ended what it did.",
        "Run the command again: it goes on from what it finds.",
    ),
    (
        (OVER_TIME,),
        OverTime,
        "no answer in time; the agent ended what it had started.",
        "Look at the host, then run again.",
    ),
    ((_NO_PYTHON,), NoPython, "there is no python3.", "Install python3 (3.6 or newer) there."),
    ((_OLD_PYTHON,), NoPython, "its python3 is too old.", "Install Python 3.6 or newer there."),
    (
        (_NO_SUDO,),
        SudoRefused,
        "the login is not root and there is no sudo.",
        "Install sudo, or connect as root.",
    ),
    (
        ("a password is required", "no askpass"),
        SudoRefused,
        "sudo wants a password.",
        "Give --ask-sudo-password, or the login NOPASSWD in /etc/sudoers.d, or connect as root.",
    ),
    (
        ("must have a tty",),
        SudoRefused,
        "sudo wants a terminal (requiretty).",
        "Write Defaults:LOGIN !requiretty to /etc/sudoers.d.",
    ),
    (
        _NOT_ALLOWED,
        SudoRefused,
        "sudo does not let this login run python3.",
        "Let it: write LOGIN ALL=(ALL) ALL to /etc/sudoers.d, or connect as root.",
    ),
)


def call_agent(
    host: Host,
    request: Mapping[str, object],
    *,
    timeout_s: float,
    sudo: bool = True,
    password: SudoPassword | None = None,
) -> dict[str, object]:
    """The agent's report on a request.

    Args:
        host: where it runs.
        request: operation and its keys; secrets may stand in it, since it travels on standard input.
        timeout_s: limit of the whole; the agent ends itself and what it started when it passes, or
            when this side goes away.
        sudo: whether a login other than root becomes root.
        password: for a sudo that asks for one; None where it must not ask.

    Raises:
        HostsFailed: by its subclass, why there is no report; `AgentFailed` when the report is an error.
    """
    payload = agent_input(request, timeout_s=timeout_s)
    if password is None or not sudo:
        command = agent_command(sudo=sudo)
        outcome = host.run(command, stdin=payload, timeout_s=timeout_s, hold_stdin=True)
    else:
        outcome = _run_with_password(host, payload, timeout_s, password)
    return read_answer(host.name, outcome)


def agent_input(request: Mapping[str, object], *, timeout_s: float) -> bytes:
    """What `agent_command` reads: the program with all that may be needed, then the request.

    Args:
        request: operation and its keys; bytes under `body` follow the rest as they are.
        timeout_s: when the agent ends itself and what it started.
    """
    return whole_program(request) + framed_request({"deadline_s": timeout_s, **request})


def framed_request(request: Mapping[str, object]) -> bytes:
    """A request as the agent's program reads it: a length line, its JSON, compressed, and the bytes of `body`."""
    body = request.get("body")
    following = body if isinstance(body, bytes) else b""
    told = {key: value for key, value in request.items() if key != "body"}
    sizes = {"body_bytes": len(following)} if following else {}
    document = {"schema_version": 1, **told, **sizes}
    text = zlib.compress(json.dumps(document, separators=(",", ":")).encode())
    return b"%d\n" % len(text) + text + following


def read_answer(name: str, outcome: Outcome) -> dict[str, object]:
    """The report that an agent wrote.

    Raises:
        HostsFailed: by its subclass, why there is none; `AgentFailed` when the report is an error.
    """
    report = find_report(outcome.stdout)
    if report is None:
        raise failure_of(name, outcome)
    return without_error(name, report)


def without_error(name: str, report: dict[str, object]) -> dict[str, object]:
    """A report that is not an error.

    Raises:
        AgentFailed: it is one.
        LeaseHeld: it is one since somebody else holds the lease.
        NoReport: it is none that an agent gives.
    """
    error = report.get("error")
    if isinstance(error, dict) and isinstance(error.get("lease"), dict):
        raise LeaseHeld(name, f"{error.get('what')}.", error["lease"])
    if isinstance(error, dict):
        raise AgentFailed(name, f"{error.get('what')}.", str(error.get("fix")))
    refuse_misshapen(name, report)
    return report


def agent_command(*, sudo: bool, asks: bool = False, mode: Mode = "framed") -> str:
    """The command line that starts the agent; the same for every host and every request.

    `env` and `sh -c` make it independent of the login's shell, -I and -S of the host's Python set-up.

    Args:
        sudo: whether a login other than root becomes root.
        asks: whether sudo may ask for a password on standard input; the program then says that it runs
            before it reads.
        mode: `framed` where the caller keeps standard input open, so that its end means that nobody waits;
            `piped` where it does not; `turns` for requests that follow each other.
    """
    become = _BECOME_ROOT % (_WITH_PASSWORD if asks else _WITHOUT_PASSWORD)
    program = f'"{_ANNOUNCED}" {mode} {STARTED}' if asks else f'"{_BOOTSTRAP}" {mode}'
    chosen = become if sudo else 'set -- "$p"'
    script = f'{_FIND_PYTHON}; {chosen}; exec "$@" -I -S -c {program}'
    return f"env LC_ALL=C sh -c {shlex.quote(script)}"


def find_report(stdout: bytes) -> dict[str, object] | None:
    """The report among whatever else a login prints; None when there is no whole one."""
    for match in reversed(deque(REPORT.finditer(stdout), maxlen=MOST_MARKERS)):
        text = stdout[match.end() : match.end() + int(match.group(1))]
        try:
            report = read_json(text)
        except ValueError:
            continue
        if isinstance(report, dict):
            return cast("dict[str, object]", report)
    return None


def _run_with_password(
    host: Host, payload: bytes, timeout_s: float, password: SudoPassword
) -> Outcome:
    """Run the agent under a sudo that may ask; the payload follows when sudo is content."""
    dialogue = Dialogue(host.name, password, payload)
    command = agent_command(sudo=True, asks=True)
    try:
        outcome = host.run(command, timeout_s=timeout_s, hold_stdin=True, reply=dialogue.reply)
        judge_dialogue(dialogue, password, outcome)
        return outcome
    finally:
        dialogue.close()


def judge_dialogue(dialogue: Dialogue, password: SudoPassword, outcome: Outcome) -> None:
    """Note what sudo thought of the password, where the program was not started.

    Raises:
        SudoRefused: it is wrong.
    """
    if dialogue.has_answered and not dialogue.has_started:
        if outcome.exit_code is not None and _WRONG_PASSWORD in outcome.stderr:
            raise dialogue.wrong()
        if any(sign.encode() in outcome.stderr for sign in _NOT_ALLOWED):
            password.accepted()  # sudo looks at its rules after the password


def failure_of(name: str, outcome: Outcome) -> HostsFailed:
    """Why there is no report."""
    if outcome.exit_code is None:
        what = "the connection was lost before the answer: what happened there is unknown."
        return LostConnection(name, what, "Run the command again: it goes on from what it finds.")
    errors = outcome.stderr.decode("utf-8", "replace")
    for mark in (PROMPT, STARTED):
        errors = errors.replace(mark, "")
    for signs, failure, what, fix in _ANSWERS:
        if any(sign in errors for sign in signs):
            return failure(name, what, fix)
    said = (errors.strip() or outcome.stdout.decode("utf-8", "replace").strip()).splitlines()
    words = " / ".join(said[-LAST_LINES:]) or "nothing"
    what = f"the agent gave no report (exit code {outcome.exit_code}); it said: {words}"
    return NoReport(name, what, "Try python3 there by hand.")
