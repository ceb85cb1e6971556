"""The reservation that a stack launches into, looked at."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from datetime import UTC, datetime

import pulumi
import pulumi_aws as aws
from pulumi_aws import cloudcontrol, ec2

from infra.catalog.instance_types import InstanceType
from infra.provision.asking import Asking
from infra.provision.aws.account import Account, Demand
from infra.provision.aws.found import (
    FoundReservation,
    end_notice,
    not_begun_problem,
    past_notice_problem,
    reservation_problems,
)
from infra.provision.aws.zone import Zone


def find_reservation(
    asking: Asking,
    account: Account,
    demand: Demand,
    zone: Zone,
    instance_types: tuple[InstanceType, ...],
) -> FoundReservation | None:
    """The reservation, held against what the stack launches into it; None where there is none, or none was seen."""
    identity = account.reservation_id
    if identity is None:
        return None
    found = asking.ask(
        "moe-infra:reservation_id",
        f"{demand.capacity} reservation {identity} in {account.region}",
        "cr-0123456789abcdef0",
        lambda: read_reservation(identity, demand),
    )
    if found is None:
        return None
    zone_id = zone.zone_id
    if found.zone_name != zone.name:
        zone_id = f"ID-OF-{found.zone_name}"
        with contextlib.suppress(Exception):  # whoever may not ask looks the id up
            zone_id = zone_id_of(found.zone_name)
    found = replace(found, zone_id=zone_id)
    asking.note(*reservation_problems(found, demand, zone, instance_types[0]))
    early = not_begun_problem(found, demand)
    if early is not None and pulumi.runtime.is_dry_run():
        pulumi.log.warn(f"{early.field}: {early.what} {early.fix}")
    else:
        asking.note(early)
    late = past_notice_problem(found, demand, datetime.now(UTC))
    asking.note(late)
    if found.end and late is None:
        pulumi.log.info(end_notice(found, demand))
    return found


def read_reservation(identity: str, demand: Demand) -> FoundReservation:
    """A reservation of the kind that the stack names.

    Raises:
        Exception: there is none, or nobody may ask (the SDK raises nothing narrower).
    """
    return (_read_plain_reservation if demand.capacity == "odcr" else _read_block)(identity)


def _read_block(identity: str) -> FoundReservation:
    found = ec2.get_capacity_block_reservation(id=identity)
    return FoundReservation(
        id=identity,
        instance_type=found.instance_type,
        zone_name=found.availability_zone,
        zone_id=None,
        num_instances=int(found.instance_count),
        state=found.state,
        start=found.start_date,
        end=found.end_date,
    )


def _read_plain_reservation(identity: str) -> FoundReservation:
    """An on-demand reservation; the provider's own look-up knows blocks alone, Cloud Control knows these."""
    answer = cloudcontrol.get_resource(
        type_name="AWS::EC2::CapacityReservation", identifier=identity
    )
    found = json.loads(answer.properties)
    return FoundReservation(
        id=identity,
        instance_type=found["InstanceType"],
        zone_name=found["AvailabilityZone"],
        zone_id=None,
        num_instances=int(found.get("TotalInstanceCount") or found["InstanceCount"]),
        state=found.get("State", "active"),
        start=found.get("StartDate", ""),
        end=found.get("EndDate", ""),
    )


def zone_id_of(zone_name: str) -> str:
    """The id of a zone that AWS names with the letter of this account."""
    found = aws.get_availability_zone(name=zone_name, all_availability_zones=True)
    return str(found.zone_id)
