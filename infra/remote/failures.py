"""What goes wrong between this machine and a host, each with its words and its fix.

HostsFailed            4
├── Unreachable           no answer, refused, no such name, no SSH greeting
├── HostKeyUnknown        nothing here says which key the host has
├── HostKeyChanged        the host shows another key than the one that is known
├── LoginRefused          no key or login is accepted
├── LostConnection        the outcome of what was asked is unknown
├── OverTime              no answer within the limit; what was started there is ended
├── NoPython              no python3, or one that is too old
├── SudoRefused           sudo is missing, wants a password or a terminal, or says no
├── NoReport              the agent's answer is not a report
├── AgentFailed           the agent could not do what was asked, and says why
├── LeaseHeld             somebody else is changing the deployment there; nothing was done
└── SeveralHostsFailed    more than one of the above, as one table
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from infra.errors import HostsFailed, InfraError


class Unreachable(HostsFailed):
    """No SSH connection can be made."""


class HostKeyUnknown(HostsFailed):
    """Nothing says which key the host has, so it cannot be told from an impostor."""


class HostKeyChanged(HostsFailed):
    """The host shows another key than the one that is known."""


class LoginRefused(HostsFailed):
    """The host accepts no key that was offered."""


class LostConnection(HostsFailed):
    """The connection ended before the answer: what happened on the host is unknown."""


class OverTime(HostsFailed):
    """The host did not answer within the limit."""


class NoPython(HostsFailed):
    """The agent cannot run: no python3, or one older than 3.6."""


class SudoRefused(HostsFailed):
    """The agent cannot become root."""


class NoReport(HostsFailed):
    """What came back is not the agent's report."""


class AgentFailed(HostsFailed):
    """The agent could not do what was asked."""


class LeaseHeld(HostsFailed):
    """Somebody else holds the lease of the stack there: nothing was done."""

    def __init__(self, where: str, what: str, holder: Mapping[str, object]) -> None:
        """Keep what the host knows of the holder."""
        super().__init__(where, what, "Wait until that command has ended.")
        self.holder = holder


def over_time(host: str, timeout_s: float) -> OverTime:
    """The failure of a host whose answer did not come within this side's limit."""
    what = f"no answer within {timeout_s:g} s; what was started there is being ended."
    return OverTime(host, what, "Look at the host, then run again.")


def too_long(host: str, most_bytes: int) -> NoReport:
    """The failure of a host that says more than any answer has."""
    what = f"it answers with more than {most_bytes >> 20} MiB; what it says is not listened to any more."
    return NoReport(
        host, what, "Look at what answers there for the agent (python3, sudo, the login)."
    )


# What a machine that is gone looks like; a login, a key or sudo that is refused comes from one that lives.
MAY_BE_GONE = (Unreachable, LostConnection, OverTime)


class HostFailure(NamedTuple):
    """One host that failed, and why."""

    host: str
    error: InfraError


class SeveralHostsFailed(HostsFailed):
    """Failures of several hosts, printed as one table."""

    def __init__(self, failures: Sequence[HostFailure], num_hosts: int) -> None:
        """Keep the failures; `where` lists the hosts."""
        hosts = ", ".join(failure.host for failure in failures)
        what = f"{len(failures)} of {num_hosts} hosts failed"
        super().__init__(hosts, what, failures[0].error.fix)
        self.failures = tuple(failures)
        self.num_hosts = num_hosts

    def each(self) -> tuple[InfraError, ...]:
        """The failure of every host."""
        return tuple(failure.error for failure in self.failures)

    def __str__(self) -> str:
        """A line that counts them, then the table."""
        return f"{self.what}:\n{failure_table(self.failures)}"


def failure_table(failures: Sequence[HostFailure]) -> str:
    """One row per host: its name, what failed, how to mend it; hosts that failed alike share a row."""
    alike: dict[tuple[str, str], list[str]] = {}
    for failure in failures:
        what = _of_any_host(failure.error.what, failure.host)
        alike.setdefault((what, failure.error.fix), []).append(failure.host)
    rows = [(", ".join(hosts), what, fix) for (what, fix), hosts in alike.items()]
    width = max(len(hosts) for hosts, _, _ in rows)
    return "\n".join(f"  {hosts:<{width}}  {what} {fix}".rstrip() for hosts, what, fix in rows)


def _of_any_host(what: str, host: str) -> str:
    """Words about one host as they are said of others, too; ranks and commands keep its name."""
    named = re.compile(rf"(`[^`]*`)|(?<![\w./@-]){re.escape(host)}(?![\w/-]|\.\w)")
    return named.sub(lambda found: found[1] or "the host", what)
