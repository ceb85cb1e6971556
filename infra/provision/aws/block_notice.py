"""Word before the end of a capacity block, sent to a topic that the operator has made.

AWS tells of the end 40 minutes before it (EC2 User Guide, "Monitor Capacity Blocks using EventBridge", checked
2026-11-27). Machines of UltraServers have to be idle 60 minutes before it, so the clock sends the word, too. One rule
does both (EventBridge API, PutRule). The topic's own policy has to let events.amazonaws.com publish.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pulumi
from pulumi import ResourceOptions
from pulumi_aws import cloudwatch, sns

from infra.catalog.instance_types import notice_minutes
from infra.provision.asking import Asking
from infra.provision.aws.account import Account, Demand
from infra.provision.aws.found import FoundReservation, end_notice, moment
from infra.provision.config_problems import account_problem
from infra.provision.naming import Tags

KEY = "moe-infra:notice_topic"
# Minutes for draining and `fab down`, before the machines have to be idle.
LEAD_MINUTES = 30
_EVENT = "Capacity Block Reservation Expiration Warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeSettings:
    """What is sent, when and where.

    Args:
        topic: ARN.
        schedule: as EventBridge takes it, in UTC; None where the end of the block is not known.
        message: one sentence; None for AWS's own event.
    """

    topic: str
    reservation_id: str
    schedule: str | None
    message: str | None

    @property
    def pattern(self) -> dict[str, object]:
        """The event of AWS that tells of this block's end."""
        detail = {"capacity-reservation-id": [self.reservation_id]}
        return {"source": ["aws.ec2"], "detail-type": [_EVENT], "detail": detail}


def notice_settings(
    account: Account, demand: Demand, found: FoundReservation | None
) -> NoticeSettings | None:
    """The word that a stack wants; None where it names no topic.

    Args:
        account: the configuration.
        demand: with the kind of capacity.
        found: the block; None where nobody may look at it.
    """
    topic, identity = account.notice_topic, account.reservation_id
    notice = _notice(demand)
    if topic is None or identity is None or notice is None:
        return None
    end = moment(found.end) if found is not None else None
    return NoticeSettings(
        topic=topic,
        reservation_id=identity,
        schedule=_once_at(end - timedelta(minutes=notice + LEAD_MINUTES)) if end else None,
        message=end_notice(found, demand) if found is not None and end else None,
    )


def find_topic(asking: Asking, account: Account, demand: Demand) -> None:
    """Look at the topic that the configuration names."""
    arn = account.notice_topic
    if arn is None:
        return
    if _notice(demand) is None:
        what = f"Machines that are bought as {demand.capacity} have no end to tell of."
        fix = f"Type: pulumi config rm notice_topic --stack {demand.stack}"
        asking.note(replace(account_problem(KEY, what, "", demand.stack), fix=fix))
        return
    name = arn.rpartition(":")[2]
    example = f"arn:aws:sns:{account.region}:123456789012:capacity-ends"
    found = asking.ask(
        KEY,
        f"topic {name} in {account.region}",
        example,
        lambda: str(sns.get_topic(name=name).arn),
    )
    if found is not None and found != arn:
        what = f"The topic {name} of this account and region is {found}."
        asking.note(account_problem(KEY, what, found, demand.stack))


def _notice(demand: Demand) -> int | None:
    return notice_minutes(demand.capacity, are_managed_nodes=not demand.has_login)


def _once_at(when: datetime) -> str:
    """A schedule of EventBridge for one minute of one year."""
    there = when.astimezone(UTC)
    return f"cron({there.minute} {there.hour} {there.day} {there.month} ? {there.year})"


class BlockNotice(pulumi.ComponentResource):
    """The rule that waits for the end of a block, and the topic that hears of it."""

    def __init__(self, name: str, settings: NoticeSettings, tags: Tags) -> None:
        super().__init__("moe-infra:hosts:BlockNotice", name)
        child = ResourceOptions(parent=self)
        rule = cloudwatch.EventRule(
            "block-end",
            description="Capacity that is about to end",
            event_pattern=json.dumps(settings.pattern),
            schedule_expression=settings.schedule,
            tags=tags.of("block-end"),
            opts=child,
        )
        cloudwatch.EventTarget(
            "block-end",
            rule=rule.name,
            arn=settings.topic,
            input=json.dumps(settings.message) if settings.message else None,
            opts=child,
        )
        self.register_outputs({})
