"""`fab restart`: end groups of ranks and start them again, as one, by their own watchers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from infra.catalog.load import Catalog
from infra.errors import HostsFailed, InfraError, NotReady, PrerequisiteError, StackError
from infra.launch.deployment import Limits
from infra.launch.fleet import all_reports
from infra.launch.lease import this_owner
from infra.launch.observation import observe, status_document, unknown_hosts
from infra.launch.releases import HASH_SHOWN, read_reached
from infra.launch.restart import Selection, restart
from infra.remote.failures import HostFailure
from infra.tasks.choice import needed_inventory, same_choice
from infra.tasks.chosen_release import ChosenRelease, kept_release
from infra.tasks.options import Options
from infra.tasks.output import Output, with_failures
from infra.tasks.reached_hosts import deployment_of
from infra.tasks.recorded_hosts import (
    holding_lease,
    open_fleet,
    open_recorded,
)
from infra.tasks.status import status_table
from infra.tasks.unfinished import Begun, tell_unfinished
from infra.tasks.way_out import told
from infra.tasks.wrong_choice import refuse_wrong_choice

MOST_DIGITS = 9  # of thousands Python makes no number


def run(options: Options, output: Output) -> int:
    """Restart the release that the hosts hold, whatever the stack file says by now; 4 when a host is out of reach."""
    selection, ready_s = _selection(options), options.number("timeout")
    catalog = Catalog()
    release, failures = _recorded_release(options, output)
    chosen = kept_release(options, release, output, {failure.host for failure in failures})
    stack, hosts = chosen.plan.stack, tuple(chosen.hosts)
    away = _in_plan(options, chosen, failures)
    answering = [host for host in hosts if host not in away]
    with (
        open_fleet(options, chosen.reached, output) as opened,
        holding_lease(options, "fab restart", opened, stack, answering) as fleet,
    ):
        limits = Limits() if ready_s is None else Limits(ready_s=ready_s)
        deployment, _ = deployment_of(chosen.placed, catalog, fleet, output)
        begun = Begun()
        deployment = replace(deployment, limits=limits, decided=begun)
        try:
            restart(deployment, selection, f"{this_owner().operator} asked for it", away)
        except (NotReady, HostsFailed) as error:
            again = same_choice(options)
            return tell_unfinished(deployment, output, error, has_begun=begun.is_so, again=again)
        except KeyboardInterrupt:
            output.message(
                "What had begun to restart goes on: the hosts start such a group again by themselves. "
                f"`fab status {same_choice(options)}` shows it, and what the router leaves out until "
                f"`fab up {same_choice(options)}` or another restart has it taken back."
            )
            raise
        rows = observe(fleet, hosts, stack, timeout_s=limits.ask_s)
    unknown = unknown_hosts(rows)
    output.document(with_failures(status_document(stack, rows), unknown))
    output.data(status_table(rows))
    for words in told(rows, same_choice(options)):
        output.message(words)
    if unknown:
        output.failed_hosts(unknown, len(hosts))
        output.next_command(f"fab status {same_choice(options)}")
        return HostsFailed.exit_code
    output.next_command(f"fab verify {same_choice(options)}")
    return 0


def _selection(options: Options) -> Selection:
    """Which groups are named.

    Raises:
        StackError: the replica is no number of one.
    """
    replica = options.text("replica")
    if replica is not None and not (replica.isdecimal() and len(replica) <= MOST_DIGITS):
        what = f"{replica[:MOST_DIGITS]!r} is not the number of a replica."
        raise StackError("--replica", what, "They count from 0: --replica 0.")
    return Selection(
        role=options.text("role"),
        replica=None if replica is None else int(replica),
        rolling=options.is_on("rolling"),
    )


def _recorded_release(options: Options, output: Output) -> tuple[str, tuple[HostFailure, ...]]:
    """The one release that all hosts hold which can be asked, and why others of the inventory cannot.

    Raises:
        PrerequisiteError: there is none, or two: a restart would mix them.
    """
    with open_recorded(options, output) as reached:
        recorded, away = read_reached(
            reached.fleet, reached.hosts, reached.name, timeout_s=Limits().ask_s
        )
    where, again = f"stack {reached.name}", same_choice(options)
    if not recorded.releases:
        refuse_wrong_choice(options)
        all_reports({failure.host: failure.error for failure in away})
        what = "Nothing of it is on its hosts, so nothing can be restarted."
        raise PrerequisiteError(where, what, f"Run `fab up {again}`.")
    held = {host: release.release for host, release in recorded.releases.items()}
    if len(set(held.values())) > 1 or recorded.unfinished:
        names = [f"{host}: {name[:HASH_SHOWN]}" for host, name in held.items()]
        names += [
            f"{h}: {name[:HASH_SHOWN]}, half installed" for h, name in recorded.unfinished.items()
        ]
        what = (
            f"Its hosts hold more than one release ({'; '.join(names)}). Ranks of two engine releases do not serve "
            "together: the KV handshake and the group's own refuse it. Nothing was changed."
        )
        fix = f"`fab diff {again}` shows what differs; `fab up {again} --replace` brings all hosts to one release."
        raise PrerequisiteError(where, what, fix)
    return next(iter(held.values())), away


def _in_plan(
    options: Options, chosen: ChosenRelease, failures: Sequence[HostFailure]
) -> dict[str, InfraError]:
    """Why hosts of a plan cannot be asked, by the plan's names for them."""
    listed = needed_inventory(options, chosen.plan.stack) if failures else None
    errors = {failure.host: failure.error for failure in failures}
    addresses = {
        host.service_address: errors[host.name]
        for host in (listed.hosts if listed is not None else ())
        if host.name in errors
    }
    return {
        name: addresses[host.service_address]
        for name, host in chosen.hosts.items()
        if host.service_address in addresses
    }
