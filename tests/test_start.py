"""What a command loads before it does anything: counted in modules, since seconds vary with the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from infra.spec.load import PROJECT
from infra.tasks.command_line import is_of_tasks_alone
from infra.tasks.table import GROUPS
from tests.fab_process import run_fab

# Runs the words as `fab` does, then tells what has been loaded.
RUN = """
import json, sys
sys.argv[0] = "fab"
from infra.tasks.start import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
PYDANTIC, COMPILER, RULES = "pydantic", "infra.plan.compile", "infra.checks.judge"
DOCUMENTS, INVENTORIES = "infra.plan.imported", "infra.inventory.ansible_file"
REHEARSAL, PULUMI, SSH = "infra.rehearsal", "pulumi", "infra.remote.host"
FABRIC = {"fabric", "paramiko", "cryptography"}
STACK = "without-inventory.yaml"
# What a stack without an inventory is checked and planned without.
ACTING = {
    *FABRIC,
    DOCUMENTS,
    INVENTORIES,
    REHEARSAL,
    PULUMI,
    SSH,
    "infra.launch",
    "infra.provision",
}


@pytest.mark.parametrize(
    ("words", "without"),
    [
        (("--list",), {*FABRIC, PYDANTIC, COMPILER, "infra.catalog.load"}),
        (("check", "--file", STACK), {*ACTING, "infra.catalog.prices"}),
        (("plan", "--file", STACK), {*ACTING, RULES, "infra.memory"}),
    ],
    ids=lambda given: given[0] if isinstance(given, tuple) else "",
)
def test_a_command_loads_nothing_that_it_does_without(
    words: tuple[str, ...], without: set[str], tmp_path: Path
) -> None:
    text = (PROJECT / "stacks" / "h200-tp8.yaml").read_text(encoding="utf-8")
    (tmp_path / STACK).write_text(text, encoding="utf-8")
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            RUN,
            *[str(tmp_path / word) if word == STACK else word for word in words],
        ],
        check=True,
        capture_output=True,
        text=True,
        cwd=PROJECT,
    )
    loaded = set(json.loads(run.stderr.splitlines()[-1]))
    assert "infra.tasks.program" in loaded
    assert loaded & without == set()


@pytest.mark.parametrize(
    ("words", "is_alone"),
    [
        ("--list", True),
        ("status --stack=h200-tp8 --json", True),
        ("replace-host a b --stack h200-tp8", True),
        ("check --stack h200-tp8 plan --stack h200-tp8 --picture x", True),
        ("check --stack h200-tp8 --picture x", False),
        ("tune-hosts --stack h200-tp8 -H a", False),
        ("-H a tune-hosts", False),
        ("check --help", False),
        ("--list --list-format nested", False),
        ("h200-tp8 check", False),
        ("nothing", False),
        ("-- uptime", False),
        ("", True),
    ],
)
def test_fabric_starts_what_is_not_tasks_and_their_options_alone(
    words: str, *, is_alone: bool
) -> None:
    assert is_of_tasks_alone(words.split()) is is_alone


@pytest.mark.parametrize(
    ("task", "without"),
    [
        ("logs", {PYDANTIC, COMPILER, RULES}),
        ("tune_hosts", {DOCUMENTS, RULES, REHEARSAL, PULUMI, "infra.memory"}),
        ("up", {REHEARSAL, PULUMI, "infra.catalog.prices"}),
    ],
)
def test_a_task_on_hosts_loads_nothing_that_it_does_without(task: str, without: set[str]) -> None:
    loaded = _loaded_by(f"import infra.tasks.program, infra.tasks.{task}")
    assert f"infra.tasks.{task}" in loaded
    assert loaded & without == set()


def test_no_model_is_built_before_something_is_read_with_it() -> None:
    """Building takes longer than reading, and pydantic would evaluate postponed annotations one by one."""
    look = """
import infra.plan.imported, infra.catalog.eks, infra.catalog.prices, infra.spec.stack
from pydantic import BaseModel
def models(above):
    for each in above.__subclasses__():
        yield each
        yield from models(each)
found = [each for each in models(BaseModel) if each.__module__.startswith("infra.")]
assert len(found) > 40
print(*[each.__name__ for each in found if each.__pydantic_complete__])
print(*[each.__name__ for each in found if hasattr(sys.modules[each.__module__], "annotations")])
"""
    assert _printed(look) == "\n\n"


def test_options_are_completed_for_the_task_that_is_typed() -> None:
    """Only such a task has options at all: Invoke copies those of every task."""
    (check,) = [entry for _, group in GROUPS for entry in group if entry.name == "check"]
    run = run_fab("--complete", "--", "fab", "check", "--")
    assert set(run.stdout.split()) == {f"--{option.name}" for option in check.options}


def test_two_tasks_of_one_command_line_have_their_own_options() -> None:
    run = run_fab("check", "--stack", "h200-tp8", "check", "--stack", "a3-2p1d")
    assert "h200-tp8: no errors" in run.stdout
    assert "a3-2p1d: no errors" in run.stdout


def _loaded_by(statement: str) -> set[str]:
    return set(_printed(f"{statement}\nprint(*sys.modules)").split())


def _printed(program: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}"],
        check=True,
        capture_output=True,
        text=True,
        cwd=PROJECT,
    )
    return run.stdout
