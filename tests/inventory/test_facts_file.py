"""What was found on hosts, beside their inventory: written, read, and filled in where the inventory is silent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.errors import StackError
from infra.inventory.ansible_file import read_inventory
from infra.inventory.book import InventoryAddresses, match_hosts, name_origins
from infra.inventory.collective_baseline import RecordedCollective
from infra.inventory.facts_file import (
    RecordedHost,
    facts_path,
    facts_text,
    read_collectives,
    read_facts,
    with_facts,
)
from infra.inventory.hosts import Inventory
from infra.plan.compile import compile_file
from infra.tasks.facts_writing import add_facts

FOUND = RecordedHost(
    address="10.0.0.1",
    machine_id="4d76",
    boot_id="e764",
    driver="580.95.05",
    interface="ens5",
    page_size=65536,
    rdma_devices=("mlx5_0:1", "mlx5_1:1"),
    gids={"mlx5_0:1": 3, "mlx5_1:1": 3},
    nvlink_domain="6f3d.1",
)
REACHED = RecordedCollective(
    group="unified/0",
    addresses=("10.0.0.1", "10.0.0.2"),
    num_ranks=16,
    backend="nccl",
    bus_gb_s=402.653,
    runtime="vllm/vllm-openai:v0.22.1",
)
TEXT = """\
all:
  children:
    unified:
      hosts:
        unified-0: {ansible_host: 10.0.0.1}
        unified-1: {ansible_host: 10.0.0.2, moe: {interface: bond0, rdma_devices: ["mlx5_9:1"]}}
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    path = tmp_path / "mine.yml"
    path.write_text(TEXT)
    return read_inventory(path)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = facts_path(tmp_path / "mine.yml")
    assert path.name == "mine.facts.yml"
    path.write_text(facts_text({"unified-0": FOUND}, ()))
    assert read_facts(path) == {"unified-0": FOUND}


def test_what_groups_reached_is_read_and_stays_when_facts_are_written_anew(tmp_path: Path) -> None:
    path = facts_path(tmp_path / "mine.yml")
    assert read_collectives(path) == ()
    assert add_facts(path, {}, [REACHED])
    assert read_facts(path) == {}
    assert add_facts(path, {"unified-0": FOUND}, ())
    # the first result stays: it is what later ones are held against
    assert not add_facts(path, {}, [replace(REACHED, bus_gb_s=410.0, runtime="x:2")])
    other = replace(REACHED, addresses=("10.0.0.2", "10.0.0.1"))
    assert add_facts(path, {}, [other])
    assert read_collectives(path) == (REACHED, other)
    assert read_facts(path) == {"unified-0": FOUND}


def test_facts_that_cannot_be_kept_are_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="cannot be written"):
        add_facts(tmp_path / "absent" / "mine.facts.yml", {}, [REACHED])


@pytest.mark.parametrize(
    "entries",
    [
        "7",
        "[7]",
        "[{group: a}]",
        "[{group: a, backend: nccl, runtime: x, addresses: [b], num_ranks: 2, bus_gb_s: 0}]",
    ],
)
def test_a_damaged_baseline_is_refused_with_what_to_do(entries: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.facts.yml"
    path.write_text(f"schema_version: 1\nhosts: {{}}\ncollectives: {entries}\n")
    with pytest.raises(StackError, match="collectives"):
        read_collectives(path)


def test_without_a_file_there_are_no_facts(tmp_path: Path) -> None:
    assert read_facts(tmp_path / "mine.facts.yml") == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "schema_version: 2\nhosts: {}\n",
        "schema_version: 1\n",
        "schema_version: 1\nhosts: {a: {address: x}}\n",
        "schema_version: 1\nhosts: {a: [",
    ],
)
def test_a_damaged_file_is_refused_with_what_to_do(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.facts.yml"
    path.write_text(text)
    with pytest.raises(StackError, match="fab facts"):
        read_facts(path)


@pytest.mark.parametrize("index", ["'3'", "x", ".nan", "true", "[3]"])
def test_an_index_of_a_gid_is_a_whole_number(index: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.facts.yml"
    text = facts_text({"a": FOUND}, ())
    (line,) = [line for line in text.splitlines() if "gids:" in line]
    path.write_text(text.replace(line, line.partition("gids:")[0] + f"gids: {{a: {index}}}"))
    with pytest.raises(StackError, match="The entry of a is not whole"):
        read_facts(path)


def test_names_that_the_inventory_leaves_open_are_filled_in(inventory: Inventory) -> None:
    first, second = with_facts(inventory, {"unified-0": FOUND}).hosts
    assert (first.interface, first.interface_origin) == ("ens5", "facts")
    assert (first.rdma_devices, first.rdma_origin) == (("mlx5_0:1", "mlx5_1:1"), "facts")
    assert second.interface_origin == "inventory"


def test_a_name_that_the_inventory_declares_wins(inventory: Inventory) -> None:
    found = {"unified-1": replace(FOUND, address="10.0.0.2")}
    second = with_facts(inventory, found).hosts[1]
    assert (second.interface, second.rdma_devices) == ("bond0", ("mlx5_9:1",))


def test_facts_of_another_address_fill_in_nothing(inventory: Inventory) -> None:
    found = {"unified-0": replace(FOUND, address="10.0.0.9")}
    assert with_facts(inventory, found) == inventory


def test_the_plan_takes_the_found_interface_and_says_so(
    inventory: Inventory, catalog: Catalog
) -> None:
    known = with_facts(inventory, {"unified-0": FOUND})
    compiled = compile_file("a2-2n-dp4tp4", catalog=catalog, inventory=known)
    env = {process.host: process.env["GLOO_SOCKET_IFNAME"] for process in compiled.plan.processes}
    assert env == {"unified-0": "ens5", "unified-1": "bond0"}
    assert name_origins(compiled.book) == [
        "interface ens5: found by `fab facts` (unified-0)",
        "HCAs mlx5_0:1, mlx5_1:1: found by `fab facts` (unified-0)",
        "NVLink domain 6f3d.1: found by `fab facts` (unified-0)",
        "interface bond0: moe.interface of the inventory (unified-1)",
        "HCAs mlx5_9:1: moe.rdma_devices of the inventory (unified-1)",
    ]


def test_a_placeholder_is_called_one(inventory: Inventory) -> None:
    book = InventoryAddresses(match_hosts([("unified-0", "unified")], inventory))
    assert "eth0: a placeholder" in name_origins(book)[0]
