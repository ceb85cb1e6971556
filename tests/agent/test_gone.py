"""A take-back of what is gone itself: it is settled and forgotten; what only looks so is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.stubborn_host import StubbornHost

HEADER = "NV SERVER PORT DEV FSID FSC\n"
VOLUMES = "/proc/fs/nfsfs/volumes"
FIRST, SECOND = (f"/sys/class/bdi/0:{n}/read_ahead_kb" for n in (52, 60))
SCHEDULERS = "/sys/block/nvme{}n1/queue/scheduler"
SYSCTL = "/proc/sys/kernel/sched_autogroup_enabled"
ETH0, ETH1 = (f"/sys/class/net/eth{n}/mtu" for n in (0, 1))
IP = 'echo "$6" > {0}/sys/class/net/$4/mtu'
NFS: dict[str, object] = {"kind": "nfs-read-ahead", "want": "15360", "tolerate_absent": True}
DISKS: dict[str, object] = {
    "kind": "sysfs", "target": "/sys/block/nvme*/queue/scheduler", "want": "none",
}  # fmt: skip
KNOB: dict[str, object] = {"kind": "sysctl", "target": "kernel.sched_autogroup_enabled", "want": "0"}  # fmt: skip
RECORD = "/var/lib/moe-infra/rollback/.host/record.json"


def ask(host: StubbornHost, mode: str, item: dict[str, object]) -> dict[str, object]:
    return host.state(mode, [{"id": "it", "group": "tuning", **item}], allow=["drain"])["it"]


def nfs_row(device: str) -> str:
    return f"{HEADER}v4 0a000001 801 {device} d3f1c2a8:0 no\n"


@pytest.fixture
def mounted(host: StubbornHost) -> StubbornHost:
    host.put(VOLUMES, nfs_row("0:52"))
    host.put(FIRST, "128\n")
    assert ask(host, "apply", NFS)["state"] == "changed"
    return host


def is_settled(host: StubbornHost, item: dict[str, object]) -> bool:
    """Whether a take-back forgets it, having changed nothing."""
    host.writes.clear()
    row = ask(host, "rollback", item)
    assert (row["state"], row["why"]) == ("ok", "it is gone: nothing to take back"), row
    assert host.writes == []
    return not Path(host.path(RECORD)).exists()


def test_a_mount_that_came_back_as_another_device(mounted: StubbornHost) -> None:
    Path(mounted.path(FIRST)).unlink()
    mounted.put(VOLUMES, nfs_row("0:60"))
    mounted.put(SECOND, "128\n")
    assert is_settled(mounted, NFS)


def test_a_mount_whose_number_another_file_system_has_now(mounted: StubbornHost) -> None:
    mounted.put(VOLUMES, HEADER)
    mounted.put(FIRST, "4096\n")
    assert is_settled(mounted, NFS)


def test_a_mount_that_is_there_and_was_set_by_somebody_else(mounted: StubbornHost) -> None:
    mounted.put(FIRST, "256\n")
    assert ask(mounted, "rollback", NFS)["state"] == "blocked"


def test_a_disk_that_was_replaced(host: StubbornHost) -> None:
    """The other one comes back."""
    for number in range(2):
        host.put(SCHEDULERS.format(number), "mq-deadline\n")
    ask(host, "apply", DISKS)
    Path(host.path(SCHEDULERS.format(1))).unlink()
    row = ask(host, "rollback", DISKS)
    assert row["state"] == "changed"
    assert Path(host.path(SCHEDULERS.format(0))).read_text() == "mq-deadline\n"
    assert not Path(host.path(RECORD)).exists()


def test_a_sysctl_that_a_new_kernel_lacks(host: StubbornHost) -> None:
    host.put(SYSCTL, "1\n")
    ask(host, "apply", KNOB)
    Path(host.path(SYSCTL)).unlink()
    assert is_settled(host, KNOB)


@pytest.fixture
def links(host: StubbornHost, stand_in: Callable[[str, str], None]) -> StubbornHost:
    stand_in("ip", IP.format(host.root))
    for path in (ETH0, ETH1):
        host.put(path, "1500\n")
    return host


@pytest.mark.parametrize("by_name", [True, False])
def test_an_interface_that_was_removed(links: StubbornHost, by_name: bool) -> None:
    links.put("/proc/net/route", "Iface Destination\neth0 00000000\n")
    target = "eth0" if by_name else "default-route"
    item: dict[str, object] = {"kind": "mtu", "target": target, "want": "9000", "needs": "drain"}
    assert ask(links, "apply", item)["state"] == "changed"
    Path(links.path(ETH0)).unlink()
    Path(links.path(ETH0)).parent.rmdir()
    links.put("/proc/net/route", "Iface Destination\neth1 00000000\n")
    assert is_settled(links, item)
    assert Path(links.path(ETH1)).read_text() == "1500\n"


def test_an_interface_that_lost_the_route_is_still_ours_to_bring_back(links: StubbornHost) -> None:
    links.put("/proc/net/route", "Iface Destination\neth0 00000000\n")
    item: dict[str, object] = {
        "kind": "mtu", "target": "default-route", "want": "9000", "needs": "drain",
    }  # fmt: skip
    ask(links, "apply", item)
    links.put("/proc/net/route", "Iface Destination\neth1 00000000\n")
    assert ask(links, "rollback", item)["state"] == "blocked", "it must not be forgotten"
    assert Path(links.path(RECORD)).exists()


def test_a_file_that_somebody_deleted_is_not_gone(host: StubbornHost) -> None:
    host.put("/etc/x", "found\n")
    item: dict[str, object] = {"kind": "file", "target": "/etc/x", "content": "ours\n"}
    ask(host, "apply", item)
    Path(host.path("/etc/x")).unlink()
    row = ask(host, "rollback", item)
    assert (row["state"], "now it is absent" in str(row["why"])) == ("blocked", True)


def test_what_the_tool_does_not_tell_just_now_is_not_gone(
    host: StubbornHost, stand_in: Callable[[str, str], None], tmp_path: Path
) -> None:
    mode = tmp_path / "mode"
    mode.write_text("Disabled")
    stand_in(
        "nvidia-smi",
        f'case $1 in --query*) echo "0, $(cat {mode})";; *) echo Enabled > {mode};; esac',
    )
    item: dict[str, object] = {"kind": "gpu-persistence", "want": "Enabled"}
    assert ask(host, "apply", item)["state"] == "changed"
    stand_in("nvidia-smi", "echo 'Unable to determine the device handle' >&2; exit 15")
    assert ask(host, "rollback", item)["state"] == "failed"
    stand_in("nvidia-smi", 'echo "1, Disabled"')
    assert is_settled(host, item)
