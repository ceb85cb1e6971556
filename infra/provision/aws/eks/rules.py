"""What EKS refuses, or nobody has seen it allow: judged before anything is made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from infra.catalog.eks import ClusterAddon, EksParts
from infra.catalog.instance_types import CapacityKind
from infra.catalog.network_cards import NetworkInterface
from infra.catalog.versions import version_numbers
from infra.errors import Problem
from infra.provision.aws.eks.config import EksFacts, eks_problem
from infra.provision.aws.found import FoundSubnet
from infra.provision.aws.naming import give_back_nodes
from infra.provision.aws.zone import Zone
from infra.provision.config_problems import account_problem, stack_problem
from infra.provision.naming import STACK_TAG
from infra.spec.stack import Waiver, Weights

LOCAL_ZONE_RULE = "eks-local-zone"
# Of every subnet of a control plane: EKS User Guide, "Subnet requirements and considerations" (16 are advised).
LEAST_FREE = 6
# A pod with engines, those of drivers and plug-ins, and a spare: three prefixes of 16 addresses on a node. Interfaces
# on further network cards add one each and no prefix: the VPC CNI manages card 0 alone (its release notes, 1.7.10;
# since 1.20 ENABLE_MULTI_NIC, which nobody sets here), and every layout has one addressed interface there.
POD_ADDRESSES = 48
# The id of a Local Zone has its city's in the middle (use1-dfw2-az1).
_ORDINARY_ZONE = re.compile(r"[a-z0-9]+-az\d+")
# Kubernetes' own advice for the largest number on a node; the interfaces' prefixes hold more on every type.
MAX_PODS = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAddon:
    """The version of an add-on that the cloud takes by default for a Kubernetes version (`v1.20.4-eksbuild.2`)."""

    addon: ClusterAddon
    version: str


def storage_problem(weights: Weights, mount: str | None, stack: str) -> Problem | None:
    """Storage that new nodes of a cluster cannot have."""
    storage, fix = (
        weights.storage,
        "Use s3-to-nvme, fsx-lustre, or shared-mount with weights_mount.",
    )
    what = {
        "local": "Nodes of a cluster are new: nothing lies on them.",
        "pvc": "A new cluster has no claim with weights.",
        "efs": "EFS is not mounted into pods.",
    }.get(storage or "")
    if storage == "shared-mount" and mount is None:
        what, fix = (
            "The nodes' image is the cloud's, so it mounts nothing.",
            f"Type: pulumi config set weights_mount HOST:/PATH --stack {stack}",
        )
    if what is None:
        return None
    return stack_problem("weight-storage", "weights.storage", what, fix, stack)


def local_zone_problem(zone: Zone, waivers: tuple[Waiver, ...], stack: str) -> Problem | None:
    """Nodes in a Local Zone, a warning: AWS says that it can be, and nobody has shown it for this capacity.

    EKS User Guide, "Launch low-latency EKS clusters with AWS Local Zones", names managed node groups; an older copy
    excluded them (checked 2026-11-27).
    """
    if not zone.is_local:
        return None
    what = (
        f"{zone.zone_id} is a Local Zone. AWS says that managed node groups are offered there, and nobody has shown "
        "one with such capacity here."
    )
    fix = "Where EKS refuses the node group, use platform aws-ec2."
    reason = next((each.reason for each in waivers if each.rule == LOCAL_ZONE_RULE), None)
    found = stack_problem(LOCAL_ZONE_RULE, "platform", what, fix, stack)
    return replace(found, severity="warning", waived=reason)


def addon_problems(
    offered: tuple[FoundAddon, ...], facts: EksFacts, stack: str
) -> Iterator[Problem]:
    """Add-ons that are too old where the Kubernetes version takes them."""
    for each in offered:
        name, least = each.addon.name, each.addon.least
        if least is not None and version_numbers(each.version) < version_numbers(least):
            what = (
                f"Kubernetes {facts.kubernetes_version} takes {name} {each.version} on EKS; {least} is the least that "
                "leaves efa-only interfaces alone."
            )
            yield eks_problem("kubernetes_version", what, stack)


def upgrade_problem(
    standing: str, facts: EksFacts, capacity: CapacityKind, stack: str
) -> Problem | None:
    """A change of the Kubernetes version that a standing cluster cannot make.

    Args:
        standing: version of the cluster that stands, "" without one.
        facts: with the wanted one.
        capacity: of the nodes.
        stack: its name.
    """
    wanted = facts.kubernetes_version
    if not standing or standing == wanted:
        return None
    now, then = version_numbers(standing)[1], version_numbers(wanted)[1]
    if then < now or then > now + 1:
        what = f"The cluster runs {standing}; EKS goes up by one minor version at a time, and never down."
        return account_problem(
            "moe-infra:kubernetes_version", what, f"1.{now + (then > now)}", stack
        )
    if capacity in {"capacity-block", "ultraserver"}:
        what = (
            f"The cluster runs {standing}, and nodes of a capacity block cannot be upgraded while they run: give them "
            f"back first ({give_back_nodes(stack)}), or stay."
        )
        return account_problem("moe-infra:kubernetes_version", what, standing, stack)
    return None


def owner_problem(tags: Mapping[str, str], stack: str) -> Problem | None:
    """A cluster of the stack's name that is not the stack's."""
    if tags.get(STACK_TAG) == stack:
        return None
    what = f"A cluster {stack} stands in the region, and it is not this stack's."
    fix = "Give the stack's file another name, or use platform existing-kubernetes."
    return stack_problem("account-fact", "platform", what, fix, stack)


def control_subnet_problems(
    found: tuple[FoundSubnet, ...],
    hosts: FoundSubnet | None,
    parts: EksParts,
    stack: str,
) -> Iterator[Problem]:
    """Subnets of the operator's that a control plane cannot have."""
    for each in found:
        if hosts is not None and each.vpc_id != hosts.vpc_id:
            what = f"{each.id} is in {each.vpc_id}, nodes are in {hosts.vpc_id}."
            yield eks_problem("control_subnet_ids", what, stack)
        if each.zone_id in parts.unsupported_zones or not _ORDINARY_ZONE.fullmatch(each.zone_id):
            what = f"{each.id} is in {each.zone_id}, where EKS has no control planes."
            yield eks_problem("control_subnet_ids", what, stack)
        if each.num_free < LEAST_FREE:
            what = (
                f"{each.id} has {each.num_free} free addresses; a control plane takes {LEAST_FREE}."
            )
            yield eks_problem("control_subnet_ids", what, stack)
        if each.gives_public_addresses:
            what = f"{each.id} gives its machines public addresses; control plane and nodes stand in private subnets."
            yield eks_problem("control_subnet_ids", what, stack)
    yield from _system_node_problems(found[:1], parts, stack)
    zones = {each.zone_id for each in found}
    if len(found) > 1 and len(zones) == 1:
        what = f"Both are in {next(iter(zones))}; a control plane wants two zones."
        yield eks_problem("control_subnet_ids", what, stack)


