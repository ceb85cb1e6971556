"""docs/preflight.md names every check, and says which of them `fab up` runs too."""

from __future__ import annotations

import re

from infra.launch.preflight.table import CHECKS
from infra.spec.load import PROJECT

TEXT = (PROJECT / "docs" / "preflight.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| [^|]+\| (`[^|]+`) \| ([^|]*)\|", re.MULTILINE)
ROWS = [(re.findall(r"`([^`]+)`", names), how) for names, how in ROW.findall(TEXT)]


def test_the_page_and_the_table_name_the_same_checks_each_once() -> None:
    named = [name for names, _ in ROWS for name in names]
    assert sorted(named) == sorted(CHECKS)


def test_what_up_looks_at_is_called_light() -> None:
    for names, how in ROWS:
        light = [name for name in names if CHECKS[name].depth == "light"]
        if how.startswith("the first two light"):
            assert light == names[:2]
        elif how.startswith("the first light"):
            assert light == names[:1]
        else:
            assert light == (names if how.startswith("light") else []), names
