"""The README's examples run, and its tables list what there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.plan.compile import compile_file
from infra.spec.load import PROJECT, load_stack, stack_names
from infra.spec.plain_yaml import parse_yaml
from infra.tasks.table import GROUPS
from tests.fab_process import run_fab

README = (PROJECT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    """Every `fab` command of a shell block, comments taken off."""
    lines = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
    return [line.partition("#")[0].strip() for line in lines if line.startswith("fab ")]


def test_it_has_examples() -> None:
    assert len(commands()) > 3


@pytest.mark.parametrize("command", commands())
def test_an_example_runs(command: str, tmp_path: Path) -> None:
    words = [str(tmp_path / "out") if word == "/tmp/out" else word for word in shlex.split(command)]
    done = run_fab(*words[1:], timeout_s=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_quoted_topology_is_the_stack_s() -> None:
    quoted = next(parse_yaml(text) for kind, text in BLOCKS if kind == "yaml")
    spec = load_stack("gb200-2p1d").spec
    for name, role in quoted["roles"].items():
        declared = getattr(spec.roles, name).model_dump()
        assert {key: declared[key] for key in role} == role


def test_every_shipped_stack_is_listed() -> None:
    section = README.partition("## Stacks")[2].partition("## Commands")[0]
    assert set(re.findall(r"`([a-z0-9-]+)`", section)) >= set(stack_names())


def test_every_task_is_listed() -> None:
    section = README.partition("## Commands")[2].partition("## Not yet run on")[0]
    named = set(re.findall(r"`(?:fab )?([a-z-]+)[^`]*`", section))
    assert {entry.name for _, entries in GROUPS for entry in entries} <= named


def test_every_local_link_leads_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", README)
    missing = [target for target in targets if not (PROJECT / target).exists()]
    assert missing == []


def test_every_stack_over_several_hosts_is_pictured() -> None:
    page = (PROJECT / "docs" / "stacks.md").read_text(encoding="utf-8")
    catalog = Catalog()
    compiled = [compile_file(name, catalog=catalog) for name in stack_names()]
    # in pods and at Google a stack is laid out as the one that it extends
    several = [
        each.stack.name
        for each in compiled
        if len(each.plan.hosts) > 1
        and not each.topology.is_of_pods
        and each.stack.spec.platform != "gcp-gce"
    ]
    shown = re.findall(r"!\[[^]]*\]\(pictures/([^)]+)\.svg\)", page)
    assert sorted(shown) == several
    assert all((PROJECT / "docs" / "pictures" / f"{name}.svg").is_file() for name in shown)
