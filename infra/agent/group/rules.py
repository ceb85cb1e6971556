"""When a group of ranks starts, stops and is given up: two pure functions, docs/decisions.md 21.

`lead` runs on the host of rank 0 and counts epochs; `follow` runs on every host of the group, that one
included, and decides what the host does to its own units. Times are monotonic seconds of the host that
decides; nothing here reads a clock, a file or the network.
"""

from typing import NamedTuple, Optional, Sequence, Tuple

# A group's phases: handed over by `fab up` and not met by all hosts yet; serving or starting; between two
# epochs; given up.
ADOPT, RUN, STOP, FAILED = "adopt", "run", "stop", "failed"
# What the units of a group on one host are together.
RUNNING, PARTIAL, CHANGING = "running", "partial", "changing"
# systemd has been asked to start them, and starts something else first: docker after a boot, or a network.
WAITING = "waiting"
# They have ended: evidence is still being kept, a port is held or a process has outlived them; nothing is left.
CLEARING, STOPPED = "clearing", "stopped"
# What a host does.
NOTHING, BEGIN, END, KILL, TAKE_OVER = "nothing", "start", "stop", "kill", "adopt"
# Between who asked for a restart and the fault before it.
BEFORE = "; before that: "


class Limits(NamedTuple):
    """How long things may take, in seconds, and how often a group is restarted.

    Args:
        first_pause_s: before the first restart of a row; each further pause is twice as long.
        longest_pause_s: and never longer than this.
        max_restarts: of a row; the next fault ends in `failed`.
        stable_s: of serving, after which a row is forgotten.
        lost_s: of silence, after which a host counts as lost.
        fresh_s: how old an order may be that starts units.
        start_s: from an epoch's beginning until every host must have begun to start its units.
        grace_s: from SIGTERM to SIGKILL.
    """

    first_pause_s: float
    longest_pause_s: float
    max_restarts: int
    stable_s: float
    lost_s: float
    fresh_s: float
    start_s: float
    grace_s: float


class Own(NamedTuple):
    """A group on one host.

    Args:
        state: its units together.
        epoch: the newest epoch that it started, took over or refused; 0 for none.
        adopting: nobody has said yet which epoch its units are.
        fault: what speaks against the group running on, "" for nothing.
        serves: every endpoint of the group on this host has answered since its units were started.
        stopping_s: since it began to stop its units, None when it does not.
        obeys: epoch and phase of the latest order that it has taken; it acts on none before that one.
    """

    state: str
    epoch: int
    adopting: bool = False
    fault: str = ""
    serves: bool = False
    stopping_s: Optional[float] = None
    obeys: Tuple[int, str] = (0, "")


class Order(NamedTuple):
    """What the host of rank 0 has said last, and how many seconds ago."""

    epoch: int
    phase: str
    age_s: float = 0.0


class Member(NamedTuple):
    """A host of the group as the host of rank 0 knows it; `heard` is None when it never was."""

    host: str
    own: Own
    heard: Optional[float]


class Memory(NamedTuple):
    """What the host of rank 0 remembers of a group.

    Args:
        epoch: the number of its latest start.
        restarts: how often it was restarted by itself since it was handed over.
        attempts: how often in this row.
        why: what ended the latest epoch, "" for nothing; of a restart that was asked for, the latest fault too.
        since: when the phase began, or when this was read from the disk.
        starting: hosts that have not begun the epoch yet; () for one that was read from the disk.
        served_since: when all hosts began to serve, None while they do not.
    """

    epoch: int
    phase: str
    restarts: int
    attempts: int
    why: str
    since: float
    starting: Tuple[str, ...] = ()
    served_since: Optional[float] = None


def follow(own: Own, order: Optional[Order], limits: Limits) -> str:
    """What a host does to its own units.

    Args:
        own: what they are.
        order: the latest one, None when there never was any.
        limits: how long things may take.
    """
    if order is None and own.adopting:
        return NOTHING  # handed over, and the hosts have not met yet
    if order is not None and order.phase == ADOPT and order.age_s > limits.lost_s:
        return NOTHING  # nor have they as far as this host knows, and without its word nothing can begin
    if order is None or order.age_s > limits.lost_s or order.phase in (STOP, FAILED):
        return _ending(own, limits)
    if own.state in (CLEARING, STOPPED):
        is_new = order.phase == RUN and order.epoch > own.epoch and order.age_s <= limits.fresh_s
        return BEGIN if is_new and own.state == STOPPED else NOTHING
    if own.adopting and order.phase == ADOPT:
        return TAKE_OVER if own.state == RUNNING else NOTHING
    is_other = own.adopting or own.epoch != order.epoch
    return _ending(own, limits) if is_other else NOTHING


def lead(
    memory: Memory, members: Sequence[Member], now: float, limits: Limits, asked: str = ""
) -> Memory:
    """What the host of rank 0 remembers next; its phase and epoch are the order that all hosts get.

    Args:
        memory: what it remembers.
        members: every host of the group, its own first.
        now: the time.
        limits: how long things may take.
        asked: who asks for a restart, "" for nobody; such a restart is not counted.
    """
    if asked:
        # where the group was ever restarted by itself, the reason is kept: it is still what is to be looked for
        fault = memory.why.rpartition(BEFORE)[2] if memory.restarts else ""
        why = asked + BEFORE + fault if fault else asked
        return memory._replace(phase=STOP, attempts=0, why=why, since=now, served_since=None)
    if memory.phase == FAILED:
        return memory
    if memory.phase == STOP:
        return _begin_when_clear(memory, members, now, limits)
    fault = find_fault(memory, members, now, limits)
    if fault:
        return _restart(memory, fault, now, limits)
    if memory.phase == ADOPT:
        met = all(
            m.own.epoch == memory.epoch and not m.own.adopting and m.heard is not None
            for m in members
        )
        return memory._replace(phase=RUN, since=now) if met else memory
    return _serve(memory, members, now, limits)


