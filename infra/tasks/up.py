"""`fab up`: start every process of a stack, and prove each rank with a token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from infra.catalog.load import Catalog
from infra.errors import HostsFailed, NotReady
from infra.launch.bring_up import Served, bring_up
from infra.launch.deployment import Deployment
from infra.launch.name_lists import listed
from infra.launch.observation import ProcessStatus, status_document, status_row
from infra.launch.preflight.gate import Gate, refuse_unknown_checks
from infra.tasks.asking import ask_first
from infra.tasks.choice import same_choice
from infra.tasks.chosen_release import chosen_release
from infra.tasks.options import Options
from infra.tasks.output import Output
from infra.tasks.reached_hosts import deployment_of
from infra.tasks.recorded_facts import recorded_facts
from infra.tasks.recorded_hosts import holding_lease, open_fleet
from infra.tasks.stack_secrets import read_secrets
from infra.tasks.status import status_table
from infra.tasks.unfinished import Begun, tell_unfinished


def run(options: Options, output: Output) -> int:
    """Bring the stack up; what runs already is left running."""
    catalog = Catalog()
    forces, ready_s = options.words("force"), options.number("timeout")
    refuse_unknown_checks(forces)
    chosen = chosen_release(options, catalog, output)
    read_secrets(
        chosen.plan.secrets
    )  # one that is not there ends the task before a host is changed
    recorded = recorded_facts(options, chosen.plan.stack, chosen.hosts)
    with (
        open_fleet(options, chosen.reached, output) as opened,
        holding_lease(options, "fab up", opened, chosen.plan.stack, tuple(chosen.hosts)) as fleet,
    ):
        deployment, secrets = deployment_of(chosen.placed, catalog, fleet, output)
        begun = Begun()

        def agree(groups: Sequence[str]) -> None:
            question = f"{listed(groups)} serve a release that is replaced, and stop. Replace?"
            ask_first(options, output, question, f"stack {chosen.plan.stack}")

        deployment = replace(
            deployment,
            agree=agree,
            spares=tuple(chosen.spares),
            forces=forces,
            decided=begun,
            hang_up=opened.hang_up,
        )
        if ready_s is not None:
            deployment = replace(deployment, limits=replace(deployment.limits, ready_s=ready_s))
        replaces = options.is_on("replace") or options.text("release") is not None
        try:
            served = bring_up(
                deployment,
                secrets,
                tunes=options.is_on("tune"),
                replaces=replaces,
                gate=Gate(catalog=catalog, recorded=recorded),
            )
        except (NotReady, HostsFailed) as error:
            again = same_choice(options)
            return tell_unfinished(deployment, output, error, has_begun=begun.is_so, again=again)
        except KeyboardInterrupt:
            again = same_choice(options)
            output.message(
                f"What was started goes on starting: `fab up {again}` goes on from there, "
                f"`fab down {again}` stops it."
            )
            raise
    rows = served_rows(deployment, served)
    output.document(status_document(chosen.plan.stack, rows))
    output.data(status_table(rows))
    output.data(f"{deployment.endpoints.model} is served at {client_url(deployment)}/v1")
    output.next_command(f"fab verify {same_choice(options)}")
    return 0


def served_rows(deployment: Deployment, served: Served) -> list[ProcessStatus]:
    """A row for each process of a deployment that has just been proven."""
    return [
        status_row(
            process.devices,
            served.units[process.id],
            served.groups.get(process.group),
            ready=served.units[process.id].active_state == "active",
            is_watched=True,
        )
        for process in deployment.plan.processes
        if process.id in served.units
    ]


def client_url(deployment: Deployment) -> str:
    """Where clients go: the edge, the router, or the only endpoint."""
    front = deployment.endpoints.edge or deployment.endpoints.router
    return str(front.endpoint) if front is not None else deployment.endpoints.ranks[0].url
