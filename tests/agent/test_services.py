"""Services as items, against a systemctl that keeps two words in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.stubborn_host import StubbornHost

SYSTEMCTL = """\
state={folder}
case "$1" in
show) unit="$5"; [ -e $state/$unit.load ] || {{ echo LoadState=not-found; echo ActiveState=inactive; exit 0; }}
  echo "LoadState=$(cat $state/$unit.load)"; echo "ActiveState=$(cat $state/$unit.active)"
  echo "UnitFileState=$(cat $state/$unit.enabled)";;
is-enabled) [ -e $state/silent ] && {{ echo "Failed to connect to bus: Connection timed out" >&2; exit 1; }}
  cat $state/$3.enabled;;
start|stop) echo "$*" >> $state/log; [ -e $state/refuses ] && {{ echo "Job failed." >&2; exit 1; }}
  [ "$1" = start ] && echo active > $state/$3.active || echo inactive > $state/$3.active;;
enable|disable) echo "$*" >> $state/log; echo "$1"d > $state/$4.enabled;;
*) echo "$*" >> $state/log;;
esac
"""


@pytest.fixture
def state(host: StubbornHost, stand_in: Callable[[str, str], None], tmp_path: Path) -> Path:
    folder = tmp_path / "units"
    folder.mkdir()
    host.put("/run/systemd/system/x", "")
    stand_in("systemctl", SYSTEMCTL.format(folder=folder))
    for name, word in (("load", "loaded"), ("active", "active"), ("enabled", "enabled")):
        (folder / f"irqbalance.service.{name}").write_text(word + "\n")
    return folder


def service(want: str | None, **keys: object) -> list[dict[str, object]]:
    item = {"id": "irqbalance", "group": "tuning", "kind": "service", "want": want}
    return [{**item, "target": "irqbalance.service", **keys}]


def asked_of(state: Path) -> list[str]:
    """What systemd was told to do with the unit."""
    log = state / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [line for line in lines if "irqbalance" in line]


def test_it_is_stopped_and_started_again(host: StubbornHost, state: Path) -> None:
    row = host.state("check", service("inactive"))["irqbalance"]
    assert (row["state"], row["before"], row["wanted"]) == ("changed", "active", "inactive")
    assert not (state / "log").exists()
    assert host.state("apply", service("inactive"))["irqbalance"]["after"] == "inactive"
    assert host.state("apply", service("inactive"))["irqbalance"]["state"] == "ok"
    assert host.state("rollback", service("inactive"))["irqbalance"]["state"] == "changed"
    assert (state / "irqbalance.service.active").read_text() == "active\n"


def test_both_words_are_two_parts(host: StubbornHost, state: Path) -> None:
    row = host.state("apply", service("inactive disabled"))["irqbalance"]
    assert (row["before"], row["after"]) == ("active enabled", "inactive disabled")
    assert (state / "irqbalance.service.enabled").read_text() == "disabled\n"
    host.state("rollback", service("inactive disabled"))
    assert (state / "irqbalance.service.enabled").read_text() == "enabled\n"


def test_a_systemd_that_does_not_say_is_nobody_s_change(host: StubbornHost, state: Path) -> None:
    host.state("apply", service("inactive disabled"))
    (state / "silent").touch()
    row = host.state("rollback", service("inactive disabled"))["irqbalance"]
    assert row["state"] == "failed"
    assert "Connection timed out" in str(row["why"])
    (state / "silent").unlink()
    assert host.state("rollback", service("inactive disabled"))["irqbalance"]["state"] == "changed"
    assert (state / "irqbalance.service.enabled").read_text() == "enabled\n"


def test_one_that_is_not_there_is_not_applicable(host: StubbornHost, state: Path) -> None:
    items = service("inactive", target="other.service", tolerate_absent=True)
    row = host.state("check", items)["irqbalance"]
    assert (row["state"], row["why"]) == ("not_applicable", "this host has no unit other.service")


def test_a_job_that_fails_is_quoted(host: StubbornHost, state: Path) -> None:
    (state / "refuses").touch()
    row = host.state("apply", service("inactive"))["irqbalance"]
    assert row["state"] == "blocked"
    assert "Job failed." in str(row["why"])


def test_a_static_unit_cannot_be_disabled(host: StubbornHost, state: Path) -> None:
    (state / "irqbalance.service.enabled").write_text("static\n")
    row = host.state("check", service("disabled"))["irqbalance"]
    assert (row["state"], "static" in str(row["why"])) == ("blocked", True)


def test_a_masked_unit_cannot_be_started(host: StubbornHost, state: Path) -> None:
    (state / "irqbalance.service.load").write_text("masked\n")
    row = host.state("check", service("active"))["irqbalance"]
    assert (row["state"], row["before"]) == ("blocked", "masked")


@pytest.mark.parametrize("word", ["masked", "masked-runtime"])
@pytest.mark.parametrize("want", ["inactive disabled", "disabled", "inactive"])
def test_a_masked_unit_is_more_than_disabled(
    host: StubbornHost, state: Path, want: str, word: str
) -> None:
    (state / "irqbalance.service.load").write_text("masked\n")
    (state / "irqbalance.service.active").write_text("inactive\n")
    (state / "irqbalance.service.enabled").write_text(word + "\n")
    row = host.state("apply", service(want))["irqbalance"]
    assert (row["state"], row["wanted"]) == ("ok", want)
    assert asked_of(state) == []


def test_a_masked_unit_that_runs_on_is_stopped(host: StubbornHost, state: Path) -> None:
    (state / "irqbalance.service.load").write_text("masked\n")
    (state / "irqbalance.service.enabled").write_text("masked\n")
    row = host.state("apply", service("inactive disabled"))["irqbalance"]
    assert (row["state"], row["before"], row["after"]) == (
        "changed", "active masked", "inactive masked",
    )  # fmt: skip
    assert asked_of(state) == ["stop -- irqbalance.service"]


def test_a_unit_that_somebody_has_masked_since_is_left_so(host: StubbornHost, state: Path) -> None:
    host.state("apply", service("inactive disabled"))
    (state / "irqbalance.service.load").write_text("masked\n")
    (state / "irqbalance.service.enabled").write_text("masked\n")
    assert host.state("check", service("inactive disabled"))["irqbalance"]["state"] == "ok"
    row = host.state("rollback", service("inactive disabled"))["irqbalance"]
    assert row["state"] in ("blocked", "failed")
    assert (state / "irqbalance.service.enabled").read_text() == "masked\n"


def test_left_alone_is_only_read(host: StubbornHost, state: Path) -> None:
    row = host.state("apply", service(None, why="as the vendor set it"))["irqbalance"]
    assert (row["state"], row["before"]) == ("ok", "active enabled")
    assert not (state / "log").exists()


def test_garbage_is_not_a_state(host: StubbornHost, state: Path) -> None:
    row = host.state("check", service("sometimes"))["irqbalance"]
    assert (row["state"], "'sometimes'" in str(row["why"])) == ("failed", True)


def test_without_systemd_there_are_no_services(host: StubbornHost) -> None:
    row = host.state("check", service("inactive", tolerate_absent=True))["irqbalance"]
    assert row["state"] == "not_applicable"


def test_two_units_come_back_each_to_its_own_state(host: StubbornHost, state: Path) -> None:
    for name, word in (("load", "loaded"), ("active", "inactive"), ("enabled", "disabled")):
        (state / f"imex.service.{name}").write_text(word + "\n")
    both = [
        *service("inactive disabled"),
        {**service("active enabled")[0], "id": "imex", "target": "imex.service"},
    ]
    host.state("apply", both)
    host.state("rollback", both)
    for unit, words in (("irqbalance", "active enabled"), ("imex", "inactive disabled")):
        files = [state / f"{unit}.service.{name}" for name in ("active", "enabled")]
        assert [file.read_text().strip() for file in files] == words.split()
