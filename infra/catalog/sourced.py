"""What every file of the catalogue is: a map without unknown keys, and facts of which each names its source."""

from datetime import date
from typing import Self

from pydantic import BaseModel, ConfigDict, StrictStr, model_validator


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
            message = f"no source covers {', '.join(missing)}"
            raise ValueError(message)
        if unknown := sorted(covered - facts):
            message = f"sources cover keys that are not there: {', '.join(unknown)}"
            raise ValueError(message)
        return self
