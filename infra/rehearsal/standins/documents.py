"""JSON in and out without importing `json`, which costs 7 ms of a budget of 25, most of it `re`.

CPython's own accelerator does the work. Everything here runs at each `docker run` of a rehearsal.
"""

from __future__ import annotations

import os
from _json import encode_basestring_ascii, make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _ScannerSettings:
    """What the C scanner asks its decoder: the defaults of `json.loads`."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def parse_document(text: str) -> Any:
    """Return the value that a JSON text holds.

    Raises:
        ValueError: the text is not one JSON document.
    """
    stripped = text.strip()
    settings: Any = _ScannerSettings()
    try:
        value, end = make_scanner(settings)(stripped, 0)
    except (StopIteration, SystemError):
        # Without `json.decoder` loaded the C scanner cannot even raise its own error.
        import json  # noqa: PLC0415  only for a document that is broken

        return json.loads(text)
    if end != len(stripped):
        message = f"not a JSON document: more text after character {end}"
        raise ValueError(message)
    return value


def read_document(path: str) -> Any:
    """Return the value that a JSON file holds.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no JSON document.
    """
    with open(path, encoding="utf-8") as file:
        return parse_document(file.read())


def format_document(value: Any, indent: str = "", level: int = 0) -> str:
    """Return a value as JSON, as Go's `json.MarshalIndent` lays it out.

    Args:
        value: dictionaries, lists, strings, numbers, booleans and None.
        indent: what one level is indented by; empty puts everything on one line.
        level: how deep the value stands already.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        colon = ": " if indent else ":"
        parts = [
            encode_basestring_ascii(str(key)) + colon + format_document(item, indent, level + 1)
            for key, item in value.items()
        ]
        return _enclose("{}", parts, indent, level)
    parts = [format_document(item, indent, level + 1) for item in value]
    return _enclose("[]", parts, indent, level)


def write_document(path: str, value: Any) -> None:
    """Replace a file by the JSON of a value, in one step for whoever reads it meanwhile."""
    draft = f"{path}.{os.getpid()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, format_document(value).encode())
    finally:
        os.close(descriptor)
    os.replace(draft, path)


def _enclose(brackets: str, parts: list[str], indent: str, level: int) -> str:
    """Return the parts between brackets, one per line when there is an indent."""
    opening, closing = brackets[0], brackets[1]
    if not parts or not indent:
        return opening + ",".join(parts) + closing
    inner = "\n" + indent * (level + 1)
    return opening + inner + ("," + inner).join(parts) + "\n" + indent * level + closing
