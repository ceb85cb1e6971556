"""What every file of the catalogue is: a map without unknown keys, and facts of which each names its source."""

from datetime import date
from typing import Self

from pydantic import BaseModel, ConfigDict, StrictStr, model_validator
from pydantic_core import PydanticCustomError


def told(field: str, what: str, fix: str) -> PydanticCustomError:
    """What a whole map's validator raises: the key that it is told at, what is wrong, and the fix."""
    return PydanticCustomError("told", "{what}", {"field": field, "what": what, "fix": fix})


class Entry(BaseModel):
    """A map in a catalogue file: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Source(Entry):
    """Where facts come from. `covers` names top-level keys of the file; `unverified` says why."""

    covers: tuple[StrictStr, ...]
    source: StrictStr
    checked: date
    unverified: StrictStr | None = None


class SourcedEntry(Entry):
    """A catalogue file: each of its facts is covered by a source."""

    summary: StrictStr
    sources: tuple[Source, ...]

    @model_validator(mode="after")
    def _every_fact_has_a_source(self) -> Self:
        covered = {key for source in self.sources for key in source.covers}
        facts = self.model_fields_set - {"summary", "sources", "id"}
        if missing := sorted(facts - covered):
            what = f"No source covers {', '.join(missing)}"
            fix = "Name each under `covers` of the source that it was read in."
            raise told(missing[0], what, fix)
        if unknown := sorted(covered - facts):
            what = f"Sources cover keys that are not there: {', '.join(unknown)}"
            raise told("sources", what, "Take them out of `covers`, or write them.")
        return self
