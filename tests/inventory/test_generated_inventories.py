"""What we read of generated inventories is what Ansible reads of them; what only we refuse has a reason."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.errors import ProblemsFound
from infra.inventory.ansible_file import read_inventory
from infra.inventory.hosts import Inventory, InventoryHost
from tests.inventory.generated_inventories import Inventory as Generated

# Some in a row, and those that once showed a difference.
SEEDS = (*range(32), 145, 1048, 1092, 1108, 1181, 1199, 1213)
LISTINGS = Path(__file__).with_name("ansible_listings.py")
# What Ansible takes and we do not, as the message has it.
REFUSED_BY_US = ("is no port", "is a host and a group", "The inventory has no hosts.")


@pytest.fixture(scope="module")
def inventories(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    top = tmp_path_factory.mktemp("generated")
    return [write(top / str(seed), Generated(seed)) for seed in SEEDS]


@pytest.fixture(scope="module")
def listings(inventories: list[Path]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(LISTINGS)],
        input=json.dumps(list(map(str, inventories))),
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def write(folder: Path, generated: Generated) -> Path:
    for name, text in generated.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "hosts.yml"


def read(path: Path) -> Inventory | ProblemsFound:
    try:
        return read_inventory(path)
    except ProblemsFound as error:
        return error


def ours(host: InventoryHost) -> dict[str, Any]:
    return {
        "address": host.address,
        "port": host.port,
        "user": host.user,
        "identity": host.private_key_file,
        "arguments": list(host.ssh_arguments),
        "interface": host.interface,
        "rdma_devices": list(host.rdma_devices),
        "nvlink_domain": host.nvlink_domain,
        "mtu": host.mtu,
    }


def theirs(resolved: dict[str, Any]) -> dict[str, Any]:
    moe = resolved.pop("moe")
    return {
        **resolved,
        "interface": moe.get("interface", "eth0"),
        "rdma_devices": moe.get("rdma_devices", []),
        "nvlink_domain": moe.get("nvlink_domain"),
        "mtu": moe.get("mtu"),
    }


@pytest.mark.slow  # Ansible reads them, each in a process of its own
def test_what_both_read_is_the_same(
    inventories: list[Path], listings: list[dict[str, Any]]
) -> None:
    num_read = 0
    for path, listing in zip(inventories, listings, strict=True):
        found = read(path)
        if "error" in listing:
            assert isinstance(found, ProblemsFound), f"{path}: {listing['error']}"
        elif isinstance(found, ProblemsFound):
            assert all(any(words in p.what for words in REFUSED_BY_US) for p in found.problems)
        else:
            num_read += 1
            hosts = {host.name: ours(host) for host in found.hosts}
            expected = {name: theirs(resolved) for name, resolved in listing["hosts"].items()}
            assert hosts == expected, path
            for name, group in listing["groups"].items():
                own = group.get("hosts", [])
                if name != "ungrouped":
                    assert list(found.members.get(name, ()))[: len(own)] == own, (path, name)
    assert num_read > len(SEEDS) / 2
