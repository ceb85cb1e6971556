"""The hosts of a picture: a column of hosts with processes, devices and the lines of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Literal

from infra.plan.process import PlanHost, Process
from infra.render.svg import Drawing, fitting

Side = Literal["left", "right"]

PADDING = 12
FRAME_HEAD = 34
HOST_HEAD = 30
HOST_GAP = 12
GROUP_LABEL = 18
PROCESS_HEIGHT = 62
BUS_HEIGHT = 24
PER_ROW = 8
LANE = 14
INK, SOFT = "#0f172a", "#475569"


@dataclass(frozen=True, slots=True)
class Colours:
    """Of one role: the frame's fill, a process's fill, a device's fill, lines and labels."""

    frame: str
    process: str
    device: str
    line: str


_COLOURS = {
    "prefill": Colours("#eff6ff", "#dbeafe", "#93c5fd", "#1d4ed8"),
    "decode": Colours("#fff7ed", "#ffedd5", "#fdba74", "#c2410c"),
    "unified": Colours("#f0fdfa", "#ccfbf1", "#5eead4", "#0f766e"),
}


@dataclass(frozen=True, kw_only=True)
class Column:
    """Hosts one below the other, with their engine processes in plan order.

    Args:
        bus_side: where the lines of groups that span hosts run.
    """

    title: str
    left: float
    top: float
    width: float
    bus_side: Side
    hosts: tuple[tuple[PlanHost, tuple[Process, ...]], ...]

    @cached_property
    def lanes(self) -> dict[str, int]:
        """Groups that need a line along the column, numbered: those with more than one row."""
        rows: dict[str, int] = {}
        for _, processes in self.hosts:
            for row in _rows(processes):
                for name in dict.fromkeys(process.group for process in row):
                    rows[name] = rows.get(name, 0) + 1
        spanning = [name for name, count in rows.items() if count > 1]
        # groups of dedicated hosts follow each other, so they share a lane
        dedicated = all(len({p.group for p in processes}) == 1 for _, processes in self.hosts)
        return {name: 0 if dedicated else index for index, name in enumerate(spanning)}

    @property
    def host_left(self) -> float:
        """Left edge of the hosts."""
        return self.left + PADDING + (self._bus_width if self.bus_side == "left" else 0)

    @property
    def host_width(self) -> float:
        """Width of the hosts."""
        return self.width - 2 * PADDING - self._bus_width

    @cached_property
    def _bus_width(self) -> float:
        lanes = self.lanes.values()
        return LANE * (max(lanes) + 1) + 4 if lanes else 0

    def lane_x(self, group: str) -> float:
        """Where the line of a group runs."""
        offset = LANE * (self.lanes[group] + 1)
        if self.bus_side == "left":
            return self.host_left - offset
        return self.host_left + self.host_width + offset

    def host_tops(self) -> list[float]:
        """The upper edge of each host."""
        tops, y = [], self.top + FRAME_HEAD
        for _, processes in self.hosts:
            tops.append(y)
            y += host_height(processes) + HOST_GAP
        return tops

    def host_middles(self) -> list[tuple[str, float]]:
        """(host, y of the middle of its first row of processes)."""
        offset = HOST_HEAD + GROUP_LABEL + PROCESS_HEIGHT / 2
        return [
            (host.name, y + offset)
            for (host, _), y in zip(self.hosts, self.host_tops(), strict=True)
        ]


@dataclass(slots=True)
class _Sheet:
    """A column while it is drawn; `ends` are the heights at which a group's lines reach its lane."""

    drawing: Drawing
    column: Column
    ends: dict[str, list[float]]


def colour_of(role: str) -> Colours:
    """The colours of a role; grey for a role that is none of ours."""
    return _COLOURS.get(role, Colours("#f1f5f9", "#e2e8f0", "#94a3b8", "#475569"))


def column_height(column: Column) -> float:
    """Height of a column with its frame."""
    hosts = sum(host_height(processes) + HOST_GAP for _, processes in column.hosts)
    return FRAME_HEAD + hosts


def host_height(processes: Sequence[Process]) -> float:
    """Height of one host."""
    return HOST_HEAD + sum(_row_height(row) for row in _rows(processes)) + 4


