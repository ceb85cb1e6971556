"""What Linux says of a started engine: its processes, and the ports that they listen on."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path


def children_of(pid: int) -> dict[int, str]:
    """Descendants of a process: id → what it calls itself."""
    parents, names = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            text = (folder / "stat").read_text()
            number = int(folder.name)
            parents[number] = int(text.rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            names[number] = words.strip() or text.partition("(")[2].rpartition(")")[0]
    tree, grown = {pid}, True
    while grown:
        more = {number for number, parent in parents.items() if parent in tree} - tree
        tree |= more
        grown = bool(more)
    return {number: names[number] for number in sorted(tree - {pid})}


def listening_ports(pid: int) -> dict[int, str]:
    """TCP ports that a process or its descendants listen on: port → address."""
    inodes = set()
    for number in (pid, *children_of(pid)):
        for link in Path(f"/proc/{number}/fd").glob("*"):
            with contextlib.suppress(OSError):
                inodes.add(str(link.readlink()).removeprefix("socket:[").rstrip("]"))
    found = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, _, port = fields[1].partition(":")
                found[int(port, 16)] = _address(address)
    return found


def _address(digits: str) -> str:
    words = [bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8)]
    raw = b"".join(words)
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
