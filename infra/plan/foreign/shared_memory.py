"""How much shared memory a container is given: what its runtime gives by itself, and what a file says instead.

Sources: docs.docker.com, `docker run --shm-size` (64 MiB), `--ipc`, `--tmpfs`; docs.podman.io podman-run.1 (the same);
containerd and CRI-O mount 64 MiB in every pod that does not share the host's (containerd pkg/cri/opts, CRI-O shm_size).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from infra.plan.foreign.yaml_pages import Node

PATH = "/dev/shm"  # noqa: S108 - where it is mounted
BY_DEFAULT = 64 << 20
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def bytes_of(text: str, *, decimal: bool = False) -> int | None:
    """A size in bytes (`10g`, `64m`, `16Gi`); None for one that a file leaves open.

    Args:
        text: as docker, Compose or Kubernetes write it.
        decimal: whether a letter alone is a power of a thousand, as for Kubernetes.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    unit = 1000 if decimal and not found[3] else 1024
    return int(float(found[1]) * unit ** _POWERS[found[2].lower()])


def tmpfs_bytes(text: str) -> int | None:
    """The size in `--tmpfs /dev/shm:rw,size=1g`; None for half of the host's memory, which is enough."""
    sizes = (bytes_of(each[5:]) for each in text.split(",") if each.startswith("size="))
    return next(sizes, None)


def of_pod(spec: Node, mounts: Iterable[Node]) -> int | None:
    """That of a container of a pod; None for the host's, or for a volume without a limit."""
    if spec.get("hostIPC").value is True:
        return None
    for mount in mounts:
        if mount.get("mountPath").text().rstrip("/") != PATH:
            continue
        name = mount.get("name").text()
        volume = next(
            (v for v in spec.get("volumes").nodes() if v.get("name").text() == name), None
        )
        limit = volume.get("emptyDir", "sizeLimit").text() if volume is not None else ""
        return bytes_of(limit, decimal=True) if limit else None
    return BY_DEFAULT
