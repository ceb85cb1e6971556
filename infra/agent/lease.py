"""The lease of a stack on this host: who is changing the deployment, and until when nobody else may.

It is a file below /run, so a reboot ends it. Its age is measured by this host's own monotonic clock, so no two
clocks are ever compared. Every request of its holder renews it, and so does every sign of life while the agent works.
"""

import contextlib
import fcntl
import json
import os
import time
from typing import Dict, Iterator, Optional

from .files import make_folders
from .host import Host, Refused
from .lock import open_private

LEASE_FOLDER = "/run/moe-infra/leases"
TTL_S = 20.0
# What an agent does for a holder that is silent has ended by the time that anybody else may go on.
SILENCE_S = 18.0
# How often it is renewed for a holder that cannot give signs of life.
RENEW_S = 5.0
ANYBODY = "*"
OWNER_KEYS = ("operator", "machine", "process", "started", "command")

Document = Dict[str, object]


class LeaseRefused(Refused):
    """Somebody else holds the lease, or the asker's own was taken; `found` is what is known of the holder."""

    def __init__(self, message: str, found: Document) -> None:
        """Keep the holder beside the words."""
        super().__init__(message)
        self.found = found


def answer(request: Dict[str, object], _host: Host) -> Dict[str, object]:
    """The operation `lease`: taking, renewing and releasing happen to the lease of any request."""
    return {"schema_version": 1, "lease": request.get("lease") is not None}


def keep_lease(host: Host, lease: Document) -> None:
    """Take or renew a lease for its holder.

    Args:
        host: this host.
        lease: `stack`, `token`, the holder's `operator`, `machine`, `process`, `started` and `command`; `held_s`, how
            long the asker believes to hold it (None: not yet); `takes`, the token whose lease may be taken
            although it is alive, `*` for anybody's.

    Raises:
        LeaseRefused: somebody else holds it, or the asker's own has gone.
    """
    now = time.monotonic()
    with _opened(host, str(lease["stack"])) as handle:
        found = _read(handle)
        if not _is_own(found, lease):
            _refuse_alive(found, lease, now)
            _refuse_lost(found, lease, now)
        kept = found if found is not None and _is_own(found, lease) else _fresh(lease, now)
        _write(handle, dict(kept, renewed=now))


def renew_lease(host: Host, lease: Document) -> bool:
    """Renew a lease that is still its asker's; whether it is, as far as can be told."""
    try:
        with _opened(host, str(lease["stack"])) as handle:
            found = _read(handle)
            if found is None or not _is_own(found, lease):
                return False
            _write(handle, dict(found, renewed=time.monotonic()))
    except OSError:  # it grows old; the asker's next request says why
        pass
    return True


def release_lease(host: Host, lease: Document) -> None:
    """Give a lease back, if it is the asker's."""
    stack = str(lease["stack"])
    if not host.exists(_path(stack)):
        return
    with _opened(host, stack) as handle:
        if _is_own(_read(handle), lease):
            _remove(host, host.path(_path(stack)))


def _refuse_alive(found: Optional[Document], lease: Document, now: float) -> None:
    if found is None or not 0 <= now - float(str(found["renewed"])) < TTL_S:
        return
    if lease.get("takes") in (ANYBODY, found["token"]):
        return
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(float(str(found["since"]))))
    words = "{} holds stack {} with `{}` since {}"
    message = words.format(found["operator"], lease["stack"], found["command"], since)
    is_lost = lease.get("held_s") is not None
    raise LeaseRefused(message, dict(_public(found), since=since, is_lost=is_lost))


def _refuse_lost(found: Optional[Document], lease: Document, now: float) -> None:
    """Whoever lost a lease while the host stayed up does not know what has been done since."""
    held = lease.get("held_s")
    if held is None or now < float(str(held)):  # younger than the lease: the host was rebooted
        return
    message = "the lease of stack {} has gone: it was taken while this command did not answer"
    raise LeaseRefused(
        message.format(lease["stack"]), dict(_public(found) if found else {}, is_lost=True)
    )


def _is_own(found: Optional[Document], lease: Document) -> bool:
    return found is not None and found["token"] == lease["token"]


def _public(found: Document) -> Document:
    return {key: found[key] for key in ("token", *OWNER_KEYS)}


def _fresh(lease: Document, now: float) -> Document:
    own = {key: lease[key] for key in ("token", *OWNER_KEYS)}
    return dict(own, since=time.time(), renewed=now)


def _path(stack: str) -> str:
    if not stack or "/" in stack or stack.startswith("."):
        raise Refused("{!r} is not the name of a stack".format(stack))
    return "{}/{}.json".format(LEASE_FOLDER, stack)


@contextlib.contextmanager
def _opened(host: Host, stack: str) -> Iterator[int]:
    """The lease's file, locked; a file that was released meanwhile is opened again, one that stays empty goes."""
    path = host.path(_path(stack))
    while True:
        try:
            make_folders(os.path.dirname(path))
            handle = open_private(path)
        except FileNotFoundError:  # the folder went between the two
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if _is_same_file(handle, path):
                try:
                    yield handle
                finally:
                    if not os.fstat(handle).st_size:
                        _remove(host, path)
                return
        finally:
            os.close(handle)


def _remove(host: Host, path: str) -> None:
    """Remove a lease's file, and the folder of leases with the last one."""
    os.unlink(path)
    with contextlib.suppress(OSError):  # others lie there
        os.rmdir(host.path(LEASE_FOLDER))


def _is_same_file(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _read(handle: int) -> Optional[Document]:
    """What is written there; a file that a killed run left half written is nobody's."""
    try:
        found = json.loads(os.pread(handle, 65536, 0).decode("utf-8"))
        return (
            found
            if isinstance(found, dict) and {"token", "renewed", "since", *OWNER_KEYS} <= set(found)
            else None
        )
    except ValueError:
        return None


def _write(handle: int, document: Document) -> None:
    text = json.dumps(document, sort_keys=True).encode("utf-8")
    os.pwrite(handle, text, 0)
    os.ftruncate(handle, len(text))
