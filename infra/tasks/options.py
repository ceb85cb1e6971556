"""Options of tasks: how one is declared, and the values that an operator gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from infra.errors import StackError

if TYPE_CHECKING:  # half of the tasks speak to no host, and start without what speaks SSH
    from infra.remote.early_agents import EarlyAgents

OptionKind = Literal["text", "number", "switch", "words", "pair"]


class Option(NamedTuple):
    """One option of a task.

    Args:
        name: as typed, without dashes.
        kind: `text` and `number` take a value, `pair` takes two, `words` may be given several
            times, `switch` takes none.
        help: one line for `fab --help TASK`.
        is_positional: it is typed without its name, in the order of the table, and is never left out.
        choices: the values that there are; empty for any.
    """

    name: str
    kind: OptionKind
    help: str
    is_positional: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Options:
    """The values that were given to a task; what was not given is None, False or ().

    Args:
        given: by name.
        early: agents of the task's hosts that are being started already, None for none.
    """

    given: Mapping[str, object]
    early: EarlyAgents | None = None

    def text(self, name: str) -> str | None:
        """The value of a `text` option.

        Raises:
            StackError: an empty value was given.
        """
        value = self.given.get(name)
        if value == "":
            raise StackError(
                f"--{name}", "The value is empty.", "Give one, or leave the option out."
            )
        return None if value is None else str(value)

    def needed(self, name: str) -> str:
        """The value of a `text` option that has no default.

        Raises:
            StackError: it was not given.
        """
        value = self.text(name)
        if value is None:
            raise StackError(f"--{name}", "This task needs it.", f"Add --{name} VALUE.")
        return value

    def number(self, name: str) -> float | None:
        """The value of a `number` option.

        Raises:
            StackError: it is not a number, or not above zero.
        """
        text = self.text(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value < float("inf"):
            raise StackError(
                f"--{name}", f"{text!r} is not a number above zero.", f"Write --{name} 60."
            )
        return value

    def count(self, name: str) -> int | None:
        """The value of a `number` option that counts something.

        Raises:
            StackError: it is not a whole number, or not above zero.
        """
        value = self.number(name)
        if value is None:
            return None
        if not value.is_integer():
            what = f"{self.text(name)!r} is not a whole number."
            raise StackError(f"--{name}", what, f"Write --{name} {int(value) + 1}.")
        return int(value)

    def pair(self, name: str) -> tuple[str, str] | None:
        """The two values of a `pair` option.

        Raises:
            StackError: one was given, or an empty one.
        """
        text = self.text(name)
        if text is None:
            return None
        first, _, second = text.partition(" ")
        if not first or not second:
            raise StackError(
                f"--{name}", f"It takes two values; there is {text!r}.", f"Write --{name} A B."
            )
        return first, second

    def is_on(self, name: str) -> bool:
        """Whether a `switch` was given."""
        return bool(self.given.get(name))

    def words(self, name: str) -> tuple[str, ...]:
        """Every value of a `words` option, in the order given."""
        value = self.given.get(name)
        return tuple(str(word) for word in value) if isinstance(value, list | tuple) else ()
