"""The clock's service as an item: found between two states, pushed aside by another one, taken back by its own name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.stubborn_host import StubbornHost

CHRONY, TIMESYNCD = "chrony.service", "systemd-timesyncd.service"
ITEM: list[dict[str, object]] = [
    {"id": "clock", "group": "tuning", "kind": "clock", "want": "active synchronized"}
]
# Two clock services that push each other aside, as Debian's do (Conflicts=); a file per word. The file NAME.moving
# holds the states that a unit goes through before the one that it comes to, one a line.
SYSTEMCTL = """\
state={folder}
case "$1" in
show) for unit in chrony.service systemd-timesyncd.service; do
    echo "Id=$unit"; [ -e $state/$unit.active ] && echo LoadState=loaded || echo LoadState=not-found
    if [ -s $state/$unit.moving ]; then
      head -n1 $state/$unit.moving; sed -i 1d $state/$unit.moving
    else echo "ActiveState=$(cat $state/$unit.active 2>/dev/null)"; fi
    echo
  done;;
is-enabled) shift 2; for unit in "$@"; do cat $state/$unit.enabled; done;;
start) echo active > $state/$3.active
  for other in $state/*.active; do [ $other = $state/$3.active ] || echo inactive > $other; done;;
stop) echo inactive > $state/$3.active; [ -e $state/revives ] && echo active > $state/$(cat $state/revives).active;;
enable|disable) echo "$1"d > $state/$4.enabled;;
esac
exit 0
"""


@pytest.fixture
def state(host: StubbornHost, stand_in: Callable[[str, str], None], tmp_path: Path) -> Path:
    folder = tmp_path / "units"
    folder.mkdir()
    host.put("/run/systemd/system/x", "")
    stand_in("systemctl", SYSTEMCTL.format(folder=folder))
    stand_in("timedatectl", "echo NTPSynchronized=yes")
    put(folder, CHRONY, "inactive", "disabled")
    return folder


def put(folder: Path, unit: str, active: str, enabled: str) -> None:
    (folder / f"{unit}.active").write_text(f"{active}\n")
    (folder / f"{unit}.enabled").write_text(f"{enabled}\n")


def test_the_one_that_is_installed_is_started_and_stopped_again(
    host: StubbornHost, state: Path
) -> None:
    assert host.state("apply", ITEM)["clock"]["state"] == "changed"
    assert (state / f"{CHRONY}.enabled").read_text() == "enabled\n"
    assert host.state("apply", ITEM)["clock"]["state"] == "ok"
    assert host.state("rollback", ITEM)["clock"]["state"] == "changed"
    assert (state / f"{CHRONY}.active").read_text() == "inactive\n"
    assert (state / f"{CHRONY}.enabled").read_text() == "disabled\n"


def test_another_one_that_begins_when_ours_ends_blocks_no_rollback(
    host: StubbornHost, state: Path
) -> None:
    put(state, TIMESYNCD, "inactive", "disabled")
    assert host.state("apply", ITEM)["clock"]["state"] == "changed"
    (state / "revives").write_text(TIMESYNCD)
    row = host.state("rollback", ITEM)["clock"]
    assert (row["state"], row["after"]) == ("changed", "disabled, inactive"), row
    assert not (Path(host.path("/var/lib/moe-infra"))).exists()


def test_one_that_runs_is_left_alone_whatever_else_is_installed(
    host: StubbornHost, state: Path
) -> None:
    put(state, TIMESYNCD, "active", "enabled")
    row = host.state("check", ITEM)["clock"]
    assert (row["state"], row["before"]) == ("ok", f"{TIMESYNCD} active, synchronized")


@pytest.mark.parametrize("word", ["ActiveState=activating", "SubState=auto-restart"])
def test_one_between_two_states_is_waited_for(host: StubbornHost, state: Path, word: str) -> None:
    put(state, CHRONY, "active", "enabled")
    put(state, TIMESYNCD, "inactive", "disabled")
    (state / f"{TIMESYNCD}.moving").write_text(f"{word}\n{word}\n")
    row = host.state("check", ITEM)["clock"]
    assert (row["state"], row["before"]) == ("ok", f"{CHRONY} active, synchronized")
    assert (state / f"{TIMESYNCD}.moving").read_text() == ""


def test_without_any_it_says_what_to_install(host: StubbornHost, state: Path) -> None:
    (state / f"{CHRONY}.active").unlink()
    row = host.state("check", ITEM)["clock"]
    assert row["state"] == "blocked"
    assert "install chrony" in str(row["why"])
