"""One group on one host while its watcher runs: what its units are, and what is done to them."""

import threading
from typing import Callable, Dict, List, Optional, Tuple

from ..host import Host
from .config import Config, Group
from .evidence import Ended, keep, processes_of
from .kept_record import KeptRecord
from .progress import Track, judge, new_track
from .record import UNWRITTEN, Document, Record, drop_wish, read_wish, save_view, told_of
from .remains import Remains
from .rules import (
    ADOPT,
    BEGIN,
    CHANGING,
    CLEARING,
    END,
    KILL,
    PARTIAL,
    RUN,
    RUNNING,
    STOP,
    STOPPED,
    TAKE_OVER,
    WAITING,
    Member,
    Order,
    Own,
    awaited,
    follow,
    lead,
    pause_s,
)
from .units import Unit, Units, find_fault, held_ports, state_of_units

# Of evidence before a start: of what is looked at before the stop, and of what is kept behind it.
LOOK_S, KEEP_S = 1.0, 4.0
# systemd takes a start into its queue first: until then the unit shows how it ended the last time.
QUEUED_S = 10.0
# What systemd runs behind a main process that was killed ends the container: it is not killed for so long.
KILL_AGAIN_S = 10.0
UNHEARD = Own(STOPPED, 0)

Deed = Callable[[], None]


