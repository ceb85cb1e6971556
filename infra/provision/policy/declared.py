"""One resource as a program declares it: what rules read, without Pulumi."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Findings = Iterator[str]
"""A sentence for each violation."""


class Unknown:
    """A value that a preview does not know yet."""


UNKNOWN = Unknown()


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One resource.

    Args:
        type: token, `aws:ec2/vpc:Vpc`.
        name: logical name.
        properties: inputs by wire name; what is not known yet is `UNKNOWN`.
        is_protected: whether Pulumi refuses to delete it.
        ignores: properties by wire name whose changes are ignored.
        may_go: whether the operator named it in `replace_machines`.
        refers_to: the resources that a property's value comes from, by property; known in a preview, too.
    """

    type: str
    name: str
    properties: Mapping[str, object]
    is_protected: bool = False
    ignores: Sequence[str] = ()
    may_go: bool = False
    refers_to: Mapping[str, Sequence[Declared]] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A property as text, empty when it is not set or not known."""
        return text_of(self.properties, name)

    def rows(self, name: str) -> Iterator[Mapping[str, object]]:
        """The maps of a list property."""
        yield from rows_of(self.properties, name)

    def map(self, name: str) -> Mapping[str, object]:
        """A map property; empty when it is not set."""
        return map_of(self.properties, name)

    def is_from(self, name: str, other: Declared) -> bool:
        """Whether a property's value comes from another resource."""
        return any(
            (each.type, each.name) == (other.type, other.name)
            for each in self.refers_to.get(name, ())
        )


def text_of(values: Mapping[str, object], name: str) -> str:
    """A value as text: truth as JSON has it, empty when it is not set or not known."""
    value = values.get(name)
    if value is None or value is UNKNOWN:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def map_of(values: Mapping[str, object], name: str) -> Mapping[str, object]:
    """A map among values; empty when it is not set."""
    value = values.get(name)
    return value if isinstance(value, Mapping) else {}


def rows_of(values: Mapping[str, object], name: str) -> Iterator[Mapping[str, object]]:
    """The maps of a list among values."""
    value = values.get(name)
    for each in value if isinstance(value, list) else ():
        if isinstance(each, Mapping):
            yield each


def texts_of(values: Mapping[str, object], *names: str) -> list[str]:
    """The texts of some lists among values."""
    found: list[str] = []
    for name in names:
        value = values.get(name)
        found += [str(each) for each in value] if isinstance(value, list) else []
    return found


def statements_of(policy: str) -> list[Mapping[str, object]]:
    """The statements of a policy document; none of one that is not known yet."""
    try:
        found = json.loads(policy or "{}").get("Statement", [])
    except (ValueError, AttributeError):
        return []
    return [
        each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict)
    ]
