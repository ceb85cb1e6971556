"""What a cluster must have before anything of a stack is made in it; pure judgement of what a survey found."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from infra.catalog.load import Catalog
from infra.catalog.schema import Accelerator, PodAccess
from infra.checks.judge import judge_stack
from infra.errors import Problem
from infra.plan.process import Plan
from infra.provision.cluster.config import cluster_problem
from infra.provision.cluster.survey import FoundCluster, FoundNode, Taint
from infra.render.cluster_facts import ClusterFacts
from infra.render.pod_objects import stack_labels
from infra.render.pod_template import TOLERATED_EFFECT
from infra.spec.load import LoadedStack

# Rules of infra/checks/host_networks.py: what they judge, a cluster's own configuration tells.
OF_NETWORKS = ("efa-userspace", "efa-experts", "efa-devices-mounted")
LWS_GROUP = "leaderworkerset.x-k8s.io"
LWS_DEFINITION = f"leaderworkersets.{LWS_GROUP}"
UNIT_GROUP = "disaggregatedset.x-k8s.io"
UNIT_DEFINITION = f"disaggregatedsets.{UNIT_GROUP}"
DOMAIN_DEFINITION = "computedomains.resource.nvidia.com"
LWS_RELEASE = "v0.9.0"
_INSTALL_LWS = (
    "kubectl apply --server-side -f "
    f"https://github.com/kubernetes-sigs/lws/releases/download/{LWS_RELEASE}/manifests.yaml"
)
# Since then every kubelet lets pods set net.ipv4.ip_local_reserved_ports (pkg/kubelet/sysctl/safe_sysctls.go).
SAFE_SINCE = (1, 27)
HUGE_PAGES = "hugepages-2Mi"
ENFORCED = "pod-security.kubernetes.io/enforce"
# A namespace with this label is the operator's, and the stack may live in it.
LENT = "moe-infra/lent-to"
MAX_NAMED = 4
_HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDemand:
    """What a stack wants of a cluster's nodes.

    Args:
        num_hosts: pods with engines; each takes a node.
        needs_domain: whether all of them share memory over a fabric that spans hosts.
        is_unit: whether one DisaggregatedSet carries all groups.
        sets_ports: whether pods reserve ports in their own network namespace.
    """

    stack: str
    context: str
    accelerator: Accelerator
    num_hosts: int
    needs_domain: bool
    is_unit: bool
    sets_ports: bool


def judge_cluster(found: FoundCluster, facts: ClusterFacts, demand: NodeDemand) -> list[Problem]:
    """Everything that stands in the way of a stack."""
    return [
        *_workloads(found, demand),
        *_units(found, demand),
        *_domains(found, demand),
        *_nodes(found, facts, demand),
        *_kubelets(found, demand),
        *_namespace(found, facts, demand),
        *_admission(found, facts, demand),
        *_claim(found, facts, demand),
    ]


def judge_networks(
    plan: Plan, stack: LoadedStack, facts: ClusterFacts, catalog: Catalog
) -> list[Problem]:
    """What rules say of a stack once the cluster tells which networks its pods ask for."""
    asked = tuple(each.id for each in catalog.networks() if each.pod_resource in facts.network)
    if not asked:
        return []
    hosts = tuple(replace(host, networks=asked) for host in plan.hosts)
    judged = judge_stack(replace(plan, hosts=hosts), stack, catalog)
    return [problem for problem in judged if problem.rule in OF_NETWORKS]


def is_lent(found: FoundCluster, stack: str) -> bool:
    """Whether the namespace is the operator's own, lent to the stack: one that was made for it never is."""
    return _says_lent(found, stack) and not _is_own(found, stack)


def _says_lent(found: FoundCluster, stack: str) -> bool:
    return (found.namespace or {}).get(LENT) == stack


def _is_own(found: FoundCluster, stack: str) -> bool:
    """Whether the namespace was made for the stack."""
    return stack_labels(stack).items() <= (found.namespace or {}).items()


def _workloads(found: FoundCluster, demand: NodeDemand) -> Iterator[Problem]:
    """LeaderWorkerSet and its webhooks: a set made without their defaults makes its controller fail for ever."""
    if LWS_DEFINITION not in found.definitions:
        what = "The API server knows no LeaderWorkerSet, which runs every replica."
        yield _problem(demand, what, f"Type: {_INSTALL_LWS}")
    elif LWS_GROUP not in found.webhook_groups:
        what = (
            "LeaderWorkerSet is known, but none of its webhooks is there: its controller fails for ever on a set "
            "that they have not completed."
        )
        yield _problem(demand, what, f"Type: {_INSTALL_LWS}")


def _units(found: FoundCluster, demand: NodeDemand) -> Iterator[Problem]:
    """DisaggregatedSet comes with LeaderWorkerSet and its controller."""
    known = found.definitions
    if demand.is_unit and LWS_DEFINITION in known and UNIT_DEFINITION not in known:
        what = "The API server knows no DisaggregatedSet, which LeaderWorkerSet brings since v0.9."
        fix = f"Type: {_INSTALL_LWS}, or write kubernetes.workload: leader-worker-set"
        yield _problem(demand, what, fix)


