"""Options of a container that open its host: they never become part of a plan, and are said."""

from __future__ import annotations

from infra.plan.foreign.source import NotUnderstood
from infra.plan.host_mounts import gives_host_away

WHY = "it would open the host to the container: left out of the plan"
_NAMESPACES = ("pid", "userns", "uts", "cgroupns")
# capabilities(7): each is as good as root outside of the container.
_CAPABILITIES = frozenset(
    {
        "ALL",
        "SYS_ADMIN",
        "SYS_MODULE",
        "SYS_RAWIO",
        "SYS_BOOT",
        "DAC_READ_SEARCH",
        "MAC_ADMIN",
        "BPF",
    }
)


def host_access(option: str, value: str, line: int) -> list[NotUnderstood]:
    """The note on an option that opens the host; none on one that does not.

    Args:
        option: as docker spells it, without dashes.
        value: its value; `true` for a switch.
        line: of the file.
    """
    capability = value.upper().removeprefix("CAP_")
    opens = (
        (option == "privileged" and value == "true")
        or (option in _NAMESPACES and value == "host")
        or (option == "cap-add" and capability in _CAPABILITIES)
        or (option == "device" and gives_host_away(value.partition(":")[0], read_only=True))
    )
    return [NotUnderstood(line, f"{option} {value}", WHY)] if opens else []
