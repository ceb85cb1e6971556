"""Inventories that would take for ever: groups in a lattice, chains of groups, ranges of everybody."""

from __future__ import annotations

import time

import pytest

from infra.errors import ProblemsFound
from infra.inventory.ansible_file import parse_inventory

LIMIT_S = 10.0


def lattice(layers: int) -> str:
    """Each group lies in both groups of the layer above: 2^layers ways lead up from the host."""
    rows = []
    for layer in range(layers):
        below = f"{{a{layer + 1}: , b{layer + 1}: }}"
        rows += [
            f"{name}{layer}: {{children: {below}, vars: {{{name}{layer}: 1}}}}" for name in "ab"
        ]
    return "\n".join([*rows, f"a{layers}: {{hosts: {{one: {{ansible_host: 192.0.2.1}}}}}}"])


def test_a_lattice_of_groups_is_walked_once() -> None:
    begun = time.process_time()
    inventory = parse_inventory(lattice(24), "hosts.yml")
    assert time.process_time() - begun < LIMIT_S
    (host,) = inventory.hosts
    assert len(host.groups) == 2 * 24 + 1
    assert inventory.members["b0"] == ("one",)


def test_a_chain_of_groups_is_no_deeper_than_the_interpreter() -> None:
    chain = "\n".join(f"g{i}: {{children: {{g{i + 1}: }}}}" for i in range(940))
    inventory = parse_inventory(f"{chain}\ng940: {{hosts: {{one: }}}}", "hosts.yml")
    assert len(inventory.hosts[0].groups) == 941


def test_groups_that_contain_each_other_are_named() -> None:
    chain = "\n".join(f"g{i}: {{children: {{g{i + 1}: }}}}" for i in range(2_000))
    with pytest.raises(ProblemsFound, match="Groups contain each other: g5 in"):
        parse_inventory(f"{chain}\ng2000: {{children: {{g5: }}}}", "hosts.yml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: {hosts: {'h[1:999999999]': }}", "expands to more than 20000 hosts"),
        ("a: {hosts: {'h[1:99][1:99][1:99]': }}", "expands to more than 20000 hosts"),
        ("a: {hosts: {'h[1:" + "9" * 900 + "]': }}", "names no hosts"),
        (
            "\n".join(f"g{i}: {{hosts: {{'h[1:9999]': }}}}" for i in range(200)),
            "takes more than 1000000 steps",
        ),
        (
            "\n".join(
                f"g{i}: {{children: {{g{i + 1}: }}, hosts: {{h{i}: }}}}" for i in range(2_500)
            ),
            "takes more than 1000000 steps",
        ),
        ("a: {hosts: {b: {ansible_port: " + "9" * 30 + "}}}", "a number there has 30 characters"),
        ("a: {hosts: {b: {ansible_port: '" + "9" * 5_000 + "'}}}", "is no port"),
        ("a: {vars: {x: " + "1:" * 20_000 + "1}}", "a number there has thousands of digits"),
    ],
    ids=["range", "ranges", "digits", "again", "chain", "number", "text", "sexagesimal"],
)
def test_what_takes_too_much_is_refused_soon(text: str, said: str) -> None:
    begun = time.process_time()
    with pytest.raises(ProblemsFound, match=said):
        parse_inventory(text, "hosts.yml")
    assert time.process_time() - begun < LIMIT_S