def _domains(found: FoundCluster, demand: NodeDemand) -> Iterator[Problem]:
    if demand.needs_domain and not found.knows_claims:
        what = "The API server knows no resource.k8s.io: pods cannot claim their NVLink domain."
        yield _problem(demand, what, "Take a cluster of Kubernetes 1.34, or newer.")
    if demand.needs_domain and DOMAIN_DEFINITION not in found.definitions:
        what = (
            f"The API server knows no ComputeDomain, without which {demand.accelerator.id} pods of several hosts "
            "have no memory in common."
        )
        fix = (
            "Install NVIDIA's DRA driver: helm install dra-driver nvidia/nvidia-dra-driver-gpu --namespace "
            "nvidia-dra-driver-gpu --create-namespace --set resources.gpus.enabled=false"
        )
        yield _problem(demand, what, fix)


def _nodes(found: FoundCluster, facts: ClusterFacts, demand: NodeDemand) -> Iterator[Problem]:
    pod = demand.accelerator.pod
    wanted = {} if pod is None else {pod.resource: demand.accelerator.devices_per_host}
    wanted |= dict(facts.network)
    short = {node.name: _lacks(node, wanted, facts.huge_pages_mib, pod) for node in found.nodes}
    able = [node for node in found.nodes if not short[node.name]]
    if len(able) < demand.num_hosts:
        selector = ",".join(f"{name}={value}" for name, value in facts.node_selector.items())
        needs = " and ".join(f"{count} {name}" for name, count in wanted.items())
        what = (
            f"The stack needs {demand.num_hosts} nodes with {needs} each; of the {len(found.nodes)} with {selector}, "
            f"{len(able)} have that{_named(short)}."
        )
        fix = "Add, uncordon or untaint nodes, install the device plugin there, or"
        command = cluster_problem(demand.stack, "node_selector", "", "KEY=VALUE").fix
        yield _problem(demand, what, f"{fix} {command[0].lower()}{command[1:]}", "node_selector")
    elif demand.needs_domain and pod is not None and pod.domain_label is not None:
        domains = Counter(node.labels.get(pod.domain_label, "") for node in able)
        yield from _sizes(domains, pod.domain_label, facts, demand)


def _sizes(
    domains: Counter[str], label: str, facts: ClusterFacts, demand: NodeDemand
) -> Iterator[Problem]:
    """Every NVLink domain that the selector reaches takes the whole stack: its first pod chooses for the others.

    Args:
        domains: able nodes by domain; those of none, under "", are chosen by no pod.
        label: that names a node's domain.
        facts: of the cluster.
        demand: what the stack wants.
    """
    named = Counter({name: count for name, count in domains.items() if name})
    largest = max(sorted(named), key=named.__getitem__, default="")
    if named[largest] < demand.num_hosts:
        what = (
            f"The stack needs {demand.num_hosts} nodes of one NVLink domain ({label}); the largest of "
            f"{len(named)} has {named[largest]}."
        )
        fix = "Give it nodes of one rack, or make the stack smaller."
        yield _problem(demand, what, fix, "node_selector")
        return
    small = [
        f"{name} has {named[name]}" for name in sorted(named) if named[name] < demand.num_hosts
    ]
    if small:
        more = f"; {len(small) - MAX_NAMED} more" if len(small) > MAX_NAMED else ""
        what = (
            f"The selector reaches NVLink domains with fewer than the {demand.num_hosts} nodes that the stack needs "
            f"({'; '.join(small[:MAX_NAMED])}{more}): where the first pod goes there, the others find no room."
        )
        selector = {**facts.node_selector, label: largest}
        example = ",".join(f"{key}={value}" for key, value in selector.items())
        fix = cluster_problem(demand.stack, "node_selector", "", example).fix
        yield _problem(demand, what, fix, "node_selector")


def _lacks(node: FoundNode, wanted: dict[str, int], pages_mib: int, pod: PodAccess | None) -> str:
    """Why a node does not take a pod of the stack, "" where it does."""
    if not node.takes_pods:
        return "is cordoned or not ready"
    kept_off = [str(taint) for taint in node.taints if _keeps_off(taint, pod)]
    if kept_off:
        return f"has the taint {', '.join(kept_off)}"
    short = [
        f"has {have} {name}"
        for name, count in wanted.items()
        if (have := _count(node.allocatable.get(name, "0"))) < count
    ]
    pages = node.allocatable.get(HUGE_PAGES, "0")
    if _mib(pages) < pages_mib:
        short.append(f"has {pages} {HUGE_PAGES} of {pages_mib}Mi")
    return ", ".join(short)


def _keeps_off(taint: Taint, pod: PodAccess | None) -> bool:
    """Whether a pod with engines does not tolerate it."""
    is_own = pod is not None and (taint.key, taint.effect) == (pod.resource, TOLERATED_EFFECT)
    return taint.effect in _HARD_EFFECTS and not is_own


