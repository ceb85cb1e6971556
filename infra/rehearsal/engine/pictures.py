"""What a simulated model sees in a picture: the colour of its first point."""

from __future__ import annotations

import base64
import zlib
from typing import Any

PNG = b"\x89PNG\r\n\x1a\n"
HEAD = 8
COLOURS = {"red": (255, 0, 0), "green": (0, 128, 0), "blue": (0, 0, 255), "white": (255, 255, 255)}


def colour_of(part: dict[str, Any]) -> str:
    """Return the colour of a picture in a message; "" of one that is no PNG of three bytes a point."""
    url = part.get("image_url")
    text = str(url.get("url") if isinstance(url, dict) else url)
    try:
        point = _first_point(base64.b64decode(text.partition("base64,")[2]))
    except (ValueError, zlib.error):
        return ""
    return min(COLOURS, key=lambda name: _distance(COLOURS[name], point))


def _first_point(data: bytes) -> tuple[int, ...]:
    """Raises ValueError where there is none."""
    if not data.startswith(PNG):
        raise ValueError("no PNG")
    place, packed = len(PNG), b""
    while place + HEAD <= len(data):
        length, kind = (
            int.from_bytes(data[place : place + 4], "big"),
            data[place + 4 : place + HEAD],
        )
        if kind == b"IDAT":
            packed += data[place + HEAD : place + HEAD + length]
        place += HEAD + length + 4
    point = zlib.decompress(packed)[1:4]
    if len(point) < 3:  # noqa: PLR2004 - red, green, blue
        raise ValueError("no point")
    return tuple(point)


def _distance(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other))  # noqa: B905 - not in Python 3.9
