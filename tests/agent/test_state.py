"""The operation `state` as a whole: order, records, reloads, locks, persistence, half-finished runs."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.agent.folders import BESIDE
from tests.agent.stubborn_host import StubbornHost

SWAPPINESS = "/proc/sys/vm/swappiness"
GOVERNOR = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
RECORD = "/var/lib/moe-infra/rollback/.host/record.json"
TUNING_UNIT = "/etc/systemd/system/moe-infra-tuning.service"
ITEMS: list[dict[str, object]] = [
    {"id": "vm.swappiness", "group": "tuning", "kind": "sysctl", "want": "0", "why": "w"},
    {
        "id": "governor",
        "group": "tuning",
        "kind": "sysfs",
        "target": GOVERNOR,
        "want": "performance",
    },
]
UNIT: dict[str, object] = {
    "id": "unit",
    "group": "files",
    "kind": "file",
    "target": "/etc/systemd/system/moe-s-engine@.service",
    "content": "[Service]\n",
    "unit": True,
}


@pytest.fixture
def untuned(host: StubbornHost) -> StubbornHost:
    host.put(SWAPPINESS, "60\n")
    host.put(GOVERNOR, "powersave\n")
    return host


@pytest.fixture
def reloads(
    host: StubbornHost, stand_in: Callable[[str, str], None], tmp_path: Path
) -> Callable[[], int]:
    """How often systemd was told to read its units again; it runs the host, and looked for a unit in vain before."""
    log = tmp_path / "systemctl.log"
    log.touch()
    known = "moe-s-engine@0.service not-found inactive dead"
    stand_in("systemctl", f'echo "$*" >> {log}; [ "$1" != list-units ] || echo "{known}"')
    host.put("/run/systemd/system/x", "")
    return lambda: log.read_text().splitlines().count("daemon-reload")


def test_one_bad_item_leaves_the_others_alone(untuned: StubbornHost) -> None:
    odd: dict[str, object] = {"id": "odd", "kind": "magic", "want": "1"}
    rows = untuned.state("apply", [odd, *ITEMS])
    assert rows["odd"]["state"] == "failed"
    assert "no kind 'magic'" in str(rows["odd"]["why"])
    assert rows["vm.swappiness"]["state"] == "changed"


def test_no_items_are_no_rows(host: StubbornHost) -> None:
    assert host.ask("state", mode="apply", stack="s", items=[]) == {
        "schema_version": 1,
        "items": [],
        "daemon_reloaded": False,
    }


def test_the_record_is_there_before_the_first_write(untuned: StubbornHost) -> None:
    seen: list[bool] = []
    write = untuned.write_knob

    def spy(absolute: str, value: str) -> None:
        seen.append(Path(untuned.path(RECORD)).exists())
        write(absolute, value)

    untuned.write_knob = spy  # type: ignore[method-assign]
    untuned.state("apply", ITEMS)
    assert seen == [True, True]


def test_the_record_is_on_the_disk_before_the_first_write(
    untuned: StubbornHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its content, then its name and those of new folders above it: a power cut leaves no change without a record."""
    done: list[str] = []
    sync, write = os.fsync, untuned.write_knob

    def synced(handle: int) -> None:
        path = str(Path(f"/proc/self/fd/{handle}").readlink())
        if path.startswith(
            untuned.root
        ):  # threads that earlier tests have left may sync files of their own
            done.append(path.removeprefix(untuned.root))
        sync(handle)

    def written(absolute: str, value: str) -> None:
        done.append(absolute)
        write(absolute, value)

    monkeypatch.setattr(os, "fsync", synced)
    untuned.write_knob = written  # type: ignore[method-assign]
    untuned.state("apply", ITEMS[:1])
    folder = Path(RECORD).parent
    before = done[: done.index(SWAPPINESS)]
    assert before[0] == RECORD + BESIDE
    assert {str(parent) for parent in (folder, *folder.parents[:3])} <= set(before[1:])


