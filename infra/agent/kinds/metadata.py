"""The table that keeps a stack from a cloud's metadata service: there while anything of the stack runs.

While nothing runs there is nothing to keep away, and the unit that loads the table ends at once: then it is only tried
whether this host takes such a rule at all. A host that takes none needs none where no metadata service answers.
"""

from ..host import Host, Refused
from ..item import Item, Reading, absent_reading
from .firewall import NFT_S, NO_NFT, difference, list_table, listed, load_apart, named

GROUPS = "/sys/fs/cgroup"
DIAL_S = 10.0  # all addresses at once, each for two seconds (render/cloud_metadata.py)
SYSTEMD_S = 30.0
LOADED, IDLE = "loaded", "nothing of the stack runs"


def read_table(host: Host, item: Item) -> Reading:
    """The table as it is loaded, against the wanted one as this very nft prints it."""
    is_running = _has_processes(host, str(item.text("control_group")))
    text = str(item.text("rules" if is_running else "trial"))
    apart = load_apart(host, item.target, text)
    wanted = listed(apart)
    if wanted is None:
        has_nft = host.look(["nft", "--version"], NFT_S).exit_code is not None
        return _without(host, item, apart.last_words if has_nft else NO_NFT)
    if not is_running:
        return Reading(IDLE, {}, IDLE, {}, note=IDLE)
    live = listed(list_table(host, item.target))
    shown = LOADED if live == wanted else difference(live, wanted)
    parts = {item.target: "" if live is None else named(live)}
    return Reading(shown, dict(parts), LOADED, {item.target: named(wanted)})


def load_table(host: Host, item: Item, _part: str, _value: object) -> None:
    """Load the table beneath what runs, by the unit that takes it away with the last process.

    Raises:
        Refused: it is not loaded.
    """
    unit = "moe-{}-metadata.service".format(item.text("stack"))
    done = host.run(["systemctl", "reload-or-restart", unit], SYSTEMD_S)
    if done.exit_code != 0:
        raise Refused("systemctl reload-or-restart {}: {}".format(unit, done.last_words))


def _has_processes(host: Host, group: str) -> bool:
    """Whether anything runs in a control group or below it; the group of a slice outlives its processes."""
    try:
        events = host.read_bytes("{}{}/cgroup.events".format(GROUPS, group))
    except OSError:
        return False
    return b"populated 1" in events.splitlines()


def _without(host: Host, item: Item, why: str) -> Reading:
    """A host that takes no such table."""
    said = host.run(["/bin/sh", "-c", str(item.text("dialling"))], DIAL_S)
    if said.exit_code == 0 and not said.stdout.strip():
        return absent_reading(
            item, "no cloud's metadata service answers here, and nft would close none: " + why
        )
    there = ", ".join(said.stdout.split()) or "an address that could not be asked"
    what = "{} gives the host's credentials away, and nft cannot close it to engines: {}. That needs {}"
    locked = what.format(there, why.rstrip("."), item.text("needs_of_host"))
    return Reading(None, {}, LOADED, {}, locked=locked)
