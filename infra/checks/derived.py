"""Rules for plans that were edited or imported: derived fields agree with the command lines."""

from __future__ import annotations

from collections.abc import Iterator

from infra.checks.view import Finding, PlanView


def derived_fields_agree(view: PlanView) -> Iterator[Finding]:
    """`argv` and `env` are the truth; ranks, devices, binds and endpoint of the document follow from them."""
    for process in view.plan.processes:
        reading = view.readings[process.id]
        address = view.addresses[process.host]
        endpoint = None if reading.http_port is None else f"http://{address}:{reading.http_port}"
        binds = {(bind.name, bind.port, bind.count) for bind in reading.binds}
        told = {(bind.name, bind.port, bind.count) for bind in process.binds}
        pairs: list[tuple[str, object, object]] = [
            ("dp_ranks", process.dp_ranks, reading.dp_ranks),
            ("devices", process.devices, reading.devices),
            ("endpoint", process.endpoint, endpoint),
            ("binds", sorted(told), sorted(binds)),
            (
                "connects",
                sorted(c.port for c in process.connects),
                sorted(d.port for d in reading.dials),
            ),
        ]
        for name, written, read in pairs:
            if written != read:
                what = f"{process.id}: {name} is {written}, and its command line says {read}."
                yield Finding(
                    field=name,
                    what=what,
                    fix=f"Correct {name} or the command line.",
                    process=process.id,
                )
