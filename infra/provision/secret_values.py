"""The secrets that a stack refers to, read from the operator's environment and files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from infra.errors import StackError
from infra.plan.edge import KEYS as EDGE_KEYS
from infra.spec.edge_keys import digest_map, parse_keys


def secret_values(references: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The values by name.

    Args:
        references: by name, `{"env": NAME}` or `{"file": PATH}`.

    Raises:
        StackError: one is not there or empty.
    """
    return {name: _read(name, reference) for name, reference in references.items()}


def as_hosts_get_them(values: Mapping[str, str]) -> dict[str, str]:
    """The values as they leave the operator's machine: of clients' keys nothing but digests and names.

    Raises:
        StackError: the clients' keys are none.
    """
    keys = values.get(EDGE_KEYS)
    own = {} if keys is None else {EDGE_KEYS: digest_map(parse_keys(keys))}
    return {**values, **own}


def _read(name: str, reference: Mapping[str, str]) -> str:
    variable, file = reference.get("env"), reference.get("file")
    if variable is not None:
        value, where = os.environ.get(variable, ""), f"the variable {variable}"
    else:
        where = f"the file {file}"
        try:
            value = Path(file or "").expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            what = f"It cannot be read: {error}."
            raise StackError(f"secrets.{name}", what, "Mend the file, or the reference.") from error
    if not value:
        what = f"The stack wants it from {where}, which is empty or not there."
        raise StackError(f"secrets.{name}", what, "Set it, or take the secret out of the stack.")
    return value
