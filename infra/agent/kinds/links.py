"""Network links as items: the MTU of interfaces, named themselves or by their RDMA device."""

import os
from typing import List

from ..host import Host, Refused
from ..item import Item, Parts, Reading, absent_reading

INTERFACES = "/sys/class/net"
RDMA_DEVICES = "/sys/class/infiniband"
ROUTES = "/proc/net/route"
DEFAULT_ROUTE = "default-route"
CHANGE_S = 10.0


def read_mtu(host: Host, item: Item) -> Reading:
    """The MTU of every interface of `target`; one that carries more than is wanted is left so."""
    names = _interfaces(host, item.target.replace(",", " ").split())
    if not names:
        return absent_reading(item, "no interface of this host is meant by {}".format(item.target))
    parts: Parts = {name: host.read_word("{}/{}/mtu".format(INTERFACES, name)) for name in names}
    shown = ", ".join("{} {}".format(name, parts[name]) for name in names)
    if item.want is None:
        return Reading(shown, parts, None, {})
    least = int(item.want)
    wanted: Parts = {
        name: parts[name] if int(str(parts[name])) >= least else str(least) for name in names
    }
    reading = Reading(shown, parts, "at least {}".format(least), wanted)
    small = ", ".join(reading.differing())
    todo = "{} carries less; every peer and switch between must carry it too (ping -M do -s {})"
    return reading._replace(todo=todo.format(small, least - 28)) if small else reading


def write_mtu(host: Host, _item: Item, part: str, value: object) -> None:
    """Set one interface's MTU."""
    done = host.run(["ip", "link", "set", "dev", part, "mtu", str(value)], CHANGE_S)
    if done.exit_code != 0:
        raise Refused("ip link set dev {} mtu {}: {}".format(part, value, done.last_words))


def default_interfaces(table: str) -> List[str]:
    """The interfaces that carry a default route, from /proc/net/route."""
    rows = [line.split() for line in table.splitlines()[1:]]
    found = [row[0] for row in rows if len(row) > 1 and row[1] == "00000000"]
    return list(dict.fromkeys(found))


def _interfaces(host: Host, words: List[str]) -> List[str]:
    names: List[str] = []
    for word in words:
        below = "{}/{}/device/net".format(RDMA_DEVICES, word.partition(":")[0])
        if word == DEFAULT_ROUTE:
            names += default_interfaces(host.read_bytes(ROUTES).decode("utf-8", "replace"))
        elif host.exists("{}/{}".format(INTERFACES, word)):
            names.append(word)
        elif host.exists(below):
            names += [n for n in sorted(os.listdir(host.path(below))) if not _is_ipoib(host, n)]
        elif host.exists("{}/{}".format(RDMA_DEVICES, word.partition(":")[0])):
            continue  # EFA, for one, has no interface of its own
        else:
            raise Refused("this host has no interface and no RDMA device {}".format(word))
    return list(dict.fromkeys(names))


def _is_ipoib(host: Host, name: str) -> bool:
    """Whether an interface is InfiniBand's: its packets have sizes of their own (ARPHRD_INFINIBAND)."""
    path = "{}/{}/type".format(INTERFACES, name)
    return host.exists(path) and host.read_word(path) == "32"
