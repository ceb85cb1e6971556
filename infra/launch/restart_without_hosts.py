"""Whether groups can be restarted while hosts are away, and what to type where they cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.errors import HostsFailed, InfraError
from infra.launch.answering import names_of
from infra.launch.deployment import Deployment, without_hosts
from infra.launch.fleet import all_reports
from infra.plan.process import Process
from infra.remote.failures import MAY_BE_GONE
from infra.render.supervision import groups_of


def refuse_away(
    deployment: Deployment, chosen: Sequence[str], away: Mapping[str, InfraError]
) -> None:
    """Refuse a restart that a host which is away has a part in; say what goes on without it.

    Args:
        deployment: the release that the hosts hold.
        chosen: the groups that are to be restarted.
        away: why a host cannot be asked, by host.

    Raises:
        HostsFailed: a group has a rank there, or could not be proven without the groups that have.
    """
    groups = groups_of(deployment.plan)
    parts = {
        host: [name for name in chosen if any(p.host == host for p in groups[name])]
        for host in away
    }
    all_reports(
        {
            host: _refused(
                deployment, host, away[host], f"{names_of(names)} {_has(names)} ranks there"
            )
            for host, names in parts.items()
            if names
        }
    )
    left = without_hosts(deployment, away)
    lacking = _lacking_role(deployment, left)
    if lacking is not None:
        why = f"{names_of(chosen)} cannot be proven without a {lacking} group, and none is whole"
        all_reports({host: _refused(deployment, host, error, why) for host, error in away.items()})
    _say_what_is_left(deployment, left, away)


def _refused(deployment: Deployment, host: str, error: InfraError, why: str) -> HostsFailed:
    what = f"{error.what} {why}, so nothing was stopped."
    return HostsFailed(
        host, what, " ".join([error.fix, *_ways_out(deployment, host, error)]).strip()
    )


def _ways_out(deployment: Deployment, host: str, error: InfraError) -> list[str]:
    """What to type: another machine in the place of one that may be gone, or a restart of what it has no part in."""
    stack, ways = deployment.plan.stack, []
    if isinstance(error, MAY_BE_GONE):
        ways.append(
            f"For a machine that is gone, `fab replace-host {host} NEW --stack {stack}` brings its groups up elsewhere."
        )
    free = _leaders(without_hosts(deployment, (host,)))
    if free:
        everyone = _leaders(deployment)
        named = [
            f"`--role {leader.role}`"
            if [p.group for p in everyone if p.role == leader.role]
            == [p.group for p in free if p.role == leader.role]
            else f"`--role {leader.role} --replica {leader.replica}`"
            for leader in free
        ]
        ways.append(f"It has no part in {' or '.join(dict.fromkeys(named))}.")
    return ways


def _leaders(deployment: Deployment) -> list[Process]:
    return [processes[0] for processes in groups_of(deployment.plan).values()]


def _lacking_role(deployment: Deployment, left: Deployment) -> str | None:
    """The role without which what is left cannot be proven, None where nothing is lacking.

    A decode rank is never asked alone: that can end it. Where both roles meet, a prefill rank is not, either.
    """
    had = {rank.role for rank in deployment.endpoints.ranks}
    has = {rank.role for rank in left.endpoints.ranks}
    needed = {"prefill"} if deployment.endpoints.handover == "answer" else {"prefill", "decode"}
    lost = sorted((had - has) & needed) if has else []
    return lost[0] if lost else None


def _say_what_is_left(
    deployment: Deployment, left: Deployment, away: Mapping[str, InfraError]
) -> None:
    groups = [name for name in groups_of(deployment.plan) if name not in groups_of(left.plan)]
    if groups:
        deployment.say(
            f"{names_of(away)} cannot be asked: {names_of(groups)} {_is(groups)} left alone, and not proven"
        )
    router = deployment.endpoints.router
    if router is not None and left.endpoints.router is None:
        deployment.say(
            f"{router.id} is on {router.host}, which cannot be asked: it is not told of the restart, and requests are "
            "lost until it has noticed"
        )


def _has(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
