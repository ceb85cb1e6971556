"""The operation `units`, against a stand-in of systemctl that answers as systemd 252 does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.agent.journal.starts import BEGINS, Start, read_starts
from infra.agent.processes.units import since
from tests.agent.stubborn_host import StubbornHost

SYSTEMCTL = """\
echo "$*" >> {log}
case "$1" in
show) shift 4; first=1
  for unit in "$@"; do
    [ $first ] || echo; first=
    echo "Id=$unit"
    case $unit in
    *@1.*) echo LoadState=loaded; echo ActiveState=failed; echo SubState=failed; echo Result=exit-code
      echo ExecMainStatus=1; echo MainPID=0; echo NRestarts=2
      echo StateChangeTimestampMonotonic=1000000;;
    gone*) echo LoadState=not-found; echo ActiveState=inactive; echo SubState=dead
      echo StateChangeTimestampMonotonic=0;;
    masked*) echo LoadState=masked; echo ActiveState=inactive; echo SubState=dead;;
    queued*) echo LoadState=loaded; echo ActiveState=inactive; echo SubState=dead; echo Job=17;;
    again*) echo LoadState=loaded; echo ActiveState=active; echo SubState=running; echo Result=success
      echo NRestarts=2; echo InvocationID=2b;;
    once*) echo LoadState=loaded; echo ActiveState=active; echo SubState=running; echo Result=success
      echo NRestarts=0; echo InvocationID=2b;;
    *) echo LoadState=loaded; echo ActiveState=active; echo SubState=running; echo Result=success
      echo ExecMainStatus=0; echo MainPID=42; echo NRestarts=0; echo StateChangeTimestampMonotonic=2;;
    esac
  done;;
