"""Facts of a cluster of the stack's own on EKS, read from `pulumi config` and judged together."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from infra.catalog.eks import read_eks_parts
from infra.catalog.versions import version_numbers
from infra.errors import Problem, ProblemsFound
from infra.provision.address_blocks import is_the_world
from infra.provision.aws.account import Account, lacking_subnet_problem
from infra.provision.cluster.config import NODE_TUNING, cluster_problem, workload_problems
from infra.provision.config_problems import PROJECT_NAME, account_problem, unread_problem
from infra.provision.own_config import read_own_values
from infra.render.cluster_facts import NodeTuningChoice

SupportType = Literal["EXTENDED", "STANDARD"]
EKS_CONFIG_NAMES = (
    "kubernetes_version",
    "kubernetes_support",
    "api_from_cidr",
    "cluster_admins",
    "control_subnet_ids",
    "namespace",
    "node_tuning",
    "node_tuning_image",
    "owner",
    "cost_center",
)
# Of `Pulumi.yaml`, what a cluster of the stack's own has no use for, with its default: logging in, machine images, load
# balancers, clusters that exist, and file systems over EFA, for which nodes would need a client of their own.
UNREAD = {
    **dict.fromkeys(("ami", "ssh_user", "ssh_from_cidr", "clients_cidr"), ""),
    **dict.fromkeys(("certificate_arn", "clients_name"), ""),
    **dict.fromkeys(("gateway_subnet_id", "kubeconfig", "kubernetes_context"), ""),
    **dict.fromkeys(("node_selector", "network_resource", "weights_claim"), ""),
    **dict.fromkeys(("key_name", "fsx_id", "fsx_dns_name", "fsx_mount_name"), ""),
    "replace_machines": "",
    "interface": "eth0",
    "fsx_efa": "false",
}
# Halves, quarters and eighths of it hold hosts with their pods, gateways, and the system nodes with theirs.
SMALLEST_NETWORK = 22
NUM_CONTROL_SUBNETS = 2
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::(?P<account>\d{12}):role/(?P<name>[\w+=.@/-]+)")
_SUBNET = re.compile(r"subnet-[0-9a-f]{8,17}")
# Kubernetes documentation, "Namespaces": kept for the system.
_SYSTEM = "kube-"
_VERSION = re.compile(r"1\.\d{2}")
# Blocks that nobody dials over the internet: RFC 1918 and RFC 6598.
_PRIVATE = tuple(
    map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"))
)
# What EKS does with a cluster at the end of its version's standard support (EKS API, UpgradePolicyRequest).
SUPPORT: Mapping[str, SupportType] = {"extended": "EXTENDED", "standard": "STANDARD"}
_EXAMPLES = {
    "kubernetes_support": "extended",
    "kubernetes_version": "1.35",
    "api_from_cidr": "198.51.100.0/24",
    "cluster_admins": "arn:aws:iam::123456789012:role/platform",
    "control_subnet_ids": "subnet-0123456789abcdef0,subnet-0123456789abcdef1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EksFacts:
    """What only the owner of the account knows about a stack's cluster.

    Args:
        kubernetes_version: of the control plane and its nodes.
        names_version: whether the operator names it; where not, a cluster that stands keeps its own.
        support: what becomes of the cluster at the end of its version's standard support.
        api_from: block from which the cluster's API is dialled.
        admins: ARNs of the roles that may do everything in the cluster, whoever runs `pulumi up` among them.
        control_subnet_ids: the operator's own for the control plane; empty where a network is made.
    """

    kubernetes_version: str
    names_version: bool
    support: SupportType
    api_from: ipaddress.IPv4Network
    admins: tuple[str, ...]
    control_subnet_ids: tuple[str, ...]
    namespace: str
    node_tuning: NodeTuningChoice
    node_tuning_image: str

    @property
    def is_dialled_publicly(self) -> bool:
        """Whether the operator's block is outside of every private network."""
        return not any(self.api_from.subnet_of(block) for block in _PRIVATE)


def read_eks_values() -> dict[str, str]:
    """The cluster's configuration of the selected stack as Pulumi gives it, by short name.

    Raises:
        ProblemsFound: values that are set as secrets.
    """
    return read_own_values((*EKS_CONFIG_NAMES, *UNREAD, "subnet_id", "vpc_cidr"))


def read_eks(values: Mapping[str, str], stack: str) -> EksFacts:
    """The cluster's facts from values by short name; empty is not set.

    Raises:
        ProblemsFound: every value that is missing or wrong, each with the command to type.
    """
    known = {name: value for name, value in values.items() if value != ""}
    problems = (
        *_missing(known, stack),
        *_unread(known, stack),
        *_malformed(known, stack),
        *_network_problems(known, stack),
        *_version_problems(known, stack),
    )
    if problems:
        raise ProblemsFound(problems)
    return EksFacts(
        kubernetes_version=known.get("kubernetes_version", read_eks_parts().kubernetes.version),
        names_version="kubernetes_version" in known,
        support=SUPPORT[known.get("kubernetes_support", "extended")],
        api_from=ipaddress.IPv4Network(known["api_from_cidr"]),
        admins=_entries(known["cluster_admins"]),
        control_subnet_ids=_entries(known.get("control_subnet_ids", "")),
        namespace=known.get("namespace", stack),
        node_tuning=NODE_TUNING[known.get("node_tuning", "apply")],
        node_tuning_image=known.get("node_tuning_image", ""),
    )


def eks_problem(key: str, what: str, stack: str) -> Problem:
    """A problem of one key of the cluster, with the command that sets it."""
    return account_problem(f"{PROJECT_NAME}:{key}", what, _EXAMPLES[key], stack)


