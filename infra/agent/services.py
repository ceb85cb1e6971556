"""Services as items: whether a unit is active and whether it is enabled."""

from typing import Dict, List

from .host import Host, Refused
from .item import Item, Parts, Reading, absent_reading

ACTIVE_WORDS = ("active", "inactive")
ENABLED_WORDS = ("enabled", "disabled")
MASKED = "masked"  # or masked-runtime
VERBS = {"active": "start", "inactive": "stop", "enabled": "enable", "disabled": "disable"}
CHANGE_S = 60.0
ENABLEMENT_S = 30.0
NO_FILE = "No such file"


def read_service(host: Host, item: Item) -> Reading:
    """A unit's two states; `want` names one or both of them (`inactive`, `inactive disabled`)."""
    wanted = _wanted_states(item)
    if not host.has_systemd():
        return absent_reading(item, "systemd does not run this host")
    answer = host.run(
        ["systemctl", "show", "-p", "LoadState,ActiveState,UnitFileState", "--", item.target]
    )
    if answer.exit_code != 0:
        raise Refused("systemctl show {}: {}".format(item.target, answer.last_words))
    shown = parse_properties(answer.stdout)
    if shown.get("LoadState") in (None, "not-found"):
        return absent_reading(item, "this host has no unit {}".format(item.target))
    if shown.get("LoadState") == "masked" and "active" in wanted.values():
        return Reading("masked", {}, item.want, {}, locked="{} is masked".format(item.target))
    is_active = shown.get("ActiveState") in ("active", "activating", "reloading")
    parts: Parts = {"active": "active" if is_active else "inactive"}
    state = enablement(host, item.target) if "enabled" in wanted else shown.get("UnitFileState")
    is_masked = str(state).startswith(MASKED)
    if state in ENABLED_WORDS:
        parts["enabled"] = state
    elif is_masked and wanted.get("enabled") != "enabled":
        parts["enabled"] = state  # that is more than disabled
    elif "enabled" in wanted:
        state = state or "no install section"
        why = "{} cannot be enabled or disabled: {}".format(item.target, state)
        return Reading(parts_text(parts), {}, item.want, {}, locked=why)
    looked_at = parts if not wanted else {key: parts[key] for key in wanted}
    text = parts_text(wanted) if wanted else None
    if is_masked and "enabled" in wanted:
        wanted = dict(wanted, enabled=state)
    return Reading(parts_text(looked_at), parts, text, wanted)


def write_service(host: Host, item: Item, _part: str, value: object) -> None:
    """Start, stop, enable or disable the unit."""
    change_service(host, item.target, str(value))


def enablement(host: Host, unit: str) -> str:
    """Whether a unit is enabled, from its links: what PID 1 says is older while a unit is loaded.

    Raises:
        Refused: systemd does not say: that must not look like a unit that somebody else has changed.
    """
    answer = host.run(["systemctl", "is-enabled", "--", unit], ENABLEMENT_S)
    state = answer.stdout.strip()
    if not state and NO_FILE not in answer.stderr:
        raise Refused("systemctl is-enabled {}: {}".format(unit, answer.last_words))
    return state


def enablements(host: Host, units: List[str]) -> Dict[str, str]:
    """Whether each unit is enabled, in one question; "" for one that systemd says nothing about."""
    lines = host.run(["systemctl", "is-enabled", "--", *units]).stdout.splitlines()
    if len(lines) != len(units):  # an error of one of them left its line out
        return {unit: enablement(host, unit) for unit in units}
    return dict(zip(units, map(str.strip, lines)))


def change_service(host: Host, unit: str, state: str) -> None:
    """Bring a unit to active, inactive, enabled or disabled."""
    verb = VERBS[state]
    options = ["--no-reload"] if verb in ("enable", "disable") else []
    done = host.run(["systemctl", verb, *options, "--", unit], CHANGE_S)
    if done.exit_code != 0:
        raise Refused("systemctl {} {}: {}".format(verb, unit, done.last_words))


def parse_properties(text: str) -> Dict[str, str]:
    """The `Key=value` lines of one unit, as `systemctl show` prints them."""
    properties = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            properties[key.strip()] = value.strip()
    return properties


def parts_text(parts: Parts) -> str:
    """The states in one text, as `want` would be written."""
    return " ".join(str(parts[key]) for key in ("active", "enabled") if key in parts)


def _wanted_states(item: Item) -> Parts:
    words: List[str] = [] if item.want is None else item.want.replace(",", " ").split()
    wanted: Parts = {}
    for word in words:
        if word in ACTIVE_WORDS:
            wanted["active"] = word
        elif word in ENABLED_WORDS:
            wanted["enabled"] = word
        else:
            known = ", ".join(ACTIVE_WORDS + ENABLED_WORDS)
            raise Refused("{!r} is not a state of a service; it takes {}".format(word, known))
    return wanted
