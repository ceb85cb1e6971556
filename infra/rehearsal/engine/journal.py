"""Notes every served request in the host's ``requests.jsonl``, for the rehearsal's report."""

from __future__ import annotations

import json
import os
import time
from typing import Any

MAX_LINE_BYTES = 4000


class Journal:
    """Appends one short line per request; lines of several processes never mix."""

    def __init__(self, state: str, host: str) -> None:
        self._path = os.path.join(state, "requests.jsonl")
        self._host = host

    def note(self, facts: dict[str, Any]) -> None:
        """Append a line; an unwritable journal must not fail a request."""
        record = {"t": time.time(), "host": self._host, "pid": os.getpid(), **facts}
        line = json.dumps(record).encode()[:MAX_LINE_BYTES] + b"\n"
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError:
            return
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
