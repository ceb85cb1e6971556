"""What a check must have read of a host before it may pass there, and why it has not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TypeVar

from infra.launch.preflight.observed import Told

# What is said of a check that could not see, and what it wants.
UNSEEN = "cannot be told"
WANTED = "an answer that can be read"
NOT_FOUND = 127  # the exit code of a shell that could not find a program
MOST_WORDS = 100
Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A command's answer that a check rests on.

    Args:
        command: id under which it was asked.
        is_told: whether the answer says what the check reads.
        by_hand: what an operator types on the host to see it; "" for the command itself.
        device: index of the device that it tells of, None for the whole host.
        lacks: what is missing of what was printed, behind the program's name; "" for no part of it that has a name.
    """

    command: str
    is_told: Callable[[Told], bool]
    by_hand: str = ""
    device: int | None = None
    lacks: Callable[[str], str] = lambda _: ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileText:
    """A file's text, or that of several, that a check rests on.

    Args:
        path: as it was asked for; a pattern may name several files.
        reads: whether a text says what the check reads.
        num: how many there must be: the agent leaves out what exists and does not read.
    """

    path: str
    reads: Callable[[str], object]
    num: int = 1

    def why_unseen(self, files: Mapping[str, str]) -> str | None:
        """Why it is of no use on a host with these files, None where it is.

        Args:
            files: text by path.
        """
        texts = [text for path, text in files.items() if fnmatch(path, self.path)]
        if not texts:
            return f"there is no {self.path}"
        if len(texts) < self.num:
            return f"{len(texts)} of {self.num} {self.path} can be read"
        unread = next((text.strip() for text in texts if not self.reads(text)), None)
        return None if unread is None else f"{self.path} says {unread[:MOST_WORDS] or 'nothing'}"


def printed(
    parse: Callable[[str], Parsed], holds: Callable[[Parsed], object] = lambda found: found
) -> Callable[[Told], bool]:
    """Whether a command succeeded and what it printed is read; without `holds`, as what is neither None nor empty."""
    return lambda told: told.exit_code == 0 and bool(holds(parse(told.stdout)))


def of_each(command: str, num: int, count: Callable[[str], int], by_hand: str = "") -> Answer:
    """An answer that must tell of every device of a host.

    Args:
        command: id under which it was asked.
        num: how many devices the host has.
        count: of how many a text tells what the check reads.
        by_hand: see `Answer`.
    """

    def lacks(text: str) -> str:
        told = count(text)
        return f"tells it of {told} of {num} devices" if 0 < told < num else ""

    is_told = printed(count, lambda told: told >= num)
    return Answer(command=command, is_told=is_told, by_hand=by_hand, lacks=lacks)


def is_there(found: object) -> bool:
    """Whether something was read at all, 0 and "nothing" among it."""
    return found is not None


def why_unseen(told: Told | None, program: str, lacks: Callable[[str], str] = lambda _: "") -> str:
    """Why an answer is of no use, in words.

    Args:
        told: the answer, None where there is none.
        program: what was asked.
        lacks: see `Answer`.
    """
    if told is None:
        return f"{program} was not asked"
    if told.hung:
        return f"{program} did not answer within {told.seconds:.0f} s"
    if told.is_missing or (told.exit_code == NOT_FOUND and not told.stdout.strip()):
        return f"there is no {program}"
    if told.refusal:
        return f"{program} cannot be run: {told.refusal}"
    if told.exit_code != 0:
        return f"{program} failed with exit code {told.exit_code}: {told.last_words[:MOST_WORDS]}"
    printed_words = f"prints what cannot be read: {told.last_words[:MOST_WORDS]}"
    said = lacks(told.stdout) or (printed_words if told.stdout.strip() else "prints nothing")
    return f"{program} {said}"
