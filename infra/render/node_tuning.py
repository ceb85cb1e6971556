"""Tuning of a cluster's nodes as objects: a DaemonSet that hands each node the agent and its state, again and again.

Sources: kubernetes.io, Pod Security Standards (privileged, hostPID); Using RBAC Authorization (a role of one object).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from infra.catalog.schema import PodAccess
from infra.render.cluster_facts import ClusterFacts
from infra.render.items import HostState
from infra.render.pod_objects import (
    PodObject,
    hashed_map,
    make_object,
    object_metadata,
    stack_labels,
)
from infra.render.pod_processes import Document
from infra.render.pod_template import node_tolerations

TuningMode = Literal["apply", "rollback"]
FOLDER = "/etc/moe-infra"
PROGRAM = f"{FOLDER}/tune.py"
COMPONENT = "node-tuning"
SCHEMA_VERSION = 1
# What changes on a node is found and mended within this time.
LOOK_EVERY_S = 300
# As `fab tune-hosts` waits for one host.
ROUND_S = 120
# One round may be under way when the order to end comes; another one brings everything back.
GRACE_S = 2 * (ROUND_S + 30)
PROBE_EVERY_S = 30
PROBE_LIMIT_S = 10
REQUESTS = {"cpu": "100m", "memory": "128Mi"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTuning:
    """What is made of a stack's tuning in a cluster.

    Args:
        state: of every node.
        mode: bring it about and keep it so, or bring back what was found.
        image: that the pods run in; it has a Python.
        access: how pods get the accelerator of the nodes.
        program: text of `infra/agent/node_tuning.py`.
        agent: the host agent as one program.
    """

    state: HostState
    mode: TuningMode
    image: str
    access: PodAccess
    program: str
    agent: str


def tuning_documents(tuning: NodeTuning, cluster: ClusterFacts) -> tuple[PodObject, ...]:
    """The DaemonSet, what it is told, and the right to see whether it is going.

    Raises:
        StackError: the agent is too large for an object.
    """
    stack = tuning.state.stack
    name = daemon_set_name(stack)
    labels = {"app.kubernetes.io/component": COMPONENT}
    metadata = object_metadata(stack, cluster, name, labels)
    told = _settings(tuning, cluster, name)
    settings = hashed_map(f"{COMPONENT}-settings", metadata, told, "The agent and the node's state")
    pod = _pod(tuning, cluster, settings.called)
    match = {**stack_labels(stack), **labels}
    spec = {
        "selector": {"matchLabels": match},
        # the next node is changed when the pod on this one is ready: a bad profile stops at the first
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
        "template": {"metadata": {"labels": match}, "spec": pod},
    }
    return (
        settings,
        *_rights(name, metadata),
        make_object(COMPONENT, "apps/v1", "DaemonSet", metadata, spec),
    )


def daemon_set_name(stack: str) -> str:
    """The DaemonSet that tunes the nodes of a stack."""
    return f"{stack}-{COMPONENT}"


def _settings(tuning: NodeTuning, cluster: ClusterFacts, name: str) -> dict[str, str]:
    """The pod's files: its program, the agent as it is carried to hosts, and what is asked of it."""
    state = tuning.state
    request = {
        "schema_version": SCHEMA_VERSION,
        "operation": "state",
        "mode": tuning.mode,
        "stack": state.stack,
        "release": state.release,
        "operator": f"{name} of {cluster.namespace}",
        "groups": ["tuning"],
        "withdraws": True,
        "items": []
        if tuning.mode == "rollback"
        else [item.as_document() for item in state.of_groups("tuning")],
        "diff": False,
        # nothing that needs a drained node: whose engines run here, nobody asks a DaemonSet
        "allow": [],
    }
    told = {
        "schema_version": SCHEMA_VERSION,
        "every_s": LOOK_EVERY_S,
        "limit_s": ROUND_S,
        "daemon_set": {"namespace": cluster.namespace, "name": name},
        "request": request,
    }
    return {
        "tune.py": tuning.program,
        "agent.py": tuning.agent,
        "tuning.json": json.dumps(told, indent=1) + "\n",
    }


def _pod(tuning: NodeTuning, cluster: ClusterFacts, settings: str) -> Document:
    name = daemon_set_name(tuning.state.stack)
    probe = {
        "exec": {"command": ["python3", PROGRAM, "ready", FOLDER]},
        "periodSeconds": PROBE_EVERY_S,
        "timeoutSeconds": PROBE_LIMIT_S,
        "failureThreshold": 1,
    }
    container = {
        "name": "agent",
        "image": tuning.image,
        "command": ["python3", PROGRAM, "run", FOLDER],
        "env": [
            {"name": "MOE_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "resources": {"requests": REQUESTS},
        # It enters the node's namespaces (SYS_ADMIN, SYS_CHROOT, SYS_PTRACE), loads modules (SYS_MODULE), writes
        # /proc/sys and /sys past AppArmor's and SELinux's profiles of containers, and the drivers' tools there open
        # their devices. No list of capabilities gives a container devices: this is the least that does.
        "securityContext": {"privileged": True, "runAsUser": 0, "readOnlyRootFilesystem": True},
        "readinessProbe": probe,
        "volumeMounts": [
            {"name": "settings", "mountPath": FOLDER, "readOnly": True},
            {"name": "temporary", "mountPath": "/tmp"},  # noqa: S108 - of this pod alone
        ],
    }
    return {
        "serviceAccountName": name,
        "hostPID": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "nodeSelector": dict(cluster.node_selector),
        "tolerations": node_tolerations(tuning.access),
        "containers": [container],
        "volumes": [
            {"name": "settings", "configMap": {"name": settings}},
            {"name": "temporary", "emptyDir": {}},
        ],
    }


def _rights(name: str, metadata: Document) -> tuple[PodObject, ...]:
    """An account that may see one DaemonSet: whether it is going decides whether nodes are taken back."""
    group = "rbac.authorization.k8s.io"
    rule = {
        "apiGroups": ["apps"],
        "resources": ["daemonsets"],
        "resourceNames": [name],
        "verbs": ["get"],
    }
    account: Document = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    role: Document = {
        "apiVersion": f"{group}/v1",
        "kind": "Role",
        "metadata": metadata,
        "rules": [rule],
    }
    binding: Document = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": metadata["namespace"]}],
    }
    return (
        PodObject(name=f"{COMPONENT}-account", document=account),
        PodObject(name=f"{COMPONENT}-right", document=role),
        PodObject(name=f"{COMPONENT}-grant", document=binding),
    )
