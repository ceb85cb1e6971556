"""Checks of what accelerators are made of and held by: firmware equal over a group, clocks that hardware holds down."""

from __future__ import annotations

from collections.abc import Iterator

from infra.launch.name_lists import MAX_NAMED, clauses
from infra.launch.preflight import amd, ascend, nvidia
from infra.launch.preflight.gpu_checks import nvidia_hosts
from infra.launch.preflight.observed import ObservedHost
from infra.launch.preflight.scene import Scene, Trouble, odd_ones, unequal

ASCEND_FIRMWARE = "/usr/local/Ascend/firmware/version.info"
# What hardware does by itself, from heat or for want of power; a power cap in software is how most GPUs run.
HELD_DOWN = ("HW Slowdown", "HW Thermal Slowdown", "HW Power Brake Slowdown", "SW Thermal Slowdown")


def firmware_of(host: ObservedHost) -> dict[str, str]:
    """The firmware of a host's devices by bus address, or under `firmware` where one version is told for all."""
    found = nvidia.parse_vbios(host.text("nvidia.query") or "")
    for path, text in host.files.items():
        if path.startswith(amd.DEVICES) and path.endswith("/vbios_version"):
            found[path.split("/")[-2]] = text.strip()
        elif path == ASCEND_FIRMWARE and (version := ascend.parse_driver_file(text)):
            found["firmware"] = version
    return found


def firmware_hosts(scene: Scene) -> tuple[str, ...]:
    """Engine hosts whose devices tell their firmware."""
    return tuple(host for host in scene.engine_hosts if firmware_of(scene.hosts[host]))


def find_other_firmware(scene: Scene) -> Iterator[Trouble]:
    """Devices with other firmware than those beside them, and hosts with other firmware than their peers."""
    fix = (
        "Bring all devices to one firmware with the vendor's tool; it asks for a reset or a reboot."
    )
    by_kind: dict[str, dict[str, str]] = {}
    for name in firmware_hosts(scene):
        found = firmware_of(scene.hosts[name])
        usual, _, odd = odd_ones(found)
        if odd:
            words = [f"{device} has firmware {version}" for device, version in odd.items()]
            said = f"{', '.join(words[:MAX_NAMED])}, the others {usual}"
            yield Trouble(host=name, severity="warn", observed=said, fix=fix)
        else:
            by_kind.setdefault(scene.plan.host(name).accelerator, {})[name] = f"firmware {usual}"
    for shown in by_kind.values():
        yield from unequal(shown, fix, "warn")


def find_held_clocks(scene: Scene) -> Iterator[Trouble]:
    """GPUs whose hardware slows them down: heat, a power brake of the rack, a supply that fails."""
    for name in nvidia_hosts(scene):
        found = nvidia.parse_slowdowns(scene.hosts[name].text("nvidia.query") or "")
        held = {
            bus: [reason for reason in reasons if reason in HELD_DOWN]
            for bus, reasons in found.items()
        }
        words = [f"{bus} {', '.join(reasons)}" for bus, reasons in held.items() if reasons]
        if words:
            yield Trouble(
                host=name,
                severity="warn",
                observed=f"clocks are held down: {clauses(words)}",
                fix=f"ssh {name} nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER; see cooling and power supplies.",
            )
