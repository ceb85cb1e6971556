"""Strict stand-ins for what only real hosts have: container runtimes and the vendors' tools.

They run on simulated hosts as `python3 -I -S` (Python ≥ 3.9) and import nothing else of ours, so this
module, which is loaded there as well, imports no more than `os`. Records are plain classes and paths are
texts for the same reason: `dataclasses`, `typing` or `pathlib` would double the cost of a start.
"""

from __future__ import annotations

import os

LIBRARY = "/opt/moe-rehearsal/standins"
# Packages that Python finds in every image and environment of an engine; see `lent`.
LENT_PACKAGES = LIBRARY + "/lent"
PROGRAMS = ("docker", "podman")
PROGRAMS_OF_VENDOR: dict[str, tuple[str, ...]] = {
    "nvidia": (
        "nvidia-smi", "nvidia-imex-ctl", "nv-fabricmanager", "dcgmi", "all_reduce_perf", "mlnx_qos", "mlxlink",
        "ethtool",
    ),
    "amd": ("amd-smi", "rocm-smi", "all_reduce_perf", "mlnx_qos", "mlxlink", "ethtool"),
    "ascend": ("npu-smi",),
    "cpu": (),
}  # fmt: skip
# journalctl with -k among its words, which what is installed as journalctl hands on to it.
KERNEL_LOG = "/usr/local/libexec/moe-rehearsal/journalctl"
HCCN_TOOL = "/usr/local/Ascend/driver/tools/hccn_tool"
UNITS_OF_VENDOR: dict[str, tuple[str, ...]] = {
    "nvidia": (
        "nvidia-persistenced.service",
        "nvidia-imex.service",
        "nvidia-fabricmanager.service",
    ),
    "amd": (),
    "ascend": (),
    "cpu": (),
}
COUNTERS_UNIT = "moe-rehearsal-rdma.service"
DOCKER_UNIT = "docker.service"
FABRIC_MANAGER_UNIT = "nvidia-fabricmanager.service"
IMEX_UNIT = "nvidia-imex.service"
DEVICES_UNIT = "moe-rehearsal-devices.service"
NATIVE_FOLDER = "/opt/moe-infra/venv"
NATIVE_NAMES = ("vllm", "sglang", "python", "python3")
PROGRAM_MODE = 0o755
FILE_MODE = 0o644


def standin_files(vendor: str) -> dict[str, tuple[str, int]]:
    """Return where on a simulated host each file of ours belongs.

    Args:
        vendor: `nvidia`, `amd`, `ascend` or `cpu` (no accelerator).

    Returns:
        Path on the host → (path of the source file here, mode).
    """
    here = os.path.dirname(os.path.abspath(__file__))
    stub = here + "/stub.py"
    files = {
        f"{LIBRARY}/{name}": (f"{here}/{name}", FILE_MODE)
        for name in sorted(os.listdir(here))
        if name.endswith(".py")
    }
    for name in PROGRAMS + PROGRAMS_OF_VENDOR[vendor]:
        files[f"/usr/local/bin/{name}"] = (stub, PROGRAM_MODE)
    files[KERNEL_LOG] = (stub, PROGRAM_MODE)
    if vendor == "ascend":
        files[HCCN_TOOL] = (stub, PROGRAM_MODE)
        files["/usr/local/bin/hccn_tool"] = (stub, PROGRAM_MODE)
    for name in (DEVICES_UNIT, COUNTERS_UNIT, DOCKER_UNIT, *UNITS_OF_VENDOR[vendor]):
        files[f"/usr/lib/systemd/system/{name}"] = (f"{here}/installed/{name}", FILE_MODE)
    return files


def native_files() -> dict[str, tuple[str, int]]:
    """Return the files of the virtual environment that `runtime: native` starts engines from."""
    here = os.path.dirname(os.path.abspath(__file__))
    files = {
        f"{NATIVE_FOLDER}/bin/{name}": (here + "/native.py", PROGRAM_MODE) for name in NATIVE_NAMES
    }
    files[f"{NATIVE_FOLDER}/pyvenv.cfg"] = (here + "/installed/pyvenv.cfg", FILE_MODE)
    return files
