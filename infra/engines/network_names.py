"""Which interfaces and HCAs an environment names: the variables of the communication libraries."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from infra.spec.bounded import is_whole_number

# GLOO_, TP_, HCCL_ and NCCL_SOCKET_IFNAME; NCCL takes `=eth0` for the exact name and `^eth0` for all others.
INTERFACE_SUFFIX = "_SOCKET_IFNAME"
RDMA_VARIABLES = ("UCX_NET_DEVICES", "NCCL_IB_HCA")
# The traffic class of RoCE packets: NCCL's and RCCL's, and UCX's.
TRAFFIC_CLASS_VARIABLES = ("NCCL_IB_TC", "UCX_IB_TRAFFIC_CLASS")
# HCCL listens on the host from its base port on, sixteen ports and as many more since CANN 8.3, and on each device
# (Huawei environment variable reference: HCCL_IF_BASE_PORT, HCCL_HOST_SOCKET_PORT_RANGE, HCCL_NPU_SOCKET_PORT_RANGE).
HCCL_BASE_PORT, HCCL_NUM_PORTS = 60000, 32
HCCL_DEVICE_PORT = 16666
MAX_PORT, _MAX_RANGES = 65535, 64


def interfaces_named(env: Mapping[str, str]) -> tuple[str, ...]:
    """The interfaces that the variables name, each once; exclusions name none."""
    words = [
        word.strip().lstrip("=")
        for name, value in env.items()
        if name.endswith(INTERFACE_SUFFIX) and not value.startswith("^")
        for word in value.split(",")
    ]
    return tuple(dict.fromkeys(word for word in words if word))


def rdma_devices_named(env: Mapping[str, str]) -> tuple[str, ...]:
    """The HCAs that the variables name (`mlx5_0:1`), each once; `all` and exclusions name none."""
    words = [
        word.strip().lstrip("=")
        for name in RDMA_VARIABLES
        if not (value := env.get(name, "")).startswith("^")
        for word in value.split(",")
    ]
    return tuple(dict.fromkeys(word for word in words if word and word != "all"))


def traffic_classes_named(env: Mapping[str, str]) -> dict[str, int]:
    """The traffic class that each variable sets; `auto` and what is no number set none."""
    return {
        name: int(env[name])
        for name in TRAFFIC_CLASS_VARIABLES
        if is_whole_number(env.get(name, ""))
    }


def hccl_host_ports(env: Mapping[str, str]) -> tuple[int, ...]:
    """The ports of the host that HCCL takes by itself; `auto` takes whatever is free, and names none."""
    if "HCCL_HOST_SOCKET_PORT_RANGE" in env:
        return _ports(env["HCCL_HOST_SOCKET_PORT_RANGE"])
    base = env.get("HCCL_IF_BASE_PORT", "")
    first = int(base) if is_whole_number(base) else HCCL_BASE_PORT
    return tuple(range(first, first + HCCL_NUM_PORTS))


def hccl_device_ports(env: Mapping[str, str]) -> tuple[int, ...]:
    """The ports that HCCL takes on each device's own network, which some drivers open on the host."""
    return _ports(env.get("HCCL_NPU_SOCKET_PORT_RANGE", str(HCCL_DEVICE_PORT)))


def hccl_ports(env: Mapping[str, str]) -> tuple[int, ...]:
    """Both: the ports that HCCL takes by itself where engines have this environment."""
    return (*hccl_host_ports(env), *hccl_device_ports(env))


@lru_cache(maxsize=64)
def _ports(text: str) -> tuple[int, ...]:
    """`60000-60050`, or several of them."""
    found: list[int] = []
    for word in text.split(",", _MAX_RANGES)[:_MAX_RANGES]:
        first, _, last = word.strip().partition("-")
        if is_whole_number(first) and is_whole_number(last or first):
            found += range(int(first), min(int(last or first), MAX_PORT) + 1)
    return tuple(found)
