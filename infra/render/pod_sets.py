"""The engines of a stack: a LeaderWorkerSet for each replica, or the prefill/decode unit as one DisaggregatedSet.

Sources: leaderworkerset.x-k8s.io/v1 and disaggregatedset.x-k8s.io/v1 of kubernetes-sigs/lws v0.9.0. That release's
DisaggregatedSet has no `placementPolicy` (v0.10 has): where a unit goes is said in its pods, which both understand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from infra.engines.credentials import credentials_of
from infra.inventory.pods import host_service, unit_name, workload_name
from infra.render.compile_cache import cache_variables
from infra.render.pod_objects import (
    PodObject,
    PodStack,
    hashed_map,
    launcher_map,
    make_object,
    part_labels,
    secret_name,
    stack_labels,
)
from infra.render.pod_processes import Document, group_hosts, groups_document
from infra.render.pod_template import (
    GROUP_INDEX_LABEL,
    WORKER_INDEX_LABEL,
    Container,
    Node,
    domain_labels,
    engine_pod,
)
from infra.render.reserved_ports import (
    RESERVED_PORTS_ID,
    hccl_ports_to_reserve,
    ports_to_reserve,
)

LWS_API = "leaderworkerset.x-k8s.io/v1"
UNIT_API = "disaggregatedset.x-k8s.io/v1"
UNIT_LABEL = "disaggregatedset.x-k8s.io/name"
UNIT_ROLE_LABEL = "disaggregatedset.x-k8s.io/role"


def replica_sets(stack: PodStack) -> Iterable[PodObject]:
    """For each replica: what its launcher is told, and its LeaderWorkerSet."""
    for group in _groups(stack):
        role, replica = group.split("/")
        place, name = f"{role}-{replica}", workload_name(stack.plan.stack, group)
        labels = {**part_labels(role, int(replica)), "moe-infra/group": place}
        launch = _launch_map(stack, place, name, [group])
        metadata = stack.metadata(name, {**domain_labels(stack.plan.stack), **labels})
        rollout = {"type": "RollingUpdate"}
        template = _template(stack, [group], launch.called, labels, is_exclusive=False)
        spec = {
            "replicas": 1,
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": rollout,
            "leaderWorkerTemplate": template,
        }
        yield launch
        yield make_object(place, LWS_API, "LeaderWorkerSet", metadata, spec)


def unit_set(stack: PodStack) -> Iterable[PodObject]:
    """One DisaggregatedSet for all replicas, and a service for each host.

    Its sets are called by a revision, so each host is found by the labels of its pod.
    """
    groups = _groups(stack)
    roles = list(dict.fromkeys(group.partition("/")[0] for group in groups))
    name = unit_name(stack.plan.stack, roles[0])
    metadata = stack.metadata(name, domain_labels(stack.plan.stack))
    listed: list[Document] = []
    for role in roles:
        own = [group for group in groups if group.partition("/")[0] == role]
        launch = _launch_map(stack, role, f"{name}-{role}", own)
        labels = part_labels(role, None)
        # all at once: nodes are taken whole, and a prefill of one revision never meets a decode of another
        counts = {"maxUnavailable": len(own), "maxSurge": 0}
        rollout = {"type": "RollingUpdate", "rollingUpdateConfiguration": counts}
        spec = {
            "replicas": len(own),
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": rollout,
            "leaderWorkerTemplate": _template(stack, own, launch.called, labels, is_exclusive=True),
        }
        listed.append(
            {
                "name": role,
                "metadata": {"labels": stack.metadata("", labels)["labels"]},
                "spec": spec,
            }
        )
        yield launch
        yield from _host_services(stack, own)
    yield make_object("unit", UNIT_API, "DisaggregatedSet", metadata, {"roles": listed})


def budget(stack: PodStack) -> PodObject:
    """No eviction takes a pod out of any group; one object for all of them, since none of them has a pod to spare."""
    hosts = {p.host for p in stack.plan.processes if p.kind == "engine"}
    spec = {
        "minAvailable": len(hosts),
        "selector": {"matchLabels": domain_labels(stack.plan.stack)},
    }
    metadata = stack.metadata(f"{stack.plan.stack}-engines", domain_labels(stack.plan.stack))
    return make_object("budget", "policy/v1", "PodDisruptionBudget", metadata, spec)


def sets_ports(found: PodObject) -> bool:
    """Whether an object's pods reserve ports in their network namespace."""
    return found.kind in ("LeaderWorkerSet", "DisaggregatedSet") and RESERVED_PORTS_ID in str(
        found.document
    )


def _groups(stack: PodStack) -> list[str]:
    return list(dict.fromkeys(p.group for p in stack.plan.processes if p.kind == "engine"))


def _launch_map(stack: PodStack, place: str, name: str, groups: Sequence[str]) -> PodObject:
    """What the launcher is told about the hosts of some groups."""
    told = groups_document(
        stack.plan, groups, stack.endpoints, stack.catalog, is_unit=stack.is_unit
    )
    data = {"processes.json": json.dumps(told, indent=1) + "\n"}
    about = f"The commands of {told['group']}"
    return hashed_map(f"{place}-launch", stack.metadata(name), data, about)


def _template(
    stack: PodStack,
    groups: Sequence[str],
    launch: str,
    labels: dict[str, str],
    *,
    is_exclusive: bool,
) -> Document:
    """How the pods of a set are made; groups of one set are alike but for the rows of their hosts."""
    plan, hosts = stack.plan, group_hosts(stack.plan, groups[0])
    accelerator = stack.catalog.accelerator(plan.host(hosts[0]).accelerator)
    members = [process for process in plan.processes if process.group in groups]
    container = Container(
        launcher=launcher_map(stack).called,
        launch=launch,
        index=None,
        credentials=credentials_of(plan.engine.name, plan.secrets),
        secret=secret_name(plan.stack),
    )
    ports = ports_to_reserve(members)
    if accelerator.vendor == "ascend":
        ports |= hccl_ports_to_reserve(members)
    mounts = [mount for process in members for mount in process.mounts]
    node = Node(
        accelerator=accelerator,
        mounts=[*mounts, *accelerator.container.mounts],
        spans_hosts=stack.spans_hosts,
        ports=ports,
        is_exclusive=is_exclusive,
        keeps_caches=any(cache_variables(plan, each, stack.catalog) for each in members),
    )
    own = {**stack_labels(plan.stack), **domain_labels(plan.stack), **labels}
    pod = engine_pod(plan, stack.cluster, node, container)
    return {
        "size": len(hosts),
        "restartPolicy": "RecreateGroupOnPodRestart",
        "workerTemplate": {"metadata": {"labels": own}, "spec": pod},
    }


def _host_services(stack: PodStack, groups: Sequence[str]) -> Iterable[PodObject]:
    """A service for each host of some groups; peers ask for it before any pod is ready."""
    plan = stack.plan
    for group in groups:
        role, replica = group.split("/")
        for index, host in enumerate(group_hosts(plan, group)):
            selector = {
                UNIT_LABEL: unit_name(plan.stack, role),
                UNIT_ROLE_LABEL: role,
                GROUP_INDEX_LABEL: replica,
                WORKER_INDEX_LABEL: str(index),
            }
            spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
            metadata = stack.metadata(
                host_service(plan.stack, host), part_labels(role, int(replica))
            )
            yield make_object(host, "v1", "Service", metadata, spec)
