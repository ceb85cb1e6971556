"""The agent carried to a host: over a shell, over SSH, through noise, and every way it can be refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from infra.agent.bundle import WATCHER
from infra.catalog.load import Catalog
from infra.errors import HostsFailed
from infra.remote.agent_call import (
    agent_command,
    agent_input,
    call_agent,
    find_report,
    framed_request,
    read_answer,
)
from infra.remote.agent_modules import agent_modules, agent_program
from infra.remote.failures import (
    AgentFailed,
    LostConnection,
    NoPython,
    NoReport,
    OverTime,
    SudoRefused,
)
from infra.remote.outcome import Host, Outcome, Reply, Stream
from infra.render.host_state import hosts_state
from infra.render.wanted_tuning import Tuning
from tests.remote.fake_host import FakeHost

BIN = "/usr/bin:/bin"
READ: dict[str, object] = {"operation": "read", "paths": []}


def stand_in(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def not_root(folder: Path, sudo: str) -> FakeHost:
    """A login that is not root, with a sudo that answers like this."""
    stand_in(folder / "bin", "id", "echo 1000")
    stand_in(folder / "bin", "sudo", sudo)
    return FakeHost(environment={"PATH": f"{folder / 'bin'}:{BIN}"})


def test_a_report_comes_back(host: Host, folder: Path) -> None:
    (folder / "note").write_text("grüße\n")
    request = {"operation": "read", "paths": [str(folder / "note"), str(folder / "none")]}
    report = call_agent(host, request, timeout_s=20, sudo=False)
    assert report["files"] == {str(folder / "note"): "grüße\n", str(folder / "none"): None}


def test_a_caller_that_closes_standard_input_at_once_gets_its_report(folder: Path) -> None:
    host = FakeHost(noise=b"Welcome!\n")
    stdin = agent_input({"operation": "read", "paths": ["/none"]}, timeout_s=20)
    command = agent_command(sudo=False, mode="piped")
    outcome = host.run(command, stdin=stdin, timeout_s=20)
    assert read_answer(host.name, outcome)["files"] == {"/none": None}


def test_an_error_of_the_agent_is_raised_with_its_fix(host: Host) -> None:
    with pytest.raises(AgentFailed, match="'dance' is not an operation") as caught:
        call_agent(host, {"operation": "dance"}, timeout_s=20, sudo=False)
    assert "state" in caught.value.fix
    assert caught.value.where == host.name


def test_noise_around_the_report_does_no_harm(folder: Path) -> None:
    host = FakeHost(noise=b"Welcome!\nmoe-infra-report 12\nnonsense\n")
    report = call_agent(host, {"operation": "read", "paths": []}, timeout_s=20, sudo=False)
    assert report["files"] == {}


def test_nothing_is_a_secret_s_hiding_place_but_standard_input() -> None:
    assert "secret" not in agent_command(sudo=True)
    assert agent_command(sudo=True).count("\n") == 0


def test_the_program_is_the_same_every_time() -> None:
    assert agent_program(READ) is agent_program(dict(READ))


def test_the_program_carries_what_the_operation_needs_and_no_more() -> None:
    assert len(agent_program(READ)) < 14 << 10  # at once, in a connection's first ten segments


# TCP's first ten segments and the twenty that follow their acknowledgement, less what SSH adds.
TWO_FLIGHTS = 30 * 1448 - 2048


def check_of_tuning(profile: str) -> dict[str, object]:
    state = hosts_state("h", Tuning(profile=Catalog().tuning(profile)))
    items = [item.as_document() for item in state.items]
    return {"operation": "state", "mode": "check", "groups": ["tuning"], "items": items}


@pytest.mark.parametrize("profile", Catalog().ids("tuning"))
def test_a_check_of_tuning_and_its_program_travel_in_two_flights(profile: str) -> None:
    request = check_of_tuning(profile)
    assert len(agent_program(request) + framed_request(request)) < TWO_FLIGHTS


@pytest.mark.parametrize("profile", Catalog().ids("tuning"))
def test_what_only_other_requests_need_stays_at_home(profile: str) -> None:
    request = check_of_tuning(profile)
    assert {"trees", "condensing", "state.differences", WATCHER}.isdisjoint(agent_modules(request))
    assert "state.differences" in agent_modules({**request, "diff": True})
    assert "trees" in agent_modules({"operation": "staging"})
    files: dict[str, object] = {**request, "groups": ["files"]}
    assert {"bundle", WATCHER} <= set(agent_modules(files))  # a file may be the watcher
    assert "bundle" not in agent_modules({"operation": "lease"})


def shells() -> list[str]:
    """The login shells of this machine; those of Debian 12 that are named here were all tried by hand."""
    names = ("bash", "dash", "fish", "ksh93", "mksh", "tcsh", "zsh")
    return [path for name in names if (path := shutil.which(name)) is not None]


@pytest.mark.parametrize("asks", [False, True], ids=["silent", "announced"])
@pytest.mark.parametrize("shell", shells())
def test_any_login_shell_passes_the_command_on(shell: str, asks: bool) -> None:
    child = subprocess.Popen(
        [shell, "-c", agent_command(sudo=False, asks=asks)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(agent_program(READ) + framed_request({"operation": "read", "paths": []}))
    child.stdin.flush()
    assert find_report(child.stdout.read()) == {"schema_version": 1, "files": {}}
    child.stdin.close()
    child.stdout.close()
    assert child.wait(timeout=10) == 0


def test_requests_within_a_request_find_their_modules() -> None:
    request = {"operation": "facts", "also": [READ, {"operation": "listening", "ports": [1]}]}
    report = call_agent(FakeHost(), request, timeout_s=20, sudo=False)
    assert "error" not in json.dumps(report["also"])


def test_a_root_login_needs_no_sudo(folder: Path) -> None:
    stand_in(folder / "bin", "id", "echo 0")
    host = FakeHost(environment={"PATH": f"{folder / 'bin'}:{BIN}"})
    report = call_agent(host, {"operation": "read", "paths": []}, timeout_s=20)
    assert report["files"] == {}


def test_another_login_goes_through_sudo(folder: Path) -> None:
    host = not_root(folder, f'printf "%s " "$@" > {folder}/asked; shift; exec "$@"')
    call_agent(host, {"operation": "read", "paths": []}, timeout_s=20)
    assert (folder / "asked").read_text().startswith("-n /")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("sudo: a password is required", "wants a password"),
        ("sudo: no tty present and no askpass program specified", "wants a password"),
        ("sudo: sorry, you must have a tty to run sudo", "wants a terminal"),
        ("op is not in the sudoers file.", "does not let this login"),
    ],
)
def test_sudo_s_refusals_are_told_apart(folder: Path, words: str, message: str) -> None:
    host = not_root(folder, f"echo '{words}' >&2; exit 1")
    with pytest.raises(SudoRefused, match=message):
        call_agent(host, {"operation": "read", "paths": []}, timeout_s=20)


def only(folder: Path, **programs: str) -> FakeHost:
    """A host that has these programs and a shell, nothing else."""
    for name, text in {
        "sh": 'exec /bin/sh "$@"',
        "env": 'exec /usr/bin/env "$@"',
        **programs,
    }.items():
        stand_in(folder / "bin", name, text)
    return FakeHost(environment={"PATH": str(folder / "bin")})


def test_no_sudo_at_all_says_so(folder: Path) -> None:
    host = only(folder, id="echo 1000", python3="exit 0")
    with pytest.raises(SudoRefused, match="there is no sudo"):
        call_agent(host, {"operation": "read", "paths": []}, timeout_s=20)


def test_no_python_at_all_says_so(folder: Path) -> None:
    with pytest.raises(NoPython, match="there is no python3"):
        call_agent(only(folder, id="echo 0"), {"operation": "read", "paths": []}, timeout_s=20)


def test_a_python_that_is_too_old_says_so(folder: Path) -> None:
    host = only(folder, id="echo 0", python3="echo 'moe-infra:old-python 3.4' >&2; exit 1")
    with pytest.raises(NoPython, match="too old"):
        call_agent(host, {"operation": "read", "paths": []}, timeout_s=20)


def test_words_that_are_no_report_are_quoted(folder: Path) -> None:
    host = only(folder, id="echo 0", python3="echo Illegal instruction >&2; exit 132")
    with pytest.raises(NoReport, match=r"exit code 132.*Illegal instruction"):
        call_agent(host, {"operation": "read", "paths": []}, timeout_s=20)


def test_a_lost_connection_is_unknown() -> None:
    with pytest.raises(LostConnection, match="unknown"):
        call_agent(
            FakeHost(loses_connection=True),
            {"operation": "read", "paths": []},
            timeout_s=20,
            sudo=False,
        )


def test_nothing_is_left_running_when_the_limit_passes(host: Host, folder: Path) -> None:
    """The agent waits for a runtime that hangs; when nobody waits any more, both are gone."""
    stand_in(folder / "bin", "docker", f"echo $$ > {folder}/pid; sleep 60")
    item = {"id": "image", "group": "images", "kind": "image", "runtime": "docker", "target": "x"}
    request = {"operation": "state", "mode": "check", "stack": "s", "items": [item]}
    wrapped = Wrapped(host, f"PATH={folder / 'bin'}:$PATH MOE_INFRA_ROOT={folder} ")
    with pytest.raises(OverTime):
        call_agent(wrapped, request, timeout_s=1.0, sudo=False)
    pid = int((folder / "pid").read_text())
    deadline = time.monotonic() + 5
    while _is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_running(pid)


@pytest.mark.parametrize(
    "stdout",
    [b"", b"moe-infra-report 5\n{}", b"moe-infra-report 2\n[]\n", b"moe-infra-report 3\n{}}\n"],
)
def test_a_report_that_is_not_whole_is_none(stdout: bytes) -> None:
    assert find_report(stdout) is None or stdout.endswith(b"{}")


def test_the_report_is_cut_by_its_length() -> None:
    text = json.dumps({"items": []}).encode()
    assert find_report(b"hello\nmoe-infra-report %d\n" % len(text) + text + b"bye") == {"items": []}


def test_a_host_that_promises_report_after_report_is_not_read_for_ever() -> None:
    """Each marker promises all that follows: looked at one by one they would take days."""
    assert find_report(b"moe-infra-report 4000000\n" * 200_000) is None


def test_every_failure_is_a_host_failure() -> None:
    for failure in (NoPython, SudoRefused, NoReport, OverTime, LostConnection, AgentFailed):
        assert issubclass(failure, HostsFailed)


class Wrapped:
    """A host whose commands get variables first, as a login's profile would set them."""

    def __init__(self, host: Host, prefix: str) -> None:
        self._host = host
        self._prefix = prefix
        self.name = host.name

    def run(
        self,
        command: str,
        *,
        stdin: bytes = b"",
        timeout_s: float,
        hold_stdin: bool = False,
        reply: Reply | None = None,
    ) -> Outcome:
        return self._host.run(
            self._prefix + command,
            stdin=stdin,
            timeout_s=timeout_s,
            hold_stdin=hold_stdin,
            reply=reply,
        )

    def stream(self, command: str, *, stdin: bytes = b"", reply: Reply | None = None) -> Stream:
        return self._host.stream(self._prefix + command, stdin=stdin, reply=reply)

    def close(self) -> None:
        self._host.close()


def _is_running(pid: int) -> bool:
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return bool(state) and not state.startswith("Z")
