"""The operation `facts`: time limits, sizes, disks, device holders, the clock, requests asked along."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.agent.conversation import answer
from infra.agent.facts import operation as facts
from infra.agent.facts.device_holders import control_group, holders_of
from infra.agent.facts.wall_clock import parse_date
from infra.agent.host import Host
from tests.agent.stubborn_host import StubbornHost

StandIn = Callable[[str, str], None]


def ask(host: Host, **request: object) -> dict[str, Any]:
    return facts.answer(dict(request), host)


def test_a_command_that_hangs_is_a_fact_after_its_time(
    host: StubbornHost, stand_in: StandIn
) -> None:
    stand_in("wedged-smi", "sleep 30")
    begun = time.monotonic()
    report = ask(host, commands=[{"id": "gpus", "argv": ["wedged-smi"], "timeout_s": 0.3}])
    told = report["commands"]["gpus"]
    assert time.monotonic() - begun < 3
    assert told["exit_code"] is None
    assert "did not answer within 0.3 s" in told["stderr"]


def test_what_a_command_leaves_is_ended_when_it_is_over_its_time_and_not_else(
    host: StubbornHost, stand_in: StandIn, tmp_path: Path
) -> None:
    stand_in("starts-a-unit", "sleep $1")
    marks = {seconds: tmp_path / seconds for seconds in ("0", "30")}
    asked = [
        {
            "id": seconds,
            "argv": ["starts-a-unit", seconds],
            "timeout_s": 1.0,
            "behind": ["touch", str(mark)],
        }
        for seconds, mark in marks.items()
    ]
    report = ask(host, commands=asked)
    codes = {name: told["exit_code"] for name, told in report["commands"].items()}
    assert codes == {"0": 0, "30": None}
    assert {seconds: mark.exists() for seconds, mark in marks.items()} == {"0": False, "30": True}


def test_commands_run_at_the_same_time(host: StubbornHost, stand_in: StandIn) -> None:
    stand_in("slow", "sleep 0.4; echo $1")
    begun = time.monotonic()
    asked = [{"id": str(n), "argv": ["slow", str(n)], "timeout_s": 5} for n in range(8)]
    report = ask(host, commands=asked)
    assert time.monotonic() - begun < 2.5
    assert [told["stdout"] for told in report["commands"].values()] == [f"{n}\n" for n in range(8)]


def test_those_of_a_queue_run_one_after_another(host: StubbornHost, stand_in: StandIn) -> None:
    """Of each queue one holds the lock of its device at a time; of two queues both do."""
    stand_in(
        "one-at-a-time",
        'mkdir "$0.$1" || exit 9; for i in 1 2 3 4 5; do sleep 0.05; '
        'ls -d "$0".[01] | wc -l; done | sort -n | tail -n 1; rmdir "$0.$1"',
    )
    asked = [
        {"id": f"{n}", "argv": ["one-at-a-time", str(n % 2)], "timeout_s": 5, "queue": f"d{n % 2}"}
        for n in range(6)
    ]
    report = ask(host, commands=asked)["commands"]
    assert [told["exit_code"] for told in report.values()] == [0] * 6, report
    assert "2\n" in {told["stdout"] for told in report.values()}
    together = ask(host, commands=[{**one, "queue": ""} for one in asked])["commands"]
    assert 9 in {told["exit_code"] for told in together.values()}


def test_the_report_stays_below_a_megabyte(host: StubbornHost, stand_in: StandIn) -> None:
    stand_in("chatty", "head -c 600000 /dev/zero | tr '\\0' x")
    asked = [{"id": str(n), "argv": ["chatty"], "timeout_s": 5} for n in range(6)]
    report = ask(host, commands=asked)
    assert (
        sum(len(told["stdout"]) for told in report["commands"].values()) <= facts.MAX_REPORT_BYTES
    )


def test_files_that_are_not_there_or_cannot_be_read_are_left_out(host: StubbornHost) -> None:
    folder = Path(host.path("/sys/class/infiniband/mlx5_0/ports/1"))
    (folder / "rate").mkdir(parents=True)
    (folder / "state").write_text("4: ACTIVE\n")
    pattern = "/sys/class/infiniband/*/ports/*"
    report = ask(host, files=[f"{pattern}/state", f"{pattern}/rate", "/etc/none"], globs=[pattern])
    assert report["files"] == {"/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n"}
    assert report["paths"] == ["/sys/class/infiniband/mlx5_0/ports/1"]


def test_a_disk_is_that_of_the_nearest_folder_that_exists() -> None:
    report = ask(Host(), disks=["/proc/none/such"])
    disk = report["disks"]["/proc/none/such"]
    assert (disk["mount"], disk["kind"], disk["exists"]) == ("/proc", "proc", False)


def test_what_is_there_of_a_checkpoint_is_counted_whole_or_on_its_way(host: StubbornHost) -> None:
    host.put("/models/kimi/r1/a.safetensors", "12345")
    host.put("/models/kimi/.partial-r2/b/c.safetensors", "123")
    asked = {
        "w": ["/models/kimi/r2", "/models/kimi/.partial-r2"],
        "x": ["/models/kimi/r1"],
        "none": ["/none"],
    }
    assert host.ask("facts", sizes=asked)["sizes"] == {"w": 3, "x": 5, "none": 0}


def test_the_holder_of_a_device_is_named(tmp_path: Path) -> None:
    device = tmp_path / "davinci3"
    device.touch()
    with device.open() as held, subprocess.Popen(["sleep", "20"], stdin=held) as child:
        rows = holders_of(Host(), [str(device)])
        child.kill()
    assert {row["pid"] for row in rows} == {os.getpid(), child.pid}
    row = next(row for row in rows if row["pid"] == child.pid)
    assert row["command"] == "sleep 20"
    assert holders_of(Host(), []) == []


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("0::/system.slice/moe-x-engine@0.service\n", "/system.slice/moe-x-engine@0.service"),
        ("12:cpu:/a\n1:name=systemd:/docker/abc\n", "/docker/abc"),
        ("", ""),
        ("nonsense", ""),
    ],
)
def test_a_control_group_is_read(text: str, group: str) -> None:
    assert control_group(text) == group


def test_the_clock_is_the_hosts_own(host: StubbornHost, stand_in: StandIn) -> None:
    stand_in("date", "echo 1700000000.25")
    clock = ask(host)["clock"]
    assert abs(clock["now_s"] - 1700000000.25) < 2
    stand_in("date", "echo '%s.%N'")
    assert "error" in ask(host)["clock"]


def test_busybox_prints_no_nanoseconds() -> None:
    assert parse_date("1700000000.\n") == (1700000000.0, 1.0)
    assert parse_date("1700000000.5\n") == (1700000000.5, 0.0)


def test_how_wrong_the_clock_may_be_is_told(host: StubbornHost, stand_in: StandIn) -> None:
    stand_in("date", "echo 1700000000.; sleep 0.4")
    clock = ask(host)["clock"]
    assert 0.7 < clock["error_s"] < 2
    assert abs(clock["now_s"] - 1700000000) <= clock["error_s"] + 0.3


def test_other_operations_are_answered_along_and_their_failures_are_theirs() -> None:
    also = [{"operation": "listening", "ports": []}, {"operation": "nonsense"}]
    request = {"schema_version": 1, "operation": "facts", "also": also}
    along = answer(request, Host())["also"]
    assert isinstance(along, list)
    first, second = along
    assert first["listening"] == []
    assert "not an operation" in second["error"]["what"]
