"""sudo with a password on simulated hosts: real sudo, PAM and sshd; wrong once, never sixteen times."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from infra.launch.fleet import SshFleet, all_reports
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.hosts import LabFile, LabHost, LabUser
from infra.rehearsal.lab.starting import start_lab
from infra.remote.agent_call import call_agent
from infra.remote.connecting import SshOptions
from infra.remote.failures import OverTime, SeveralHostsFailed, SudoRefused
from infra.remote.resources import Resources
from infra.remote.sudo import STARTED, SudoPassword
from tests.naming import in_time
from tests.needed import need_lab
from tests.remote.lab_inventory import lab_host
from tests.remote.opened import open_host

# hosts that all tests share, with users of many kinds
pytestmark = [pytest.mark.lab, pytest.mark.fault, pytest.mark.slow]

RIGHT = "secret of sudo"
NUM_HOSTS = 8
READ: dict[str, object] = {"operation": "read", "paths": []}
SUDOERS = b"""\
Defaults:pty use_pty
Defaults:hasty timestamp_timeout=0
Defaults:lectured lecture=always
Defaults:once passwd_tries=1
Defaults:tty requiretty
Defaults:mocked insults
"""
ASKED = "ALL=(ALL) ALL"
LOGINS = ("op", "pty", "hasty", "lectured", "mocked")


def password_hash(password: str) -> str:
    done = subprocess.run(
        ["openssl", "passwd", "-6", "-stdin"],
        input=password,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    need_lab()
    known = password_hash(RIGHT)
    names = (*LOGINS, "once", "tty", "guest", "free")
    rules = {"guest": "", "free": "ALL=(ALL) NOPASSWD:ALL"}
    users = tuple(
        LabUser(name=name, uid=1000 + i, sudo_rule=rules.get(name, ASKED), password_hash=known)
        for i, name in enumerate(names)
    )
    hosts = [
        LabHost(
            name=f"host-{i}",
            address=f"192.0.2.{i + 1}",
            users=users,
            files={"/etc/sudoers.d/asked": LabFile(content=SUDOERS, mode=0o440)},
        )
        for i in range(NUM_HOSTS)
    ]
    with start_lab(tmp_path_factory.mktemp("lab") / "l", hosts) as running:
        running.wait_ready(30)
        yield running


def ask(lab: Lab, user: str, password: str | None, host: str = "host-0") -> dict[str, object]:
    options = SshOptions()
    opened = open_host(lab_host(lab, host, user), options)
    given = SudoPassword(password) if password is not None else None
    try:
        return call_agent(opened, READ, timeout_s=20, password=given)
    finally:
        opened.close()
        options.resources.close()


def refusals(lab: Lab, host: str) -> int:
    """How often the host's sudo has refused a password, by its own log."""
    done = lab.run(host, ["journalctl", "-o", "cat", "-t", "sudo", "--no-pager"])
    return sum(b"authentication failure" in line for line in done.stdout.splitlines())


@pytest.mark.parametrize("user", [*LOGINS, "once", "free"])
def test_a_right_password_lets_the_agent_in(lab: Lab, user: str) -> None:
    assert ask(lab, user, RIGHT)["files"] == {}


def test_a_wrong_password_is_refused_after_one_attempt(lab: Lab) -> None:
    """Whatever sudo says then: its insults, its lecture, its counts."""
    users = (*LOGINS, "once")
    before = refusals(lab, "host-1")

    def ask_wrongly(user: str) -> str:
        with in_time(), pytest.raises(SudoRefused) as caught:
            ask(lab, user, "wrong", "host-1")
        return caught.value.what

    with ThreadPoolExecutor(len(users)) as pool:
        said = list(pool.map(ask_wrongly, users))
    assert said == ["sudo does not take the password."] * len(users)
    assert refusals(lab, "host-1") == before + len(users)
    assert left_running(lab, "host-1") == []


def test_a_wrong_password_reaches_one_host_of_all(lab: Lab) -> None:
    names = [f"host-{i}" for i in range(NUM_HOSTS)]
    before = sum(refusals(lab, name) for name in names)
    options = SshOptions(resources=Resources(), sudo=SudoPassword("wrong"))
    fleet = SshFleet({name: lab_host(lab, name, "op") for name in names}, options)
    try:
        with in_time(), pytest.raises(SeveralHostsFailed) as caught:
            all_reports(fleet.ask(dict.fromkeys(names, READ), timeout_s=30))
    finally:
        fleet.close()
    assert sum(refusals(lab, name) for name in names) == before + 1
    assert caught.value.exit_code == 4
    assert str(caught.value).count("does not take the password") == 1
    assert "was not tried here" in str(caught.value)
    assert all(name in str(caught.value) for name in names)


def test_a_right_password_opens_all_hosts(lab: Lab) -> None:
    names = [f"host-{i}" for i in range(NUM_HOSTS)]
    options = SshOptions(resources=Resources(), sudo=SudoPassword(RIGHT))
    fleet = SshFleet({name: lab_host(lab, name, "hasty") for name in names}, options)
    try:
        reports = all_reports(fleet.ask(dict.fromkeys(names, READ), timeout_s=30))
    finally:
        fleet.close()
    assert list(reports) == names


def test_no_password_where_one_is_wanted_names_the_option(lab: Lab) -> None:
    with in_time(), pytest.raises(SudoRefused, match="wants a password") as caught:
        ask(lab, "hasty", None)
    assert "--ask-sudo-password" in caught.value.fix


def test_a_login_without_any_rule_is_told_so(lab: Lab) -> None:
    with in_time(), pytest.raises(SudoRefused, match="does not let this login"):
        ask(lab, "guest", RIGHT)


def test_a_terminal_that_is_wanted_is_named_password_or_not(lab: Lab) -> None:
    with in_time(), pytest.raises(SudoRefused, match="wants a terminal"):
        ask(lab, "tty", RIGHT)


def test_nothing_shows_while_it_runs_and_nothing_is_left_when_the_limit_passes(lab: Lab) -> None:
    """The agent waits for a runtime that hangs: then the password is in no argument, environment or log."""
    slow = b"#!/bin/sh\necho $$ >/tmp/began; exec sleep 77\n"
    lab.write_file("host-2", "/usr/local/bin/docker", slow, 0o755)
    item = {"id": "image", "kind": "image", "runtime": "docker", "target": "x"}
    request = {"operation": "state", "mode": "check", "stack": "s", "items": [item]}
    host = open_host(lab_host(lab, "host-2", "pty"), SshOptions())
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(call_agent, host, request, timeout_s=2.0, password=SudoPassword(RIGHT))
        while lab.run("host-2", ["test", "-s", "/tmp/began"]).returncode != 0:
            time.sleep(0.02)
        look = "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ; journalctl --no-pager"
        seen = lab.run("host-2", ["sh", "-c", look]).stdout
        with pytest.raises(OverTime):
            asked.result()
    assert STARTED.encode() in seen
    assert RIGHT.encode() not in seen
    assert left_running(lab, "host-2") == []
    host.close()


def left_running(lab: Lab, host: str) -> list[tuple[str, ...]]:
    """What still runs of a request, once sshd has had a moment to end it."""
    signs = ("zlib", "77")
    deadline = time.monotonic() + 5
    while True:
        left = [
            argv
            for _, argv in lab.processes(host)
            if any(sign in word for word in argv for sign in signs)
        ]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)
