"""`dcgmi diag -r 1 -j`: the first level of DCGM's diagnosis, which looks at software and settings.

Written from DCGM's user guide (release 4, "DCGM Diagnostics"). `faults.diagnosis` {test: status} says what does
not pass.
"""

from __future__ import annotations

import os

from .documents import format_document
from .host_state import STANDIN_NOTICE, fault, present_devices, read_host

TESTS = (
    "Denylist", "NVML Library", "CUDA Main Library", "Permissions and OS Blocks", "Persistence Mode",
    "Environment Variables", "Page Retirement/Row Remap", "Graphics Processes", "Inforom",
)  # fmt: skip
PASS = "Pass"  # noqa: S105 - a verdict
EXIT_BAD_OPTION = 1
EXIT_FAILED = 1


def main(arguments: list[str]) -> int:
    """Do what `dcgmi` was asked for.

    Args:
        arguments: as in `sys.argv`.
    """
    if arguments[1:] != ["diag", "-r", "1", "-j"]:
        os.write(2, f"{STANDIN_NOTICE}: only diag -r 1 -j is played\n".encode())
        return EXIT_BAD_OPTION
    host = read_host()
    verdicts = dict.fromkeys(TESTS, PASS) | (fault(host, "diagnosis") or {})
    tests = [
        {
            "name": test,
            "results": [
                {"entity_group": "GPU", "entity_id": index, "status": status}
                for index in present_devices(host)
            ],
            "test_summary": {"status": status},
        }
        for test, status in verdicts.items()
    ]
    category = {"category": "Deployment", "tests": tests}
    document = {"Driver Version Detected": host["driver_version"], "test_categories": [category]}
    print(format_document({"DCGM Diagnostic": document}))
    return EXIT_FAILED if "Fail" in verdicts.values() else 0
