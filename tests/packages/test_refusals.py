"""Each refusal of the listed releases' configuration code is held by a rule, or has a reason why none has to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.catalog.combinations import combinations
from infra.catalog.load import Catalog
from infra.catalog.read_releases import read_versions
from infra.catalog.versions import version_numbers
from infra.checks.rules import RULES
from infra.packages.refusals import FILES, refusals
from tests.packages.refusal_lists import cover_of, covers, listed

TOO_SHORT = 12  # for words that only one refusal has
SPELT = "--speculative-config['{key}']"  # its flags are values there, and words of three rows
LONG, SHORT = 48, 24  # of a part of a row's words, so much has to be in the refusal
JOINED = "join(unsupported)"  # what is refused is joined to words of SHORT


def test_every_release_that_the_catalogue_judges_by_is_listed() -> None:
    catalog = Catalog()
    known = {f"{name}-{version}" for name in FILES for version in read_versions(catalog, name)}
    assert set(listed()) == known


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
    assert [r for r in mine if not any(is_said(words, r) for words in said)] == []


def parts(says: str) -> list[str]:
    """The parts of a refusal that stand before, between or behind its values."""
    return [flat(part) for part in re.split(r"\{[^}]*\}", says)]


def is_said(words: str, refusal: str) -> bool:
    """Whether a refusal has the beginning of a part of a row's words."""
    return words[: SHORT if JOINED in refusal else LONG] in flat(refusal)


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
