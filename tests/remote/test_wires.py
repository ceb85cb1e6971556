"""The socket under SSH: short exchanges are quick, and a dead peer is noticed; or the program in its place."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from infra.remote.wires import _ProxyProgram, tuned

SELECT = select.select


def test_a_tcp_connection_is_tuned() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        plain = socket.create_connection(server.getsockname())
        with tuned(plain, 3.0) as quick, server.accept()[0] as peer:
            assert quick.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
            assert quick.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
            assert quick.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 12000
            idle = quick.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            interval = quick.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
            count = quick.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
            assert idle + interval * count <= 12
            assert quick.gettimeout() == 3.0
            peer.sendall(b"hello")
            assert quick.recv(10) == b"hello"


def test_a_unix_socket_is_left_as_it_is() -> None:
    one, other = socket.socketpair()
    with tuned(one, 3.0) as quick, other:
        other.sendall(b"hello")
        assert quick.family == socket.AF_UNIX
        assert quick.recv(2) == b"he"


def test_a_reader_takes_no_bytes_of_a_pipe_that_came_after_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = _ProxyProgram("cat")
    program.settimeout(5.0)
    is_waiting = threading.Event()
    others: list[int] = []

    def wait_while_it_is_closed(*asked: Any) -> Any:
        is_waiting.set()
        while program.process.poll() is None:
            time.sleep(0.01)
        time.sleep(0.1)  # until whoever hangs up has done what he may do meanwhile
        for _ in range(4):  # the numbers that have become free
            others.extend(os.pipe())
            os.write(others[-1], b"another connection's")
        return SELECT(*asked)

    monkeypatch.setattr(select, "select", wait_while_it_is_closed)
    with ThreadPoolExecutor(max_workers=1) as pool:
        heard = pool.submit(program.recv, 64)
        assert is_waiting.wait(5.0)
        program.close()
        assert heard.result(5.0) == b""
    assert program._program.stdout is not None
    assert program._program.stdout.closed
    for number in others:
        os.close(number)


def test_several_may_hang_up_at_once_and_what_it_said_is_kept() -> None:
    for _ in range(5):
        program = _ProxyProgram("sh -c 'echo no such instance >&2; exit 3'")
        program.process.wait()
        with ThreadPoolExecutor(max_workers=4) as pool:
            for ended in [pool.submit(program.close) for _ in range(4)]:
                ended.result(10.0)
        assert program.last_words == "no such instance"
        assert program.recv(1) == b""


def test_who_is_asked_after_the_end_is_told_so() -> None:
    program = _ProxyProgram("cat")
    program.close()
    with pytest.raises(BrokenPipeError):
        program.send(b"x")
    assert program.recv(1) == b""
    assert program.last_words is None
