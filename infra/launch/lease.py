"""Holds the lease of a stack on its hosts while a command changes the deployment.

The lease travels in the requests that the command makes anyway. One extra request per host gives it back, and a host
whose last request lies back for a while is asked for nothing but the renewal: others may be at work for long. On a host
that is at work itself, the signs of life of whoever waits for it (`remote/exchange.py`) renew it, and nothing is sent
for that (`remote/agent_session.py`). Nobody ever waits for a lease while holding another, so two operators cannot
block each other.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infra.errors import HostsFailed, InfraError, PrerequisiteError
from infra.launch.fleet import Answers, Clock, Fleet, Request
from infra.remote.failures import AgentFailed, LeaseHeld, LostConnection, NoReport, OverTime

FORCE = "lease"
# The agent's lease lasts 20 s: three renewals may be lost.
RENEW_AFTER_S = 5.0
LOOK_S = 1.0
# How long the end waits for renewals that are on their way.
END_S = 1.0
RENEWAL_LIMIT_S = 15.0
RELEASE_LIMIT_S = 15.0
# Of two that met, the one that got the first host goes on as soon as the other has given up.
RETRIES = 10
RETRY_PAUSE_S = 0.3
ANYBODY = "*"
# After these the agent may have taken the lease, although it has not said so.
_MAY_HOLD = (AgentFailed, LostConnection, OverTime, NoReport)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who holds a lease, precisely enough to be told dead from alive on the same machine.

    Args:
        operator: `user@machine`, for people.
        machine: the booted machine and its process namespace; empty where that cannot be told.
        started: when the process was started, in the kernel's ticks; empty where that cannot be told.
    """

    operator: str
    machine: str
    process: int
    started: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What is claimed: a stack on hosts, for one command.

    Args:
        hosts: every host of the deployment.
        command: what the operator typed, for the message to others.
        forces: whether a lease is taken from whoever holds it.
    """

    stack: str
    hosts: Sequence[str]
    command: str
    owner: Owner
    forces: bool


def this_owner() -> Owner:
    """This process."""
    return owner_of(os.getpid())


def owner_of(process: int) -> Owner:
    """A process of this machine: this one, or the one that it works for."""
    return Owner(
        operator=f"{_user()}@{platform.node() or 'somewhere'}",
        machine=_machine(),
        process=process,
        started=_started(process) or "",
    )


def lease_document(stack: str, token: str, owner: Owner, command: str) -> dict[str, object]:
    """A lease as it travels in a request."""
    return {
        "stack": stack,
        "token": token,
        "operator": owner.operator,
        "machine": owner.machine,
        "process": owner.process,
        "started": owner.started,
        "command": command,
    }


def is_dead(holder: Mapping[str, object], owner: Owner) -> bool:
    """Whether a lease's holder was a process of this machine that has ended."""
    if not owner.machine or holder.get("machine") != owner.machine:
        return False
    started = _started(int(str(holder.get("process"))))
    return started is None or started != holder.get("started")


@contextlib.contextmanager
def leased(fleet: Fleet, claim: Claim, clock: Clock) -> Iterator[LeasedFleet]:
    """The fleet, whose requests hold the lease of a stack; it is given back in the end.

    The first request must be one that changes nothing: it takes the lease on all hosts or on none. After an interrupt
    connections are gone; the lease then ends by itself, and at once for the same operator.
    """
    held = LeasedFleet(fleet, claim, clock)
    with held.renewing():
        try:
            yield held
        except KeyboardInterrupt:
            raise
        except BaseException:
            held.release()
            raise
        held.release()


