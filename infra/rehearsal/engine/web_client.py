"""Asks other HTTP servers: bootstrap servers, and the engines behind the proxy."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from .http_server import OK, read_body, read_chunks
from .loop import Loop, TimedOut
from .streams import Stream, connect


class Answer:
    """An answer whose body may still be coming."""

    def __init__(self, stream: Stream, status: int, headers: dict[str, str]) -> None:
        self._stream = stream
        self.status = status
        self.headers = headers

    async def read(self) -> bytes:
        """Return the whole body and close the connection."""
        try:
            if "content-length" not in self.headers and "transfer-encoding" not in self.headers:
                return await self._stream.read_until(b"\0\0\0\0no such separator")
            return await read_body(self._stream, self.headers)
        finally:
            self._stream.close()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes."""
        try:
            if "chunked" in self.headers.get("transfer-encoding", ""):
                async for chunk in read_chunks(self._stream):
                    yield chunk
            else:
                yield await read_body(self._stream, self.headers)
        finally:
            self._stream.close()


async def request(
    loop: Loop, method: str, url: str, headers: dict[str, str], body: bytes = b""
) -> Answer:
    """Send a request and return the answer once its headers are there.

    Raises:
        OSError: nobody listens there, or the connection is lost.
    """
    host, port, path = split_url(url)
    stream = await connect(loop, host, port)
    lines = [
        f"{method} {path} HTTP/1.1",
        f"host: {host}:{port}",
        "connection: close",
        f"content-length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    try:
        await stream.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        head = await stream.read_until(b"\r\n\r\n")
    except BaseException:
        stream.close()
        raise
    first, *rest = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) == 1 or not parts[1].isdigit():
        stream.close()
        raise ConnectionResetError(f"{url}: Server disconnected without sending a response.")
    pairs = (line.partition(":") for line in rest if ":" in line)
    return Answer(
        stream, int(parts[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}
    )


async def fetch_json(loop: Loop, url: str, seconds: float) -> Any:
    """Return the JSON document at a URL; None when it cannot be had in time."""

    async def fetch() -> Any:
        answer = await request(loop, "GET", url, {})
        body = await answer.read()
        return json.loads(body) if answer.status == OK else None

    try:
        return await loop.within(seconds, fetch())
    except (OSError, ValueError, TimedOut):
        return None


def split_url(url: str) -> tuple[str, int, str]:
    """Return host, port and path of an http URL, whose scheme may be missing."""
    rest = url.partition("://")[2] or url
    authority, slash, path = rest.partition("/")
    host, colon, port = authority.rpartition(":")
    if not colon:
        host, port = authority, "80"
    return host, int(port), slash + path or "/"
