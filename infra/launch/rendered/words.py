"""An agent's report as the result of one task of a configuration tool: changed, failed, warned, told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
STATES = ("ok", "changed", "not_applicable", "blocked", "failed")
AS_DECLARED = ("ok", "not_applicable")


def state_result(rows: Sequence[Row], *, checks: bool) -> dict[str, object]:
    """What became of items.

    Args:
        rows: the report's items.
        checks: whether nothing was changed: `changed` then means that it would be.
    """
    shown = [row for row in rows if row["state"] not in AS_DECLARED]
    bad = [row for row in shown if _is_failure(row)]
    words = {state: state.replace("_", " ") for state in STATES}
    words["changed"] = "would change" if checks else "changed"
    sums = [f"{sum(row['state'] == state for row in rows)} {words[state]}" for state in STATES]
    result: dict[str, object] = {
        "changed": any(row["state"] == "changed" for row in shown),
        "summary": [*(_line(row, words, checks=checks) for row in shown), ", ".join(sums)],
        "diff": [{"prepared": f"{row['diff']}\n"} for row in shown if row.get("diff")],
        "warnings": [
            _line(row, words, checks=checks) for row in shown if row["state"] == "blocked"
        ],
    }
    if bad:
        reasons = "; ".join(f"{row['id']}: {row['why']}" for row in bad)
        result.update(failed=True, changed=False, msg=reasons)
    return result


def _is_failure(row: Row) -> bool:
    """What `fab` leaves with 4 for: a refused kernel knob is a warning, a refused file is not."""
    is_refused_file = row["state"] == "blocked" and row["group"] != "tuning"
    return bool(row["state"] == "failed" or is_refused_file)


def _line(row: Row, words: Mapping[str, str], *, checks: bool) -> str:
    after = row["wanted"] if checks else row["after"]
    why = "" if row["state"] == "changed" else f" ({row['why']})"
    return f"{row['id']} {words[row['state']]}: {row['before']} → {after}{why}"
