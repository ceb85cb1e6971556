"""The pod of one host: its container with all devices of its node, its volumes and its probes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.catalog.schema import Accelerator, Mount, PodAccess
from infra.engines.credentials import Credential
from infra.errors import StackError
from infra.inventory.pods import POD_IP
from infra.plan.process import FIRST_FREE_PORT, Plan
from infra.render.cluster_facts import ClusterFacts, WeightsVolume
from infra.render.compile_cache import CONTAINER_FOLDER
from infra.render.container import STRANGER
from infra.render.host_paths import CONTAINER_SECRETS
from infra.render.pod_objects import stack_labels
from infra.render.pod_processes import GRACE_S, WAIT_S, Document
from infra.render.process_launch import runnable_image
from infra.render.reserved_ports import RESERVED_PORTS_ID, reserved_ports_text
from infra.render.weights_copy import copy_container

LAUNCHER_FOLDER = "/etc/moe-infra"
LAUNCHER = f"{LAUNCHER_FOLDER}/launch.py"
LAUNCH_DOCUMENT = f"{LAUNCHER_FOLDER}/processes.json"
_RUN = ["python3", LAUNCHER, "run", LAUNCH_DOCUMENT]
WEIGHTS_CLAIM = "weights"
WORKER_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"
GROUP_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/group-index"
DOMAIN_CLAIM = "nvlink-domain"
# Engines are given this long to load, as `fab up` gives them, and their peers' pods to appear.
LOAD_S = 3600
# A node may keep other pods away by a taint with the name of its devices' resource.
TOLERATED_EFFECT = "NoSchedule"
PROBE_EVERY_S = 10
PROBE_LIMIT_S = 30
# What the scheduler reserves beside devices. Pods that take whole nodes need no more to be alone there, and the API
# server refuses huge pages without either.
RESERVED = {"cpu": "8", "memory": "64Gi"}
ROUTER_RESERVED = {"cpu": "2", "memory": "4Gi"}
# The container runtime's own profile. With SYS_NICE, as NVIDIA's accelerators ask for it, it lets the calls of the NUMA
# policy through (get_mempolicy, mbind, set_mempolicy: as a port of containerd's default profile has them; 2026-11-27).
FILTERED: Document = {"type": "RuntimeDefault"}
# The most of /dev/shm: what SGLang's guides give its containers (`--shm-size 32g`; seen 2026-11-27 in what repeats
# them). No engine was measured. Without a limit a pod could fill /dev/shm with all of its node's memory. What lies
# there counts as the container's memory.
SHARED_MEMORY = "32Gi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What differs between the container of engines and that of a router.

    Args:
        launcher: name of the ConfigMap with the launcher.
        launch: name of the ConfigMap with what it is told.
        index: the worker's index; None where the pod's labels tell it and its group's.
    """

    launcher: str
    launch: str
    index: int | None
    credentials: Sequence[Credential]
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The node of a pod with engines.

    Args:
        accelerator: the pod takes all devices of a node.
        mounts: from the node into the container, beside weights.
        spans_hosts: whether the stack's processes run on more than one host.
        ports: that the kernel must not give to outgoing connections.
        is_exclusive: whether no other stack's engines may share the domain.
        keeps_caches: whether what engines compile outlives their container; it goes with the pod.
    """

    accelerator: Accelerator
    mounts: Sequence[Mount]
    spans_hosts: bool
    ports: frozenset[int]
    is_exclusive: bool
    keeps_caches: bool


def pod_access(accelerator: Accelerator) -> PodAccess:
    """How pods get an accelerator.

    Raises:
        StackError: the catalogue does not say.
    """
    if accelerator.pod is None:
        what = f"The catalogue does not say what a device plugin calls {accelerator.id}."
        fix = f"Add `pod: {{resource: …}}` to infra/catalog/accelerators/{accelerator.id}.yaml."
        raise StackError(f"accelerator {accelerator.id}", what, fix)
    return accelerator.pod


def engine_pod(plan: Plan, cluster: ClusterFacts, node: Node, container: Container) -> Document:
    """The specification of a pod that runs one host of the plan.

    Args:
        plan: whose image, weights and name it takes.
        cluster: facts of the cluster.
        node: where it runs.
        container: what its launcher is told.

    Raises:
        StackError: the catalogue does not say how pods get the accelerator.
    """
    accelerator, access = node.accelerator, pod_access(node.accelerator)
    needs_domain = node.spans_hosts and access.domain_label is not None
    limits = _limits(node, cluster)
    resources: Document = {"limits": limits, "requests": {**RESERVED, **limits}}
    volumes, places = _volumes(plan, cluster, container, node.mounts)
    if node.keeps_caches:
        volumes.append({"name": "compile-cache", "emptyDir": {}})
        places.append({"name": "compile-cache", "mountPath": CONTAINER_FOLDER})
    if needs_domain:
        resources["claims"] = [{"name": DOMAIN_CLAIM}]
    # memory of RDMA is locked, and a pod cannot raise the limit otherwise
    capabilities = sorted({"IPC_LOCK", *accelerator.container.capabilities})
    spec = _pod(
        container,
        {
            "name": "engine",
            "image": runnable_image(plan.engine.image),
            # `command` would replace an entry point that prepares what follows (CANN's sources set_env.sh)
            "command" if plan.engine.entrypoint else "args": _RUN,
            "resources": resources,
            "securityContext": _closed(capabilities, accelerator.container.security_options),
            "volumeMounts": places,
            "startupProbe": _probe("started", limit_s=LOAD_S + WAIT_S),
            "readinessProbe": _probe("ready", limit_s=3 * PROBE_EVERY_S),
        },
        volumes,
    )
    if node.ports:
        # of the pod's own network namespace, where a node's setting does not reach
        value = reserved_ports_text("", node.ports)
        sysctls = [{"name": RESERVED_PORTS_ID, "value": value}]
        spec["securityContext"] = {"seccompProfile": FILTERED, "sysctls": sysctls}
    spec["nodeSelector"] = dict(cluster.node_selector)
    spec["tolerations"] = node_tolerations(access)
    if needs_domain:
        spec["resourceClaims"] = [
            {"name": DOMAIN_CLAIM, "resourceClaimTemplateName": domain_claim(plan.stack)}
        ]
        spec["affinity"] = _same_domain(
            plan.stack, str(access.domain_label), is_exclusive=node.is_exclusive
        )
    if cluster.service_account:
        spec["serviceAccountName"] = cluster.service_account
    if cluster.weights.copy is not None:
        copy = copy_container(plan, cluster.weights.copy)
        spec["initContainers"] = [{**copy, "securityContext": _closed()}]
    return spec


def router_pod(
    image: str, container: Container, *, prepare: Document | None, port: int
) -> Document:
    """The specification of the router's pod, which belongs to nobody: only a port below 1024 leaves it root in name.

    Args:
        image: what it runs in.
        container: what its launcher is told.
        prepare: the container that installs a router's wheel beforehand, None without.
        port: the one that clients use.
    """
    volumes, places = _launch_volumes(container)
    volumes.append({"name": "temporary", "emptyDir": {}})
    places.append({"name": "temporary", "mountPath": "/tmp"})  # noqa: S108 - of this pod alone
    binds_low_port = port < FIRST_FREE_PORT
    capabilities = ["NET_BIND_SERVICE"] if binds_low_port else []
    if prepare is not None:
        volumes.append({"name": "router", "emptyDir": {}})
        places.append({"name": "router", "mountPath": str(prepare["folder"])})
    spec = _pod(
        container,
        {
            "name": "router",
            "image": image,
            "command": _RUN,
            "resources": {"requests": ROUTER_RESERVED},
            "securityContext": {**_closed(capabilities), "readOnlyRootFilesystem": True},
            "volumeMounts": places,
            "startupProbe": _probe("started", limit_s=LOAD_S + WAIT_S),
            "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": PROBE_EVERY_S},
        },
        volumes,
    )
    if not binds_low_port:
        own = int(STRANGER)
        user = {"runAsUser": own, "runAsGroup": own, "runAsNonRoot": True}
        spec["securityContext"] = {"seccompProfile": FILTERED, **user}
    if prepare is not None:
        spec["initContainers"] = [
            {
                "name": "install",
                "image": image,
                "command": prepare["command"],
                "securityContext": _closed(),
                "volumeMounts": [places[-1]],
            }
        ]
    return spec


def node_tolerations(access: PodAccess) -> list[Document]:
    """What pods of a stack tolerate of the nodes that carry its accelerator."""
    return [{"key": access.resource, "operator": "Exists", "effect": TOLERATED_EFFECT}]


def domain_claim(stack: str) -> str:
    """The claim template that the stack's ComputeDomain makes."""
    return f"{stack}-nvlink"


