"""Which profile follows from what a host is; each case names the facts as the agent reports them."""

from __future__ import annotations

import pytest

from infra.catalog.host_profile import choose_profile, read_identity
from infra.catalog.load import Catalog

CATALOG = Catalog()
PROFILES = [CATALOG.tuning(name) for name in CATALOG.ids("tuning")]
GRACE = {"architecture": "aarch64", "cpu_implementer": "0x41", "cpu_part": "0xd4f"}
KUNPENG = {"architecture": "aarch64", "cpu_implementer": "0x48", "cpu_part": "0xd01"}
METAL = {"architecture": "x86_64", "cpu_vendor": "AuthenticAMD", "is_virtual": False}
VIRTUAL = {**METAL, "is_virtual": True}


@pytest.mark.parametrize(
    ("report", "profile"),
    [
        ({**GRACE, "device_files": ["/dev/nvidia0", "/dev/nvidia1"]}, "grace-nvidia"),
        ({**GRACE, "pci_devices": ["0x10de 0x0302"]}, "grace-nvidia"),
        ({**KUNPENG, "device_files": ["/dev/davinci0"]}, "kunpeng-ascend"),
        ({**KUNPENG, "pci_devices": ["0x19e5 0x0300", "0x19e5 0x1200"]}, "kunpeng-ascend"),
        ({**METAL, "drivers": ["/proc/driver/nvidia/version"]}, "x86-baremetal-nvidia"),
        ({**VIRTUAL, "device_files": ["/dev/nvidia0"]}, "x86-vm-nvidia"),
        ({**METAL, "device_files": ["/dev/kfd"]}, "x86-amd"),
        ({**VIRTUAL, "pci_devices": ["0x1002 0x1200"]}, "x86-vm-amd"),
        # A desktop card beside the accelerators' driver says nothing.
        ({**METAL, "device_files": ["/dev/nvidia0"], "pci_devices": ["0x1002 0x0380"]}, "x86-baremetal-nvidia"),
    ],
)  # fmt: skip
def test_the_profile_follows_from_what_the_host_is(report: dict[str, object], profile: str) -> None:
    assert choose_profile(read_identity(report), PROFILES).profile == profile


@pytest.mark.parametrize(
    ("report", "why"),
    [
        ({}, "unknown architecture, no accelerator: no other profile fits"),
        ({"architecture": "x86_64", "device_files": "garbage"}, "no accelerator"),
        # The management controller of a Kunpeng server is Huawei's too, and no accelerator.
        ({**KUNPENG, "pci_devices": ["0x19e5 0x0300"]}, "no accelerator"),
        ({**KUNPENG, "device_files": ["/dev/nvidia0"]}, "no other profile fits"),
        ({"architecture": "x86_64", "device_files": ["/dev/davinci0"]}, "no other profile fits"),
        ({**METAL, "device_files": ["/dev/nvidia0", "/dev/kfd"]}, "name one with --profile"),
    ],
)
def test_what_fits_no_profile_gets_that_of_any_host_and_is_told_why(
    report: dict[str, object], why: str
) -> None:
    choice = choose_profile(read_identity(report), PROFILES)
    assert choice.profile == "any-host"
    assert why in choice.why


def test_every_profile_but_the_common_one_follows_from_something() -> None:
    assert [profile.id for profile in PROFILES if profile.fits is None] == ["any-host"]
