"""Which interfaces and HCAs an environment names: the variables of the communication libraries."""

from __future__ import annotations

from collections.abc import Mapping

# GLOO_, TP_, HCCL_ and NCCL_SOCKET_IFNAME; NCCL takes `=eth0` for the exact name and `^eth0` for all others.
INTERFACE_SUFFIX = "_SOCKET_IFNAME"
RDMA_VARIABLES = ("UCX_NET_DEVICES", "NCCL_IB_HCA")


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
