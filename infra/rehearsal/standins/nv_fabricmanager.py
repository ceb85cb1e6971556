"""`nv-fabricmanager --version`, in the words of its package; it serves nothing.

Written from NVIDIA's Fabric Manager user guide, command line options. `fabric_manager_version` of `host.json` says
which version is installed, the driver's by default.
"""

from __future__ import annotations

import os

from .host_state import STANDIN_NOTICE, read_host

EXIT_BAD_OPTION = 1


def main(arguments: list[str]) -> int:
    """Do what `nv-fabricmanager` was asked for.

    Args:
        arguments: as in `sys.argv`.
    """
    if arguments[1:] not in (["-v"], ["--version"]):
        os.write(2, f"{STANDIN_NOTICE}: only --version is played\n".encode())
        return EXIT_BAD_OPTION
    host = read_host()
    print(
        f"Fabric Manager version is : {host.get('fabric_manager_version', host['driver_version'])}"
    )
    return 0