def _count(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _mib(text: str) -> int:
    """MiB of a quantity of pages (`10256Mi`, `20Gi`, bytes)."""
    found = re.fullmatch(r"(\d+)([KMGT]i)?", text)
    if found is None:
        return 0
    shift = {"Ki": -10, "Mi": 0, "Gi": 10, "Ti": 20, None: -20}[found[2]]
    number = int(found[1])
    return number << shift if shift >= 0 else number >> -shift


def _named(short: dict[str, str]) -> str:
    """Nodes that do not take a pod, with the reason, in brackets."""
    named = [f"{name} {why}" for name, why in short.items() if why]
    more = len(named) - MAX_NAMED
    listed = "; ".join(named[:MAX_NAMED]) + (f"; {more} more" if more > 0 else "")
    return f" ({listed})" if named else ""


def _kubelets(found: FoundCluster, demand: NodeDemand) -> Iterator[Problem]:
    """Ports are reserved in each pod: an old kubelet ends a pod that says so with SysctlForbidden."""
    old = [node for node in found.nodes if (v := _version(node.kubelet)) and v < SAFE_SINCE]
    if demand.sets_ports and old:
        named = "; ".join(f"{node.name} has {node.kubelet}" for node in old[:MAX_NAMED])
        what = (
            "Pods reserve ports of the stack (net.ipv4.ip_local_reserved_ports), which kubelets before "
            f"{SAFE_SINCE[0]}.{SAFE_SINCE[1]} forbid ({named})."
        )
        fix = (
            "Upgrade them, or start their kubelets with --allowed-unsafe-sysctls=net.ipv4.ip_local_reserved_ports: "
            "else their pods end with SysctlForbidden."
        )
        yield replace(_problem(demand, what, fix, "node_selector"), severity="warning")


def _version(text: str) -> tuple[int, int] | None:
    """Major and minor of `v1.34.2-eks-3025e55`; None for what says none."""
    found = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def _admission(found: FoundCluster, facts: ClusterFacts, demand: NodeDemand) -> Iterator[Problem]:
    """A lent namespace admits pods with folders of their node, locked memory, and for tuning privileged ones."""
    level = (found.namespace or {}).get(ENFORCED, "privileged")
    if level != "privileged" and _says_lent(found, demand.stack):
        what = (
            f"The namespace {facts.namespace} enforces the pod security standard {level}: it admits no pod with "
            "folders of its node, and engines and node tuning need them."
        )
        fix = f"Type: kubectl label --overwrite namespace {facts.namespace} {ENFORCED}=privileged"
        yield _problem(demand, what, fix, "namespace")


def _namespace(found: FoundCluster, facts: ClusterFacts, demand: NodeDemand) -> Iterator[Problem]:
    """The namespace is not there yet, was made for this stack, or is lent to it."""
    if found.is_ending:
        what = f"The namespace {facts.namespace} is being deleted: nothing can be made in it."
        fix = f"Wait until `kubectl get namespace {facts.namespace}` finds none, then try again."
        yield _problem(demand, what, fix, "namespace")
        return
    is_own, says_lent = _is_own(found, demand.stack), _says_lent(found, demand.stack)
    if is_own and says_lent:
        what = (
            f"The namespace {facts.namespace} was made for this stack and is lent to it: `pulumi up` would delete it "
            "with all that lies in it."
        )
        fix = f"Type: kubectl label namespace {facts.namespace} {LENT}-"
        yield _problem(demand, what, fix, "namespace")
    if found.namespace is None or is_own or says_lent:
        return
    owner = found.namespace.get("app.kubernetes.io/instance")
    whose = f": it belongs to {owner}" if owner else ""
    what = f"The namespace {facts.namespace} exists and was not made for this stack{whose}."
    other = cluster_problem(demand.stack, "namespace", "", f"{demand.stack}-serving").fix
    fix = f"{other}, or lend it: kubectl label namespace {facts.namespace} {LENT}={demand.stack}"
    yield _problem(demand, what, fix, "namespace")


def _claim(found: FoundCluster, facts: ClusterFacts, demand: NodeDemand) -> Iterator[Problem]:
    is_made = found.namespace is None or _is_own(found, demand.stack)
    if found.has_claim is not None and is_made:
        what = (
            f"The namespace {facts.namespace} is made for the stack and goes with it, and so would the claim "
            f"{facts.weights.claim} with the weights."
        )
        other = cluster_problem(demand.stack, "namespace", "", f"{demand.stack}-serving").fix
        fix = (
            f"Keep the claim in a namespace of yours, lent to the stack by the label {LENT}={demand.stack}. "
            f"{other}, or use another weights.storage."
        )
        yield _problem(demand, what, fix, "namespace")
    elif found.has_claim is False:
        what = (
            f"The namespace {facts.namespace} has no claim {facts.weights.claim} with the weights."
        )
        fix = "Make it there, name another by `pulumi config set weights_claim`, or use another weights.storage."
        yield _problem(demand, what, fix, "weights_claim")


def _problem(demand: NodeDemand, what: str, fix: str, key: str = "kubernetes_context") -> Problem:
    return Problem(
        rule="cluster-not-ready",
        severity="error",
        file=f"stacks/Pulumi.{demand.stack}.yaml",
        field=f"moe-infra:{key}",
        what=f"{demand.context}: {what}",
        fix=fix,
    )