class Part:
    """A group's part on this host. Whoever calls holds the watcher's lock.

    Attributes:
        heard: the latest order and when it was asked for, None for never; not used on the host of rank 0.
        tracks: what is known of each engine's progress, by address.
        wake: called from another thread when there is something to do.
    """

    def __init__(self, host: Host, config: Config, group: Group, units: Units, now: float) -> None:
        """Read what is remembered of the group."""
        self._host, self._config, self._group, self._units = host, config, group, units
        self._names: List[str] = list(group.units)
        self._kept = KeptRecord(host, config.stack, group.name, now)
        self._members: Dict[str, Tuple[Own, float]] = {}
        self._queued: Optional[Tuple[float, Dict[str, str]]] = None
        self._stopping: Optional[float] = None
        self._killed: Optional[float] = None
        self._is_doing = False
        self._not_taken = ""
        self._processes: List[str] = []
        own = self._record.own
        self._owes_evidence = not own.ended and not own.adopting
        self._keeper: Optional[Tuple[float, threading.Event]] = None
        self._remains = Remains(host, group.units, config.runtime, self._rouse)
        self._shown: Document = {}
        self._unshown = ""
        # A watcher that begins anew in an epoch has as long to hear of it as one that lost the host of rank 0.
        self.heard: Optional[Tuple[Order, float]] = None
        if not own.adopting:
            self.heard = (Order(own.epoch, RUN), now)
        self.tracks: Dict[str, Track] = {url: new_track(now) for url in group.metrics}
        self.wake: Callable[[], object] = bool

    @property
    def _record(self) -> Record:
        return self._kept.record

    @property
    def leads(self) -> bool:
        """Whether this is the host of rank 0."""
        return self._group.leader == self._config.host

    def own(self, now: float) -> Own:
        """What the units are together, as the other hosts may know it."""
        record, state, fault = self._record.own, self._state(), ""
        if self._is_doing or (self.is_queued(now) and state != WAITING):
            state = CHANGING
        elif state != CHANGING and not record.ended:
            known = {} if record.adopting else record.invocations
            fault = find_fault(self._names, self._units.units, self._group.units, known)
            fault = self._not_taken or fault  # else it is how they ended before
        elif state in (RUNNING, PARTIAL) and self._stopping is None and not record.adopting:
            fault = "its ranks were to be stopped, and run"  # by a watcher that ended before it did that
        if state == RUNNING:
            fault = fault or self._hang(now)
        elif state == STOPPED:
            state, fault = self._left(now, fault)
        return Own(
            state=state,
            epoch=record.epoch,
            adopting=record.adopting,
            fault=fault,
            serves=all(track.answered is not None for track in self.tracks.values()),
            stopping_s=None if self._stopping is None else now - self._stopping,
            obeys=self._obeys(),
        )

    @property
    def order(self) -> Optional[Order]:
        """On the host of rank 0: what members are told; None before this host knows its epoch."""
        memory = self._record.memory
        if memory.phase == ADOPT and self._record.own.adopting:
            return None
        return Order(memory.epoch, memory.phase)

    def hear_member(self, name: str, own: Own, now: float) -> None:
        """On the host of rank 0: take a member's report."""
        if name in self._group.members:
            self._members[name] = (own, now)

    def decide(self, now: float) -> bool:
        """On the host of rank 0: what becomes of the group; whether the order has changed.

        That an epoch begins is on disk before anybody is told; that one ends needs no disk.
        """
        own, before = self.own(now), self.order
        if self._record.memory.phase == ADOPT and own.adopting and own.state == RUNNING:
            self._adopt()
            own = self.own(now)
        wish = read_wish(self._host, self._config.stack, self._group.name)
        is_meant = wish is not None and wish.epoch in (None, self._record.memory.epoch)
        asked = wish.who if wish is not None and is_meant else ""
        members = self._all_members(own, now)
        after = lead(self._record.memory, members, now, self._config.limits, asked)
        if after != self._record.memory:
            lasting = after._replace(since=0.0, starting=(), served_since=None)
            was = self._record.memory._replace(since=0.0, starting=(), served_since=None)
            begins = after.epoch != was.epoch
            record = self._record._replace(memory=after)
            if lasting == was:
                self._kept.remember(record)
            elif self._kept.keep(record, first=begins):
                self._say("{} epoch {}; {}".format(after.phase, after.epoch, after.why or "begun"))
        if wish is not None:
            drop_wish(self._host, self._config.stack, self._group.name)
        return self.order != before

    def act(self, now: float) -> List[Deed]:
        """Note what the latest order asks for; what is then to be done to the units, without the lock, before `done`.

        Until then nobody is told that they have stopped: a start that is late must not meet the next epoch.
        """
        own, order = self.own(now), self._order(now)
        deeds = self._deeds(follow(own, order, self._config.limits), own, order, now)
        self._is_doing = bool(deeds)
        return deeds

    def done(self, now: float) -> None:
        """What was to be done to the units has been asked of systemd."""
        if self._not_taken:
            self._queued = None
        elif self._is_doing and self._queued is not None:
            self._queued = (now, self._queued[1])
        self._is_doing = False

    def settle(self, now: float) -> None:
        """Note what has come of a start or a stop."""
        self._kept.catch_up(now)
        if self._queued is not None and not self.is_queued(now):
            self._queued = None
            self._note(self._record.own.epoch)
        own, state = self._record.own, self._state()
        is_noted = own.invocations or own.adopting or own.ended
        if state == RUNNING and self._queued is None and not is_noted:
            self._note(own.epoch)  # started by a watcher that ended before it knew that they were
        if state != STOPPED:
            self._remains.forget()
            return
        self._stopping = None
        if self._queued is None:
            self._remains.look(now)
        if self._owes_evidence and self._queued is None:
            self._owes_evidence = False
            self._kept.keep(
                self._record
            )  # whether the disk takes it is known before a start is asked for
            self._keep_evidence(now)

    def is_queued(self, now: float) -> bool:
        """Whether a start has not reached every unit yet."""
        if self._queued is None:
            return False
        begun, before = self._queued
        waits = any(self._units.units[name].invocation == before[name] for name in self._names)
        return self._state() == WAITING or (waits and now - begun < QUEUED_S)

    def show(self, now: float) -> None:
        """Leave what `fab status` shows, when it has changed."""
        own, memory = self.own(now), self._record.memory
        view: Document = {
            "group": self._group.name,
            "leads": self.leads,
            "own": {"state": own.state, "epoch": own.epoch, "fault": own.fault},
        }
        if self.leads:
            members = self._all_members(own, now)
            waits = memory.phase == STOP
            view["waits_for"] = (
                list(awaited(memory, members, now, self._config.limits)) if waits else []
            )
            view["pause_s"] = pause_s(memory.attempts, self._config.limits) if waits else None
            view["unmet"] = [member.host for member in members if member.heard is None]
            if self._kept.is_owed:
                view[UNWRITTEN] = told_of(memory)
        if view != self._shown and self._leave(view):
            self._shown = view

    def _state(self) -> str:
        return state_of_units([self._units.units[name] for name in self._names])

    def _order(self, now: float) -> Optional[Order]:
        if self.leads:
            return Order(self._record.memory.epoch, self._record.memory.phase)
        if self.heard is None:
            return None
        order, at = self.heard
        return order._replace(age_s=now - at)

    def _obeys(self) -> Tuple[int, str]:
        """The latest order that this host has taken; on the host of rank 0 what it remembers."""
        if self.leads:
            return self._record.memory.epoch, self._record.memory.phase
        return (0, "") if self.heard is None else (self.heard[0].epoch, self.heard[0].phase)

    def _all_members(self, own: Own, now: float) -> List[Member]:
        found = []
        for name in self._group.members:
            if name == self._config.host:
                found.append(Member(name, own, now))
            else:
                told, heard = self._members.get(name, (UNHEARD, None))
                found.append(Member(name, told, heard))
        return found

    def _adopt(self) -> None:
        """Take over what `fab up` handed over: the same epoch when nothing was started since."""
        memory, own = self._record.memory, self._record.own
        now = {name: self._units.units[name].invocation for name in self._names}
        if memory.epoch == 0 or own.invocations != now:
            newest = max(memory.epoch, own.epoch) + 1
            memory = memory._replace(epoch=newest, restarts=0, attempts=0, why="")
        self._kept.remember(self._record._replace(memory=memory))
        self._note(memory.epoch)
        self._say("took over epoch {}".format(memory.epoch))

    def _begin(self, epoch: int, now: float) -> bool:
        """Start the units; the epoch is on disk before the first of them runs, or nothing is started."""
        own = self._record.own._replace(epoch=epoch, adopting=False, invocations={}, ended=False)
        if not self._kept.keep(self._record._replace(own=own), first=True):
            return False
        before = {name: self._units.units[name].invocation for name in self._names}
        self._queued, self._not_taken = (now, before), ""
        self._stopping, self._owes_evidence = None, True
        self._remains.forget()
        self.tracks = {url: new_track(now) for url in self._group.metrics}
        self._say("starting epoch {}".format(epoch))
        return True

    def _end(self, order: Optional[Order], why: str, now: float) -> None:
        """Stop the units; an epoch that was running without them is over for this host."""
        own, is_lost = self._record.own, order is None
        if order is not None:
            is_lost = order.age_s > self._config.limits.lost_s
            if order.phase in (RUN, ADOPT) and not is_lost:
                own = own._replace(epoch=max(own.epoch, order.epoch))
        own = own._replace(adopting=False, ended=True)
        self._kept.keep(self._record._replace(own=own))
        self._owes_evidence = True
        self._stopping, self._killed, self._queued = now, None, None
        reason = "the host of rank 0 is silent" if is_lost else why or "the group ends"
        self._say("stopping: {}".format(reason))

    def _deeds(self, action: str, own: Own, order: Optional[Order], now: float) -> List[Deed]:
        if action == BEGIN and order is not None:
            is_begun = self._begin(order.epoch, now)
            return [self._start] if is_begun else []
        if action == END:
            self._end(order, own.fault, now)
            return [self._look_around, lambda: self._units.stop(self._names)]
        if action == KILL and (self._killed is None or now - self._killed >= KILL_AGAIN_S):
            self._killed = now
            return [lambda: self._units.kill(self._names)]
        if action == TAKE_OVER and order is not None:
            self._note(order.epoch)
            self._say("took over epoch {}".format(order.epoch))
        return []

    def _start(self) -> None:
        """Have systemd start the units; what it does not take at all would else be awaited."""
        self._not_taken = self._units.start(self._names)
        if self._not_taken:
            self._say(self._not_taken)

    def _look_around(self) -> None:
        """How its processes are before any of them is stopped."""
        units = [self._units.units[name] for name in self._names]
        self._processes = processes_of(self._host, units, LOOK_S)

    def _note(self, epoch: int) -> None:
        """The units as they run now are that epoch's."""
        invocations = {name: self._units.units[name].invocation for name in self._names}
        own = self._record.own._replace(
            epoch=epoch, adopting=False, invocations=invocations, ended=False
        )
        self._owes_evidence = True
        self._kept.keep(self._record._replace(own=own))

    def _hang(self, now: float) -> str:
        """Which engine hangs, "" for none."""
        for url, track in self.tracks.items():
            verdict = judge(track, now, self._config.patience)
            if verdict:
                return "{} {}".format(url, verdict)
        return ""

    def _left(self, now: float, fault: str) -> Tuple[str, str]:
        """Whether anything of units that have ended is in a start's way: evidence, ports, processes, the disk."""
        if self._keeper is not None:
            begun, is_kept = self._keeper
            if not is_kept.is_set() and now - begun < KEEP_S:
                return CLEARING, fault
            self._keeper = None
        if self._owes_evidence:
            return CLEARING, fault
        held = held_ports(self._host, self._group.ports)
        if held:
            return CLEARING, "port {} is held".format(", ".join(str(port) for port in held))
        survivors = self._remains.words(now)
        left = survivors or self._kept.refused
        if left or survivors is None:
            return CLEARING, "; ".join(filter(None, [fault, left]))
        return STOPPED, fault

    def _keep_evidence(self, now: float) -> None:
        units: Dict[str, Unit] = {name: self._units.units[name] for name in self._names}
        why = self._record.memory.why if self.leads else ""
        why = why or find_fault(self._names, units, self._group.units, {})
        ended = Ended(
            stack=self._config.stack,
            group=self._group.name,
            epoch=self._record.own.epoch,
            why=why,
            units=units,
            invocations=self._record.own.invocations,
            processes=self._processes,
        )
        is_kept = threading.Event()
        self._keeper, self._processes = (now, is_kept), []

        def work() -> None:
            try:
                self._say("evidence is in {}".format(keep(self._host, ended)))
            except OSError as error:
                self._say("no evidence was kept: {}".format(error))
            finally:
                is_kept.set()
                self.wake()

        threading.Thread(target=work, daemon=True).start()

    def _leave(self, view: Document) -> bool:
        """Leave what is shown; whether it could be."""
        said = ""
        try:
            save_view(self._host, self._config.stack, self._group.name, view)
        except OSError as error:
            said = "`fab status` shows what was: {}".format(error)
        if said not in ("", self._unshown):
            self._say(said)
        self._unshown = said
        return not said

    def _rouse(self) -> None:
        """Something is known that was not: said from another thread."""
        self.wake()

    def _say(self, words: str) -> None:
        print("{}: {}".format(self._group.name, words), flush=True)
