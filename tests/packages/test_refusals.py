"""Each refusal of the listed releases' configuration code is held by a rule, or has a reason why none has to."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel, ConfigDict

from infra.catalog.combinations import combinations
from infra.catalog.versions import version_numbers
from infra.checks.rules import RULES
from infra.packages.refusals import refusals
from infra.spec.load import PROJECT
from tests.packages.fidelity import records

TOO_SHORT = 12  # for words that only one refusal has
SPELT = "--speculative-config['{key}']"  # its flags are values there, and words of three rows
FOLDER = PROJECT / "tests" / "cases" / "refusals"


class Cover(BaseModel):
    """What holds the refusals that a pattern fits: a rule, or nothing, for a reason."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    match: str
    rule: str | None = None
    why: str | None = None


@cache
def covers() -> tuple[Cover, ...]:
    rows = yaml.safe_load((FOLDER / "covered.yaml").read_text(encoding="utf-8"))
    return tuple(map(Cover.model_validate, rows))


@cache
def listed() -> Mapping[str, tuple[str, ...]]:
    """Release → its refusals."""
    return {
        path.stem: tuple(json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(FOLDER.glob("*.json"))
    }


def cover_of(refusal: str) -> Cover | None:
    return next((each for each in covers() if re.search(each.match, refusal)), None)


def test_every_engine_that_a_stack_pins_is_listed() -> None:
    assert {r.release for r in records() if "-router-" not in r.release} <= set(listed())


@pytest.mark.parametrize("release", sorted(listed()))
def test_every_refusal_is_held_by_a_rule_or_has_a_reason(release: str) -> None:
    assert [refusal for refusal in listed()[release] if cover_of(refusal) is None] == []


@pytest.mark.parametrize("release", sorted(listed()))
def test_what_a_row_of_the_catalogue_holds_is_said_in_its_words(release: str) -> None:
    package, _, version = release.rpartition("-")
    rows = [row for row in combinations(package) if row.is_of(package, version_numbers(version))]
    said = {words for row in rows for words in parts(row.says) if len(words) > TOO_SHORT}
    mine = [
        refusal
        for refusal in listed()[release]
        if getattr(cover_of(refusal), "rule", "") == "flag-combination" and SPELT not in refusal
    ]
    assert mine
    assert [r for r in mine if not any(words in flat(r) for words in said)] == []


def parts(says: str) -> list[str]:
    """How each part of a refusal begins that stands before, between or behind its values."""
    return [flat(part)[:24] for part in re.split(r"\{[^}]*\}", says)]


def flat(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", " ", text.lower().replace("!r}", "")).strip()


def test_every_pattern_fits_something_and_names_a_rule_or_a_reason() -> None:
    used = {cover_of(refusal) for rows in listed().values() for refusal in rows}
    assert [each.match for each in covers() if each not in used] == []
    assert [each.match for each in covers() if (each.rule is None) == (each.why is None)] == []
    assert {each.rule for each in covers()} - {None} <= set(RULES)


def test_raises_and_asserts_are_read_with_their_place(tmp_path: Path) -> None:
    for name in ("ascend_config", "platform"):
        path = tmp_path / "vllm_ascend" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            "class Config:\n    def check(self, size):\n        assert size > 1, 'too small'\n"
            "        if size > 9:\n            raise ValueError('too large')\n"
        )
    assert refusals("vllm-ascend", tmp_path)[:2] == [
        "ascend_config.py Config.check: assert size > 1, 'too small'",
        "ascend_config.py Config.check: raise ValueError('too large')",
    ]
