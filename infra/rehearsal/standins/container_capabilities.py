"""What a container's root may do: the capabilities that its command line leaves it, as docker and podman count them.

Sources: moby oci/caps/defaults.go and utils.go 28.0, TweakCapabilities; containers-common containers.conf.5.md 0.57,
default_capabilities; linux/capability.h 6.12.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .container_request import ContainerRequest

ALL = "ALL"
# In the kernel's order: a name's place is its number.
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
    "CHECKPOINT_RESTORE",
)  # fmt: skip
_PODMAN = frozenset(
    (
        "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP",
        "SETUID", "SYS_CHROOT",
    )
)  # fmt: skip
DEFAULTS = {"podman": _PODMAN, "docker": _PODMAN | {"AUDIT_WRITE", "MKNOD", "NET_RAW"}}


def plain_name(word: str) -> str:
    """A capability as this module spells it: `cap_sys_nice` is SYS_NICE."""
    return word.upper().removeprefix("CAP_")


def kept_capabilities(request: ContainerRequest) -> frozenset[str]:
    """The capabilities that the container's root has."""
    flags = request.flags
    added = {plain_name(word) for word in flags.all("cap-add")}
    dropped = {plain_name(word) for word in flags.all("cap-drop")}
    if flags.has("privileged"):
        return frozenset(CAPABILITIES)
    if ALL in added:
        return frozenset(CAPABILITIES) - dropped
    if ALL in dropped:
        return frozenset(added)
    return (DEFAULTS[request.program] - dropped) | added
