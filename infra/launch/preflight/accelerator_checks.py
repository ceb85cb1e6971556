"""Checks that hold for every vendor: the tool answers, count, type, memory, one driver on all hosts."""

from __future__ import annotations

from collections.abc import Iterator

from infra.launch.preflight.accelerators import PROGRAMS, Accelerators, accelerators_of
from infra.launch.preflight.recording import driver_version
from infra.launch.preflight.scene import Scene, Trouble, unequal

# The catalogue holds what an engine sees, a little below what the tool prints.
MEMORY_TOLERANCE = 0.95


def with_accelerators(scene: Scene) -> tuple[str, ...]:
    """The engine hosts that carry any."""
    return tuple(host for host in scene.engine_hosts if scene.accelerator(host).vendor != "cpu")


def find_silent_tools(scene: Scene) -> Iterator[Trouble]:
    """Hosts whose accelerators cannot be listed: no driver, or one that hangs."""
    for name, found in _accelerators(scene):
        if found.problem is not None:
            program = PROGRAMS[scene.accelerator(name).vendor]
            yield Trouble(
                host=name,
                severity="block",
                observed=found.problem,
                fix=f"ssh {name} sudo {program}; reboot the host when the driver hangs.",
            )


def find_missing_devices(scene: Scene) -> Iterator[Trouble]:
    """Hosts with fewer devices than the stack counts on."""
    for name, found in _accelerators(scene):
        wanted = scene.plan.host(name).num_devices
        if found.names and len(found.names) != wanted:
            yield Trouble(
                host=name,
                severity="block",
                observed=f"{len(found.names)} devices",
                wanted=f"{wanted} devices",
                fix=f"ssh {name} sudo dmesg | tail; a device that fell off the bus comes back with a reboot, or never.",
            )


def find_other_types(scene: Scene) -> Iterator[Trouble]:
    """Hosts with other devices than the stack names, or than their peers."""
    for name, found in _accelerators(scene):
        wanted = scene.accelerator(name).product_name
        others = [one for one in dict.fromkeys(found.names) if one and not _is_same(one, wanted)]
        if others:
            is_ascend = scene.accelerator(name).vendor == "ascend"
            yield Trouble(
                host=name,
                severity="warn" if is_ascend else "block",
                observed=", ".join(others),
                wanted=wanted,
                fix="Write the accelerator that the host carries into the stack, or another host into the inventory.",
            )
    for hosts in _by_accelerator(scene).values():
        names = {name: " and ".join(dict.fromkeys(found.names)) for name, found in hosts.items()}
        yield from unequal(names, "Use hosts of one kind.")


def find_little_device_memory(scene: Scene) -> Iterator[Trouble]:
    """Devices with less memory than the plan was computed for."""
    for name, found in _accelerators(scene):
        wanted = scene.accelerator(name).memory_mib
        least = min((size for size in found.memory_mib if size), default=None)
        if least is not None and least < wanted * MEMORY_TOLERANCE:
            yield Trouble(
                host=name,
                severity="block",
                observed=f"a device has {least} MiB",
                wanted=f"about {wanted} MiB",
                fix="Use the accelerator that the stack names; a partitioned device shows less.",
            )


def find_other_drivers(scene: Scene) -> Iterator[Trouble]:
    """Hosts with another driver than their peers: collectives between them fail, or worse."""
    for hosts in _hosts_by_accelerator(scene).values():
        versions = {}
        for name in hosts:
            found = accelerators_of(scene.hosts[name], scene.accelerator(name).vendor)
            version = driver_version(scene.hosts[name])
            told = found.drivers if found is not None and found.drivers else (version or "",)
            if any(told):
                versions[name] = f"driver {' and '.join(told)}"
        yield from unequal(versions, "Install one driver version on every host, then reboot.")


def _accelerators(scene: Scene) -> Iterator[tuple[str, Accelerators]]:
    for name in with_accelerators(scene):
        found = accelerators_of(scene.hosts[name], scene.accelerator(name).vendor)
        if found is not None:
            yield name, found


def _by_accelerator(scene: Scene) -> dict[str, dict[str, Accelerators]]:
    found: dict[str, dict[str, Accelerators]] = {}
    for name, one in _accelerators(scene):
        if one.names and all(one.names):
            found.setdefault(scene.plan.host(name).accelerator, {})[name] = one
    return found


def _hosts_by_accelerator(scene: Scene) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in with_accelerators(scene):
        found.setdefault(scene.plan.host(name).accelerator, []).append(name)
    return found


def _is_same(shown: str, wanted: str) -> bool:
    """Whether two spellings of a product mean one: tools add form factors, or leave the vendor out."""
    one, other = (_letters(text) for text in (shown, wanted))
    return bool(one) and (one in other or other in one)


def _letters(text: str) -> str:
    words = [
        word for word in text.lower().split() if word not in ("nvidia", "amd", "instinct", "ascend")
    ]
    return "".join(words).removeprefix("ascend")