def _pod(container: Container, own: Document, volumes: Sequence[Document]) -> Document:
    """What every pod of ours has; `own` is the rest of its container."""
    return {
        # a service called vllm would give its pods VLLM_PORT, from which vLLM takes every port
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": GRACE_S,
        # of every container, those that a cluster's webhooks add included; one that needs more says so itself
        "securityContext": {"seccompProfile": FILTERED},
        "containers": [{**own, "env": _environment(container)}],
        "volumes": list(volumes),
    }


def _closed(capabilities: Sequence[str] = (), options: Sequence[str] = ()) -> Document:
    """What a container may do: these capabilities, and what its pod's seccomp profile lets through.

    Args:
        capabilities: all that it keeps.
        options: of `docker run --security-opt`, as its accelerator asks for them.
    """
    kept = {"add": list(capabilities)} if capabilities else {}
    is_open = "seccomp=unconfined" in options
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], **kept},
        **({"seccompProfile": {"type": "Unconfined"}} if is_open else {}),
    }


def _environment(container: Container) -> list[Document]:
    """The pod's address, the worker's index and secrets; what processes get is in the launcher's document."""
    found: list[Document] = [
        {"name": POD_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    ]
    for name, label in (
        ("MOE_GROUP_INDEX", GROUP_INDEX_LABEL),
        ("MOE_WORKER_INDEX", WORKER_INDEX_LABEL),
    ):
        told: Document = {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}
        found.append({"name": name, **(told if container.index is None else {"value": "0"})})
    for credential in container.credentials:
        if credential.holds == "path":
            value: Document = {"value": f"{CONTAINER_SECRETS}/{credential.name}"}
        else:
            key = {"name": container.secret, "key": credential.name}
            value = {"valueFrom": {"secretKeyRef": key}}
        found.append({"name": credential.variable, **value})
    return found


def _limits(node: Node, cluster: ClusterFacts) -> dict[str, str]:
    limits = {pod_access(node.accelerator).resource: str(node.accelerator.devices_per_host)}
    if node.spans_hosts:
        limits.update({name: str(count) for name, count in cluster.network.items()})
        if cluster.huge_pages_mib:
            limits["hugepages-2Mi"] = f"{cluster.huge_pages_mib}Mi"
    return limits


def _volumes(
    plan: Plan, cluster: ClusterFacts, container: Container, mounts: Sequence[Mount]
) -> tuple[list[Document], list[Document]]:
    """Volumes of an engine's pod, and where they are mounted."""
    volumes, places = _launch_volumes(container)
    volumes += [
        {"name": "weights", **_weights(plan, cluster.weights)},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": SHARED_MEMORY}},
    ]
    places += [
        {"name": "weights", "mountPath": plan.weights_path, "readOnly": True},
        {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108 - where NCCL and engines look
    ]
    if any(credential.holds == "path" for credential in container.credentials):
        volumes.append({"name": "secrets", "secret": {"secretName": container.secret}})
        places.append({"name": "secrets", "mountPath": CONTAINER_SECRETS, "readOnly": True})
    for number, mount in enumerate({mount.target: mount for mount in mounts}.values()):
        volumes.append({"name": f"node-{number}", "hostPath": {"path": mount.source.rstrip("/")}})
        place: Document = {"name": f"node-{number}", "mountPath": mount.target.rstrip("/")}
        places.append({**place, "readOnly": mount.read_only})
    return volumes, places


def _launch_volumes(container: Container) -> tuple[list[Document], list[Document]]:
    parts = [{"configMap": {"name": each}} for each in (container.launcher, container.launch)]
    launch: Document = {"name": "launch", "projected": {"sources": parts}}
    return [launch], [{"name": "launch", "mountPath": LAUNCHER_FOLDER, "readOnly": True}]


def _weights(plan: Plan, weights: WeightsVolume) -> Mapping[str, object]:
    if weights.copy is not None:
        return {"hostPath": {"path": weights.copy.node_folder, "type": "DirectoryOrCreate"}}
    if weights.kind == "node":
        return {"hostPath": {"path": plan.weights_path, "type": "Directory"}}
    name = weights.claim if weights.kind == "claim" else f"{plan.stack}-{WEIGHTS_CLAIM}"
    return {"persistentVolumeClaim": {"claimName": name, "readOnly": True}}


def _probe(operation: str, *, limit_s: int) -> Document:
    return {
        "exec": {"command": ["python3", LAUNCHER, operation, LAUNCH_DOCUMENT]},
        "periodSeconds": PROBE_EVERY_S,
        "timeoutSeconds": PROBE_LIMIT_S,
        "failureThreshold": limit_s // PROBE_EVERY_S,
    }


def _same_domain(stack: str, label: str, *, is_exclusive: bool) -> Document:
    """All pods of a stack on nodes of one domain, which the first one chooses; alone there, where it is so meant."""
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    term = {"topologyKey": label, "labelSelector": {"matchLabels": domain_labels(stack)}}
    found: Document = {"podAffinity": {rule: [term]}}
    if is_exclusive:
        engines = {**stack_labels(stack), **domain_labels(stack)}
        own = engines.pop("app.kubernetes.io/instance")
        others = [{"key": "app.kubernetes.io/instance", "operator": "NotIn", "values": [own]}]
        selector = {"matchLabels": engines, "matchExpressions": others}
        away = {"topologyKey": label, "labelSelector": selector, "namespaceSelector": {}}
        found["podAntiAffinity"] = {rule: [away]}
    return found


def domain_labels(stack: str) -> dict[str, str]:
    """Labels of the pods with engines of a stack."""
    return {"app.kubernetes.io/instance": stack, "app.kubernetes.io/component": "engine"}
