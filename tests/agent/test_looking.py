"""The operations that only look: `listening`, `read`, `journal`; and requests that are none."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.agent.conversation import answer
from infra.agent.host import Host
from tests.agent.stubborn_host import StubbornHost

ENTRY = '{"__REALTIME_TIMESTAMP":"%d000000","_SYSTEMD_UNIT":"a.service","MESSAGE":"%s"}'


def test_a_listener_is_named_with_its_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        request = {"schema_version": 1, "operation": "listening", "ports": [port, 1]}
        rows = answer(request, Host())["listening"]
    assert isinstance(rows, list)
    assert [(row["port"], row["address"], row["pid"]) for row in rows] == [
        (port, "127.0.0.1", os.getpid())
    ]
    own = Path("/proc/self/cmdline").read_text(encoding="utf-8").replace("\0", " ").split()
    assert rows[0]["command"].split()[0] == own[0]


def test_no_ports_are_no_listeners(host: StubbornHost) -> None:
    assert host.ask("listening", ports=[])["listening"] == []


def test_small_files_are_read(host: StubbornHost) -> None:
    host.put("/a", "x")
    host.put("/empty", "")
    host.put("/large", b"x" * 262145)
    host.put("/bytes", b"\xff")
    paths = ["/a", "/empty", "/large", "/bytes", "/none", "/a/b", "/"]
    files = host.ask("read", paths=paths)["files"]
    assert files == {
        "/a": "x",
        "/empty": "",
        "/large": None,
        "/bytes": "\ufffd",
        "/none": None,
        "/a/b": None,
        "/": None,
    }


@pytest.fixture
def asked(stand_in: Callable[[str, str], None], tmp_path: Path) -> Path:
    lines = "\n".join(ENTRY % (n, word) for n, word in enumerate(("one", "two", "three")))
    (tmp_path / "lines").write_text(lines + "\n")
    stand_in("journalctl", f'echo "$*" > {tmp_path}/asked; cat {tmp_path}/lines')
    return tmp_path / "asked"


def test_lines_come_with_unit_and_time(host: StubbornHost, asked: Path) -> None:
    report = host.ask("journal", units=["a.service", "b.service"], lines=2, since=1.5)
    assert report["journal"] == [
        {"unit": "a.service", "time": 1.0, "message": "two"},
        {"unit": "a.service", "time": 2.0, "message": "three"},
    ]
    assert asked.read_text().endswith("-n 2 --since=@1.500000 -u a.service -u b.service\n")


def test_lines_are_chosen_by_a_pattern(host: StubbornHost, asked: Path) -> None:
    rows = host.ask("journal", units=["a.service"], grep="^t(wo)?")["journal"]
    assert isinstance(rows, list)
    assert [row["message"] for row in rows] == ["two", "three"]


def test_a_pattern_that_is_none_is_refused(host: StubbornHost, asked: Path) -> None:
    assert "is not a pattern" in str(host.ask("journal", units=[], grep="(")["error"])


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({}, "schema version 1"),
        ({"schema_version": 2, "operation": "read"}, "schema version 1"),
        ({"schema_version": 1, "operation": "dance"}, "'dance' is not an operation"),
    ],
)
def test_a_request_that_is_none_is_an_error_report(
    host: StubbornHost, request_: dict[str, object], message: str
) -> None:
    assert message in str(answer(request_, host)["error"])


def test_a_bug_is_a_report_too(host: StubbornHost, capfd: pytest.CaptureFixture[str]) -> None:
    report = host.ask("read", paths=["\0"])
    assert "a bug in the agent" in str(report["error"])
    assert "Traceback" in capfd.readouterr().err
