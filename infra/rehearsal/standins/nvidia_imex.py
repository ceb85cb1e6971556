"""`nvidia-imex-ctl`: the state of this node (`-q`) and of the domain (`-N`, with `-j` as JSON).

The layout of the JSON was seen on a live two-node domain in a public validation suite (2026-09). The daemon is asked:
where it does not run nothing is told (with what words is not on record).
"""

from __future__ import annotations

import os
import time

from .documents import format_document
from .host_state import STANDIN_NOTICE, fault, read_host, run_folder
from .standin_options import BadOption, read_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OPTIONS = {
    "-N": False, "--nodes": False, "-q": False, "--query": False, "-j": False, "--json": False, "-H": False,
    "-a": False, "--all": False, "-c": True, "-v": False, "--version": False, "-h": False, "--help": False,
}  # fmt: skip
NODES_READ = (
    "imex-nodes"  # below the run folder; nvidia-imex.service copies the list there when it starts
)
EXIT_NO_DAEMON = 1


def main(arguments: list[str]) -> int:
    """Do what `nvidia-imex-ctl` was asked for.

    Args:
        arguments: as in `sys.argv`.
    """
    try:
        options = read_options(arguments[1:], OPTIONS)
    except BadOption as error:
        os.write(2, f"nvidia-imex-ctl: unrecognized option '{error.word}'\n".encode())
        return 1
    host = read_host()
    if "-v" in options or "--version" in options:
        print(f"IMEX version is: {host['driver_version']}")
        os.write(2, f"{STANDIN_NOTICE}\n".encode())
        return 0
    nodes = _nodes_read()
    if nodes is None:
        os.write(2, f"{STANDIN_NOTICE}: the IMEX daemon does not run\n".encode())
        return EXIT_NO_DAEMON
    domain = describe_domain(host, nodes)
    if "-N" in options or "--nodes" in options:
        if "-j" in options or "--json" in options:
            print(format_document(domain, "  "))
        else:
            _print_matrix(domain)
        return 0
    own = [node for node in domain["nodes"].values() if node["host"] == host["address"]]
    print(own[0]["status"] if own else "UNAVAILABLE")
    return 0


def describe_domain(host: dict[str, Any], nodes: list[str]) -> dict[str, Any]:
    """Return the domain as `-N -j` prints it: every configured node, and what each sees of each."""
    expected = host.get("imex_nodes") or []
    # a node that is not in the others' lists, or whose list differs, never gets a quorum
    broken = set(fault(host, "imex_down") or ()) | (set(nodes) ^ set(expected))
    described = {}
    for position, node in enumerate(nodes):
        is_ready = node not in broken
        described[str(position)] = {
            "status": "READY" if is_ready else "UNAVAILABLE",
            "host": node,
            "connections": {
                str(other_position): {
                    "host": other,
                    "status": "CONNECTED" if is_ready and other not in broken else "INVALID",
                    "changed": False,
                }
                for other_position, other in enumerate(nodes)
            },
            "changed": False,
            "version": host["driver_version"],
        }
    status = fault(host, "imex_status")
    if not status:
        status = "UP" if nodes and not broken else "DEGRADED" if nodes else "DOWN"
    now = time.localtime()
    return {
        "nodes": described,
        "timestamp": f"{now.tm_mon}/{now.tm_mday}/{now.tm_year} "
        + time.strftime("%H:%M:%S.000", now),
        "status": status,
    }


def _nodes_read() -> list[str] | None:
    """Return the addresses that the daemon has read when it started; None where it does not run."""
    try:
        with open(f"{run_folder()}/{NODES_READ}", encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except FileNotFoundError:
        return None
    return [line for line in lines if line and not line.startswith("#")]


def _print_matrix(domain: dict[str, Any]) -> None:
    """Print the domain as text: the nodes, then who is connected to whom."""
    letters = {"CONNECTED": "C", "INVALID": "I"}
    print(
        "Connectivity Table Legend:\nI - Invalid - Node wasn't reachable, no connection status available"
    )
    print(
        "N - Never Connected\nR - Recovering - Connection was lost, but clean up has not yet been triggered."
    )
    print("D - Disconnected - Connection was lost, and clean up has been triggered.")
    print("A - Authenticating - If GSSAPI enabled, client has initiated mutual authentication.")
    print(
        "!V! - Version mismatch, communication disabled.\n!M! - Node map mismatch, communication disabled."
    )
    print("C - Connected - Ready for operation\n")
    print(domain["timestamp"] + "\nNodes:")
    for position, node in domain["nodes"].items():
        print(
            f"Node #{position}   - {node['host']:<15} - {node['status']:<12} - Version: {node['version']}"
        )
    print("\n Nodes From\\To  " + "   ".join(domain["nodes"]))
    for position, node in domain["nodes"].items():
        states = "   ".join(letters[link["status"]] for link in node["connections"].values())
        print(f"       {position}        {states}")
    print(f"Domain State: {domain['status']}")
