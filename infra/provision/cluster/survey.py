"""What a Kubernetes cluster has, asked through kubectl: it knows every way in which people log in to clusters."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from infra.errors import HostsFailed, PrerequisiteError
from infra.provision.cluster.config import ClusterAccess
from infra.render.cluster_facts import ClusterFacts

ANSWER_S = 30
KUBECTL_S = 20
_NOT_THERE = "(NotFound)"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_CLAIMS = "/apis/resource.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """What a node wants to see tolerated; `effect` is NoSchedule, NoExecute or PreferNoSchedule."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """As kubectl writes it."""
        return (
            f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundNode:
    """A node: its labels, what it can give to pods by resource, whether it takes new ones, and its taints.

    Args:
        kubelet: version of its kubelet as that says it (`v1.34.2-eks-3025e55`), "" where it says none.
    """

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, str]
    takes_pods: bool
    taints: tuple[Taint, ...]
    kubelet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCluster:
    """A cluster as a stack finds it.

    Args:
        definitions: names of the custom resource definitions that were asked for and are there.
        webhook_groups: API groups whose objects some mutating webhook completes.
        knows_claims: whether pods can claim resources (dynamic resource allocation).
        nodes: those that the stack's selector chooses.
        namespace: labels of the stack's namespace, None where there is none.
        is_ending: whether that namespace is being deleted.
        has_claim: whether the claim with the weights is there; None when it was not asked for.
    """

    definitions: frozenset[str]
    webhook_groups: frozenset[str]
    knows_claims: bool
    nodes: tuple[FoundNode, ...]
    namespace: Mapping[str, str] | None
    is_ending: bool
    has_claim: bool | None


def survey_cluster(
    access: ClusterAccess, facts: ClusterFacts, definitions: Iterable[str]
) -> FoundCluster:
    """Ask a cluster for all that is judged before anything is made.

    Raises:
        PrerequisiteError: there is no kubectl, or the cluster does not answer or does not let us look.
    """
    selector = ",".join(f"{name}={value}" for name, value in facts.node_selector.items())
    webhooks = _ask(access, _WEBHOOKS) or {}
    nodes = _ask(access, f"/api/v1/nodes?labelSelector={quote(selector)}") or {}
    namespace = _ask(access, f"/api/v1/namespaces/{facts.namespace}")
    metadata = {} if namespace is None else namespace["metadata"]
    has_claim = None
    if facts.weights.kind == "claim":
        path = f"/api/v1/namespaces/{facts.namespace}/persistentvolumeclaims/{facts.weights.claim}"
        has_claim = _ask(access, path) is not None
    return FoundCluster(
        definitions=frozenset(
            name for name in definitions if _ask(access, f"{_DEFINITIONS}/{name}") is not None
        ),
        webhook_groups=frozenset(_groups(webhooks.get("items") or ())),
        knows_claims=_ask(access, _CLAIMS) is not None,
        nodes=tuple(map(_node, nodes.get("items") or ())),
        namespace=None if namespace is None else metadata.get("labels") or {},
        is_ending="deletionTimestamp" in metadata,
        has_claim=has_claim,
    )


def _groups(configurations: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for configuration in configurations:
        for webhook in configuration.get("webhooks") or ():
            for rule in webhook.get("rules") or ():
                yield from rule.get("apiGroups") or ()


def _node(document: Mapping[str, Any]) -> FoundNode:
    metadata, status = document["metadata"], document.get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    spec = document.get("spec") or {}
    is_cordoned = bool(spec.get("unschedulable"))
    return FoundNode(
        name=metadata["name"],
        labels=metadata.get("labels") or {},
        allocatable=status.get("allocatable") or {},
        takes_pods=not is_cordoned and conditions.get("Ready") == "True",
        taints=tuple(
            Taint(key=each["key"], value=each.get("value") or "", effect=each["effect"])
            for each in spec.get("taints") or ()
        ),
        kubelet=(status.get("nodeInfo") or {}).get("kubeletVersion") or "",
    )


def _ask(access: ClusterAccess, path: str) -> dict[str, Any] | None:
    """An object of the API, None where there is none of that name."""
    words = ["kubectl", f"--context={access.context}", f"--request-timeout={KUBECTL_S}s"]
    if access.kubeconfig is not None:
        words.append(f"--kubeconfig={access.kubeconfig}")
    where = f"cluster {access.context}"
    try:
        done = subprocess.run(
            [*words, "get", "--raw", path],
            capture_output=True,
            text=True,
            check=False,
            timeout=ANSWER_S,
        )
    except FileNotFoundError as error:
        what = "There is no kubectl, through which the cluster is looked at."
        raise PrerequisiteError(
            where, what, "Install kubectl (kubernetes.io/docs/tasks/tools)."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise _silent(access, f"no answer in {ANSWER_S} s") from error
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        if _NOT_THERE in said:
            return None
        raise _silent(access, said)
    try:
        document = json.loads(done.stdout)
    except ValueError as error:
        raise HostsFailed(
            where, f"{path} is answered by no JSON.", "Is it a cluster's API?"
        ) from error
    return dict(document)


def _silent(access: ClusterAccess, said: str) -> PrerequisiteError:
    options = f"--context={access.context}"
    if access.kubeconfig is not None:
        options += f" --kubeconfig={access.kubeconfig}"
    return PrerequisiteError(
        f"cluster {access.context}",
        f"It does not answer: {said}",
        f"Try `kubectl {options} get nodes`; mend the kubeconfig, or choose another with "
        "`pulumi config set kubernetes_context` or `kubeconfig`. Nothing was created.",
    )
