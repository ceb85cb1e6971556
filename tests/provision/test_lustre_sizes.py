from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.catalog.lustre_sizes import TIERS, LustreSettings, lustre_problem

# AWS, FSx for Lustre User Guide, checked 2026-11-20.
EXISTING = [
    (1200, 125, False),
    (2400, 1000, False),
    (4800, 500, False),
    (38400, 125, True),
    (19200, 250, True),
    (9600, 500, True),
    (4800, 1000, True),
    (9600, 1000, True),
]


def settings(capacity_gib: int, throughput: int, has_efa: bool) -> LustreSettings:
    return LustreSettings(capacity_gib=capacity_gib, throughput=throughput, has_efa=has_efa)


@pytest.mark.parametrize(("capacity_gib", "throughput", "has_efa"), EXISTING)
def test_sizes_of_the_guide_exist(capacity_gib: int, throughput: int, has_efa: bool) -> None:
    assert lustre_problem(settings(capacity_gib, throughput, has_efa)) is None


@pytest.mark.parametrize(
    ("capacity_gib", "throughput", "has_efa"),
    [
        (0, 125, False),
        (3600, 125, False),
        (1200, 1000, True),
        (4800, 125, True),
        (4800, 300, False),
    ],
)
def test_other_sizes_do_not(capacity_gib: int, throughput: int, has_efa: bool) -> None:
    assert lustre_problem(settings(capacity_gib, throughput, has_efa)) is not None


@given(st.integers(1, 200_000), st.sampled_from(TIERS), st.booleans())
def test_the_size_that_is_offered_instead_exists_and_is_not_smaller(
    capacity_gib: int, throughput: int, has_efa: bool
) -> None:
    problem = lustre_problem(settings(capacity_gib, throughput, has_efa))
    if problem is not None:
        assert problem.instead >= capacity_gib
        assert lustre_problem(settings(problem.instead, throughput, has_efa)) is None


def test_the_smallest_is_offered_for_less() -> None:
    problem = lustre_problem(settings(600, 125, has_efa=False))
    assert problem is not None
    assert problem.instead == 1200


@pytest.mark.parametrize(("tier", "instead"), [(0, 125), (300, 500), (2000, 1000)])
def test_a_tier_that_is_none_is_told_with_one_that_is(tier: int, instead: int) -> None:
    problem = lustre_problem(settings(4800, tier, has_efa=False))
    assert problem is not None
    assert (problem.is_tier, problem.instead) == (True, instead)
