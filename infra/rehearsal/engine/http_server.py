"""An HTTP/1.1 server: keep-alive, bodies by length or in chunks, streamed answers."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

from .loop import Loop
from .streams import Stream, serve

REASONS = {
    200: "OK", 201: "Created", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found",
    405: "Method Not Allowed", 422: "Unprocessable Entity", 500: "Internal Server Error",
    502: "Bad Gateway", 503: "Service Unavailable",
}  # fmt: skip
MAX_BODY_BYTES = 256 << 20
REQUEST_LINE_WORDS = 3
OK = 200


class Request(NamedTuple):
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON.

        Raises:
            ValueError: it is no JSON.
        """
        return json.loads(self.body or b"null")


class Response(NamedTuple):
    """One answer; ``chunks`` in place of a body makes it a stream."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    chunks: AsyncIterator[bytes] | None = None
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Awaitable[Response]]


def json_response(value: Any, status: int = 200) -> Response:
    """Return a JSON answer."""
    return Response(status=status, body=json.dumps(value).encode())


def serve_http(loop: Loop, listener: socket.socket, handler: Handler) -> None:
    """Answer HTTP requests on a bound socket for ever."""

    async def handle(stream: Stream) -> None:
        while True:
            request = await _read_request(stream)
            if request is None:
                return
            response = await handler(request)
            await _write_response(stream, request, response)
            if request.headers.get("connection", "").lower() == "close":
                return

    serve(loop, listener, handle)


async def _read_request(stream: Stream) -> Request | None:
    head = await stream.read_until(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != REQUEST_LINE_WORDS or not parts[2].startswith("HTTP/"):
        if head:
            await stream.write(
                b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
        return None
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    if headers.get("expect", "").lower() == "100-continue":
        await stream.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await read_body(stream, headers)
    path, _, query = parts[1].partition("?")
    pairs = (item.partition("=") for item in query.split("&") if item)
    return Request(parts[0], path, {name: value for name, _, value in pairs}, headers, body)


async def read_body(stream: Stream, headers: dict[str, str]) -> bytes:
    """Read the body of a request or an answer that tells its length or comes in chunks."""
    if "chunked" in headers.get("transfer-encoding", "").lower():
        body = bytearray()
        async for chunk in read_chunks(stream):
            body += chunk
        return bytes(body)
    length = int(headers.get("content-length", "0") or 0)
    return await stream.read_exactly(min(length, MAX_BODY_BYTES)) if length else b""


async def read_chunks(stream: Stream) -> AsyncIterator[bytes]:
    """Yield the chunks of a chunked body."""
    while True:
        line = await stream.read_until(b"\r\n")
        size = int(line.split(b";")[0].strip() or b"0", 16)
        chunk = await stream.read_exactly(size) if size else b""
        await stream.read_until(b"\r\n")
        if not size:
            return
        yield chunk


async def _write_response(stream: Stream, request: Request, response: Response) -> None:
    lines = [
        f"HTTP/1.1 {response.status} {REASONS.get(response.status, 'Unknown')}",
        "server: uvicorn",
        *([f"content-type: {response.content_type}"] if response.content_type else []),
        *(f"{name}: {value}" for name, value in response.headers),
    ]
    if response.chunks is None:
        lines.append(f"content-length: {len(response.body)}")
        body = b"" if request.method == "HEAD" else response.body
        await stream.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        return
    lines.append("transfer-encoding: chunked")
    await stream.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
    async for chunk in response.chunks:
        if chunk:
            await stream.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
    await stream.write(b"0\r\n\r\n")
