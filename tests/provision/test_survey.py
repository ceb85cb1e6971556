from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.errors import ProblemsFound
from infra.provision.aws.account import Demand
from infra.provision.aws.found import FoundSubnet, subnet_problems
from infra.provision.aws.zone import Zone
from infra.rehearsal.cloud.kind import RefusedError
from infra.rehearsal.cloud.lookups import look_up
from infra.rehearsal.cloud.scratch_project import RESERVATION
from infra.rehearsal.cloud.store import Reservation, Store
from tests.provision.belongings import own_stack, stand_in, their_network

Record = Callable[..., Any]
Prepare = Callable[[Store], Mapping[str, str]]


def with_reservation(**changed: Any) -> Prepare:
    """The reservation that the stack needs, but for what is said."""

    def prepare(store: Store) -> Mapping[str, str]:
        known = replace(store.account.reservations[RESERVATION], **changed)
        store.account = replace(store.account, reservations={RESERVATION: known})
        return {}

    return prepare


def refusal(record: Record, stack: str, prepare: Prepare = lambda _: {}, **config: str) -> str:
    """What is said instead of registering anything."""
    stores: list[Store] = []

    def keep(store: Store) -> Mapping[str, str]:
        stores.append(store)
        return prepare(store)

    with pytest.raises(ProblemsFound) as caught:
        record(stack, prepare=keep, **config)
    assert not [each for each in stores[0].all() if ":theirs::" not in each.urn]
    return str(caught.value)


@pytest.mark.parametrize(
    ("changed", "said", "fix"),
    [
        (
            {"instance_type": "p5en.48xlarge"},
            f"{RESERVATION} holds p5en.48xlarge; gb200-2p1d needs p6e-gb200.36xlarge.",
            "pulumi config set reservation_id",
        ),
        (
            {"zone_id": "use1-az2"},
            f"{RESERVATION} is in us-east-1b; zone use1-dfw2-az1 is us-east-1-dfw-2a",
            "pulumi config set zone_id use1-az2 ",
        ),
        (
            {"num_instances": 5},
            f"{RESERVATION} holds 5 machines; gb200-2p1d needs 6.",
            "pulumi config set reservation_id",
        ),
        ({"state": "expired"}, f"{RESERVATION} is expired.", "pulumi config set reservation_id"),
        (
            {"state": "scheduled", "start": "2026-12-01T11:30:00Z"},
            f"{RESERVATION} is scheduled and begins at 2026-12-01T11:30:00Z.",
            "Until then pulumi preview works",
        ),
    ],
)
def test_a_reservation_that_does_not_fit_is_refused_before_anything_is_made(
    record: Record, changed: dict[str, Any], said: str, fix: str
) -> None:
    told = refusal(record, "gb200-2p1d", with_reservation(**changed))
    assert said in told
    assert fix in told


def test_the_end_of_a_reservation_is_told_with_the_time_to_stop_before(record: Record) -> None:
    recorded = record("gb200-2p1d", prepare=with_reservation(end="2099-12-15T11:30:00Z"))
    (told,) = [line for line in recorded.said if "2099-12-15" in line]
    assert "60 minutes before" in told


def test_an_ordinary_reservation_is_asked_of_cloud_control(record: Record, tmp_path: Path) -> None:
    root = own_stack(tmp_path, "h200-2n-tp16", capacity={"kind": "odcr"})

    def smaller(store: Store) -> Mapping[str, str]:
        known = Reservation(
            kind="odcr", instance_type="p5en.48xlarge", zone_id="use2-az1", num_instances=1
        )
        store.account = replace(store.account, reservations={RESERVATION: known})
        return {}

    assert len(record("mine", root=root).of_type("Instance")) == 2
    with pytest.raises(ProblemsFound, match="holds 1 machines; mine needs 2"):
        record("mine", root=root, prepare=smaller)


def test_a_block_is_no_ordinary_reservation(record: Record, tmp_path: Path) -> None:
    root = own_stack(tmp_path, "h200-2n-tp16", capacity={"kind": "odcr"})

    def a_block(store: Store) -> Mapping[str, str]:
        known = replace(store.account.reservations[RESERVATION], kind="capacity-block")
        store.account = replace(store.account, reservations={RESERVATION: known})
        return {}

    # the shipped account holds an ordinary one, since the stack asks for it
    with pytest.raises(ProblemsFound, match="There is no odcr reservation"):
        record("mine", root=root, prepare=a_block)


