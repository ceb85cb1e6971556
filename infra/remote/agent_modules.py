"""Which of the agent's modules a request needs, and how they travel: a program packed once for many hosts."""

from __future__ import annotations

import functools
import importlib.resources
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from infra.agent.bundle import WATCHER, needed, program
from infra.agent.condensing import condensed, texts_in
from infra.agent.conversation import OPERATIONS, STREAMS
from infra.agent.state.parts import all_parts, parts_of

_PACKING = threading.Lock()  # many hosts ask for the program at the same moment


def agent_program(request: Mapping[str, object]) -> bytes:
    """The agent as it travels to somebody who can send more: a length line, then its one-file program, compressed.

    It carries what the request asks for and nothing else, without docstrings and comments: every doubling beyond
    the first 14 KB that TCP sends at once costs a distant host another round trip, and it is compiled there. What a
    host has recorded may ask for more; the agent then says so (`lacking`).
    """
    with _PACKING:
        return _packed_program(("conversation", *_modules_of(request)))


def whole_program(request: Mapping[str, object]) -> bytes:
    """The same with all that the request may turn out to need, for one that is asked only once."""
    modules = _modules_of(request)
    further = all_parts() if OPERATIONS["state"].lstrip(".") in modules else ()
    with _PACKING:
        return _packed_program(("conversation", *modules, *further))


def agent_modules(request: Mapping[str, object], further: Iterable[str] = ()) -> Mapping[str, str]:
    """The modules that a request needs, and further ones, as they travel: text by name."""
    with _PACKING:
        return _carried(("conversation", *_modules_of(request), *further))


def preparation(operations: Sequence[str]) -> dict[str, object]:
    """A request that has an agent load what requests of some operations may need."""
    parts = all_parts() if "state" in operations else []
    return {"operation": "prepare", "operations": list(operations), "parts": parts}


def lacking(report: Mapping[str, object]) -> set[str]:
    """The modules that an agent lacked for a request, or for one that was carried along."""
    missing, along = report.get("lacks"), report.get("also")
    found = {str(name) for name in missing} if isinstance(missing, list) else set()
    for one in along if isinstance(along, list) else ():
        found |= lacking(one) if isinstance(one, Mapping) else set()
    return found


def _modules_of(request: Mapping[str, object]) -> tuple[str, ...]:
    """The modules that a request asks for by name, those of the requests that it carries with it included."""
    operation = request.get("operation")
    name = {**OPERATIONS, **STREAMS}.get(str(operation))
    modules: tuple[str, ...] = (name.lstrip("."),) if name is not None else ()
    if operation == "state":
        modules = (*modules, *parts_of(dict(request)))
        if request.get("groups") != ["tuning"]:
            modules = (*modules, WATCHER)  # a file item may be the watcher
    if operation == "prepare":
        modules = (*modules, *_prepared_modules(request))
    also = request.get("also")
    for one in also if isinstance(also, Sequence) else ():
        modules = (*modules, *_modules_of(one))
    return modules


def _prepared_modules(request: Mapping[str, object]) -> Iterator[str]:
    """What a preparation loads, and what is carried beside it."""
    operations, parts = request.get("operations"), request.get("parts")
    for name in operations if isinstance(operations, list) else []:
        yield from _modules_of({"operation": name})
    yield from map(str, parts if isinstance(parts, list) else [])


@functools.cache
def _packed_program(roots: tuple[str, ...]) -> bytes:
    packed = zlib.compress(program(_carried(roots)).encode(), zlib.Z_BEST_COMPRESSION)
    return b"%d\n" % len(packed) + packed


@functools.cache
def _carried(roots: tuple[str, ...]) -> dict[str, str]:
    return {name: _text(name) for name in needed(_texts(), roots)}


@functools.cache
def _text(name: str) -> str:
    """A module as it travels."""
    return condensed(_texts()[name])


@functools.cache
def _texts() -> dict[str, str]:
    """The agent's modules by name."""
    return texts_in(str(importlib.resources.files("infra.agent")))
