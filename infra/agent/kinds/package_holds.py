"""Packages that must not be upgraded under a running driver, held as apt-mark(8) does."""

from typing import Dict

from ..host import Host, Refused
from ..item import Item, Parts, Reading, absent_reading

HELD, NOT_HELD = "held", "not held"
SHOWN = "${db:Status-Abbrev} ${Package}\\n"
ASK_S = 30.0
CHANGE_S = 60.0
NOT_FOUND = "No such file"


def read_holds(host: Host, item: Item) -> Reading:
    """Every installed package that one of the patterns matches, and whether it is held."""
    query = ["dpkg-query", "--show", "--showformat", SHOWN, "--", *item.target.split()]
    answer = host.run(query, ASK_S)
    if answer.exit_code is None and NOT_FOUND in answer.last_words:
        why = "dpkg does not keep this host's packages; elsewhere `dnf versionlock add` holds them, by hand"
        return absent_reading(item, why)
    # it leaves with 1 as soon as one of the patterns matches nothing
    if answer.exit_code not in (0, 1):
        raise Refused("dpkg-query: {}".format(answer.last_words))
    parts: Parts = dict(parse_holds(answer.stdout))
    if not parts:
        return absent_reading(item, "no such package is installed")
    values = list(parts.values())
    shown = "{} of {} held".format(values.count(HELD), len(values))
    if item.want is None:
        return Reading(shown, parts, None, {})
    wanted: Parts = dict.fromkeys(parts, HELD)
    return Reading(shown, parts, "{} of {} held".format(len(values), len(values)), wanted)


def write_hold(host: Host, _item: Item, part: str, value: object) -> None:
    """Hold one package, or let it go."""
    verb = "hold" if value == HELD else "unhold"
    done = host.run(["apt-mark", verb, "--", part], CHANGE_S)
    if done.exit_code != 0:
        raise Refused("apt-mark {} {}: {}".format(verb, part, done.last_words))


def parse_holds(text: str) -> Dict[str, str]:
    """Held or not, by installed package, of dpkg's abbreviated states (`ii`, `hi`: wanted, then what is)."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == len(("state", "package")) and words[0][1:2] == "i":
            found[words[1]] = HELD if words[0][0] == "h" else NOT_HELD
    return found
