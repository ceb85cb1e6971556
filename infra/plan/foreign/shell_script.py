"""A whole script as statements, and the lines at which it could not be followed."""

from __future__ import annotations

from infra.plan.foreign.shell_syntax import Parser
from infra.plan.foreign.shell_tree import Statement, Statements
from infra.plan.foreign.shell_words import MAX_DEPTH, Scanner, ShellTroubleError


def parse_script(text: str, first_line: int = 1) -> tuple[Statements, list[ShellTroubleError]]:
    """The statements of a script, and the lines at which it could not be followed.

    Args:
        text: the script.
        first_line: the line of the file that it begins in.
    """
    parser = Parser(Scanner(text, first_line))
    found: list[Statement] = []
    troubles: list[ShellTroubleError] = []
    while not parser.at_end():
        start = parser.scanner.at, parser.scanner.line
        try:
            found.append(parser.statement())
        except ShellTroubleError as error:
            troubles.append(error)
            if len(troubles) > MAX_DEPTH or parser.scanner.is_done:
                break
            _next_line(parser.scanner, start)
        except RecursionError:
            troubles.append(ShellTroubleError(start[1], "it nests too deep"))
            break
    return tuple(found), troubles


def _next_line(scanner: Scanner, start: tuple[int, int]) -> None:
    """Go on behind the line that could not be read."""
    scanner.at, scanner.line, scanner.depth = max(scanner.at, start[0] + 1), scanner.line, 0
    end = scanner.text.find("\n", scanner.at)
    scanner.take((len(scanner.text) if end < 0 else end + 1) - scanner.at)
