"""One agent that answers request after request on a host: started, carried and let in by sudo once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeGuard, cast

from infra.agent.conversation import IDLE_LIMIT_S
from infra.errors import InfraError
from infra.remote.agent_call import (
    MOST_MARKERS,
    REPORT,
    agent_command,
    call_agent,
    failure_of,
    framed_request,
    judge_dialogue,
    without_error,
)
from infra.remote.agent_modules import agent_modules, agent_program, lacking, preparation
from infra.remote.host import SshHost
from infra.remote.sudo import Dialogue, SudoPassword
from infra.remote.talking import SshTalk
from infra.spec.bounded import read_json

# A connection that was used so recently is taken to be alive; an older one is looked after before it is used.
FRESH_S = 2.0
# An agent ends by itself when nothing was asked for longer; nobody may ask it while it does.
WAITS_S = IDLE_LIMIT_S - 60.0
# How long an agent may take to load what it is prepared for.
PREPARE_S = 60.0
# Longer than a marker's line, which may arrive in two pieces.
MARKER_BYTES = 64


class AgentSession:
    """A host's agent, kept from one request to the next; started by the first, and again when it is gone."""

    def __init__(self, host: SshHost, password: SudoPassword | None = None) -> None:
        """Nothing is started yet.

        Args:
            host: where it runs.
            password: for a sudo that asks for one; None where it must not ask.
        """
        self._host = host
        self._password = password
        self._talk: SshTalk | None = None
        self._carried: set[str] = set()
        self._used_at = 0.0
        self._busy = threading.Lock()
        self._in_work: Mapping[str, object] = {}
        self._is_settled = threading.Event()
        self._is_settled.set()
        self._refusal: InfraError | None = None

    def ask(self, request: Mapping[str, object], *, timeout_s: float) -> dict[str, object]:
        """The agent's report on a request; see `call_agent`.

        Somebody who asks while another request is in work has an agent of his own; who would renew nothing but the
        lease of that one needs none: its signs of life do.
        """
        self._is_settled.wait()
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal
        if not self._busy.acquire(blocking=False):
            if self._is_renewed(request):
                return {"schema_version": 1, "lease": True}
            return call_agent(self._host, request, timeout_s=timeout_s, password=self._password)
        self._in_work = request
        try:
            return without_error(self._host.name, self._answered(request, timeout_s))
        except BaseException:
            if self._talk is not None and self._talk.is_over:
                self._talk = None
            raise
        finally:
            self._used_at = time.monotonic()
            self._in_work = {}
            self._busy.release()

    @property
    def is_settled(self) -> bool:
        """Whether nobody is starting it ahead of a request."""
        return self._is_settled.is_set()

    def prepare(self, operations: Sequence[str]) -> Callable[[], None]:
        """What starts the agent before anything is asked, with what requests of some operations need.

        From now on whoever asks waits until that has been called and has ended. Why it could not start the agent is
        the answer to the first request; an interrupt before it is called (`Openings.send_away`) is one.
        """
        self._is_settled.clear()
        line = self._host.line

        def start() -> None:
            try:
                self._host.open(line)
                self._answered(preparation(operations), PREPARE_S)
            except InfraError as error:
                self._refusal = error
            except Exception:  # noqa: BLE001 - a thread that nobody asks says nothing: the first request meets it again
                self._talk = None
            finally:
                self._used_at = time.monotonic()
                self._is_settled.set()

        return start

    def _is_renewed(self, request: Mapping[str, object]) -> bool:
        """Whether a request is for nothing but a lease that the signs of life of the one in work renew."""
        wanted, held = request.get("lease"), self._in_work.get("lease")
        if request.keys() != {"operation", "lease"} or not _is_held(wanted) or not _is_held(held):
            return False
        talk = self._talk
        return wanted["token"] == held["token"] and talk is not None and talk.gives_signs

    def _answered(self, request: Mapping[str, object], timeout_s: float) -> dict[str, object]:
        try:
            report = self._turn_of(self._living_talk(), request, timeout_s)
            missing = lacking(report)
            if missing and self._talk is not None:  # what that host has recorded asks for more
                report = self._next_turn(self._talk, request, timeout_s, missing)
        except BaseException:
            if self._talk is not None:
                self._talk.close()
            raise
        return report

    def _turn_of(
        self, talk: SshTalk | None, request: Mapping[str, object], timeout_s: float
    ) -> dict[str, object]:
        if talk is None:
            return self._first_turn(request, timeout_s)
        return self._next_turn(talk, request, timeout_s)

    def _living_talk(self) -> SshTalk | None:
        """The agent that waits for its next request, where there is one: nothing is said to a dead one."""
        unused_s = time.monotonic() - self._used_at
        if self._talk is not None and unused_s > WAITS_S:
            self._talk.close()
            self._talk = None
        if self._talk is not None and unused_s > FRESH_S:
            self._host.look_after()
        return None if self._talk is None or self._talk.is_over else self._talk

    def _first_turn(self, request: Mapping[str, object], timeout_s: float) -> dict[str, object]:
        """Start the agent with what this request needs, which is packed while its interpreter starts."""
        if self._password is None:
            self._talk = self._host.talk(agent_command(sudo=True, mode="turns"))
            return self._turn(self._talk, self._first_words(request, timeout_s), timeout_s)
        dialogue = Dialogue(self._host.name, self._password, self._first_words(request, timeout_s))
        command = agent_command(sudo=True, asks=True, mode="turns")
        self._talk = self._host.talk(command, reply=dialogue.reply)
        try:
            return self._turn(self._talk, b"", timeout_s, dialogue)
        finally:
            dialogue.close()

    def _first_words(self, request: Mapping[str, object], timeout_s: float) -> bytes:
        """The program with what this request needs, and the request."""
        self._carried = set(agent_modules(request))
        return agent_program(request) + framed_request({"deadline_s": timeout_s, **request})

    def _next_turn(
        self,
        talk: SshTalk,
        request: Mapping[str, object],
        timeout_s: float,
        further: Iterable[str] = (),
    ) -> dict[str, object]:
        needed = agent_modules(request, further)
        missing = {name: needed[name] for name in needed.keys() - self._carried}
        asked = {"deadline_s": timeout_s, "modules": missing, **request}
        report = self._turn(talk, framed_request(asked), timeout_s)
        self._carried |= missing.keys()
        return report

    def _turn(
        self, talk: SshTalk, said: bytes, timeout_s: float, dialogue: Dialogue | None = None
    ) -> dict[str, object]:
        reader = _ReportReader()
        outcome = talk.turn(said, timeout_s=timeout_s, take=reader.take)
        if outcome is None:
            return reader.report
        if dialogue is not None and self._password is not None:
            judge_dialogue(dialogue, self._password, outcome)
        raise failure_of(self._host.name, outcome)


