"""A watcher that was started before the groups of its host are handed over."""

from __future__ import annotations

import threading
from pathlib import Path

from infra.agent.group.record import HANDED_OVER
from infra.agent.group.watch import stand_by
from infra.render.host_paths import watch_unit
from infra.render.units import watch_unit_text
from tests.agent.stubborn_host import StubbornHost

STACK = "s"


def test_it_waits_until_its_unit_is_enabled(tmp_path: Path) -> None:
    host = StubbornHost(tmp_path)
    standing = threading.Thread(target=stand_by, args=(host, STACK), daemon=True)
    standing.start()
    standing.join(0.2)
    assert standing.is_alive()
    enabled = tmp_path / HANDED_OVER.format(STACK).lstrip("/")
    enabled.parent.mkdir(parents=True)
    enabled.symlink_to("/etc/systemd/system/" + watch_unit(STACK))
    standing.join(10)
    assert not standing.is_alive()


def test_it_looks_where_systemd_notes_what_is_enabled() -> None:
    folder, unit = HANDED_OVER.format(STACK).rsplit("/", 1)
    assert unit == watch_unit(STACK)
    (wanted,) = [
        line.partition("=")[2]
        for line in watch_unit_text(STACK).splitlines()
        if line.startswith("WantedBy=")
    ]
    assert folder == f"/etc/systemd/system/{wanted}.wants"
