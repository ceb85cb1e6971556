"""What a pod asks of its kubelet that is not played here: it is refused, for passed over it would look as if it worked.

Scheduling, claims and what controllers do are left out: the real ones see to them.
Sources: kubernetes API v1.35, PodSpec and Container; kubernetes pkg/kubelet/sysctl/safe_sysctls.go v1.35.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from infra.rehearsal.cluster.api import Document

# Volumes that init containers would fill from the network: what simulated hosts have there already.
PREPARED = ("router", "weights")
# Kubernetes puts it into pods by itself, unless they say that they want no token.
OWN_VOLUME = "kube-api-access-"
SAFE_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
    }
)  # fmt: skip

Judge = Callable[[Any], bool]
_ANY: Judge = lambda _value: True  # noqa: E731 - a row of the tables below


def _is(*values: object) -> Judge:
    return lambda value: value in values


def _has_only(*keys: str) -> Judge:
    return lambda value: set(value) <= set(keys)


def _are_safe(sysctls: Collection[Document]) -> bool:
    return all(each["name"] in SAFE_SYSCTLS for each in sysctls)


def _is_played_folder(empty: Document) -> bool:
    """A limit of memory is the size of its file system; past another one a kubelet evicts the pod, and none is."""
    is_limited = "sizeLimit" in empty
    is_size = re.fullmatch(r"[1-9][0-9]*[KMG]i", str(empty.get("sizeLimit"))) is not None
    has_size = not is_limited or (is_size and empty.get("medium") == "Memory")
    return set(empty) <= {"medium", "sizeLimit"} and has_size


_POD: Mapping[str, Judge] = {
    **dict.fromkeys(
        ("containers", "initContainers", "volumes", "securityContext", "hostPID", "hostname", "subdomain"), _ANY
    ),
    # the scheduler's and the controllers'
    **dict.fromkeys(
        ("nodeName", "nodeSelector", "affinity", "tolerations", "schedulerName", "priority", "preemptionPolicy"), _ANY
    ),
    **dict.fromkeys(
        ("resourceClaims", "serviceAccount", "serviceAccountName", "automountServiceAccountToken"), _ANY
    ),
    "terminationGracePeriodSeconds": _ANY,  # none is ended
    "restartPolicy": _is("Always"),
    "dnsPolicy": _is("ClusterFirst"),
    # links would be variables of every service of the namespace
    "enableServiceLinks": lambda value: value is False,
}  # fmt: skip
_POD_SECURITY: Mapping[str, Judge] = {
    "sysctls": _are_safe,
    "seccompProfile": _has_only("type"),  # which calls the machine's kernel takes is not played
    **dict.fromkeys(("runAsUser", "runAsGroup", "runAsNonRoot"), _ANY),
}
_CONTAINER: Mapping[str, Judge] = {
    **dict.fromkeys(
        ("name", "image", "command", "args", "env", "resources", "securityContext"), _ANY
    ),
    **dict.fromkeys(("volumeMounts", "startupProbe", "readinessProbe"), _ANY),
    **dict.fromkeys(
        ("terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy"), _ANY
    ),
}
_SECURITY: Mapping[str, Judge] = {
    "privileged": _ANY,
    "capabilities": _has_only("add", "drop"),
    "allowPrivilegeEscalation": lambda value: value is False,
    "readOnlyRootFilesystem": _ANY,
    "seccompProfile": _has_only("type"),  # not played, either
    "runAsUser": _is(0),  # whom images of engines start as anyhow
}
_PROBE: Mapping[str, Judge] = {
    **dict.fromkeys(("periodSeconds", "failureThreshold", "timeoutSeconds"), _ANY),
    "exec": _has_only("command"),
    "tcpSocket": _has_only("port"),
    "successThreshold": _is(1),
}
_MOUNT: Mapping[str, Judge] = dict.fromkeys(("name", "mountPath", "readOnly"), _ANY)
_VOLUME: Mapping[str, Judge] = {
    "name": _ANY,
    "hostPath": _has_only("path", "type"),
    "emptyDir": _is_played_folder,
    "configMap": _has_only("name", "defaultMode"),
    "secret": _has_only("secretName", "defaultMode"),
    "projected": lambda value: all(
        _has_only("name")(part.get("configMap", ())) and set(part) == {"configMap"}
        for part in value["sources"]
    ),
}


def unplayed(spec: Document) -> list[str]:
    """Fields of a pod's specification that nobody plays, as paths: `containers[0].lifecycle`."""
    found = [*_others("", spec, _POD)]
    found += _others("securityContext.", spec.get("securityContext") or {}, _POD_SECURITY)
    for number, volume in enumerate(spec.get("volumes") or ()):
        if not volume["name"].startswith(OWN_VOLUME):
            found += _others(f"volumes[{number}].", volume, _VOLUME)
    for number, container in enumerate(spec.get("initContainers") or ()):
        places = {place["name"] for place in container.get("volumeMounts") or ()}
        if not places or not places <= set(PREPARED):
            found.append(f"initContainers[{number}]")
    container, *others = spec["containers"]
    if (container.get("securityContext") or {}).get("privileged") and not spec.get("hostPID"):
        # containers have no processes of their own here: such a one would reach the node's as if it were told to
        found.append("privileged without hostPID")
    found += [f"containers[{number}]" for number, _ in enumerate(others, start=1)]
    return [*found, *_of_container(container)]


def _of_container(container: Document) -> Iterator[str]:
    where = "containers[0]."
    yield from _others(where, container, _CONTAINER)
    yield from _others(
        f"{where}securityContext.", container.get("securityContext") or {}, _SECURITY
    )
    for probe in ("startupProbe", "readinessProbe"):
        yield from _others(f"{where}{probe}.", container.get(probe) or {}, _PROBE)
    for number, place in enumerate(container.get("volumeMounts") or ()):
        yield from _others(f"{where}volumeMounts[{number}].", place, _MOUNT)
    limits = (container.get("resources") or {}).get("limits") or {}
    yield from (f"{where}resources.limits.{name}" for name in ("cpu", "memory") if name in limits)


def _others(where: str, document: Document, known: Mapping[str, Judge]) -> Iterator[str]:
    """Keys that are not known, or whose value is not."""
    for key, value in document.items():
        if key not in known or not known[key](value):
            yield f"{where}{key}"
