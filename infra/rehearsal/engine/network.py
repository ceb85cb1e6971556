"""Network settings that collectives read when they start: interface names and own addresses.

Which interface a library takes where several fit: NVIDIA/nccl:src/misc/socket.cc@5067397 ncclFindInterfaces (names that
begin with `ib`, then what is neither docker's nor the loopback, in the kernel's order); Huawei environment variable
reference, HCCL_SOCKET_IFNAME (likewise, in the order of names).
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct

from .failures import Failed
from .parallel import Parallel
from .streams import bind
from .world import World

PROCESS = "Worker_TP0"
_SIOCGIFADDR = 0x8915
# What both libraries take last.
_LAST = ("lo", "docker", "virbr")


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
    if world.network == "efa":
        return [
            head + "NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)",
            head + "Using network AWS Libfabric",
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


def check_network(environ: dict[str, str], place: Parallel, world: World) -> None:
    """Check what Gloo, NCCL and HCCL are told, where there is more than one worker, and what they take over hosts.

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
    if world.vendor == "ascend":
        _check_hccl(environ, names)
    else:
        _check_nccl(environ, names)
    if place.workers_per_rank * place.size > world.host_devices:
        _check_reached(environ, names, world)


def _check_nccl(environ: dict[str, str], names: list[str]) -> None:
    wanted = environ.get("NCCL_SOCKET_IFNAME")
    if wanted and not _matches(wanted, names):
        raise Failed(
            "torch.distributed.DistBackendError",
            "NCCL error: ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
            "Last error:\nBootstrap : no socket interface found",
            process=PROCESS,
        )


def _check_reached(environ: dict[str, str], names: list[str], world: World) -> None:
    """Check that peers on other hosts reach the interfaces that libraries take: those with the host's address.

    Where no interface but the loopback has that, this is no host of a lab, and its peers are here, too.

    Raises:
        Failed: what the library says when its peers cannot dial it; HCCL's text is not its own.
    """
    if world.address not in {_address(name) for name in names if name != "lo"}:
        return
    gloo = environ.get("GLOO_SOCKET_IFNAME")
    if gloo and _address(gloo) != world.address:
        raise Failed(
            "RuntimeError",
            "Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:144] "
            f"no error: peers cannot reach {_address(gloo)} of {gloo}",
            process=PROCESS,
        )
    if world.vendor == "ascend":
        taken = _taken(environ.get("HCCL_SOCKET_IFNAME", ""), sorted(names))
        if environ.get("HCCL_IF_IP") or _address(taken) == world.address:
            return
        said = f"EI0006: Getting socket times out: peers cannot reach {_address(taken)} of {taken}"
        failure = "InitHcclComm: HCCL function error: HcclCommInitRootInfo, error code is 9"
        raise Failed("RuntimeError", f"{failure}\n{said}", process=PROCESS)
    wanted = environ.get("NCCL_SOCKET_IFNAME", "")
    preferred = [] if wanted else [name for name in names if name.startswith("ib")]
    taken = _taken(wanted, preferred or names)
    if _address(taken) != world.address:
        raise Failed(
            "torch.distributed.DistBackendError",
            "NCCL error: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device "
            f"error.\nLast error:\nsocketPollConnect: connect to {_address(taken)} of {taken}: No route to host",
            process=PROCESS,
        )


def _taken(wanted: str, names: list[str]) -> str:
    """The interface that a library takes of those that its variable allows."""
    usable = [name for name in names if not name.startswith(_LAST)]
    return next((name for name in usable or names if not wanted or _matches(wanted, [name])), "lo")


def _address(interface: str) -> str:
    """The IPv4 address of an interface of this host, "" for none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("256s", interface.encode()))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


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
