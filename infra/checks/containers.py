"""Rules about containers of a group over hosts: that they reach each other, and that all of them are started."""

from __future__ import annotations

from collections.abc import Container, Iterator

from infra.checks.apart import has_member_apart
from infra.checks.view import Finding, PlanView
from infra.plan.process import Process


def networks_reach_peers(view: PlanView) -> Iterator[Finding]:
    """Containers of a group over hosts have a network that reaches the others: a bridge of docker's ends at its host.

    Publishing ports does not help: NCCL and Gloo listen on ports that they draw, and name the bridge's address.
    """
    bridged = view.surroundings.bridged
    for process in _among_peers(view, bridged):
        if has_member_apart(view, process):
            what = (
                f"{process.id} runs in docker's own bridge network, and others of {process.group} run on other hosts: "
                "none reaches the addresses of that network."
            )
            yield _finding(process, what, "Add --network host on every host.")


def names_resolved(view: PlanView) -> Iterator[Finding]:
    """A pod in its node's network that meets others by name is told to ask the cluster's DNS."""
    for process in _among_peers(view, view.surroundings.without_names):
        what = (
            f"{process.id} has hostNetwork without dnsPolicy: ClusterFirstWithHostNet, and asks its node's DNS. "
            f"That DNS does not know the names of pods that {process.group} meets at."
        )
        yield _finding(
            process, what, "Write dnsPolicy: ClusterFirstWithHostNet beside hostNetwork."
        )


def pods_started_together(view: PlanView) -> Iterator[Finding]:
    """Workers of a set are not held back until a leader is ready that cannot be before they have come."""
    for process in _among_peers(view, view.surroundings.leads_in_turn):
        if view.readings[process.id].http_port is not None:
            what = (
                f"{process.id} is asked over HTTP whether it is ready, and serves when all of {process.group} have "
                "come; startupPolicy LeaderReady creates them when it is ready."
            )
            yield _finding(process, what, "Remove startupPolicy: LeaderCreated is its default.")


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


def _among_peers(view: PlanView, named: Container[str]) -> Iterator[Process]:
    """The named processes of groups that have others, too."""
    for members in view.groups.values():
        if len(members) > 1:
            yield from (process for process in members if process.id in named)


def _finding(process: Process, what: str, fix: str) -> Finding:
    return Finding(field=f"roles.{process.role}", what=what, fix=fix, process=process.id)
