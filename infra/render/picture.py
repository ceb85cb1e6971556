"""A plan as a picture: hosts with devices and ranks, who dials whom, and the way of a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infra.plan.process import Plan, Process
from infra.render.picture_hosts import (
    Column,
    Side,
    colour_of,
    column_height,
    draw_column,
    port_span,
)
from infra.render.svg import Drawing, Point

WIDTH = 1280
EDGE = 64  # beside the columns: the router's lines run there
GUTTER = 130  # between prefill and decode: KV moves there
TOP = 216
BACKGROUND = "#f8fafc"
INK, SOFT, PANEL = "#0f172a", "#475569", "#ffffff"
REQUEST, ANSWER, KV = "#4338ca", "#64748b", "#be185d"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Front:
    """What clients talk to: the router, or the only endpoint. `entries` are the hosts it sends to."""

    label: str
    detail: str
    entries: frozenset[str]


def draw_plan(plan: Plan) -> str:
    """The SVG of a plan; the same plan gives the same bytes.

    Prefill hosts stand on the left and decode hosts on the right; all hosts stand in one column
    where roles share them or there is one role.
    """
    drawing = Drawing()
    columns = _columns(plan)
    front = _front(plan)
    heights = [column_height(column) for column in columns]
    _draw_head(drawing, plan)
    _draw_front(drawing, front)
    answer = str(len(_steps(plan)))
    drawing.badge((WIDTH / 2 + 36, 87), answer, ANSWER)
    for column in columns:
        draw_column(drawing, column)
        steps = _steps_of_trunk(column, columns, answer)
        _draw_trunk(drawing, column, front, steps)
    if len(columns) == 2:  # noqa: PLR2004 - prefill and decode
        _draw_kv(drawing, plan, TOP + min(heights) / 2)
    elif _kv_ports(plan):
        _draw_kv_inside(drawing, plan)
    bottom = _draw_legend(drawing, plan, TOP + max(heights) + 34)
    return drawing.document(
        (WIDTH, bottom + 18),
        title=f"{plan.stack}: {plan.model}",
        description=_summary(plan),
        background=BACKGROUND,
    )


def _columns(plan: Plan) -> list[Column]:
    """Where hosts stand: two columns for dedicated prefill and decode hosts, else one."""
    engines = [process for process in plan.processes if process.kind == "engine"]
    on_host: dict[str, list[Process]] = {}
    for process in engines:
        on_host.setdefault(process.host, []).append(process)
    placed = [(host, tuple(on_host.get(host.name, ()))) for host in plan.hosts]
    roles = list(dict.fromkeys(role for host in plan.hosts for role in host.roles))
    if roles == ["prefill", "decode"] and all(len(host.roles) == 1 for host in plan.hosts):
        width = (WIDTH - 2 * EDGE - GUTTER) / 2
        sides: tuple[tuple[str, float, Side], ...] = (
            ("prefill", EDGE, "right"),
            ("decode", WIDTH - EDGE - width, "left"),
        )
        return [
            Column(
                title=role,
                left=left,
                top=TOP,
                width=width,
                bus_side=bus_side,
                hosts=tuple((host, here) for host, here in placed if role in host.roles),
            )
            for role, left, bus_side in sides
        ]
    title = " and ".join(roles)
    left = EDGE * 2
    return [
        Column(
            title=title,
            left=left,
            top=TOP,
            width=WIDTH - 2 * left,
            bus_side="right",
            hosts=tuple(placed),
        )
    ]


def _front(plan: Plan) -> _Front:
    router = next((process for process in plan.processes if process.kind == "router"), None)
    edge = next((process for process in plan.processes if process.kind == "edge"), None)
    before = "" if edge is None else f"{edge.id}: {edge.argv[0]} → "
    by_id = {process.id: process for process in plan.processes}
    if router is None:
        first = plan.processes[0]
        serving = next((p for p in plan.processes if p.endpoint and p.dp_ranks), first)
        return _Front(
            label=f"{before}{serving.id}, no router",
            detail=f"{(edge or serving).endpoint}, the only endpoint",
            entries=frozenset({serving.host}),
        )
    program = next(
        (word for word in router.argv if "router" in word or "proxy" in word), router.argv[0]
    )
    name = program.rpartition("/")[2].partition(".")[0]
    dialled = {connect.to for connect in router.connects if connect.name == "http"}
    met = edge or router
    return _Front(
        label=f"{before}{router.id}: {name}",
        detail=f"{met.endpoint} on {met.host}, {len(dialled)} endpoints",
        entries=frozenset(by_id[to].host for to in dialled if to in by_id),
    )


def _draw_head(drawing: Drawing, plan: Plan) -> None:
    drawing.text((28, 40), plan.stack, size=24, fill=INK, bold=True)
    drawing.text(
        (28, 62), f"{plan.model} on {plan.engine.name} {plan.engine.version}", size=14, fill=SOFT
    )
    drawing.text((28, 82), _summary(plan), size=14, fill=SOFT)


def _summary(plan: Plan) -> str:
    engines = [process for process in plan.processes if process.kind == "engine"]
    used = sum(len(process.devices) for process in engines)
    accelerators = " and ".join(dict.fromkeys(host.accelerator for host in plan.hosts))
    hosts = f"{len(plan.hosts)} host" + "s" * (len(plan.hosts) != 1)
    processes = f"{len(engines)} engine process" + "es" * (len(engines) != 1)
    return f"{hosts}, {used} {accelerators} devices, {processes}"


def _draw_front(drawing: Drawing, front: _Front) -> None:
    """Clients above the router, with the request going down and tokens coming back."""
    middle = WIDTH / 2
    drawing.box((middle - 70, 24), (140, 32), fill=PANEL, stroke=SOFT, radius=16)
    drawing.text((middle, 45), "clients", size=14, anchor="middle", fill=INK, bold=True)
    drawing.box((middle - 215, 118), (430, 54), fill="#e0e7ff", stroke=REQUEST, radius=8)
    drawing.text((middle, 141), front.label, size=15, anchor="middle", fill=INK, bold=True)
    drawing.text((middle, 161), front.detail, size=13, anchor="middle", fill="#334155")
    drawing.line([(middle - 16, 57), (middle - 16, 117)], stroke=REQUEST, width=2.5, arrow=True)
    drawing.line(
        [(middle + 16, 117), (middle + 16, 57)], stroke=ANSWER, width=2, arrow=True, dashed=True
    )
    drawing.badge((middle - 36, 87), "1", REQUEST)


def _steps_of_trunk(column: Column, columns: Sequence[Column], answer: str) -> tuple[str, ...]:
    """The steps that the router's line to a column stands for."""
    if len(columns) > 1:
        return ("2",) if column.bus_side == "right" else ("3",)
    return ("2", "3") if answer == "5" else ("2",)