def find_fault(memory: Memory, members: Sequence[Member], now: float, limits: Limits) -> str:
    """Why the epoch cannot go on, the host first; "" when it can."""
    for member in members:
        fault = _member_fault(memory, member, now, limits)
        if fault:
            return "{}: {}".format(member.host, fault)
    return ""


def pause_s(attempts: int, limits: Limits) -> float:
    """How long a group waits before a restart; the first of a row is number 1."""
    if attempts == 0:
        return 0.0
    return min(limits.first_pause_s * 2.0 ** (attempts - 1), limits.longest_pause_s)


def awaited(
    memory: Memory, members: Sequence[Member], now: float, limits: Limits
) -> Tuple[str, ...]:
    """What a stopped group waits for, a host at a time.

    A host counts as stopped when it says so *and* that it has taken the order to stop: an order to start that is
    still on its way to it can then do nothing, however late it comes.
    """
    found = []
    for member in members:
        if member.heard is None:
            found.append("{} has not been heard of".format(member.host))
        elif now - member.heard > limits.lost_s:
            found.append("{} is silent".format(member.host))
        elif member.own.state != STOPPED:
            reason = member.own.fault or "its ranks are being stopped"
            if member.own.state == CLEARING:
                reason = member.own.fault or "evidence is being kept"
            found.append("{}: {}".format(member.host, reason))
        elif member.own.obeys != (memory.epoch, memory.phase):
            found.append("{} has not taken the order to stop".format(member.host))
    return tuple(found)


def _ending(own: Own, limits: Limits) -> str:
    """Stop what runs; end by force what does not stop."""
    if own.state in (CLEARING, STOPPED):
        return NOTHING
    if own.stopping_s is None:
        return END
    return KILL if own.stopping_s > limits.grace_s else NOTHING


def _member_fault(memory: Memory, member: Member, now: float, limits: Limits) -> str:
    """Why a host's part of the epoch cannot go on, "" when it can."""
    heard = memory.since if member.heard is None else member.heard
    if memory.phase != ADOPT and now - heard > limits.lost_s:
        return "silent for more than {:g} s".format(limits.lost_s)
    if member.heard is None:
        return ""
    has_ended = member.own.state in (CLEARING, STOPPED) and member.own.epoch == memory.epoch
    if has_ended and member.own.fault:
        return member.own.fault  # it has begun, and nothing of it runs
    if member.own.state == WAITING:
        return member.own.fault or _mismatch(memory, member.own)  # however long systemd has it wait
    if member.own.state not in (RUNNING, PARTIAL) and member.host in memory.starting:
        is_late = now - memory.since > limits.start_s
        text = "its ranks were not started within {:g} s".format(limits.start_s)
        if member.own.fault:
            text = "{}: {}".format(text, member.own.fault)
        return text if is_late else ""
    return member.own.fault or _mismatch(memory, member.own)


def _mismatch(memory: Memory, own: Own) -> str:
    """Why what a host runs is not the epoch, "" when it is."""
    if own.state in (CLEARING, STOPPED):
        return "its ranks do not run"
    if own.adopting:
        return "" if memory.phase == ADOPT else "its ranks were started by somebody else"
    if own.epoch != memory.epoch:
        return "its ranks are of epoch {}, not {}".format(own.epoch, memory.epoch)
    return ""


def _restart(memory: Memory, why: str, now: float, limits: Limits) -> Memory:
    """End the epoch; for good when the row is full."""
    if memory.attempts >= limits.max_restarts:
        why = "given up after {} restarts in a row; {}".format(memory.attempts, why)
        return memory._replace(phase=FAILED, why=why, since=now, served_since=None)
    return memory._replace(
        phase=STOP,
        restarts=memory.restarts + 1,
        attempts=memory.attempts + 1,
        why=why,
        since=now,
        served_since=None,
    )


def _begin_when_clear(
    memory: Memory, members: Sequence[Member], now: float, limits: Limits
) -> Memory:
    """The next epoch, when nothing of the last one is left on any host and the pause is over."""
    if now - memory.since < pause_s(memory.attempts, limits) or awaited(
        memory, members, now, limits
    ):
        return memory
    newest = max([memory.epoch] + [member.own.epoch for member in members])
    return memory._replace(
        epoch=newest + 1,
        phase=RUN,
        since=now,
        starting=tuple(member.host for member in members),
        served_since=None,
    )


def _serve(memory: Memory, members: Sequence[Member], now: float, limits: Limits) -> Memory:
    """Note who has begun, and since when all serve; a long time of it forgets the row."""
    begun = {
        m.host
        for m in members
        if m.own.epoch == memory.epoch and m.own.state in (RUNNING, PARTIAL, WAITING)
    }
    starting = tuple(host for host in memory.starting if host not in begun)
    served_since = memory.served_since
    if not all(member.own.serves for member in members):
        served_since = None
    elif served_since is None:
        served_since = now
    is_stable = served_since is not None and now - served_since >= limits.stable_s
    attempts = 0 if is_stable else memory.attempts
    if (starting, served_since, attempts) == (
        memory.starting,
        memory.served_since,
        memory.attempts,
    ):
        return memory
    return memory._replace(starting=starting, served_since=served_since, attempts=attempts)
