"""What Kubernetes does to a container beside starting it: probes that end it, variables of services.

Sources: kubernetes.io, Configure Liveness, Readiness and Startup Probes (defaults: every 10 s, three failures);
kubernetes.io, Service, environment variables (`<NAME>_PORT=tcp://…`, none for a service without an address).
"""

from __future__ import annotations

from collections.abc import Sequence

from infra.plan.foreign.source import Word
from infra.plan.foreign.yaml_pages import Node

PERIOD_S, FAILURES = 10, 3
# Variables of vLLM that are spelt as Kubernetes spells a service's port: `vllm`, `vllm-dp-master`, …
LINKED = (
    "VLLM_PORT",
    "VLLM_DP_MASTER_PORT",
    "VLLM_NIXL_SIDE_CHANNEL_PORT",
    "VLLM_MOONCAKE_BOOTSTRAP_PORT",
)
_WAYS = ("httpGet", "tcpSocket", "grpc")
_SOME_ADDRESS = "198.51.100.1"  # of a service, which only the cluster knows


def silence_s(container: Node) -> int | None:
    """After how many seconds a container whose port is closed is killed; None when nobody dials it.

    A start-up probe holds the liveness probe off; a probe that runs a program is not judged.
    """
    for kind in ("startupProbe", "livenessProbe"):
        probe = container.get(kind)
        if any(probe.get(way).is_there for way in _WAYS):
            tries = probe.get("failureThreshold").number(FAILURES)
            period = probe.get("periodSeconds").number(PERIOD_S)
            return probe.get("initialDelaySeconds").number(0) + tries * period
        if probe.is_there:
            return None
    return None


def lacks_names(spec: Node) -> bool:
    """Whether a pod asks its node's DNS: `ClusterFirst`, the default, is read as `Default` in its node's network.

    Source: kubernetes.io, DNS for Services and Pods, Pod's DNS policy.
    """
    own = spec.get("hostNetwork").text().lower() == "true"
    return own and spec.get("dnsPolicy").text("ClusterFirst") in ("ClusterFirst", "Default")


def service_variables(objects: Sequence[Node]) -> dict[str, Word]:
    """Variables that services of a file give to its pods and that vLLM reads as its own, with the service's line.

    Objects of several namespaces do not see each other: then none are told.
    """
    namespaces = {root.get("metadata", "namespace").text() for root in objects}
    if len(namespaces) > 1:
        return {}
    found = {}
    for root in objects:
        spec = root.get("spec")
        has_address = spec.get("clusterIP").text() != "None" and spec.get("type").text() != "ExternalName"  # fmt: skip
        if root.get("kind").text() != "Service" or not has_address:
            continue
        name = root.get("metadata", "name")
        variable = f"{name.text().upper().replace('-', '_')}_PORT"
        if variable in LINKED:
            port = spec.get("ports", 0, "port").number(80)
            found[variable] = Word(f"tcp://{_SOME_ADDRESS}:{port}", name.line)
    return found
