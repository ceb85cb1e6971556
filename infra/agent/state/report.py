"""Rows of the report, and errors in the kernel's own words."""

import errno
from typing import Dict, Optional, Tuple

from ..item import Item

Row = Dict[str, object]
Values = Tuple[Optional[str], Optional[str], Optional[str]]


def row_of(item: Item, state: str, values: Values, why: str) -> Row:
    """One row of the report.

    Args:
        item: the item.
        state: ok, changed, not_applicable, blocked or failed.
        values: before, wanted and after, as the operator reads them.
        why: one sentence.
    """
    before, wanted, after = values
    return {
        "id": item.id,
        "group": item.group,
        "kind": item.kind,
        "state": state,
        "before": before,
        "wanted": wanted,
        "after": after,
        "why": why,
        "needs": item.needs,
        "diff": None,
    }


def reason(error: Exception) -> str:
    """An error in the kernel's own words, with its name and the path."""
    if isinstance(error, OSError) and error.errno is not None:
        name = errno.errorcode.get(error.errno, str(error.errno))
        where = " {}".format(error.filename) if error.filename else ""
        return "{} ({}){}".format(error.strerror, name, where)
    return str(error)
