"""A command on a host that is spoken with in turns, on a channel of its own."""

from __future__ import annotations

import time

import paramiko

from infra.remote.exchange import MAX_HEARD_BYTES, Exchange, HeardTooMuchError, Take
from infra.remote.failures import over_time, too_long
from infra.remote.outcome import Outcome, Reply


class SshTalk:
    """See `outcome.Talk`."""

    def __init__(self, host: str, channel: paramiko.Channel, reply: Reply | None) -> None:
        """Nothing has been said yet.

        Args:
            host: its name, for messages.
            channel: of a command that runs.
            reply: for a program that asks before it reads on.
        """
        self._host = host
        self._channel = channel
        self._exchange = Exchange(channel, reply, hold_stdin=True)

    @property
    def is_over(self) -> bool:
        """Whether the command has ended, or its connection was lost."""
        return bool(self._channel.eof_received or self._channel.closed)

    @property
    def gives_signs(self) -> bool:
        """Whether the command hears that somebody waits for its answer, which it owes."""
        return self._exchange.gives_signs

    def turn(self, said: bytes, *, timeout_s: float, take: Take) -> Outcome | None:
        """Say something and hear the answer; how the command ended where there is none."""
        deadline = time.monotonic() + timeout_s
        pieces: list[bytes] = []

        def hear(piece: bytes) -> bool:
            pieces.append(piece)
            return take(piece)

        try:
            if self._exchange.turn(said, deadline, hear):
                return None
            return self._exchange.outcome(deadline, b"".join(pieces))
        except TimeoutError:
            raise over_time(self._host, timeout_s) from None
        except HeardTooMuchError:
            self.close()
            raise too_long(self._host, MAX_HEARD_BYTES) from None
        except (paramiko.SSHException, EOFError, OSError):  # lost, or dead
            return Outcome(exit_code=None, stdout=b"", stderr=b"")

    def close(self) -> None:
        """Hang up; the command sees the end of its standard input."""
        self._channel.close()
