"""Which tuning profile follows from what a host is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from infra.catalog.schema import ProfileFits, TuningProfile, Vendor

FALLBACK = "any-host"
_DEVICE_FILES: Mapping[str, Vendor] = {
    "/dev/nvidia": "nvidia",
    "/dev/kfd": "amd",
    "/dev/davinci": "ascend",
}
_DRIVERS: Mapping[str, Vendor] = {
    "/proc/driver/nvidia": "nvidia",
    "/sys/module/amdgpu": "amd",
    "/usr/local/Ascend": "ascend",
}
# PCI vendor and the classes under which its accelerators show. Huawei's and AMD's display controllers (0x0300:
# the management controller of a Kunpeng server, a desktop card) are none; NVIDIA's may be.
_PCI: Mapping[str, tuple[Vendor, tuple[str, ...]]] = {
    "0x10de": ("nvidia", ("0x0300", "0x0302")),
    "0x1002": ("amd", ("0x0380", "0x1200")),
    "0x19e5": ("ascend", ("0x1200",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostIdentity:
    """What a host is, as far as profiles ask.

    Args:
        architecture: of the kernel, `x86_64` or `aarch64`.
        processor: `implementer:part` of an Arm processor, `` elsewhere.
        is_virtual: whether the processor says that a hypervisor is below it (x86 alone says so).
        vendors: of accelerators that show, () for none.
    """

    architecture: str
    processor: str
    is_virtual: bool
    vendors: tuple[Vendor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileChoice:
    """A profile's id, and what it follows from."""

    profile: str
    why: str


def read_identity(report: Mapping[str, object]) -> HostIdentity:
    """What the agent's operation `identity` reported."""
    maker, part = str(report.get("cpu_implementer", "")), str(report.get("cpu_part", ""))
    return HostIdentity(
        architecture=str(report.get("architecture", "")),
        processor=f"{maker}:{part}" if maker else "",
        is_virtual=report.get("is_virtual") is True,
        vendors=_vendors(report),
    )


def choose_profile(identity: HostIdentity, profiles: Iterable[TuningProfile]) -> ProfileChoice:
    """The profile that fits and says most; the one of any host where none fits."""
    shown = _shown(identity)
    if len(identity.vendors) > 1:
        return ProfileChoice(profile=FALLBACK, why=f"{shown}: name one with --profile")
    fitting = [(profile.fits, profile.id) for profile in profiles if _fits(profile.fits, identity)]
    if not fitting:
        return ProfileChoice(profile=FALLBACK, why=f"{shown}: no other profile fits")
    best = max(fitting, key=lambda pair: (_num_said(pair[0]), pair[1]))
    return ProfileChoice(profile=best[1], why=shown)


def _fits(fits: ProfileFits | None, identity: HostIdentity) -> bool:
    if fits is None:
        return False
    return (
        fits.architecture == identity.architecture
        and identity.vendors == (fits.vendor,)
        and fits.is_virtual in (None, identity.is_virtual)
        and (not fits.processors or identity.processor in fits.processors)
    )


def _num_said(fits: ProfileFits | None) -> int:
    return 0 if fits is None else bool(fits.processors) + (fits.is_virtual is not None)


def _shown(identity: HostIdentity) -> str:
    words = [identity.architecture or "an unknown architecture"]
    words += [f"processor {identity.processor}"] if identity.processor else []
    words += ["virtual"] if identity.is_virtual else []
    words += (
        [f"{' and '.join(identity.vendors)} devices"] if identity.vendors else ["no accelerator"]
    )
    return ", ".join(words)


def _vendors(report: Mapping[str, object]) -> tuple[Vendor, ...]:
    """Vendors by device file, else by driver, else on the PCI bus: the first that says anything decides."""
    for table, key in ((_DEVICE_FILES, "device_files"), (_DRIVERS, "drivers")):
        paths = _texts(report.get(key))
        found = {v for start, v in table.items() if any(path.startswith(start) for path in paths)}
        if found:
            return tuple(sorted(found))
    on_bus: set[Vendor] = set()
    for word in _texts(report.get("pci_devices")):
        maker, _, kind = word.partition(" ")
        vendor, kinds = _PCI.get(maker, (None, ()))
        if vendor is not None and kind in kinds:
            on_bus.add(vendor)
    return tuple(sorted(on_bus))


def _texts(value: object) -> Sequence[str]:
    return [str(word) for word in value] if isinstance(value, list) else ()
