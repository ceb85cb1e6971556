"""What the real provider does on a change: which inputs replace a resource, what a preview knows, what goes first.

`provider_changes.json` holds it for every emulated type, read in terraform-provider-aws and Pulumi's bridge, with file,
commit and, where somebody planned the change with the released provider, what the plan said.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("provider_changes.json")
Inputs = Mapping[str, object]
_EMPTY: tuple[object, ...] = (None, "", [], {})
COUNT_GROWS = "count grows"
RANGE_GROWS = "range grows"


def differs(old: object, new: object) -> bool:
    """Whether two inputs differ; nothing, false and empty are not told apart when one is missing."""
    return old != new and not (old in _EMPTY and new in _EMPTY)


def changed_inputs(old: Inputs, new: Inputs) -> list[str]:
    """Names of the inputs that differ, in order."""
    return sorted(name for name in {*old, *new} if differs(old.get(name), new.get(name)))


def replacing_inputs(token: str, old: Inputs, new: Inputs) -> list[str]:
    """Names of the inputs whose change makes another resource, in order."""
    known = _types()[token]
    paths = [path for path in known["replaces"] if differs(_value(old, path), _value(new, path))]
    for row in known["replaces_if"]:
        paths += _conditional(row["machine"], old, new)
    return sorted({path.partition(".")[0].removesuffix("[]") for path in paths})


def unknown_outputs(token: str, old: Inputs, new: Inputs) -> list[str]:
    """Outputs that a preview of a change does not know."""
    changed, found = set(changed_inputs(old, new)), []
    for row in _types()[token]["unknown"]:
        only, when = row.get("unless_only"), row.get("when_changed")
        needed = row.get("only_if")
        if (needed is not None and not new.get(needed)) or "." in row["output"]:
            continue
        if (only is not None and changed - set(only)) or (when and changed & set(when)):
            found.append(str(row["output"]))
    return found


def is_deleted_first(token: str, inputs: Inputs, auto_name: str) -> bool:
    """Whether a replacement is deleted before the new one is made.

    Args:
        token: type of the resource.
        inputs: as the program gives them, without an automatic name.
        auto_name: the automatic name that the resource would have.
    """
    when = (_types()[token]["delete_first"] or {}).get("when")
    if isinstance(when, Mapping):
        given = inputs.get(str(when["given_by_program"]))
        return given is not None and given != auto_name
    return when == "always"


def _conditional(form: Mapping[str, Any], old: Inputs, new: Inputs) -> Iterator[str]:
    """The property of a condition that holds; one that asks what no input says is for readers alone."""
    if "properties" in form:
        kinds = [{name for name in form["properties"] if each.get(name)} for each in (old, new)]
        if all(kinds) and kinds[0] != kinds[1]:
            yield min(kinds[0] | kinds[1])
        return
    was, now = _value(old, form["property"]), _value(new, form["property"])
    asked = (_ASKED[word](form[word], was, now, new) for word in form if word in _ASKED)
    if differs(was, now) and all(asked):
        yield form["property"]


def _is_excepted(form: object, was: object, now: object, new: Inputs) -> bool:
    """Whether a change is the one that a condition leaves out."""
    if isinstance(form, Mapping):
        ends = {"from": was, "to": now}
        return all(ends.get(name, _value(new, name)) == value for name, value in form.items())
    if form == COUNT_GROWS:
        return isinstance(was, list) and isinstance(now, list) and len(now) > len(was)
    if form == RANGE_GROWS:
        return _network(now).supernet_of(_network(was))
    return True  # in words alone


def _stands_beside(form: object, new: Inputs) -> bool:
    """Whether other inputs are as a condition wants them."""
    return isinstance(form, Mapping) and all(_value(new, name) == form[name] for name in form)


# What a word of a condition asks of its own value, the property before and after, and all inputs after.
_ASKED: Mapping[str, Callable[[Any, object, object, Inputs], bool]] = {
    "presence_changed": lambda _, was, now, __: (was in _EMPTY) != (now in _EMPTY),
    "decreased": lambda _, was, now, __: _number(now) < _number(was),
    "from": lambda wanted, was, _, __: bool(was == wanted),
    "to": lambda wanted, _, now, __: bool(now == wanted),
    "and": lambda wanted, _, __, new: _stands_beside(wanted, new),
    "unless": lambda wanted, was, now, new: not _is_excepted(wanted, was, now, new),
}


def _value(inputs: object, path: str) -> object:
    """What stands at a path; of what is in a list, the whole list."""
    head, _, rest = path.partition(".")
    value = inputs.get(head.removesuffix("[]")) if isinstance(inputs, Mapping) else None
    return _value(value, rest) if rest and not head.endswith("[]") else value


def _network(value: object) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network(str(value))


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float, str)) and value != "" else 0.0


@cache
def _types() -> Mapping[str, Mapping[str, Any]]:
    types: Mapping[str, Mapping[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))["types"]
    return types
