"""Room for many systemds: each takes inotify instances, which the kernel counts per user."""

from __future__ import annotations

from pathlib import Path

LIMIT_FILE = Path("/proc/sys/fs/inotify/max_user_instances")
ENOUGH = 4096
SAFE_HOSTS = 24
"""With the kernel's default of 128 instances 32 hosts boot and 40 do not; some room for others."""


def make_room(num_hosts: int) -> tuple[str, dict[str, str]]:
    """Raise the machine's limit when many hosts are to boot.

    Returns:
        What to tell the operator (empty: nothing was done), and what to write to which file when
        the last lab ends.
    """
    present = LIMIT_FILE.read_text().strip()
    if num_hosts <= SAFE_HOSTS or int(present) >= ENOUGH:
        return "", {}
    LIMIT_FILE.write_text(f"{ENOUGH}\n")
    notice = (
        f"fs.inotify.max_user_instances of this machine is {ENOUGH} instead of {present} while "
        f"{num_hosts} hosts run"
    )
    return notice, {str(LIMIT_FILE): present}