def test_everything_that_is_not_there_is_told_at_once(record: Record) -> None:
    told = refusal(
        record,
        "h200-tp8",
        key_name="nobody-s",
        ami="ami-01234567",
        weights_bucket="nobody-s",
        subnet_id="subnet-01234567",
    )
    for field in ("key_name", "ami", "weights_bucket", "subnet_id"):
        assert f"pulumi config set {field}" in told
    assert told.count("couldn't find resource") == 3


def test_a_zone_that_does_not_offer_the_machines_names_those_that_do(record: Record) -> None:
    told = refusal(record, "h200-tp8", zone_id="usw2-az1")
    assert "no zone usw2-az1 in us-east-2" in told
    assert "pulumi config set zone_id use2-az1 " in told
    assert "use1" not in told


def test_a_wrong_zone_suggests_that_of_the_reservation(record: Record) -> None:
    told = refusal(record, "gb200-2p1d", zone_id="usw2-az1")
    assert "no zone usw2-az1 in us-east-1" in told
    assert "pulumi config set zone_id use1-dfw2-az1 " in told


def test_a_key_that_nothing_reads_is_refused_before_anything_is_made(record: Record) -> None:
    told = refusal(record, "h200-tp8", zoneid="use2-az1")
    assert "moe-infra:zoneid: Nothing reads this key. Did you mean zone_id" in told


def test_a_region_without_the_machines_is_named(record: Record, tmp_path: Path) -> None:
    root = own_stack(tmp_path, "b200-sglang-tp8")
    (root / "stacks" / "Pulumi.mine.yaml").write_text(
        "config: {'aws:region': ap-northeast-1, 'moe-infra:zone_id': apne1-az1}"
    )
    with pytest.raises(ProblemsFound, match="ap-northeast-1 offers no p6-b200"):
        record("mine", root=root)


def test_an_image_of_another_architecture_is_refused(record: Record) -> None:
    told = refusal(record, "h200-tp8", ami="ami-000000000000000e3")
    assert "ami-000000000000000e3 is for aarch64; p5en.48xlarge is x86_64" in told


def test_the_root_volume_is_that_of_the_image(record: Record) -> None:
    def own_image(store: Store) -> Mapping[str, str]:
        store.account = replace(store.account, images={"ami-0123456789abcdef0": "x86_64"})
        return {"ami": "ami-0123456789abcdef0"}

    theirs, shipped = record("h200-tp8", prepare=own_image), record("h200-tp8")
    for recorded, device in ((theirs, "/dev/sda1"), (shipped, "/dev/xvda")):
        (template,) = recorded.of_type("LaunchTemplate").values()
        assert [each["deviceName"] for each in template["blockDeviceMappings"]] == [device]


def test_what_the_operator_may_not_ask_is_left_to_the_launch(record: Record) -> None:
    def forbidden(store: Store) -> Mapping[str, str]:
        asked = ("getKeyPair", "getCapacityBlockReservation", "getAmi")
        store.account = replace(store.account, forbidden=asked)
        return {}

    recorded = record("gb200-2p1d", prepare=forbidden)
    assert sum("was not looked at, you may not ask" in line for line in recorded.said) == 3
    assert len(recorded.of_type("Instance")) == 6


def test_credentials_of_another_account_are_refused_before_anything_else(record: Record) -> None:
    said = refusal(record, "h200-tp8", account_id="210987654321", key_name="none")
    assert "Your credentials are those of account" in said
    assert "the stack is kept in 210987654321" in said
    assert "key pair" not in said


def test_the_account_that_the_stack_is_kept_in_is_taken(record: Record) -> None:
    def theirs(store: Store) -> Mapping[str, str]:
        return {"account_id": store.account.account_id}

    assert record("h200-tp8", prepare=theirs).of_type("Instance")


def test_a_zone_that_the_operator_may_not_ask_about_is_refused_with_what_to_allow(
    record: Record,
) -> None:
    def forbidden(store: Store) -> Mapping[str, str]:
        store.account = replace(store.account, forbidden=("getAvailabilityZone",))
        return {}

    with pytest.raises(ProblemsFound, match="ec2:DescribeAvailabilityZones"):
        record("gb200-2p1d", prepare=forbidden)


