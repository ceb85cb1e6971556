"""TCP connections and listeners on top of the event loop."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .loop import Loop

Handler = Callable[["Stream"], Coroutine[Any, Any, None]]

MAX_LINE_BYTES = 8 << 20


class Stream:
    """One connection, read through a buffer."""

    def __init__(self, loop: Loop, connection: socket.socket) -> None:
        connection.setblocking(False)  # noqa: FBT003 - socket's own signature
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop = loop
        self._socket = connection
        self._buffer = bytearray()
        self._is_at_end = False
        self.is_closed = False

    async def read_until(self, separator: bytes) -> bytes:
        """Return everything up to and with the separator; what is left when the peer closed."""
        start = 0
        while True:
            position = self._buffer.find(separator, start)
            if position >= 0:
                return self._take(position + len(separator))
            if self._is_at_end or len(self._buffer) > MAX_LINE_BYTES:
                return self._take(len(self._buffer))
            start = max(0, len(self._buffer) - len(separator))
            await self._fill()

    async def read_exactly(self, count: int) -> bytes:
        """Return ``count`` bytes, fewer only when the peer closed."""
        while len(self._buffer) < count and not self._is_at_end:
            await self._fill()
        return self._take(min(count, len(self._buffer)))

    async def write(self, data: bytes) -> None:
        """Send all of the data.

        Raises:
            OSError: the peer is gone.
        """
        view = memoryview(data)
        while view:
            try:
                sent = self._socket.send(view)
            except BlockingIOError:
                await self._loop.writable(self._socket.fileno())
            else:
                view = view[sent:]

    def close(self) -> None:
        """Close the connection."""
        if not self.is_closed:
            self.is_closed = True
            self._loop.forget(self._socket.fileno())
            self._socket.close()

    async def _fill(self) -> None:
        while True:
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                await self._loop.readable(self._socket.fileno())
            except OSError:
                data = b""
                break
            else:
                break
        self._buffer += data
        self._is_at_end = not data

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken


def bind(host: str, port: int, *, shares: bool = False) -> socket.socket:
    """Return a socket bound to an address, which may be a name.

    Args:
        host: name or address.
        port: number.
        shares: whether others that share may have it, too: vLLM does so with its HTTP port (api_server.py 0.22.1).

    Raises:
        OSError: the address is in use, or is none of this host.
    """
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        listener.setblocking(False)  # noqa: FBT003 - likewise
    except OSError:
        listener.close()
        raise
    return listener


def reserve(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    """Bind without listening yet, so that a second process that does the same is refused at once.

    Linux lets two sockets bind one port while neither listens; a name in the host's abstract socket
    namespace decides between them.

    Raises:
        OSError: the port is taken.
    """
    guard = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        guard.bind(f"\0moe-rehearsal-http-{host}-{port}")
    except OSError:
        guard.close()
        raise OSError(errno.EADDRINUSE, "Address already in use") from None
    try:
        return bind(host, port), guard
    except OSError:
        guard.close()
        raise


def serve(loop: Loop, listener: socket.socket, handler: Handler) -> None:
    """Accept connections for ever; each gets a task of its own, its stream is closed at the end."""
    listener.listen(512)
    loop.spawn(_accept(loop, listener, handler))


async def connect(loop: Loop, host: str, port: int) -> Stream:
    """Open a connection.

    Raises:
        OSError: nobody listens there, or the address cannot be reached.
    """
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    connection = socket.socket(family, socket.SOCK_STREAM)
    connection.setblocking(False)  # noqa: FBT003 - likewise
    code = connection.connect_ex(address)
    if code in {errno.EINPROGRESS, errno.EAGAIN}:
        try:
            await loop.writable(connection.fileno())
        except BaseException:
            connection.close()
            raise
        code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        connection.close()
        raise OSError(code, f"connect to {host}:{port} failed")
    return Stream(loop, connection)


async def _accept(loop: Loop, listener: socket.socket, handler: Handler) -> None:
    while True:
        await loop.readable(listener.fileno())
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                break
            loop.spawn(_handle(Stream(loop, connection), handler))


async def _handle(stream: Stream, handler: Handler) -> None:
    try:
        await handler(stream)
    except OSError:
        pass
    finally:
        stream.close()