def draw_column(drawing: Drawing, column: Column) -> None:
    """The frame of a role, and its hosts."""
    roles = dict.fromkeys(process.role for _, processes in column.hosts for process in processes)
    colours = colour_of(next(iter(roles))) if len(roles) == 1 else colour_of("")
    height = column_height(column)
    drawing.box(
        (column.left, column.top),
        (column.width, height),
        fill=colours.frame,
        stroke=colours.line,
        radius=10,
    )
    drawing.text(
        (column.left + PADDING, column.top + 23),
        column.title,
        size=16,
        fill=colours.line,
        bold=True,
    )
    drawing.text(
        (column.left + column.width - PADDING, column.top + 23),
        _sizes(column),
        size=13,
        fill=SOFT,
        anchor="end",
    )
    sheet = _Sheet(drawing, column, {name: [] for name in column.lanes})
    for (host, processes), y in zip(column.hosts, column.host_tops(), strict=True):
        _draw_host(drawing, column, host, processes, y)
        row_y = y + HOST_HEAD
        named = ""
        for row in _rows(processes):
            _draw_row(sheet, row, row_y, named)
            named = row[-1].group
            row_y += _row_height(row)
    for group, ys in sheet.ends.items():
        if len(ys) > 1:
            x = column.lane_x(group)
            drawing.line([(x, min(ys)), (x, max(ys))], stroke=SOFT, width=1.5)


def port_span(first: int, last: int) -> str:
    """`7100`, or `7100–7107`."""
    return str(first) if first == last else f"{first}–{last}"


def _sizes(column: Column) -> str:
    """`2 replicas of 4 ranks`, per role."""
    ranks: dict[str, dict[str, int]] = {}
    for _, processes in column.hosts:
        for process in processes:
            of_role = ranks.setdefault(process.role, {})
            of_role[process.group] = of_role.get(process.group, 0) + len(process.dp_ranks)
    words = []
    for role, groups in ranks.items():
        size = max(groups.values())
        text = f"{len(groups)} replica{'s' * (len(groups) != 1)} of {size} rank{'s' * (size != 1)}"
        words.append(f"{role}: {text}" if len(ranks) > 1 else text)
    return ", ".join(words)


