"""Numbers of replicas that use every machine of what is bought."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from infra.memory.block_layouts import RoleHosts, fuller_layouts

TWO_P_ONE_D = {
    "prefill": RoleHosts(num_replicas=2, hosts_per_replica=1),
    "decode": RoleHosts(num_replicas=1, hosts_per_replica=4),
}
ROLES = st.dictionaries(
    st.sampled_from(["prefill", "decode"]),
    st.builds(RoleHosts, num_replicas=st.integers(1, 3), hosts_per_replica=st.integers(1, 4)),
    min_size=1,
)


def test_two_prefill_and_one_decode_on_nine_trays() -> None:
    assert fuller_layouts(TWO_P_ONE_D, 9) == (
        {"prefill": 1, "decode": 2},
        {"prefill": 5, "decode": 1},
    )


def test_the_layout_most_like_the_present_one_comes_first() -> None:
    assert fuller_layouts(TWO_P_ONE_D, 18)[0] == {"prefill": 6, "decode": 3}


def test_nothing_fills_what_is_full_or_too_small() -> None:
    assert fuller_layouts(TWO_P_ONE_D, 6) == ()
    assert fuller_layouts({"unified": RoleHosts(num_replicas=1, hosts_per_replica=4)}, 7) == ()


def test_what_cannot_be_filled_is_used_as_far_as_it_goes() -> None:
    role = {"unified": RoleHosts(num_replicas=1, hosts_per_replica=4)}
    assert fuller_layouts(role, 9) == ({"unified": 2},)


def test_a_large_reservation_is_looked_through_at_once() -> None:
    """All pairs of counts would be a hundred million."""
    prefill, decode = fuller_layouts(TWO_P_ONE_D, 10_000)[0].values()
    assert prefill + 4 * decode == 10_000


@given(roles=ROLES, num_machines=st.integers(1, 18))
def test_the_layouts_are_those_that_trying_all_finds(
    roles: dict[str, RoleHosts], num_machines: int
) -> None:
    def total(counts: dict[str, int]) -> int:
        return sum(counts[name] * role.hosts_per_replica for name, role in roles.items())

    used = total({name: role.num_replicas for name, role in roles.items()})
    counts = [range(1, num_machines + 1)] * len(roles)
    tried = [dict(zip(roles, each, strict=True)) for each in itertools.product(*counts)]
    fitting = [each for each in tried if used < total(each) <= num_machines]
    most = max(map(total, fitting), default=0)
    fullest = [sorted(each.items()) for each in fitting if total(each) == most]
    found = [sorted(each.items()) for each in fuller_layouts(roles, num_machines)]
    assert sorted(found) == sorted(fullest)
