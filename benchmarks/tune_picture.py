"""The figures of `tune_hosts.py` as bars: drawn with the project's own SVG writer, made a PNG by rsvg-convert."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from infra.render.svg import Drawing

BACKGROUND, INK, SOFT = "#f8fafc", "#0f172a", "#475569"
FLOOR, OWN, RIVAL = "#94a3b8", "#4338ca", "#d97706"
LEFT, WIDTH, BAR, ROW, GAP, TOP = 330.0, 540.0, 20.0, 28.0, 40.0, 96.0
LABELS = {
    "F check": "OpenSSH, the agent once (floor)",
    "fab check": "fab tune-hosts --check",
    "F change": "OpenSSH, the agent once (floor)",
    "fab change": "fab tune-hosts",
    "pyinfra change": "pyinfra, a smaller job",
    "pyinfra again": "pyinfra, nothing left to do",
    "Ansible change": "Ansible, a smaller job",
    "Ansible again": "Ansible, nothing left to do",
}
GROUPS = {
    "reading": ("F check", "fab check", "pyinfra again", "Ansible again"),
    "changing": ("F change", "fab change", "pyinfra change", "Ansible change"),
}


def write_picture(path: Path, medians: Mapping[int, Mapping[str, float]]) -> None:
    """Write the PNG, or the SVG beside it where rsvg-convert is not installed.

    Args:
        path: ends in .png.
        medians: seconds by row, by number of hosts.
    """
    text = draw(medians)
    program = shutil.which("rsvg-convert")
    if program is None:
        path.with_suffix(".svg").write_text(text, encoding="utf-8")
        print("There is no rsvg-convert (librsvg2-bin): the picture is an SVG.", file=sys.stderr)
        return
    command = [program, "--zoom", "1.5", "--output", str(path)]
    subprocess.run(command, input=text.encode(), check=True)


def draw(medians: Mapping[int, Mapping[str, float]]) -> str:
    """Bars on a logarithmic scale, one block per number of hosts and kind of work."""
    values = [seconds for rows in medians.values() for seconds in rows.values()]
    low = 10 ** math.floor(math.log10(min(values)))
    high = 10 ** math.ceil(math.log10(max(values)))
    drawing = Drawing()
    drawing.text(
        (28, 40), "Tuning hosts: seconds from the shell, start-up included", size=20, bold=True
    )
    drawing.text(
        (28, 64),
        "Medians of one run on lab hosts that share two processors with the controller; logarithmic scale.",
        size=13,
        fill=SOFT,
    )
    top = TOP
    for count, rows in medians.items():
        for title, names in GROUPS.items():
            shown = [name for name in names if name in rows]
            drawing.text((28, top + 12), f"{count} hosts, {title}", size=14, bold=True)
            top += 22
            for name in shown:
                _bar(drawing, top, LABELS[name], rows[name], (low, high))
                top += ROW
            top += GAP - ROW / 2
    description = "; ".join(
        f"{count} hosts, {name}: {seconds:.2f} s"
        for count, rows in medians.items()
        for name, seconds in rows.items()
    )
    size = (LEFT + WIDTH + 110, top + 8)
    return drawing.document(
        size,
        title="fab tune-hosts beside its floor and its rivals",
        description=description,
        background=BACKGROUND,
    )


def _bar(
    drawing: Drawing, top: float, label: str, seconds: float, scale: tuple[float, float]
) -> None:
    low, high = (math.log10(end) for end in scale)
    width = max(2.0, WIDTH * (math.log10(seconds) - low) / (high - low))
    fill = OWN if label.startswith("fab") else FLOOR if "floor" in label else RIVAL
    drawing.text((LEFT - 12, top + 15), label, size=13, anchor="end", fill=INK)
    drawing.box((LEFT, top), (width, BAR), fill=fill, radius=3)
    drawing.text((LEFT + width + 8, top + 15), f"{seconds:.2f} s", size=13, fill=INK)
