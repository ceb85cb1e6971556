"""A rule's releases are typed, asked for in one place, and cover those of its parts and of its rows of data."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from infra.catalog.combinations import combinations
from infra.catalog.read_releases import read_release, read_versions
from infra.catalog.versions import version_numbers
from infra.checks import sglang_attention
from infra.checks.needs import NEEDS
from infra.checks.rule_releases import (
    EVERY,
    ReleaseRange,
    Releases,
    changed_clauses,
    described_with_parts,
    releases_of,
)
from infra.checks.rules import RULES
from infra.checks.view import Finding, PlanView, Rule, view_plan
from infra.plan.imported import parse_plan
from infra.spec.load import PROJECT
from tests.checks.rule_cases import CATALOG, FILE, right_document

BOTH = releases_of("vllm", "vllm-ascend")
NEWER = releases_of("vllm", "vllm-ascend", since="0.33.0")
OLDER = (*releases_of("vllm", before="0.18.0"), *releases_of("sglang", before="0.5.11"))
NO_PARTS: Mapping[str, Releases] = {}
VISION = {"vision": releases_of("vllm-ascend", before="0.18.0")}
CHECKS = sorted((PROJECT / "infra" / "checks").glob("*.py"))
# Who reads the release's numbers: what compares them, and the rows of the catalogue that have bounds of their own.
READ_NUMBERS = {"rule_releases.py", "view.py", "combinations.py"}
GUARDED_BY = ("view.family", "release.engine", "view.version", "view.is_among")


@pytest.mark.parametrize(
    ("releases", "parts", "words"),
    [
        (EVERY, NO_PARTS, "all"),
        (BOTH, NO_PARTS, "vllm, vllm-ascend"),
        (NEWER, NO_PARTS, "vllm and vllm-ascend 0.33.0 and later"),
        (OLDER, NO_PARTS, "vllm before 0.18.0, sglang before 0.5.11"),
        (
            (*releases_of("vllm"), *releases_of("vllm-ascend", before="0.22.0")),
            NO_PARTS,
            "every vllm, vllm-ascend before 0.22.0",
        ),
        (
            releases_of("sglang", since="0.5.10", before="0.5.17"),
            NO_PARTS,
            "sglang 0.5.10 to before 0.5.17",
        ),
        (releases_of("vllm-ascend"), VISION, "vllm-ascend; vision: vllm-ascend before 0.18.0"),
    ],
)
def test_releases_are_told_in_words(
    releases: Releases, parts: Mapping[str, Releases], words: str
) -> None:
    assert described_with_parts(releases, parts) == words


@pytest.mark.parametrize(
    ("releases", "parts", "between", "started", "ceased"),
    [
        (EVERY, NO_PARTS, ("vllm", "0.17.0", "0.33.0"), (), ()),
        (BOTH, NO_PARTS, ("vllm", "0.17.0", "0.33.0"), (), ()),
        (NEWER, NO_PARTS, ("vllm", "0.22.1", "0.33.0"), ("vllm 0.33.0 and later",), ()),
        (NEWER, NO_PARTS, ("vllm", "0.17.0", "0.22.1"), (), ()),
        (NEWER[:1], NO_PARTS, ("vllm-ascend", "0.22.1rc1", "0.33.0"), (), ()),
        (OLDER, NO_PARTS, ("vllm", "0.17.0", "0.22.1"), (), ("vllm before 0.18.0",)),
        (OLDER, NO_PARTS, ("sglang", "0.5.9", "0.5.23"), (), ("sglang before 0.5.11",)),
        (
            releases_of("vllm-ascend"),
            VISION,
            ("vllm-ascend", "0.17.0rc1", "0.18.0"),
            (),
            ("vision: vllm-ascend before 0.18.0",),
        ),
    ],
)
def test_a_clause_starts_or_ceases_where_its_bound_lies_between(
    releases: Releases,
    parts: Mapping[str, Releases],
    between: tuple[str, str, str],
    started: tuple[str, ...],
    ceased: tuple[str, ...],
) -> None:
    engine, old, new = between
    assert changed_clauses(releases, parts, engine, (old, new)) == (started, ceased)
    assert changed_clauses(releases, parts, engine, (new, old)) == (ceased, started)


@pytest.mark.parametrize(
    ("outer", "inner", "is_covered"),
    [
        (("vllm", None, None), ("vllm", "0.18.0", "0.33.0"), True),
        (("vllm", None, None), ("vllm-ascend", None, None), False),
        (("vllm", "0.18.0", None), ("vllm", "0.18.0", None), True),
        (("vllm", "0.18.0", None), ("vllm", None, "0.33.0"), False),
        (("vllm", "0.18.0", None), ("vllm", "0.9.0", None), False),
        (("vllm", None, "0.18.0"), ("vllm", "0.9.0", None), False),
        (("vllm", None, "0.18.0"), ("vllm", "0.9.0", "0.17.1"), True),
    ],
)
def test_a_range_covers_what_lies_within_it(
    outer: tuple[str, str | None, str | None],
    inner: tuple[str, str | None, str | None],
    *,
    is_covered: bool,
) -> None:
    assert _range(*outer).covers(_range(*inner)) == is_covered


def _range(engine: str, since: str | None, before: str | None) -> ReleaseRange:
    (every,) = (each for each in EVERY if each.engine == engine)
    return every._replace(since=since, before=before)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_covers_the_releases_of_its_parts(name: str) -> None:
    rule = RULES[name]
    for about, releases in rule.parts.items():
        assert _uncovered(rule, releases) == [], about
        assert releases != rule.releases, about


def test_rules_cover_the_releases_of_their_rows() -> None:
    told = tuple(
        each._replace(since=row.first)
        for engine in ("vllm", "vllm-ascend", "sglang")
        for row in combinations(engine)
        for each in EVERY
        if each.engine in row.engines
    )
    assert told
    assert _uncovered(RULES["flag-combination"], told) == []
    limits = tuple(each for limit in sglang_attention.LIMITS for each in limit.releases)
    assert limits
    assert _uncovered(RULES["attention-accelerator"], limits) == []


def _uncovered(rule: Rule, releases: Releases) -> list[ReleaseRange]:
    return [each for each in releases if not any(own.covers(each) for own in rule.releases)]


def test_a_rule_finds_nothing_on_a_release_that_it_does_not_hold_for() -> None:
    rule = replace(RULES["model-path"], releases=OLDER, check=_always)
    stacks = ("mi325x-tp4", "h200-tp8", "a3-dp4tp4", "b200-sglang-tp8@0.5.9", "b200-sglang-tp8")
    views = {name: _view(name) for name in stacks}
    assert [name for name, view in views.items() if list(rule.findings(view))] == [
        name
        for name, view in views.items()
        if view.release.version in {"0.17.0", "0.5.9"} and view.release.engine != "vllm-ascend"
    ]
    assert all(list(replace(rule, releases=EVERY).findings(view)) for view in views.values())


def _always(view: PlanView) -> Iterator[Finding]:
    yield Finding(field="engine", what=view.release.version, fix="Nothing.")


def _view(stack: str) -> PlanView:
    return view_plan(parse_plan(right_document(stack), FILE), CATALOG)


def test_the_plugin_carries_the_numbers_of_the_vllm_below_it() -> None:
    for version in read_versions(CATALOG, "vllm-ascend"):
        release = read_release(CATALOG, "vllm-ascend", version)
        assert version_numbers(release.base_version or "") == version_numbers(version)


def test_what_begins_or_ends_with_a_release_is_judged_on_all_that_an_imported_file_may_mean() -> (
    None
):
    bounded = {
        name
        for name, rule in RULES.items()
        if any(each.since or each.before for each in rule.releases)
    }
    assert bounded
    assert bounded <= NEEDS["release"]


def test_releases_that_a_check_asks_for_are_those_of_a_rule() -> None:
    named = {
        f"{path.stem}.{name}": value
        for path in CHECKS
        if path.stem not in {"rules", "rule_releases", "view"}
        for name, value in vars(import_module(f"infra.checks.{path.stem}")).items()
        if isinstance(value, tuple) and value and isinstance(value[0], ReleaseRange)
    }
    of_rules = {
        id(each) for rule in RULES.values() for each in (rule.releases, *rule.parts.values())
    }
    of_rows = {id(limit.releases) for limit in sglang_attention.LIMITS}
    assert named
    assert {name for name, value in named.items() if id(value) not in of_rules | of_rows} == set()


def test_no_check_guards_itself_by_a_release() -> None:
    checks = {rule.check.__name__ for rule in RULES.values()}
    seen = set()
    for path in CHECKS:
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.FunctionDef) and node.name in checks:
                seen.add(node.name)
                assert not any(_is_guard(each) for each in ast.walk(node)), node.name
    assert seen == checks


def _is_guard(node: ast.AST) -> bool:
    """Whether a statement leaves a check, or passes a process over, for the release alone."""
    if not isinstance(node, ast.If) or not all(
        isinstance(each, ast.Return | ast.Continue) for each in node.body
    ):
        return False
    condition = ast.unparse(node.test)
    return any(words in condition for words in GUARDED_BY)


def test_releases_are_compared_in_one_place() -> None:
    for path in CHECKS:
        read = {node.attr for node in ast.walk(_tree(path)) if isinstance(node, ast.Attribute)}
        called = {
            node.func.attr
            for node in ast.walk(_tree(path))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        names = {node.id for node in ast.walk(_tree(path)) if isinstance(node, ast.Name)}
        if path.name not in READ_NUMBERS:
            assert "version" not in called, path.name
            assert "version_numbers" not in names, path.name
        if "check" in read & called:
            assert path.name == "view.py"  # `Rule.findings` alone


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
