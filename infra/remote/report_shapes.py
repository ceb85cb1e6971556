"""What the lists of an agent's report hold: a host that answers otherwise has failed, and not this side.

The rows are those of `infra/agent/__init__.py`; keys that only some answers have are read by those who want them.
"""

from __future__ import annotations

from collections.abc import Mapping

from infra.remote.failures import NoReport

Shape = Mapping[str, type]

MAX_ROWS = 100_000
ROWS: Mapping[str, Shape] = {
    "items": {"id": str, "group": str, "state": str, "why": str},
    "units": {"unit": str},
    "processes": {"id": str},
    "probes": {"id": str, "steps": list},
    "groups": {"group": str, "epoch": int, "phase": str, "restarts": int, "why": str},
    "listening": {"port": int},
    "listen": {"port": int},
    "dials": {"port": int},
    "holders": {},
    "stuck": {},
    "checkpoints": {"state": str},
    "also": {},
}


def refuse_misshapen(host: str, report: Mapping[str, object]) -> None:
    """Refuse a report whose lists are none, or whose rows lack what is asked of each of them.

    Args:
        host: its name.
        report: what it answered.

    Raises:
        NoReport: the report is no answer of an agent.
    """
    for key, shape in ROWS.items():
        if key not in report:
            continue
        rows = report[key]
        if not isinstance(rows, list) or len(rows) > MAX_ROWS:
            raise _misshapen(host, f"{key} is no list of at most {MAX_ROWS}")
        for row in rows:
            if not isinstance(row, Mapping):
                raise _misshapen(host, f"a row of {key} is no map")
            for name, kind in shape.items():
                if type(row.get(name)) is not kind:
                    raise _misshapen(host, f"{name} of a row of {key} is no {kind.__name__}")
            if key == "also":
                refuse_misshapen(host, row)


def _misshapen(host: str, why: str) -> NoReport:
    what = f"its agent's answer is none that an agent gives: {why}."
    return NoReport(
        host, what, "Look at what answers there for the agent (python3, sudo, the login)."
    )
