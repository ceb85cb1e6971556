"""All changed files of a release at once: laid out beside their places before the first one is renamed.

A full disk, a read-only folder or a missing permission is then met while nothing has been changed yet.
"""

import contextlib
import os
from typing import Dict, List, Optional, Tuple

from ..files import lay_out_file, make_folders, missing_folders, unlaid
from ..host import Host, Refused, mending
from ..item import Parts
from .kept_releases import RELEASES_FOLDER, begin_release
from .report import Row, reason, row_of
from .rollback import Record, save_record
from .steps import Step


def lay_out(
    host: Host, request: Dict[str, object], steps: Dict[int, Step], before: Dict[str, Record]
) -> Dict[int, Row]:
    """Make sure that everything of a request can be written, and note that its release has begun.

    Args:
        host: this host.
        request: with `keep`, the release whose document is kept here.
        steps: what is about to change, by its place in the report.
        before: the rollback records as they were before this request, by scope.

    Returns:
        The rows of the steps, none of which was done, when one path cannot be written; {} when all can be.

    Raises:
        Refused: that path is none of the items.
    """
    problem = _prepare(host, request, _wanted_files(list(steps.values())))
    if problem is None:
        return {}
    for scope, record in before.items():
        with contextlib.suppress(OSError):  # its entries say what was before, too
            save_record(host, scope, record)
    return _not_written(steps, problem)


def _wanted_files(changing: List[Step]) -> Parts:
    """The wanted state of every file of the release that is about to be written, by path."""
    return {
        part: step.reading.wanted_parts[part]
        for step in changing
        if step.item.group == "files" and step.item.kind == "file" and step.reading is not None
        for part in step.reading.differing()
    }


def _prepare(host: Host, request: Dict[str, object], states: Parts) -> Optional[Tuple[str, str]]:
    """The path that cannot be written and why, everything being as before; None when all can be."""
    made: List[str] = []
    laid: List[str] = []
    path = ""
    try:
        for path, state in states.items():
            made += missing_folders(os.path.dirname(host.path(path)))
            make_folders(os.path.dirname(host.path(path)))
            laid.append(path)
            lay_out_file(host, path, state)
        keep = request.get("keep")
        if isinstance(keep, dict):
            path = RELEASES_FOLDER
            begin_release(host, str(request["stack"]), keep)
    except (OSError, Refused) as error:
        for done in laid:
            unlaid(host, done)
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        look = mending(error, host.path(path)) if isinstance(error, OSError) else ""
        return path, "{}{}".format(reason(error), "; {}".format(look) if look else "")
    return None


def _not_written(steps: Dict[int, Step], problem: Tuple[str, str]) -> Dict[int, Row]:
    path, why = problem
    rows = {}
    for place, step in steps.items():
        assert step.reading is not None  # noqa: S101 - only steps with a reading are pending
        values = (step.reading.value, step.reading.wanted, step.reading.value)
        is_culprit = path in step.reading.wanted_parts
        words = why if is_culprit else "not written, because {} cannot be".format(path)
        rows[place] = row_of(step.item, "failed" if is_culprit else "blocked", values, words)
    if not any(row["state"] == "failed" for row in rows.values()):
        raise Refused("{}: {}. Mend that, then run the command again".format(path, why))
    return rows
