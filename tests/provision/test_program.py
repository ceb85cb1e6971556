from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.errors import ProblemsFound
from infra.spec.load import PROJECT, load_stack, stack_names
from infra.spec.plain_yaml import read_yaml

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


def test_every_provisioned_stack_ships_its_account_facts_and_no_other_does() -> None:
    platforms = {name: load_stack(name).spec.platform for name in stack_names()}
    provisioned = {name for name, platform in platforms.items() if platform != "existing-hosts"}
    shipped = {
        path.stem.removeprefix("Pulumi.") for path in (PROJECT / "stacks").glob("Pulumi.*.yaml")
    }
    assert shipped == provisioned


@pytest.mark.parametrize(
    "path", sorted((PROJECT / "stacks").glob("Pulumi.*.yaml")), ids=lambda p: p.stem
)
def test_account_facts_hold_no_secret_salt_or_reservation(path: Path) -> None:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert set(document) == {"config"}
    platform = load_stack(path.stem.removeprefix("Pulumi.")).spec.platform
    of_cloud = {"aws:region", "moe-infra:zone_id"}
    of_cluster = {"moe-infra:node_selector"}
    wanted = {"existing-kubernetes": of_cluster, "gcp-gce": set()}
    assert set(document["config"]) == wanted.get(platform, of_cloud)


def test_the_program_is_small() -> None:
    assert len((PROJECT / "infra" / "__main__.py").read_text().splitlines()) <= 30


def test_the_project_file_asks_for_the_release_that_the_tests_run() -> None:
    wanted = read_yaml(PROJECT / "Pulumi.yaml")["requiredPulumiVersion"]
    built = (PROJECT / "scripts/pulumi/cli/go.mod").read_text()
    (release,) = re.findall(
        r"^require github\.com/pulumi/pulumi/pkg/v3 v(\S+)", built, re.MULTILINE
    )
    assert wanted == f">={release} <4.0.0"
