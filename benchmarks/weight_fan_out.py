"""Weights from one host to one and to eight, over links that are slower than two cores.

python benchmarks/weight_fan_out.py           # the table of docs/performance.md; root, some two minutes

Every simulated host sends through a token bucket (tc tbf) on its own interface, so that the link is the floor:
the checkpoint's bytes over that rate. What is timed is the product's own staging, from the first look at the
hosts until all are whole, over SSH.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from infra.inventory.hosts import InventoryHost
from infra.launch.deployment import Limits, Pace
from infra.launch.fleet import SshFleet, SystemClock
from infra.launch.staging.checkpoints import stage
from infra.launch.staging.order import Staging
from infra.launch.staging.plan import Checkpoint
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.hosts import LabHost
from infra.rehearsal.lab.starting import start_lab
from infra.remote.connecting import SshOptions
from infra.render.weight_source import WeightSource

NUM_HOSTS = 8
RATE_MBIT = 40
NUM_FILES, FILE_BYTES = 24, 4_000_000
RUNS = 3
GOAL = 1.3
FOLDER, REVISION = "/models/kimi", "abc"
BITS = 8
# The checkpoint, made on the host that has it: folder, number of files, bytes of each.
MAKE = """
import hashlib, json, os, sys
folder, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.makedirs(folder)
rows = []
for n in range(count):
    name, data = "model-%05d.safetensors" % n, os.urandom(size)
    rows.append({"name": name, "size_bytes": size, "sha256": hashlib.sha256(data).hexdigest()})
    with open(os.path.join(folder, name), "wb") as stream:
        stream.write(data)
with open(os.path.join(folder, "manifest.json"), "w") as stream:
    json.dump({"schema_version": 1, "files": rows}, stream)
"""


def main() -> None:
    """Print the table."""
    names = ["seed", *(f"host-{n}" for n in range(NUM_HOSTS))]
    addresses = {name: f"192.0.2.{n}" for n, name in enumerate(names, start=1)}
    hosts = [LabHost(name=name, address=addresses[name]) for name in names]
    with (
        tempfile.TemporaryDirectory(prefix="fan-out-") as folder,
        start_lab(Path(folder) / "lab", hosts) as lab,
    ):
        lab.wait_ready(60.0)
        below = f"{FOLDER}/{REVISION}"
        words = ["python3", "-c", MAKE, below, str(NUM_FILES), str(FILE_BYTES)]
        lab.run("seed", words).check_returncode()
        bucket = ["tbf", "rate", f"{RATE_MBIT}mbit", "burst", "64k", "latency", "100ms"]
        for name in names:
            lab.run(name, ["tc", "qdisc", "add", "dev", "eth0", "root", *bucket]).check_returncode()
        times = {
            count: [_timed(lab, addresses, count) for _ in range(RUNS)] for count in (1, NUM_HOSTS)
        }
    floor_s = NUM_FILES * FILE_BYTES * BITS / (RATE_MBIT * 1e6)
    one_s = min(times[1])
    print(
        f"{NUM_FILES * FILE_BYTES / 1e6:.0f} MB over links of {RATE_MBIT} Mbit/s, best of {RUNS}.\n"
    )
    print("| from one host to | best s | median s | of the link's floor | against one host |")
    print("|---|---|---|---|---|")
    print(f"| (floor: the bytes over the link) | {floor_s:.1f} | | 1.00 | |")
    for count, seconds in times.items():
        best, median = min(seconds), statistics.median(seconds)
        label = "one host" if count == 1 else f"{count} hosts"
        print(
            f"| {label} | {best:.1f} | {median:.1f} | {best / floor_s:.2f} | {best / one_s:.2f} |"
        )
    print(f"\nGoal: at most {GOAL} times one host.")


def _timed(lab: Lab, addresses: dict[str, str], count: int) -> float:
    """Seconds that one staging to so many hosts takes."""
    names = [f"host-{n}" for n in range(count)]
    for name in names:
        lab.run(name, ["rm", "-rf", FOLDER]).check_returncode()
    checkpoint = Checkpoint(
        id="kimi",
        repository="nobody/kimi",
        revision=REVISION,
        target=f"{FOLDER}/{REVISION}",
        hosts=tuple(names),
        readers=tuple(names),
        source=WeightSource(document={}, host="seed", shown="seed", secret=None),
    )
    reached = {name: _inventory_host(lab, name, addresses[name]) for name in ("seed", *names)}
    fleet = SshFleet(reached, SshOptions())
    begun = time.monotonic()
    try:
        staging = Staging(
            fleet=fleet,
            addresses=addresses,
            secrets={},
            pace=Pace(limits=Limits(), clock=SystemClock(), say=lambda _line: None),
            operator="benchmark",
            token=os.urandom(16).hex(),
        )
        outcomes = stage(staging, [checkpoint])
    finally:
        fleet.close()
    seconds = time.monotonic() - begun
    wrong = [one for one in outcomes if not one.ok]
    if wrong:
        raise SystemExit(str(wrong))
    return seconds


def _inventory_host(lab: Lab, name: str, address: str) -> InventoryHost:
    return InventoryHost(
        name=name,
        groups=(),
        address=address,
        service_address=address,
        port=22,
        user="ubuntu",
        private_key_file=None,
        ssh_arguments=("-F", str(lab.ssh_config)),
        host_key=None,
        interface="eth0",
        rdma_devices=(),
        instance_id=None,
    )


if __name__ == "__main__":
    main()
