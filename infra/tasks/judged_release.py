"""The release that `verify` judges: the one that its hosts hold, whatever the stack file says by now."""

from __future__ import annotations

from dataclasses import dataclass, replace

from infra.errors import StackError
from infra.launch.deployment import Limits
from infra.launch.fleet import Fleet
from infra.launch.plan_difference import Change, plan_differences
from infra.launch.releases import HASH_SHOWN, Recorded, read_reached
from infra.plan.compile import CompiledStack
from infra.remote.failures import HostFailure
from infra.tasks.chosen_release import ChosenRelease, kept_release, release_of_file
from infra.tasks.options import Options
from infra.tasks.output import Output


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRelease:
    """What hosts are held against.

    Args:
        file: what the stack file says.
        chosen: the plan and its hosts.
        other: the release that is judged where the stack file says another one; None where it is the file's.
        changes: what the stack file would change of it.
        is_mixed: hosts hold several releases, or one that was not installed to the end.
        away: hosts of which it is not known what they hold.
    """

    file: CompiledStack
    chosen: ChosenRelease
    other: str | None
    changes: tuple[Change, ...]
    is_mixed: bool
    away: tuple[HostFailure, ...] = ()

    @property
    def told(self) -> str:
        """Which release is judged, where the stack file says another one."""
        judged, file = self.chosen.plan.hash[:HASH_SHOWN], self.file.plan.hash[:HASH_SHOWN]
        return f"The hosts hold release {judged}, and `fab verify` judges that; the stack file says {file}."


def judged_release(
    options: Options, compiled: CompiledStack, fleet: Fleet, output: Output
) -> JudgedRelease:
    """The one release that all hosts hold that can be asked; the stack file's where they hold none, or several.

    Args:
        options: of the task.
        compiled: what the stack file says.
        fleet: the hosts of the file's plan.
        output: told what hosts hold where that is not what the file says.

    Raises:
        HostsFailed: of no host it is known what it holds.
    """
    plan, limit_s = compiled.plan, Limits().ask_s
    hosts = list(compiled.book.hosts)
    recorded, away = read_reached(fleet, hosts, plan.stack, timeout_s=limit_s)
    names = {release.release for release in recorded.releases.values()}
    names |= set(recorded.unfinished.values())
    own = JudgedRelease(
        file=compiled,
        chosen=release_of_file(options, compiled),
        other=None,
        changes=(),
        is_mixed=False,
        away=away,
    )
    if names <= {plan.hash}:
        return own
    mixed = replace(own, is_mixed=True)
    if len(names) > 1 or recorded.unfinished:
        output.message(_told_mixed(recorded))
        return mixed
    try:
        chosen = kept_release(options, names.pop(), output, {failure.host for failure in away})
    except StackError as error:  # no host keeps it whole, or the inventory has moved
        output.message(f"{error} The hosts are judged by the stack file.")
        return mixed
    changes = tuple(plan_differences(chosen.plan, plan))
    return replace(own, chosen=chosen, other=chosen.plan.hash, changes=changes)


def _told_mixed(recorded: Recorded) -> str:
    """Which release each host holds."""
    rows = [f"{host}: {one.release[:HASH_SHOWN]}" for host, one in recorded.releases.items()]
    rows += [
        f"{host}: {name[:HASH_SHOWN]}, half installed" for host, name in recorded.unfinished.items()
    ]
    return (
        f"The hosts hold more than one release ({'; '.join(rows)}); the stack file judges them all."
    )
