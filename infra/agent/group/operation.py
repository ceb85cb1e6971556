"""The operation `groups`: hand groups to this host's watcher, take them back, ask for a restart, look."""

import time
from typing import Callable, Dict, List

from ..host import Host, Refused
from ..services import parse_properties
from .channel import hold_key, key_mark
from .record import (
    ROUTER,
    UNWRITTEN,
    Record,
    Wish,
    ask_restart,
    forget,
    hand_over,
    is_handed_over,
    known_groups,
    leave_out,
    left_out,
    load_record,
    read_view,
    told_of,
)
from .rules import ADOPT, FAILED, RUN

ACTIONS = ("arm", "disarm", "forget", "hold", "leave-out", "restart", "status")
# Of what takes groups from the watcher: what becomes of what it remembers.
TAKES_BACK: Dict[str, Callable[[Host, str], object]] = {
    "hold": lambda _host, _stack: None,
    "disarm": hand_over,
    "forget": forget,
}
SYSTEMCTL_S = 60.0
# How often the record of a group that is waited for is read.
AWAIT_AGAIN_S = 0.02


def answer(request: Dict[str, object], host: Host) -> Dict[str, object]:
    """Act on the watcher of a stack, then report the groups that it looks after."""
    action, stack = str(request.get("action", "status")), str(request.get("stack") or "")
    if action not in ACTIONS:
        raise Refused("{!r} is not an action; it takes {}".format(action, ", ".join(ACTIONS)))
    if not stack or "/" in stack or stack.startswith("."):
        raise Refused("{!r} is not the name of a stack".format(stack))
    unit = _unit(stack)
    if action == "arm":
        if not (
            is_handed_over(host, stack) and key_mark(host, stack)
        ):  # else its watcher speaks with it
            hold_key(host, stack, request.get("key"))
        _systemctl(host, ["enable", "--now", "--no-reload", "--", unit])
    elif action in TAKES_BACK:
        if _is_loaded(host, unit):
            now = [] if action == "hold" else ["--now"]
            _systemctl(host, ["disable", *now, "--no-reload", "--", unit])
        TAKES_BACK[action](host, stack)
    elif action == "leave-out":
        router = str(request.get("router") or "")
        leave_out(host, stack, _names(request), "{} {}".format(router, _start(host, router)))
    elif action == "restart":
        who, listed = str(request.get("operator") or "an operator"), request.get("epochs")
        seen = listed if isinstance(listed, dict) else {}
        for group in _names(request):
            ask_restart(host, stack, group, Wish(who, seen.get(group)))
    await_groups(host, stack, request)
    return dict(look(host, stack), schema_version=1)


def await_groups(host: Host, stack: str, request: Dict[str, object]) -> None:
    """Wait until the groups that a request `awaits` have met, or have failed; whoever asks then learns of it at once.

    Their rank 0 is here.
    """
    awaits = request.get("awaits")
    names = [str(name) for name in awaits] if isinstance(awaits, list) else []
    deadline = time.monotonic() + float(str(request.get("await_s") or 0.0))
    while time.monotonic() < deadline:
        phases = [load_record(host, stack, name, 0.0).memory.phase for name in names]
        if all(phase in (RUN, FAILED) for phase in phases):
            return
        time.sleep(AWAIT_AGAIN_S)


def look(host: Host, stack: str) -> Dict[str, object]:
    """Whether a stack is watched on this host, and every group of it that the host remembers, its router."""
    rows: List[Dict[str, object]] = []
    for group in known_groups(host, stack):
        record: Record = load_record(host, stack, group, 0.0)
        view = read_view(host, stack, group)
        unwritten = view.pop(UNWRITTEN, None)
        row: Dict[str, object] = {
            "group": group,
            "adopting": record.own.adopting and record.memory.phase == ADOPT,
            "leads": False,
        }
        row.update(view)
        row.update(unwritten if isinstance(unwritten, dict) else told_of(record.memory))
        rows.append(row)
    return {
        "watch": _watch(host, stack),
        "groups": rows,
        "left_out": _left_out(host, stack),
        "router": read_view(host, stack, ROUTER),
    }


def _left_out(host: Host, stack: str) -> List[str]:
    """What the router leaves out; one that was started since it was told has all its members."""
    for told, groups in left_out(host, stack).items():
        router, _, start = told.partition(" ")
        if _start(host, router) == start:
            return groups
    return []


def _start(host: Host, unit: str) -> str:
    """Systemd's id of a unit's latest start."""
    return host.run(
        ["systemctl", "show", "-p", "InvocationID", "--value", "--", unit]
    ).stdout.strip()


def _names(request: Dict[str, object]) -> List[str]:
    listed = request.get("groups")
    return [str(name) for name in listed] if isinstance(listed, list) else []


def _unit(stack: str) -> str:
    return "moe-{}-watch.service".format(stack)


def _is_loaded(host: Host, unit: str) -> bool:
    """Whether systemd knows the unit.

    Raises:
        Refused: it does not say: then the watcher may act on what it remembers.
    """
    if not host.has_systemd() or not host.exists("/etc/systemd/system/" + unit):
        return False
    answer = host.run(["systemctl", "show", "-p", "LoadState", "--value", "--", unit], SYSTEMCTL_S)
    if answer.exit_code != 0:
        raise Refused("systemctl show {}: {}".format(unit, answer.last_words))
    return answer.stdout.strip() == "loaded"


def _watch(host: Host, stack: str) -> Dict[str, object]:
    """The watcher's unit; whether it is enabled tells its link, of which PID 1 may know what was before."""
    unit = _unit(stack)
    if not host.has_systemd() or not host.exists("/etc/systemd/system/" + unit):
        return {"loaded": False, "active": False, "enabled": False}
    answer = host.run(["systemctl", "show", "-p", "LoadState,ActiveState", "--", unit])
    shown = parse_properties(answer.stdout)
    return {
        "loaded": shown.get("LoadState") == "loaded",
        "active": shown.get("ActiveState") in ("active", "activating", "reloading"),
        "enabled": is_handed_over(host, stack),
        "key": key_mark(host, stack),
    }


def _systemctl(host: Host, words: List[str]) -> None:
    done = host.run(["systemctl", *words], SYSTEMCTL_S)
    if done.exit_code != 0:
        raise Refused("systemctl {}: {}".format(" ".join(words), done.last_words))
