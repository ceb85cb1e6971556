"""The seam: what a host can be asked, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

Reply = Callable[[bytes], "bytes | None"]
"""From all of standard error so far, what to send next; None when nothing more will be said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a command ended.

    Args:
        exit_code: None when it is unknown: the connection was lost before the host said so.
        stdout: everything it wrote, as far as it came.
        stderr: everything it wrote to standard error, as far as it came.
    """

    exit_code: int | None
    stdout: bytes
    stderr: bytes


class Stream(Protocol):
    """A command that runs, and its output as it comes.

    Memory is bounded however much it writes: while nobody takes the next chunk, the command is not read.
    """

    def chunks(self) -> Iterator[bytes]:
        """Standard output until the command has ended; b"" when nothing came for a while."""
        ...

    def outcome(self, timeout_s: float) -> Outcome:
        """How it ended, without its standard output; asked after `chunks` is over."""
        ...

    def close(self) -> None:
        """Stop reading; the command sees the end of its standard input. From any thread, any number of times."""
        ...


class Host(Protocol):
    """A host that commands can be run on."""

    @property
    def name(self) -> str:
        """The inventory's name."""
        ...

    def run(
        self,
        command: str,
        *,
        stdin: bytes = b"",
        timeout_s: float,
        hold_stdin: bool = False,
        reply: Reply | None = None,
    ) -> Outcome:
        """Run a command in the login's shell.

        Args:
            command: shell text; it is visible to everybody on the host.
            stdin: what the command reads; secrets belong here.
            timeout_s: limit of the command, connecting apart.
            hold_stdin: leave standard input open until the command ends, so that its end of file
                means that nobody waits any more; line breaks in between say that somebody does.
            reply: for a program that asks before it reads on: called when it has said something; what it raises
                ends the command. Needs `hold_stdin`.

        Raises:
            HostsFailed: no connection can be made, or the limit passed (`OverTime`).
        """
        ...

    def stream(self, command: str, *, stdin: bytes = b"", reply: Reply | None = None) -> Stream:
        """Start a command whose output is read while it runs; standard input stays open.

        Args:
            command: shell text; it is visible to everybody on the host.
            stdin: what the command reads first.
            reply: see `run`; what it raises comes out of `Stream.chunks`.

        Raises:
            HostsFailed: no connection can be made.
        """
        ...

    def close(self) -> None:
        """Hang up; a later `run` connects again."""
        ...
