"""docs/rules.md is what the rules say of themselves."""

from __future__ import annotations

import re

import pytest

from infra.checks.listing import PATH, rules_document
from infra.checks.rules import RULES


def test_the_stored_document_is_current() -> None:
    assert PATH.read_text(encoding="utf-8") == rules_document(), (
        "run python -m infra.checks.listing"
    )


@pytest.mark.parametrize("name", RULES)
def test_a_rule_has_an_id_a_source_and_a_sentence(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert RULES[name].source
    sentence = (RULES[name].check.__doc__ or "").splitlines()[0]
    assert sentence.endswith((".", ")."))
