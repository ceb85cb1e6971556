"""A topic of the operator's hears of the end of a block before the machines have to be idle."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from infra.errors import ProblemsFound
from infra.rehearsal.cloud.scratch_project import RESERVATION
from infra.rehearsal.cloud.store import Store

Record = Callable[..., Any]
TOPIC = "arn:aws:sns:us-east-1:000000000000:capacity-ends"


def ending(end: str) -> Callable[[Store], dict[str, str]]:
    def prepare(store: Store) -> dict[str, str]:
        found = store.account.reservations[RESERVATION]
        kept = {**store.account.reservations, RESERVATION: replace(found, end=end)}
        store.account = replace(store.account, topics=("capacity-ends",), reservations=kept)
        return {"notice_topic": TOPIC}

    return prepare


def test_the_word_comes_by_awss_event_and_by_the_clock(record: Record) -> None:
    recorded = record("gb200-2p1d", prepare=ending("2099-12-15T11:20:00Z"))
    (rule,) = recorded.of_type("EventRule").values()
    # an UltraServer's machines are idle 60 minutes before the end, and draining takes its time
    assert rule["scheduleExpression"] == "cron(50 9 15 12 ? 2099)"
    pattern = json.loads(rule["eventPattern"])
    assert pattern["detail"] == {"capacity-reservation-id": [RESERVATION]}
    assert pattern["detail-type"] == ["Capacity Block Reservation Expiration Warning"]
    (target,) = recorded.of_type("EventTarget").values()
    assert target["arn"] == TOPIC
    assert "2099-12-15T11:20:00Z" in json.loads(target["input"])


def test_without_a_topic_nothing_is_made(record: Record) -> None:
    assert record("gb200-2p1d").of_type("EventRule") == {}


def test_where_nobody_may_look_at_the_block_awss_event_is_the_word(record: Record) -> None:
    def prepare(store: Store) -> dict[str, str]:
        values = ending("2099-12-15T11:20:00Z")(store)
        forbidden = ("getCapacityBlockReservation",)
        store.account = replace(store.account, forbidden=forbidden)
        return values

    recorded = record("gb200-2p1d", prepare=prepare)
    (rule,) = recorded.of_type("EventRule").values()
    assert "scheduleExpression" not in rule
    (target,) = recorded.of_type("EventTarget").values()
    assert "input" not in target


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("arn:aws:sns:us-east-1:000000000000:nobody", "There is no topic nobody in us-east-1"),
        ("arn:aws:sns:us-east-2:000000000000:capacity-ends", f"is {TOPIC}"),
        ("capacity-ends", "notice_topic"),
    ],
)
def test_a_topic_that_cannot_hear_is_refused(record: Record, topic: str, said: str) -> None:
    def prepare(store: Store) -> dict[str, str]:
        return {**ending("2099-12-15T11:20:00Z")(store), "notice_topic": topic}

    with pytest.raises(ProblemsFound, match=said):
        record("gb200-2p1d", prepare=prepare)


def test_machines_without_an_end_have_no_word(record: Record) -> None:
    with pytest.raises(ProblemsFound, match="have no end to tell of") as caught:
        record("h200-tp8", notice_topic="arn:aws:sns:us-east-2:000000000000:capacity-ends")
    assert "pulumi config rm notice_topic" in str(caught.value)
