"""The watcher: looks at this host's units, hears and gives orders, acts; one per stack and host.

    watch GROUPS.JSON

It acts on its own host alone. What it decides is in `rules`; threads only fetch what that reads. Started before the
groups are handed over, it only loads, and stands by until they are.
"""

import os
import threading
import time
from typing import Dict, List, Tuple

from ..host import Host
from .channel import KeyFile, Wrong
from .config import Config, Group, read_config
from .part import Deed, Part
from .progress import advance, ask, ask_token, begin_asking, hear, load_client
from .record import is_handed_over
from .router import RouterWatch
from .rules import RUNNING, Order
from .talk import (
    OVERTAKEN_S,
    Bell,
    Channel,
    Orders,
    Question,
    Reports,
    TakenBack,
    exchange,
    start_server,
)
from .units import Units

TICK_S = 0.1
# How soon a watcher that stands by learns that groups have been handed over.
STANDBY_S = 0.05
# A question is held for so long, and asked again; after ones that failed pauses grow to the same length: watchers that
# begin together find each other at once.
ASK_S = 0.5
FIRST_PAUSE_S = 0.05
METRICS_S = 5.0
FIRST_METRICS_S = 1.0

BOOT = "/proc/sys/kernel/random/boot_id"

Address = Tuple[str, int]


def main(arguments: List[str]) -> int:
    """Watch until killed, from when the groups are handed over."""
    host, config = Host(os.environ.get("MOE_INFRA_ROOT", "")), read_config(arguments[0])
    stand_by(host, config.stack)
    Watcher(host, config).run()
    return 0


def stand_by(host: Host, stack: str) -> None:
    """Wait until the stack's groups are handed over: nothing is looked at, and nothing remembered is read."""
    if not is_handed_over(host, stack):
        load_client()
    while not is_handed_over(host, stack):
        time.sleep(STANDBY_S)


