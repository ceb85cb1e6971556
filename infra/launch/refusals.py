"""What speaks against an installation beside the checks of hosts, and all that does in one refusal, worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.errors import InfraError, PrerequisiteError
from infra.launch.deployment import Deployment
from infra.launch.name_lists import listed
from infra.launch.releases import HASH_SHOWN
from infra.launch.replacement import Replacement
from infra.launch.unit_states import UnitState, unmask_command


class SeveralRefusals(PrerequisiteError):
    """Several reasons not to begin, found in one look."""

    def __init__(self, errors: Sequence[PrerequisiteError]) -> None:
        """Where, what and fix are the first one's; the text lists all."""
        first = errors[0]
        super().__init__(first.where, first.what, first.fix)
        self._errors = tuple(errors)

    def each(self) -> tuple[InfraError, ...]:
        """Every reason, for `--json`."""
        return tuple(reason for error in self._errors for reason in error.each())

    def __str__(self) -> str:
        """One line or more for each, in their order."""
        return "\n".join(map(str, self._errors))


def refuse_together(errors: Sequence[PrerequisiteError]) -> None:
    """Refuse for all reasons at once.

    Args:
        errors: worst first; () for none.

    Raises:
        PrerequisiteError: there is a reason.
    """
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise SeveralRefusals(errors)


def find_other_release(
    deployment: Deployment, replacement: Replacement, running: Mapping[str, UnitState]
) -> list[PrerequisiteError]:
    """Running processes are not stopped for another release unless that is asked for."""
    stopped = replacement.releases(running)
    names = sorted(process.id for release in stopped.values() for process in release.processes)
    unrecorded = sorted(
        set(running) - {p.id for r in replacement.before.values() for p in r.processes}
    )
    if not names and not (unrecorded and replacement.reasons):
        return []
    stack = deployment.plan.stack
    num = len(replacement.reasons)
    differ = "1 file differs" if num == 1 else f"{num} files differ"
    what = f"Another release of it runs ({listed(names or unrecorded)}), and {differ}."
    there = {release.release for release in replacement.before.values()} - {deployment.plan.hash}
    stays = (
        f"`fab up --stack {stack} --release {there.pop()[:HASH_SHOWN]}` goes on with the release that is there, "
        if len(there) == 1
        else ""
    )
    fix = (
        f"`fab diff --stack {stack}` shows what differs; `fab up --stack {stack} --replace` stops what changes and "
        f"starts it anew, {stays}`fab down --stack {stack}` stops all of it and removes every release that hosts keep."
    )
    return [PrerequisiteError(f"stack {stack}", what, fix)]


def find_masked(units: Mapping[str, UnitState]) -> list[PrerequisiteError]:
    """Units that systemd was forbidden to start: one refusal for each host.

    Args:
        units: the deployment's, by process id.
    """
    masked: dict[str, list[str]] = {}
    for state in units.values():
        if state.is_masked:
            masked.setdefault(state.host, []).append(state.unit)
    return [
        PrerequisiteError(
            host,
            f"Somebody masked units, so systemd would not start them there: {', '.join(names)}.",
            f"`{unmask_command(host, names)}`, then again.",
        )
        for host, names in masked.items()
    ]


def find_hurtful_reload(
    found: Mapping[str, Sequence[Mapping[str, object]]],
) -> list[PrerequisiteError]:
    """Reloads of systemd that would hurt somebody else's containers: hosts with the same reason together.

    Args:
        found: the items of each host.
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for host, rows in found.items():
        for row in rows:
            if row.get("group") == "files" and row["state"] == "blocked":
                what, _, fix = str(row["why"]).partition(". ")
                alike.setdefault((f"{row['id']}: {what}.", f"{fix}."), []).append(host)
    return [PrerequisiteError(", ".join(hosts), what, fix) for (what, fix), hosts in alike.items()]


def find_unclosable(
    found: Mapping[str, Sequence[Mapping[str, object]]],
) -> list[PrerequisiteError]:
    """Hosts that cannot be closed by the plan: those with the same reason together.

    Args:
        found: the items of each host.
    """
    alike: dict[str, list[str]] = {}
    for host, rows in found.items():
        for row in rows:
            if row.get("group") == "firewall" and row["state"] in {"blocked", "failed"}:
                alike.setdefault(str(row["why"]), []).append(host)
    fix = "Mend it there, or write `firewall: none`."
    return [PrerequisiteError(", ".join(hosts), f"{why}.", fix) for why, hosts in alike.items()]