start) [ "$4" = gone.service ] && {{ echo "Unit gone.service not found." >&2; exit 5; }} || exit 0;;
stop) [ -e {log}.slow ] && sleep 30; exit 0;;
esac
"""
# The last word is the unit: nothing here has a start.
JOURNALCTL = """\
echo "j $*" >> {log}
for word; do :; done
for said in one two; do printf '{{"MESSAGE": "%s", "_SYSTEMD_UNIT": "%s"}}\\n' $said $word; done
"""


@pytest.fixture
def asked(
    host: StubbornHost, stand_in: Callable[[str, str], None], tmp_path: Path
) -> Callable[[], list[str]]:
    log = tmp_path / "asked"
    log.touch()
    host.put("/run/systemd/system/x", "")
    stand_in("systemctl", SYSTEMCTL.format(log=log))
    stand_in("journalctl", JOURNALCTL.format(log=log))
    return lambda: log.read_text().splitlines()


def units(host: StubbornHost, **keys: object) -> list[dict[str, Any]]:
    rows = host.ask("units", **keys)["units"]
    assert isinstance(rows, list)
    return rows


def test_what_is_started_beside_them_is_not_reported(
    host: StubbornHost, asked: Callable[[], list[str]]
) -> None:
    rows = units(host, action="start", units=["a.service"], beside=["watch.service"])
    assert asked()[1] == "start --no-block -- a.service watch.service"
    assert [row["unit"] for row in rows] == ["a.service"]


def test_all_units_are_started_by_one_call_that_does_not_wait(
    host: StubbornHost, asked: Callable[[], list[str]]
) -> None:
    names = ["moe-s-engine@0.service", "moe-s-engine@2.service"]
    rows = units(host, action="start", units=names)
    assert asked()[:2] == [
        f"reset-failed -- {' '.join(names)}",
        f"start --no-block -- {' '.join(names)}",
    ]
    assert len(asked()) == 3
    assert [(row["unit"], row["active_state"], row["main_pid"]) for row in rows] == [
        (name, "active", 42) for name in names
    ]


def test_a_start_that_systemd_has_wait_is_told(host: StubbornHost, asked: object) -> None:
    rows = units(host, action="status", units=["queued.service", "masked.service"])
    assert [row["job"] for row in rows] == [17, 0]


def test_what_does_one_thing_is_waited_for(
    host: StubbornHost, asked: Callable[[], list[str]]
) -> None:
    units(host, action="run", units=["a.service"])
    assert asked()[:2] == ["reset-failed -- a.service", "start -- a.service"]


def test_a_failed_unit_brings_its_last_lines(
    host: StubbornHost, asked: Callable[[], list[str]]
) -> None:
    row = units(host, action="status", units=["moe-s-engine@1.service"])[0]
    assert row["result"] == "exit-code"
    assert (row["exec_main_status"], row["n_restarts"]) == (1, 2)
    assert row["log_tail"] == ["one", "two"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", row["since"])


def test_words_without_a_start_belong_to_the_one_that_was_named_before_them(
    host: StubbornHost, stand_in: Callable[[str, str], None]
) -> None:
    own, about = (
        {"_SYSTEMD_UNIT": "a.service"},
        {"_SYSTEMD_UNIT": "init.scope", "UNIT": "a.service"},
    )
    entries: list[dict[str, object]] = [
        {"MESSAGE": "of the start before", **own},
        {"MESSAGE": "Starting a.service...", "MESSAGE_ID": BEGINS, "INVOCATION_ID": "2b", **about},
        {"MESSAGE": "hello", **own},  # it had ended when journald asked
        {"MESSAGE": [104, 105, 255, 10], "_SYSTEMD_INVOCATION_ID": "2b", **own},
        {"MESSAGE": None, "_SYSTEMD_INVOCATION_ID": "2b", **own},
    ]
    said = [f"echo '{json.dumps(entry)}'" for entry in entries]
    stand_in("journalctl", "\n".join([*said, 'echo \'{"MESSAGE": "cut o\'']))
    lines = ["Starting a.service...", "hello", "hi\ufffd", "(no message)"]
    read = read_starts(host, {"a.service": Start("2b")}, 20, 5.0)
    assert [line for each in read for line in each.text.splitlines()] == lines
    assert read_starts(host, {"a.service": Start("3c")}, 20, 5.0) == []


OWN, ABOUT = {"_SYSTEMD_UNIT": "a.service"}, {"_SYSTEMD_UNIT": "init.scope", "UNIT": "a.service"}
BEGUN = {"MESSAGE": "Starting", "MESSAGE_ID": BEGINS, "INVOCATION_ID": "2b", **ABOUT}
CLOSED = {"MESSAGE": "Failed", "INVOCATION_ID": "2b", **ABOUT}
OTHER = {"MESSAGE": "other", "_SYSTEMD_INVOCATION_ID": "1a", **OWN}
EARLIER = {"MESSAGE": "Started", "INVOCATION_ID": "1a", **ABOUT}
NAMELESS = {"MESSAGE": "words", **OWN}
MAIN = {"MESSAGE": "first words", "_PID": "12", **OWN}


@pytest.mark.parametrize(
    ("entries", "num_entries", "told"),
    [
        ([NAMELESS, NAMELESS, CLOSED], 3, ["words", "words", "Failed"]),  # its beginning is older
        ([NAMELESS, BEGUN, NAMELESS, CLOSED], 4, ["Starting", "words", "Failed"]),
        ([OTHER, NAMELESS, BEGUN, CLOSED], 4, ["Starting", "Failed"]),
        (
            [EARLIER, NAMELESS, CLOSED],
            20,
            ["Failed"],
        ),  # systemd's word of another start is before them
        # it spoke before systemd had said that it starts it
        ([EARLIER, MAIN, BEGUN, CLOSED], 20, ["first words", "Starting", "Failed"]),
        ([NAMELESS, MAIN, BEGUN, CLOSED], 4, ["first words", "Starting", "Failed"]),
        ([NAMELESS, MAIN, CLOSED], 3, ["words", "first words", "Failed"]),
        ([NAMELESS, NAMELESS], 2, ["words", "words"]),  # no other start is among the last lines
        ([NAMELESS, NAMELESS], 3, []),  # nor is any of this one, whose beginning would be
    ],
)
def test_words_without_a_start_at_the_beginning_of_a_tail(
    host: StubbornHost,
    stand_in: Callable[[str, str], None],
    entries: list[dict[str, str]],
    num_entries: int,
    told: list[str],
) -> None:
    stand_in("journalctl", "\n".join(f"echo '{json.dumps(entry)}'" for entry in entries))
    said = read_starts(host, {"a.service": Start("2b", 12)}, num_entries, 5.0)
    assert [each.text for each in said] == told


def test_lines_of_a_running_unit_come_when_asked_for(
    host: StubbornHost, asked: Callable[[], list[str]]
) -> None:
    assert units(host, action="status", units=["a.service"])[0]["log_tail"] == []
    assert units(host, action="status", units=["a.service"], log_lines=1)[0]["log_tail"] == ["two"]


@pytest.mark.parametrize(
    ("unit", "start"),
    [("again.service", "-u again.service"), ("once.service", "_SYSTEMD_INVOCATION_ID=2b")],
)
def test_what_systemd_has_started_again_by_itself_brings_the_words_before(
    host: StubbornHost, asked: Callable[[], list[str]], unit: str, start: str
) -> None:
    units(host, action="status", units=[unit], log_lines=9)
    assert start in asked()[-1]


def test_a_unit_that_cannot_have_started_has_no_last_words(
    host: StubbornHost, asked: Callable[[], list[str]]
) -> None:
    """journald keeps those of starts before it was masked, or taken away."""
    for unit in ("masked.service", "gone.service"):
        assert units(host, action="status", units=[unit], log_lines=9)[0]["log_tail"] == []


def test_a_unit_that_is_not_there_says_so(
    host: StubbornHost, asked: Callable[[], list[str]]
) -> None:
    report = host.ask("units", action="start", units=["gone.service"])
    assert report["message"] == "Unit gone.service not found."
    rows = report["units"]
    assert isinstance(rows, list)
    assert (rows[0]["load_state"], rows[0]["since"]) == ("not-found", None)


def test_a_stop_that_hangs_is_bounded(host: StubbornHost, asked: Callable[[], list[str]]) -> None:
    Path(f"{Path(host.root).parent}/asked.slow").touch()
    report = host.ask("units", action="stop", units=["a.service"], timeout_s=0.2)
    assert "did not answer within 0.2 s" in str(report["message"])


def test_no_units_are_no_rows(host: StubbornHost) -> None:
    assert host.ask("units", action="status", units=[])["units"] == []


def test_an_unknown_action_is_refused(host: StubbornHost) -> None:
    assert "'kill' is not an action" in str(host.ask("units", action="kill", units=["a"])["error"])


def test_without_systemd_it_says_so(host: StubbornHost) -> None:
    assert "systemd does not run" in str(host.ask("units", action="start", units=["a"])["error"])


def test_a_stamp_of_zero_is_never() -> None:
    assert since("0", 100.0, 1e9) is None
    assert since("garbage", 100.0, 1e9) is None
    assert since("90000000", 100.0, 1e9) == "2001-09-09T01:46:30.000Z"
