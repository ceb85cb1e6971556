"""Every case of tests/cases/facts/<parser> that is read on the operator's side; see tests/agent/test_parsers.py."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.engines import transports
from infra.launch import ras_states
from infra.launch.preflight import amd, ascend, collectives, docker_limits, linux, nvidia, roce
from infra.launch.preflight.group_collectives import told
from infra.spec.plain_yaml import read_yaml

CASES = Path(__file__).parents[2] / "cases" / "facts"
PARSERS: dict[str, Callable[[str], object]] = {
    "ucx-log": transports.parse_ucx,
    "transport-log": lambda text: transports.read_transports(text.splitlines()),
    "hccn-statistics": ascend.parse_statistics,
    "nvidia-gpus": nvidia.parse_gpus,
    "nvidia-compute-apps": nvidia.parse_compute_processes,
    "nvidia-remapped-rows": nvidia.parse_remapped_rows,
    "nvidia-fabric": nvidia.parse_fabric,
    "nvidia-nvlink": nvidia.parse_links,
    "nvidia-vbios": nvidia.parse_vbios,
    "nvidia-slowdowns": nvidia.parse_slowdowns,
    "mlnx-qos": roce.parse_priorities,
    "hccn-pfc": roce.parse_flow_control,
    "mlxlink": roce.parse_bit_error_exponent,
    "ethtool": roce.parse_counters,
    "card-sections": roce.parse_sections,
    "pcie-speed": roce.parse_speed,
    "pcie-width": roce.parse_width,
    "nccl-test": collectives.parse_nccl,
    "hccl-test": collectives.parse_hccl,
    "group-collective": told.parse_told,
    "hung-tasks": linux.parse_hung_tasks,
    "hccn-mask": ascend.parse_mask,
    "hccn-gateway": ascend.parse_gateway,
    "hccn-detection": ascend.parse_detection,
    "hccn-link-history": ascend.parse_link_downs,
    "nvidia-driver": nvidia.parse_driver_file,
    "fabric-manager": nvidia.parse_program_version,
    "xid": nvidia.parse_xids,
    "nccl-ras": ras_states.read_ras,
    "switch-errors": nvidia.parse_switch_errors,
    "dcgm-diagnosis": nvidia.parse_diagnosis,
    "docker-limits": docker_limits.unit_limits,
    "imex": nvidia.parse_imex,
    "amd-static": amd.parse_static,
    "amd-ecc": amd.parse_uncorrected,
    "amd-processes": amd.parse_processes,
    "amd-xgmi": amd.parse_xgmi_errors,
    "npu-info": ascend.parse_devices,
    "npu-processes": ascend.parse_processes,
    "npu-topic": ascend.parse_pairs,
    "ascend-driver": ascend.parse_driver_file,
    "hccn-link": ascend.parse_link,
    "hccn-health": ascend.parse_health,
    "hccn-tls": ascend.parse_tls,
    "hccn-address": ascend.parse_address,
    "hccn-ping": ascend.parse_loss,
    "ip-addr": linux.parse_interfaces,
    "ip-route": linux.parse_route,
    "meminfo": linux.parse_memory,
    "swaps": linux.parse_swaps,
    "limits": linux.parse_limits,
    "own-addresses": linux.parse_own_addresses,
    "systemd-version": linux.parse_systemd_version,
    "timedatectl": linux.parse_synchronised,
    "chrony": linux.parse_chrony_offset,
    "docker-info": linux.parse_cgroup_driver,
    "unit-states": linux.parse_unit_states,
}


def cases() -> list[Path]:
    return [path for parser in sorted(PARSERS) for path in sorted((CASES / parser).glob("*.yaml"))]


@pytest.mark.parametrize("path", cases(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_case_is_read(path: Path) -> None:
    case = read_yaml(path)
    assert case["origin"].startswith(("recorded", "written from documentation"))
    assert plain(PARSERS[path.parent.name](case["input"])) == case["expected"]


@pytest.mark.parametrize("parser", sorted(PARSERS))
def test_every_parser_has_a_zero_and_a_garbage(parser: str) -> None:
    assert {"zero", "garbage"} <= {path.stem for path in (CASES / parser).glob("*.yaml")}


def plain(value: object) -> object:
    """As JSON would have it."""

    def simplify(one: object) -> object:
        if dataclasses.is_dataclass(one) and not isinstance(one, type):
            return dataclasses.asdict(one)
        assert isinstance(one, frozenset)
        return sorted(one)

    return json.loads(json.dumps(value, default=simplify))
