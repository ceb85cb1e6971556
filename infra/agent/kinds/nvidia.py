"""NVIDIA items: persistence mode as the driver tells it, and the node list of the IMEX daemon."""

import base64
from typing import Dict, List

from ..files import state_of, text_state
from ..host import Host, Refused
from ..item import Item, Parts, Reading, absent_reading
from ..told import is_untold, write_and_tell

IMEX_FOLDER = "/etc/nvidia-imex"
IMEX_NODES = IMEX_FOLDER + "/nodes_config.cfg"
IMEX_UNIT = "nvidia-imex.service"
MODES = {"Enabled": "1", "Disabled": "0"}
QUERY_S = 30.0  # a driver that takes longer is wedged
RESTART_S = 60.0


def read_persistence(host: Host, item: Item) -> Reading:
    """The mode of every GPU; the daemon's unit may be active with the mode off, so the driver is asked."""
    query = ["nvidia-smi", "--query-gpu=index,persistence_mode", "--format=csv,noheader"]
    answer = host.run(query, QUERY_S)
    if answer.exit_code is None and "No such file" in answer.last_words:
        return absent_reading(item, "nvidia-smi is not on this host")
    if answer.exit_code != 0:
        raise Refused("nvidia-smi: {}".format(answer.last_words))
    modes = parse_modes(answer.stdout)
    if not modes:
        return absent_reading(item, "no GPU of this host has a persistence mode")
    parts: Parts = dict(modes)
    counts = ["{} on GPU {}".format(mode, gpu) for gpu, mode in modes.items()]
    shown = counts[0].partition(" ")[0] if len(set(modes.values())) == 1 else ", ".join(counts)
    wanted: Parts = {} if item.want is None else dict.fromkeys(modes, item.want)
    return Reading(shown, parts, item.want, wanted)


def write_persistence(host: Host, _item: Item, part: str, value: object) -> None:
    """Set one GPU's mode; with the daemon running, nvidia-smi passes it on to the daemon."""
    if str(value) not in MODES:
        raise Refused("{!r} is not a persistence mode".format(value))
    done = host.run(["nvidia-smi", "-i", part, "-pm", MODES[str(value)]], QUERY_S)
    if done.exit_code != 0:
        raise Refused("nvidia-smi -i {} -pm: {}".format(part, done.last_words))


def parse_modes(text: str) -> Dict[str, str]:
    """Mode by GPU index of `index,persistence_mode` as CSV; GPUs without such a mode are left out.

    Raises:
        Refused: a line that is none.
    """
    modes = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        index, comma, mode = (word.strip() for word in line.partition(","))
        if not comma or not index.isdecimal():
            raise Refused("nvidia-smi printed {!r} where index and mode belong".format(line))
        if not mode.startswith("["):  # [N/A], [Not Supported]
            modes[index] = mode
    return modes


def read_imex_nodes(host: Host, item: Item) -> Reading:
    """The daemon's node list against the addresses that the plan gives the group.

    A list that holds more than ours (an image that names the whole rack) is left as it is: every node
    of a domain must have the same one.
    """
    if not host.exists(IMEX_FOLDER):
        return absent_reading(item, "nvidia-imex is not installed ({})".format(IMEX_FOLDER))
    current = state_of(host, IMEX_NODES)
    found = parse_nodes(_text(current))
    shown = ",".join(found) or None
    parts: Parts = {IMEX_NODES: current}
    if item.want is None:
        return Reading(shown, parts, None, {})
    wanted = parse_nodes(item.want.replace(",", "\n"))
    if not wanted:
        raise Refused("the wanted list of IMEX nodes is empty")
    if set(wanted) <= set(found):
        more = len(set(found)) - len(set(wanted))
        note = "it lists {} nodes more".format(more) if more else ""
        reading = Reading(shown, parts, ",".join(wanted), {IMEX_NODES: current}, note=note)
        if is_untold(host, IMEX_NODES):
            todo = "{} was written and {} has not been restarted since; its peers lose their imports then"
            return reading._replace(untold=(IMEX_NODES,), todo=todo.format(IMEX_NODES, IMEX_UNIT))
        return reading
    missing = sorted(set(wanted) - set(found))
    todo = "{} lacks {}; writing it restarts {}, and its peers lose their imports at once".format(
        IMEX_NODES, ", ".join(missing), IMEX_UNIT
    )
    text = "".join(address + "\n" for address in wanted)
    state = text_state(host, text)
    return Reading(shown, parts, ",".join(wanted), {IMEX_NODES: state}, todo=todo)


def write_imex_nodes(host: Host, item: Item, part: str, value: object) -> None:
    """Write the list, then restart the daemon where it runs: it reads the list only at its start."""
    write_and_tell(host, item, part, value, lambda: _restart_imex(host))


def _restart_imex(host: Host) -> None:
    if host.has_systemd():
        done = host.run(["systemctl", "try-restart", "--", IMEX_UNIT], RESTART_S)
        if done.exit_code != 0:
            raise Refused("systemctl try-restart {}: {}".format(IMEX_UNIT, done.last_words))


def parse_nodes(text: str) -> List[str]:
    """The addresses of a node list, one per line, in order.

    Raises:
        Refused: a line that is no address.
    """
    import ipaddress  # noqa: PLC0415 - dear to load, for one kind of host

    nodes = []
    for line in text.splitlines():
        word = line.partition("#")[0].strip()
        if not word:
            continue
        try:
            nodes.append(str(ipaddress.ip_address(word)))
        except ValueError as error:
            raise Refused("the list of IMEX nodes holds {!r}, no address".format(word)) from error
    return nodes


def _text(state: object) -> str:
    if not isinstance(state, dict) or "content" not in state:
        return ""
    return base64.b64decode(str(state["content"])).decode("utf-8", "replace")
