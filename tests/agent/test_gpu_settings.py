"""Power limit, application clocks and MIG mode of GPUs, against an nvidia-smi that keeps them in files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from infra.agent.host import Refused
from infra.agent.kinds.gpu_settings import EVERY_FIELD, parse_settings
from tests.agent.stubborn_host import StubbornHost

# Two GPUs; a file per value. `fault` refuses, sticks, knows no clocks (an older driver), or leaves MIG pending.
NVIDIA_SMI = """\
d={folder}; fault=$(cat $d/fault 2>/dev/null); echo "$*" >> $d/log
case "$1" in
-L) echo "GPU 0: H200 (UUID: GPU-1)"
  [ -e $d/instances ] && echo "  MIG 3g.71gb     Device  0: (UUID: MIG-1)"; exit 0;;
--query*clocks*) [ "$fault" = old ] && {{ echo 'Field "clocks.applications.memory" is not a valid field'; exit 2; }};;
esac
case "$1" in
--query*)
  for gpu in 0 1; do
    line=$gpu
    for field in $(echo "$1" | sed 's/--query-gpu=index,//; s/,/ /g'); do line="$line, $(cat $d/$field.$gpu)"; done
    echo "$line"
  done;;
*) [ "$fault" = refuses ] && {{ echo "Insufficient Permissions" >&2; exit 4; }}
  [ "$fault" = sticks ] && exit 0
  case "$3" in
  -pl) echo "$4.00" > $d/power.limit.$2;;
  -ac) echo "${{4%,*}}" > $d/clocks.applications.memory.$2; echo "${{4#*,}}" > $d/clocks.applications.graphics.$2;;
  -mig) [ "$4" = 1 ] && mode=Enabled || mode=Disabled
    echo $mode > $d/mig.mode.pending.$2; [ "$fault" = pending ] || echo $mode > $d/mig.mode.current.$2;;
  esac;;