def _is_held(lease: object) -> TypeGuard[Mapping[str, object]]:
    """Whether a request's lease is neither given back nor taken from somebody."""
    return isinstance(lease, Mapping) and not lease.get("release") and not lease.get("takes")


class _ReportReader:
    """Finds the report in what an agent writes, behind whatever a login prints before it."""

    def __init__(self) -> None:
        self.report: dict[str, object] = {}
        self._heard = bytearray()
        self._looked = 0
        self._start = self._end = 0
        self._num_markers = 0

    def take(self, piece: bytes) -> bool:
        """Hear a piece; whether the report is whole."""
        self._heard += piece
        while True:
            if not self._end and not self._find_marker():
                return False
            if self._num_markers > MOST_MARKERS:
                return False  # what comes is no answer: the limits of time and of length end it
            if len(self._heard) < self._end:
                return False
            if self._read():
                return True
            self._looked, self._end = self._start, 0  # a login's noise looked like a marker

    def _find_marker(self) -> bool:
        found = REPORT.search(self._heard, self._looked)
        if found is None:
            self._looked = max(self._looked, len(self._heard) - MARKER_BYTES)
            return False
        self._num_markers += 1
        self._start, self._end = found.end(), found.end() + int(found.group(1))
        return True

    def _read(self) -> bool:
        try:
            report = read_json(bytes(self._heard[self._start : self._end]))
        except ValueError:
            return False
        self.report = cast("dict[str, object]", report)
        return isinstance(report, dict)
