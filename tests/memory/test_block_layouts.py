"""Numbers of replicas that use every machine of what is bought."""

from __future__ import annotations

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


@given(roles=ROLES, num_machines=st.integers(1, 18))
def test_every_layout_fits_uses_more_and_all_use_as_many(
    roles: dict[str, RoleHosts], num_machines: int
) -> None:
    def total(counts: dict[str, int]) -> int:
        return sum(counts[name] * role.hosts_per_replica for name, role in roles.items())

    used = total({name: role.num_replicas for name, role in roles.items()})
    totals = {total(dict(each)) for each in fuller_layouts(roles, num_machines)}
    assert len(totals) <= 1
    assert all(used < each <= num_machines for each in totals)
