"""The password that logins give sudo: on standard input when sudo asks, and on one host first."""

from __future__ import annotations

import threading
from typing import Literal

from infra.remote.failures import OverTime, SudoRefused

# sudo writes the first when it asks, the agent's program the second when it runs (`agent_call`).
PROMPT = "moe-infra:password"
STARTED = "moe-infra:started"
TURN_S = 30.0

Verdict = Literal["unknown", "right", "wrong"]


class SudoPassword:
    """A password that prints as `***`.

    Every host may ask for it at the same time; the first one gets it, and the others wait for what comes of
    that. A wrong password is thus tried once, and locks no account on sixteen hosts.
    """

    __slots__ = ("_changed", "_tried_on", "_value", "_verdict")

    def __init__(self, value: str) -> None:
        """Keep the password; nothing is known of it yet."""
        self._value = value
        self._changed = threading.Condition()
        self._tried_on: str | None = None
        self._verdict: Verdict = "unknown"

    def __repr__(self) -> str:
        """Never the password."""
        return "***"

    def reveal_to(self, host: str) -> bytes:
        """The line for sudo's standard input, once it is known not to be wrong or this host is the first.

        Raises:
            SudoRefused: another host has refused it.
            OverTime: the host that tries it gives no answer.
        """
        with self._changed:
            while self._verdict == "unknown" and self._tried_on not in (None, host):
                if not self._changed.wait(TURN_S):
                    what = f"sudo wants a password, and {self._tried_on} has not said whether it is right."
                    raise OverTime(host, what, f"Look at {self._tried_on}, then run again.")
            if self._verdict == "wrong":
                what = f"sudo wants a password; it was not tried here, since {self._tried_on} refused it."
                raise SudoRefused(host, what, "Give the right one; nothing was changed here.")
            if self._verdict == "unknown":
                self._tried_on = host
            return self._value.encode() + b"\n"

    def accepted(self) -> None:
        """The host that tried it let it pass."""
        self._settle("right")

    def refused(self) -> None:
        """The host that tried it says that it is wrong."""
        self._settle("wrong")

    def ended(self, host: str) -> None:
        """A host has nothing more to say; if it was the first and gave no verdict, the next one tries."""
        with self._changed:
            if self._verdict == "unknown" and self._tried_on == host:
                self._tried_on = None
                self._changed.notify_all()

    def _settle(self, verdict: Verdict) -> None:
        with self._changed:
            if self._verdict == "unknown":
                self._verdict = verdict
                self._changed.notify_all()


class Dialogue:
    """What to send to `sudo -S` on one host: the password when it asks, the rest when the program runs."""

    def __init__(self, host: str, password: SudoPassword, payload: bytes) -> None:
        """Prepare; nothing has been said yet.

        Args:
            host: its name.
            password: shared by all hosts.
            payload: what the program reads, once sudo has started it.
        """
        self._host = host
        self._password = password
        self._payload = payload
        self.has_answered = False
        self.has_started = False

    def reply(self, stderr: bytes) -> bytes | None:
        """The next bytes; see `outcome.Reply`.

        Raises:
            SudoRefused: the password is wrong, here or on the host that tried it first.
        """
        if STARTED.encode() in stderr:
            self.has_started = True
            if self.has_answered:
                self._password.accepted()
            return None if self._payload == b"" else self._take_payload()
        asked = stderr.count(PROMPT.encode())
        if asked > 1 and self.has_answered:
            raise self.wrong()
        if asked == 1 and not self.has_answered:
            line = self._password.reveal_to(self._host)
            self.has_answered = True
            return line
        return b""

    def wrong(self) -> SudoRefused:
        """The failure of a host that does not take the password."""
        self._password.refused()
        what = "sudo does not take the password."
        return SudoRefused(self._host, what, "Give the right one; nothing was changed.")

    def close(self) -> None:
        """Nothing more is said here."""
        self._password.ended(self._host)

    def _take_payload(self) -> bytes:
        payload, self._payload = self._payload, b""
        return payload
