"""What a cluster of the stack's own needs from the account, asked of the cloud before anything is registered."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi_aws as aws
from pulumi_aws import eks, ssm

from infra.catalog.eks import ClusterAddon, EksParts
from infra.catalog.instance_types import CapacityKind
from infra.errors import Problem
from infra.provision.asking import Asking
from infra.provision.aws.account import Account
from infra.provision.aws.eks.config import EksFacts, admin_problem
from infra.provision.aws.eks.rules import (
    FoundAddon,
    addon_problems,
    control_subnet_problems,
    control_zones,
    upgrade_problem,
    zone_problem,
)
from infra.provision.aws.eks.standing import StandingCluster, find_standing
from infra.provision.aws.found import FoundSubnet
from infra.provision.aws.survey import find_subnet
from infra.provision.aws.zone import Zone

_RELEASE = (
    "/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/{architecture}/{kind}/recommended/"
    "release_version"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSurvey:
    """What was found.

    Args:
        addon_versions: by add-on; those that nobody could be asked about are left out.
        image_releases: releases of the nodes' images, by kind (`nvidia`, `standard`); as above.
        standing: what of the stack's cluster stands.
        facts: of the cluster, at the Kubernetes version that stands where the operator names none.
        zones: ids of the two zones for the control plane; empty with subnets of the operator's own.
        problems: everything that does not fit.
    """

    addon_versions: dict[str, str]
    image_releases: dict[str, str]
    standing: StandingCluster
    facts: EksFacts
    zones: tuple[str, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddonDemand:
    """What a stack's cluster asks of the account."""

    stack: str
    capacity: CapacityKind
    architecture: str
    addons: tuple[ClusterAddon, ...]
    parts: EksParts


def survey_for_cluster(
    account: Account,
    facts: EksFacts,
    demand: AddonDemand,
    zone: Zone | None,
    hosts: FoundSubnet | None,
) -> ClusterSurvey:
    """Ask for everything that a cluster needs; what the operator may not ask is a warning.

    Args:
        account: the configuration.
        facts: the cluster's part of it.
        demand: what the stack asks.
        zone: of the capacity; None where there is none, which is a problem of its own.
        hosts: the operator's own subnet for nodes, None when a network is made.
    """
    asking = Asking(demand.stack)
    _find_caller(asking, facts)
    standing = find_standing(asking, [each.name for each in demand.addons])
    facts = standing.settle(facts)
    asking.note(upgrade_problem(standing.version or "", facts, demand.capacity, demand.stack))
    offered = tuple(_find_addon(asking, each, facts) for each in demand.addons)
    asking.note(*addon_problems(tuple(filter(None, offered)), facts, demand.stack))
    zones: tuple[str, ...] = ()
    if facts.control_subnet_ids:
        found = [
            find_subnet(asking, "control_subnet_ids", each) for each in facts.control_subnet_ids
        ]
        asking.note(
            *control_subnet_problems(
                tuple(each for each in found if each is not None), hosts, demand.parts, demand.stack
            )
        )
    elif zone is not None:
        others = _find_zones(asking)
        if others is not None:
            zones = control_zones(zone, others, demand.parts)
            asking.note(zone_problem(zones, account.region, demand.stack))
    return ClusterSurvey(
        addon_versions={each.addon.name: each.version for each in offered if each is not None},
        image_releases=_find_images(asking, facts, demand.architecture),
        standing=standing,
        facts=facts,
        zones=zones,
        problems=tuple(asking.problems),
    )


def _find_caller(asking: Asking, facts: EksFacts) -> None:
    caller = asking.ask(
        "moe-infra:cluster_admins",
        "answer on who runs this",
        "arn:aws:iam::123456789012:role/platform",
        lambda: str(aws.get_caller_identity().arn),
    )
    if caller is not None:
        asking.note(admin_problem(caller, facts, asking.stack))


def _find_addon(asking: Asking, addon: ClusterAddon, facts: EksFacts) -> FoundAddon | None:
    """The cloud's default version of an add-on for the Kubernetes version; None when it may not be asked."""
    version = asking.ask(
        "moe-infra:kubernetes_version",
        f"add-on {addon.name} for Kubernetes {facts.kubernetes_version}",
        "1.35",
        lambda: str(
            eks.get_addon_version(
                addon_name=addon.name, kubernetes_version=facts.kubernetes_version
            ).version
        ),
    )
    return None if version is None else FoundAddon(addon=addon, version=version)


def _find_zones(asking: Asking) -> tuple[str, ...] | None:
    """Ids of the region's ordinary zones."""
    wanted = [{"name": "zone-type", "values": ["availability-zone"]}]
    return asking.ask(
        "aws:region",
        "answer on the region's zones",
        "us-east-2",
        lambda: tuple(aws.get_availability_zones(state="available", filters=wanted).zone_ids),
    )


def _find_images(asking: Asking, facts: EksFacts, architecture: str) -> dict[str, str]:
    word = "arm64" if architecture == "aarch64" else architecture
    found = {
        kind: _find_release(
            asking, _RELEASE.format(version=facts.kubernetes_version, architecture=word, kind=kind)
        )
        for kind in ("nvidia", "standard")
    }
    return {kind: release for kind, release in found.items() if release is not None}


def _find_release(asking: Asking, parameter: str) -> str | None:
    return asking.ask(
        "moe-infra:kubernetes_version",
        f"public parameter {parameter}",
        "1.35",
        lambda: str(ssm.get_parameter(name=parameter).value),
    )
