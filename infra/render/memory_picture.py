"""Memory per device as bars: one per role and layout, weights, draft, overhead and KV stacked."""

from __future__ import annotations

from collections.abc import Sequence

from infra.memory.device import DeviceMemory
from infra.render.estimates import Estimate
from infra.render.svg import Drawing

_BACKGROUND, _INK, _SOFT = "#f8fafc", "#0f172a", "#475569"
_PARTS = (("weights", "#4338ca"), ("draft", "#0891b2"), ("overhead", "#94a3b8"), ("KV", "#16a34a"))
_SHORT, _OUTSIDE = "#dc2626", "#e2e8f0"
_LEFT, _WIDTH, _BAR, _ROW, _HEAD, _TOP = 130.0, 720.0, 26.0, 38.0, 28.0, 118.0
_SMALLEST_LABEL = 46.0  # pixels that a figure inside a bar needs


def draw_memory(estimates: Sequence[Estimate]) -> str:
    """An SVG; the scale is common to all bars, in GiB of a device."""
    every = [role.memory for each in estimates for role in each.roles]
    scale = _WIDTH / max((memory.total_gib for memory in every), default=1.0)
    drawing = Drawing()
    drawing.text((28, 40), "Memory of a device, by role", size=20, bold=True, fill=_INK)
    words = "GiB of the fullest device; pale is outside the share that the engine may use."
    drawing.text((28, 64), words, size=13, fill=_SOFT)
    _legend(drawing)
    top, told = _TOP, []
    for each in estimates:
        drawing.text((28, top + 14), f"{each.name} ({each.accelerators})", size=13, bold=True)
        top += _HEAD
        for role in each.roles:
            name = role.load.role
            drawing.text((_LEFT - 12, top + 18), name, size=13, anchor="end", fill=_INK)
            _bar(drawing, top, role.memory, scale)
            parts = ", ".join(f"{part} {gib:.1f}" for part, gib in _parts(role.memory))
            told.append(f"{each.name} {name}: {parts} GiB")
            top += _ROW
    return drawing.document(
        (_LEFT + _WIDTH + 90, top + 12),
        title="Memory of a device, by role",
        description="; ".join(told),
        background=_BACKGROUND,
    )


def _parts(memory: DeviceMemory) -> tuple[tuple[str, float], ...]:
    return (
        ("weights", memory.weights_gib),
        ("draft", memory.draft_gib),
        ("overhead", memory.overhead_gib),
        ("KV", memory.kv_gib),
    )


def _legend(drawing: Drawing) -> None:
    left = _LEFT
    for part, colour in (*_PARTS, ("missing", _SHORT)):
        drawing.box((left, 82), (14, 14), fill=colour, radius=3)
        drawing.text((left + 20, 94), part, size=13, fill=_SOFT)
        left += 110


def _bar(drawing: Drawing, top: float, memory: DeviceMemory, scale: float) -> None:
    """The device pale, then the parts; what is missing in red behind what the engine may use."""
    drawing.box((_LEFT, top), (memory.total_gib * scale, _BAR), fill=_OUTSIDE, radius=3)
    left, colours = _LEFT, dict(_PARTS)
    for part, gib in _parts(memory):
        if gib <= 0:
            continue
        width = gib * scale
        drawing.box((left, top), (width, _BAR), fill=colours[part], radius=2)
        if width >= _SMALLEST_LABEL:
            middle = (left + width / 2, top + 18)
            drawing.text(middle, f"{gib:.1f}", size=12, anchor="middle", fill="#ffffff")
        left += width
    if memory.kv_gib < 0:
        end = _LEFT + memory.usable_gib * scale
        drawing.box((end, top), (-memory.kv_gib * scale, _BAR), fill=_SHORT, radius=2)
    at = (_LEFT + memory.total_gib * scale + 8, top + 18)
    drawing.text(at, f"{memory.total_gib:.0f} GiB", size=12, fill=_SOFT)
