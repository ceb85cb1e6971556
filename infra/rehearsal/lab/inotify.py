"""Room for many systemds: each takes inotify instances, which the kernel counts per user."""

from __future__ import annotations

from pathlib import Path

from infra.rehearsal.lab import registry

LIMIT_FILE = Path("/proc/sys/fs/inotify/max_user_instances")
ENOUGH = 4096
SAFE_HOSTS = 24
"""With the kernel's default of 128 instances 32 hosts boot and 40 do not; some room for others."""


def make_room() -> str:
    """Raise the machine's limit when all labs together have many hosts; the last to end restores it.

    Returns:
        What to tell the operator; empty when nothing was done.
    """
    num_hosts = sum(entry.num_hosts for entry in registry.read_entries())
    present = LIMIT_FILE.read_text().strip()
    if num_hosts <= SAFE_HOSTS or int(present) >= ENOUGH:
        return ""
    registry.note_machine_value(LIMIT_FILE, present)
    LIMIT_FILE.write_text(f"{ENOUGH}\n")
    return (
        f"fs.inotify.max_user_instances of this machine is {ENOUGH} instead of {present} while "
        f"{num_hosts} simulated hosts run"
    )
