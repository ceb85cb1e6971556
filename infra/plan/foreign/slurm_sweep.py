"""A recipe's `sweep:`, expanded: every combination that the file's own resources allow.

Source: NVIDIA/srt-slurm src/srtctl/core/sweep.py and backends/vllm.py at commit c88ef731, 2026-08-21: placeholders are
replaced as text, all values of all parameters are combined, and ranks that do not take a worker's devices are refused.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from infra.plan.foreign.slurm_places import (
    allocate_endpoints,
    config_of,
    engine_of,
    size_of,
    value_of,
)
from infra.plan.foreign.slurm_recipe import read_slurm_recipe
from infra.plan.foreign.slurm_variants import variants_of
from infra.plan.foreign.source import NotUnderstood, Recipe
from infra.plan.foreign.yaml_pages import Node, Page
from infra.spec.work import TooMuchWorkError
from infra.spec.yaml_source import Document

# The published ones have 256 combinations, of which 160 fit one host.
MAX_COMBINATIONS = 4_096
MAX_JUDGED = 256
_ZIPPED = "zip"


@dataclass(frozen=True, slots=True)
class _Sweep:
    """The parameters of a sweep and their values, in the order of the file."""

    values: Mapping[str, tuple[object, ...]]
    is_zipped: bool
    line: int


def read_slurm_sweep(root: Node, settings: Mapping[str, str]) -> Recipe:
    """A recipe with its placeholders filled: the first combination, with the others beside it.

    Args:
        root: the document.
        settings: parameters that the operator chooses: name → value; `variant` chooses among overrides.

    Raises:
        TooMuchWorkError: there are more combinations, devices or processes than are followed.
    """
    chosen: dict[tuple[object, ...], Recipe] = {}
    notes: list[NotUnderstood] = []
    first: Node | None = None
    for variant in variants_of(root):
        if settings.get("variant", variant.name) != variant.name:
            continue
        sweep = _sweep(variant.root)
        num_beyond = num_left = 0
        for values in _combinations(sweep, settings):
            filled = _filled(variant.root, values)
            first = first or filled
            if _is_beyond(filled):
                num_beyond += 1
            elif len(chosen) == MAX_JUDGED:
                num_left += 1
            else:
                recipe = read_slurm_recipe(filled)
                choice = {name: str(values[name]) for name in sweep.values}
                named = {"variant": variant.name} if variant.name else {}
                chosen.setdefault(_started(recipe), replace(recipe, choice={**named, **choice}))
        notes += _notes(sweep, num_beyond, num_left)
    if not chosen:  # none fits: the first says why
        return read_slurm_recipe(first or variants_of(root)[0].root)
    told = list(chosen.values())
    head, *others = (_without_constants(recipe, told) for recipe in told)
    return replace(head, not_understood=(*head.not_understood, *notes), others=tuple(others))


def _notes(sweep: _Sweep, num_beyond: int, num_left: int) -> Iterator[NotUnderstood]:
    if num_beyond:
        why = f"{num_beyond} combinations are left out: their ranks do not take the devices that `resources` give"
        yield NotUnderstood(sweep.line, "sweep", why)
    if num_left:
        why = f"{num_left} more combinations are not judged: choose with --set NAME=VALUE"
        yield NotUnderstood(sweep.line, "sweep", why)


def _sweep(root: Node) -> _Sweep:
    """The sweep of a file: lists by name, or below `parameters`, with a `mode` beside them."""
    node = root.get("sweep")
    parameters = node.get("parameters") if node.get("parameters").is_there else node
    values = {
        name: tuple(each.value) if isinstance(each.value, list) else (each.value,)
        for name, each in parameters.items()
        if name != "mode" and each.is_there and each.value != []
    }
    return _Sweep(values, node.get("mode").text() == _ZIPPED, node.line)


def _combinations(sweep: _Sweep, settings: Mapping[str, str]) -> Iterator[Mapping[str, object]]:
    """Every combination, as values by name; what the operator sets has one value.

    Raises:
        TooMuchWorkError: they are too many.
    """
    given = {**sweep.values, **{name: (value,) for name, value in settings.items()}}
    swept = {name: given.pop(name) for name in sweep.values}
    if not sweep.is_zipped and math.prod(map(len, swept.values())) > MAX_COMBINATIONS:
        why = f"its sweep has more than {MAX_COMBINATIONS} combinations"
        raise TooMuchWorkError(sweep.line, why)
    fixed = {name: values[0] for name, values in given.items()}
    rows = (
        zip(*swept.values(), strict=False)
        if sweep.is_zipped
        else itertools.product(*swept.values())
    )
    for row in rows:
        yield {**fixed, **dict(zip(swept, row, strict=True))}


def _filled(root: Node, values: Mapping[str, object]) -> Node:
    """The document with its placeholders replaced; every value stays at its line."""
    page = root.page
    root.spend()
    document = Document(data=_replaced(root.value, values), positions=page.document.positions)
    return Page(document, page.rows, page.work).root


def _replaced(value: object, values: Mapping[str, object]) -> object:
    if isinstance(value, Mapping):
        return {key: _replaced(each, values) for key, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, values) for each in value]
    if not isinstance(value, str) or "{" not in value:
        return value
    for name, given in values.items():
        if value == f"{{{name}}}" and isinstance(given, list):
            return given
        text = ",".join(map(str, given)) if isinstance(given, list) else str(given)
        value = value.replace(f"{{{name}}}", text)
    return value


def _is_beyond(top: Node) -> bool:
    """Whether a worker's ranks do not take the devices that the file gives the worker.

    Data-parallel ranks of vLLM must take all of them; SGLang's lie within the tensor-parallel devices, or beside them.
    """
    engine = engine_of(top)
    for endpoint in allocate_endpoints(top):
        config = config_of(top, endpoint.mode)
        given = len(endpoint.nodes) * len(endpoint.devices)
        asked = size_of(config, "tensor") * size_of(config, "pipeline")
        if engine == "vllm" and value_of(config, "data-parallel-size").is_there:
            if asked * size_of(config, "data") != given:
                return True
        elif engine == "sglang" and value_of(config, "enable-dp-attention").value is not True:
            asked *= size_of(config, "data")
        if asked > given:
            return True
    return False


def _started(recipe: Recipe) -> tuple[object, ...]:
    """What a recipe starts: combinations of the load alone start the same."""
    return tuple(
        (
            launch.host,
            launch.group,
            *(word.text for word in launch.words),
            *sorted((name, word.text) for name, word in launch.env.items()),
        )
        for launch in recipe.launches
    )


def _without_constants(recipe: Recipe, among: list[Recipe]) -> Recipe:
    """The choice without the parameters that all combinations have alike."""
    choice = {
        name: value
        for name, value in recipe.choice.items()
        if any(other.choice.get(name) != value for other in among)
    }
    return replace(recipe, choice=choice)
