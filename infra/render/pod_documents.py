"""A plan as Kubernetes objects: everything of one stack in one namespace, in the order in which it is made.

Sources: leaderworkerset.x-k8s.io/v1 of kubernetes-sigs/lws v0.9.0; resource.nvidia.com/v1beta1 ComputeDomain of the
NVIDIA DRA driver; fsx.csi.aws.com, static provisioning.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from infra.catalog.load import Catalog
from infra.catalog.schema import RouterRelease
from infra.engines.credentials import credentials_of
from infra.errors import StackError
from infra.inventory.pods import workload_name
from infra.plan.endpoints import Endpoints, read_endpoints
from infra.plan.process import Plan, Process
from infra.render.cluster_facts import ClusterFacts, LustreVolume
from infra.render.host_state import router_release, runnable_image
from infra.render.pod_processes import (
    WAIT_S,
    Document,
    group_document,
    group_hosts,
    router_document,
    router_environment,
)
from infra.render.pod_template import (
    LOAD_S,
    WEIGHTS_CLAIM,
    Container,
    Node,
    domain_claim,
    domain_labels,
    engine_pod,
    pod_access,
    router_pod,
)

LWS_API = "leaderworkerset.x-k8s.io/v1"
# What etcd takes of one object (kubernetes.io, ConfigMap: 1 MiB), less some for metadata.
MAX_CONFIG_BYTES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PodObject:
    """One object of the API.

    Args:
        name: stable, while `metadata.name` may follow the content.
    """

    name: str
    document: Document

    @property
    def kind(self) -> str:
        """Its kind."""
        return str(self.document["kind"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stack:
    """What all objects of one stack are made from."""

    plan: Plan
    cluster: ClusterFacts
    catalog: Catalog
    launcher: str
    endpoints: Endpoints

    def metadata(self, name: str, labels: Mapping[str, str] | None = None) -> Document:
        """Metadata of an object, and of what others know it by."""
        return {
            "name": name,
            "namespace": self.cluster.namespace,
            "labels": {**stack_labels(self.plan.stack), **(labels or {})},
        }


def stack_labels(stack: str) -> dict[str, str]:
    """Labels of every object of a stack."""
    return {"app.kubernetes.io/instance": stack, "app.kubernetes.io/managed-by": "moe-infra"}


def secret_name(stack: str) -> str:
    """The Secret with what a stack declares under `secrets`."""
    return f"{stack}-secrets"


def pod_documents(
    plan: Plan, *, cluster: ClusterFacts, catalog: Catalog, launcher: str
) -> tuple[PodObject, ...]:
    """Every object of a stack but its namespace and its Secret, whose values no document holds.

    Args:
        plan: compiled for pods.
        cluster: facts of the cluster.
        catalog: devices and routers.
        launcher: text of `infra/agent/pod_launch.py`.

    Raises:
        StackError: an object would be too large, or the catalogue does not know how pods get a device.
    """
    stack = _Stack(
        plan=plan,
        cluster=cluster,
        catalog=catalog,
        launcher=launcher,
        endpoints=read_endpoints(plan, catalog),
    )
    groups = list(dict.fromkeys(p.group for p in plan.processes if p.kind == "engine"))
    found = [*_weights(stack), *_domain(stack)]
    for group in groups:
        found += _group(stack, group)
    for process in plan.processes:
        if process.kind == "router":
            found += _router(stack, process)
    return (*found, *_clients(stack))


def _group(stack: _Stack, group: str) -> Iterable[PodObject]:
    """The LeaderWorkerSet of one replica, what its launcher is told, and its protection."""
    plan, hosts = stack.plan, group_hosts(stack.plan, group)
    name = workload_name(plan.stack, group)
    launch = _launch_map(stack, name, group_document(plan, group, stack.endpoints))
    accelerator = stack.catalog.accelerator(plan.host(hosts[0]).accelerator)
    members = [process for process in plan.processes if process.group == group]
    container = Container(
        launch=_name_of(launch),
        index=None,
        credentials=credentials_of(plan.engine.name, plan.secrets),
        secret=secret_name(plan.stack),
    )
    mounts = [mount for process in members for mount in process.mounts]
    node = Node(
        accelerator=accelerator,
        mounts=[*mounts, *accelerator.container.mounts],
        spans_hosts=_spans_hosts(plan),
    )
    pod = engine_pod(plan, stack.cluster, node, container)
    role = group.replace("/", "-")
    labels = {**stack_labels(plan.stack), **domain_labels(plan.stack), "moe-infra/group": role}
    spec = {
        "replicas": 1,
        "startupPolicy": "LeaderCreated",
        "rolloutStrategy": {"type": "RollingUpdate"},
        "leaderWorkerTemplate": {
            "size": len(hosts),
            "restartPolicy": "RecreateGroupOnPodRestart",
            "workerTemplate": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    yield launch
    yield _object(f"{role}", LWS_API, "LeaderWorkerSet", stack.metadata(name, labels), spec)
    selector = {"matchLabels": {"leaderworkerset.sigs.k8s.io/name": name}}
    budget = {"minAvailable": len(hosts), "selector": selector}
    kind = "PodDisruptionBudget"
    yield _object(f"{role}-budget", "policy/v1", kind, stack.metadata(name, labels), budget)


def _router(stack: _Stack, process: Process) -> Iterable[PodObject]:
    plan, release = stack.plan, router_release(process, stack.catalog)
    name = plan.host(process.host).address
    launch = _launch_map(stack, name, router_document(plan, process, stack.endpoints, release))
    container = Container(
        launch=_name_of(launch),
        index=0,
        credentials=credentials_of(release.id, plan.secrets),
        secret=secret_name(plan.stack),
    )
    pod = router_pod(
        runnable_image(plan.engine.image),
        container,
        prepare=_installation(release),
        port=_port(process),
    )
    labels = _router_labels(plan.stack)
    spec = {
        "replicas": 1,
        "progressDeadlineSeconds": LOAD_S + WAIT_S,
        # two routers would count requests apart, and the old one would go on sending
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": {**stack_labels(plan.stack), **labels}}, "spec": pod},
    }
    yield launch
    yield _object("router", "apps/v1", "Deployment", stack.metadata(name, labels), spec)


def _installation(release: RouterRelease) -> Document | None:
    """How a router's wheel gets beside the engine's image: the environment that hosts have, made as the pod starts."""
    folder = router_environment(release)
    if folder is None:
        return None
    script = f"python3 -m venv {folder} && {folder}/bin/pip install {release.package}"
    return {"folder": folder, "command": ["/bin/sh", "-c", script]}


def _clients(stack: _Stack) -> Iterable[PodObject]:
    """The service that clients use: the router's, or the only endpoint's."""
    plan = stack.plan
    router = next((p for p in plan.processes if p.kind == "router"), None)
    if router is not None:
        name, port, labels = (
            plan.host(router.host).address,
            _port(router),
            _router_labels(plan.stack),
        )
    else:
        first = next(p for p in plan.processes if p.endpoint is not None)
        name, port = f"{plan.stack}-endpoint", _port(first)
        labels = {
            "leaderworkerset.sigs.k8s.io/name": workload_name(plan.stack, first.group),
            "leaderworkerset.sigs.k8s.io/worker-index": "0",
        }
    ports = [{"name": "http", "port": port, "targetPort": port}]
    spec = {"type": "ClusterIP", "selector": labels, "ports": ports}
    yield _object("clients", "v1", "Service", stack.metadata(name), spec)


def _weights(stack: _Stack) -> Iterable[PodObject]:
    """A volume and a claim for weights on FSx for Lustre; other kinds exist already."""
    lustre, stack_name = stack.cluster.weights.lustre, stack.plan.stack
    if lustre is None:
        return
    name = f"{stack_name}-{WEIGHTS_CLAIM}"
    metadata = stack.metadata(name)
    volume = {key: value for key, value in metadata.items() if key != "namespace"}
    size = {"storage": f"{lustre.capacity_gib}Gi"}
    spec = {
        "capacity": size,
        "accessModes": ["ReadOnlyMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
        "mountOptions": ["flock"],
        "csi": _lustre_driver(lustre),
        "claimRef": {"namespace": stack.cluster.namespace, "name": name},
    }
    yield _object("weights", "v1", "PersistentVolume", volume, spec)
    claim = {
        "accessModes": ["ReadOnlyMany"],
        "storageClassName": "",
        "volumeName": name,
        "resources": {"requests": size},
    }
    yield _object("weights-claim", "v1", "PersistentVolumeClaim", metadata, claim)


def _lustre_driver(lustre: LustreVolume) -> Document:
    return {
        "driver": "fsx.csi.aws.com",
        "volumeHandle": lustre.file_system_id,
        "volumeAttributes": {"dnsname": lustre.dns_name, "mountname": lustre.mount_name},
    }


def _domain(stack: _Stack) -> Iterable[PodObject]:
    """The domain in which all pods' devices share memory, where the accelerator has one that spans hosts."""
    plan = stack.plan
    accelerator = stack.catalog.accelerator(plan.hosts[0].accelerator)
    if pod_access(accelerator).domain_label is None or not _spans_hosts(plan):
        return
    # numNodes is deprecated and 0 by default: peers' pods are waited for by the launcher
    name = domain_claim(plan.stack)
    channel = {"resourceClaimTemplate": {"name": name}, "allocationMode": "Single"}
    spec = {"numNodes": 0, "channel": channel}
    api = "resource.nvidia.com/v1beta1"
    yield _object("nvlink-domain", api, "ComputeDomain", stack.metadata(name), spec)


