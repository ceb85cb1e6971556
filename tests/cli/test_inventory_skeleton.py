"""`fab inventory` of hosts that exist: a file to fill in, for every stack on such hosts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.inventory.ansible_file import read_inventory
from infra.plan.compile import compile_file
from infra.render.inventory_skeleton import inventory_skeleton
from infra.spec.load import load_stack, stack_names
from tests.fab_process import run_fab

ON_HOSTS = [name for name in stack_names() if load_stack(name).spec.platform == "existing-hosts"]


@pytest.mark.parametrize("stack", ON_HOSTS)
def test_what_is_filled_in_is_the_inventory_of_the_stack(
    stack: str, tmp_path: Path, catalog: Catalog
) -> None:
    hosts = compile_file(stack, catalog=catalog).plan.hosts
    addresses = [f"192.0.2.{number}" for number in range(1, len(hosts) + 1)]
    file = tmp_path / "hosts.yml"
    file.write_text(inventory_skeleton(compile_file(stack, catalog=catalog).plan, addresses))
    plan = compile_file(stack, catalog=catalog, inventory=read_inventory(file)).plan
    assert [(host.name, host.address) for host in plan.hosts] == [
        (host.name, address) for host, address in zip(hosts, addresses, strict=True)
    ]
    # what is commented out can be taken in as it stands
    uncommented = re.sub(r"^ {4}# ", "    ", file.read_text(), flags=re.MULTILINE)
    assert uncommented != file.read_text()
    file.write_text(uncommented)
    inventory = read_inventory(file)
    assert {host.name for host in inventory.hosts} == {*(host.name for host in hosts), "spare-0"}


def test_one_that_is_not_filled_in_is_refused_by_every_task(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yml"
    done = run_fab("inventory", "--stack", "a3-2p1d", "--to", str(file))
    assert done.returncode == 0, done.stderr
    assert "Write an address into it for each host" in done.stderr
    assert done.stderr.splitlines()[-1] == f"Next: fab facts --stack a3-2p1d --inventory {file}"
    for task in ("facts", "plan", "up", "down"):
        refused = run_fab(task, "--stack", "a3-2p1d", "--inventory", str(file))
        assert refused.returncode == 2
        assert "'<address of prefill-0>' is no address" in refused.stderr


def test_what_somebody_has_filled_in_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yml"
    words = ("inventory", "--stack", "mi300x-tp8", "--to", str(file))
    assert run_fab(*words, "--addresses", "gpu7a").returncode == 0
    written = file.read_text()
    again = run_fab(*words)
    assert again.returncode == 2
    assert "There is one already" in again.stderr
    assert file.read_text() == written


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--stack", "a3-2p1d", "--addresses", "a,b"),
            "There are 2 addresses; a3-2p1d has 4 hosts. Give them in this order: prefill-0, prefill-1, decode-0",
        ),
        (("--stack", "gb200-2p1d", "--addresses", "a"), "The hosts of gb200-2p1d are the cloud's."),
        (
            ("--stack", "a3-2p1d", "--ssh-args", "-J b"),
            "Write ansible_ssh_common_args into the file.",
        ),
        (("--stack", "k8s-a3-2p1d"), "k8s-a3-2p1d"),
    ],
)
def test_what_does_not_go_together_is_refused(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    file = tmp_path / "hosts.yml"
    done = run_fab("inventory", *words, "--to", str(file))
    assert done.returncode == 2
    assert said in done.stderr
    assert not file.exists()


def test_the_document_has_the_groups(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yml"
    done = run_fab("inventory", "--stack", "a3-2p1d", "--to", str(file), "--json")
    document = json.loads(done.stdout)
    assert set(document["inventory"]["all"]["children"]) == {"prefill", "decode"}
    assert document["path"] == str(file)


def test_a_task_without_an_inventory_names_what_writes_one() -> None:
    done = run_fab("status", "--stack", "a3-2p1d")
    assert done.returncode == 2
    assert (
        "`fab inventory --stack a3-2p1d` writes it, on existing hosts to be filled in"
        in done.stderr
    )
