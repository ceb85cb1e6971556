from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.catalog.figures import read_loading_rates
from infra.catalog.lustre_sizes import EFA_STEP_GIB, STEP_GIB, TIERS, LustreSettings, lustre_problem
from infra.memory.time_to_ready import lustre_gb_per_s
from infra.provision.aws.weight_rules import (
    LARGEST_GIB,
    Loading,
    WantedStore,
    change_problems,
    efa_warning,
    enough_lustre,
    loading_warning,
    storage_problems,
)
from infra.provision.aws.zone import Zone
from infra.spec.stack import Weights

ORDINARY = Zone(zone_id="use2-az1", name="us-east-2a", group="us-east-2", parent_zone_id=None)
DALLAS = Zone(
    zone_id="use1-dfw2-az1",
    name="us-east-1-dfw-2a",
    group="us-east-1-dfw-2",
    parent_zone_id="use1-az6",
)
EFA = LustreSettings(capacity_gib=9600, throughput=1000, has_efa=True)
TCP = LustreSettings(capacity_gib=4800, throughput=1000, has_efa=False)
STANDING = {
    "storage": "fsx-lustre",
    "lustre": {"capacity_gib": 9600.0, "throughput": 1000.0, "efa": True},
}
KIMI = Loading(size_bytes=595_000_000_000, num_hosts=2, target_s=600)


def changes(
    previous: dict[str, Any],
    storage: Any,
    lustre: LustreSettings,
    bucket: str | None = None,
    key_arn: str | None = None,
) -> dict[str, str]:
    wanted = WantedStore(storage=storage, lustre=lustre, bucket=bucket, key_arn=key_arn)
    found = change_problems(previous, wanted, stack="mine")
    return {problem.field: f"{problem.what} {problem.fix}" for problem in found}


def test_a_bucket_that_the_stack_has_made_stays_the_stack_s() -> None:
    """It is protected: the engine would refuse in the middle, with the role's right to read changed already."""
    made = {"storage": "s3-to-nvme", "source": "s3://weights-903cc1f/", "is_made": True}
    theirs = {"storage": "s3-to-nvme", "source": "s3://old-weights/"}
    for bucket in ("new-weights", "weights-903cc1f"):
        assert bucket in changes(made, "s3-to-nvme", TCP, bucket)["weights.source"]
    assert changes(made, "s3-to-nvme", TCP) == {}
    assert changes(theirs, "s3-to-nvme", TCP, "new-weights") == {}


@pytest.mark.parametrize(
    ("storage", "zone", "is_refused"),
    [
        ("fsx-lustre", ORDINARY, False),
        ("fsx-lustre", DALLAS, True),
        ("efs", ORDINARY, False),
        ("efs", DALLAS, True),
        ("s3-to-nvme", DALLAS, False),
        ("shared-mount", DALLAS, False),
        ("pvc", ORDINARY, True),
        (None, DALLAS, False),
    ],
)
def test_storage_is_refused_where_hosts_cannot_have_it(
    storage: Any, zone: Zone, is_refused: bool
) -> None:
    assert bool(list(storage_problems(Weights(storage=storage), zone, "mine"))) is is_refused


@pytest.mark.parametrize(
    ("lustre", "fields"),
    [
        (EFA, set()),
        (LustreSettings(capacity_gib=14400, throughput=1000, has_efa=True), set()),
        (
            LustreSettings(capacity_gib=4800, throughput=1000, has_efa=True),
            {"moe-infra:fsx_capacity_gib"},
        ),
        (
            LustreSettings(capacity_gib=9600, throughput=500, has_efa=True),
            {"moe-infra:fsx_throughput"},
        ),
        (
            LustreSettings(capacity_gib=9600, throughput=1000, has_efa=False),
            {"moe-infra:fsx_efa"},
        ),
    ],
)
def test_a_file_system_grows_and_changes_in_nothing_else(
    lustre: LustreSettings, fields: set[str]
) -> None:
    told = changes(STANDING, "fsx-lustre", lustre)
    assert set(told) == fields
    assert all("pulumi config set" in each for each in told.values())


BUCKET = {"storage": "s3-to-nvme", "is_made": True}
PLAIN = {"storage": "fsx-lustre", "lustre": {"capacity_gib": 4800, "throughput": 1000}}


@pytest.mark.parametrize(
    ("previous", "key_arn", "fix"),
    [
        (BUCKET, "arn:new", None),  # what lies there already is read as before
        ({**BUCKET, "kms_key_arn": "arn:old"}, "arn:old", None),
        ({**BUCKET, "kms_key_arn": "arn:old"}, "arn:new", "config set kms_key_arn arn:old"),
        ({**BUCKET, "kms_key_arn": "arn:old"}, None, "config set kms_key_arn arn:old"),
        (PLAIN, None, None),
        (PLAIN, "arn:new", "config rm kms_key_arn"),
        ({**PLAIN, "kms_key_arn": "arn:old"}, "arn:old", None),
        ({**PLAIN, "kms_key_arn": "arn:old"}, "arn:new", "config set kms_key_arn arn:old"),
        ({"storage": "efs"}, "arn:new", "config rm kms_key_arn"),
        ({}, "arn:new", None),
    ],
)
def test_what_is_kept_keeps_its_key(
    previous: dict[str, Any], key_arn: str | None, fix: str | None
) -> None:
    told = changes(previous, previous.get("storage", "s3-to-nvme"), TCP, key_arn=key_arn)
    assert set(told) == ({"moe-infra:kms_key_arn"} if fix else set())
    assert fix is None or fix in told["moe-infra:kms_key_arn"]


