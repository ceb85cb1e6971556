"""The secrets that a stack refers to, read from the operator's environment and files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from infra.errors import PrerequisiteError, StackError
from infra.plan.edge import FIELDS, KEYS
from infra.provision.edge_pair import refuse_no_pair
from infra.spec.secret_file import MAX_BYTES, look_at
from infra.spec.text_file import read_text


def secret_values(references: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The values by name.

    Args:
        references: by name, `{"env": NAME}` or `{"file": PATH}`.

    Raises:
        StackError: a variable is not set or empty, or the edge's certificate and its key are no pair.
        PrerequisiteError: a file is not there, or holds no secret.
    """
    values = {name: _read(name, reference) for name, reference in references.items()}
    refuse_no_pair(values)
    return values


def field_of(name: str) -> str:
    """Where a stack names a secret."""
    return FIELDS.get(name, f"secrets.{name}")


def _read(name: str, reference: Mapping[str, str]) -> str:
    variable = reference.get("env")
    if variable is None:
        file = os.path.expanduser(reference.get("file", ""))  # noqa: PTH111 - Path.expanduser raises
        return _read_file(name, Path(file))
    value = os.environ.get(variable, "")
    if not value:
        what = f"The stack wants it from the variable {variable}, which is empty or not there."
        raise StackError(field_of(name), what, "Set it, or take the secret out of the stack.")
    return value


def _read_file(name: str, path: Path) -> str:
    (flaw, _), value = look_at(path), ""
    if flaw is None:
        try:
            value = read_text(path, MAX_BYTES).rstrip()
            value = value if name == KEYS else value.lstrip()  # its lines are counted in messages
            flaw = None if value else "is empty"
        except OSError as error:
            flaw = f"cannot be read: {error.strerror}"
        except UnicodeDecodeError:
            flaw = "is no UTF-8 text"
    if flaw is not None:
        fix = "Put the secret there, or name another file."
        raise PrerequisiteError(field_of(name), f"The file {path} {flaw}.", fix)
    return value
