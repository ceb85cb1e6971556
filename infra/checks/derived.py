"""Rules for plans that were edited or imported: derived fields agree with the command lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.checks.view import Finding, Place, PlanView
from infra.engines.reading import Reading
from infra.engines.routers import LOOPBACK
from infra.plan.process import Process

Row = tuple[object, ...]


def derived_fields_agree(view: PlanView) -> Iterator[Finding]:
    """`argv` and `env` are the truth; ranks, devices, binds, connects and endpoint follow from them."""
    listeners = {
        claim.place: claim.process.id for claim in view.claims if claim.process.kind == "engine"
    }
    for process in view.plan.processes:
        for name, written, read in _derived(view, process, listeners):
            if written != read:
                told, said = _differing(written, read), _differing(read, written)
                what = f"{process.id}: {name} is {told}, and its command line says {said}."
                yield Finding(
                    field=name,
                    what=what,
                    fix=f"Correct {name} or the command line.",
                    process=process.id,
                )


def _derived(
    view: PlanView, process: Process, listeners: Mapping[Place, str]
) -> Iterator[tuple[str, object, object]]:
    """(field, as the plan has it, as the command line says it), in the order of the plan's fields."""
    reading, address = view.readings[process.id], view.addresses[process.host]
    scheme = "http"
    if process.kind == "router" and reading.flags.get("host") == LOOPBACK:
        address = LOOPBACK
    elif process.kind == "edge":
        scheme = "https" if view.plan.edge is not None and view.plan.edge.tls == "given" else "http"
    yield "dp_ranks", process.dp_ranks, reading.dp_ranks
    yield "devices", process.devices, reading.devices
    port = reading.http_port
    yield "endpoint", process.endpoint, None if port is None else f"{scheme}://{address}:{port}"
    if process.binds != reading.binds:  # their order may differ, and each counts once
        yield "binds", _bind_rows(process), _bind_rows(reading)
    if process.kind != "edge":  # it dials what the plan says, and nothing else does
        yield "connects", sorted(map(tuple, process.connects)), _dialled(reading, listeners)


def _bind_rows(of: Process | Reading) -> list[Row]:
    return sorted({(bind.name, bind.port, bind.count) for bind in of.binds})


def _dialled(reading: Reading, listeners: Mapping[Place, str]) -> list[Row]:
    """`connects` as the command line says; a dial that nobody answers keeps its bare address."""
    return sorted(
        (name, listeners.get((address, port)) or f"{address}:{port}", port)
        for name, address, port in reading.dials
    )


def _differing(value: object, other: object) -> object:
    """Of two lists only what the other lacks: a router's has a row per endpoint."""
    if not isinstance(value, list) or not isinstance(other, list):
        return value
    return [row for row in value if row not in other] or "without that"