@pytest.mark.parametrize(
    ("network", "config", "said"),
    [
        (
            {"zones": ("use2-az2",)},
            {},
            "is in use2-az2; the capacity is in use2-az1",
        ),
        (
            {"size": 28},
            {"stack": "maximum"},
            "has 11 free addresses; hosts take 68",
        ),
    ],
)
def test_a_subnet_that_hosts_cannot_be_put_into_is_refused(
    record: Record,
    tmp_path: Path,
    network: dict[str, Any],
    config: dict[str, str],
    said: str,
) -> None:
    fields: dict[str, object] = {}
    if config:
        # 17 addresses a host: p6-b300 at its maximum
        fields = {
            "accelerator": "b300",
            "capacity": {"kind": "on-demand", "network_layout": "maximum"},
            "roles": {"unified": {"replicas": 4}},
            "router": {"name": "vllm-router"},
        }
    root = own_stack(tmp_path, "h200-tp8", **fields)
    region, zone = ("us-west-2", "usw2-az1") if config else ("us-east-2", "use2-az1")
    (root / "stacks" / "Pulumi.mine.yaml").write_text(
        f"config: {{'aws:region': {region}, 'moe-infra:zone_id': {zone}}}"
    )

    def prepare(store: Store) -> Mapping[str, str]:
        zones = network.get("zones", (zone,))
        made = their_network(store, region=region, zones=zones, size=network.get("size", 24))
        return {"subnet_id": made[0].id}

    with pytest.raises(ProblemsFound, match=said):
        record("mine", root=root, prepare=prepare)


SMALL = FoundSubnet(
    id="subnet-0123456789abcdef0",
    vpc_id="vpc-1",
    zone_id="use2-az1",
    cidr_block="10.0.0.0/28",
    num_free=3,
    num_standing=0,
    gives_public_addresses=False,
)


@pytest.mark.parametrize(
    ("num_standing", "said"),
    [
        (0, "3 free addresses; hosts take 8"),
        (4, "3 free addresses; 4 hosts stand, the others take 4"),
        (5, None),
        (None, None),  # a warning: nobody may ask
    ],
)
def test_hosts_that_stand_have_their_addresses(num_standing: int | None, said: str | None) -> None:
    zone = Zone(zone_id="use2-az1", name="us-east-2a", group="us-east-2", parent_zone_id=None)
    demand = Demand(
        stack="mine",
        capacity="on-demand",
        num_hosts=8,
        num_addresses=8,
        uses_lustre=False,
        wants_load_balancer=False,
    )
    found = [
        problem.what
        for problem in subnet_problems(replace(SMALL, num_standing=num_standing), zone, demand)
    ]
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


def test_only_machines_of_other_stacks_leave_too_few_addresses(record: Record) -> None:
    def full(store: Store) -> Mapping[str, str]:
        subnet, *_ = their_network(store, region="us-east-2", zones=("use2-az1",), size=28)
        for number in range(10):  # of 11
            stand_in(store, subnet, name=f"host-{number}", stack="another")
        return {"subnet_id": subnet.id}

    with pytest.raises(ProblemsFound, match="1 free addresses; hosts take 2"):
        record("h200-2n-tp16", prepare=full)


def test_machines_are_counted_by_stack_and_subnet(tmp_path: Path) -> None:
    store = Store(tmp_path)
    here, there = their_network(store, region="us-east-2", zones=("use2-az1", "use2-az2"), size=28)
    for number, (subnet, stack) in enumerate([(here, "mine"), (here, "theirs"), (there, "mine")]):
        stand_in(store, subnet, name=f"host-{number}", stack=stack)
    filters = [
        {"name": "subnet-id", "values": [here.id]},
        {"name": "tag:moe-infra:stack", "values": ["mine"]},
    ]
    token = "aws:ec2/getInstances:getInstances"
    assert len(look_up(store, "us-east-2", token, {"filters": filters})["ids"]) == 1  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="does not filter machines by vpc-id"):
        look_up(store, "us-east-2", token, {"filters": [{"name": "vpc-id", "values": ["x"]}]})
