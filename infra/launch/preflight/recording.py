"""An observed host as `fab facts` records it, and as `up` compares it with the record."""

from __future__ import annotations

from infra.inventory.facts_file import RecordedHost
from infra.launch.preflight import ascend, linux, nvidia
from infra.launch.preflight.observed import ObservedHost
from infra.launch.preflight.rdma import rails, read_ports

NVIDIA_DRIVER = "/proc/driver/nvidia/version"
AMD_DRIVER = "/sys/module/amdgpu/version"


def observed_record(host: ObservedHost, address: str) -> RecordedHost:
    """What would be recorded of a host now."""
    interfaces = linux.parse_interfaces(host.text("addresses") or "")
    carrier = next((one.name for one in interfaces if address in one.addresses), "")
    fabric = rails(read_ports(host.files))
    pages = (host.text("page-size") or "").strip()
    return RecordedHost(
        address=address,
        machine_id=host.word("/etc/machine-id") or "",
        boot_id=host.word("/proc/sys/kernel/random/boot_id") or "",
        driver=driver_version(host) or "",
        interface=carrier,
        page_size=int(pages) if pages.isdecimal() else 0,
        rdma_devices=tuple(port.name for port in fabric),
        gids={port.name: port.gid_index for port in fabric if port.gid_index is not None},
        nvlink_domain=nvlink_domain(host) or "",
    )


def nvlink_domain(host: ObservedHost) -> str | None:
    """`<cluster UUID>.<clique>` of a host's GPUs as `nvidia-smi -q` tells it; None without one, or with several."""
    sections = nvidia.parse_fabric(host.text("nvidia.query") or "")
    found = {
        f"{one.cluster_uuid}.{one.clique_id}"
        for one in sections
        if one.cluster_uuid not in ("", "N/A", nvidia.NO_CLUSTER)
    }
    return found.pop() if len(found) == 1 else None


def driver_version(host: ObservedHost) -> str | None:
    """The accelerators' driver as its own files say, without asking a tool; None without one."""
    if (text := host.files.get(NVIDIA_DRIVER)) is not None:
        return nvidia.parse_driver_file(text)
    if (text := host.files.get(ascend.DRIVER_FILE)) is not None:
        return ascend.parse_driver_file(text)
    return host.word(AMD_DRIVER) or None
