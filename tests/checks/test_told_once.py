"""One mistake is told once: of the defaults with the roles that have it, of a missing line without what follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.checks.judge import judge_stack, without_consequences
from infra.errors import Problem
from infra.plan.compile import address_book, analyse_stack, compile_plan
from infra.spec.load import load_stack
from tests.plan.generated import CATALOG

STACK = """\
summary: two roles
checkpoint: kimi-k2.5-int4
accelerator: h200
engine: {name: vllm, version: "0.22.1"}
platform: existing-hosts
kv_transfer: nixl
router: {name: vllm-router}
defaults:
  tensor_parallel: 8
  max_model_len: 32768
  flags: {seed: 1}
  env: {A_B: "1"}
roles:
  prefill: {}
  decode: {}
"""


def told(folder: Path, *pairs: tuple[str, str]) -> list[Problem]:
    """The errors of the stack with texts replaced."""
    text = STACK
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    path = folder / "s.yaml"
    path.write_text(text, encoding="utf-8")
    stack = load_stack(str(path))
    resolved, topology, problems = analyse_stack(stack, CATALOG)
    if resolved is not None and topology is not None:
        plan = compile_plan(resolved, topology, address_book(topology, None), CATALOG)
        problems = without_consequences(problems, judge_stack(plan, stack, CATALOG))
    return [problem for problem in problems if problem.blocks]


@pytest.mark.parametrize(
    ("old", "new", "rule", "field"),
    [
        ("seed: 1", "no-such-flag: 1", "unknown-flag", "defaults.flags.no-such-flag"),
        ("seed: 1", "tp: 8", "owned-flag", "defaults.flags.tp"),
        ("seed: 1", "quantization: zzz", "quantization-method", "defaults.flags.quantization"),
        ("A_B:", "VLLM_PORT:", "owned-variable", "defaults.env.VLLM_PORT"),
        ("32768", "300000", "context-length", "defaults.max_model_len"),
        ("tensor_parallel: 8", "tensor_parallel: 9", "uneven-hosts", "defaults.tensor_parallel"),
        ("  max_model_len", "  gpu_memory_utilization: 0.1\n  max_model_len", "weights-memory", "roles.prefill"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_defaults_is_told_once_with_its_roles(
    old: str, new: str, rule: str, field: str, tmp_path: Path
) -> None:
    found = [problem for problem in told(tmp_path, (old, new)) if problem.rule == rule]
    assert [problem.field for problem in found] == [field]
    assert found[0].what.startswith("prefill and decode: ")


def test_a_default_that_one_role_replaces_is_told_of_the_other_alone(tmp_path: Path) -> None:
    (problem,) = told(
        tmp_path, ("seed: 1", "quantization: zzz"), ("decode: {}", "decode: {flags: {quantization: modelopt}}")
    )[:1]  # fmt: skip
    assert (problem.rule, problem.field) == ("quantization-method", "defaults.flags.quantization")
    assert not problem.what.startswith("prefill and decode")


def test_a_mistake_that_each_role_writes_is_told_at_each_line(tmp_path: Path) -> None:
    found = told(
        tmp_path,
        ("prefill: {}", "prefill: {flags: {tp: 8}}"),
        ("decode: {}", "decode: {flags: {tp: 8}}"),
    )
    assert [(p.rule, p.line) for p in found] == [("owned-flag", 14), ("owned-flag", 15)]


@pytest.mark.parametrize(
    ("line", "rule", "field"),
    [
        ("kv_transfer: nixl\n", "missing-kv-transfer", "kv_transfer"),
        ("router: {name: vllm-router}\n", "missing-router", "router"),
        ("accelerator: h200\n", "missing-key", "accelerator"),
    ],
)
def test_a_line_that_is_missing_is_one_mistake(
    line: str, rule: str, field: str, tmp_path: Path
) -> None:
    found = told(tmp_path, (line, ""))
    assert [(problem.rule, problem.field) for problem in found] == [(rule, field)]
