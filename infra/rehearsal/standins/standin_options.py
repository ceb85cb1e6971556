"""Reads the options of vendors' tools, which follow no common library: exact names, nothing else."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class BadOption(Exception):
    """A word that the tool does not take."""

    def __init__(self, word: str) -> None:
        """Take the word."""
        super().__init__(word)
        self.word = word


def read_options(arguments: list[str], takes_value: Mapping[str, bool]) -> dict[str, str]:
    """Return option → value of a command line; a switch has the value "".

    Args:
        arguments: the words after the program's name.
        takes_value: exact option → whether a value follows, after a blank or `=`.

    Raises:
        BadOption: any other word, or a missing value.
    """
    options: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name not in takes_value or (equals and not takes_value[name]):
            raise BadOption(word)
        if takes_value[name] and not equals:
            if not rest:
                raise BadOption(word)
            value = rest.pop(0)
        options[name] = value
    return options
