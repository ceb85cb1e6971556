"""The secrets that a stack refers to, as what reaches hosts wants them: values that print as `***`."""

from __future__ import annotations

from collections.abc import Mapping

from infra.launch.secret import Secret
from infra.provision.secret_values import secret_values
from infra.spec.edge_keys import as_hosts_get_them
from infra.tasks.edge_pair import refuse_no_pair


def secrets_of(values: Mapping[str, str]) -> dict[str, Secret]:
    """The values as hosts get them.

    Raises:
        StackError: the clients' keys are none, or the edge's certificate and its key are no pair.
    """
    refuse_no_pair(values)
    return {name: Secret(value) for name, value in as_hosts_get_them(values).items()}


def operators_secrets(references: Mapping[str, Mapping[str, str]]) -> dict[str, Secret]:
    """The values as the operator has them: clients' keys among them, which no host gets.

    Raises:
        StackError: a variable is not set or empty.
        PrerequisiteError: a file is not there, or holds no secret.
    """
    return {name: Secret(value) for name, value in secret_values(references).items()}


def read_secrets(references: Mapping[str, Mapping[str, str]]) -> dict[str, Secret]:
    """The values by name; see `secret_values`.

    Raises:
        StackError: a variable is not set or empty.
        PrerequisiteError: a file is not there, or holds no secret.
    """
    return secrets_of(secret_values(references))
