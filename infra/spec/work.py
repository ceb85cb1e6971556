"""How much work one input may cause: a budget that everything spends which repeats what the input says."""

from __future__ import annotations

from dataclasses import dataclass

# The longest of the published recipes takes four thousand steps; so many take a second or two.
MAX_STEPS = 100_000
# So much text costs about as much as one step of an interpreter.
CHARACTERS_PER_STEP = 64


class TooMuchWorkError(Exception):
    """An input takes more steps than any that is meant: loops in loops, values that double, counts of millions.

    Args:
        line: of the input, 0 where that is not known.
        why: the end of a sentence.
    """

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line
        self.why = why


@dataclass(slots=True)
class Work:
    """What an input may take, and has taken.

    Args:
        most: steps: commands, turns of loops, words, copied variables, hosts, pods, devices.
    """

    most: int = MAX_STEPS
    spent: int = 0

    def spend(self, steps: int, line: int = 0) -> None:
        """Take steps before they are made.

        Args:
            steps: how many.
            line: of the input, that asks for them.

        Raises:
            TooMuchWorkError: they are too many.
        """
        self.spent += steps
        if self.spent > self.most:
            why = f"it takes more than {self.most} steps (loops in loops, or a count that is too large)"
            raise TooMuchWorkError(line, why)

    def spend_text(self, length: int, line: int = 0) -> None:
        """Take the steps that a text of `length` characters costs.

        Raises:
            TooMuchWorkError: they are more than are left.
        """
        self.spend(1 + length // CHARACTERS_PER_STEP, line)