def _draw_trunk(drawing: Drawing, column: Column, front: _Front, steps: Sequence[str]) -> None:
    """From the router down the outer edge of a column, with an arrow into each host that it dials."""
    on_left = column.bus_side == "right"
    edge = column.left - 26 if on_left else column.left + column.width + 26
    inner = column.left + 12 if on_left else column.left + column.width - 12
    start = WIDTH / 2 - 215 if on_left else WIDTH / 2 + 215
    ends = [y for name, y in column.host_middles() if name in front.entries]
    if not ends:
        return
    drawing.line([(start, 145), (edge, 145), (edge, ends[-1])], stroke=REQUEST, width=2.5)
    for y in ends:
        drawing.line([(edge, y), (inner, y)], stroke=REQUEST, width=2.5, arrow=True)
    for index, step in enumerate(steps):
        drawing.badge((edge, 176 + 26 * index), step, REQUEST)


def _draw_kv(drawing: Drawing, plan: Plan, y: float) -> None:
    """The broad arrow from prefill to decode."""
    left, right = (WIDTH - GUTTER) / 2, (WIDTH + GUTTER) / 2
    middle = WIDTH / 2
    drawing.line([(left + 2, y), (right - 3, y)], stroke=KV, width=6, arrow=True)
    drawing.badge((middle, y - 24), "4", KV)
    drawing.text((middle, y - 42), "KV cache", size=14, anchor="middle", fill=KV, bold=True)
    for index, (name, ports) in enumerate(_kv_ports(plan)):
        drawing.text((middle, y + 26 + 34 * index), name, size=12, anchor="middle", fill=INK)
        drawing.text((middle, y + 41 + 34 * index), ports, size=12, anchor="middle", fill=SOFT)


