"""What `fab` starts. Loaded before anything else, so that an interrupt meets no module half way."""

from __future__ import annotations

from infra.tasks.interrupts import leave_when_interrupted


def main() -> None:
    """Run the tasks of the command line, and leave with their exit code."""
    leave_when_interrupted()
    from infra.tasks.command_line import run_command_line  # noqa: PLC0415 - an interrupt may come

    run_command_line()
