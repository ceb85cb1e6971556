"""The edge in a cluster: a Deployment of HAProxy's own image, what it reads, and who may dial behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from infra.engines.haproxy import (
    CHECK,
    CONFIG,
    RELOAD_SIGNAL,
    SECRETS_VARIABLE,
    write_config,
)
from infra.plan.process import Plan, Process
from infra.render.container import STRANGER
from infra.render.edge_files import SECRET_FILES, edge_credentials, edge_front
from infra.render.pod_objects import (
    PodObject,
    PodStack,
    hashed_map,
    make_object,
    part_labels,
    secret_name,
    stack_labels,
)
from infra.render.pod_processes import Document
from infra.render.pod_template import FILTERED

# HAProxy's own, of the branch that was tried. Source: docker-library/official-images, library/haproxy at 37079fb3
# (2026-08-21), has the tag 2.6.32, for amd64 and arm64 among others; checked 2026-11-26.
IMAGE = "docker.io/library/haproxy:2.6.32"
FOLDER = "/etc/moe-infra"
SECRETS_FOLDER = "/run/secrets/edge"
RESERVED = {"cpu": "2", "memory": "2Gi"}
READY_S = 5
# How soon other keys or another certificate are read, once the kubelet has put them into the pod.
LOOK_S = 5
# Streams end by themselves; asked for its end while it reads itself anew, the master would not hear it once.
# The kubelet leads a link to a new folder when a Secret changes (kubernetes.io, ConfigMap: mounted ones are updated).
_SCRIPT = f"""\
cd {FOLDER}
seen=$(readlink {SECRETS_FOLDER}/..data)
"$@" & edge=$!
ending=
trap 'ending=yes' TERM INT
while kill -0 $edge 2>/dev/null; do
  test -z "$ending" || kill -USR1 $edge
  sleep {LOOK_S} & wait $!
  now=$(readlink {SECRETS_FOLDER}/..data)
  if test "$now" != "$seen" && {" ".join(CHECK)}; then
    seen=$now
    kill -{RELOAD_SIGNAL.removeprefix("SIG")} $edge
  fi
done
wait $edge
"""


def edge_objects(stack: PodStack, edge: Process, serving: PodObject) -> Iterable[PodObject]:
    """The edge's objects but the clients' service.

    Args:
        stack: whose.
        edge: of its plan.
        serving: the service of the router, or of the only endpoint.
    """
    plan, name = stack.plan, stack.plan.host(edge.host).address
    front = replace(edge_front(plan, edge), behind=f"{serving.called}:{edge.connects[0].port}")
    about = "The edge's configuration"
    config = hashed_map("edge-config", stack.metadata(name), {CONFIG: write_config(front)}, about)
    labels = edge_labels(plan.stack)
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {
                "labels": {**stack_labels(plan.stack), **part_labels("edge", 0), **labels}
            },
            "spec": _pod(plan, edge, config.called),
        },
    }
    metadata = stack.metadata(name, {**part_labels("edge", 0), **labels})
    yield config
    yield make_object("edge", "apps/v1", "Deployment", metadata, spec)
    yield _policy(stack, serving)


def edge_labels(stack: str) -> dict[str, str]:
    """Labels of the edge's pod, by which its service finds it."""
    return {"app.kubernetes.io/instance": stack, "app.kubernetes.io/component": "edge"}


def _pod(plan: Plan, edge: Process, config: str) -> Document:
    """A pod that is nobody's, and reads its own secrets alone."""
    own, port = int(STRANGER), edge.binds[0].port
    taken = [credential for credential in edge_credentials(plan) if credential.holds == "file"]
    items = [{"key": each.name, "path": SECRET_FILES[each.name]} for each in taken]
    environment: list[Document] = [{"name": SECRETS_VARIABLE, "value": SECRETS_FOLDER}]
    for each in edge_credentials(plan):
        if each.holds == "value":
            key = {"name": secret_name(plan.stack), "key": each.name}
            environment.append({"name": each.variable, "valueFrom": {"secretKeyRef": key}})
    secret = {"secretName": secret_name(plan.stack), "defaultMode": 0o440, "items": items}
    capabilities: Mapping[str, object] = (
        {"add": ["NET_BIND_SERVICE"]} if edge.binds_low_port else {}
    )
    return {
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsUser": own,
            "runAsGroup": own,
            "runAsNonRoot": True,
            "fsGroup": own,
            "seccompProfile": FILTERED,
            # ports below 1024 without being root
            **({"sysctls": [_LOW_PORTS]} if edge.binds_low_port else {}),
        },
        "containers": [
            {
                "name": "edge",
                "image": IMAGE,
                "command": ["/bin/sh", "-c", _SCRIPT, "sh", *edge.argv],
                "env": environment,
                "resources": {"requests": RESERVED},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"], **capabilities},
                    "readOnlyRootFilesystem": True,
                },
                "volumeMounts": [
                    {"name": "config", "mountPath": FOLDER, "readOnly": True},
                    {"name": "secrets", "mountPath": SECRETS_FOLDER, "readOnly": True},
                ],
                "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": READY_S},
            }
        ],
        "volumes": [
            {"name": "config", "configMap": {"name": config}},
            {"name": "secrets", "secret": secret},
        ],
    }


# A safe one of the pod's own network (kubernetes.io, sysctl-cluster).
_LOW_PORTS = {"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}


def _policy(stack: PodStack, serving: PodObject) -> PodObject:
    """Nobody but the stack's own pods dials what is behind the edge, where the cluster's network knows policies."""
    spec = serving.document["spec"]
    selector = spec["selector"] if isinstance(spec, dict) else {}
    own = {"app.kubernetes.io/instance": stack.plan.stack}
    rule = {"from": [{"podSelector": {"matchLabels": own}}]}
    name = f"{stack.plan.stack}-behind-edge"
    wanted = {
        "podSelector": {"matchLabels": dict(selector)},
        "policyTypes": ["Ingress"],
        "ingress": [rule],
    }
    return make_object(
        "behind-edge", "networking.k8s.io/v1", "NetworkPolicy", stack.metadata(name), wanted
    )