def admin_name(arn: str) -> str:
    """A name that no other role has: account, path and name of a role that `read_eks` let through."""
    match = _ROLE.fullmatch(arn)
    assert match is not None  # noqa: S101 - read_eks refuses all others
    return f"admin-{match['account']}-{match['name']}"


def admin_problem(caller: str, facts: EksFacts, stack: str) -> Problem | None:
    """Whoever runs this could not reach the cluster that it makes.

    Args:
        caller: ARN as the cloud tells it: of a role's session, a user, or a role.
        facts: with the roles that may.
        stack: its name.
    """
    match = re.fullmatch(
        r"arn:aws[a-z-]*:sts::(?P<account>\d{12}):assumed-role/(?P<name>[^/]+)/.+", caller
    )
    named = {(arn.split(":")[4], arn.rpartition("/")[2]) for arn in facts.admins}
    if caller in facts.admins or (match is not None and (match["account"], match["name"]) in named):
        return None
    whose = f"role/{match['name']}" if match is not None else caller
    what = f"{whose} runs this and is not among them: it could not make anything in the cluster."
    return eks_problem("cluster_admins", what, stack)


def small_network_problem(account: Account, stack: str) -> Problem | None:
    """A network that is made and has no room for a cluster."""
    if account.subnet_id is not None or account.vpc_cidr.prefixlen <= SMALLEST_NETWORK:
        return None
    what = (
        f"{account.vpc_cidr} is too small for a cluster, whose pods have addresses of the network: "
        f"/16 to /{SMALLEST_NETWORK}."
    )
    return account_problem(f"{PROJECT_NAME}:vpc_cidr", what, "10.64.0.0/16", stack)


def _missing(known: Mapping[str, str], stack: str) -> Iterator[Problem]:
    wanted = {
        "api_from_cidr": "the block of your own network from which you, and CI, dial the cluster's API",
        "cluster_admins": "the IAM roles that may do everything in the cluster, yours among them (commas between)",
    }
    if "subnet_id" in known:
        wanted["control_subnet_ids"] = (
            "with subnet_id, two private subnets of the same network in two zones, for the control plane"
        )
    for key, meaning in wanted.items():
        if key not in known:
            yield eks_problem(key, f"Not set: {meaning}.", stack)


def _unread(known: Mapping[str, str], stack: str) -> Iterator[Problem]:
    for key, default in UNREAD.items():
        if known.get(key, default) != default:
            yield unread_problem(key, known[key], "aws-eks", stack)


def _entries(text: str) -> tuple[str, ...]:
    """What stands between the commas of a list, empty entries among it; nothing for an empty list."""
    return tuple(entry.strip() for entry in text.split(",")) if text else ()


def _malformed(known: Mapping[str, str], stack: str) -> Iterator[Problem]:
    yield from _admin_list_problems(_entries(known.get("cluster_admins", "")), stack)
    subnets = _entries(known.get("control_subnet_ids", ""))
    wrong = [each for each in subnets if not _SUBNET.fullmatch(each)]
    if wrong or (subnets and not len(subnets) == len(set(subnets)) == NUM_CONTROL_SUBNETS):
        what = f"{known['control_subnet_ids']} is not two ids of subnets with a comma between."
        yield eks_problem("control_subnet_ids", what, stack)
    if subnets and "subnet_id" not in known:
        yield lacking_subnet_problem(stack)
    yield from workload_problems(stack, known)
    namespace = known.get("namespace", stack)
    taken = {"default", *(chart.namespace for chart in read_eks_parts().charts)}
    if namespace in taken or namespace.startswith(_SYSTEM):
        what = f"{namespace} is the cluster's own, or of software that is installed in it."
        yield cluster_problem(stack, "namespace", what, "serving")


def _admin_list_problems(arns: tuple[str, ...], stack: str) -> Iterator[Problem]:
    for arn in dict.fromkeys(arns):
        if not arn:
            what = "A comma in it has no role before or behind it."
        elif not _ROLE.fullmatch(arn):
            what = f"{arn} is not the ARN of an IAM role."
        elif arns.count(arn) > 1:
            what = f"{arn} is in it {arns.count(arn)} times; once is enough."
        else:
            continue
        yield eks_problem("cluster_admins", what, stack)


def _network_problems(known: Mapping[str, str], stack: str) -> Iterator[Problem]:
    text = known.get("api_from_cidr")
    if text is None:
        return
    try:
        block = ipaddress.IPv4Network(text)
    except ValueError:
        yield eks_problem("api_from_cidr", f"{text} is not a block of addresses.", stack)
        return
    if is_the_world(text):
        what = f"{text} lets everybody dial the cluster's API."
        yield eks_problem("api_from_cidr", what, stack)
    elif any(block.subnet_of(each) for each in _PRIVATE) and "subnet_id" not in known:
        what = (
            f"{text} is a private block, and no way leads from it into the network that is made: `pulumi up` could "
            "not reach the cluster. Name the public block that you go out from, or a network of yours (subnet_id)."
        )
        yield eks_problem("api_from_cidr", what, stack)


def _version_problems(known: Mapping[str, str], stack: str) -> Iterator[Problem]:
    version, least = known.get("kubernetes_version"), read_eks_parts().kubernetes.least
    support = known.get("kubernetes_support", "extended")
    if support not in SUPPORT:
        what = f"{support} is not one of {' and '.join(SUPPORT)}."
        yield eks_problem("kubernetes_support", what, stack)
    if version is None:
        return
    if not _VERSION.fullmatch(version):
        yield eks_problem("kubernetes_version", f"{version} is not a version such as 1.35.", stack)
    elif version_numbers(version) < version_numbers(least):
        what = f"{version} is too old for a stack's objects and its drivers: {least} is the least."
        yield eks_problem("kubernetes_version", what, stack)
