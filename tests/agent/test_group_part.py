"""A group's part on one host: nobody hears that its units have stopped while a start of them is on its way."""

from __future__ import annotations

from pathlib import Path

from infra.agent.group.config import Config, Group
from infra.agent.group.part import QUEUED_S, Part
from infra.agent.group.progress import Counters, Patience
from infra.agent.group.record import OwnRecord, Record, save_record
from infra.agent.group.rules import CHANGING, RUN, RUNNING, STOP, STOPPED, Limits, Memory, Order
from infra.agent.group.units import Unit, Units
from infra.agent.host import Finished, Host

NOW = 1000.0
UNIT = "moe-s-engine@0.service"
LIMITS = Limits(1.0, 60.0, 5, 600.0, 10.0, 2.0, 30.0, 2.0)


class Systemd(Host):
    """A host that notes what is asked of systemd."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.asked: list[str] = []

    def run(self, argv: list[str], *_limits: object) -> Finished:
        self.asked.append(argv[1])
        return Finished(0, "", "")


def make_part(host: Host, state: str) -> tuple[Part, Units]:
    """A member's part of epoch 4, which has ended on this host."""
    group = Group("decode/0", "h0", ("192.0.2.1", 14000), ["h0", "h1"], {UNIT: "h1/0"}, [], [])
    patience, counters = Patience(1.0, 1.0, 1.0), Counters("r", ("g",))
    config = Config("s", "r", "h1", [group], None, LIMITS, patience, counters)
    own = OwnRecord(epoch=4, adopting=False, invocations={UNIT: "first"}, ended=True)
    save_record(host, "s", "decode/0", Record(own, Memory(0, RUN, 0, 0, "", 0.0)))
    units = Units(host, [UNIT])
    units.take({UNIT: Unit(state, "", 0, "first")}, NOW)
    return Part(host, config, group, units, NOW), units


def test_a_start_that_systemd_has_not_taken_is_no_stop(tmp_path: Path) -> None:
    host = Systemd(tmp_path)
    part, units = make_part(host, "inactive")
    part.heard = (Order(5, RUN), NOW)
    assert part.own(NOW).state == STOPPED
    (start,) = part.act(NOW)
    part.heard = (Order(5, STOP), NOW + 1)
    late = NOW + 3 * QUEUED_S
    assert (
        part.own(late).state == CHANGING
    )  # whoever counts hosts that have stopped must wait for it
    start()
    assert host.asked == ["reset-failed", "start"]
    part.done(late)
    assert part.own(late + QUEUED_S - 1).state == CHANGING
    units.take({UNIT: Unit("active", "", 0, "second")}, late + 1)
    assert part.own(late + 1).state == RUNNING
    assert part.own(late + 1).epoch == 5


def test_a_stop_is_asked_of_systemd_once_and_after_a_look_around(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    host = Systemd(tmp_path)
    part, _ = make_part(host, "active")
    part.heard = (Order(4, STOP), NOW)
    deeds = part.act(NOW)
    for deed in deeds:
        deed()
    part.done(NOW)
    assert host.asked == ["stop"]
    assert not part.act(NOW + 1.0)
    (kill,) = part.act(NOW + 2.5)
    kill()
    assert host.asked == ["stop", "kill"]
