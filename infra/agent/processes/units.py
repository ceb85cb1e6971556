"""The operation `units`: start, stop and look at units, with one systemctl call for all of them."""

import time
from typing import Dict, List, Optional

from ..group.operation import await_groups, look
from ..host import Finished, Host, Refused
from ..journal.starts import Start, read_starts
from ..services import parse_properties
from .masking import Mask

ACTIONS: Dict[str, List[str]] = {
    "start": ["start", "--no-block"],
    "stop": ["stop"],
    "restart": ["restart", "--no-block"],
    # one that runs reads anew what it was given; waits, for whoever asks wants to know that it could
    "renew": ["reload-or-restart"],
    # waits for the end of what does one thing and ends
    "run": ["start"],
    "enable": ["enable"],
    "disable": ["disable"],
    "status": [],
}
PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "ExecMainStatus",
    "MainPID",
    "ExecMainPID",
    "NRestarts",
    "StateChangeTimestampMonotonic",
    "InvocationID",
    "Job",
)
LOADED = "loaded"
DEFAULT_S = 60.0
SHOW_S = 15.0
TAIL_S = 5.0
FAILED_LOG_LINES = 20


def answer(request: Dict[str, object], host: Host) -> Dict[str, object]:
    """Act on units, and on others `beside` them, then report every one of the former."""
    action = str(request.get("action", "status"))
    if action not in ACTIONS:
        raise Refused("{!r} is not an action; it takes {}".format(action, ", ".join(ACTIONS)))
    listed = request.get("units")
    units = [str(unit) for unit in listed] if isinstance(listed, list) else []
    if not units:
        return {"schema_version": 1, "units": [], "message": None}
    if not host.has_systemd():
        raise Refused("systemd does not run this host, so no unit can be used")
    timeout_s = float(str(request.get("timeout_s") or DEFAULT_S))
    message = None
    if action in ("start", "restart", "run", "renew"):
        host.run(["systemctl", "reset-failed", "--", *units], SHOW_S)  # fails for those not loaded
    if ACTIONS[action]:
        beside = request.get("beside")
        others = [str(unit) for unit in beside] if isinstance(beside, list) else []
        done = host.run(["systemctl", *ACTIONS[action], "--", *units, *others], timeout_s)
        message = None if done.exit_code == 0 else _words(done)
    if action == "stop":
        # a unit that had failed is stopped already; systemd would list it for ever
        host.run(["systemctl", "reset-failed", "--", *units], SHOW_S)
    stack = str(request.get("stack") or "")
    if stack:
        await_groups(host, stack, request)
    log_lines = int(str(request.get("log_lines") or 0))
    shown = show_units(host, units)
    rows = [_row(host, unit, shown.get(unit, {}), log_lines) for unit in units]
    report: Dict[str, object] = {"schema_version": 1, "units": rows, "message": message}
    if stack:
        report.update(look(host, stack))
    return report


def show_units(host: Host, units: List[str]) -> Dict[str, Dict[str, str]]:
    """The properties of units by the name that was asked for; one call."""
    answered = host.run(["systemctl", "show", "-p", ",".join(PROPERTIES), "--", *units], SHOW_S)
    if answered.exit_code != 0:
        raise Refused("systemctl show: {}".format(_words(answered)))
    blocks = [block for block in answered.stdout.split("\n\n") if block.strip()]
    if len(blocks) != len(units):
        message = "systemctl show answered for {} of {} units"
        raise Refused(message.format(len(blocks), len(units)))
    return {unit: parse_properties(block) for unit, block in zip(units, blocks)}


def _row(host: Host, unit: str, shown: Dict[str, str], log_lines: int) -> Dict[str, object]:
    failed = shown.get("ActiveState") == "failed" or shown.get("SubState") == "auto-restart"
    num_lines = log_lines or (FAILED_LOG_LINES if failed else 0)
    return {
        "unit": unit,
        "load_state": shown.get("LoadState", "unknown"),
        "active_state": shown.get("ActiveState", "unknown"),
        "sub_state": shown.get("SubState", "unknown"),
        "result": shown.get("Result", ""),
        "exec_main_status": _number(shown.get("ExecMainStatus")),
        "main_pid": _number(shown.get("MainPID")),
        "n_restarts": _number(shown.get("NRestarts")),
        "job": _number(shown.get("Job")),
        "since": since(shown.get("StateChangeTimestampMonotonic"), time.monotonic(), time.time()),
        "log_tail": _tail(host, unit, shown, num_lines) if num_lines else [],
    }


def _tail(host: Host, unit: str, shown: Dict[str, str], num_lines: int) -> List[str]:
    """The last lines of the unit's latest start: what an earlier one said is no word about this one.

    Where systemd has made that start by itself, those of the ones before it stand in front: it keeps nothing else of
    how the unit had ended. One that is masked or gone, and of which systemd knows no start, has none. Why there are
    none, when journald does not say.
    """
    start = Start(shown.get("InvocationID", ""), _number(shown.get("ExecMainPID")))
    if not start.invocation and shown.get("LoadState") != LOADED:
        return []
    # what it says of an end goes with the next start (systemd 252, seen on its units)
    if _number(shown.get("NRestarts")) and shown.get("Result") == "success":
        start = Start("")
    try:
        said = read_starts(host, {unit: start}, num_lines, TAIL_S)
    except Refused as error:
        return ["({})".format(error)]
    lines = [line for each in said for line in each.text.splitlines()][-num_lines:]
    masked = Mask(()).text("\n".join(lines).encode("utf-8", "replace"))
    return masked.decode("utf-8", "replace").split("\n") if lines else []


def since(stamp_us: Optional[str], monotonic_s: float, now_s: float) -> Optional[str]:
    """ISO time (UTC, milliseconds) of a monotonic stamp in microseconds; None for never.

    systemd prints wall-clock stamps in the host's locale and zone; the monotonic one is a number.
    """
    stamp = _number(stamp_us)
    if stamp == 0:
        return None
    at = now_s - (monotonic_s - stamp / 1e6)
    milliseconds = int(at * 1000) % 1000
    return "{}.{:03d}Z".format(time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)), milliseconds)


def _number(text: Optional[str]) -> int:
    return int(text) if text and text.isdecimal() else 0


def _words(done: Finished) -> str:
    text = done.stderr.strip() or done.stdout.strip()
    return text[-2000:] if text else done.last_words