def _rows(processes: Sequence[Process]) -> list[tuple[Process, ...]]:
    """Processes side by side, at most `PER_ROW`."""
    count = -(-len(processes) // PER_ROW) or 1
    length = -(-len(processes) // count) if processes else 0
    return [tuple(processes[i : i + length]) for i in range(0, len(processes), length or 1)]


def _row_height(row: Sequence[Process]) -> float:
    return GROUP_LABEL + PROCESS_HEIGHT + (BUS_HEIGHT if _has_bus(row) else 8)


def _has_bus(row: Sequence[Process]) -> bool:
    """Whether a process of the row dials another, or is dialled."""
    return any(process.connects or _handshake(process) for process in row)


def _handshake(process: Process) -> str | None:
    """The listener that followers of its group dial, as `name :port`."""
    for bind in process.binds:
        if bind.name in {"dp_rpc", "master", "dist"}:
            return f"{bind.name} :{bind.port}"
    return None


def _draw_host(
    drawing: Drawing, column: Column, host: PlanHost, processes: Sequence[Process], y: float
) -> None:
    left, width = column.host_left, column.host_width
    drawing.box(
        (left, y), (width, host_height(processes)), fill="#ffffff", stroke="#94a3b8", radius=8
    )
    drawing.text((left + PADDING, y + 20), host.name, size=14, fill=INK, bold=True)
    offset = 9.2 * len(host.name) + 24
    drawing.text((left + PADDING + offset, y + 20), host.address, size=13, fill=SOFT)
    used = {device for process in processes for device in process.devices}
    idle = host.num_devices - len(used)
    note = f", {idle} idle" if idle else ""
    drawing.text(
        (left + width - PADDING, y + 20),
        f"{host.num_devices} × {host.accelerator}{note}",
        size=13,
        fill=SOFT,
        anchor="end",
    )


def _draw_row(sheet: _Sheet, row: Sequence[Process], y: float, named: str) -> None:
    """Processes side by side under the names of their groups, and the line that joins a group.

    `named` is the group whose name the row above ends with.
    """
    drawing, column = sheet.drawing, sheet.column
    inside = column.host_width - 2 * PADDING
    gap = 6.0
    width = (inside - gap * (len(row) - 1)) / max(len(row), 1)
    x = column.host_left + PADDING
    for group, found in groupby(row, key=lambda process: process.group):
        members = list(found)
        if group != named:
            colour = colour_of(members[0].role).line
            drawing.text((x + 1, y + 12), group, size=12, fill=colour, bold=True)
        middles = []
        for process in members:
            _draw_process(drawing, process, (x, y + GROUP_LABEL), width)
            middles.append(x + width / 2)
            x += width + gap
        if any(process.connects or _handshake(process) for process in members):
            _draw_bus(sheet, members, middles, y + GROUP_LABEL + PROCESS_HEIGHT)


def _draw_process(
    drawing: Drawing, process: Process, at: tuple[float, float], width: float
) -> None:
    """A process: its ranks, its HTTP port and its devices."""
    colours = colour_of(process.role)
    binds = ", ".join(f"{b.name} {port_span(b.port, b.port + b.count - 1)}" for b in process.binds)
    title = f"{process.id}, group {process.group}; binds {binds or 'nothing'}"
    drawing.box(
        at,
        (width, PROCESS_HEIGHT),
        fill=colours.process,
        stroke=colours.line,
        radius=5,
        title=title,
    )
    inside = width - 8
    label = fitting(_rank_labels(process), inside, 13)
    drawing.text(
        (at[0] + width / 2, at[1] + 16), label, size=13, fill=INK, anchor="middle", bold=True
    )
    drawing.text(
        (at[0] + width / 2, at[1] + 32),
        fitting(_port_labels(process), inside, 12),
        size=12,
        fill="#334155",
        anchor="middle",
    )
    _draw_devices(drawing, process, (at[0], at[1] + 40), width)


def _draw_devices(
    drawing: Drawing, process: Process, at: tuple[float, float], width: float
) -> None:
    """One square per device, numbered when there is room; devices of one rank stand together."""
    colours, count = colour_of(process.role), len(process.devices)
    if not count:
        return
    num_ranks = max(len(process.dp_ranks), 1)
    per_rank = count // num_ranks if count % num_ranks == 0 else count
    gap = 8.0 if num_ranks > 1 and count * 24 + num_ranks * 8 < width else 0.0
    side = min(20.0, (width - 6) / count - 2)
    x = at[0] + (width - count * (side + 2) + 2 - gap * (num_ranks - 1)) / 2
    for index, device in enumerate(process.devices):
        x += gap if index and index % per_rank == 0 else 0
        drawing.box((x, at[1]), (side, 16), fill=colours.device, stroke=colours.line, radius=3)
        if side >= 14:  # noqa: PLR2004 - two digits fit
            drawing.text(
                (x + side / 2, at[1] + 12), str(device), size=11, fill=INK, anchor="middle"
            )
        x += side + 2


def _rank_labels(process: Process) -> tuple[str, ...]:
    if not process.dp_ranks:
        return ("follower", "foll.")
    first, last = process.dp_ranks[0], process.dp_ranks[-1]
    span = port_span(first, last)
    return (f"rank{'s' * (first != last)} {span}", f"r {span}")


def _port_labels(process: Process) -> tuple[str, ...]:
    http = next((bind for bind in process.binds if bind.name == "http"), None)
    if http is None:
        return ("headless, no HTTP", "headless", "–")
    span = port_span(http.port, http.port + http.count - 1)
    return (f"HTTP :{span}", f":{span}")


def _draw_bus(
    sheet: _Sheet, members: Sequence[Process], middles: Sequence[float], y: float
) -> None:
    """The line below a group's processes: followers hang on it, an arrow leads into rank 0."""
    drawing, column = sheet.drawing, sheet.column
    bus = y + 11
    group = members[0].group
    spans = group in column.lanes
    ends = list(middles)
    if spans:
        ends.append(column.lane_x(group))
        sheet.ends[group].append(bus)
    if len(ends) > 1:
        drawing.line([(min(ends), bus), (max(ends), bus)], stroke=SOFT, width=1.5)
    for process, x in zip(members, middles, strict=True):
        told = _handshake(process)
        if told is not None and len(ends) > 1:
            drawing.line([(x, bus), (x, y + 1)], stroke=SOFT, width=1.5, arrow=True)
        elif told is None:
            drawing.line([(x, y), (x, bus)], stroke=SOFT, width=1.5)
            drawing.dot((x, y), radius=3, fill="#ffffff", stroke=SOFT)
        if told is not None:
            drawing.text(
                (x - 4, bus + 12),
                told,
                size=11,
                fill=SOFT,
                anchor="start" if len(members) > 1 else "middle",
            )
