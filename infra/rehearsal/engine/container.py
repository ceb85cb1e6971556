"""What collectives and transfers need of the container they run in, beside devices; nothing where there is none.

Sources: NVIDIA/nccl:src/mnnvl.cc@192610c (IMEX channels); NCCL user guide, troubleshooting (shared memory of 64 MB as
docker gives it, ``ulimit -l``); NVIDIA/nccl-tests#206 (memory that cannot be locked); openucx/ucx#7930 (likewise);
aws/deep-learning-containers test/efa/scripts/nixl_libfabric_smoke.py@e0ecede (a NIXL without EFA).
"""

from __future__ import annotations

import os
from collections.abc import Collection

from .failures import Failed, write_error
from .parallel import Parallel
from .world import LOCKED_MEMORY, World, device_folder, is_in_container

CHANNEL = "nvidia-caps-imex-channels/channel0"
DOCKER_SHARED_BYTES = 64 << 20
PROCESS = "Worker_TP0"
LIBFABRIC = "LIBFABRIC"


def check_shared_memory(environ: dict[str, str], world: World, place: Parallel) -> None:
    """Check what workers of one rank hand each other data through.

    Raises:
        Failed: NCCL's or RCCL's own error.
    """
    if not _is_judged(environ, world) or place.local_workers_per_rank == 1:
        return
    if _shared_bytes(environ) <= DOCKER_SHARED_BYTES:
        segment = "Error while creating shared memory segment /dev/shm/nccl-XXXXXX (size 9637888)"
        raise _system_error(f"{segment}, error: No space left on device (28)")


def check_cards(environ: dict[str, str], world: World, place: Parallel) -> None:
    """Check what workers of several hosts reach each other by: memory of a rack, or cards.

    Raises:
        Failed: NCCL's or RCCL's own error.
    """
    num_ranks = place.size * place.workers_per_rank
    if not _is_judged(environ, world) or num_ranks <= world.host_devices:
        return
    channel = os.path.join(device_folder(environ), CHANNEL)
    if world.has_multi_node_nvlink and environ.get("NCCL_MNNVL_ENABLE") != "0":
        if not os.path.exists(channel):
            raise _system_error(
                f"MNNVL (cliqueSize {num_ranks}) is available but not working on this system. Check the IMEX channel "
                "configuration (/dev/nvidia-caps-imex-channels). Set NCCL_MNNVL_ENABLE=0 to ignore this issue."
            )
    elif world.network == "rdma" and not _locks_memory(environ):
        raise _system_error("Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory")


def check_transfer(environ: dict[str, str], world: World, backends: Collection[str]) -> None:
    """Check that NIXL may register memory with a card, and finds what speaks to EFA where it is to take no other.

    Raises:
        Failed: NIXL's own error, after UCX's.
    """
    wants_efa = LIBFABRIC in backends and environ.get("FI_PROVIDER") == "efa"
    if wants_efa and world.network != "efa":
        raise Failed("nixl._bindings.nixlBackendError", "NIXL_ERR_BACKEND", "EngineCore")
    if _is_judged(environ, world) and world.network == "rdma" and not _locks_memory(environ):
        kib = int(environ[LOCKED_MEMORY]) >> 10
        write_error(
            "UCX  ERROR ibv_reg_mr(length=4096, access=0xf) failed: Cannot allocate memory. Please set max locked "
            f"memory (ulimit -l) to 'unlimited' (current: {kib} kbytes)\n"
        )
        raise Failed("nixl._bindings.nixlBackendError", "NIXL_ERR_BACKEND", "EngineCore")


def _is_judged(environ: dict[str, str], world: World) -> bool:
    """Whether this is a container, and one of an accelerator whose libraries are known to say what follows."""
    return is_in_container(environ) and world.vendor != "ascend"


def _locks_memory(environ: dict[str, str]) -> bool:
    return environ[LOCKED_MEMORY] == "unlimited"


def _shared_bytes(environ: dict[str, str]) -> int:
    """Size of the container's shared memory."""
    found = os.statvfs(os.path.join(device_folder(environ), "shm"))
    return found.f_blocks * found.f_frsize


def _system_error(last: str) -> Failed:
    return Failed(
        "torch.distributed.DistBackendError",
        "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, unhandled system error (run with "
        "NCCL_DEBUG=INFO for details)\n"
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n"
        f"Last error:\n{last}",
        PROCESS,
    )
