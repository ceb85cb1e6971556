"""Who runs a command line: Invoke for a command line of nothing but tasks and their options, Fabric for any other.

Fabric brings Paramiko and its ciphers, a fifth of a command that speaks to no host; a task that does speak to hosts
imports them itself. Both are given the tasks of the table: neither looks for a `fabfile.py`, which would run whatever
lies in the folder that `fab` is typed in.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from infra.tasks.command_words import ENTRIES
from infra.tasks.interpreter import prepare_interpreter


def run_command_line() -> None:
    """Run the tasks of the command line, and leave with their exit code."""
    # Before Invoke and Fabric are loaded: they make a hundred thousand objects that all stay.
    prepare_interpreter()
    sys.argv[1:] = help_first(sys.argv[1:])
    if sys.argv[1:2] == ["--complete"]:
        from infra.tasks.completing import offer  # noqa: PLC0415 - one of three

        offer(" ".join(sys.argv[3:]))
        return
    if is_of_tasks_alone(sys.argv[1:]):
        from infra.tasks.program import table_program as program  # noqa: PLC0415 - one of two

        program().run()
    else:
        from infra.tasks.fabric_program import fabric_program  # noqa: PLC0415 - one of two

        fabric_program().run()


def help_first(words: Sequence[str]) -> list[str]:
    """The words, with `TASK --help` as `--help TASK`: a task may take `--help` for a word of its own."""
    asks = len(words) > 1 and words[1] in ("--help", "-h") and words[0] in ENTRIES
    return ["--help", words[0]] if asks else list(words)


def is_of_tasks_alone(words: Sequence[str]) -> bool:
    """Whether a task comes first and every option is one of a task on the line, or what lists tasks stands alone.

    Args:
        words: of the command line, after `fab`.
    """
    if list(words) in ([], ["--list"], ["--help"], ["-h"]):
        return True
    tasks = [ENTRIES[word] for word in words if word in ENTRIES]
    known = {f"--{option.name}" for task in tasks for option in task.options}
    options = {word.partition("=")[0] for word in words if word.startswith("-")}
    return bool(tasks) and words[0] == tasks[0].name and options <= known
