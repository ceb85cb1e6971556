"""Which files the drivers of a vendor leave on a host, with their content."""

from __future__ import annotations

from .amd_tools import bus_id
from .ascend_network import device_address, network_mask
from .container_devices import (
    AMD_CONTROL_NODE,
    ASCEND_CONTROL_NODES,
    IMEX_CHANNELS,
    NVIDIA_CONTROL_NODES,
    device_node,
)
from .host_state import present_devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RDMA_NODES = ("/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs{index}")
CARDS = "/sys/class/infiniband"
COUNTED = "/var/lib/moe-rehearsal/rdma"
SLOT_SPEED = "32.0 GT/s PCIe\n"
CARD_COUNTERS = ("port_xmit_data", "port_rcv_data")
ASCEND_DRIVER = "/usr/local/Ascend/driver"
ASCEND_LIBRARIES = [
    "common/libc_sec.so",
    "driver/libascend_hal.so",
    "driver/libdcmi.so",
    "inner/libtdt.so",
]
AMD_DEVICES = "/sys/module/amdgpu/drivers/pci:amdgpu"
AMD_VBIOS = "113-M3550101-001\n"
IMEX_NODE_LIST = "/etc/nvidia-imex/nodes_config.cfg"
IMEX_NODE_LIST_HEAD = "# one address per line, the same on every node of the domain\n"


def vendor_files(host: dict[str, Any]) -> dict[str, str]:
    """Return path → content of each file that the host's drivers leave."""
    vendor = host["vendor"]
    if vendor == "cpu":
        return {}
    files = {device_node(vendor, index): "" for index in present_devices(host)}
    if vendor == "nvidia":
        files.update(_nvidia_files(host))
    elif vendor == "amd":
        files[AMD_CONTROL_NODE] = ""
        for index in present_devices(host):
            device = f"{AMD_DEVICES}/{bus_id(index)}"
            files[f"{device}/vbios_version"] = AMD_VBIOS
            files[f"{device}/current_link_width"] = "16\n"
    else:
        files.update(_ascend_files(host))
    if host.get("has_rdma", vendor != "ascend"):
        files[RDMA_NODES[0]] = ""
        for index in range(host.get("num_rdma_devices", host["num_devices"])):
            files[RDMA_NODES[1].format(index=index)] = ""
            files.update(_card_files(host, index))
    return files


def _card_files(host: dict[str, Any], index: int) -> dict[str, str]:
    """Return what sysfs says of one RoCE card; what it has carried is counted in the state folder.

    The first one's network interface is the host's own: the others have none.
    """
    octets = bytes(int(octet) for octet in host["address"].split(".")).hex()
    gid = f"0000:0000:0000:0000:0000:ffff:{octets[:4]}:{octets[4:]}"
    port = f"{CARDS}/mlx5_{index}/ports/1"
    files = {
        f"{CARDS}/mlx5_{index}/device/vendor": "0x15b3\n",
        **{f"{CARDS}/mlx5_{index}/device/{end}_link_width": "16\n" for end in ("current", "max")},
        **{
            f"{CARDS}/mlx5_{index}/device/{end}_link_speed": SLOT_SPEED
            for end in ("current", "max")
        },
        f"{port}/state": "4: ACTIVE\n",
        f"{port}/phys_state": "5: LinkUp\n",
        f"{port}/rate": "400 Gb/sec (4X NDR)\n",
        f"{port}/link_layer": "Ethernet\n",
        f"{port}/gids/0": gid + "\n",
        f"{port}/gids/1": gid + "\n",
        f"{port}/gid_attrs/types/0": "IB/RoCE v1\n",
        f"{port}/gid_attrs/types/1": "RoCE v2\n",
        f"{port}/counters/link_downed": "0\n",
        f"{port}/counters/symbol_error": "0\n",
    }
    if index == 0:
        files[f"{CARDS}/mlx5_0/device/net/eth0/mtu"] = "1500\n"
    for name in CARD_COUNTERS:
        files[f"{COUNTED}/mlx5_{index}/{name}"] = "0\n"
    return files


def _nvidia_files(host: dict[str, Any]) -> dict[str, str]:
    """Return the control nodes, GDRCopy's node, and on an NVLink rack the IMEX channel and nodes."""
    files = dict.fromkeys(NVIDIA_CONTROL_NODES, "")
    files["/dev/gdrdrv"] = ""
    version = host["driver_version"]
    if host["fabric_spans_hosts"]:
        files[f"{IMEX_CHANNELS}/channel0"] = ""
        nodes = (host.get("imex_nodes") or []) if host.get("imex_configured", True) else []
        files[IMEX_NODE_LIST] = IMEX_NODE_LIST_HEAD + "".join(f"{node}\n" for node in nodes)
        files["/etc/nvidia-imex/config.cfg"] = (
            f"# nvidia-imex {version}\nSERVER_PORT=50000\nIMEX_CMD_PORT=50005\nIMEX_CMD_ENABLED=1\n"
            "IMEX_NODE_CONFIG_FILE=/etc/nvidia-imex/nodes_config.cfg\n"
        )
    return files


def _ascend_files(host: dict[str, Any]) -> dict[str, str]:
    """Return control nodes, the driver's folder, and the device network's configuration."""
    version = host["driver_version"]
    files = dict.fromkeys(ASCEND_CONTROL_NODES, "")
    for name in ASCEND_LIBRARIES:
        files[f"{ASCEND_DRIVER}/lib64/{name}"] = ""
    files[f"{ASCEND_DRIVER}/version.info"] = (
        f"Version={version}\nascendhal_version=7.35.23\naicpu_version=1.0\ntdt_version=1.0\n"
        "log_version=1.0\nprof_version=2.0\ndvppkernels_version=1.1\ntsfw_version=1.0\n"
        f"Innerversion=V100R001C21SPC001B220\npackage_version={version}\n"
    )
    files["/usr/local/Ascend/firmware/version.info"] = "Version=7.7.0.6.236\n"
    files["/usr/local/dcmi/libdcmi.so"] = ""
    files["/etc/ascend_install.info"] = (
        "UserName=HwHiAiUser\nUserGroup=HwHiAiUser\nDriver_Install_Type=full\n"
        "Driver_Install_Path_Param=/usr/local/Ascend\nDriver_Install_For_All=no\n"
    )
    lines = [
        f"address_{index}={device_address(host['address'], index)}\n"
        f"netmask_{index}={network_mask(host)}\n"
        for index in present_devices(host)
    ]
    files["/etc/hccn.conf"] = "".join(lines)
    return files
