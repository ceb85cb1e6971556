"""Items: what a host must hold, what it holds, and how an item ended."""

import importlib
import sys
from types import ModuleType
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple, cast

from .host import Host, Refused

Parts = Dict[str, object]


class Item(NamedTuple):
    """One item of a host state.

    Args:
        id: what the report calls it.
        group: tuning, files, images or weights.
        kind: name of the mechanism that reads and writes it.
        target: sysctl key, glob, unit or path, as the kind needs.
        want: the wanted value; None is read and left alone.
        needs: what a change waits for: None (nothing), engine-restart, drain or reboot.
        tolerate_absent: a host without it is not_applicable, not failed.
        why: the reason given by whoever wants it.
        document: the item as it came, with the keys of its kind.
    """

    id: str
    group: str
    kind: str
    target: str
    want: Optional[str]
    needs: Optional[str]
    tolerate_absent: bool
    why: str
    document: Dict[str, object]

    def text(self, key: str) -> Optional[str]:
        """A key of the kind that holds text, None when it is not there."""
        value = self.document.get(key)
        return None if value is None else str(value)

    def is_on(self, key: str) -> bool:
        """Whether a key of the kind is true."""
        return bool(self.document.get(key))

    def number(self, key: str) -> Optional[int]:
        """A key of the kind that holds a whole number, None when it is not there."""
        value = self.document.get(key)
        return int(str(value)) if value is not None else None


class Reading(NamedTuple):
    """What an item is on this host.

    Args:
        value: what the report shows; None when it is not there.
        parts: current state by part (a path, a property), in the form that brings it back.
        wanted: what the report shows as wanted; None when it is left alone.
        wanted_parts: the state by part that is wanted; a part that differs is written.
        absent: why the item does not exist here, else None.
        locked: why it can be neither brought to the wanted state nor called absent, else None.
        note: something the operator should know although nothing is wrong.
        todo: what an item that waits for a drain or a reboot lacks, and what to do.
        untold: parts that are written, but whose program has not read them yet.
    """

    value: Optional[str]
    parts: Parts
    wanted: Optional[str]
    wanted_parts: Parts
    absent: Optional[str] = None
    locked: Optional[str] = None
    note: str = ""
    todo: str = ""
    untold: Tuple[str, ...] = ()

    def differing(self) -> List[str]:
        """The parts that are not as wanted, or whose program does not know it yet, in their order."""
        return [
            part
            for part in self.wanted_parts
            if part in self.untold or not same(self.parts.get(part), self.wanted_parts[part])
        ]


class NotCarried(Exception):
    """Modules that a request needs were not carried here; whoever asked may send them.

    Args:
        modules: their names, as `bundle` has them.
    """

    def __init__(self, modules: List[str]) -> None:
        """Keep the names."""
        super().__init__(", ".join(modules))
        self.modules = modules


class Kind(NamedTuple):
    """A mechanism; what it is done by is loaded when it is first used.

    Args:
        reader: `module:function` that looks at the host.
        writer: that brings one part to a state, wanted or original.
        refusal: how an item ends that refuses or keeps its value.
        recorded: whether rollback brings it back.
        survives_reboot: whether the written value is there after a reboot by itself.
    """

    reader: str
    writer: str
    refusal: str
    recorded: bool
    survives_reboot: bool

    def read(self, host: Host, item: Item) -> Reading:
        """Look at the host; raises OSError or Refused."""
        return cast(Reading, _function(self.reader)(host, item))

    def write(self, host: Host, item: Item, part: str, value: object) -> None:
        """Bring one part to a state; raises OSError or Refused."""
        _function(self.writer)(host, item, part, value)

    @property
    def modules(self) -> List[str]:
        """Where both stand."""
        return sorted({name.partition(":")[0] for name in (self.reader, self.writer)})


def parse_item(document: Dict[str, object]) -> Item:
    """An item from its JSON; keys that are left out get their neutral value."""
    want = document.get("want")
    needs = document.get("needs")
    return Item(
        id=str(document["id"]),
        group=str(document.get("group", "tuning")),
        kind=str(document["kind"]),
        target=str(document.get("target") or document["id"]),
        want=None if want is None else str(want),
        needs=None if needs in (None, "live") else str(needs),
        tolerate_absent=bool(document.get("tolerate_absent", False)),
        why=str(document.get("why", "")),
        document=document,
    )


def same(one: object, other: object) -> bool:
    """Whether two states of a part are the same; a file's content counts through its checksum."""
    return _without_content(one) == _without_content(other)


def absent_reading(item: Item, why: str) -> Reading:
    """An item that this host does not have."""
    return Reading(None, {}, item.want, {}, absent=why)


def bring_module(name: str) -> ModuleType:
    """A module of the agent by its name.

    Raises:
        NotCarried: it, or one that it imports, is not here.
        Refused: this Python lacks a module of its library.
    """
    try:
        return importlib.import_module("." + name, __package__)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("{}.".format(__package__)):
            raise NotCarried([name]) from error
        what = "{} has no module {}: install the whole of Python's library there"
        raise Refused(what.format(sys.executable or "its Python", error.name)) from error


def _function(name: str) -> Callable[..., object]:
    """A function by `module:name`."""
    module, _, function = name.partition(":")
    return cast(Callable[..., object], getattr(bring_module(module), function))


def _without_content(state: object) -> object:
    if isinstance(state, dict):
        return {key: value for key, value in state.items() if key != "content"}
    return state
