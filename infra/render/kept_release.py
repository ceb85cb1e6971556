"""A release as hosts keep it, so that it can be brought up again without its stack file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.errors import HostsFailed, StackError
from infra.plan.document import plan_document, plan_hash
from infra.plan.imported import parse_plan
from infra.plan.process import Plan

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRelease:
    """A release that can be brought up again without its stack file.

    Args:
        plan: as it was compiled.
        enable: tuning items that the stack switched on beyond its profile.
    """

    plan: Plan
    enable: tuple[str, ...]


def kept_document(plan: Plan, enable: Sequence[str]) -> dict[str, object]:
    """What hosts keep of a release; no secret is in a plan."""
    return {
        "schema_version": SCHEMA_VERSION,
        "plan": plan_document(plan),
        "enable": list(enable),
    }


def read_kept(host: str, document: Mapping[str, object]) -> KeptRelease:
    """A kept release read back.

    Raises:
        HostsFailed: it is damaged, or not what its hash says.
    """
    where, fix = f"{host} kept release", "Bring the stack up from its file instead."
    try:
        plan = parse_plan(document["plan"], where)
        enable = document["enable"]
        names = tuple(str(name) for name in enable) if isinstance(enable, list) else ()
    except (StackError, KeyError, TypeError) as error:
        raise HostsFailed(where, f"It cannot be read: {error}", fix) from error
    if plan_hash(plan) != plan.hash:
        raise HostsFailed(where, f"Its plan is not the one of hash {plan.hash[:12]}.", fix)
    return KeptRelease(plan=plan, enable=names)
