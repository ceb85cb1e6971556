"""Network settings that collectives read when they start: interface names and own addresses."""

from __future__ import annotations

import os
import socket

from .failures import Failed
from .parallel import Parallel
from .streams import bind
from .world import World

PROCESS = "Worker_TP0"


def network_lines(world: World, place: Parallel) -> list[str]:
    """What NCCL logs of hosts' networks with NCCL_DEBUG=INFO; nothing without it, and nothing on Ascend."""
    debug = os.environ.get("NCCL_DEBUG", "").upper()
    if world.vendor == "ascend" or debug not in ("INFO", "TRACE"):
        return []
    return nccl_lines(world, place.size * place.workers_per_rank)


def nccl_lines(world: World, num_ranks: int) -> list[str]:
    """The lines themselves (lines in NVIDIA/nccl#1519, nccl-tests#228).

    On a rack whose fabric is complete it says MNNVL (NVIDIA/nccl:src/mnnvl.cc@5067397); otherwise nothing.
    """
    head = f"{world.host}:{os.getpid()}:{os.getpid()} [0] NCCL INFO "
    if world.network == "socket":
        return [
            head + "NET/IB : No device found.",
            head + f"NET/Socket : Using [0]eth0:{world.address}<0>",
            head + "Using network Socket",
        ]
    lines = [
        head + f"NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:{world.address}<0>",
        head + "Using network IB",
    ]
    spans = world.has_multi_node_nvlink and num_ranks > world.host_devices
    if spans and os.environ.get("NCCL_MNNVL_ENABLE") != "0":
        clique = "MNNVL 1 cliqueId 1 cliqueSize {0} cliqueRank 0 nvlDomainSize {0}"
        lines.append(head + clique.format(num_ranks))
    return lines


def check_network(environ: dict[str, str], place: Parallel, vendor: str) -> None:
    """Check what Gloo, NCCL and HCCL are told, where there is more than one worker.

    Raises:
        Failed: the library's own error; the text of HCCL's is not its own.
    """
    if place.workers_per_rank * place.size == 1:
        return
    names = [name for _, name in socket.if_nameindex()]
    wanted = environ.get("GLOO_SOCKET_IFNAME")
    if wanted and wanted not in names:
        raise Failed(
            "RuntimeError",
            "[enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. "
            f"Unable to find address for: {wanted}",
            process=PROCESS,
        )
    if vendor == "ascend":
        _check_hccl(environ, names)
        return
    wanted = environ.get("NCCL_SOCKET_IFNAME")
    if wanted and not _matches(wanted, names):
        raise Failed(
            "torch.distributed.DistBackendError",
            "NCCL error: ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
            "Last error:\nBootstrap : no socket interface found",
            process=PROCESS,
        )


def _check_hccl(environ: dict[str, str], names: list[str]) -> None:
    wanted = environ.get("HCCL_SOCKET_IFNAME")
    if wanted and not _matches(wanted, names):
        raise Failed(
            "RuntimeError",
            "InitHcclComm: HCCL function error: HcclGetRootInfo(&hcclID), error code is 4\n"
            f"EI0001: Environment variable [HCCL_SOCKET_IFNAME] is invalid: {wanted} is none of {names}",
            process=PROCESS,
        )
    address = environ.get("HCCL_IF_IP")
    if address:
        try:
            bind(address, 0).close()
        except OSError as error:
            raise Failed(
                "RuntimeError",
                "InitHcclComm: HCCL function error: HcclGetRootInfo(&hcclID), error code is 4\n"
                f"EI0001: Environment variable [HCCL_IF_IP] is invalid: {address} is no address of this host",
                process=PROCESS,
            ) from error


def _matches(wanted: str, names: list[str]) -> bool:
    """NCCL and HCCL take prefixes, ``=`` for exact names and ``^`` for exclusions."""
    if wanted.startswith("^"):
        excluded = tuple(wanted[1:].split(","))
        return any(not name.startswith(excluded) for name in names)
    if wanted.startswith("="):
        return any(name in wanted[1:].split(",") for name in names)
    return any(name.startswith(tuple(wanted.split(","))) for name in names)
