"""Starts engines of one subject, asks them and ends them."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from infra.rehearsal import tiny_model
from tests.conformance.commands import Model
from tests.conformance.forker import Forker
from tests.conformance.shapes import body_of
from tests.conformance.subjects import Subject

NO_ANSWER = "no answer"
REFUSED = "connection refused"
CLOSED = "connection closed"
_POLL_S = 0.1
URGENT_NICE = -15


class Process(Protocol):
    """What is used of a started program."""

    @property
    def pid(self) -> int:
        """Of the program, which leads a group of its own."""
        ...

    @property
    def returncode(self) -> int | None:
        """Its exit code, as far as it has been asked for."""
        ...

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, waited for.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        ...

    def kill(self) -> None:
        """Kill it."""
        ...

    def send_signal(self, sig: int) -> None:
        """Send it a signal."""
        ...


@dataclass(slots=True)
class Running:
    """A started engine."""

    process: Process
    log: Path
    port: int

    def output(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass(slots=True)
class Bench:
    """Starts engines of one subject, and ends all of them."""

    subject: Subject
    folder: Path
    started: list[Running] = field(default_factory=list)
    _forker: Forker | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def model(self, kind: Model | Literal["copy"] = "tiny") -> str:
        """What `vllm serve` is told to serve; a folder's name begins as outputs are cleaned of."""
        if kind == "repository":
            return "no-such/model"
        folder = self.folder / f"checkpoint-{kind}"
        if kind in ("tiny", "copy") and not folder.is_dir():
            tiny_model.write(folder)
        elif kind == "empty":
            folder.mkdir(exist_ok=True)
        elif kind == "unknown" and not folder.is_dir():
            tiny_model.write(folder)
            path = folder / "config.json"
            config = {**json.loads(path.read_text()), "architectures": ["NoSuchForCausalLM"]}
            path.write_text(json.dumps({**config, "model_type": "no_such"}))
        return str(folder)

    def start(
        self,
        port: int,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        model: str | None = None,
        is_judged: bool = False,
    ) -> Running:
        """Start `vllm serve`.

        Args:
            port: of its HTTP server.
            arguments: further ones.
            env: beside the subject's own.
            model: instead of the tiny one.
            is_judged: it is to be refused, and may be forked.
        """
        folder = self.folder / f"engine-{next(self._numbers)}"
        folder.mkdir(parents=True)
        words = ["serve", model or self.model(), "--port", str(port), *arguments]
        variables = {"PATH": os.environ["PATH"], **self.subject.environment(folder), **(env or {})}
        log = folder / "output.log"
        command = self.subject.command(words)
        if is_judged and self._forker is None:
            self._forker = self.subject.forker(self.folder)
        process: Process
        if is_judged and self._forker is not None:
            process = self._forker.start(command, variables, folder, log)
        else:
            with log.open("wb") as output:
                process = subprocess.Popen(
                    command,
                    env=variables,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        running = Running(process, log, port)
        self.started.append(running)
        return running

    def wait_serving(self, running: Running) -> list[str]:
        """Wait until `/health` is 200; what it was before, each once.

        Raises:
            AssertionError: it left, or did not serve in time.
        """
        seen: list[str] = []
        deadline = time.monotonic() + self.subject.patience_s
        while time.monotonic() < deadline:
            answer = self.ask(running.port, "GET", "/health", limit_s=5)
            if answer.get("status") == 200:
                return seen
            if running.process.poll() is not None:
                break
            said = str(answer.get("status", answer.get("failed")))
            seen += [] if said in seen else [said]
            time.sleep(_POLL_S)
        raise AssertionError(f"{running.process.poll()}: {running.output()[-3000:]}")

    def hurry(self, running: Running, nice: int = URGENT_NICE) -> None:
        """Put a started engine and all of its processes before everything else here, or back with 0, as far as allowed.

        Every engine is a session of its own: where Linux shares by sessions (autogroup), theirs is what counts.
        """
        pid = running.process.pid
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PGRP, pid, nice)
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/autogroup").write_text(str(nice))

    def wait_said(self, running: Running, words: str) -> None:
        """Wait until its output holds these words, or it has left."""
        deadline = time.monotonic() + self.subject.patience_s
        while words not in running.output() and running.process.poll() is None:
            if time.monotonic() > deadline:
                raise AssertionError(f"not said: {words}: {running.output()[-3000:]}")
            time.sleep(_POLL_S)

    def wait_left(self, running: Running, limit_s: float | None = None) -> int | None:
        """The exit code, None when it does not leave in time."""
        try:
            return running.process.wait(limit_s or self.subject.patience_s)
        except subprocess.TimeoutExpired:
            return None

    def ask(
        self,
        port: int,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        limit_s: float | None = None,
    ) -> dict[str, Any]:
        """An answer as `status`, `type` and `body`, or `failed`."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", port, timeout=limit_s or self.subject.answer_s
        )
        given = dict(headers or {})
        content = body if isinstance(body, str) or body is None else json.dumps(body)
        if content is not None:
            given = {"Content-Type": "application/json", **given}
        try:
            connection.request(method, path, content, given)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        except TimeoutError:
            return {"failed": NO_ANSWER}
        except ConnectionRefusedError:
            return {"failed": REFUSED}
        except (OSError, http.client.HTTPException):
            return {"failed": CLOSED}
        finally:
            connection.close()
        kind = answer.headers.get("content-type", "")
        return {"status": answer.status, "type": kind, "raw": text, "body": body_of(text, kind)}

    def end(self, running: Running) -> None:
        """Kill an engine and everything that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait()

    def close(self) -> None:
        """End everything."""
        self.end_all()
        if self._forker is not None:
            self._forker.close()

    def end_all(self) -> None:
        """End every started engine."""
        for running in self.started:
            self.end(running)
        self.started.clear()
