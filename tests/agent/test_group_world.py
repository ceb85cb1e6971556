"""Three hosts of a group in a world that loses, delays, cuts, freezes and reboots: two epochs never meet."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from infra.agent.group.rules import (
    BEGIN,
    CHANGING,
    END,
    FAILED,
    PARTIAL,
    RUN,
    RUNNING,
    STOP,
    STOPPED,
    Limits,
    Member,
    Memory,
    Order,
    Own,
    follow,
    lead,
)

LIMITS = Limits(
    first_pause_s=1.0,
    longest_pause_s=60.0,
    max_restarts=5,
    stable_s=600.0,
    lost_s=10.0,
    fresh_s=9.0,  # orders act however late they come: what protects must not be a clock
    start_s=30.0,
    grace_s=2.0,
)
TICK_S = 0.25
LONGEST_EXCHANGE_S = 4.0


@dataclass(slots=True)
class Exchange:
    """One question of a member on its way: what it says, then what it is answered.

    Args:
        report: the member as it was when it asked.
        asked: when that was.
        arrives: when the host of rank 0 reads it; None once it has.
        returns: when the member reads the answer; None while there is none.
    """

    report: Own
    asked: float
    arrives: float | None
    returns: float | None = None
    order: Order | None = None


@dataclass(slots=True)
class World:
    """Host 0 is that of rank 0. Freezing stops what a host does, cutting what it sends and gets."""

    chance: random.Random
    now: float = 0.0
    memory: Memory = field(default_factory=lambda: Memory(1, RUN, 0, 0, "", 0.0))
    owns: list[Own] = field(default_factory=lambda: [Own(RUNNING, 1) for _ in range(3)])
    told: list[Own] = field(default_factory=lambda: [Own(RUNNING, 1) for _ in range(3)])
    heard: list[float] = field(default_factory=lambda: [0.0] * 3)
    orders: list[tuple[Order, float]] = field(default_factory=lambda: [(Order(1, RUN), 0.0)] * 3)
    asking: list[Exchange | None] = field(default_factory=lambda: [None] * 3)
    taken_back: list[list[Exchange]] = field(default_factory=lambda: [[] for _ in range(3)])
    bad_until: list[float] = field(default_factory=lambda: [0.0] * 3)
    frozen: list[bool] = field(default_factory=lambda: [False] * 3)
    epochs: set[int] = field(default_factory=set)

    def step(self) -> None:
        """A quarter of a second, and the one thing that must never be."""
        self.now += TICK_S
        for i in range(3):
            self._misfortune(i)
        for i in (1, 2):
            self._hear_late(i)
            self._talk(i)
        if self._works(0):
            self._lead()
            self.orders[0] = (Order(self.memory.epoch, self.memory.phase), self.now)
        for i in range(3):
            if self._works(i):
                self._act(i)
        running = {own.epoch for own in self.owns if own.state in (RUNNING, PARTIAL)}
        assert len(running) <= 1, (self.now, self.owns, self.memory)
        if all(own.state == RUNNING for own in self.owns):
            self.epochs |= running

    def _works(self, i: int) -> bool:
        return self.now > self.bad_until[i] or not self.frozen[i]

    def _misfortune(self, i: int) -> None:
        own = self.owns[i]
        if self.chance.random() < 0.005 and self.now > self.bad_until[i]:
            self.frozen[i] = self.chance.random() < 0.5
            self.bad_until[i] = self.now + self.chance.uniform(0.5, 25)
        if self.chance.random() < 0.02 and own.state == RUNNING:
            self.owns[i] = own._replace(state=PARTIAL, fault="a rank ended")
        if self.chance.random() < 0.001:
            self.owns[i] = Own(STOPPED, own.epoch)
            self.orders[i] = (Order(own.epoch, RUN), self.now)
            self.asking[i] = None
            if i == 0:
                self.memory = self.memory._replace(since=self.now, starting=())
                if self.chance.random() < 0.5:  # its disk was full, and took starts alone
                    self.memory = self.memory._replace(phase=RUN, attempts=0)
                self.heard = [self.now, -99.0, -99.0]

    def _talk(self, i: int) -> None:
        asking = self.asking[i]
        if asking is None:
            if self._works(i):
                report = self._report(i)
                arrives = self.now + self.chance.choice((0, 0, 0.25, 1, 2, 3))
                self.asking[i] = Exchange(report, self.now, arrives)
            return
        is_cut = any(self.now <= self.bad_until[j] and not self.frozen[j] for j in (0, i))
        if asking.arrives is not None and self.now >= asking.arrives and self._works(0):
            if not is_cut:
                self.told[i], self.heard[i] = asking.report, self.now
                self._lead()
                asking.order = Order(self.memory.epoch, self.memory.phase)
                asking.returns = self.now + self.chance.choice((0, 0, 0.25, 1, 2, 3))
            asking.arrives = None
        if asking.returns is not None and self.now >= asking.returns and self._works(i):
            if asking.order is not None and not is_cut:
                self.orders[i] = (asking.order, asking.asked)
            self.asking[i] = None
        elif self._works(i):
            has_news = self._report(i) != asking.report and self.chance.random() < 0.5
            if has_news or self.now - asking.asked > LONGEST_EXCHANGE_S:
                self.taken_back[i].append(asking)  # it may still be heard, after newer ones too
                self.asking[i] = None

    def _hear_late(self, i: int) -> None:
        for late in self.taken_back[i]:
            if late.arrives is not None and self.now >= late.arrives and self._works(0):
                self.told[i], self.heard[i], late.arrives = late.report, self.now, None
                self._lead()

    def _report(self, i: int) -> Own:
        order, _ = self.orders[i]
        return self.owns[i]._replace(obeys=(order.epoch, order.phase))

    def _lead(self) -> None:
        self.heard[0] = self.now
        self.told[0] = self.owns[0]._replace(obeys=(self.memory.epoch, self.memory.phase))
        members = [Member(f"h{i}", self.told[i], self.heard[i]) for i in range(3)]
        self.memory = lead(self.memory, members, self.now, LIMITS)
        if self.memory.phase == FAILED:
            self.memory = self.memory._replace(phase=STOP, attempts=0, since=self.now)

    def _act(self, i: int) -> None:
        order, at = self.orders[i]
        own = self.owns[i]
        action = follow(own, order._replace(age_s=self.now - at), LIMITS)
        if action == BEGIN:
            self.owns[i] = Own(RUNNING, order.epoch)
        elif action == END:
            epoch = max(own.epoch, order.epoch) if order.phase == RUN else own.epoch
            self.owns[i] = Own(CHANGING, epoch, stopping_s=0.0)
        elif own.state == CHANGING and self.chance.random() < 0.3:
            self.owns[i] = Own(STOPPED, own.epoch)


@pytest.mark.parametrize("seed", range(6))
def test_two_epochs_never_run_at_the_same_time_and_the_group_comes_back(seed: int) -> None:
    world = World(chance=random.Random(seed))  # noqa: S311 - a world, not a secret
    for _ in range(4000):
        world.step()
    assert len(world.epochs) > 3