def _launch_map(stack: _Stack, name: str, told: Mapping[str, object]) -> PodObject:
    """The launcher and its document, under a name that follows the content: another command makes other pods.

    Raises:
        StackError: it is larger than an object may be.
    """
    data = {"launch.py": stack.launcher, "processes.json": json.dumps(told, indent=1) + "\n"}
    size = sum(len(text.encode()) for text in data.values())
    if size > MAX_CONFIG_BYTES:
        what = f"The commands of {told['group']} take {size} bytes; a ConfigMap holds {MAX_CONFIG_BYTES}."
        raise StackError(f"stack {stack.plan.stack}", what, "Make the group smaller.")
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:8]
    return PodObject(
        name=f"{str(told['group']).replace('/', '-')}-launch",
        document={
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": stack.metadata(f"{name}-{digest}"),
            "immutable": True,
            "data": data,
        },
    )


def _object(
    name: str, api: str, kind: str, metadata: Document, spec: Mapping[str, object]
) -> PodObject:
    document: Document = {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": dict(spec)}
    return PodObject(name=name, document=document)


def _name_of(found: PodObject) -> str:
    metadata = found.document["metadata"]
    return str(metadata["name"]) if isinstance(metadata, dict) else ""


def _router_labels(stack: str) -> dict[str, str]:
    return {"app.kubernetes.io/instance": stack, "app.kubernetes.io/component": "router"}


def _port(process: Process) -> int:
    return next(bind.port for bind in process.binds if bind.name == "http")


def _spans_hosts(plan: Plan) -> bool:
    return len({p.host for p in plan.processes if p.kind == "engine"}) > 1
