"""How the lab is spoken to: one request and one answer per connection of a unix socket.

Each is one line of JSON; open files travel beside it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MAX_DESCRIPTORS = 3
_CHUNK_BYTES = 1 << 16


def send(channel: socket.socket, document: Mapping[str, Any], files: Sequence[int] = ()) -> None:
    """Send one document and descriptors."""
    data = json.dumps(document).encode() + b"\n"
    sent = socket.send_fds(channel, [data], list(files)) if files else channel.send(data)
    if sent < len(data):
        channel.sendall(data[sent:])


def receive(channel: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """One document and the descriptors that came with it; no document at end of file.

    Raises:
        TimeoutError: the other side did not send within the channel's time limit.
    """
    data, files = b"", list[int]()
    while not data.endswith(b"\n"):
        chunk, more, _, _ = socket.recv_fds(channel, _CHUNK_BYTES, MAX_DESCRIPTORS)
        files += more
        if not chunk:
            return None, files
        data += chunk
    for descriptor in files:
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - the signature of os
    document: dict[str, Any] = json.loads(data)
    return document, files


def listen(path: Path) -> socket.socket:
    """A listening control socket that only its owner may use."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    path.chmod(0o600)
    server.listen(256)
    return server


def connect(path: Path, timeout_s: float) -> socket.socket:
    """A connection to a control socket.

    Raises:
        OSError: nobody listens there.
    """
    channel = socket.socket(socket.AF_UNIX)
    try:
        channel.settimeout(timeout_s)
        channel.connect(str(path))
    except BaseException:
        channel.close()
        raise
    return channel
