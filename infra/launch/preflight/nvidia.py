"""What NVIDIA's tools print, read: devices, fabric, links, processes, remapped rows, Xids, the IMEX domain."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

GPU_QUERY = (
    "index,uuid,name,pci.bus_id,memory.total,driver_version,pcie.link.width.current,"
    "mig.mode.current,ecc.errors.uncorrected.volatile.total,ecc.mode.current"
)
APP_QUERY = "pid,process_name,used_memory,gpu_uuid"
ROW_QUERY = "gpu_uuid,remapped_rows.pending,remapped_rows.failure,remapped_rows.uncorrectable"
NO_CLUSTER = "00000000-0000-0000-0000-000000000000"
SXID = re.compile(r"SXid \(([^)]*)\): (\d+)")
XID = re.compile(r"NVRM: Xid \(([^)]*)\): (\d+)")
SLOWDOWN = re.compile(r"HW Slowdown\s*:\s*(Not )?Active$")
NOT_THERE = ("[N/A]", "N/A")
# Driver 580 prints these words (recorded on an H200); Azure's azure_gpu_ecc.nhc reads numbers, so both are taken.
YES, NO = "Yes", "No"
MIG_MODES = ("Enabled", "Disabled", *NOT_THERE)
HEAD = re.compile(r"^GPU ([0-9A-Fa-f:.]+)$")
VBIOS = "VBIOS Version"
# Drivers before 535 call them throttle reasons.
REASONS = ("Clocks Event Reasons", "Clocks Throttle Reasons")
# What DCGM itself only warns of (nvvs/src/Software.cpp, v3.3.9 to v4.6.0), and an engine runs beside: a process that
# draws, a variable of CUDA in the environment, a persistence mode that is off.
SETTINGS = frozenset({25, 28, 29})
VERSION = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)?)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device of `--query-gpu`; a number that the tool does not know is None."""

    index: int
    uuid: str
    name: str
    bus_id: str
    memory_mib: int
    driver: str
    pcie_width: int | None
    mig: str
    ecc_uncorrected: int | None
    ecc: str

    @property
    def has_ecc_off(self) -> bool:
        """Whether somebody has switched off that errors of its memory are found: it has no count of them then."""
        return self.ecc == "Disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The fabric section of one device in `-q`; texts as printed, empty for a line that is not there."""

    state: str
    status: str
    clique_id: str
    cluster_uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeProcess:
    """A process that computes on a device."""

    pid: int
    name: str
    gpu_uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemappedRows:
    """A device's remapped memory rows.

    Args:
        gpu_uuid: of the device.
        has_pending: whether rows wait for a reset to be remapped.
        has_failed: whether a row could not be remapped in the device's life.
        uncorrectable: rows that were remapped for errors that could not be corrected.
    """

    gpu_uuid: str
    has_pending: bool
    has_failed: bool
    uncorrectable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImexDomain:
    """The IMEX domain as one node sees it. `nodes` maps address to its status."""

    status: str
    nodes: Mapping[str, str]
    unconnected: tuple[str, ...]
    versions: frozenset[str]


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """The devices of `nvidia-smi --query-gpu=… --format=csv,noheader,nounits`; other lines are skipped."""
    return tuple(
        Gpu(
            index=int(row[0]),
            uuid=row[1],
            name=row[2],
            bus_id=row[3],
            memory_mib=_number(row[4]) or 0,
            driver=row[5],
            pcie_width=_number(row[6]),
            mig=row[7],
            ecc_uncorrected=_number(row[8]),
            ecc=row[9],
        )
        for row in _rows(text, len(GPU_QUERY.split(",")))
        if row[0].isdecimal()
    )


def parse_compute_processes(text: str) -> tuple[ComputeProcess, ...]:
    """The processes of `--query-compute-apps`."""
    return tuple(
        ComputeProcess(pid=int(row[0]), name=row[1], gpu_uuid=row[3])
        for row in _rows(text, len(APP_QUERY.split(",")))
        if row[0].isdecimal()
    )


def parse_remapped_rows(text: str) -> tuple[RemappedRows, ...]:
    """The devices of `--query-remapped-rows`; one without this memory prints `[N/A]` and has none."""
    return tuple(
        RemappedRows(
            gpu_uuid=row[0],
            has_pending=_is_so(row[1]),
            has_failed=_is_so(row[2]),
            uncorrectable=_number(row[3]) or 0,
        )
        for row in _rows(text, len(ROW_QUERY.split(",")))
        if row[0].startswith("GPU-")
    )


