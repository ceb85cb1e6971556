"""How one resource type of the emulated cloud behaves."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from infra.rehearsal.cloud.store import Resource, Store
from infra.rehearsal.cloud.wire import UNKNOWN

Inputs = Mapping[str, object]


class RefusedError(Exception):
    """The cloud says no: an error code and a sentence, as its API gives them."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(f"api error {code}: {sentence}")
        self.code = code
        self.sentence = sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A property that names another resource.

    Args:
        path: property path; `[]` goes through a list (`networkInterfaces[].subnetId`).
        token: type of the other resource.
        handle: which output of it the property holds.
        code: error code when there is none.
        holds: whether the other resource cannot be deleted while it is named here.
    """

    path: str
    token: str
    code: str
    handle: str = "id"
    holds: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One resource to be made or changed.

    Args:
        digits: for ids and everything else that the cloud makes up.
        old: the resource before a change; None when it is new.
    """

    store: Store
    region: str
    urn: str
    digits: str
    inputs: Inputs
    old: Resource | None

    @property
    def account_id(self) -> str:
        """The account's number."""
        return self.store.account.account_id

    def text(self, path: str) -> str:
        """The text at a property path, empty when it is not set."""
        return next((str(value) for value in values_at(self.inputs, path)), "")

    def others(self, token: str) -> list[Resource]:
        """Resources of a type without the one that is changed."""
        return [
            each for each in self.store.of_type(token) if self.old is None or each.id != self.old.id
        ]

    def linked(self, token: str, path: str) -> Resource | None:
        """The resource whose id stands at a property path."""
        return self.store.get(token, self.text(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What the cloud adds to the inputs: id, computed properties, and what no property shows."""

    id: str
    computed: Mapping[str, object]
    hidden: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One resource type.

    Args:
        noun: as the provider's messages name it.
        make: refuses or makes a resource; raises `RefusedError`.
        auto_name: the property that gets a name when the program gives none.
        links: other resources that must exist, and that cannot be deleted before this one.
        keeps: why it is not deleted as it is; None where it is.
        belongings: what the cloud made with it, or keeps in it, and deletes with it.
    """

    noun: str
    make: Callable[[Request], Made]
    auto_name: str | None = None
    links: tuple[Link, ...] = ()
    keeps: Callable[[Resource], RefusedError | None] = lambda _resource: None
    belongings: Callable[[Store, Resource], Sequence[Resource]] = lambda _store, _resource: ()


def values_at(values: object, path: str) -> Iterator[object]:
    """The values at a property path that are set and known."""
    head, _, rest = path.partition(".")
    name = head.removesuffix("[]")
    value = values.get(name) if isinstance(values, Mapping) else None
    for each in value if head.endswith("[]") and isinstance(value, list) else [value]:
        if rest:
            yield from values_at(each, rest)
        elif each is not None and each not in ("", UNKNOWN):
            yield each


def find_linked(store: Store, link: Link, value: object) -> Resource | None:
    """The resource that a link's value names."""
    if link.handle == "id":
        return store.get(link.token, str(value))
    return next(
        (each for each in store.of_type(link.token) if each.outputs.get(link.handle) == value), None
    )


def network(text: str, code: str) -> ipaddress.IPv4Network:
    """An address block.

    Raises:
        RefusedError: it is none.
    """
    try:
        return ipaddress.IPv4Network(text)
    except ValueError as error:
        raise RefusedError(
            code, f"Value ({text}) for parameter cidrBlock is invalid: {error}."
        ) from error
