"""Rules for plans that were edited or imported: derived fields agree with the command lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.checks.view import Finding, PlanView
from infra.plan.process import Process

Owners = Mapping[tuple[str, int], str]


def derived_fields_agree(view: PlanView) -> Iterator[Finding]:
    """`argv` and `env` are the truth; ranks, devices, binds, connects and endpoint follow from them."""
    owners = _listeners(view)
    for process in view.plan.processes:
        reading = view.readings[process.id]
        address = view.addresses[process.host]
        endpoint = None if reading.http_port is None else f"http://{address}:{reading.http_port}"
        binds = {(bind.name, bind.port, bind.count) for bind in reading.binds}
        written_binds = {(bind.name, bind.port, bind.count) for bind in process.binds}
        pairs: list[tuple[str, object, object]] = [
            ("dp_ranks", process.dp_ranks, reading.dp_ranks),
            ("devices", process.devices, reading.devices),
            ("endpoint", process.endpoint, endpoint),
            ("binds", sorted(written_binds), sorted(binds)),
            (
                "connects",
                sorted((c.name, c.to, c.port) for c in process.connects),
                _dialled(view, process, owners),
            ),
        ]
        for name, written, read in pairs:
            if written != read:
                told, said = _differing(written, read), _differing(read, written)
                what = f"{process.id}: {name} is {told}, and its command line says {said}."
                yield Finding(
                    field=name,
                    what=what,
                    fix=f"Correct {name} or the command line.",
                    process=process.id,
                )


def _listeners(view: PlanView) -> Owners:
    """Who listens at each (address, port) of the plan, as command lines say."""
    owners: dict[tuple[str, int], str] = {}
    for process in view.engines:
        for bind in view.readings[process.id].binds:
            for port in range(bind.port, bind.port + bind.count):
                owners[view.addresses[process.host], port] = process.id
    return owners


def _dialled(view: PlanView, process: Process, owners: Owners) -> list[tuple[str, str, int]]:
    """`connects` as the command line says; a dial that nobody answers keeps its bare address."""
    return sorted(
        (dial.name, owners.get((dial.address, dial.port), f"{dial.address}:{dial.port}"), dial.port)
        for dial in view.readings[process.id].dials
    )


def _differing(value: object, other: object) -> object:
    """Of two lists only what the other lacks: a router's has a row per endpoint."""
    if not isinstance(value, list) or not isinstance(other, list):
        return value
    return [row for row in value if row not in other] or "without that"
