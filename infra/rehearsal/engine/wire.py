"""Messages between simulated processes: one JSON object per line over TCP."""

from __future__ import annotations

import json
from typing import Any

from .loop import Loop, TimedOut
from .streams import Stream, connect

# What a ZMQ socket says first; a web client that comes to a ZMQ port sees it as "HTTP/0.9".
ZMQ_GREETING = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f"
RETRY_SECONDS = 0.05


async def receive(stream: Stream) -> dict[str, Any] | None:
    """Return the next message; None when the peer is gone or does not speak this protocol."""
    line = await stream.read_until(b"\n")
    if not line:
        return None
    try:
        message = json.loads(line)
    except ValueError:
        await stream.write(ZMQ_GREETING)
        return None
    return message if isinstance(message, dict) else None


async def send(stream: Stream, message: dict[str, Any]) -> None:
    """Send a message.

    Raises:
        OSError: the peer is gone.
    """
    await stream.write(json.dumps(message).encode() + b"\n")


async def dial(loop: Loop, host: str, port: int) -> Stream:
    """Connect as ZMQ and TCPStore clients do: try again until somebody listens."""
    while True:
        try:
            return await connect(loop, host, port)
        except OSError:
            await loop.sleep(RETRY_SECONDS)


async def ask(
    loop: Loop, address: tuple[str, int], message: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """Send one message to a listener and return its answer.

    Raises:
        TimedOut: nobody answered in time.
    """

    async def exchange() -> dict[str, Any] | None:
        stream = await dial(loop, *address)
        try:
            await send(stream, message)
            return await receive(stream)
        except OSError:
            return None
        finally:
            stream.close()

    answer = await loop.within(seconds, exchange())
    if answer is None:
        raise TimedOut
    return answer
