"""Rules about containers of a group over hosts: that they reach each other, and that all of them are started."""

from __future__ import annotations

from collections.abc import Iterator

from infra.checks.apart import are_apart
from infra.checks.view import Finding, PlanView


def networks_reach_peers(view: PlanView) -> Iterator[Finding]:
    """Containers of a group over hosts have a network that reaches the others: a bridge of docker's ends at its host.

    Publishing ports does not help: NCCL and Gloo listen on ports that they draw, and name the bridge's address.
    """
    bridged = view.surroundings.bridged
    for group, members in view.groups.items():
        for process in members:
            if process.id in bridged and any(are_apart(view, process, peer) for peer in members):
                what = (
                    f"{process.id} runs in docker's own bridge network, and others of {group} run on other hosts: "
                    "none reaches the addresses of that network."
                )
                yield Finding(
                    field=f"roles.{process.role}",
                    what=what,
                    fix="Add --network host on every host.",
                    process=process.id,
                )


def names_resolved(view: PlanView) -> Iterator[Finding]:
    """A pod in its node's network that meets others by name is told to ask the cluster's DNS."""
    for group, members in view.groups.items():
        for process in members:
            if process.id in view.surroundings.without_names and len(members) > 1:
                what = (
                    f"{process.id} has hostNetwork and no dnsPolicy: it asks its node's DNS, which does not know the "
                    f"names of pods that {group} meets at."
                )
                yield Finding(
                    field=f"roles.{process.role}",
                    what=what,
                    fix="Add dnsPolicy: ClusterFirstWithHostNet beside hostNetwork.",
                    process=process.id,
                )


def pods_started_together(view: PlanView) -> Iterator[Finding]:
    """Workers of a set are not held back until a leader is ready that cannot be before they have come."""
    for group, members in view.groups.items():
        for process in members:
            serves = view.readings[process.id].http_port is not None
            if process.id in view.surroundings.leads_in_turn and len(members) > 1 and serves:
                what = (
                    f"{process.id} is asked over HTTP whether it is ready, and serves when all of {group} have come; "
                    "startupPolicy LeaderReady creates them when it is ready."
                )
                yield Finding(
                    field=f"roles.{process.role}",
                    what=what,
                    fix="Remove startupPolicy: LeaderCreated is its default.",
                    process=process.id,
                )


def one_release_per_group(view: PlanView) -> Iterator[Finding]:
    """Processes of a group run one release: they hand each other what that release alone understands."""
    told = view.surroundings.releases
    for group, members in view.groups.items():
        named = {told[process.id]: process for process in reversed(members) if process.id in told}
        if len(named) > 1:
            what = f"Processes of {group} run different releases: {', '.join(sorted(named))}."
            other = next(iter(named.values()))
            yield Finding(
                field="engine.image", what=what, fix="Give all of them one image.", process=other.id
            )
