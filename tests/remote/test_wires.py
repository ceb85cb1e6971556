"""The socket under SSH: short exchanges are quick, and a dead peer is noticed."""

from __future__ import annotations

import socket

from infra.remote.wires import tuned


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
