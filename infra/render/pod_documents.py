"""A plan as Kubernetes objects: everything of one stack in one namespace, in the order in which it is made.

Sources: resource.nvidia.com/v1beta1 ComputeDomain of the NVIDIA DRA driver; fsx.csi.aws.com, static provisioning.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from infra.catalog.load import Catalog
from infra.catalog.router_release import RouterRelease
from infra.engines.credentials import credentials_of
from infra.inventory.pods import workload_name
from infra.plan.endpoints import read_endpoints
from infra.plan.process import Plan, Process
from infra.render.cluster_facts import ClusterFacts, LustreVolume
from infra.render.pod_edge import edge_labels, edge_objects
from infra.render.pod_objects import (
    PodObject,
    PodStack,
    hashed_map,
    launcher_map,
    make_object,
    part_labels,
    refuse_large,
    secret_name,
    stack_labels,
)
from infra.render.pod_processes import (
    WAIT_S,
    Document,
    router_document,
    router_environment,
)
from infra.render.pod_sets import budget, replica_sets, unit_set
from infra.render.pod_template import (
    LOAD_S,
    WEIGHTS_CLAIM,
    Container,
    domain_claim,
    pod_access,
    router_pod,
)
from infra.render.process_launch import router_release, runnable_image
from infra.spec.stack import Workload

# The object behind the port that clients use.
CLIENTS = "clients"


def pod_documents(
    plan: Plan, *, workload: Workload, cluster: ClusterFacts, catalog: Catalog, launcher: str
) -> tuple[PodObject, ...]:
    """Every object of a stack but its namespace and its Secret, whose values no document holds.

    Args:
        plan: compiled for pods of that workload.
        workload: what carries the groups.
        cluster: facts of the cluster.
        catalog: devices and routers.
        launcher: text of `infra/agent/pod_launch.py`.

    Raises:
        StackError: an object would be too large, or the catalogue does not know how pods get a device.
    """
    stack = PodStack(
        plan=plan,
        workload=workload,
        cluster=cluster,
        catalog=catalog,
        launcher=launcher,
        endpoints=read_endpoints(plan, catalog),
    )
    found = [*_service_account(stack), *_weights(stack), *_domain(stack), launcher_map(stack)]
    found += [budget(stack)]
    found += unit_set(stack) if stack.is_unit else replica_sets(stack)
    for process in plan.processes:
        if process.kind == "router":
            found += _router(stack, process)
    edge = next((p for p in plan.processes if p.kind == "edge"), None)
    if edge is None:
        found.append(_serving(stack, CLIENTS))
    else:
        behind = _serving(stack, "behind-edge-service")
        found += [behind, *edge_objects(stack, edge, behind), _edge_service(stack, edge)]
    refuse_large(found)
    return tuple(found)


def _router(stack: PodStack, process: Process) -> Iterable[PodObject]:
    plan, release = stack.plan, router_release(process, stack.catalog)
    name = plan.host(process.host).address
    told = router_document(plan, process, stack.endpoints, release)
    data = {"processes.json": json.dumps(told, indent=1) + "\n"}
    launch = hashed_map("router-0-launch", stack.metadata(name), data, "The router's commands")
    container = Container(
        launcher=launcher_map(stack).called,
        launch=launch.called,
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
        "template": {
            "metadata": {
                "labels": {**stack_labels(plan.stack), **part_labels("router", 0), **labels}
            },
            "spec": pod,
        },
    }
    metadata = stack.metadata(name, {**part_labels("router", 0), **labels})
    yield launch
    yield make_object("router", "apps/v1", "Deployment", metadata, spec)


def _installation(release: RouterRelease) -> Document | None:
    """How a router's wheel gets beside the engine's image: the environment that hosts have, made as the pod starts."""
    folder = router_environment(release)
    if folder is None:
        return None
    script = f"python3 -m venv {folder} && {folder}/bin/pip install {release.package}"
    return {"folder": folder, "command": ["/bin/sh", "-c", script]}


def _edge_service(stack: PodStack, edge: Process) -> PodObject:
    """The service that clients use before an edge."""
    port = _port(edge)
    ports = [{"name": "http", "port": port, "targetPort": port}]
    spec = {"type": "ClusterIP", "selector": edge_labels(stack.plan.stack), "ports": ports}
    metadata = stack.metadata(stack.plan.host(edge.host).address)
    return make_object(CLIENTS, "v1", "Service", metadata, spec)


def _serving(stack: PodStack, called: str) -> PodObject:
    """The service of the router, or of the only endpoint."""
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
    return make_object(called, "v1", "Service", stack.metadata(name), spec)


def _service_account(stack: PodStack) -> Iterable[PodObject]:
    """What pods with engines are in the cloud, where they are anything."""
    name = stack.cluster.service_account
    if name:
        metadata = stack.metadata(name)
        document: Document = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
        yield PodObject(name="engines", document=document)


def _weights(stack: PodStack) -> Iterable[PodObject]:
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
    yield make_object("weights", "v1", "PersistentVolume", volume, spec)
    claim = {
        "accessModes": ["ReadOnlyMany"],
        "storageClassName": "",
        "volumeName": name,
        "resources": {"requests": size},
    }
    yield make_object("weights-claim", "v1", "PersistentVolumeClaim", metadata, claim)


def _lustre_driver(lustre: LustreVolume) -> Document:
    return {
        "driver": "fsx.csi.aws.com",
        "volumeHandle": lustre.file_system_id,
        "volumeAttributes": {"dnsname": lustre.dns_name, "mountname": lustre.mount_name},
    }


def _domain(stack: PodStack) -> Iterable[PodObject]:
    """The domain in which all pods' devices share memory, where the accelerator has one that spans hosts."""
    plan = stack.plan
    accelerator = stack.catalog.accelerator(plan.hosts[0].accelerator)
    if pod_access(accelerator).domain_label is None or not stack.spans_hosts:
        return
    # numNodes is deprecated and 0 by default: peers' pods are waited for by the launcher
    name = domain_claim(plan.stack)
    channel = {"resourceClaimTemplate": {"name": name}, "allocationMode": "Single"}
    spec = {"numNodes": 0, "channel": channel}
    api = "resource.nvidia.com/v1beta1"
    yield make_object("nvlink-domain", api, "ComputeDomain", stack.metadata(name), spec)


def _router_labels(stack: str) -> dict[str, str]:
    return {"app.kubernetes.io/instance": stack, "app.kubernetes.io/component": "router"}


def _port(process: Process) -> int:
    return next(bind.port for bind in process.binds if bind.name == "http")
