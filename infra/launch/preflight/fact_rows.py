"""One host as `fab facts` shows it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from infra.launch.preflight import linux
from infra.launch.preflight.accelerators import accelerators_of
from infra.launch.preflight.rdma import read_ports
from infra.launch.preflight.recording import observed_record
from infra.launch.preflight.scene import Scene

GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRow:
    """What a host is; None and empty texts are what it did not tell.

    Args:
        accelerators: names of the devices, in the tool's order.
        rdma_devices: state by `device:port`.
        memory_gib: of the host, in all.
        page_size: of the kernel, bytes.
        clock_ahead_s: of the operator's clock: at least and at most.
        problem: why the accelerators could not be listed.
    """

    name: str
    address: str
    machine_id: str
    boot_id: str
    accelerators: tuple[str, ...]
    driver: str
    interface: str
    mtu: int | None
    rdma_devices: dict[str, str]
    memory_gib: float | None
    page_size: int
    clock_ahead_s: tuple[float, float] | None
    problem: str | None

    def as_document(self) -> dict[str, object]:
        """The row of `fab facts --json`."""
        return {**asdict(self), "accelerators": list(self.accelerators)}

    def cells(self) -> tuple[str, ...]:
        """The row of the table: host, accelerators, driver, interface, HCAs, memory, pages, clock."""
        names = dict.fromkeys(self.accelerators)
        devices = ", ".join(f"{self.accelerators.count(name)} x {name}" for name in names)
        active = sum(state == "ACTIVE" for state in self.rdma_devices.values())
        return (
            self.name,
            devices or self.problem or "none",
            self.driver or "-",
            f"{self.interface or 'none'} (MTU {self.mtu})" if self.mtu else "none",
            f"{active} of {len(self.rdma_devices)} active" if self.rdma_devices else "none",
            "-" if self.memory_gib is None else f"{self.memory_gib:.0f} GiB",
            f"{self.page_size // 1024} KiB" if self.page_size else "-",
            _clock_words(self.clock_ahead_s),
        )


def fact_row(scene: Scene, name: str) -> FactRow:
    """A host of the scene, which was looked at in full."""
    host, address = scene.hosts[name], scene.plan.host(name).address
    record = observed_record(host, address)
    found = accelerators_of(host, scene.accelerator(name).vendor)
    interfaces = linux.parse_interfaces(host.text("addresses") or "")
    memory = linux.parse_memory(host.files.get("/proc/meminfo", "")).get("MemTotal")
    return FactRow(
        name=name,
        address=address,
        machine_id=record.machine_id,
        boot_id=record.boot_id,
        accelerators=found.names if found is not None else (),
        driver=record.driver or (" and ".join(found.drivers) if found is not None else ""),
        interface=record.interface,
        mtu=next((one.mtu for one in interfaces if one.name == record.interface), None),
        rdma_devices={port.name: port.state for port in read_ports(host.files)},
        memory_gib=None if memory is None else round(memory / GIB, 1),
        page_size=record.page_size,
        clock_ahead_s=None
        if host.clock is None
        else (round(host.clock.at_least_s, 3), round(host.clock.at_most_s, 3)),
        problem=found.problem if found is not None else None,
    )


def _clock_words(ahead_s: tuple[float, float] | None) -> str:
    """What is certain of a clock; the answer's own way leaves a second or so open."""
    if ahead_s is None:
        return "-"
    least, most = ahead_s
    if least <= 0 <= most:
        return "right"
    return f"{least:.1f} s ahead" if least > 0 else f"{-most:.1f} s behind"