class Watcher:
    """All groups of one stack on this host."""

    def __init__(self, host: Host, config: Config) -> None:
        """Read what is remembered."""
        now = time.monotonic()
        self._host, self._config = host, config
        self._guard = threading.RLock()
        self._decided = threading.Condition(self._guard)
        self._wake = threading.Event()
        self._units = Units(host, config.units)
        self._parts: Dict[str, Part] = {
            group.name: Part(host, config, group, self._units, now) for group in config.groups
        }
        for part in self._parts.values():
            part.wake = self._wake.set
        self._news: Dict[Address, Bell] = {
            group.address: Bell() for group in config.groups if self._is_led_elsewhere(group)
        }
        key = KeyFile(host, config.stack)
        self._channel = Channel(key, config.release, config.host, config.addresses)
        self._told: Reports = {}
        self._latest: Dict[Tuple[str, str], Tuple[Question, float]] = {}
        self._again = True
        self._holds = False

    def run(self) -> None:
        """Watch for ever."""
        if self._config.router is not None:
            router = RouterWatch(self._host, self._config.stack, self._config.router)
            threading.Thread(target=router.run, daemon=True).start()
        for address in self._served():
            start_server(address, self._channel, self.answer)
        for address in self._news:
            threading.Thread(target=self._ask, args=(address,), daemon=True).start()
        for group in self._config.groups:
            for url in group.metrics:
                threading.Thread(target=self._measure, args=(group.name, url), daemon=True).start()
            for url in group.asks:
                threading.Thread(target=self._tokens, args=(group, url), daemon=True).start()
        while True:
            self.step()  # at first the units are unknown to everybody
            self._wake.wait(TICK_S)
            self._wake.clear()

    def step(self) -> None:
        """Look, decide, act. systemd is spoken to without the lock: it may be slow, and members wait for orders.

        While groups are taken back, host by host, nobody decides or acts, and all speak on: no host seems lost.
        """
        parts = list(self._parts.values())
        asked = time.monotonic()
        with self._guard:
            is_queued = any(part.is_queued(asked) for part in parts)
        is_due = self._units.is_due(asked, again=self._again, soon=is_queued)
        units = self._units.ask() if is_due else None
        deeds: List[Tuple[Part, List[Deed]]] = []
        with self._guard:
            now = time.monotonic()
            if units is not None:
                self._units.take(units, asked)
            self._holds = not is_handed_over(self._host, self._config.stack)
            for part in () if self._holds else parts:
                part.settle(now)
                if part.leads and part.decide(now):
                    self._decided.notify_all()
                deeds.append((part, part.act(now)))
            for part in parts:
                part.show(now)
            self._tell(now)
        self._again = any(listed for _, listed in deeds)
        for part, listed in deeds:
            for deed in listed:
                deed()
            with self._guard:
                part.done(time.monotonic())

    def answer(self, question: Question) -> Orders:
        """On the host of rank 0: the orders for a member, which its reports have entered already.

        It waits for as long as the question may be held for an order that the member does not obey yet. A question
        that a later one has overtaken changes nothing: its member has taken it back.
        """
        deadline, reports = time.monotonic() + question.hold_s, question.reports
        with self._guard:
            now = time.monotonic()
            led = {
                name: part for name, part in self._parts.items() if part.leads and name in reports
            }
            keys = [(question.host, name) for name in led]
            latest = [self._latest[key] for key in keys if key in self._latest]
            if any(question.is_overtaken(of) and now - at < OVERTAKEN_S for of, at in latest):
                return {}
            self._latest.update(dict.fromkeys(keys, (question, now)))
            for name, part in led.items():
                part.hear_member(question.host, reports[name], now)
            changes = [part.decide(now) for part in led.values() if not self._holds]
            if any(changes):
                self._decided.notify_all()
            self._wake.set()
            while True:
                orders = {name: part.order for name, part in led.items() if part.order is not None}
                known = {name: reports[name].obeys for name in orders}
                remains_s = deadline - time.monotonic()
                is_news = any(
                    (order.epoch, order.phase) != known[name] for name, order in orders.items()
                )
                if is_news or remains_s <= 0:
                    return orders
                self._decided.wait(remains_s)

    def hear(self, orders: Orders, at: float) -> None:
        """On a member: take the orders of a question that was asked at `at`."""
        with self._guard:
            for name, order in orders.items():
                if name in self._parts:
                    self._parts[name].heard = (Order(order.epoch, order.phase), at)
        self._wake.set()

    def _tell(self, now: float) -> None:
        """Wake those who ask, when there is something new to say."""
        for group in self._config.groups:
            if group.address in self._news:
                own = self._parts[group.name].own(now)._replace(stopping_s=None)
                if self._told.get(group.name) != own:
                    self._told[group.name] = own
                    self._news[group.address].ring()

    def _ask(self, address: Address) -> None:
        """Ask a host of rank 0, for ever."""
        groups = [group for group in self._config.groups if group.address == address]
        names, leader = [group.name for group in groups], groups[0].leader
        bell, said, pause = self._news[address], "", FIRST_PAUSE_S
        boot = _boot(self._host)
        while True:
            at = time.monotonic()
            # News is told at once, and its answer awaited: only a question without any is held, and taken back.
            hold_s = 0.0 if bell.silence() else ASK_S
            with self._guard:
                reports = {name: self._parts[name].own(at) for name in names}
            question = Question(self._config.host, boot, at, hold_s, reports)
            try:
                heard = bell if hold_s else None
                orders = exchange(address, leader, self._channel, question, heard)
                words, pause = "", FIRST_PAUSE_S
            except TakenBack:
                continue
            except (OSError, Wrong, ValueError, KeyError, TypeError) as error:
                orders, words = {}, str(error) or type(error).__name__
            self.hear(orders, at)
            if words != said:
                what = "cannot ask {}: {}".format(address[0], words) if words else "heard again"
                print("{}: {}".format(", ".join(names), what), flush=True)
                said = words
            known = {name: reports[name].obeys for name in orders}
            is_news = any(
                (order.epoch, order.phase) != known[name] for name, order in orders.items()
            )
            if words:
                bell.wait(pause - (time.monotonic() - at))
                pause = min(pause * 2, ASK_S)
            elif not is_news and hold_s:  # it was not held
                bell.wait(ASK_S - (time.monotonic() - at))

    def _measure(self, name: str, url: str) -> None:
        """Ask one engine for its progress, for ever; it was proven a moment ago."""
        time.sleep(FIRST_METRICS_S)
        while True:
            with self._guard:
                part = self._parts[name]
                track, is_up = part.tracks[url], part.own(time.monotonic()).state == RUNNING
            if is_up:
                sample = ask(url, self._config.counters)
                with self._guard:
                    now = part.tracks[url]
                    if now.begun == track.begun:  # else its units were started anew meanwhile
                        part.tracks[url] = advance(now, sample, time.monotonic())
            time.sleep(METRICS_S if track.answered is not None else FIRST_METRICS_S)

    def _tokens(self, group: Group, url: str) -> None:
        """Ask one engine for a token when it was idle for long, for ever; who serves is not asked."""
        part, patience = self._parts[group.name], self._config.patience
        while True:
            time.sleep(METRICS_S)
            with self._guard:
                now = time.monotonic()
                if self._holds or part.own(now).state != RUNNING:
                    continue
                track = part.tracks[url] = begin_asking(part.tracks[url], now, patience)
            if track.asked is None:
                continue
            token = ask_token(group.asks[url], self._key(), patience.stuck_s + METRICS_S)
            with self._guard:
                if part.tracks[url].begun == track.begun:
                    part.tracks[url] = hear(part.tracks[url], time.monotonic(), token=token)

    def _key(self) -> str:
        """What engines ask for; without it they refuse, which tells nothing of their ranks."""
        try:
            return self._host.read_word(self._config.key) if self._config.key else ""
        except OSError:
            return ""

    def _is_led_elsewhere(self, group: Group) -> bool:
        return group.leader != self._config.host

    def _served(self) -> List[Address]:
        """Where members of other hosts ask this one."""
        found = {
            group.address
            for group in self._config.groups
            if not self._is_led_elsewhere(group) and len(group.members) > 1
        }
        return sorted(found)


def _boot(host: Host) -> str:
    try:
        return host.read_word(BOOT)
    except OSError:  # then what is asked is told in order of this process alone
        return os.urandom(8).hex()
