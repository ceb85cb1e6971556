"""The lab's own errors: a place, a fact and a fix."""

from __future__ import annotations

import errno
import subprocess

from infra.errors import NotReady, PrerequisiteError

_FIXES = {
    errno.ENOSPC: "Free room there, or give the hosts a larger disk.",
    errno.EDQUOT: "Free room there, or raise the quota.",
    errno.EPERM: "Run as root (sudo), outside a container or in one with CAP_SYS_ADMIN.",
    errno.EACCES: "Run as root (sudo), outside a container or in one with CAP_SYS_ADMIN.",
    errno.ENOMEM: "Free memory, or start fewer hosts.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n), or start fewer hosts.",
}
_UNKNOWN_FIX = "See the lab's log, and report this with it."


class LabError(PrerequisiteError):
    """The lab cannot be started, reached or changed as asked; nothing of it is left half done."""


class UnknownHost(LabError):
    """A request names a host that this lab does not have."""


class HostsNotReady(NotReady):
    """Simulated hosts did not come up within their time."""


def explain(error: Exception, where: str) -> LabError:
    """The lab's own error for one of the operating system's."""
    if isinstance(error, LabError):
        return error
    if isinstance(error, subprocess.CalledProcessError):
        said = (error.stderr or "").strip().replace("\n", " ")
        return LabError(where, f"{error.cmd[0]} failed: {said}.", _UNKNOWN_FIX)
    if isinstance(error, OSError) and error.errno is not None:
        place = error.filename or where
        return LabError(str(place), f"{error.strerror}.", _FIXES.get(error.errno, _UNKNOWN_FIX))
    return LabError(where, f"{type(error).__name__}: {error}.", _UNKNOWN_FIX)
