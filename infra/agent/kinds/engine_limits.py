"""Limits: those of the engines' units, which count, and those of logins, which reach no service."""

from typing import Dict, List

from ..files import read_file
from ..host import Host, Refused
from ..item import Item, Parts, Reading, absent_reading
from ..services import parse_properties

ENGINE_UNITS = "moe-*-engine@*.service"
NO_LIMIT = ("infinity", str(2**64 - 1))
OPEN_FILES = "/proc/sys/fs/nr_open"
ASK_S = 15.0


def read_login_limits(host: Host, item: Item) -> Reading:
    """The owned file of limits.d; more open files than the kernel grants would refuse every login."""
    reading = read_file(host, item)
    wanted = most_files(str(item.text("content")))
    granted = host.read_word(OPEN_FILES) if host.exists(OPEN_FILES) else ""
    if granted.isdecimal() and int(granted) < wanted:
        why = "fs.nr_open is {}, so pam_limits would refuse every login with nofile {}"
        return reading._replace(locked=why.format(granted, wanted))
    return reading


def most_files(text: str) -> int:
    """The largest `nofile` of a limits.d file, 0 for none."""
    rows = [line.partition("#")[0].split() for line in text.splitlines()]
    numbers = [row[-1] for row in rows if len(row) > 1 and row[-2] == "nofile"]
    return max([int(number) for number in numbers if number.isdecimal()], default=0)


def read_unit_limits(host: Host, item: Item) -> Reading:
    """Every engine unit that is loaded against the wanted limits, each of which may be exceeded."""
    if not host.has_systemd():
        return absent_reading(item, "systemd does not run this host")
    wanted = parse_properties("\n".join((item.want or "").split()))
    names = ",".join(["Id", *(wanted or ["LimitMEMLOCK", "LimitNOFILE", "LimitSTACK"])])
    answer = host.run(["systemctl", "show", "-p", names, "--", ENGINE_UNITS], ASK_S)
    if answer.exit_code != 0:
        raise Refused("systemctl show {}: {}".format(ENGINE_UNITS, answer.last_words))
    units = [parse_properties(block) for block in answer.stdout.split("\n\n") if block.strip()]
    if not units:
        return absent_reading(item, "no engine is loaded here; its unit brings its own limits")
    low = too_low(units, wanted)
    shown = "; ".join(low) if low else "{} engine units hold them".format(len(units))
    parts: Parts = {"units": shown}
    if low:
        why = "{}: `fab down`, then `fab up` writes the units again".format("; ".join(low))
        return Reading(shown, parts, item.want, {}, locked=why)
    return Reading(shown, parts, item.want, {})


def too_low(units: List[Dict[str, str]], wanted: Dict[str, str]) -> List[str]:
    """What each unit has too little of, in words."""
    return [
        "{} has {}={}".format(unit.get("Id"), name, unit.get(name) or "nothing")
        for unit in units
        for name, value in wanted.items()
        if _amount(unit.get(name, "")) < _amount(value)
    ]


def _amount(text: str) -> float:
    if text in NO_LIMIT:
        return float("inf")
    return float(text) if text.isdecimal() else -1.0
