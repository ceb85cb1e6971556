"""Characters of foreign text that would command a terminal, or hide what stands there, made visible."""

from __future__ import annotations

import json
import re

# C0 but for tab and newline, DEL, C1; marks of direction and separators of lines; what has no width and no ink, by
# which two names look alike; bytes that are no UTF-8 (PEP 383). Selectors of variation stay: they follow an
# emoji; so do joiners between letters of scripts that are joined, and between emoji (Unicode 16, section 23.2).
# source: Unicode 16, UAX #9 section 2 (bidirectional controls), DerivedCoreProperties.txt (Default_Ignorable_Code_Point
# but U+FE00 to U+FE0F) and section 23.8 (interlinear annotation); ECMA-48 section 5 (C0, C1); checked: 2026-11-26
_ASCII = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), 127)}
_JOINED = "[\u0600-\u1fff\u2100-\ufe0f\U00010000-\U0001faff]"
_HIDDEN = re.compile(
    f"(?<!{_JOINED})[\u200c\u200d]|[\u200c\u200d](?!{_JOINED})|"
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_NO_UTF_8 = range(0xDC80, 0xDD00)
_LATIN = range(0x100)
_BASIC = range(0x10000)


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
    if code in _LATIN:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code in _BASIC else f"\\U{code:08x}"


def _json(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]
