"""Whether the hosts' watchers would start the ranks of a deployment again."""

from __future__ import annotations

from infra.launch.answering import away_of
from infra.launch.deployment import Deployment
from infra.launch.handover import Look
from infra.launch.proof.host_drift import Check
from infra.launch.supervision import would_restart
from infra.render.supervision import groups_of

WATCHED = "watched"


def check_watchers(deployment: Deployment, look: Look) -> list[Check]:
    """A check for each group and host of it, in plan order.

    Args:
        deployment: what should be there; its fleet may leave out hosts that do not answer.
        look: the deployment as its hosts have it.
    """
    away, checks = away_of(deployment.fleet), list[Check]()
    for group, processes in groups_of(deployment.plan).items():
        leader = processes[0].host
        for host in dict.fromkeys(process.host for process in processes):
            silent = next((name for name in (host, leader) if name in away), None)
            ok: bool | None
            ok, detail = _judge(look, group, host)
            if silent is not None and (ok or silent == host):
                ok, detail = None, f"not known: {silent} cannot be asked"
            where = f"{group}: {detail}"
            checks.append(Check(process=host, check=WATCHED, ok=ok, detail=where, is_drift=True))
    return checks


def _judge(look: Look, group: str, host: str) -> tuple[bool, str]:
    state = look.groups.get(group)
    if host in look.watched and not look.has_one_key:
        return (
            False,
            "watchers of other hosts have another key, and do not hear it; `fab up` gives all one",
        )
    if would_restart(is_watched=host in look.watched, group=state):
        return True, "its watcher would start it again"
    if host in look.watched and state is not None:
        return False, state.words
    return (
        False,
        "nobody would start it again: the watcher there does not run, or was not handed it; `fab up` hands it over",
    )
