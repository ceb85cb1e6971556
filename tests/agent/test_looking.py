"""The operations that only look: `listening`, `read`; and requests that are none."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.agent.conversation import answer
from infra.agent.host import Host
from tests.agent.stubborn_host import StubbornHost


def test_a_listener_is_named_with_its_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        request = {"schema_version": 1, "operation": "listening", "ports": [port, 1]}
        rows = answer(request, Host())["listening"]
        inode = os.fstat(server.fileno()).st_ino
    assert isinstance(rows, list)
    assert rows[0]["inode"] == str(inode), "of two looks it tells whether one socket was seen"
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


def test_status_without_a_record_is_empty(host: StubbornHost) -> None:
    report = host.ask("status", record="/etc/moe-infra/s/release.json")
    assert (report["record"], report["units"], report["answers"]) == (None, [], {})


def test_status_asks_the_endpoints_of_what_runs(
    host: StubbornHost, stand_in: Callable[[str, str], None]
) -> None:
    rows = [
        {"id": "a/0", "unit": "a.service", "kind": "engine", "endpoint": "http://127.0.0.1:1"},
        {"id": "a/1", "unit": "b.service", "kind": "engine", "endpoint": None},
    ]
    host.put("/etc/moe-infra/s/release.json", json.dumps({"processes": rows}))
    host.put("/run/systemd/system/x", "")
    blocks = r"Id=a.service\nActiveState=active\n\nId=b.service\nActiveState=active\n"
    stand_in("systemctl", f"printf '{blocks}'")
    report = host.ask("status", record="/etc/moe-infra/s/release.json", paths={"engine": "/health"})
    assert report["answers"] == {"a/0": None}
    assert json.loads(str(report["record"])) == {"processes": rows}
    units = report["units"]
    assert isinstance(units, list)
    assert [row["active_state"] for row in units] == ["active", "active"]
