"""NCCL's RAS service is asked as its user guide says, and whatever listens instead holds up nobody."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from infra.agent.processes.nccl_ras import ask_ras, ras_addresses

Serve = Callable[[Callable[[socket.socket], None]], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts who answers one question; where it listens."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(answer: Callable[[socket.socket], None]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def work() -> None:
            connection, _ = listener.accept()
            with connection:
                answer(connection)

        threads.append(threading.Thread(target=work))
        threads[-1].start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for thread in threads:
        thread.join(10)
    for listener in listeners:
        listener.close()


def read_line(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as lines:
        return lines.readline()


def test_what_is_answered_comes_whole(serve: Serve) -> None:
    asked = []

    def answer(connection: socket.socket) -> None:
        asked.append(read_line(connection))
        for part in (b"NCCL version 2.27.3\n", b"Job summary\n" * 20000):
            connection.sendall(part)

    text = ask_ras(serve(answer))
    assert asked == [b"verbose status\n"]
    assert text == b"NCCL version 2.27.3\n" + b"Job summary\n" * 20000


def test_who_does_not_go_on_is_left_with_what_came(serve: Serve) -> None:
    is_over = threading.Event()

    def answer(connection: socket.socket) -> None:
        connection.sendall(b"NCCL version 2.27.3\n")
        is_over.wait(10)

    begun = time.monotonic()
    address = serve(answer)
    text = ask_ras(address, limit_s=0.3)
    is_over.set()
    assert time.monotonic() - begun < 5
    assert text == f"NCCL version 2.27.3\n{address}: timed out\n".encode()


def test_behind_a_frozen_process_another_is_asked() -> None:
    """All processes of a host listen at one port; a stopped one's connections are taken, and nothing comes of them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def work() -> None:
            frozen, _ = listener.accept()
            lively, _ = listener.accept()
            with frozen, lively:
                assert read_line(lively) == b"verbose status\n"
                lively.sendall(b"NCCL version 2.28.9 compiled with CUDA 13.0\n")

        thread = threading.Thread(target=work)
        thread.start()
        text = ask_ras(f"127.0.0.1:{listener.getsockname()[1]}")
        thread.join(10)
    assert text == b"NCCL version 2.28.9 compiled with CUDA 13.0\n"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no port", "[::1]:1", ":1"])
def test_where_nobody_listens_that_is_said(address: str) -> None:
    assert ask_ras(address).startswith(f"{address}: ".encode())


def test_each_place_is_asked_once_and_by_default_that_of_nccl() -> None:
    own = {b"NCCL_RAS_ADDR": b"localhost:12345"}
    assert ras_addresses([{}, own, {b"A": b"1"}, own]) == ["localhost:28028", "localhost:12345"]
    assert ras_addresses([]) == []
