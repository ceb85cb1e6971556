"""Every exception that leaves a package, and the exit code it turns into.

InfraError                     1  (a bug if it is raised bare)
├── StackError                 2  the stack, the inventory or the command line is wrong
│   └── ProblemsFound          2  several of them at once, as a list of `Problem`
├── PrerequisiteError          3  preflight, a lease or a missing prerequisite says no; nothing was changed
├── HostsFailed                4  one or more hosts, or the cloud, failed
├── NotReady                   5  started, but not healthy in time
└── Differs                    6  checked, and something differs
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


class InfraError(Exception):
    """A failure that an operator can act on: where it is, what is wrong, how to mend it.

    Args:
        where: file:line and field, host, or process.
        what: the fact, with the numbers in it.
        fix: what to type or change.
    """

    exit_code = 1

    def __init__(self, where: str, what: str, fix: str) -> None:
        """Keep the three parts apart, so that `--json` can print them apart."""
        super().__init__(f"{where}: {what} {fix}".strip())
        self.where = where
        self.what = what
        self.fix = fix

    def each(self) -> tuple[InfraError, ...]:
        """The failure itself; of several at once, every one."""
        return (self,)


class StackError(InfraError):
    """The stack, the inventory or the command line is wrong."""

    exit_code = 2


class PrerequisiteError(InfraError):
    """Something that must be there first is not; nothing was changed."""

    exit_code = 3


class HostsFailed(InfraError):
    """One or more hosts, or the cloud, failed."""

    exit_code = 4


class NotReady(InfraError):
    """Started, but not healthy in time."""

    exit_code = 5


class Differs(InfraError):
    """Checked, and something differs from what was declared."""

    exit_code = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One finding about a stack, an inventory or a plan; the row of `fab check --json`.

    Args:
        rule: lower-case kebab id of at least two words, stable for ever.
        severity: `error` refuses, `warning` is printed.
        field: dotted path in the stack (or a process id in a plan); empty for the file as a whole.
        what: the fact, with the numbers in it.
        fix: what to write instead.
        file: file as the operator named it; None when the finding has no file.
        line: 1-based; None when it has no line.
        waived: the operator's reason when the stack waives the rule, else None.
    """

    rule: str
    severity: Severity
    field: str
    what: str
    fix: str
    file: str | None = None
    line: int | None = None
    waived: str | None = None

    @property
    def where(self) -> str:
        """`file:line field`, as far as each is known."""
        place = self.file or ""
        if self.line is not None:
            place += f":{self.line}"
        return f"{place} {self.field}".strip()

    @property
    def blocks(self) -> bool:
        """Whether this finding refuses the stack."""
        return self.severity == "error" and self.waived is None

    def __str__(self) -> str:
        """Where, what, fix, rule: one line."""
        return f"{self.where}: {self.what} {self.fix} [{self.rule}]"


class ProblemsFound(StackError):
    """A stack, an inventory or a command line with one or more problems, reported together."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        """Keep the list; `where`, `what` and `fix` are those of the first problem."""
        first = problems[0]
        super().__init__(first.where, first.what, first.fix)
        self.problems = problems

    def __str__(self) -> str:
        """One line per problem."""
        return "\n".join(str(problem) for problem in self.problems)
