"""SVG as text: a drawing collects shapes; the same calls give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal

Anchor = Literal["start", "middle", "end"]
Point = tuple[float, float]

FONT = "'DejaVu Sans', Verdana, 'Segoe UI', Helvetica, Arial, sans-serif"
# Mean advance of the font, in parts of its size; enough to keep a label inside its box.
CHARACTER_WIDTH = 0.6


@dataclass(slots=True)
class Drawing:
    """Shapes in the order in which they are drawn; coordinates are pixels from the top left."""

    parts: list[str] = field(default_factory=list)

    def box(  # noqa: PLR0913 - a rectangle has that many sides to it
        self,
        at: Point,
        size: Point,
        *,
        fill: str,
        stroke: str = "none",
        radius: float = 6,
        title: str = "",
        dashed: bool = False,
    ) -> None:
        """A rectangle; `title` is shown while the pointer rests on it."""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        shape = (
            f'<rect x="{number(at[0])}" y="{number(at[1])}" width="{number(size[0])}" height="{number(size[1])}"'
            f' rx="{number(radius)}" fill="{fill}" stroke="{stroke}"{dash}'
        )
        inner = f"><title>{escape(title)}</title></rect>" if title else "/>"
        self.parts.append(shape + inner)

    def text(  # noqa: PLR0913 - as above
        self,
        at: Point,
        words: str,
        *,
        size: float = 12,
        fill: str = "#1e293b",
        anchor: Anchor = "start",
        bold: bool = False,
    ) -> None:
        """One line of selectable text; `at` is its baseline."""
        weight = ' font-weight="700"' if bold else ""
        place = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.parts.append(
            f'<text x="{number(at[0])}" y="{number(at[1])}" font-size="{number(size)}"'
            f' fill="{fill}"{place}{weight}>{escape(words)}</text>'
        )

    def line(
        self,
        points: Sequence[Point],
        *,
        stroke: str,
        width: float = 1.5,
        arrow: bool = False,
        dashed: bool = False,
    ) -> None:
        """A path of straight pieces, with an arrowhead at its end when asked for."""
        way = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<polyline points="{way}" fill="none" stroke="{stroke}" stroke-width="{number(width)}"'
            f' stroke-linejoin="round"{dash}/>'
        )
        if arrow:
            self._head(points[-2], points[-1], stroke, 4 + 1.6 * width)

    def dot(
        self, at: Point, *, radius: float, fill: str, stroke: str = "none", width: float = 1.5
    ) -> None:
        """A small circle."""
        self.parts.append(
            f'<circle cx="{number(at[0])}" cy="{number(at[1])}" r="{number(radius)}" fill="{fill}"'
            f' stroke="{stroke}" stroke-width="{number(width)}"/>'
        )

    def badge(self, at: Point, words: str, fill: str) -> None:
        """A numbered disc: a step of the way of a request."""
        self.dot(at, radius=10, fill=fill)
        self.text((at[0], at[1] + 4), words, size=12, fill="#ffffff", anchor="middle", bold=True)

    def _head(self, before: Point, tip: Point, fill: str, size: float) -> None:
        dx, dy = tip[0] - before[0], tip[1] - before[1]
        length = (dx * dx + dy * dy) ** 0.5 or 1.0
        ux, uy = dx / length, dy / length
        foot = (tip[0] - ux * size, tip[1] - uy * size)
        half = size * 0.5
        corners = (
            tip,
            (foot[0] - uy * half, foot[1] + ux * half),
            (foot[0] + uy * half, foot[1] - ux * half),
        )
        way = " ".join(f"{number(x)},{number(y)}" for x, y in corners)
        self.parts.append(f'<polygon points="{way}" fill="{fill}"/>')

    def document(self, size: Point, *, title: str, description: str, background: str) -> str:
        """The whole file: a background of its own, so that it reads on dark pages too."""
        width, height = number(size[0]), number(size[1])
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            f' role="img" font-family="{FONT}">\n<title>{escape(title)}</title>\n<desc>{escape(description)}</desc>\n'
            f'<rect width="{width}" height="{height}" rx="10" fill="{background}"/>\n'
        )
        return head + "\n".join(self.parts) + "\n</svg>\n"


def number(value: float) -> str:
    """A coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def text_width(words: str, size: float) -> float:
    """About how wide a text is, in pixels."""
    return len(words) * size * CHARACTER_WIDTH


def fitting(words: Sequence[str], width: float, size: float) -> str:
    """The first of several wordings, longest first, that fits a width; the last when none does."""
    return next((text for text in words if text_width(text, size) <= width), words[-1])
