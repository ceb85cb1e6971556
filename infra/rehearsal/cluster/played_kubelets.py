"""The kubelets of nodes that are simulated hosts: they run pods' containers, ask their probes, and tell the API server.

With the endpoint controllers' answer they play the cluster's DNS, too: every host is told the names of all pods.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from infra.errors import NotReady
from infra.rehearsal.cluster.api import Api, Document
from infra.rehearsal.cluster.containers import PodContainer
from infra.rehearsal.cluster.kubelets import pod_path, running_status
from infra.rehearsal.cluster.pods import ResolvedPod, names_of
from infra.rehearsal.lab.client import Lab

LOOK_S, PROBE_EVERY_S = 0.2, 1.0
NAMES_S = 60.0
NUM_PROBES = 4


def start_pods(api: Api, containers: Sequence[PodContainer], limit_s: float) -> None:
    """Start containers, and wait until each has passed its probes; one that ends is not started again.

    Args:
        api: of the cluster, which is told of every pod that is ready.
        containers: one per pod.
        limit_s: how long each may take.

    Raises:
        NotReady: one has ended, or its probe says no.
    """
    with ThreadPoolExecutor(max_workers=NUM_PROBES) as pool:
        list(pool.map(PodContainer.start, containers))
    left, until = list(containers), time.monotonic() + limit_s
    probes = {each.pod.uid: _probes(each.pod.container) for each in containers}

    def ask(container: PodContainer) -> str:
        return _ask(container, probes[container.pod.uid])

    with ThreadPoolExecutor(max_workers=NUM_PROBES) as pool:
        while left:
            asked = list(zip(left, pool.map(ask, left), strict=True))
            for container, said in asked:
                if not said:
                    tell(api, container.pod, is_ready=True)
                    left.remove(container)
                elif container.has_ended():
                    raise _ended(container)
                elif time.monotonic() > until:
                    what = (
                        f"The pod {container.pod.name} is not ready after {limit_s:.0f} s: {said}."
                    )
                    raise NotReady(container.host, what, "Its last lines say more.")
            time.sleep(PROBE_EVERY_S if left else 0)
    for container in containers:  # who was ready first may be gone by now
        if container.has_ended():
            raise _ended(container)


def _ask(container: PodContainer, probes: list[Document]) -> str:
    """What is wrong, "" where nothing is; probes that were content are taken away: they are asked once."""
    while probes:
        said = container.probe(probes[0])
        if said:
            return said
        probes.pop(0)
    return ""


def _probes(container: Document) -> list[Document]:
    """A kubelet asks whether a container has started, and only then whether it is ready."""
    return [container[name] for name in ("startupProbe", "readinessProbe") if name in container]


def _ended(container: PodContainer) -> NotReady:
    what = f"The pod {container.pod.name} has ended."
    return NotReady(container.host, what, "Its last lines say why.")


def tell(api: Api, pod: ResolvedPod, *, is_ready: bool) -> None:
    """Tell the API server that a pod runs."""
    status = running_status(pod.document["spec"], pod.address, is_ready=is_ready)
    api.patch(f"{pod_path(pod.document)}/status", {"status": status}, kind="strategic")


def publish_names(
    api: Api, namespace: str, lab: Lab, wanted: Mapping[str, ResolvedPod], hosts: Sequence[str]
) -> None:
    """Let hosts resolve the names of pods, once these lead where they should.

    Args:
        api: of the cluster.
        namespace: of the pods.
        lab: of the hosts.
        wanted: the pod behind each name that processes use.
        hosts: that resolve them.

    Raises:
        NotReady: a name leads to another pod, or to several.
    """
    until = time.monotonic() + NAMES_S
    while True:
        names = names_of(api, namespace)
        wrong = [name for name, pod in wanted.items() if names.get(name) != {pod.address}]
        if not wrong:
            break
        if time.monotonic() > until:
            found = ", ".join(sorted(names.get(wrong[0], ()))) or "nothing"
            what = f"It leads to {found}; {wanted[wrong[0]].name} is at {wanted[wrong[0]].address}."
            fix = "Its service chooses other pods, or none that is ready, and publishes no others."
            raise NotReady(wrong[0], what, fix)
        time.sleep(LOOK_S)
    # as a resolver with the cluster's search path finds them, and written out
    lines = "".join(
        f"{address} {name} {name}.{namespace} {name}.{namespace}.svc.cluster.local\n"
        for name, found in names.items()
        for address in sorted(found)
    )
    for host in hosts:
        lab.append_file(host, "/etc/hosts", lines.encode())
