"""`python -m infra.rehearsal.cluster`: a room to try stacks in by hand, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from infra.catalog.load import Catalog
from infra.errors import InfraError
from infra.rehearsal.cluster.room import ascend_nodes, open_room, racks


def main() -> int:
    """Start a room, say how it is reached, and wait."""
    parser = argparse.ArgumentParser(prog="python -m infra.rehearsal.cluster", description=__doc__)
    parser.add_argument(
        "--racks",
        default="8,4",
        help="nodes of each rack of GB200, with commas between (8,4)",
    )
    parser.add_argument("--ascend", type=int, default=4, help="hosts of Ascend A3 (4)")
    options = parser.parse_args()
    catalog = Catalog()
    sizes = [int(each) for each in options.racks.split(",")]
    groups = [*racks(catalog, *sizes), ascend_nodes(catalog, options.ascend)]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="moe-room-") as folder:
        try:
            with open_room(Path(folder) / "room", groups) as room:
                nodes = sum(group.count for group in groups)
                print(f"SIMULATION: a real control plane, {nodes} simulated nodes, no containers")
                print(f"export KUBECONFIG={room.plane.kubeconfig} PATH={room.programs.bin}:$PATH")
                for key, value in room.config.items():
                    print(f"pulumi config set {key} {value} --stack STACK")
                print("Ctrl-C ends it.", flush=True)
                signal.pause()
        except KeyboardInterrupt:
            return 0
        except InfraError as error:
            print(error, file=sys.stderr)
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
