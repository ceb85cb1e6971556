"""Files that a command was asked to write: never over what the command reads, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from infra.errors import StackError
from infra.whole_file import IN_A_FOLDER, write_whole


def refuse_over_inputs(outputs: Mapping[str, str | None], inputs: Iterable[Path]) -> None:
    """Nothing, where no output is an input under another name, or another output.

    Args:
        outputs: file by option; None for an option that is not given.
        inputs: what the command reads.

    Raises:
        StackError: one is: by its name, by a link, or by a second name of the same file.
    """
    read = {identity: path for path in inputs if (identity := _identity(path)) is not None}
    places: dict[str, str] = {}
    for option, file in outputs.items():
        if file is None:
            continue
        own = _identity(Path(file))
        if own is not None and own in read:
            what = f"The command reads that file{_as(read[own], file)}."
            raise StackError(f"{option} {file}", what, "Name another file.")
        other = places.setdefault(os.path.realpath(file), option)
        if other != option:
            raise StackError(f"{option} {file}", f"{other} writes that file.", "Name another file.")


def write_asked(option: str, file: str, text: str) -> None:
    """Write a file that the operator asked for, beside its place and then there; into a pipe as it is.

    Raises:
        StackError: it cannot be written.
        PrerequisiteError: there is no room for it.
    """
    content = text + ("" if text.endswith("\n") else "\n")
    try:
        write_whole(Path(file), content, option=option, fix=IN_A_FOLDER)
    except ValueError as error:
        what = "No file can have that name."
        raise StackError(f"{option} {file}", what, IN_A_FOLDER) from error


def _as(path: Path, file: str) -> str:
    return "" if str(path) == file else f", as {path}"


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file it is, behind every link; None where there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino
