from __future__ import annotations

import pytest

from infra.rehearsal.cloud.event_kinds import EVENT_RULE, EVENT_TARGET
from tests.rehearsal.cloud.conftest import Cloud


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({"eventPattern": "{"}, "InvalidEventPatternException"),
        ({"eventPattern": '{"source": "aws.ec2"}'}, "InvalidEventPatternException"),
        ({"eventPattern": '{"detail": {"id": "x"}}'}, "InvalidEventPatternException"),
        ({"scheduleExpression": "cron(0 10 27 11 * 2099)"}, "ValidationException"),
        ({"scheduleExpression": "at noon"}, "ValidationException"),
        ({}, "must be specified"),
    ],
)
def test_a_rule_that_is_none_is_refused(cloud: Cloud, inputs: dict[str, str], code: str) -> None:
    assert code in cloud.refusal(EVENT_RULE, name="end", **inputs)


def test_a_target_hears_of_a_rule_that_stands(cloud: Cloud) -> None:
    topic = "arn:aws:sns:us-east-1:000000000000:ends"
    said = cloud.refusal(EVENT_TARGET, rule="end", arn=topic)
    assert "ResourceNotFoundException" in said
    cloud.make(EVENT_RULE, name="end", scheduleExpression="cron(0 10 27 11 ? 2099)")
    said = cloud.refusal(EVENT_TARGET, rule="end", arn=topic, input="no JSON")
    assert "invalid JSON" in said
    assert cloud.make(EVENT_TARGET, rule="end", arn=topic).id.startswith("end-")