@pytest.mark.parametrize(("number", "is_told"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_file_system_that_cannot_sync_folders_is_good_enough_and_a_broken_one_is_not(
    untuned: StubbornHost, monkeypatch: pytest.MonkeyPatch, number: int, *, is_told: bool
) -> None:
    sync = os.fsync

    def refused(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(number, os.strerror(number))
        sync(handle)

    monkeypatch.setattr(os, "fsync", refused)
    report = untuned.ask("state", mode="apply", stack="s", items=ITEMS)
    assert ("error" in report) is is_told
    assert Path(untuned.path(SWAPPINESS)).read_text() == ("60\n" if is_told else "0\n")


def test_nothing_is_written_when_the_record_cannot_be(untuned: StubbornHost) -> None:
    untuned.put("/var/lib/moe-infra", "a file is in the way")
    report = untuned.ask("state", mode="apply", stack="s", items=ITEMS)
    assert "error" in report
    assert Path(untuned.path(SWAPPINESS)).read_text() == "60\n"


def test_a_run_killed_half_way_can_be_taken_back(untuned: StubbornHost) -> None:
    """The record names both; only the first was written."""
    untuned.state("apply", ITEMS)
    untuned.put(GOVERNOR, "powersave\n")
    rows = untuned.state("rollback", ITEMS)
    assert rows["vm.swappiness"]["state"] == "changed"
    assert (rows["governor"]["state"], rows["governor"]["why"]) == ("ok", "already as it was found")
    assert not Path(untuned.path(RECORD)).exists()


def test_a_run_killed_while_it_wrote_leaves_nothing_beside(host: StubbornHost) -> None:
    """First the record itself is written, then files lie beside their places until all of them do."""
    host.put("/var/lib/dpkg/status", "")
    found = host.contents("/run")
    beside_record = "/var/lib/moe-infra/rollback/s/record.json" + BESIDE
    host.put(beside_record, '{"half')
    host.state("rollback", [UNIT])
    assert host.contents("/run") == found
    host.state("apply", [UNIT])
    target = Path(host.path(str(UNIT["target"])))
    target.rename(str(target) + BESIDE)
    host.state("rollback", [UNIT])
    assert host.contents("/run") == found


def test_rollback_leaves_a_knob_that_somebody_else_has_set(untuned: StubbornHost) -> None:
    untuned.state("apply", ITEMS)
    untuned.put(SWAPPINESS, "10\n")
    rows = untuned.state("rollback", ITEMS)
    assert rows["vm.swappiness"]["state"] == "blocked"
    assert "it was 60 and became 0 by us, now it is 10" in str(rows["vm.swappiness"]["why"])
    assert Path(untuned.path(SWAPPINESS)).read_text() == "10\n"
    assert Path(untuned.path(GOVERNOR)).read_text() == "powersave\n"


def test_the_first_original_is_kept_over_several_applies(untuned: StubbornHost) -> None:
    untuned.state("apply", ITEMS)
    untuned.state("apply", [{**ITEMS[0], "want": "1"}])
    untuned.state("rollback", ITEMS)
    assert Path(untuned.path(SWAPPINESS)).read_text() == "60\n"


def test_rollback_of_one_group_leaves_the_other(untuned: StubbornHost) -> None:
    untuned.state("apply", [*ITEMS, UNIT])
    rows = untuned.state("rollback", [], groups=["tuning"])
    assert "vm.swappiness" in rows
    assert "unit" not in rows
    assert Path(untuned.path(str(UNIT["target"]))).exists()


def test_rollback_of_nothing_is_no_rows(host: StubbornHost) -> None:
    assert host.state("rollback", ITEMS) == {}


def test_stacks_have_records_of_their_own(untuned: StubbornHost) -> None:
    untuned.state("apply", ITEMS)
    report = untuned.ask("state", mode="rollback", stack="other", items=ITEMS)
    assert report["items"] == []


@pytest.mark.parametrize("name", ["", "../x", ".hidden"])
def test_a_stack_s_name_cannot_lead_elsewhere(host: StubbornHost, name: str) -> None:
    assert "error" in host.ask("state", mode="apply", stack=name, items=[])


def test_a_damaged_record_stops_before_anything(untuned: StubbornHost) -> None:
    untuned.put(RECORD, "{")
    report = untuned.ask("state", mode="apply", stack="s", items=ITEMS)
    assert "cannot be read" in str(report["error"])
    assert Path(untuned.path(SWAPPINESS)).read_text() == "60\n"


def test_units_are_reloaded_once_and_only_when_their_text_changed(
    host: StubbornHost, reloads: Callable[[], int]
) -> None:
    other = {**UNIT, "id": "unit2", "target": "/etc/systemd/system/moe-s-router@.service"}
    report = host.ask("state", mode="apply", stack="s", items=[UNIT, other])
    assert (report["daemon_reloaded"], reloads()) == (True, 1)
    report = host.ask("state", mode="apply", stack="s", items=[UNIT, other])
    assert (report["daemon_reloaded"], reloads()) == (False, 1)
    assert host.ask("state", mode="check", stack="s", items=[UNIT])["daemon_reloaded"] is False
    assert host.ask("state", mode="rollback", stack="s", items=[UNIT])["daemon_reloaded"] is True
    assert reloads() == 2


def test_a_plain_file_reloads_nothing(host: StubbornHost, reloads: Callable[[], int]) -> None:
    plain = {**UNIT, "unit": False, "target": "/etc/moe-infra/s/a"}
    assert host.ask("state", mode="apply", stack="s", items=[plain])["daemon_reloaded"] is False
    assert reloads() == 0


def test_a_second_run_waits_for_another_stack_s_short_one(
    untuned: StubbornHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    untuned.state("apply", [])
    with Path(untuned.path("/run/moe-infra/agent.lock")).open("r+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)

        def let_go() -> None:
            fcntl.flock(stream, fcntl.LOCK_UN)

        monkeypatch.setattr("infra.agent.lock._pause", let_go)
        assert "error" not in untuned.ask("state", mode="apply", stack="s", items=[])


def test_a_second_run_is_told_who_holds_the_host(
    untuned: StubbornHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.agent.lock.WAIT_S", 0.0)
    untuned.state("apply", [])
    lock = Path(untuned.path("/run/moe-infra/agent.lock"))
    holder = {"operator": "ann@desk", "pid": 7, "since": 0}
    lock.write_text(json.dumps(holder))
    with lock.open("r+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        for mode in ("apply", "check", "rollback"):
            report = untuned.ask("state", mode=mode, stack="s", items=ITEMS)
            assert "another run holds this host: ann@desk, process 7, since 1970" in str(report)
    assert "error" not in untuned.ask("state", mode="apply", stack="s", items=[], operator="bob")
    assert json.loads(lock.read_text())["operator"] == "bob"


def test_nobody_else_can_lock_the_host_or_a_lease(untuned: StubbornHost) -> None:
    lock = Path(untuned.path("/run/moe-infra/agent.lock"))
    lock.parent.mkdir(parents=True)
    lock.touch(0o644)  # as an older release has left it
    owner = {"operator": "o", "machine": "m", "process": 1, "started": "", "command": "fab up"}
    lease = {"stack": "s", "token": "t", **owner}
    untuned.ask("state", mode="apply", stack="s", items=[], lease=lease)
    files = [lock, *lock.parent.glob("leases/*")]
    assert len(files) > 1
    assert [file.stat().st_mode & 0o077 for file in files] == [0] * len(files)


def test_only_files_leave_the_tuning_s_persistence_alone(host: StubbornHost) -> None:
    host.state("apply", [{**UNIT, "unit": False}])
    assert not Path(host.path("/etc/sysctl.d/60-moe-infra.conf")).exists()


def test_the_unit_carries_what_sysctl_d_cannot(untuned: StubbornHost) -> None:
    untuned.state("apply", ITEMS)
    request = json.loads(Path(untuned.path("/var/lib/moe-infra/tuning/request.json")).read_text())
    assert [item["id"] for item in request["items"]] == ["governor"]
    text = Path(untuned.path(TUNING_UNIT)).read_text()
    assert "/var/lib/moe-infra/tuning/agent.py" in text
    link = Path(untuned.path(f"/etc/systemd/system/multi-user.target.wants/{TUNING_UNIT[20:]}"))
    assert str(link.readlink()) == TUNING_UNIT


NFS: dict[str, object] = {
    "id": "nfs", "group": "tuning", "kind": "nfs-read-ahead", "want": "15360", "tolerate_absent": True,
}  # fmt: skip
MTU: dict[str, object] = {
    "id": "net.mtu", "group": "tuning", "kind": "mtu", "target": "eth0", "want": "9000",
}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "waits_for", "wants"),
    [
        ([], set(), set()),
        ([NFS], {"remote-fs.target"}, set()),
        ([MTU], {"network-online.target"}, {"network-online.target"}),
        ([MTU, NFS], {"remote-fs.target", "network-online.target"}, {"network-online.target"}),
    ],
)
def test_the_unit_waits_for_what_its_items_need(
    untuned: StubbornHost, more: list[dict[str, object]], waits_for: set[str], wants: set[str]
) -> None:
    """Mounts of the network and routes come long after the local file systems."""
    untuned.put(
        "/proc/fs/nfsfs/volumes", "NV SERVER PORT DEV FSID FSC\nv4 0a000001 801 0:52 d:0 no\n"
    )
    untuned.put("/sys/class/bdi/0:52/read_ahead_kb", "128\n")
    untuned.put("/sys/class/net/eth0/mtu", "9000\n")
    untuned.state("apply", [*ITEMS, *more])
    lines = Path(untuned.path(TUNING_UNIT)).read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    local = {"systemd-sysctl.service", "sys-kernel-debug.mount", "local-fs.target"}
    others = {"tuned.service", "power-profiles-daemon.service", "cpupower.service"}
    assert set(found["After"].split()) == local | others | waits_for
    assert set(found.get("Wants", "").split()) == wants
    assert found["Before"] == "docker.service"


def test_the_stored_agent_applies_it_after_a_reboot(untuned: StubbornHost) -> None:
    untuned.state("apply", ITEMS)
    untuned.put(GOVERNOR, "powersave\n")  # what the hardware comes up with
    record = Path(untuned.path(RECORD)).read_text()
    agent = untuned.path("/var/lib/moe-infra/tuning/agent.py")
    request = untuned.path("/var/lib/moe-infra/tuning/request.json")
    done = subprocess.run(
        [sys.executable, "-I", "-S", agent, request],
        env={"MOE_INFRA_ROOT": untuned.root, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    assert [row["state"] for row in report["items"]] == ["changed"]
    assert Path(untuned.path(GOVERNOR)).read_text() == "performance\n"
    assert Path(untuned.path(RECORD)).read_text() == record


def test_a_boot_that_cannot_apply_it_fails_the_unit(untuned: StubbornHost) -> None:
    untuned.state("apply", ITEMS)
    request = Path(untuned.path("/var/lib/moe-infra/tuning/request.json"))
    request.write_text(request.read_text().replace("scaling_governor", "gone"))
    done = subprocess.run(
        [sys.executable, untuned.path("/var/lib/moe-infra/tuning/agent.py"), str(request)],
        env={"MOE_INFRA_ROOT": untuned.root, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1


def test_the_difference_of_a_knob_is_one_line(untuned: StubbornHost) -> None:
    rows = untuned.state("check", ITEMS, diff=True)
    assert rows["vm.swappiness"]["diff"] == "vm.swappiness: 60 → 0"


def test_a_drain_is_waited_for_unless_allowed(untuned: StubbornHost) -> None:
    items = [{**ITEMS[0], "needs": "drain"}]
    row = untuned.state("apply", items)["vm.swappiness"]
    assert (row["state"], row["needs"]) == ("blocked", "drain")
    row = untuned.state("apply", items, allow=["drain"])["vm.swappiness"]
    assert (row["state"], row["after"]) == ("changed", "0")


@pytest.mark.parametrize("mode", ["", "destroy"])
def test_an_unknown_mode_is_refused(host: StubbornHost, mode: str) -> None:
    assert "is not a mode" in str(host.ask("state", mode=mode, stack="s", items=[])["error"])
