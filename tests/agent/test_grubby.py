"""Kernel arguments by grubby: added, replaced, taken back byte for byte, and nothing else touched."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent import simulated_grubby
from tests.agent.stubborn_host import StubbornHost

WANT = "init_on_alloc=0 numa_balancing=disable"
ENTRY = """\
title {title}
version {version}
linux /boot/vmlinuz-{version}
initrd /boot/initramfs-{version}.img
options {options}
grub_users $grub_users
"""


class Entries:
    """The boot entries of one host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def put(self, version: str, options: str) -> None:
        text = ENTRY.format(title=f"Linux ({version})", version=version, options=options)
        (self.folder / f"{version}.conf").write_text(text)

    def fault(self, name: str) -> None:
        (self.folder / "fault").write_text(name)

    def texts(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.folder.glob("*.conf"))}


@pytest.fixture
def entries(host: StubbornHost, stand_in: Callable[[str, str], None], tmp_path: Path) -> Entries:
    found = Entries(tmp_path / "entries")
    stand_in("grubby", f'exec {sys.executable} -S {simulated_grubby.__file__} {found.folder} "$@"')
    host.put("/usr/sbin/grubby", "")
    host.put("/proc/cmdline", "BOOT_IMAGE=/vmlinuz ro\n")
    found.put("6.1.0", "root=UUID=1 ro rhgb quiet")
    found.put("0-rescue", "root=UUID=1 ro rhgb quiet")
    return found


def ask(host: StubbornHost, mode: str, want: str = WANT, **keys: object) -> dict[str, object]:
    item = {"id": "kernel.cmdline", "group": "tuning", "kind": "kernel-arguments", "want": want}
    items: list[dict[str, object]] = [{**item, "needs": "reboot"}]
    return host.state(mode, items, allow=["reboot"], **keys)["kernel.cmdline"]


def test_every_entry_gets_them_and_loses_them_again(host: StubbornHost, entries: Entries) -> None:
    found = entries.texts()
    assert ask(host, "check")["state"] == "changed"
    assert entries.texts() == found
    assert ask(host, "apply")["state"] == "changed"
    for text in entries.texts().values():
        assert f"\noptions root=UUID=1 ro rhgb quiet {WANT}\n" in text
    again = ask(host, "apply")
    assert (again["state"], "reboot this host" in str(again["why"])) == ("blocked", True)
    assert ask(host, "rollback")["state"] == "changed"
    assert entries.texts() == found


def test_after_the_reboot_it_is_so(host: StubbornHost, entries: Entries) -> None:
    ask(host, "apply")
    host.put("/proc/cmdline", f"BOOT_IMAGE=/vmlinuz ro {WANT}\n")
    assert ask(host, "check")["state"] == "ok"


def test_another_value_of_the_same_argument_comes_back(
    host: StubbornHost, entries: Entries
) -> None:
    for version in ("6.1.0", "0-rescue"):
        entries.put(version, "root=UUID=1 numa_balancing=enable quiet")
    found = entries.texts()
    assert ask(host, "apply")["state"] == "changed"
    for text in entries.texts().values():
        assert "options root=UUID=1 numa_balancing=disable quiet init_on_alloc=0\n" in text
    assert ask(host, "rollback")["state"] == "changed"
    assert entries.texts() == found


@pytest.mark.parametrize(
    ("fault", "said"), [("refuses", "cannot write the boot entries"), ("sticks", "kept")]
)
def test_one_that_refuses_or_does_nothing_is_blocked(
    host: StubbornHost, entries: Entries, fault: str, said: str
) -> None:
    found = entries.texts()
    entries.fault(fault)
    row = ask(host, "apply")
    assert row["state"] == "blocked"
    assert said in str(row["why"])
    assert entries.texts() == found


def test_an_argument_that_only_ends_alike_is_put_back(host: StubbornHost, entries: Entries) -> None:
    """Adding `iommu=pt` to `intel_iommu=on`, by a grubby that finds names without their left edge."""
    for version in ("6.1.0", "0-rescue"):
        entries.put(version, "root=UUID=1 intel_iommu=on quiet")
    found = entries.texts()
    entries.fault("careless")
    row = ask(host, "apply", "iommu=pt")
    assert row["state"] == "blocked"
    assert "changed intel_iommu=on, too; it is as it was" in str(row["why"])
    assert entries.texts() == found
    entries.fault("")
    assert ask(host, "apply", "iommu=pt")["state"] == "changed"
    for text in entries.texts().values():
        assert "options root=UUID=1 intel_iommu=on quiet iommu=pt\n" in text


def test_entries_that_differ_are_left_to_people(host: StubbornHost, entries: Entries) -> None:
    entries.put("0-rescue", "root=UUID=1 ro numa_balancing=enable")
    found = entries.texts()
    row = ask(host, "apply")
    assert row["state"] == "blocked"
    assert "none in /boot/vmlinuz-6.1.0; numa_balancing=enable in /boot/vmlinuz-0-rescue" in str(
        row["why"]
    )
    assert entries.texts() == found


def test_somebody_elses_change_since_is_left(host: StubbornHost, entries: Entries) -> None:
    ask(host, "apply")
    for version in ("6.1.0", "0-rescue"):
        entries.put(version, "root=UUID=1 ro numa_balancing=enable")
    row = ask(host, "rollback")
    assert row["state"] == "blocked"
    assert "something else has changed" in str(row["why"])


def test_no_entry_at_all_fails(host: StubbornHost, entries: Entries) -> None:
    for path in entries.folder.glob("*.conf"):
        path.unlink()
    row = ask(host, "check")
    assert (row["state"], row["why"]) == ("failed", "grubby --info=ALL names no boot entry")
