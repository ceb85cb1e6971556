"""Characters of foreign text that would command a terminal, or hide what stands there, made visible."""

from __future__ import annotations

import re

# C0 but for tab and newline, DEL, C1; marks of direction and separators of lines; bytes that are no UTF-8 (PEP 383).
# source: Unicode 16, UAX #9 section 2 (bidirectional controls) and ECMA-48 section 5 (C0, C1); checked: 2026-11-26
_ASCII = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), 127)}
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_NO_UTF_8 = range(0xDC80, 0xDD00)
_LATIN = range(0x100)


def visible(text: str) -> str:
    r"""The text with `\x1b` for an escape, and so on; what people write in any language stays as it is."""
    # Logs come by the 20 MB: `translate` takes 1 ms for a MB of clean ASCII, the expression six.
    return text.translate(_ASCII) if text.isascii() else _HIDDEN.sub(_written, text)


def visible_json(document: str) -> str:
    """A JSON document with those characters as JSON's own escapes: same values, none of them raw."""
    return (
        document if document.isascii() and "\x7f" not in document else _HIDDEN.sub(_json, document)
    )


def visible_bytes(content: bytes) -> bytes:
    """A file's text made visible; bytes that are no UTF-8, too."""
    return visible(content.decode("utf-8", "surrogateescape")).encode()


def _written(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code in _NO_UTF_8:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code in _LATIN else f"\\u{code:04x}"


def _json(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
