"""What a look at the operator's machine tells of the files that a stack's secrets lie in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from infra.checks.view import SecretFile
from infra.errors import InfraError, StackError
from infra.plan.edge import CERTIFICATE, FIELDS, KEYS, PRIVATE_KEY
from infra.spec.edge_keys import parse_keys
from infra.spec.secret_file import look_at


def secret_files(references: Mapping[str, Mapping[str, str]]) -> Mapping[str, SecretFile]:
    """By name of the secret, what is said of its file; nothing is said of what stands in the file but how it is formed.

    Args:
        references: by name, `{"env": NAME}` or `{"file": PATH}`.
    """
    named = {name: each["file"] for name, each in references.items() if "file" in each}
    paths = {name: Path(os.path.expanduser(file)) for name, file in named.items()}  # noqa: PTH111 - never raises
    looks = {name: look_at(path) for name, path in paths.items()}
    whole = {name: references[name] for name, (flaw, _) in looks.items() if flaw is None}
    malformed = _malformed(whole) if whole else {}
    found: dict[str, SecretFile] = {}
    for name, (flaw, is_shared) in looks.items():
        wrong = malformed.get(name)
        told = f"cannot be used: {wrong.what.rstrip('.')}" if wrong is not None else flaw
        fix = "" if wrong is None else wrong.fix
        found[name] = SecretFile(path=str(paths[name]), flaw=told, fix=fix, is_shared=is_shared)
    return found


def _malformed(references: Mapping[str, Mapping[str, str]]) -> Mapping[str, InfraError]:
    """By name, what `fab up` would refuse of clients' keys and of the edge's certificate and key."""
    from infra.provision.edge_pair import refuse_no_pair  # noqa: PLC0415 - few stacks have such files
    from infra.provision.secret_values import secret_values  # noqa: PLC0415

    found: dict[str, InfraError] = {}
    values: dict[str, str] = {}
    for name in references.keys() & {KEYS, CERTIFICATE, PRIVATE_KEY}:
        try:
            values |= secret_values({name: references[name]})
        except InfraError as error:
            found[name] = error
    names = {FIELDS[name]: name for name in FIELDS}
    try:
        if KEYS in values:
            parse_keys(values[KEYS])
    except StackError as error:
        found[KEYS] = error
    try:
        refuse_no_pair(values)
    except StackError as error:
        found[names[error.where]] = error
    return found
