"""Every stack file loads, compiles, is free of errors and prints what its golden file holds.

`pytest tests/test_stacks.py --update-golden` writes the golden files; read their diff as the operator of
those hosts would.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.checks.judge import judge_plan, judge_stack
from infra.plan.compile import CompiledStack, compile_file
from infra.plan.document import plan_document
from infra.plan.imported import parse_plan
from infra.render.plan_listing import plan_explanation, plan_listing
from infra.spec.load import PROJECT, stack_names
from tests.canonical import document_hash

TESTS = Path(__file__).resolve().parent
GOLDEN = TESTS / "golden"

SHIPPED = (
    "a2-2n-dp4tp4",
    "a3-2p1d",
    "a3-dp4tp4",
    "a3-longctx-dp2tp8",
    "a3-longctx-tp16",
    "b200-sglang-tp8",
    "eks-b200-tp8",
    "eks-gb200-2p1d",
    "gb200-2p1d",
    "gb200-nvfp4-tp4",
    "gb200-tp4",
    "gcp-gb200-2p1d",
    "h200-2n-tp16",
    "h200-sglang-tp8",
    "h200-tp8",
    "h200-tp8-eagle3",
    "k2-thinking-h200-dcp8",
    "k2-thinking-h200-tp8",
    "k2-thinking-mi300x-tp8",
    "k8s-a3-2p1d",
    "k8s-gb200-2p1d",
    "mi300x-tp8",
    "mi325x-tp4",
    "mi355x-tp8",
)
NUM_PROCESSES = {
    "gb200-2p1d": 24,
    "eks-gb200-2p1d": 24,
    "a3-2p1d": 36,
    "gcp-gb200-2p1d": 24,
    "h200-2n-tp16": 2,
    "a2-2n-dp4tp4": 2,
}
OF_TESTS = tuple(sorted(path.stem for path in (TESTS / "stacks").glob("*.yaml")))


@pytest.fixture(params=(*SHIPPED, *OF_TESTS))
def compiled(request: pytest.FixtureRequest, catalog: Catalog) -> CompiledStack:
    return compile_file(request.param, catalog=catalog)


def test_the_shipped_stacks_are_those_of_the_design() -> None:
    assert stack_names() == SHIPPED


def test_no_rule_refuses_it(compiled: CompiledStack, catalog: Catalog) -> None:
    problems = judge_stack(compiled.plan, compiled.stack, catalog)
    assert [str(problem) for problem in problems if problem.blocks] == []


def test_it_prints_its_golden_file(compiled: CompiledStack, update_golden: bool) -> None:
    text = plan_listing(compiled.plan, documentation_addresses=compiled.book.is_documentation)
    golden = GOLDEN / f"{compiled.stack.name}.txt"
    if update_golden:
        golden.write_text(text, encoding="utf-8")
    assert golden.is_file(), f"{golden.name} is missing: run with --update-golden and read it"
    assert text == golden.read_text(encoding="utf-8")


def test_its_document_reads_back_to_the_same_document(
    compiled: CompiledStack, catalog: Catalog
) -> None:
    document = json.loads(json.dumps(plan_document(compiled.plan)))
    again = parse_plan(document, "plan.json")
    assert plan_document(again) == document
    assert document.pop("hash") == document_hash(document)
    assert [str(p) for p in judge_plan(again, "plan.json", catalog) if p.blocks] == []


def test_every_flag_and_variable_has_an_origin(compiled: CompiledStack) -> None:
    text = plan_explanation(compiled.plan, documentation_addresses=True)
    assert "unknown" not in text


def test_its_first_line_names_the_schema(compiled: CompiledStack) -> None:
    path = PROJECT / compiled.stack.file
    first = path.read_text(encoding="utf-8").splitlines()[0]
    marker = "# yaml-language-server: $schema="
    assert first.startswith(marker)
    schema = path.parent / first.removeprefix(marker)
    assert schema.resolve() == PROJECT / "infra" / "spec" / "stack.schema.json"


@pytest.mark.parametrize("name", NUM_PROCESSES)
def test_it_has_as_many_engine_processes_as_its_guide(name: str, catalog: Catalog) -> None:
    plan = compile_file(name, catalog=catalog).plan
    engines = [process for process in plan.processes if process.kind == "engine"]
    assert len(engines) == NUM_PROCESSES[name]


def test_no_golden_file_is_left_of_a_stack_that_is_gone() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.txt")) == sorted((*SHIPPED, *OF_TESTS))
