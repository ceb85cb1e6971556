"""Hosts by both of their names in what a task says."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from infra.inventory.ansible_file import read_inventory
from infra.inventory.book import match_hosts
from infra.inventory.hosts import Inventory, InventoryHost
from infra.tasks.completion import Completion
from infra.tasks.host_names import BothNames, serving
from infra.tasks.options import Options
from infra.tasks.output import AsWritten, Output, table
from tests.inventory.test_book import entry


def host(name: str, address: str = "192.0.2.1") -> InventoryHost:
    return replace(entry(name, 1, "decode"), address=address, service_address=address)


@pytest.fixture
def both() -> BothNames:
    names = BothNames()
    names.learn({"decode-0": "gpu7a", "decode-1": "gpu7b.example.com", "decode-10": "alpha"})
    return names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("decode-0: no answer", "decode-0 (gpu7a): no answer"),
        ("gpu7a: no answer", "decode-0 (gpu7a): no answer"),
        ("decode-0 (gpu7a): no answer", "decode-0 (gpu7a): no answer"),
        ("gpu7b.example.com, decode-0.", "decode-1 (gpu7b.example.com), decode-0 (gpu7a)."),
        ("decode-10 is away", "decode-10 (alpha) is away"),
        ("alpha and beta", "alpha and beta"),  # a word, and no name alone
        ("decode-0/3 has ended", "decode-0/3 has ended"),  # a process
        ("the group decode-0-x", "the group decode-0-x"),
        ("decode-0: `ssh decode-0 ls`", "decode-0 (gpu7a): `ssh decode-0 ls`"),
        ("Next: fab replace-host decode-0 NEW", "Next: fab replace-host decode-0 NEW"),
        ("ubuntu@gpu7a", "ubuntu@gpu7a"),
    ],
)
def test_a_host_is_named_by_both_names_once_and_commands_stay(
    both: BothNames, text: str, said: str
) -> None:
    assert both(text) == said
    assert both(said) == said


def test_where_the_inventory_has_the_plans_names_nothing_changes() -> None:
    names = BothNames()
    names.learn({"decode-0": "decode-0"})
    assert names("decode-0: no answer") == "decode-0: no answer"


def test_columns_stay_aligned_and_what_hosts_wrote_stays() -> None:
    inventory = Inventory(path="i.yml", hosts=(host("gpu7a"), host("b-2", "192.0.2.2")), members={})
    hosts = match_hosts([("decode-0", "decode"), ("decode-1", "decode")], inventory)
    out = Output(
        wants_json=False,
        has_colour=False,
        complete=Completion(lambda: Options({})),
        stdout=io.StringIO(),
        stderr=io.StringIO(),
    )
    out.complete.reach(hosts)
    out.data(table([("host", "state"), ("decode-0", "active"), ("decode-1", "failed")]))
    out.data(AsWritten("decode-0 said so"))
    assert out.stdout.getvalue() == (  # type: ignore[attr-defined]  # a StringIO
        "host              state\n"
        "decode-0 (gpu7a)  active\n"
        "decode-1 (b-2)    failed\n"
        "decode-0 said so\n"
    )


def test_which_machine_serves_as_which_host_follows_from_the_stack(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yml"
    file.write_text(
        "all: {children: {unified: {hosts: {gpu7a: {ansible_host: 192.0.2.1}}},"
        " spare: {hosts: {gpu7b: {ansible_host: 192.0.2.2}}}}}\n"
    )
    of_stack = Options({"stack": "mi300x-tp8"})
    found = serving(of_stack, read_inventory(file))
    assert {name: each.machine for name, each in found.items()} == {"unified-0": "gpu7a"}
    assert serving(Options({"stack": "no-such-stack"}), read_inventory(file)) == {}
    file.write_text(file.read_text().replace("gpu7a", "unified-0"))
    assert serving(of_stack, read_inventory(file)) == {}