def shows_processes(text: str) -> bool:
    """Whether `--query-compute-apps` was answered: every line is a process, and none is nobody."""
    return len(parse_compute_processes(text)) == _num_lines(text)


def count_rows(text: str) -> int:
    """Of how many devices `--query-remapped-rows` tells all: every cell is a word, a number or `[N/A]`."""
    return sum(
        row[0].startswith("GPU-")
        and all(cell.isdecimal() or cell in (YES, NO, *NOT_THERE) for cell in row[1:])
        for row in _rows(text, len(ROW_QUERY.split(",")))
    )


def count_ecc(text: str) -> int:
    """Of how many devices `--query-gpu` tells uncorrected errors of their memory, or that nothing counts them."""
    return sum(gpu.ecc_uncorrected is not None or gpu.has_ecc_off for gpu in parse_gpus(text))


def count_widths(text: str) -> int:
    """Of how many devices `--query-gpu` tells the PCIe lanes."""
    return sum(bool(gpu.pcie_width) for gpu in parse_gpus(text))


def count_modes(text: str) -> int:
    """Of how many devices `--query-gpu` tells if they are split (MIG)."""
    return sum(gpu.mig in MIG_MODES for gpu in parse_gpus(text))


def shows_fabric(text: str) -> bool:
    """Whether `-q` has a section of the fabric, with its state, for every device."""
    sections = parse_fabric(text)
    return len(sections) >= len(_heads(text)) and _all_told(one.state for one in sections)


def count_clock_reasons(text: str) -> int:
    """Of how many devices `-q` tells if hardware holds their clocks down."""
    return len({bus for bus, line in _lines_of_gpus(text) if SLOWDOWN.match(line.strip())})


def parse_fabric(text: str) -> tuple[Fabric, ...]:
    """The fabric section of each device in `nvidia-smi -q`; drivers without one give ()."""
    found: list[dict[str, str]] = []
    depth: int | None = None
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        name, colon, value = line.partition(":")
        if depth is None or (line.strip() and indent <= depth):
            depth = indent if line.strip() == "Fabric" else None
            if depth is not None:
                found.append({})
        elif colon and value.strip():
            # deeper subsections (Health) have lines of their own names
            found[-1].setdefault(name.strip().replace(" ", "").lower(), value.strip())
    return tuple(
        Fabric(
            state=one.get("state", ""),
            status=one.get("status", ""),
            clique_id=one.get("cliqueid", ""),
            cluster_uuid=one.get("clusteruuid", ""),
        )
        for one in found
    )


def parse_links(text: str) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Number of links and the inactive ones of each device, from `nvidia-smi nvlink -s`."""
    found: dict[int, tuple[int, tuple[int, ...]]] = {}
    gpu: int | None = None
    for line in text.splitlines():
        if head := re.match(r"GPU (\d+):", line):
            gpu = int(head[1])
            found[gpu] = (0, ())
        elif gpu is not None and (link := re.match(r"\s+Link (\d+): (.+)", line)):
            count, inactive = found[gpu]
            is_down = "inactive" in link[2].lower()
            found[gpu] = (count + 1, (*inactive, int(link[1])) if is_down else inactive)
    return found


def shows_no_links(text: str | None) -> bool:
    """Whether `nvlink -s` succeeded and printed nothing, as of devices whose links are off (driver 580 on an H200)."""
    return text is not None and not text.strip()


def parse_vbios(text: str) -> dict[str, str]:
    """The version of each device's VBIOS in `nvidia-smi -q`, by bus address; `N/A` is left out."""
    found: dict[str, str] = {}
    for bus, line in _lines_of_gpus(text):
        name, _, value = (part.strip() for part in line.partition(":"))
        if name == VBIOS and value not in ("", "N/A"):
            found.setdefault(bus, value)
    return found


def parse_slowdowns(text: str) -> dict[str, tuple[str, ...]]:
    """Why each device's clocks are held down now, as `nvidia-smi -q` names it (`HW Slowdown`), by bus address."""
    found: dict[str, tuple[str, ...]] = {}
    depth: int | None = None
    for bus, line in _lines_of_gpus(text):
        found.setdefault(bus, ())
        indent = len(line) - len(line.lstrip())
        name, _, value = (part.strip() for part in line.partition(":"))
        if depth is None or indent <= depth:
            depth = indent if line.strip() in REASONS else None
        elif value == "Active":
            found[bus] = (*found[bus], name)
    return found


