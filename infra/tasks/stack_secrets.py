"""The secrets that a stack refers to, as what reaches hosts wants them: values that print as `***`."""

from __future__ import annotations

from collections.abc import Mapping

from infra.errors import StackError
from infra.launch.secret import Secret
from infra.provision.edge_pair import refuse_no_pair
from infra.provision.secret_values import field_of, secret_values
from infra.spec.edge_keys import as_hosts_get_them


def secrets_of(values: Mapping[str, str]) -> dict[str, Secret]:
    """The values as hosts get them.

    Raises:
        StackError: the clients' keys are none.
    """
    return {name: Secret(value) for name, value in as_hosts_get_them(values).items()}


def given_or_read(
    given: Mapping[str, object], references: Mapping[str, Mapping[str, str]]
) -> dict[str, Secret]:
    """The values as the operator has them, from another tool's own store (a vault, perhaps) where that holds them.

    Args:
        given: values by name; what the stack does not name is left out.
        references: of the stack, by name; read for what is not given.

    Raises:
        StackError: a value is empty, or the edge's certificate and its key are no pair, whoever gave the two.
        PrerequisiteError: a file is not there, or holds no secret.
    """
    own = {name: str(given[name]) for name in references if name in given}
    for name, value in own.items():
        if not value.strip():
            raise StackError(field_of(name), "The value that is given is empty.", "Give its value.")
    read = secret_values({name: where for name, where in references.items() if name not in own})
    refuse_no_pair({**own, **read})
    return {name: Secret(value) for name, value in {**own, **read}.items()}


def read_secrets(references: Mapping[str, Mapping[str, str]]) -> dict[str, Secret]:
    """The values by name; see `secret_values`.

    Raises:
        StackError: a variable is not set or empty, or the edge's certificate and its key are no pair.
        PrerequisiteError: a file is not there, or holds no secret.
    """
    return secrets_of(secret_values(references))
