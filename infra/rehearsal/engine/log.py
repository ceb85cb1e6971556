"""The program's log lines, in the format of vLLM's logger."""

from __future__ import annotations

import os
import sys
import time


class Log:
    """Writes lines that carry the name of the (simulated) process they come from."""

    def __init__(self, process: str) -> None:
        self._prefix = f"({process} pid={os.getpid()}) " if process else ""

    def tell(self, source: str, message: str) -> None:
        """Write an INFO line; ``source`` is the file and line that the real engine shows."""
        self._write("INFO", source, message)

    def caution(self, source: str, message: str) -> None:
        """Write a WARNING line."""
        self._write("WARNING", source, message)

    def complain(self, source: str, message: str) -> None:
        """Write an ERROR line."""
        self._write("ERROR", source, message)

    def draw(self, bar: str) -> None:
        """Write one state of a progress bar: no level, no time, as tqdm does."""
        sys.stdout.write(f"{self._prefix}{bar}\n")
        sys.stdout.flush()

    def _write(self, level: str, source: str, message: str) -> None:
        stamp = time.strftime("%m-%d %H:%M:%S")
        lines = message.split("\n")
        sys.stdout.write("".join(f"{self._prefix}{level} {stamp} [{source}] {x}\n" for x in lines))
        sys.stdout.flush()
