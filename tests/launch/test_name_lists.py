"""A few names of many."""

from __future__ import annotations

import pytest

from infra.launch.name_lists import MAX_NAMED, clauses, listed


@pytest.mark.parametrize(
    ("count", "names", "words"),
    [
        (0, "", ""),
        (1, "0", "0"),
        (MAX_NAMED, "0, 1, 2", "0; 1; 2"),
        (MAX_NAMED + 1, "0, 1, 2 and 1 more", "0; 1; 2; and 1 more"),
    ],
)
def test_how_many_more_there_are_is_said(count: int, names: str, words: str) -> None:
    each = [str(number) for number in range(count)]
    assert (listed(each), clauses(each)) == (names, words)


def test_more_are_named_where_that_is_asked_for() -> None:
    assert listed(["a", "b", "c", "d"], most=4) == "a, b, c, d"
