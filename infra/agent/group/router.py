"""The router of this host: systemd starts it again when it ends; this ends one that hangs, and keeps why."""

import time
from typing import NamedTuple, Optional

from ..host import Host
from .config import Router
from .progress import MISSES, fetch
from .record import ROUTER, Document, is_handed_over, save_view
from .units import Unit, Units

TICK_S = 0.25
ASK_S = 1.0
ANSWER_S = 3.0
# How soon a start is asked for again that systemd did not take.
START_AGAIN_S = 5.0


class Heard(NamedTuple):
    """What is known of one start of the router.

    Args:
        answered: when it answered last, None for never.
        misses: questions without an answer since.
    """

    answered: Optional[float]
    misses: int


SILENT = Heard(None, 0)


def advance(heard: Heard, *, answers: bool, now: float) -> Heard:
    """What is known after one more question."""
    return Heard(now, 0) if answers else heard._replace(misses=heard.misses + 1)


def hangs(heard: Heard, now: float, silent_s: float) -> bool:
    """Whether a router that has answered before does not any more; until its first answer it waits for engines."""
    if heard.answered is None or heard.misses < MISSES:
        return False
    return now - heard.answered > silent_s


class RouterWatch:
    """Looks after one router, in a thread of its own."""

    def __init__(self, host: Host, stack: str, router: Router) -> None:
        """Know the unit; nothing is asked yet."""
        self._host, self._stack, self._router = host, stack, router
        self._units = Units(host, [router.unit])
        self._heard = SILENT
        self._invocation = ""
        self._asked = 0.0
        # when a start is to be asked for; None once systemd has taken one
        self._starts: Optional[float] = None
        # of the start that was ended for it, and of the one whose end was noted
        self._killed = self._noted = ""
        self._refused = ""

    def run(self) -> None:
        """Watch for ever. After a reboot nobody else starts the router."""
        self.begin(time.monotonic())
        while True:
            self.step(time.monotonic())
            time.sleep(TICK_S)

    def begin(self, now: float) -> None:
        """Look whether the router was ever started."""
        self._units.look(now, again=True)
        if not self._unit.invocation:
            self._starts = now

    def step(self, now: float) -> None:
        """Look, ask when it is time, and end a router that hangs; only look while groups are taken back."""
        acts = is_handed_over(self._host, self._stack)
        if acts and self._starts is not None and now >= self._starts:
            self._start(now)
        self._units.look(now, again=False)
        unit = self._unit
        if unit.invocation != self._invocation:
            self._invocation, self._heard = unit.invocation, SILENT
        if unit.how:
            self._note(unit)
        if unit.state != "active" or unit.how or now - self._asked < ASK_S:
            return
        answers = fetch(self._router.url, ANSWER_S) is not None
        self._asked = time.monotonic()
        self._heard = advance(self._heard, answers=answers, now=self._asked)
        if acts and hangs(self._heard, self._asked, self._router.silent_s):
            self._heard, self._killed = SILENT, self._invocation
            print("{}: {}".format(self._router.process, self._silence()), flush=True)
            self._units.kill([self._router.unit])

    def _start(self, now: float) -> None:
        refused = self._units.start([self._router.unit])
        self._starts = now + START_AGAIN_S if refused else None
        if refused not in ("", self._refused):
            print("{}: {}".format(self._router.process, refused), flush=True)
        self._refused = refused

    @property
    def _unit(self) -> Unit:
        return self._units.units[self._router.unit]

    def _note(self, unit: Unit) -> None:
        """Keep how a start ended, once: systemd forgets it with the next one."""
        if self._noted == unit.invocation:
            return
        self._noted = unit.invocation
        why = self._silence() if self._killed == unit.invocation else unit.how
        print("{} {}".format(self._router.process, why), flush=True)
        view: Document = {"process": self._router.process, "why": why}
        try:
            save_view(self._host, self._stack, ROUTER, view)
        except OSError as error:
            print("`fab status` does not show it: {}".format(error), flush=True)

    def _silence(self) -> str:
        return "had not answered for {:g} s".format(self._router.silent_s)