def parse_xids(text: str) -> tuple[tuple[str, int], ...]:
    """(bus address, number) of every Xid in the kernel's log, each pair once, in order."""
    return tuple(dict.fromkeys((match[1], int(match[2])) for match in XID.finditer(text)))


def parse_switch_errors(text: str) -> tuple[tuple[str, int], ...]:
    """(bus address, number) of every SXid of an NVSwitch in the kernel's log, each pair once, in order."""
    return tuple(dict.fromkeys((match[1], int(match[2])) for match in SXID.finditer(text)))


def parse_diagnosis(text: str) -> dict[str, str] | None:
    """Worst status by test of `dcgmi diag -r 1 -j`: `Pass`, `Warn`, `Fail` or `Skip`; None for anything else.

    DCGM 3 writes one result per GPU, DCGM 4 a summary per test as well, and both write `Fail` for a warning: its
    numbers tell.
    """
    try:
        document = json.loads(text)
        body = document.get("DCGM Diagnostic") or document["DCGM GPU Diagnostic"]
        tests = [test for category in body["test_categories"] for test in category.get("tests", ())]
        return {str(test["name"]): _softened(_worst(_statuses(test)), test) for test in tests}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def parse_driver_file(text: str) -> str | None:
    """The driver's version in /proc/driver/nvidia/version."""
    line = next((line for line in text.splitlines() if line.startswith("NVRM version")), "")
    match = VERSION.search(line)
    return match[1] if match else None


def parse_program_version(text: str) -> str | None:
    """The version that `nv-fabricmanager --version` prints."""
    match = VERSION.search(text)
    return match[1] if match else None


def parse_imex(text: str) -> ImexDomain | None:
    """The domain of `nvidia-imex-ctl -N -j`; None for anything else."""
    try:
        domain = json.loads(text)
        nodes = list(domain["nodes"].values())
        return ImexDomain(
            status=str(domain["status"]),
            nodes={str(node["host"]): str(node["status"]) for node in nodes},
            unconnected=tuple(
                f"{node['host']} → {link['host']} {link['status']}"
                for node in nodes
                for link in node["connections"].values()
                if link["status"] != "CONNECTED"
            ),
            versions=frozenset(str(node["version"]) for node in nodes if node.get("version")),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _lines_of_gpus(text: str) -> Iterator[tuple[str, str]]:
    """Each line below a device's head in `nvidia-smi -q`, with the device's bus address."""
    bus: str | None = None
    for line in text.splitlines():
        if head := HEAD.match(line):
            bus = head[1]
        elif bus is not None and line.strip():
            yield bus, line


def _is_so(cell: str) -> bool:
    """What a cell with `Yes` or `No`, or with a number of rows, says."""
    return cell == YES or bool(_number(cell))


def _all_told(values: Iterable[object]) -> bool:
    """Whether there is something, and nothing of it is empty."""
    told = list(values)
    return bool(told) and all(told)


def _heads(text: str) -> list[str]:
    return [head[1] for line in text.splitlines() if (head := HEAD.match(line))]


def _num_lines(text: str) -> int:
    return sum(bool(line.strip()) for line in text.splitlines())


def _statuses(test: Mapping[str, object]) -> list[str]:
    results, summary = test.get("results"), test.get("test_summary")
    found = [str(one["status"]) for one in results] if isinstance(results, list) else []
    return found + ([str(summary["status"])] if isinstance(summary, Mapping) else [])


def _softened(status: str, test: Mapping[str, object]) -> str:
    """A failure that is nothing but settings is a warning."""
    results, summary = test.get("results"), test.get("test_summary")
    told = [*(results if isinstance(results, list) else []), summary]
    numbers = {
        one.get("error_id")
        for each in told
        if isinstance(each, Mapping)
        for one in each.get("warnings") or ()
    }
    return "Warn" if status == "Fail" and numbers and numbers <= SETTINGS else status


def _worst(statuses: list[str]) -> str:
    order = ("Fail", "Warn", "Pass", "Skip")
    known = [status.capitalize() for status in statuses if status.capitalize() in order]
    return min(known, key=order.index, default="Skip")


def _rows(text: str, width: int) -> list[list[str]]:
    """The lines with as many cells as were asked for."""
    reader = csv.reader(io.StringIO(text), skipinitialspace=True)
    rows = [[cell.strip() for cell in row] for row in reader]
    return [row for row in rows if len(row) == width]


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
