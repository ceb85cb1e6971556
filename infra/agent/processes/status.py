"""The operation `status`: what is recorded here, how its units are, and whether its endpoints answer; in one go."""

import json
from typing import Dict, List, Optional

from ..host import Host
from . import probe, units
from .record import Process, read_record, recorded_processes

PROBE_S = 3.0
RUNNING = ("active", "activating", "reloading")


def answer(request: Dict[str, object], host: Host) -> Dict[str, object]:
    """The record, the report of `units` on everything in it, and each endpoint's HTTP status."""
    record = read_record(host, str(request.get("record")))
    rows = recorded_processes(record)
    asked = dict(request, action="status", units=[str(row["unit"]) for row in rows])
    report = units.answer(asked, host)
    shown = report["units"] if isinstance(report["units"], list) else []
    running = {row["unit"] for row in shown if row["active_state"] in RUNNING}
    alive = [row for row in rows if row["unit"] in running and row.get("endpoint")]
    report["record"] = None if record is None else json.dumps(record)
    report["answers"] = _answers(request, alive, host)
    return report


def _answers(
    request: Dict[str, object], rows: List[Process], host: Host
) -> Dict[str, Optional[object]]:
    """The status of each endpoint's answer by process; None where nothing answers."""
    paths = request.get("paths")
    by_kind = paths if isinstance(paths, dict) else {}
    probes = [
        {
            "id": row["id"],
            "steps": [
                {
                    "method": "GET",
                    "url": "{}{}".format(row["endpoint"], by_kind.get(row["kind"], "/")),
                    "timeout_s": PROBE_S,
                }
            ],
        }
        for row in rows
    ]
    report = probe.answer({"probes": probes, "parallel": len(probes)}, host)
    answered = report["probes"] if isinstance(report["probes"], list) else []
    return {str(row["id"]): row["steps"][-1]["status"] for row in answered if row["steps"]}
