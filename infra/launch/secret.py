"""A secret on its way from the operator to a host."""

from __future__ import annotations

from collections.abc import Mapping


class Secret:
    """A value that prints as `***`."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        """Keep the value."""
        self._value = value

    def reveal(self) -> str:
        """The value itself, for standard input of the agent and nothing else."""
        return self._value

    def __repr__(self) -> str:
        """Never the value."""
        return "***"


def revealed(secrets: Mapping[str, Secret]) -> dict[str, str]:
    """The values by name, for a request."""
    return {name: secret.reveal() for name, secret in secrets.items()}
