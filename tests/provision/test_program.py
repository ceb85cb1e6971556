from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.errors import ProblemsFound, StackError
from infra.spec.load import PROJECT, load_stack, stack_names

Record = Callable[..., Any]


def project_with_inventory(tmp_path: Path, stack: str, text: str) -> Path:
    folder = tmp_path / "project"
    (folder / "stacks").mkdir(parents=True)
    shutil.copy(PROJECT / "stacks" / f"{stack}.yaml", folder / "stacks")
    (folder / "ansible" / "inventory").mkdir(parents=True)
    (folder / "ansible" / "inventory" / f"{stack}.yml").write_text(text)
    return folder


def test_existing_hosts_are_exported_as_the_inventory_names_them(
    record: Record, tmp_path: Path
) -> None:
    example = (PROJECT / "ansible" / "inventory" / "examples" / "a3-2p1d.yml").read_text()
    recorded = record("a3-2p1d", root=project_with_inventory(tmp_path, "a3-2p1d", example))
    assert recorded.resources == {}
    names = ["prefill-0", "prefill-1", "decode-0", "decode-1"]
    assert [host["name"] for host in recorded.inventory["hosts"]] == names
    assert recorded.inventory["platform"] == "existing-hosts"
    first = recorded.inventory["hosts"][0]["address"]
    assert recorded.inventory["router"] == {
        "host": "prefill-0",
        "port": 1999,
        "url": f"http://{first}:1999",
    }


def test_existing_hosts_without_an_inventory_are_one_message(
    record: Record, tmp_path: Path
) -> None:
    root = project_with_inventory(tmp_path, "mi300x-tp8", "all: {}")
    (root / "ansible" / "inventory" / "mi300x-tp8.yml").unlink()
    with pytest.raises(ProblemsFound, match=r"ansible/inventory/mi300x-tp8\.yml"):
        record("mi300x-tp8", root=root)


@pytest.mark.parametrize("platform", ["aws-eks", "existing-kubernetes"])
def test_platforms_that_come_later_are_refused_by_name(
    record: Record, tmp_path: Path, platform: str
) -> None:
    folder = tmp_path / "project"
    (folder / "stacks").mkdir(parents=True)
    document = {"extends": "h200-tp8", "platform": platform}
    (folder / "stacks" / "mine.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(StackError, match=f"{platform} cannot be provisioned yet"):
        record("mine", root=folder)


def test_every_stack_on_aws_ships_its_account_facts_and_no_other_does() -> None:
    on_aws = {name for name in stack_names() if load_stack(name).spec.platform == "aws-ec2"}
    shipped = {
        path.stem.removeprefix("Pulumi.") for path in (PROJECT / "stacks").glob("Pulumi.*.yaml")
    }
    assert shipped == on_aws


@pytest.mark.parametrize(
    "path", sorted((PROJECT / "stacks").glob("Pulumi.*.yaml")), ids=lambda p: p.stem
)
def test_account_facts_hold_no_secret_salt_or_reservation(path: Path) -> None:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert set(document) == {"config"}
    assert set(document["config"]) == {"aws:region", "moe-infra:zone_id"}


def test_the_program_is_small() -> None:
    assert len((PROJECT / "infra" / "__main__.py").read_text().splitlines()) <= 30