def test_without_efa_the_tier_may_change() -> None:
    standing = {
        "storage": "fsx-lustre",
        "lustre": {"capacity_gib": 4800, "throughput": 500, "efa": False},
    }
    assert changes(standing, "fsx-lustre", TCP) == {}


@pytest.mark.parametrize(
    ("was", "becomes", "is_refused"),
    [
        ("s3-to-nvme", "s3-to-nvme", False),
        ("s3-to-nvme", "fsx-lustre", False),
        ("s3-to-nvme", "efs", True),
        ("fsx-lustre", "s3-to-nvme", True),
        ("fsx-lustre", "efs", True),
        ("efs", "local", True),
        ("local", "fsx-lustre", False),
        (None, "fsx-lustre", False),
    ],
)
def test_weights_that_are_kept_do_not_lose_their_owner(
    was: str | None, becomes: str, is_refused: bool
) -> None:
    previous = {"storage": was} if was else {}
    assert bool(changes(previous, becomes, TCP)) is is_refused


@pytest.mark.parametrize(
    ("read", "named", "becomes", "is_refused"),
    [
        ("s3://their-weights/kimi/", "their-weights", "local", False),
        ("s3://their-weights/", "their-weights", "fsx-lustre", False),
        ("s3://weights-1a2b3c4/", "their-weights", "fsx-lustre", True),
        ("s3://weights-1a2b3c4/", None, "local", True),
        ("s3://weights-1a2b3c4/", None, "fsx-lustre", False),
    ],
)
def test_a_bucket_of_the_operator_s_has_its_owner(
    read: str, named: str | None, becomes: str, is_refused: bool
) -> None:
    previous = {"storage": "s3-to-nvme", "source": read}
    told = changes(previous, becomes, TCP, named)
    assert bool(told) is is_refused
    # `pulumi state delete` leaves the outputs, by which the change would be refused again
    assert all("state delete" not in each and "pulumi destroy" in each for each in told.values())


def test_a_file_system_is_the_stack_s_whoever_owns_the_bucket() -> None:
    previous = {**STANDING, "source": "s3://their-weights/"}
    assert changes(previous, "s3-to-nvme", TCP, "their-weights")


def test_a_small_fast_file_system_is_a_trap_and_the_warning_has_the_numbers() -> None:
    """FSx User Guide, performance: 5 Gbit/s for each client and server, whatever the tier."""
    hasty = Loading(size_bytes=KIMI.size_bytes, num_hosts=2, target_s=300)
    told = loading_warning("fsx-lustre", TCP, hasty, read_loading_rates())
    assert told is not None
    assert (
        "595 GB on each of 2 hosts at 1.25 GB/s take 476 s; weights.load_target_s is 300 s" in told
    )
    assert "9600 GiB of that tier would do" in told


def test_efa_is_not_had_by_mounting_alone() -> None:
    told = efa_warning("fsx-lustre", EFA, 2)
    assert told is not None
    assert "over TCP, at 2.50 GB/s each" in told
    assert "lnetctl net show" in told
    assert efa_warning("fsx-lustre", TCP, 2) is None
    assert efa_warning("s3-to-nvme", EFA, 2) is None


def test_what_is_read_in_time_is_not_warned_of() -> None:
    rates = read_loading_rates()
    assert loading_warning("fsx-lustre", EFA, KIMI, rates) is None
    assert loading_warning("s3-to-nvme", TCP, KIMI, rates) is None
    without = Loading(size_bytes=KIMI.size_bytes, num_hosts=2, target_s=None)
    assert loading_warning("fsx-lustre", TCP, without, rates) is None


def test_efs_is_always_warned_of_for_such_weights() -> None:
    for target in (None, 600):
        loading = Loading(size_bytes=KIMI.size_bytes, num_hosts=2, target_s=target)
        told = loading_warning("efs", TCP, loading, read_loading_rates())
        assert told is not None
        assert "at 0.37 GB/s take 1608 s" in told


@given(
    st.sampled_from(TIERS),
    st.booleans(),
    st.integers(1, 2_000),
    st.integers(1, 64),
    st.integers(30, 3_600),
)
def test_the_size_that_is_said_to_do_exists_and_is_the_least_that_does(
    throughput: int, has_efa: bool, size_gb: int, num_hosts: int, target_s: int
) -> None:
    loading = Loading(size_bytes=size_gb * 10**9, num_hosts=num_hosts, target_s=target_s)
    step = EFA_STEP_GIB[throughput] if has_efa else STEP_GIB

    def rate(capacity_gib: int) -> float:
        return lustre_gb_per_s(settings(capacity_gib), num_hosts)

    def settings(capacity_gib: int) -> LustreSettings:
        return LustreSettings(capacity_gib=capacity_gib, throughput=throughput, has_efa=has_efa)

    enough = enough_lustre(settings(step), loading)
    if enough is None:
        assert rate(LARGEST_GIB // step * step) < size_gb / target_s
        return
    assert lustre_problem(settings(enough)) is None
    assert rate(enough) >= size_gb / target_s
    assert enough == step or rate(enough - step) < size_gb / target_s