@dataclass(slots=True)
class LeasedFleet:
    """A fleet that takes the lease of every host that it asks, and renews it.

    Args:
        since: host → when this side first knew that it holds the lease there.
        contacts: host → when its last request was made or, later, all answers to it had come.
        renewed: hosts that are being asked for nothing but the renewal.
        touched: hosts that may hold the lease; they are told to give it back.
    """

    fleet: Fleet
    claim: Claim
    clock: Clock
    token: str = field(default_factory=lambda: os.urandom(8).hex())
    since: dict[str, float] = field(default_factory=dict)
    contacts: dict[str, float] = field(default_factory=dict)
    renewed: set[str] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        """See `Fleet`. On a host beside the claimed ones the lease of somebody else is a failure among the answers.

        Raises:
            PrerequisiteError: somebody else holds the lease of a claimed host; it is held nowhere by us, and
                nothing was changed.
            HostsFailed: it was taken from us.
        """
        others = {} if self.since else {host: {"operation": "lease"} for host in self.claim.hosts}
        answers = self._ask_leased({**others, **requests}, timeout_s, takes={})
        held = {host: a for host, a in answers.items() if isinstance(a, LeaseHeld)}
        if held:
            answers.update(self._settle({**others, **requests}, held, timeout_s))
        return {host: answer for host, answer in answers.items() if host in requests}

    def release(self) -> None:
        """Give the lease back everywhere; where that does not succeed it ends by itself."""
        request = {"operation": "lease", "lease": {**self._document(), "release": True}}
        self.fleet.ask(dict.fromkeys(sorted(self.touched), request), timeout_s=RELEASE_LIMIT_S)
        self.touched.clear()
        self.since.clear()

    @contextlib.contextmanager
    def renewing(self, look_s: float = LOOK_S) -> Iterator[None]:
        """Renew the lease on hosts whose last request lies back for a while, until the block ends.

        No host waits for another one that does not answer.

        Args:
            look_s: how often it is looked for such hosts.
        """
        over = threading.Event()
        renewals: list[threading.Thread] = []

        def renew() -> None:
            while not over.wait(look_s):
                renewals[:] = [one for one in renewals if one.is_alive()]
                for host in self.due_hosts():
                    renewals.append(threading.Thread(target=self.renew, args=[host], daemon=True))
                    renewals[-1].start()

        thread = threading.Thread(target=renew, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            end = time.monotonic() + END_S
            for one in (thread, *renewals):
                one.join(max(end - time.monotonic(), 0.0))

    def due_hosts(self) -> list[str]:
        """The hosts whose last request lies back for a while; whoever asks for them renews the lease there.

        Some of them may be at work on it still: who of those that were asked together has answered is known to those
        who speak with them alone.
        """
        now, since = self.clock.now(), dict(self.since)
        due = sorted(
            host
            for host in since.keys() - self.renewed
            if now - self.contacts[host] > RENEW_AFTER_S
        )
        self.renewed.update(due)
        return due

    def renew(self, host: str) -> None:
        """Renew the lease on a host.

        It may be given back meanwhile. So the renewal says since when the lease is held, and a host where it has gone
        refuses: it never takes one.
        """
        try:
            since = self.since.get(host)
            if since is not None:
                self.contacts[host] = self.clock.now()
                request = self._leased({"operation": "lease"}, since, takes=None)
                # what a host says here, the next real request to it meets again
                self.fleet.ask({host: request}, timeout_s=RENEWAL_LIMIT_S)
        finally:
            self.renewed.discard(host)

    def _ask_leased(
        self, requests: Mapping[str, Request], timeout_s: float, takes: Mapping[str, str]
    ) -> Answers:
        sent = {
            host: self._leased(request, self.since.get(host), takes.get(host))
            for host, request in requests.items()
        }
        begun = self.clock.now()
        self.contacts.update(dict.fromkeys(requests, begun))
        answers = self.fleet.ask(sent, timeout_s=timeout_s)
        for host, answer in answers.items():
            if not isinstance(answer, InfraError):
                self.since.setdefault(host, begun)
                self.contacts[host] = self.clock.now()
            if not isinstance(answer, InfraError) or isinstance(answer, _MAY_HOLD):
                self.touched.add(host)
        return answers

    def _settle(
        self, requests: Mapping[str, Request], held: Mapping[str, LeaseHeld], timeout_s: float
    ) -> Answers:
        """The answers of hosts whose lease was another's, when it can be had after all."""
        lost = next((error for error in held.values() if error.holder.get("is_lost")), None)
        if lost is not None:
            raise _lease_lost(lost)
        answers: Answers = dict(held)
        for attempt in range(RETRIES):
            takes = {
                host: str(error.holder.get("token"))
                for host, error in held.items()
                if is_dead(error.holder, self.claim.owner)
            }
            if self.claim.forces:
                takes = dict.fromkeys(held, ANYBODY)
            if not takes and min(self.claim.hosts) not in self.since:
                break
            if attempt:
                self.clock.sleep(RETRY_PAUSE_S)
            again = {host: requests[host] for host in held}
            answers.update(self._ask_leased(again, timeout_s, takes))
            held = {h: a for h, a in answers.items() if isinstance(a, LeaseHeld)}
            if not held:
                return answers
        if not set(held) & set(self.claim.hosts):
            # hosts beside the deployment's, met when it has been changed already: each is a failure of its own
            return answers
        self.release()
        raise _lease_held(held)

    def _leased(
        self, request: Request, since: float | None, takes: str | None
    ) -> dict[str, object]:
        document = {
            **self._document(),
            "held_s": None if since is None else self.clock.now() - since,
            "takes": takes,
        }
        return {**request, "lease": document}

    def _document(self) -> dict[str, object]:
        claim = self.claim
        return lease_document(claim.stack, self.token, claim.owner, claim.command)


def _lease_held(held: Mapping[str, LeaseHeld]) -> PrerequisiteError:
    # several where two commands hold a part of the hosts each: the hosts' clocks tell the same holder's since apart
    holders: dict[tuple[object, ...], tuple[str, list[str]]] = {}
    for host, error in held.items():
        name = tuple(error.holder.get(key) for key in ("operator", "machine", "process", "command"))
        holders.setdefault(name, (error.what, []))[1].append(host)
    told = [
        what if len(holders) == 1 else f"{', '.join(hosts)}: {what}"
        for what, hosts in holders.values()
    ]
    fix = (
        "Nothing was changed. Wait until that command has ended; 20 s after its owner has died anybody may go on. "
        f"`--force {FORCE}` takes the lease away from it."
    )
    return PrerequisiteError(", ".join(held), " ".join(told), fix)


def _lease_lost(error: LeaseHeld) -> HostsFailed:
    fix = "This command stops here and leaves the hosts as they are; see `fab status`, then run it again."
    return HostsFailed(error.where, f"The lease was lost: {error.what}", fix)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user: a container with a bare number
        return str(os.getuid())


def _machine() -> str:
    """The boot and process namespace that process numbers belong to; empty where /proc does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{platform.node()} {boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(process: int) -> str | None:
    """When a process was started, in ticks since boot; None when it has ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else fields[19]