def _draw_kv_inside(drawing: Drawing, plan: Plan) -> None:
    """Roles that share hosts: the same arrow as a sign in the head of their frame."""
    middle, y = EDGE * 2 + 270, TOP + 18
    for role, x in (("prefill", middle - 66), ("decode", middle + 50)):
        colours = colour_of(role)
        drawing.box((x, y - 8), (16, 16), fill=colours.device, stroke=colours.line, radius=3)
    drawing.line([(middle - 46, y), (middle + 46, y)], stroke=KV, width=5, arrow=True)
    drawing.badge((middle - 4, y), "4", KV)
    ports = ", ".join(f"{name} {ports}" for name, ports in _kv_ports(plan))
    drawing.text((middle + 76, y + 4.5), f"KV cache: {ports}", size=12, fill=KV, bold=True)


def _kv_ports(plan: Plan) -> list[tuple[str, str]]:
    """The listeners of prefill processes that decode processes reach: (name, port range)."""
    prefill = [process for process in plan.processes if process.role == "prefill"]
    found = []
    for name in ("side_channel", "kv", "bootstrap"):
        ports = [
            port
            for process in prefill
            for bind in process.binds
            if bind.name == name
            for port in (bind.port, bind.port + bind.count - 1)
        ]
        if ports:
            found.append((name.replace("_", " "), port_span(min(ports), max(ports))))
    return found


def _steps(plan: Plan) -> list[tuple[str, str]]:
    """The way of a request in words: (colour, text), in the order of the numbers."""
    has_edge = any(process.kind == "edge" for process in plan.processes)
    asked = "the edge, with a key" if has_edge else "the router"
    if any(process.role == "prefill" for process in plan.processes):
        return [
            (REQUEST, f"a client asks {asked}"),
            (REQUEST, "the prompt goes to one prefill rank"),
            (REQUEST, "the request goes to one decode rank"),
            (KV, "the KV cache moves from the one to the other"),
            (ANSWER, "tokens stream back through the router"),
        ]
    if any(process.kind == "router" for process in plan.processes):
        return [
            (REQUEST, f"a client asks {asked}"),
            (REQUEST, "the request goes to one endpoint"),
            (ANSWER, "tokens stream back through the router"),
        ]
    return [
        (REQUEST, f"a client asks {asked if has_edge else 'the endpoint'}"),
        (REQUEST, "its API server hands the request to a rank"),
        (ANSWER, "tokens stream back"),
    ]


def _draw_legend(drawing: Drawing, plan: Plan, top: float) -> float:
    """Steps and signs; the y of the last line."""
    rows: list[Point] = []
    for index, (colour, words) in enumerate(_steps(plan)):
        column, row = divmod(index, 3)
        at = (40 + 330 * column, top + 26 * row)
        drawing.badge(at, str(index + 1), colour)
        drawing.text((at[0] + 18, at[1] + 4.5), words, size=13, fill=INK)
        rows.append(at)
    left = 40 + 330 * (1 + (len(rows) - 1) // 3) + 50
    signs = _signs(plan)
    for index, (role, words) in enumerate(signs):
        y = top + 26 * index
        colours = colour_of(role)
        if role == "dial":
            drawing.line([(left - 9, y), (left + 9, y)], stroke=SOFT, width=1.5, arrow=True)
        else:
            drawing.box(
                (left - 8, y - 8), (16, 16), fill=colours.device, stroke=colours.line, radius=3
            )
        drawing.text((left + 18, y + 4.5), words, size=13, fill=INK)
        rows.append((left, y))
    return max(y for _, y in rows) + 10


def _signs(plan: Plan) -> Sequence[tuple[str, str]]:
    roles = dict.fromkeys(process.role for process in plan.processes if process.kind == "engine")
    signs = [(role, f"a device of a {role} rank (r), by its index on its host") for role in roles]
    if any(process.connects for process in plan.processes if process.kind == "engine"):
        signs.append(("dial", "followers (○) dial the process that holds rank 0"))
    return signs
