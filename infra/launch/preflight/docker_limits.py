"""What docker's daemon can give a container of the limits that ours are rendered with."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infra.launch.preflight.scene import Scene, Trouble
from infra.render.container import ULIMITS

# systemd's name of each `--ulimit`.
NAMES = {"memlock": "LimitMEMLOCK", "stack": "LimitSTACK", "nofile": "LimitNOFILE"}
UNLIMITED = -1
# linux/capability.h: CAP_SYS_RESOURCE raises limits above their hard ones, in the first user namespace alone.
SYS_RESOURCE = 24
FIRST_NAMESPACE = re.compile(r"^\s*0\s+0\s+4294967295\s*$", re.MULTILINE)
CAPABILITIES = re.compile(r"^CapEff:\s*([0-9a-fA-F]+)", re.MULTILINE)
OPEN_FILES_MOST = "/proc/sys/fs/nr_open"
# What the daemon's unit allows it, its user namespace and its capabilities.
QUESTION = (
    "systemctl show --property=LimitMEMLOCK,LimitNOFILE,LimitSTACK docker.service && "
    "p=$(systemctl show --property=MainPID --value docker.service) && "
    'test "${p:-0}" != 0 && cat /proc/$p/uid_map && grep CapEff: /proc/$p/status'
)


def rendered_limits() -> dict[str, int]:
    """What containers are started with, by systemd's name; -1 is unlimited."""
    found = {}
    for limit in ULIMITS:
        name, _, values = limit.partition("=")
        found[NAMES[name]] = int(values.partition(":")[0])
    return found


def refused_limits(answer: str, open_files_most: int | None) -> list[str]:
    """Which rendered limits the daemon cannot give, in words.

    Args:
        answer: what `QUESTION` printed.
        open_files_most: of fs.nr_open, None when unknown.
    """
    refused = []
    wanted = rendered_limits()
    files = wanted[NAMES["nofile"]]
    if open_files_most is not None and open_files_most < files:
        refused.append(
            f"fs.nr_open is {open_files_most}, below the {files} open files of a container"
        )
    if _may_raise(answer):
        return refused
    own = unit_limits(answer)
    for name, least in wanted.items():
        has = own.get(name)
        if has is None or not _covers(has, least):
            shown = "unknown" if has is None else _words(has)
            refused.append(
                f"docker's own {name} is {shown}, and it may not raise it to {_words(least)}"
            )
    return refused


def unit_limits(text: str) -> dict[str, int]:
    """The `LimitX=` lines of `systemctl show`; -1 is unlimited."""
    found = {}
    for name in NAMES.values():
        if match := re.search(rf"^{name}=(infinity|\d+)$", text, re.MULTILINE):
            found[name] = UNLIMITED if match[1] == "infinity" else int(match[1])
    return found


def find_refused_limits(scene: Scene) -> Iterator[Trouble]:
    """Hosts whose docker cannot start containers with the limits that ours need."""
    for name, host in scene.hosts.items():
        told = host.commands.get("docker-limits")
        if told is None:
            continue
        if told.exit_code != 0:
            yield Trouble(
                host=name,
                severity="warn",
                observed="docker.service does not run: what limits containers get is not known",
                fix=f"ssh {name} sudo systemctl start docker",
            )
            continue
        most = host.word(OPEN_FILES_MOST)
        refused = refused_limits(told.stdout, int(most) if most and most.isdecimal() else None)
        if refused:
            yield Trouble(
                host=name,
                severity="block",
                observed="; ".join(refused),
                fix=f"ssh {name} sudo systemctl edit docker   # [Service] LimitMEMLOCK=infinity LimitNOFILE=infinity "
                "LimitSTACK=infinity, then restart it; fs.nr_open by sysctl",
            )


def _may_raise(answer: str) -> bool:
    capabilities = CAPABILITIES.search(answer)
    has = capabilities is not None and int(capabilities[1], 16) >> SYS_RESOURCE & 1
    return bool(has) and FIRST_NAMESPACE.search(answer) is not None


def _covers(limit: int, least: int) -> bool:
    return limit == UNLIMITED or (least != UNLIMITED and limit >= least)


def _words(limit: int) -> str:
    return "unlimited" if limit == UNLIMITED else str(limit)
