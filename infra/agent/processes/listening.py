"""The operation `listening`: which ports are taken, by whom, from /proc alone."""

import contextlib
import os
import re
import socket
from typing import Dict, List, NamedTuple, Set, Tuple

from ..facts.command_lines import command_lines
from ..host import Host

TABLES = (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6))
LISTEN_STATE = "0A"
STATE_COLUMN, INODE_COLUMN = 3, 9
SOCKET_LINK = re.compile(r"^socket:\[(\d+)\]$")
WORD_BYTES = 4
MAX_COMMAND = 300


class Listener(NamedTuple):
    """A listening TCP socket."""

    port: int
    address: str
    inode: str


def answer(request: Dict[str, object], host: Host) -> Dict[str, object]:
    """Every listener on the asked ports, with its process where that can be seen."""
    listed = request.get("ports")
    ports = {int(str(port)) for port in listed} if isinstance(listed, list) else set()
    listeners: List[Listener] = []
    for path, family in TABLES:
        if host.exists(path):
            text = host.read_bytes(path).decode("ascii", "replace")
            listeners += [one for one in parse_table(text, family) if one.port in ports]
    owners = _owners(host, {one.inode for one in listeners}) if listeners else {}
    rows = []
    for one in sorted(listeners):
        pid, command = owners.get(one.inode, (None, None))
        rows.append(dict(one._asdict(), pid=pid, command=command))
    return {"schema_version": 1, "listening": rows}


def parse_table(text: str, family: int) -> List[Listener]:
    """The listening sockets of a /proc/net/tcp table; lines that are not sockets are skipped."""
    listeners = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) <= INODE_COLUMN or fields[STATE_COLUMN] != LISTEN_STATE:
            continue
        address, _, port = fields[1].partition(":")
        try:
            shown = socket.inet_ntop(family, _bytes_of(address))
            listeners.append(Listener(int(port, 16), shown, fields[INODE_COLUMN]))
        except (ValueError, OSError):
            continue
    return listeners


def _bytes_of(address: str) -> bytes:
    """An address of the table: 32-bit words in the machine's (little-endian) order."""
    raw = bytes.fromhex(address)
    words = [raw[place : place + WORD_BYTES][::-1] for place in range(0, len(raw), WORD_BYTES)]
    return b"".join(words)


def _owners(host: Host, inodes: Set[str]) -> Dict[str, Tuple[int, str]]:
    """Process and command line by socket inode; a process that ends meanwhile is skipped."""
    owners: Dict[str, int] = {}
    for name in filter(str.isdecimal, os.listdir(host.path("/proc"))):
        for inode in _sockets(host.path("/proc/{}/fd".format(name))) & inodes:
            owners.setdefault(inode, int(name))
    commands = command_lines(host, sorted(set(owners.values())))
    return {inode: (pid, commands[pid][:MAX_COMMAND]) for inode, pid in owners.items()}


def _sockets(folder: str) -> Set[str]:
    """The inodes of a process's sockets; descriptors come and go while it is looked at."""
    inodes: Set[str] = set()
    try:
        entries = os.listdir(folder)
    except OSError:
        return inodes
    for entry in entries:
        with contextlib.suppress(OSError):
            match = SOCKET_LINK.match(os.readlink(os.path.join(folder, entry)))
            if match:
                inodes.add(match.group(1))
    return inodes
