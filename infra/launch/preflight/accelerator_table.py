"""The checks of accelerators by their ids: every vendor's, NVIDIA's, AMD's and Ascend's."""

from __future__ import annotations

from collections.abc import Mapping

from infra.launch.preflight import accelerator_checks as accelerators
from infra.launch.preflight import (
    ascend_checks,
    ascend_port_checks,
    collectives,
    firmware_checks,
    gpu_checks,
    nvlink_checks,
)
from infra.launch.preflight.group_collectives.checks import find_group_faults, hosts_of_groups
from infra.launch.preflight.scene import Check

ACCELERATOR_CHECKS: Mapping[str, Check] = {
    "accelerator-answers": Check(
        wanted="the vendor's tool lists the devices",
        find=accelerators.find_silent_tools,
        applies=accelerators.with_accelerators,
        depth="full",
    ),
    "accelerator-count": Check(
        wanted="all devices",
        find=accelerators.find_missing_devices,
        applies=accelerators.with_accelerators,
        depth="full",
    ),
    "accelerator-type": Check(
        wanted="the stack's accelerator, equal on all hosts",
        find=accelerators.find_other_types,
        applies=accelerators.with_accelerators,
        depth="full",
    ),
    "accelerator-memory": Check(
        wanted="what the plan was computed for",
        find=accelerators.find_little_device_memory,
        applies=accelerators.with_accelerators,
        depth="full",
    ),
    "accelerator-processes": Check(
        wanted="nobody computes",
        find=gpu_checks.find_compute_processes,
        applies=accelerators.with_accelerators,
        depth="full",
    ),
    "accelerator-partition": Check(
        wanted="no MIG; SPX and NPS1",
        find=gpu_checks.find_partitions,
        applies=lambda scene: (*gpu_checks.nvidia_hosts(scene), *gpu_checks.amd_hosts(scene)),
        depth="full",
    ),
    "device-memory-errors": Check(
        wanted="none",
        find=gpu_checks.find_memory_errors,
        applies=lambda scene: (*gpu_checks.nvidia_hosts(scene), *gpu_checks.amd_hosts(scene)),
        depth="full",
    ),
    "device-firmware": Check(
        wanted="one firmware (VBIOS) on all devices of a kind",
        find=firmware_checks.find_other_firmware,
        applies=firmware_checks.firmware_hosts,
        depth="full",
    ),
    "held-clocks": Check(
        wanted="no clocks that hardware holds down",
        find=firmware_checks.find_held_clocks,
        applies=gpu_checks.nvidia_hosts,
        depth="full",
    ),
    "pcie-width": Check(
        wanted="16 lanes",
        find=gpu_checks.find_narrow_slots,
        applies=lambda scene: (*gpu_checks.nvidia_hosts(scene), *gpu_checks.amd_hosts(scene)),
        depth="full",
    ),
    "xid": Check(
        wanted="none since boot",
        find=gpu_checks.find_xids,
        applies=gpu_checks.nvidia_hosts,
        depth="full",
    ),
    "fabric-state": Check(
        wanted="completed; on a rack of one cluster",
        find=nvlink_checks.find_fabric_faults,
        applies=gpu_checks.nvidia_hosts,
        depth="full",
    ),
    "nvlink-domain": Check(
        wanted="every host of a group in one NVLink domain",
        find=nvlink_checks.find_groups_over_domains,
        applies=nvlink_checks.rack_hosts,
    ),
    "nvlink-declared": Check(
        wanted="the NVLink domain that the inventory declares",
        find=nvlink_checks.find_mistaken_domains,
        applies=nvlink_checks.rack_hosts,
        depth="full",
    ),
    "gpu-diagnosis": Check(
        wanted="DCGM's quick diagnosis passes, where it is installed",
        find=gpu_checks.find_failed_diagnosis,
        applies=gpu_checks.nvidia_hosts,
        depth="full",
    ),
    "fabric-manager": Check(
        wanted="active on hosts with NVSwitches, of the driver's version",
        find=gpu_checks.find_fabric_manager_faults,
        applies=gpu_checks.nvidia_hosts,
        depth="full",
    ),
    "nvlink": Check(
        wanted="every link active",
        find=gpu_checks.find_inactive_links,
        applies=gpu_checks.nvidia_hosts,
        depth="full",
    ),
    "imex-domain": Check(
        wanted="every node READY and connected, the channel there",
        find=nvlink_checks.find_imex_faults,
        applies=nvlink_checks.rack_hosts,
        depth="full",
    ),
    "xgmi": Check(
        wanted="no errors",
        find=gpu_checks.find_xgmi_errors,
        applies=gpu_checks.amd_hosts,
        depth="full",
    ),
    "npu-health": Check(
        wanted="OK on every device",
        find=ascend_checks.find_sick_npus,
        applies=ascend_checks.ascend_hosts,
        depth="full",
    ),
    "device-network": Check(
        wanted="link UP, net health Success, an address",
        find=ascend_checks.find_device_network_faults,
        applies=ascend_checks.ascend_network_hosts,
        depth="full",
    ),
    "tls-switch": Check(
        wanted="the same on every device of every host",
        find=ascend_checks.find_tls_differences,
        applies=ascend_checks.ascend_network_hosts,
        depth="full",
    ),
    "super-pod": Check(
        wanted="one super-pod",
        find=ascend_checks.find_other_super_pods,
        applies=ascend_checks.super_pod_hosts,
        depth="full",
    ),
    "device-gateway": Check(
        wanted="a gateway where peers lie in other networks",
        find=ascend_port_checks.find_wrong_gateways,
        applies=ascend_port_checks.routed_hosts,
        depth="full",
    ),
    "device-detection": Check(
        wanted="an address by which each device knows its network's health",
        find=ascend_port_checks.find_undetected_networks,
        applies=ascend_port_checks.routed_hosts,
        depth="full",
    ),
    "device-flow-control": Check(
        wanted="one lossless priority on every device",
        find=ascend_port_checks.find_other_flow_control,
        applies=ascend_port_checks.routed_hosts,
        depth="full",
    ),
    "device-link-errors": Check(
        wanted="links that stay up and spoil nothing",
        find=ascend_port_checks.find_port_errors,
        applies=ascend_checks.ascend_network_hosts,
        depth="full",
    ),
    "hccl-ports": Check(
        wanted="HCCL's own ports free and reserved",
        find=ascend_port_checks.find_taken_hccl_ports,
        applies=ascend_checks.ascend_hosts,
    ),
    "device-ping": Check(
        wanted="devices of different hosts answer each other",
        find=ascend_checks.find_lost_pings,
        applies=ascend_checks.ascend_network_hosts,
        depth="full",
    ),
    "group-collective": Check(
        wanted="an all-reduce over all devices of each group: right, not over sockets, as fast as before",
        find=find_group_faults,
        applies=hosts_of_groups,
        depth="full",
    ),
    "collective": Check(
        wanted="an all-reduce over all devices, right and as fast as its peers'",
        find=collectives.find_slow_collectives,
        applies=accelerators.with_accelerators,
        depth="full",
    ),
}
