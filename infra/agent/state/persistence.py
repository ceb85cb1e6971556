"""What makes tuning survive a reboot: one sysctl.d file, and one unit that runs a stored agent."""

import glob
import json
import os
import sys
from typing import Dict, List, Optional, Set, Tuple

from ..bundle import own_program
from ..files import HEAD, file_item
from ..host import Host
from ..item import Item, Reading
from ..kinds.kernel_knobs import RESERVED_PORTS, sysctl_path
from ..kinds.table import modules_of
from .overwriters import OVERWRITERS

SYSCTL_FILE = "/etc/sysctl.d/60-moe-infra.conf"
UNIT = "moe-infra-tuning.service"
UNIT_FILE = "/etc/systemd/system/" + UNIT
ENABLED_LINK = "/etc/systemd/system/multi-user.target.wants/" + UNIT
STORED_AGENT = "/var/lib/moe-infra/tuning/agent.py"
STORED_REQUEST = "/var/lib/moe-infra/tuning/request.json"
SYSCTL_FOLDERS = ("/usr/lib/sysctl.d", "/run/sysctl.d", "/etc/sysctl.d")
SYSCTL_MAIN = "/etc/sysctl.conf"
BOOT_STACK = "boot"
# What an item needs of the boot before it is there to be set, by kind. A target that nothing else wants is not
# waited for unless the unit wants it (systemd.special(7)); mounts of the network want remote-fs.target themselves.
NEEDED_TARGETS = {
    "nfs-read-ahead": ("remote-fs.target", ""),
    "mtu": ("network-online.target", "network-online.target"),
}

Pair = Tuple[Item, Reading]


def persistent_items(pairs: List[Pair], shadowed: Set[str]) -> List[Dict[str, object]]:
    """The files that keep these tuning items over a reboot, as items; none for items left alone.

    They follow from the wanted values and from what exists on the host, not from how writing went:
    what the kernel refuses today is tried again at the next boot.

    Args:
        pairs: items and what they are on this host.
        shadowed: ids of sysctls that another file sets after ours at boot.
    """
    lasting = [
        (item, reading)
        for item, reading in pairs
        if item.group == "tuning" and reading.wanted is not None and reading.wanted_parts
    ]
    if not lasting:
        return []
    sysctls = [pair for pair in lasting if pair[0].kind in ("sysctl", "reserved-ports")]
    others = [item for item, _ in lasting if item.kind != "sysctl" or item.id in shadowed]
    items = []
    if sysctls:
        items.append(file_item(SYSCTL_FILE, sysctl_text(sysctls).encode("utf-8")))
    if others:
        request = json.dumps(_boot_request(others), indent=1, sort_keys=True) + "\n"
        program = own_program("state.operation", *modules_of(item.kind for item in others))
        items.append(file_item(STORED_AGENT, program.encode("utf-8"), "0755"))
        items.append(file_item(STORED_REQUEST, request.encode("utf-8")))
        items.append(dict(file_item(UNIT_FILE, unit_text(others).encode("utf-8")), unit=True))
        items.append(dict(file_item(ENABLED_LINK, b""), link=UNIT_FILE, unit=True))
    return items


def sysctl_text(pairs: List[Pair]) -> str:
    """The owned sysctl.d file."""
    lines = []
    for item, reading in pairs:
        key = "net.ipv4.ip_local_reserved_ports" if item.kind == "reserved-ports" else item.target
        lines.append("{} = {}".format(key, reading.wanted))
    return HEAD + "".join(line + "\n" for line in lines)


def unit_text(items: List[Item]) -> str:
    """The unit that applies what sysctl.d cannot hold, before anything of ours starts.

    Args:
        items: that it applies; it waits for what they need to be there, and for services that would overwrite them.
    """
    text = """\
[Unit]
Description=moe-infra host tuning
After={after}
{wants}Before=docker.service
ConditionPathExists={request}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={python} -I -S {agent} {request}
TimeoutStartSec=120

[Install]
WantedBy=multi-user.target
"""
    python = sys.executable or "/usr/bin/python3"
    needed = [
        NEEDED_TARGETS[kind] for kind in sorted({item.kind for item in items} & set(NEEDED_TARGETS))
    ]
    after = ["systemd-sysctl.service", "sys-kernel-debug.mount", "local-fs.target"]
    after += [*sorted(OVERWRITERS), *(target for target, _ in needed)]
    wants = "".join("Wants={}\n".format(wanted) for _, wanted in needed if wanted)
    return HEAD + text.format(
        after=" ".join(after),
        wants=wants,
        python=python,
        agent=STORED_AGENT,
        request=STORED_REQUEST,
    )


def overrulers(host: Host) -> Dict[str, Tuple[str, str]]:
    """By sysctl file (`/proc/sys/…`), the value and the file that set it after ours at boot.

    sysctl.d files apply in the order of their names, whatever folder they lie in, and
    `sysctl --system` reads /etc/sysctl.conf last of all (facts/hosts.md 1.1).
    """
    by_name = {}
    for folder in SYSCTL_FOLDERS:  # a later folder's file replaces one of the same name
        for path in glob.glob(host.path(folder) + "/*.conf"):
            by_name[os.path.basename(path)] = path[len(host.root) :]
    later = [by_name[name] for name in sorted(by_name) if name > os.path.basename(SYSCTL_FILE)]
    found = {}
    for path in [*later, SYSCTL_MAIN]:
        try:
            text = host.read_bytes(path).decode("utf-8", "replace")
        except OSError:
            continue
        for key, value in _assignments(text):
            found[sysctl_path(key)] = (value, path)
    return found


def overruled(item: Item, reading: Reading, found: Dict[str, Tuple[str, str]]) -> Optional[str]:
    """What the next boot would do to a sysctl of ours, None when it stays."""
    if item.kind not in ("sysctl", "reserved-ports") or reading.wanted is None:
        return None
    path = RESERVED_PORTS if item.kind == "reserved-ports" else sysctl_path(item.target)
    value, where = found.get(path, (reading.wanted, ""))
    if " ".join(value.split()) == reading.wanted:
        return None
    return "{} sets it to {!r} at every boot, {} then applies ours".format(where, value, UNIT)


def _boot_request(items: List[Item]) -> Dict[str, object]:
    return {
        "schema_version": 1,
        "operation": "state",
        "mode": "boot",
        "stack": BOOT_STACK,
        "operator": UNIT,
        "items": [item.document for item in items],
    }


def _assignments(text: str) -> List[Tuple[str, str]]:
    pairs = []
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.lstrip().startswith(("#", ";")):
            pairs.append((key.strip().lstrip("-").strip(), value.strip()))
    return pairs
