"""How each item of tuning ended when it was last brought about: what a later difference means follows from that.

What the host had and has lost is drift. What it never had (it waits for a drain or a reboot, or this host refuses it)
is no news to whoever tuned it.
"""

import contextlib
from typing import Collection, List

from ..host import Host
from .report import Row
from .rollback import HOST_SCOPE, Outcomes, Record, load_record, save_record

HELD = ("ok", "changed")
WAITING = ("drain", "reboot")
KEPT_FILE = "file:"


def note_outcomes(host: Host, rows: List[Row], conflicts: Collection[str]) -> None:
    """Keep in the host's record how the tuning of an apply has ended.

    Args:
        host: this host.
        rows: of the items of one owner.
        conflicts: ids that another owner wants otherwise: what is kept of them is the other's.
    """
    record = load_record(host, HOST_SCOPE)
    outcomes = _noted(record, [row for row in rows if row["id"] not in conflicts])
    if outcomes != record.outcomes:
        # without room for the note, a later look tells less; what was done is recorded already
        with contextlib.suppress(OSError):
            save_record(host, HOST_SCOPE, record._replace(outcomes=outcomes))


def tell_outcomes(record: Record, rows: List[Row]) -> None:
    """Tell in each row that differs how its item ended last (`last`), and what was wanted then."""
    for row in rows:
        known = record.outcomes.get(str(row["id"]))
        if row["state"] in ("changed", "blocked") and known is not None:
            row["last"] = known


def _noted(record: Record, rows: List[Row]) -> Outcomes:
    """The outcomes with these rows."""
    noted = dict(record.outcomes)
    for row in rows:
        name, wanted = str(row["id"]), row["wanted"]
        if row["group"] != "tuning" or wanted is None or row["state"] not in (*HELD, "blocked"):
            continue
        before = noted.get(name)
        waits = row["state"] == "blocked" and row["needs"] in WAITING
        if waits and before is not None and before["wanted"] == wanted:
            continue  # it had it, or never had: waiting changes neither
        if row["state"] == "blocked":
            noted[name] = {key: row[key] for key in ("state", "wanted", "after", "why")}
        else:  # whether it was so before is no difference: a second apply keeps the same
            noted[name] = {"state": "ok", "wanted": wanted}
    return of_declared(record._replace(outcomes=noted))


def of_declared(record: Record) -> Outcomes:
    """The outcomes without those of items that nobody declares any more: what was taken back was not lost."""
    declared = {str(one.get("id")) for items in record.declared.values() for one in items}
    return {
        name: outcome
        for name, outcome in record.outcomes.items()
        if name in declared or (declared and name.startswith(KEPT_FILE))
    }
