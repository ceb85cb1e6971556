"""Questions to the cloud before anything is registered: every answer that does not fit is a problem with its fix."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pulumi

from infra.errors import Problem
from infra.provision.config_problems import account_problem

_T = TypeVar("_T")
# What clouds say: EC2 "UnauthorizedOperation", most others of AWS "AccessDenied… is not authorized to perform", Google
# "Error 403: Required '…' permission for '…', forbidden".
_FORBIDDEN = re.compile(
    r"UnauthorizedOperation|AccessDenied|not authorized to perform|Error 403: Required .* permission"
)


class Asking:
    """Questions to the cloud, and the problems that their answers are."""

    def __init__(self, stack: str) -> None:
        self.stack = stack
        self.problems: list[Problem] = []

    def ask(self, key: str, meaning: str, example: str, question: Callable[[], _T]) -> _T | None:
        """The answer; None when there is no such thing, or when the operator may not ask."""
        problem = account_problem(key, "", example, self.stack)
        return self.ask_of(problem, meaning, question)

    def ask_of(self, problem: Problem, meaning: str, question: Callable[[], _T]) -> _T | None:
        """The same for what another file names: the problem says where, and how it is mended."""
        try:
            return question()
        except Exception as error:  # noqa: BLE001 - the SDK raises a bare Exception with the provider's message
            said = last_line(error)
            if _FORBIDDEN.search(said):
                where = problem.field
                pulumi.log.warn(f"{where}: {meaning} was not looked at, you may not ask: {said}")
            else:
                what = f"There is no {meaning}, or the cloud did not answer: {said}."
                self.problems.append(replace(problem, what=what))
            return None

    def note(self, *problems: Problem | None) -> None:
        """Keep what is a problem."""
        self.problems += [problem for problem in problems if problem is not None]


def last_line(error: Exception) -> str:
    """What the provider said, without the frames that the SDK puts around it."""
    line = (str(error).strip().splitlines() or ["nothing"])[-1]
    return line.rpartition("returned an error: ")[2].rstrip(".")
