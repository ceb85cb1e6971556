"""Hosts that are not as one would wish: an old Python, a shell that talks, a disk that is full or read-only."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.hosts import Bind, LabFile, LabHost
from infra.rehearsal.lab.starting import start_lab
from infra.remote.agent_call import call_agent
from infra.remote.connecting import SshOptions
from infra.remote.failures import AgentFailed
from tests.naming import in_time
from tests.needed import need_lab
from tests.remote.lab_inventory import lab_host, pythons
from tests.remote.opened import open_host

# a host for every Python of this machine, which all tests share
pytestmark = [pytest.mark.lab, pytest.mark.slow]
NO_PYTHONS = "there is no other Python here (pyenv)"

SWAPPINESS = "/proc/sys/vm/swappiness"
ITEMS: list[dict[str, object]] = [
    {"id": "vm.swappiness", "group": "tuning", "kind": "sysctl", "want": "0"},
    {
        "id": "file:/etc/moe-infra/s/note",
        "group": "files",
        "kind": "file",
        "target": "/etc/moe-infra/s/note",
        "content": "grüße\n" * 2000,
    },
]
CHATTY = b"echo 'Welcome to a shell that talks'; echo 'and complains' >&2\nalias env=false\n"


def version(python: Path) -> str:
    return "python-" + python.parts[-3]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    need_lab()
    hosts = [LabHost(name="worn", address="192.0.2.1")]
    hosts += [
        LabHost(
            name=version(python),
            address=f"192.0.2.{i + 2}",
            hidden=("/usr/bin/python3",),
            binds=(Bind(source=str(python.parents[1]), target=str(python.parents[1])),),
            files={
                "/usr/local/bin/python3": LabFile(
                    content=f'#!/bin/sh\nexec {python} "$@"\n'.encode(), mode=0o755
                ),
                "/etc/skel/.bashrc": LabFile(content=CHATTY),
                "/home/ubuntu/.bashrc": LabFile(content=CHATTY),
            },
        )
        for i, python in enumerate(pythons())
    ]
    with start_lab(tmp_path_factory.mktemp("lab") / "l", hosts) as running:
        running.wait_ready(30)
        yield running


def ask(lab: Lab, name: str, mode: str, *, sudo: bool = True) -> dict[str, dict[str, Any]]:
    options = SshOptions()
    host = open_host(lab_host(lab, name), options)
    request = {"operation": "state", "mode": mode, "stack": "s", "items": ITEMS}
    try:
        rows = call_agent(host, request, timeout_s=30, sudo=sudo)["items"]
    finally:
        host.close()
        options.resources.close()
    assert isinstance(rows, list)
    return {row["id"]: row for row in rows}


def left_behind(lab: Lab, name: str) -> list[str]:
    """Everything of ours on a host's disk."""
    find = "find /etc /var/lib /usr/local /opt -name '*moe-infra*' -not -type l 2>/dev/null; true"
    return lab.run(name, ["sh", "-c", find]).stdout.decode().split()


def swappiness(lab: Lab, name: str) -> bytes:
    return lab.run(name, ["cat", SWAPPINESS]).stdout.strip()


def test_every_python_of_this_machine_applies_and_takes_back(lab: Lab) -> None:
    """Three executions each, over a login shell that prints before every command."""
    names = [version(python) for python in pythons()]
    if not names:
        pytest.skip(NO_PYTHONS)

    def round_trip(name: str) -> tuple[set[str], set[str], bytes, list[str]]:
        applied = {row["state"] for row in ask(lab, name, "apply").values()}
        again = {row["state"] for row in ask(lab, name, "apply").values()}
        ask(lab, name, "rollback")
        return applied, again, swappiness(lab, name), left_behind(lab, name)

    with ThreadPoolExecutor(len(names)) as pool:
        ends = dict(zip(names, pool.map(round_trip, names), strict=True))
    assert ends == dict.fromkeys(names, ({"changed"}, {"ok"}, b"60", []))


def test_the_old_pythons_are_really_what_ran(lab: Lab) -> None:
    if not pythons():
        pytest.skip(NO_PYTHONS)
    for python in pythons():
        said = lab.run(version(python), ["python3", "-V"])
        assert (said.stdout + said.stderr).decode().split()[1] == python.parts[-3]


def mounted(lab: Lab, *script: str) -> None:
    done = lab.run("worn", ["sh", "-c", "; ".join(("set -e", *script))])
    assert done.returncode == 0, done.stderr


def test_a_tmp_without_programs_does_no_harm(lab: Lab) -> None:
    mounted(lab, "mount -o remount,noexec /tmp")
    assert {row["state"] for row in ask(lab, "worn", "apply").values()} == {"changed"}
    ask(lab, "worn", "rollback")
    assert left_behind(lab, "worn") == []


@pytest.mark.fault
def test_a_read_only_root_says_so_and_changes_nothing(lab: Lab) -> None:
    mounted(lab, "mount -o remount,ro /")
    try:
        assert {row["state"] for row in ask(lab, "worn", "check").values()} == {"changed"}
        with (
            in_time(),
            pytest.raises(
                AgentFailed, match=r"/var/lib/moe-infra/rollback/\.host: Read-only file system"
            ) as caught,
        ):
            ask(lab, "worn", "apply")
        assert swappiness(lab, "worn") == b"60"
    finally:
        mounted(lab, "mount -o remount,rw /")
    assert "mount" in caught.value.fix
    assert caught.value.exit_code == 4
    assert left_behind(lab, "worn") == []


@pytest.mark.fault
def test_a_disk_that_is_full_says_so_and_changes_nothing(lab: Lab) -> None:
    mounted(
        lab,
        "mount -t tmpfs -o size=64k tmpfs /var/lib",
        "cat /dev/zero >/var/lib/full 2>/dev/null || true",
    )
    try:
        with (
            in_time(),
            pytest.raises(AgentFailed, match=r"/var/lib/moe-infra.*No space left") as caught,
        ):
            ask(lab, "worn", "apply")
        assert swappiness(lab, "worn") == b"60"
        assert left_behind(lab, "worn") == []
    finally:
        mounted(lab, "umount /var/lib")
    assert "df -h" in caught.value.fix
    assert left_behind(lab, "worn") == []


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (("mount -t tmpfs -o ro tmpfs /etc/moe-infra",), "EROFS"),
        (
            (
                "mount -t tmpfs -o size=32k tmpfs /etc/moe-infra",
                "dd if=/dev/zero of=/etc/moe-infra/full bs=4k count=6 2>/dev/null",
            ),
            "ENOSPC",
        ),
    ],
)
@pytest.mark.fault
def test_one_place_that_takes_nothing_is_named_and_nothing_is_changed(
    lab: Lab, prepare: tuple[str, ...], reason: str
) -> None:
    """Every file is laid out before anything is written: the sysctl beside it stays too."""
    mounted(lab, "mkdir -p /etc/moe-infra", *prepare)
    try:
        with in_time():
            rows = ask(lab, "worn", "apply")
        note = rows["file:/etc/moe-infra/s/note"]
        assert note["state"] == "failed"
        assert reason in note["why"]
        assert "/etc/moe-infra/s" in note["why"]
        assert rows["vm.swappiness"]["state"] == "blocked"
        assert swappiness(lab, "worn") == b"60"
        files = lab.run("worn", ["find", "/etc/moe-infra", "-type", "f", "-not", "-name", "full"])
        assert files.stdout == b""
    finally:
        mounted(lab, "umount /etc/moe-infra", "rmdir /etc/moe-infra")
    assert swappiness(lab, "worn") == b"60"
    assert left_behind(lab, "worn") == []
