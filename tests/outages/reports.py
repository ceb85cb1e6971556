"""Failures that users reported in public, as data (`tests/cases/outages/`), and what this project says of each.

A report's configuration is reproduced on the catalogue's releases and checkpoints, as a stack, a plan with edits, a
foreign recipe, facts of hosts, or lines that running engines log.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from infra.spec.plain_yaml import read_yaml
from tests.plan_edits import PlanEdit

FOLDER = Path(__file__).resolve().parents[1] / "cases" / "outages"


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class HostFacts(_Entry):
    """What a host tells otherwise than a healthy one.

    Args:
        tells: command of the facts → what it prints.
        exit_code: of these commands; None where the tool does not answer in time.
        lacks: paths that are not there.
        files: text by path.
        items: rows of the host state's check, by item id.
        free_bytes: of the disk that holds a path, by path.
    """

    tells: dict[str, str] = Field(default_factory=dict)
    exit_code: int | None = 0
    lacks: tuple[str, ...] = ()
    files: dict[str, str] = Field(default_factory=dict)
    items: dict[str, dict[str, str]] = Field(default_factory=dict)
    free_bytes: dict[str, int] = Field(default_factory=dict)
    listening: tuple[dict[str, int | str], ...] = ()
    holders: tuple[dict[str, int | str], ...] = ()


class Reproduction(_Entry):
    """The configuration of a report.

    Args:
        stack: what it is built on; `name@version` for another release of its engine.
        set: `--set` words.
        edits: of the stack's plan.
        recipe: text of a foreign file, read under the name `file`, with what the operator says beside it.
        mended: pairs of texts; with them replaced the recipe, or the log, is found right.
        hosts: facts, by the plan's names; `*` for all hosts.
        log: lines of one engine process, with its collective library and whether its hosts share NVLink.
    """

    stack: str | None = None
    set: tuple[str, ...] = ()
    edits: tuple[PlanEdit, ...] = ()
    recipe: str | None = None
    file: str = "serve.sh"
    told: dict[Literal["engine", "accelerator", "checkpoint"], str] = Field(default_factory=dict)
    mended: dict[str, str] = Field(default_factory=dict)
    hosts: dict[str, HostFacts] = Field(default_factory=dict)
    log: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _is_one_thing(self) -> Reproduction:
        if (self.recipe is None) == (self.stack is None):
            message = "write `stack` or `recipe`"
            raise ValueError(message)
        return self

    @property
    def is_shipped_stack(self) -> bool:
        """Whether it is a stack of this project as it is."""
        return not (self.recipe or self.set or self.edits or self.hosts or self.log)

    @property
    def kind(self) -> str:
        """What it is, in a word."""
        if self.recipe is not None:
            return "recipe"
        if self.hosts:
            return "hosts"
        if self.log:
            return "log"
        return "stack" if self.set and not self.edits else "plan"


class Noticed(_Entry):
    """What finds it: a rule or problem of `fab check`, a check of `fab preflight` or `fab verify`, with its words."""

    at: Literal["check", "preflight", "verify"]
    by: str
    says: str


class Stopped(Noticed):
    """What stops it.

    Args:
        also: other rules or checks that refuse the same configuration, with or without it.
    """

    also: tuple[str, ...] = ()


class Report(_Entry):
    """One report.

    Args:
        source: `owner/repository#number`.
        happened: what was observed and why, in a sentence or two.
        stopped: None where nothing stops it before hardware; then `because` says why, and what notices it.
        warned: what warns of it all the same; without the mistake it does not.
    """

    source: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+#\d+$")]
    happened: str
    reproduction: Reproduction
    stopped: Stopped | None = None
    because: str | None = None
    warned: tuple[Noticed, ...] = ()

    @model_validator(mode="after")
    def _has_a_verdict(self) -> Report:
        if (self.stopped is None) == (self.because is None):
            message = "write `stopped` or `because`"
            raise ValueError(message)
        return self


@dataclass(frozen=True, slots=True)
class Named:
    """A report and the name of its file."""

    name: str
    report: Report


@cache
def read_reports() -> tuple[Named, ...]:
    """Every report, by file name."""
    return tuple(
        Named(path.stem, Report.model_validate(read_yaml(path)))
        for path in sorted(FOLDER.glob("*.yaml"))
    )
