"""Orders a started `warm_start.py` to start engines, and tells how they left."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parent / "warm_start.py"


class Forker:
    """One process that has imported the engine; it starts one at a time."""

    def __init__(self, python: Path, folder: Path, variables: Mapping[str, str]) -> None:
        """Start it, and wait until it has imported."""
        self._log = (folder / "forker.log").open("wb")
        self._process = subprocess.Popen(
            [str(python), str(PROGRAM)],
            env=dict(variables),
            cwd=folder,
            bufsize=0,  # what is buffered here would not show in `select`
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self.hear(None)

    def start(
        self, words: Sequence[str], variables: Mapping[str, str], folder: Path, log: Path
    ) -> Forked:
        """Start a program with these words, variables, folder and output."""
        order = {"words": words, "env": variables, "folder": str(folder), "log": str(log)}
        log.touch()
        pipe = self._process.stdin
        assert pipe is not None
        pipe.write(json.dumps(order).encode() + b"\n")
        pipe.flush()
        heard = self.hear(None)
        assert heard is not None
        return Forked(self, int(heard["pid"]))

    def hear(self, timeout: float | None) -> dict[str, Any] | None:
        """The next message, None when none comes in time.

        Raises:
            AssertionError: it has left.
        """
        pipe = self._process.stdout
        assert pipe is not None
        if timeout is not None and not select.select([pipe], [], [], timeout)[0]:
            return None
        line = pipe.readline()
        assert line, Path(self._log.name).read_text(errors="replace")[-2000:]
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()
        self._log.close()


class Forked:
    """A program that it has started, with what is used of `subprocess.Popen`."""

    def __init__(self, forker: Forker, pid: int) -> None:
        """It runs."""
        self._forker = forker
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, waited for."""
        if self.returncode is None:
            begun = time.monotonic()
            heard = self._forker.hear(timeout)
            if heard is None:
                raise subprocess.TimeoutExpired("vllm", time.monotonic() - begun)
            self.returncode = int(heard["code"])
        return self.returncode

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, sig: int) -> None:
        """Send it a signal."""
        if self.returncode is None:
            os.kill(self.pid, sig)
