"""The shipped example inventories: each serves its stack, and Ansible's rules hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.inventory.ansible_file import read_inventory
from infra.plan.compile import compile_file
from infra.spec.load import load_stack, stack_names

EXAMPLES = Path(__file__).parents[2] / "ansible" / "inventory" / "examples"
CATALOG = Catalog()
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.yml"))


@pytest.mark.parametrize("name", NAMES)
def test_example_names_exactly_the_hosts_of_its_stack(name: str) -> None:
    inventory = read_inventory(EXAMPLES / f"{name}.yml")
    plan = compile_file(name, catalog=CATALOG, inventory=inventory).plan
    assert [host.name for host in inventory.hosts] == [host.name for host in plan.hosts]
    assert [host.address for host in inventory.hosts] == [host.address for host in plan.hosts]
    for host, of in zip(inventory.hosts, plan.hosts, strict=True):
        assert of.roles[0] in host.groups
        assert host.address.startswith("192.0.2.")


@pytest.mark.parametrize("name", NAMES)
def test_example_gives_the_variables_that_its_recipes_wait_for(name: str) -> None:
    inventory = read_inventory(EXAMPLES / f"{name}.yml")
    compiled = compile_file(name, catalog=CATALOG, inventory=inventory)
    for settings in compiled.resolved.roles:
        expected = {variable for variable, v in settings.env.items() if "{" in v.value}
        (process, *_) = [p for p in compiled.plan.processes if p.role == settings.role]
        assert expected <= set(process.env)


def test_every_stack_on_existing_hosts_has_an_example() -> None:
    on_hosts = {n for n in stack_names() if load_stack(n).spec.platform == "existing-hosts"}
    assert {*on_hosts, "gb200-2p1d"} == set(NAMES)
