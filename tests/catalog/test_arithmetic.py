"""The sums that recipes show, computed again for every shipped stack."""

from __future__ import annotations

import re

import pytest

from infra.catalog.load import Catalog
from infra.checks.capacity import device_memory_of, engine_load
from infra.checks.view import view_plan
from infra.memory.device import kv_layout
from infra.memory.kv_cache import request_gib
from infra.memory.weights import GIB
from infra.plan.compile import CompiledStack, compile_file
from infra.spec.load import stack_names

CATALOG = Catalog()
COMPILED = {name: compile_file(name, catalog=CATALOG) for name in stack_names()}
ROLES = [(name, s.role) for name, c in COMPILED.items() for s in c.resolved.roles]
# A figure is rounded to a tenth, and so are the ones it is made of.
ROUNDING = 0.16


def numbers(text: str, pattern: str) -> list[float]:
    return [float(found) for found in re.findall(pattern, text)]


def has(found: list[float], wanted: float, within: float) -> bool:
    return any(abs(number - wanted) <= within for number in found)


def draft_gib(compiled: CompiledStack, role: str) -> float:
    (settings,) = [s for s in compiled.resolved.roles if s.role == role]
    if settings.speculation is None:
        return 0.0
    return settings.speculation.weights.checkpoint.size_bytes / settings.tensor_parallel / GIB


@pytest.mark.parametrize(("stack", "role"), ROLES)
def test_recipe_shows_the_sum_of_the_stack(stack: str, role: str) -> None:
    compiled = COMPILED[stack]
    (settings,) = [s for s in compiled.resolved.roles if s.role == role]
    assert settings.recipe is not None
    text = CATALOG.recipes[settings.recipe].arithmetic.replace(",", "")
    view = view_plan(compiled.plan, CATALOG)
    memory = device_memory_of(view, next(p for p in compiled.plan.processes if p.role == role))
    assert memory is not None
    draft = draft_gib(compiled, role)
    assert memory.draft_gib == pytest.approx(draft)
    # Where one recipe serves with and without a draft, the sum is without.
    with_draft, without = memory.kv_gib, memory.kv_gib + memory.draft_gib
    measured = numbers(text, r"measured ([0-9]+[.][0-9]+) for KV")
    left = [*numbers(text, r"leaves ([0-9]+[.][0-9]+)"), *measured]
    assert has(numbers(text, r"weights ([0-9]+[.][0-9]+)"), memory.weights_gib, 0.06)
    assert has(left, with_draft, ROUNDING) or has(left, without, ROUNDING)
    assert not draft or has(numbers(text, r"draft (?:takes )?([0-9]+[.][0-9]+)"), draft, 0.06)


@pytest.mark.parametrize(("stack", "role"), ROLES)
def test_one_full_length_request_fits(stack: str, role: str) -> None:
    compiled = COMPILED[stack]
    (settings,) = [s for s in compiled.resolved.roles if s.role == role]
    view = view_plan(compiled.plan, CATALOG)
    process = next(p for p in compiled.plan.processes if p.role == role)
    memory, load = device_memory_of(view, process), engine_load(view, process)
    shape = settings.weights.checkpoint.shape
    assert memory is not None
    assert load is not None
    assert shape is not None
    assert settings.max_model_len is not None
    assert request_gib(shape, settings.max_model_len, kv_layout(load)) <= memory.kv_gib