esac
exit 0
"""
FIRST = {
    "power.limit": "600.00", "power.max_limit": "700.00", "clocks.applications.memory": "1593",
    "clocks.applications.graphics": "1200", "clocks.max.memory": "3201", "clocks.max.graphics": "1980",
    "mig.mode.pending": "Enabled", "mig.mode.current": "Enabled",
}  # fmt: skip


@pytest.fixture
def gpus(stand_in: Callable[[str, str], None], tmp_path: Path) -> Path:
    folder = tmp_path / "gpus"
    folder.mkdir()
    stand_in("nvidia-smi", NVIDIA_SMI.format(folder=folder))
    for field in EVERY_FIELD:
        put(folder, field, FIRST[field])
    return folder


def put(folder: Path, field: str, value: str) -> None:
    for gpu in (0, 1):
        (folder / f"{field}.{gpu}").write_text(value + "\n")


def item(target: str, want: str | None, **keys: object) -> list[dict[str, object]]:
    return [{"id": target, "group": "tuning", "kind": "gpu-setting", "want": want, **keys}]


class Case(NamedTuple):
    """A setting, what is wanted of it, and how it reads before and after."""

    target: str
    want: str
    before: str
    after: str


WRITTEN = [
    Case("power.limit", "max", "600", "700"),
    Case("power.limit", "650", "600", "650"),
    Case("clocks.applications", "max", "1593,1200", "3201,1980"),
    Case("mig.mode", "Disabled", "Enabled", "Disabled"),
]


@pytest.mark.parametrize("case", WRITTEN, ids=lambda case: f"{case.target}={case.want}")
def test_it_is_set_on_every_gpu_and_comes_back(host: StubbornHost, gpus: Path, case: Case) -> None:
    target, want, before, after = case
    found = {path.name: path.read_text() for path in gpus.glob("*.[01]")}
    items = item(target, want)
    row = host.state("check", items)[target]
    assert (row["state"], row["before"], row["wanted"]) == ("changed", before, after)
    assert host.state("apply", items)[target]["after"] == after
    assert host.state("apply", items)[target]["state"] == "ok"
    assert host.state("rollback", items)[target]["state"] == "changed"
    assert {path.name: path.read_text() for path in gpus.glob("*.[01]")} == found


@pytest.mark.parametrize("case", WRITTEN, ids=lambda case: f"{case.target}={case.want}")
@pytest.mark.parametrize("fault", ["refuses", "sticks"])
def test_one_that_refuses_or_keeps_its_value_is_blocked(
    host: StubbornHost, gpus: Path, case: Case, fault: str
) -> None:
    target, want, before, after = case
    (gpus / "fault").write_text(fault)
    row = host.state("apply", item(target, want))[target]
    assert row["state"] == "blocked"
    assert (row["before"], row["wanted"], row["after"]) == (before, after, before)
    assert ("Insufficient Permissions" if fault == "refuses" else "kept") in str(row["why"])


def test_one_question_answers_for_all_settings(host: StubbornHost, gpus: Path) -> None:
    items = [
        one
        for target in ("power.limit", "clocks.applications", "mig.mode")
        for one in item(target, None)
    ]
    rows = host.state("check", items)
    assert {row["state"] for row in rows.values()} == {"ok"}
    assert (gpus / "log").read_text().count("--query") == 1


def test_a_driver_that_lacks_a_field_is_asked_for_each(host: StubbornHost, gpus: Path) -> None:
    (gpus / "fault").write_text("old")
    rows = host.state("check", [*item("power.limit", None), *item("clocks.applications", None)])
    assert (rows["power.limit"]["state"], rows["power.limit"]["before"]) == ("ok", "600")
    assert rows["clocks.applications"]["state"] == "failed"


def test_mig_that_waits_for_a_reset_is_said(host: StubbornHost, gpus: Path) -> None:
    (gpus / "fault").write_text("pending")
    row = host.state("apply", item("mig.mode", "Disabled"))["mig.mode"]
    assert "GPU 0, 1 runs with mig.mode Enabled; Disabled is set and waits" in str(row["why"])
    again = host.state("apply", item("mig.mode", "Disabled"))["mig.mode"]
    assert (again["state"], again["before"]) == ("blocked", "Enabled")
    host.state("rollback", item("mig.mode", "Disabled"))
    assert (gpus / "mig.mode.pending.1").read_text() == "Enabled\n"


def test_a_gpu_that_is_divided_is_left_alone(host: StubbornHost, gpus: Path) -> None:
    (gpus / "instances").touch()
    row = host.state("apply", item("mig.mode", "Disabled"))["mig.mode"]
    assert row["state"] == "blocked"
    assert "has instances, which nobody could bring back" in str(row["why"])
    assert (gpus / "mig.mode.pending.0").read_text() == "Enabled\n"


def test_gpus_that_differ_are_told_apart(host: StubbornHost, gpus: Path) -> None:
    (gpus / "power.limit.1").write_text("700.00\n")
    row = host.state("apply", item("power.limit", "max"))["power.limit"]
    assert (row["before"], row["after"]) == ("600 on GPU 0, 700 on GPU 1", "700")
    assert "-i 1 -pl" not in (gpus / "log").read_text()


@pytest.mark.parametrize("value", ["[N/A]", "[Not Supported]"])
def test_gpus_without_it_are_not_applicable(host: StubbornHost, gpus: Path, value: str) -> None:
    put(gpus, "mig.mode.pending", value)
    row = host.state("check", item("mig.mode", "Disabled", tolerate_absent=True))["mig.mode"]
    assert row["state"] == "not_applicable"


def test_a_host_without_nvidia_smi_is_not_applicable(
    host: StubbornHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    row = host.state("check", item("power.limit", "max", tolerate_absent=True))["power.limit"]
    assert (row["state"], row["why"]) == ("not_applicable", "nvidia-smi is not on this host")


def test_an_unknown_setting_names_those_there_are(host: StubbornHost, gpus: Path) -> None:
    row = host.state("check", item("clocks.locked", "1980"))["clocks.locked"]
    assert row["state"] == "failed"
    assert "there are power.limit, clocks.applications, mig.mode" in str(row["why"])


def test_garbage_is_refused_and_nothing_is_nothing() -> None:
    assert parse_settings("", [0]) == {}
    for text in ("Unable to determine the device handle", "0", "x, 700"):
        with pytest.raises(Refused, match="where index and values belong"):
            parse_settings(text, [0])
