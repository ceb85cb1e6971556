"""What the listed releases refuse (`tests/cases/refusals/`), and what holds each refusal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache

import yaml
from pydantic import BaseModel, ConfigDict

from infra.spec.load import PROJECT

FOLDER = PROJECT / "tests" / "cases" / "refusals"


class Cover(BaseModel):
    """What holds the refusals that a pattern fits: a rule, or nothing, for a reason."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    match: str
    rule: str | None = None
    why: str | None = None


@cache
def covers() -> tuple[Cover, ...]:
    rows = yaml.safe_load((FOLDER / "covered.yaml").read_text(encoding="utf-8"))
    return tuple(map(Cover.model_validate, rows))


@cache
def listed() -> Mapping[str, tuple[str, ...]]:
    """Release → its refusals."""
    return {
        path.stem: tuple(json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(FOLDER.glob("*.json"))
    }


def cover_of(refusal: str) -> Cover | None:
    return next((each for each in covers() if re.search(each.match, refusal)), None)
