"""EventBridge of the emulated cloud: rules, and who hears of them.

Refusals: EventBridge API, PutRule (InvalidEventPatternException, ValidationException) and PutTargets; of a rule that
waits for nothing, and of a text that is no JSON: terraform-provider-aws, internal/service/events.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from infra.rehearsal.cloud.kind import Kind, Link, Made, RefusedError, Request

EVENT_RULE = "aws:cloudwatch/eventRule:EventRule"
EVENT_TARGET = "aws:cloudwatch/eventTarget:EventTarget"
# EventBridge User Guide, "Cron expressions": six fields, of which one of the days is `?`.
_FIELD = r"[0-9A-Za-z,\-*/LW#]+"
_SCHEDULE = re.compile(
    rf"cron\({_FIELD} {_FIELD} (\?|{_FIELD}) {_FIELD} (\?|{_FIELD}) {_FIELD}\)"
    r"|rate\((1 (minute|hour|day)|\d+ (minutes|hours|days))\)"
)


def _make_rule(request: Request) -> Made:
    pattern, schedule = request.text("eventPattern"), request.text("scheduleExpression")
    if not pattern and not schedule:
        what = "one of `event_pattern,schedule_expression` must be specified"
        raise RefusedError("InvalidConfiguration", what)
    if pattern and not _is_pattern(pattern):
        raise RefusedError("InvalidEventPatternException", "Event pattern is not valid.")
    found = _SCHEDULE.fullmatch(schedule)
    if schedule and (found is None or (schedule.startswith("cron") and schedule.count("?") != 1)):
        raise RefusedError("ValidationException", "Parameter ScheduleExpression is not valid.")
    name = request.text("name")
    where = f"{request.region}:{request.account_id}"
    return Made(
        id=name,
        computed={"arn": f"arn:aws:events:{where}:rule/{name}", "eventBusName": "default"},
    )


def _is_pattern(text: str) -> bool:
    """Whether every leaf of a pattern is a list."""
    pattern = _json(text)
    return isinstance(pattern, dict) and bool(pattern) and _has_lists(pattern)


def _json(text: str) -> object:
    """What a text says; None for what is no JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _has_lists(values: Mapping[str, object]) -> bool:
    return all(
        _has_lists(each) if isinstance(each, dict) else isinstance(each, list)
        for each in values.values()
    )


def _make_target(request: Request) -> Made:
    text = request.text("input")
    if text and _json(text) is None:
        raise RefusedError("InvalidConfiguration", '"input" contains an invalid JSON')
    identity = request.text("targetId") or f"terraform-{request.digits}"
    name = request.text("rule")
    return Made(id=f"{name}-{identity}", computed={"targetId": identity, "eventBusName": "default"})


KINDS: Mapping[str, Kind] = {
    EVENT_RULE: Kind(noun="EventBridge Rule", make=_make_rule, auto_name="name"),
    EVENT_TARGET: Kind(
        noun="EventBridge Target",
        make=_make_target,
        links=(
            Link(path="rule", token=EVENT_RULE, handle="name", code="ResourceNotFoundException"),
        ),
    ),
}
