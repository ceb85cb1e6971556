"""Which module does the work of which program."""

# ruff: noqa: PLC0415  a program loads its own module and no other

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def main_of(program: str) -> Callable[[list[str]], int]:
    """Return the main function of a program; only its own module is loaded.

    Raises:
        SystemExit: no such stand-in.
    """
    if program in ("docker", "podman"):
        from .container_program import main
    elif program in ("amd-smi", "rocm-smi"):
        from .amd_tools import main
    elif program in ("mlnx_qos", "mlxlink", "ethtool"):
        from .card_tools import main
    elif program == "all_reduce_perf":
        from .collective_test import main
    elif program == "journalctl":
        from .kernel_log import main
    elif program == "npu-smi":
        from .npu_smi import main
    elif program == "hccn_tool":
        from .hccn_tool import main
    else:
        return _main_of_nvidia(program)
    return main


def _main_of_nvidia(program: str) -> Callable[[list[str]], int]:
    """Return the main function of one of NVIDIA's own programs.

    Raises:
        SystemExit: no such stand-in.
    """
    if program == "nvidia-smi":
        from .nvidia_smi import main
    elif program == "nvidia-imex-ctl":
        from .nvidia_imex import main
    elif program == "nv-fabricmanager":
        from .nv_fabricmanager import main
    elif program == "dcgmi":
        from .dcgmi import main
    else:
        raise SystemExit(f"moe-infra rehearsal stand-in: nothing stands in for '{program}'")
    return main


def run(arguments: list[str]) -> int:
    """Run the program that the first argument names and return its exit code."""
    return main_of(os.path.basename(arguments[0]))(arguments)