def _system_node_problems(
    first: tuple[FoundSubnet, ...], parts: EksParts, stack: str
) -> Iterator[Problem]:
    """Too few addresses for the nodes beside those with accelerators, which stand in the first control subnet."""
    for each in first:
        if each.num_standing is None:  # nobody may ask whose addresses are taken
            continue
        new = max(parts.system_nodes.count - each.num_standing, 0)
        wanted = LEAST_FREE + new * (1 + POD_ADDRESSES)
        if new and LEAST_FREE <= each.num_free < wanted:
            what = f"{each.id} has {each.num_free} free addresses; control plane and {new} system nodes take {wanted}."
            yield eks_problem("control_subnet_ids", what, stack)


def control_zones(zone: Zone, others: tuple[str, ...], parts: EksParts) -> tuple[str, ...]:
    """Two zones for a control plane, the nearest first; fewer where the region has none.

    Args:
        zone: of the capacity.
        others: ids of the region's ordinary zones.
        parts: with the zones that EKS leaves out.
    """
    wanted = (zone.gateway_zone_id, *sorted(others))
    return tuple(dict.fromkeys(each for each in wanted if each not in parts.unsupported_zones))[:2]


def zone_problem(zones: tuple[str, ...], region: str, stack: str) -> Problem | None:
    """A region without two zones for a control plane."""
    if len(zones) > 1:
        return None
    what = (
        f"{region} shows this account {len(zones)} zones that take a control plane; it wants two."
    )
    return account_problem("aws:region", what, "us-east-2", stack)


def efa_count(interfaces: tuple[NetworkInterface, ...]) -> int:
    """EFA devices of a node: what its device plugin offers, and a pod that spans hosts asks for."""
    return sum(each.has_efa for each in interfaces)
