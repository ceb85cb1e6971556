"""An Ansible inventory read as Ansible reads it, and what its mistakes are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import ProblemsFound
from infra.inventory.ansible_file import expand_range, read_inventory
from infra.inventory.hosts import Inventory, InventoryHost
from infra.spec.load import PROJECT

EXAMPLES = sorted((PROJECT / "ansible" / "inventory" / "examples").glob("*.yml"))


def read(folder: Path, text: str) -> Inventory:
    path = folder / "hosts.yml"
    path.write_text(text, encoding="utf-8")
    return read_inventory(path, "hosts.yml")


def host(inventory: Inventory, name: str) -> InventoryHost:
    found = inventory.host(name)
    assert found is not None
    return found


def refused(folder: Path, text: str) -> list[str]:
    with pytest.raises(ProblemsFound) as caught:
        read(folder, text)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_read(path: Path) -> None:
    assert read_inventory(path).hosts


def test_groups_variables_and_our_own_keys(tmp_path: Path) -> None:
    inventory = read(
        tmp_path,
        """
all:
  vars: {ansible_user: ubuntu, moe: {interface: eth1, rdma_devices: [mlx5_0:1]}}
  children:
    prefill:
      hosts:
        p0: {ansible_host: 10.0.0.1, ansible_port: 2222, moe: {interface: ib0, address: 10.1.0.1}}
    decode:
      vars: {ansible_user: root}
      hosts: {d0: {ansible_host: 10.0.0.2}, d1: {ansible_host: 10.0.0.3, ansible_user: me}}
""",
    )
    first = host(inventory, "p0")
    assert (first.address, first.service_address, first.port) == ("10.0.0.1", "10.1.0.1", 2222)
    assert (first.user, first.interface, first.rdma_devices) == ("ubuntu", "ib0", ("mlx5_0:1",))
    assert first.groups == ("prefill",)
    assert [host(inventory, name).user for name in ("d0", "d1")] == ["root", "me"]
    assert [each.name for each in inventory.hosts] == ["p0", "d0", "d1"]


def test_a_hosts_own_variable_beats_every_group(tmp_path: Path) -> None:
    inventory = read(
        tmp_path,
        "all: {hosts: {a: {ansible_user: own}}, children: {prefill: {vars: {ansible_user: group}, hosts: {a: }}}}",
    )
    assert host(inventory, "a").user == "own"
    assert host(inventory, "a").groups == ("prefill",)


def test_ssh_arguments_are_words(tmp_path: Path) -> None:
    inventory = read(
        tmp_path, "all: {hosts: {a: {ansible_ssh_common_args: '-F /tmp/x -o \"ProxyJump=b c\"'}}}"
    )
    assert host(inventory, "a").ssh_arguments == ("-F", "/tmp/x", "-o", "ProxyJump=b c")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a", ["a"]),
        ("rack[01:03]", ["rack01", "rack02", "rack03"]),
        ("n[8:10]", ["n8", "n9", "n10"]),
        ("n[1:5:2]", ["n1", "n3", "n5"]),
        ("n[1:2:0]", ["n1", "n2"]),
        ("h-[a:c].x", ["h-a.x", "h-b.x", "h-c.x"]),
        ("r[1:2]-n[1:2]", ["r1-n1", "r1-n2", "r2-n1", "r2-n2"]),
        ("n[3:1]", []),
    ],
)
def test_ranges(pattern: str, names: list[str]) -> None:
    assert list(expand_range(pattern)) == names


def test_a_range_that_never_ends_is_refused(tmp_path: Path) -> None:
    (message,) = refused(tmp_path, "all: {hosts: {'a[0:9999]-[0:9999]': }}")
    assert "more than 20000 hosts" in message


def test_an_unknown_key_under_moe_is_refused_once_with_the_nearest(tmp_path: Path) -> None:
    text = "all:\n  vars:\n    moe:\n      interfaces: eth0\n  children:\n    prefill: {hosts: {a: }}\n"
    (message,) = refused(tmp_path, text)
    assert message.startswith("hosts.yml:4 all.vars.moe.interfaces")
    assert "Did you mean interface" in message


def test_an_unknown_key_under_a_hosts_moe_is_refused(tmp_path: Path) -> None:
    (message,) = refused(tmp_path, "all:\n  hosts:\n    a:\n      moe: {adress: 1.2.3.4}\n")
    assert "address" in message
    assert message.startswith("hosts.yml:4")


def test_other_variables_are_the_users_own(tmp_path: Path) -> None:
    assert read(tmp_path, "all: {vars: {rack: 7, vault: x}, hosts: {a: {slot: 3}}}").hosts


def test_two_names_for_one_address_are_refused(tmp_path: Path) -> None:
    (message,) = refused(
        tmp_path,
        "all:\n  hosts:\n    a: {ansible_host: 10.0.0.1}\n    b: {ansible_host: 10.0.0.1}\n",
    )
    assert "b and a have the same address 10.0.0.1" in message


def test_a_host_written_twice_in_one_group_is_refused(tmp_path: Path) -> None:
    (message,) = refused(
        tmp_path,
        "all:\n  hosts:\n    a: {ansible_host: 10.0.0.1}\n    a: {ansible_host: 10.0.0.2}\n",
    )
    assert "a is written twice" in message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no hosts"),
        ("all: {hosts: {}}", "has no hosts"),
        ("- a", "has no hosts"),
        ("all: 5", "Group all is not a map"),
        ("all: {hosts: {a: {moe: 5}}}", "moe is not a map"),
        ("all: {hosts: {a: {ansible_port: ssh}}}", "'ssh' is no port"),
        ("all: {hosts: {a: {ansible_port: 70000}}}", "70000 is no port"),
        ("all: {hosts: {a: {ansible_host: 'x; rm'}}}", "is no address"),
        ("all: {hosts: [a: 1", "This is not YAML"),
    ],
)
def test_what_is_no_inventory_is_refused(text: str, says: str, tmp_path: Path) -> None:
    assert any(says in message for message in refused(tmp_path, text))


def test_a_missing_file_is_told_with_the_option(tmp_path: Path) -> None:
    with pytest.raises(ProblemsFound, match="--inventory"):
        read_inventory(tmp_path / "none.yml")
