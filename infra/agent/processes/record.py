"""What `up` recorded on this host: its processes and their units, as every operation that looks at them reads it."""

import json
from typing import Dict, List, Optional

from ..host import MAX_TEXT_BYTES, Host, Refused

Process = Dict[str, object]


def read_record(host: Host, path: str) -> Optional[Dict[str, object]]:
    """The record; None when there is none.

    Raises:
        Refused: it is damaged.
    """
    try:
        with open(host.path(path), "rb") as stream:
            record = json.loads(stream.read(MAX_TEXT_BYTES).decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise Refused("the record {} cannot be read: {}".format(path, error)) from error
    if not isinstance(record, dict) or not isinstance(record.get("processes"), list):
        raise Refused("the record {} names no processes".format(path))
    return record


def recorded_processes(record: Optional[Dict[str, object]]) -> List[Process]:
    """The processes of a record, in its order; [] without one."""
    rows = record["processes"] if record is not None else []
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def chosen_processes(rows: List[Process], process: object, role: object) -> List[Process]:
    """Those of an id, of a role, or of both; None stands for any."""
    return [
        row for row in rows if process in (None, row.get("id")) and role in (None, row.get("role"))
    ]
