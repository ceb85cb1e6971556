"""Plan hosts matched to inventory hosts."""

from __future__ import annotations

import ipaddress

import pytest

from infra.errors import StackError
from infra.inventory.book import (
    InventoryAddresses,
    documentation_hosts,
    match_hosts,
    serving_hosts,
)
from infra.inventory.hosts import Inventory, InventoryHost

WANTED = (("prefill-0", "prefill"), ("decode-0", "decode"), ("decode-1", "decode"))


def entry(name: str, number: int, *groups: str) -> InventoryHost:
    return InventoryHost(
        name=name,
        groups=groups,
        address=f"10.0.0.{number}",
        service_address=f"10.0.0.{number}",
        port=22,
        user=None,
        private_key_file=None,
        ssh_arguments=(),
        host_key=None,
        interface="eth0",
        rdma_devices=(),
        instance_id=None,
    )


def inventory(*hosts: InventoryHost) -> Inventory:
    return Inventory(path="hosts.yml", hosts=hosts)


def addresses(found: dict[str, InventoryHost]) -> list[str]:
    return [host.address.rpartition(".")[2] for host in found.values()]


def test_names_decide_before_order() -> None:
    hosts = [
        entry(name, i) for i, name in enumerate(("decode-1", "other", "prefill-0", "decode-0"))
    ]
    assert addresses(match_hosts(WANTED, inventory(*hosts))) == ["2", "3", "0"]


def test_other_names_are_taken_in_the_order_of_the_roles_group() -> None:
    hosts = [entry("d", 1, "decode"), entry("p", 2, "prefill"), entry("e", 3, "decode")]
    found = match_hosts(WANTED, inventory(*hosts))
    assert addresses(found) == ["2", "1", "3"]
    assert [host.name for host in found.values()] == ["prefill-0", "decode-0", "decode-1"]
    serving = serving_hosts(WANTED, inventory(*hosts))
    assert {plan: host.name for plan, host in serving.items()} == {
        "prefill-0": "p",
        "decode-0": "d",
        "decode-1": "e",
    }


def test_a_groups_own_order_decides_and_not_where_hosts_are_first_written() -> None:
    hosts = (entry("a", 1, "prefill"), entry("b", 2, "decode"), entry("c", 3, "decode"))
    listed = Inventory(path="hosts.yml", hosts=hosts, members={"decode": ("c", "b")})
    assert addresses(match_hosts(WANTED, listed)) == ["1", "3", "2"]


def test_without_groups_hosts_are_taken_in_file_order() -> None:
    hosts = [entry(name, i) for i, name in enumerate("abc")]
    assert addresses(match_hosts(WANTED, inventory(*hosts))) == ["0", "1", "2"]


def test_a_host_serves_once_where_only_one_role_has_a_group() -> None:
    hosts = [entry("a", 1, "prefill"), entry("b", 2), entry("c", 3)]
    assert addresses(match_hosts(WANTED, inventory(*hosts))) == ["1", "2", "3"]


def test_a_host_in_two_groups_serves_one_role() -> None:
    hosts = [entry("a", 1, "prefill", "decode"), entry("b", 2, "decode"), entry("c", 3, "decode")]
    assert addresses(match_hosts(WANTED, inventory(*hosts))) == ["1", "2", "3"]
    with pytest.raises(StackError, match="of which others take"):
        match_hosts(WANTED, inventory(*hosts[:2], entry("x", 9)))


def test_too_few_hosts_are_told_with_both_numbers() -> None:
    hosts = [entry("p", 1, "prefill"), entry("d", 2, "decode")]
    with pytest.raises(StackError) as caught:
        match_hosts(WANTED, inventory(*hosts))
    assert caught.value.where == "hosts.yml decode"
    assert "needs 2 hosts here (decode-0, decode-1), the inventory has 1" in caught.value.what
    assert "Add 1 host" in caught.value.fix


def test_no_host_at_all_is_told() -> None:
    with pytest.raises(StackError, match="needs 3 hosts"):
        match_hosts(WANTED, inventory())


@pytest.mark.parametrize("count", [1, 200, 201, 3000])
def test_documentation_addresses_are_distinct_and_reserved(count: int) -> None:
    names = [f"h{i}" for i in range(count)]
    book = documentation_hosts(names)
    found = [ipaddress.ip_address(book.address(name, seen_from="h0")) for name in names]
    assert len(set(found)) == count
    block = ipaddress.ip_network("192.0.2.0/24" if count <= 200 else "198.18.0.0/15")
    assert all(address in block for address in found)
    assert book.is_documentation


def test_facts_come_from_the_inventory() -> None:
    book = InventoryAddresses({"a": entry("a", 7)})
    assert book.facts("a").address == book.address("a", seen_from="b") == "10.0.0.7"
    assert not book.is_documentation
