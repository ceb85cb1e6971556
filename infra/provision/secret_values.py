"""The secrets that a stack refers to, read from the operator's environment and files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from infra.errors import StackError
from infra.spec.text_file import read_text


def secret_values(references: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The values by name.

    Args:
        references: by name, `{"env": NAME}` or `{"file": PATH}`.

    Raises:
        StackError: one is not there or empty.
    """
    return {name: _read(name, reference) for name, reference in references.items()}


def _read(name: str, reference: Mapping[str, str]) -> str:
    variable, file = reference.get("env"), reference.get("file")
    if variable is not None:
        value, where = os.environ.get(variable, ""), f"the variable {variable}"
    else:
        where = f"the file {file}"
        try:
            value = read_text(Path(file or "").expanduser()).strip()
        except (OSError, UnicodeDecodeError) as error:
            what = f"It cannot be read: {error}."
            raise StackError(f"secrets.{name}", what, "Mend the file, or the reference.") from error
    if not value:
        what = f"The stack wants it from {where}, which is empty or not there."
        raise StackError(f"secrets.{name}", what, "Set it, or take the secret out of the stack.")
    return value
