"""A question before something that serves is stopped: asked on a terminal, and nowhere else."""

from __future__ import annotations

import sys

from infra.errors import PrerequisiteError
from infra.tasks.options import Options
from infra.tasks.output import Output

YES = "yes"
_AGREES = ("y", "yes")


def ask_first(options: Options, output: Output, question: str, where: str) -> None:
    """Go on where the operator says yes, has typed `--yes`, or cannot be asked: there is no terminal.

    Args:
        options: of the task.
        output: of the task.
        question: ends with a question mark.
        where: what the refusal is about.

    Raises:
        PrerequisiteError: the operator does not say yes; nothing was changed.
    """
    if options.is_on(YES) or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    output.message(f"{question} Type yes to go on, anything else to leave all as it is.")
    if sys.stdin.readline().strip().lower() not in _AGREES:
        what = "Nothing was changed: you did not say yes."
        raise PrerequisiteError(where, what, f"--{YES} goes on without a question.")
