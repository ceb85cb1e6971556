"""Kernel knobs: files that keep a value the way procfs and sysfs do, and can be told to misbehave."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

Fault = Literal["EINVAL", "EIO", "EPERM", "EACCES", "EBUSY", "ENODEV", "sticky"]
"""How a write fails; `sticky`: it is accepted and changes nothing (a governor that firmware owns)."""

READ_WRITE = 0o644
READ_ONLY = 0o444
_ONE_BYTE_EACH = "latin-1"


class Busy(Exception):
    """A knob that cannot be changed while another one holds it."""


@dataclass(slots=True, kw_only=True)
class Knob:
    """One file.

    Args:
        first: value after every boot of the host.
        accept: the new value from the present one and what was written; ValueError is EINVAL.
        mode: permission bits; without a write bit nobody may write, as on procfs.
        render: the text of a value as a read shows it, without its newline.
        open_error: errno of every open, 0 for none (a debugfs file under kernel lockdown).
        has_registers: whether the value is bytes, one per character (Latin-1), of which a write changes those at its
            offset (a configuration space).
    """

    first: str
    accept: Callable[[str, str], str]
    mode: int = READ_WRITE
    render: Callable[[str], str] = str
    open_error: int = 0
    has_registers: bool = False
    value: str = field(init=False)
    fault: Fault | None = None

    def __post_init__(self) -> None:
        """Start at the first value."""
        self.value = self.first

    def read(self) -> bytes:
        """What a reader sees."""
        if self.has_registers:
            return self.value.encode(_ONE_BYTE_EACH)
        return (self.render(self.value) + "\n").encode()

    def write(self, data: bytes, offset: int = 0) -> int:
        """Take what a writer sends; returns 0 or an errno. Only registers have places: others begin anew."""
        if self.fault == "sticky":
            return 0
        if self.fault is not None:
            number: int = getattr(errno, self.fault)
            return number
        if self.has_registers:
            end = offset + len(data)
            self.value = self.value[:offset] + data.decode(_ONE_BYTE_EACH) + self.value[end:]
            return 0
        try:
            self.value = self.accept(self.value, data.decode().strip())
        except Busy:
            return errno.EBUSY
        except ValueError:  # UnicodeDecodeError is one
            return errno.EINVAL
        return 0


@dataclass(slots=True, kw_only=True)
class Link:
    """A symbolic link between knobs."""

    target: str


@dataclass(slots=True, kw_only=True)
class Folder:
    """A folder of knobs; nothing can be created in it, as on procfs."""

    entries: dict[str, Node]
    mode: int = 0o555

    def find(self, path: str) -> Node | None:
        """The node at a relative path, links not followed; None when there is none."""
        node: Node = self
        for part in filter(None, path.split("/")):
            if not isinstance(node, Folder) or part not in node.entries:
                return None
            node = node.entries[part]
        return node

    def knobs(self) -> Iterator[Knob]:
        """Every knob below this folder."""
        for node in self.entries.values():
            if isinstance(node, Folder):
                yield from node.knobs()
            elif isinstance(node, Knob):
                yield node


Node = Knob | Link | Folder


def integer(first: int, low: int = -(2**63), high: int = 2**63 - 1) -> Knob:
    """A whole number within bounds; text after the first word is ignored, as procfs does."""

    def accept(_present: str, written: str) -> str:
        words = written.split()
        number = int(words[0] if words else "", 0)
        if not low <= number <= high:
            raise ValueError(written)
        return str(number)

    return Knob(first=str(first), accept=accept)


def text(first: str) -> Knob:
    """Any text."""
    return Knob(first=first, accept=lambda _present, written: written)


def choice(first: str, options: tuple[str, ...]) -> Knob:
    """One of several words."""
    return Knob(first=first, accept=lambda _present, written: _one_of(options, written))


def preference(first: str, options: tuple[str, ...], governor: Knob) -> Knob:
    """An energy preference: under the governor `performance` it is that, and nothing else may be written."""

    def accept(_present: str, written: str) -> str:
        chosen = _one_of(options, written)
        if governor.value == "performance" != chosen:
            raise Busy(written)
        return chosen

    def render(value: str) -> str:
        return "performance" if governor.value == "performance" else value

    return Knob(first=first, accept=accept, render=render)


def bracketed(first: str, options: tuple[str, ...]) -> Knob:
    """One of several words; a read shows all, the chosen one in brackets."""

    def render(value: str) -> str:
        return " ".join(f"[{option}]" if option == value else option for option in options)

    knob = choice(first, options)
    knob.render = render
    return knob


def registers(first: bytes) -> Knob:
    """Bytes, each of which may be written where it is."""
    value = first.decode(_ONE_BYTE_EACH)
    return Knob(first=value, accept=_refuse, has_registers=True)


def fixed(value: str) -> Knob:
    """A value that no one can write."""
    return Knob(first=value, accept=_refuse, mode=READ_ONLY)


def fresh_uuid() -> Knob:
    """Another random UUID at every read."""
    return Knob(first="", accept=_refuse, mode=READ_ONLY, render=lambda _value: str(uuid.uuid4()))


def refused(value: str, number: int = errno.EPERM) -> Knob:
    """A file that is listed and cannot be opened."""
    return Knob(first=value, accept=_refuse, open_error=number)


def _one_of(options: tuple[str, ...], written: str) -> str:
    if written not in options:
        raise ValueError(written)
    return written


def _refuse(_present: str, written: str) -> str:
    raise ValueError(written)
