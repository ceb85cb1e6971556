#!/usr/bin/python3 -IS
"""Makes the files of a simulated host that drivers make on a real one. Runs at each boot.

Device nodes are regular files: the kernel has no such devices, and the container stand-in asks only
whether they are there. Everything follows from `host.json`; running it again changes nothing.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING or __package__:
    from .host_state import present_devices, read_host, state_folder
    from .vendor_files import vendor_files
else:
    sys.path.insert(0, os.environ.get("MOE_REHEARSAL_LIBRARY", "/opt/moe-rehearsal"))
    from standins.host_state import present_devices, read_host, state_folder
    from standins.vendor_files import vendor_files


def main(arguments: list[str]) -> int:
    """Make the files below a root folder.

    Args:
        arguments: as in `sys.argv`; the first word, if any, is the root folder (default `/`).
    """
    root = arguments[1].rstrip("/") if len(arguments) > 1 else ""
    host = read_host()
    for path, content in vendor_files(host).items():
        place_file(root + path, content)
    folder = state_folder() + "/devices"
    os.makedirs(folder, exist_ok=True)
    for index in present_devices(host):
        place_file(f"{folder}/{index}", "")
    return 0


def place_file(path: str, content: str) -> None:
    """Write a file unless it is there: what was changed since the last boot stays changed."""
    if os.path.exists(path):
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)
    os.chmod(path, 0o666 if "/dev/" in path else 0o644)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
