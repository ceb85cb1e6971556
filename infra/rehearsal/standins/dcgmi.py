"""`dcgmi diag -r 1`, as a table or with `-j`: the first level of DCGM's diagnosis, one test of software and settings.

Written from NVIDIA/DCGM v4.6.0: dcgmi/Diag.cpp, dcgmi/main_dcgmi.cpp, nvvs/src/Software.cpp, dcgmlib/dcgm_errors.h.
It asks no daemon: where nv-hostengine does not run, `diag` starts an engine of its own without a word
(StartDiag::DoExecuteConnectionFailure, in every release since 2.1). JSON says `Fail` of a warning, too.
`faults.diagnosis` {gpu: [number of DCGM's error]} says what is found, beside a persistence mode that is off.
"""

from __future__ import annotations

import os

from .documents import format_document
from .host_state import STANDIN_NOTICE, fault_of, present_devices, read_host
from .nvidia_smi import persistence_mode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = "4.6.0"
EXIT_NOT_PLAYED = 1
# The status of the library, a negative number, is the exit code: DCGM_ST_NVVS_ERROR, DCGM_ST_NVVS_ISOLATE_ERROR.
EXIT_ERROR = 256 - 30
EXIT_ISOLATE = 256 - 51
ISOLATE = 2
GPU_GROUP = 1
PERSISTENCE_OFF = 29
PASS, WARN, FAIL = "Pass", "Warn", "Fail"
RULE = f"+{'-' * 27}+{'-' * 48}+"
WIDTH = 45
# Number → result, category, severity, message
ERRORS = {
    9: (
        FAIL, 15, 4,
        ("Inforom: A corrupt InfoROM has been detected in GPU {gpu}. "
         "Flash the InfoROM to clear this corruption."),
    ),
    PERSISTENCE_OFF: (
        WARN, 8, 5,
        ("Persistence Mode: Persistence mode for GPU {gpu} is disabled. "
         'Enable persistence mode by running "nvidia-smi -i <gpuId> -pm 1 " as root.'),
    ),
    118: (
        WARN, 10, ISOLATE,
        "SRAM Threshold Count: SRAM Threshold Count exceeded on GPU {gpu}: 1 Check memory",
    ),
}  # fmt: skip


def main(arguments: list[str]) -> int:
    """Do what `dcgmi` was asked for.

    Args:
        arguments: as in `sys.argv`.
    """
    if arguments[1:4] != ["diag", "-r", "1"] or arguments[4:] not in ([], ["-j"]):
        os.write(2, f"{STANDIN_NOTICE}: only diag -r 1 is played, with and without -j\n".encode())
        return EXIT_NOT_PLAYED
    host = read_host()
    found = _errors(host)
    numbers = [number for each in found.values() for number in each]
    results = [ERRORS[number][0] for number in numbers]
    worst = FAIL if FAIL in results else WARN if results else PASS
    print(_document(host, found, worst) if arguments[4:] else _table(host, found, worst))
    if any(ERRORS[number][2] == ISOLATE for number in numbers):
        return EXIT_ISOLATE
    return EXIT_ERROR if numbers else 0


def _errors(host: dict[str, Any]) -> dict[int, list[int]]:
    """Return the numbers of the errors that each GPU has."""
    is_off = persistence_mode(host) != "Enabled"
    return {
        gpu: [*([PERSISTENCE_OFF] if is_off else []), *fault_of(host, "diagnosis", gpu, ())]
        for gpu in present_devices(host)
    }


def _document(host: dict[str, Any], found: dict[int, list[int]], worst: str) -> str:
    """Return the answer in JSON: the one test's result stands at every GPU, an error at its own."""
    status = PASS if worst == PASS else FAIL
    results = [
        {
            "entity_group": "GPU",
            "entity_group_id": GPU_GROUP,
            "entity_id": gpu,
            "status": status,
            **_warnings({gpu: numbers}),
        }
        for gpu, numbers in found.items()
    ]
    summary = {"status": status, **_warnings(found)}
    test = {"name": "software", "results": results, "test_summary": summary}
    diagnostic = {"test_categories": [{"category": "Deployment", "tests": [test]}]}
    metadata = {"Driver Version Detected": host["driver_version"], "version": VERSION}
    return format_document({"DCGM Diagnostic": diagnostic, "metadata": metadata}, "  ")


def _warnings(found: dict[int, list[int]]) -> dict[str, list[dict[str, Any]]]:
    """Return what is said of errors; nothing for none."""
    entries = [
        {
            "error_category": ERRORS[number][1],
            "error_id": number,
            "error_severity": ERRORS[number][2],
            "warning": ERRORS[number][3].format(gpu=gpu),
        }
        for gpu, numbers in found.items()
        for number in numbers
    ]
    return {"warnings": entries} if entries else {}


def _table(host: dict[str, Any], found: dict[int, list[int]], worst: str) -> str:
    """Return the answer for people, who are told a warning from a failure in the test's own line."""
    lines = ["Successfully ran diagnostic for group.", RULE, _row("Diagnostic", "Result")]
    lines += [RULE.replace("-", "="), _title("Metadata"), _row("DCGM Version", VERSION)]
    lines += [_row("Driver Version Detected", host["driver_version"]), _title("Deployment")]
    lines.append(_row("software", worst))
    for gpu, numbers in found.items():
        lines.append(_row("", f"GPU{gpu}: {PASS if worst == PASS else FAIL}"))
        for number in numbers:
            text, head = ERRORS[number][3].format(gpu=gpu), f"Warning: GPU{gpu}"
            for start in range(0, len(text), WIDTH):
                lines.append(_row("" if start else head, text[start : start + WIDTH]))
    return "\n".join([*lines, RULE])


def _row(name: str, text: str) -> str:
    return f"| {name:25} | {text:46} |"


def _title(category: str) -> str:
    return f"|{f'-----  {category}  ':-<27}+{'-' * 48}|"
