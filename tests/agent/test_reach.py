"""The operation `reach`: two hosts that listen and dial at the same time, on the loopback."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

from infra.agent.facts import reach
from infra.agent.facts.reach import Listener
from infra.agent.facts.wall_clock import WallClock
from infra.agent.host import Host
from tests.ports import free_port


def ask(name: str, **request: object) -> dict[str, Any]:
    asked = {"name": name, "token": "t0", "address": "127.0.0.1", "limit_s": 3.0, **request}
    return reach.answer(asked, Host())


def dial(port: int, **changes: object) -> dict[str, object]:
    base = {"to": "b", "address": "127.0.0.1", "port": port, "speaks": True, "loads": True}
    return {**base, **changes}


def test_a_dial_is_greeted_with_name_and_clock_and_its_load_arrives() -> None:
    port = free_port()
    reports: dict[str, dict[str, Any]] = {}
    listens = [{"port": port, "callers": ["a"]}]
    other = threading.Thread(target=lambda: reports.update(b=ask("b", listen=listens)))
    other.start()
    row = ask("a", dial=[dial(port)])["dials"][0]
    other.join()
    assert (row["ok"], row["name"], row["whole"]) == (True, "b", True)
    assert abs(row["ahead_s"]) < 0.5
    assert row["path_mtu"] > 1000
    assert reports["b"]["listen"] == [{"port": port, "error": None}]
    assert reports["b"]["seconds"] < 2.5, "it waited although everybody had come"


def test_a_listener_that_could_not_tell_its_clock_well_says_so() -> None:
    """Its machine was busy while it asked `date`: its clock is not held against it."""
    port = free_port()
    slow = Listener("b", "t0", WallClock(time.time() - time.monotonic() + 0.2, 0.25))
    assert slow.open("127.0.0.1", port) is None
    row = ask("a", dial=[dial(port)])["dials"][0]
    slow.close()
    assert abs(row["ahead_s"] - 0.2) < 0.1
    assert row["error_s"] >= 0.25


def test_nobody_listens() -> None:
    row = ask("a", dial=[dial(free_port())], limit_s=0.5)["dials"][0]
    assert row["ok"] is False
    assert "refused" in row["error"]


def test_a_taken_port_is_told_and_dialled_without_a_word() -> None:
    with socket.socket() as engine:
        engine.bind(("127.0.0.1", 0))
        engine.listen()
        port = engine.getsockname()[1]
        report = ask("b", listen=[{"port": port, "callers": ["a"]}], limit_s=0.5)
        row = ask("a", dial=[dial(port, speaks=False, loads=False)])["dials"][0]
        peer, _ = engine.accept()
        with peer:
            peer.settimeout(2)
            assert peer.recv(10) == b""
    assert "in use" in report["listen"][0]["error"]
    assert row["ok"] is True


def test_somebody_elses_listener_is_not_taken_for_the_peer() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()

        def serve() -> None:
            peer, _ = other.accept()
            with peer:
                peer.recv(100)
                peer.sendall(b"SSH-2.0-OpenSSH is here\n")

        thread = threading.Thread(target=serve)
        thread.start()
        row = ask("a", dial=[dial(other.getsockname()[1])])["dials"][0]
        thread.join()
    assert row["ok"] is False
    assert "connected, but" in row["error"]


def test_an_address_that_the_host_has_not_got_is_listened_on_everywhere() -> None:
    port = free_port()
    report = ask("b", address="192.0.2.77", listen=[{"port": port, "callers": []}], limit_s=0.5)
    assert report["listen"] == [{"port": port, "error": None}]
