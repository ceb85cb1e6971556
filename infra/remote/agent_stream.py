"""A streamed request to a host's agent: chunks of any size as they come, then its report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infra.agent.conversation import STREAM
from infra.remote.agent_call import (
    agent_command,
    failure_of,
    find_report,
    framed_request,
    judge_dialogue,
    without_error,
)
from infra.remote.agent_modules import agent_program
from infra.remote.failures import NoReport
from infra.remote.outcome import Host, Stream
from infra.remote.sudo import Dialogue, SudoPassword
from infra.spec.bounded import is_whole_number

# What a login may print before the stream begins, and what the report behind it may measure.
MAX_NOISE_BYTES = 1 << 20
MAX_REPORT_BYTES = 1 << 22
# A chunk is kept whole before it is passed on; an agent's own have a tenth of this.
MAX_CHUNK_BYTES = 1 << 24
END_S = 10.0
_MARK = b"\n" + STREAM.encode() + b"\n"


@dataclass(frozen=True, slots=True)
class AskedSudo:
    """The dialogue with one host's sudo, and the password that all hosts share."""

    dialogue: Dialogue
    password: SudoPassword


class AgentStream:
    """The answer to a streamed request.

    Args:
        host: its name, for messages.
        stream: the running agent's output.
        asked: the dialogue with a sudo that may ask for a password.
    """

    def __init__(self, host: str, stream: Stream, asked: AskedSudo | None = None) -> None:
        """Begin before the first chunk."""
        self._asked = asked
        self.host = host
        self.report: dict[str, object] = {}
        self._stream = stream
        self._buffer = bytearray()

    def chunks(self) -> Iterator[bytes]:
        """The chunks; b"" when nothing came for a while. The report stands in `report` when they are over.

        Raises:
            HostsFailed: by its subclass, why there is no report; `LostConnection` when the connection ended
                first, and `AgentFailed` when the report is an error.
        """
        try:
            yield from self._chunks()
        finally:
            if self._asked is not None:
                self._asked.dialogue.close()

    def close(self) -> None:
        """Stop; the agent ends itself and what it started."""
        self._stream.close()

    def _chunks(self) -> Iterator[bytes]:
        pieces = self._stream.chunks()
        left: int | None = None
        has_begun = False
        for piece in pieces:
            if not piece:
                yield b""
                continue
            self._buffer += piece
            if not has_begun:
                has_begun = self._skip_noise()
            while has_begun and left != 0:
                if left is None:
                    left = self._next_length()
                    if left is None:
                        break
                    continue
                if len(self._buffer) < left:
                    break
                chunk = bytes(self._buffer[:left])
                del self._buffer[:left]
                left = None
                yield chunk
            if left == 0 and len(self._buffer) > MAX_REPORT_BYTES:
                break
        self._read_report()

    def _skip_noise(self) -> bool:
        """Whether the stream has begun; what a login printed before it is dropped."""
        place = self._buffer.find(_MARK)
        if place >= 0:
            del self._buffer[: place + len(_MARK)]
            return True
        del self._buffer[:-MAX_NOISE_BYTES]
        return False

    def _next_length(self) -> int | None:
        """The length of the next chunk, 0 after the last one; None while its line is not whole."""
        line, newline, _ = bytes(self._buffer[:20]).partition(b"\n")
        if not newline and len(self._buffer) < 20:  # noqa: PLR2004 - the line is not whole
            return None
        if (
            not (newline and is_whole_number(line.decode("ascii", "replace")))
            or int(line) > MAX_CHUNK_BYTES
        ):
            what = "what its agent sends is no stream of an agent."
            raise NoReport(
                self.host,
                what,
                "Look at what answers there for the agent (python3, sudo, the login).",
            )
        del self._buffer[: len(line) + 1]
        return int(line)

    def _read_report(self) -> None:
        outcome = self._stream.outcome(END_S)
        if self._asked is not None:
            judge_dialogue(self._asked.dialogue, self._asked.password, outcome)
        report = find_report(bytes(self._buffer))
        if report is None:
            raise failure_of(self.host, outcome)
        self.report = without_error(self.host, report)


def open_agent_stream(
    host: Host,
    request: Mapping[str, object],
    *,
    timeout_s: float | None,
    sudo: bool = True,
    password: SudoPassword | None = None,
) -> AgentStream:
    """Ask a host's agent for a stream.

    Args:
        host: where it runs.
        request: operation and its keys.
        timeout_s: the agent ends itself then, and also when this side goes away; None for no limit.
        sudo: whether a login other than root becomes root.
        password: for a sudo that asks for one; None where it must not ask.

    Raises:
        HostsFailed: no connection can be made.
    """
    limit = {} if timeout_s is None else {"deadline_s": timeout_s}
    stdin = agent_program(request) + framed_request({**limit, **request})
    if password is None or not sudo:
        return AgentStream(host.name, host.stream(agent_command(sudo=sudo), stdin=stdin))
    dialogue = Dialogue(host.name, password, stdin)
    stream = host.stream(agent_command(sudo=True, asks=True), reply=dialogue.reply)
    return AgentStream(host.name, stream, AskedSudo(dialogue, password))
