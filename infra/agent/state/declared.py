"""Tuning belongs to the host: what each stack has declared for it, and what they declare together."""

from typing import Dict, List, NamedTuple, Optional

from ..kinds.kernel_knobs import parse_ports, render_ports

Document = Dict[str, object]
Declared = Dict[str, List[Document]]

ONE_FOR_ALL = ("want", "content", "content_base64", "target", "kind", "link")
LOOKED_AT = ("preload", "unit-limits")  # nothing is written, so nobody can be in the way
HOSTS_OWNER = "@hosts"


class Joined(NamedTuple):
    """The items of one request beside what others have declared.

    Args:
        documents: the request's own, lists of ports and of kernel arguments joined with those of others.
        conflicts: by id, who wants something else.
        others: by id, who declares the item too.
    """

    documents: List[Document]
    conflicts: Dict[str, str]
    others: Dict[str, List[str]]


def owner_words(owner: str) -> str:
    """An owner as the operator knows it."""
    return "`fab -H`" if owner == HOSTS_OWNER else "stack {}".format(owner)


def is_declared(document: Document) -> bool:
    """Whether an item wants anything; files always do."""
    return document.get("want") is not None or document.get("kind") in ("file", "login-limits")


def without(declared: Declared, owner: str) -> Declared:
    """What everybody else has declared."""
    return {name: items for name, items in declared.items() if name != owner}


def joined_with(documents: List[Document], others: Declared) -> Joined:
    """The tuning items of a request, joined with what other owners want of the same ids."""
    result: List[Document] = []
    conflicts: Dict[str, str] = {}
    sharers: Dict[str, List[str]] = {}
    for document in documents:
        own, name = document, str(document["id"])
        if is_declared(document):
            for owner, foreign in _of_id(others, name):
                sharers.setdefault(name, []).append(owner)
                together = together_with(own, foreign)
                if together is None and own.get("kind") not in LOOKED_AT:
                    words = "{} has declared {} for this host"
                    shown = foreign.get("want", "another content")
                    conflicts[name] = words.format(owner_words(owner), shown)
                elif together is not None:
                    own = together
        result.append(own)
    return Joined(result, conflicts, sharers)


def all_together(declared: Declared) -> List[Document]:
    """Every declared item once, in an order that depends on nothing but who has declared what."""
    found: Dict[str, Document] = {}
    for owner in sorted(declared):
        for document in filter(is_declared, declared[owner]):
            name = str(document["id"])
            first = found.get(name)
            found[name] = document if first is None else together_with(first, document) or first
    return list(found.values())


def together_with(one: Document, other: Document) -> Optional[Document]:
    """One item that satisfies both; None when they contradict each other."""
    if all(one.get(key) == other.get(key) for key in ONE_FOR_ALL):
        return one
    if any(one.get(key) != other.get(key) for key in ("kind", "target")):
        return None
    mine, theirs = str(one.get("want")), str(other.get("want"))
    want = None
    if one.get("kind") == "reserved-ports":
        want = render_ports(parse_ports(mine) | parse_ports(theirs))
    elif one.get("kind") == "kernel-arguments":
        want = " ".join(dict.fromkeys(mine.split() + theirs.split()))
    elif one.get("at_least") and mine.isdecimal() and theirs.isdecimal():
        want = str(max(int(mine), int(theirs)))
    return None if want is None else dict(one, want=want)


def _of_id(declared: Declared, name: str) -> List["tuple[str, Document]"]:
    return [
        (owner, document)
        for owner in sorted(declared)
        for document in declared[owner]
        if document.get("id") == name and is_declared(document)
    ]
