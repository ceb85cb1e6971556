"""The operation `journal`: what units have written, as journald keeps it."""

import json
import re
from typing import Dict, List, Optional

from .host import Host, Refused

READ_S = 20.0
TAIL_S = 5.0
DEFAULT_LINES = 200
GREP_LINES = 100000


def answer(request: Dict[str, object], host: Host) -> Dict[str, object]:
    """The last lines of units, oldest first; with `grep`, the last lines that match it."""
    listed = request.get("units")
    units = [str(unit) for unit in listed] if isinstance(listed, list) else []
    num_lines = int(str(request.get("lines") or DEFAULT_LINES))
    grep = request.get("grep")
    pattern = None
    if grep is not None:
        try:
            pattern = re.compile(str(grep))
        except re.error as error:
            raise Refused("{!r} is not a pattern: {}".format(grep, error)) from error
    argv = ["journalctl", "-o", "json", "--no-pager", "-q"]
    argv += ["-n", str(GREP_LINES if pattern else num_lines)]
    argv += ["--since={}".format(_since(request["since"]))] if request.get("since") else []
    for unit in units:
        argv += ["-u", unit]
    done = host.run(argv, float(str(request.get("timeout_s") or READ_S)))
    if done.exit_code != 0:
        raise Refused("journalctl: {}".format(done.last_words))
    entries = [entry for entry in map(parse_entry, done.stdout.splitlines()) if entry is not None]
    if pattern is not None:
        entries = [entry for entry in entries if pattern.search(str(entry["message"]))]
    return {"schema_version": 1, "journal": entries[-num_lines:]}


def last_lines(host: Host, unit: str, num_lines: int) -> List[str]:
    """The last lines of one unit, without stamps; why there are none, when journald does not say."""
    argv = ["journalctl", "-o", "cat", "--no-pager", "-q", "-n", str(num_lines), "-u", unit]
    done = host.run(argv, TAIL_S)
    if done.exit_code != 0:
        return ["(journalctl: {})".format(done.last_words)]
    return done.stdout.splitlines()[-num_lines:]


def parse_entry(line: str) -> Optional[Dict[str, object]]:
    """Unit, time in seconds and message of one line of `journalctl -o json`; None for anything else.

    A message that is not UTF-8 comes as a list of bytes, one that is too long as null.
    """
    try:
        entry = json.loads(line)
        time_s = int(entry["__REALTIME_TIMESTAMP"]) / 1e6
        message = entry.get("MESSAGE")
        unit = entry.get("_SYSTEMD_UNIT") or entry.get("UNIT") or ""
        if unit == "init.scope":  # systemd's own lines about the unit
            unit = entry.get("UNIT") or unit
        if isinstance(message, list):
            message = bytes(message).decode("utf-8", "replace")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    text = "(too long for journalctl)" if message is None else str(message)
    return {"unit": str(unit), "time": time_s, "message": text}


def _since(value: object) -> str:
    """Seconds since 1970 in journalctl's spelling; a text is passed on."""
    return "@{:.6f}".format(value) if isinstance(value, (int, float)) else str(value)
