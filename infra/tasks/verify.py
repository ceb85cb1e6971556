"""`fab verify`: prove that hosts are as declared and that every rank serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.catalog.load import Catalog
from infra.engines.capabilities import CAPABILITIES
from infra.errors import Differs, HostsFailed, InfraError, NotReady
from infra.launch.answering import AnsweringFleet
from infra.launch.fleet import Fleet
from infra.launch.name_lists import clauses
from infra.launch.proof.host_drift import Check
from infra.launch.proof.verification import verify
from infra.launch.proof.watchers import WATCHED
from infra.launch.staging.checkpoints import deep_check
from infra.launch.staging.order import Outcome, mount_step
from infra.plan.compile import CompiledStack
from infra.plan.router import ROUTER_ID
from infra.tasks.choice import same_choice
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, Output, table, with_failures
from infra.tasks.reached_hosts import make_deployment
from infra.tasks.recorded_hosts import open_fleet
from infra.tasks.stack_options import compile_for_hosts
from infra.tasks.staging_choice import staging_of

REQUEST_S = 60.0


def run(options: Options, output: Output) -> int:
    """Print every check; 4 when a host cannot be asked, 5 when something does not serve, 6 when a host differs."""
    catalog = Catalog()
    compiled = compile_for_hosts(options, catalog)
    timeout_s = options.number("timeout") or REQUEST_S
    with open_fleet(options, compiled.book.hosts, output) as opened:
        fleet = AnsweringFleet(opened)
        deployment, secrets = make_deployment(compiled, catalog, fleet, output)
        checks = verify(deployment, secrets, timeout_s, catalog)
        if options.is_on("deep"):
            output.message("reading every byte of the weights: engines are slower meanwhile")
            # asked without the one that leaves out who fails: a reading goes on while its host is away for a moment
            deep, errors = _deep_checks(compiled, catalog, opened, output)
            checks += deep
            fleet.leave_out(errors)
    document = verify_document(compiled.plan.stack, checks)
    output.document(with_failures(document, fleet.failures))
    output.data(checks_table(checks))
    cannot = [name for name in CAPABILITIES if name not in compiled.plan.capabilities]
    if cannot:
        output.data(f"This stack does not serve: {', '.join(cannot)}.")
    wrong = [check for check in checks if check.is_wrong]
    unknown = [check for check in checks if check.ok is None]
    open_ones = f", {len(unknown)} not judged" if unknown else ""
    output.data(f"{len(checks)} checks, {len(wrong)} wrong{open_ones}.")
    again = same_choice(options)
    if fleet.away:
        output.failed_hosts(fleet.failures, len(compiled.book.hosts))
        output.next_command(f"fab verify {again}")
        return HostsFailed.exit_code
    if any(not check.is_drift for check in wrong):
        groups = {process.id: process.group for process in compiled.plan.processes}
        output.next_command(serving_way_out(wrong, groups, again))
        return NotReady.exit_code
    if wrong:
        output.next_command(way_out(wrong, again))
        return Differs.exit_code
    output.next_command(f"fab logs {again}")
    return 0


def _deep_checks(
    compiled: CompiledStack, catalog: Catalog, fleet: Fleet, output: Output
) -> tuple[list[Check], dict[str, InfraError]]:
    """Every checkpoint of every host, or once of the mount that they share, byte by byte; and the silent hosts."""
    checkpoints, staging = staging_of(compiled, catalog, fleet, output)
    outcomes = deep_check(staging, checkpoints)
    return deep_rows(outcomes), {one.host: one.error for one in outcomes if one.error is not None}


def serving_way_out(wrong: Sequence[Check], groups: Mapping[str, str], again: str) -> str:
    """What to type when something does not serve.

    Ranks that take a question and give no answer look well in `fab status`, and nobody else restarts them while
    nothing is asked of them: their evidence is read first, for a restart ends it. Where a question is refused nobody
    listens (yet), which `fab status` tells.

    Args:
        wrong: what fails.
        groups: of each process, `<role>/<replica>`, or the router's id.
        again: the options that choose the same stack and inventory.
    """
    failing = [one for one in wrong if not one.is_drift]
    hung = dict.fromkeys(groups[one.process] for one in failing if one.mend == "restart")
    others = {groups[one.process] for one in failing} - {*hung, ROUTER_ID}
    if not hung or others:
        return f"fab status {again}"
    chosen = [""]
    if set(groups.values()) - {*hung, ROUTER_ID}:
        named = [group.partition("/") for group in hung]
        chosen = [f" --role {role} --replica {replica}" for role, _, replica in named]
    steps = [f"fab bundle {again}", *(f"fab restart {again}{which}" for which in chosen)]
    return ", then ".join(steps)


def way_out(wrong: Sequence[Check], again: str) -> str:
    """What to type when hosts differ.

    Args:
        wrong: what differs.
        again: the options that choose the same stack and inventory.
    """
    # what serves is handed to its watchers, and its hosts are closed, while it serves: for them nothing is stopped
    needs_up = any(check.check == WATCHED or check.mend in {"close", "renew"} for check in wrong)
    mends = {check.mend for check in wrong if check.check != WATCHED}
    stops = bool(mends & {"start", "drain", "reboot"})
    steps = [f"fab down {again}"] if stops else []
    if mends & {"tune", "drain", "reboot"}:
        allowed = [f" --allow {word}" for word in ("drain", "reboot") if word in mends]
        steps.append(f"fab tune-hosts {again}{''.join(allowed)}")
    if "reboot" in mends:
        hosts = dict.fromkeys(check.process for check in wrong if check.mend == "reboot")
        steps.append(f"reboot {', '.join(hosts)}")
    blind = [check.process for check in wrong if check.mend == "mount"]
    steps += [mount_step(blind)] if blind else []
    # what such a host lacks lies on the mount
    stages = any(check.mend == "stage" and check.process not in blind for check in wrong)
    steps += [f"fab stage-weights {again}"] if stages else []
    steps += [f"fab up {again}"] if stops or needs_up else []
    if blind and len(steps) == 1:
        steps.append(f"fab verify {again} --deep")
    return ", then ".join(steps)


def deep_rows(outcomes: Sequence[Outcome]) -> list[Check]:
    """A check for each checkpoint of each host; one that nobody could read to its end is not known."""
    return [
        Check(
            process=one.host,
            check=f"weights:{one.checkpoint}",
            ok=None if one.error is not None else one.ok,
            detail=one.why,
            is_drift=True,
            mend="mount" if one.is_unseen else "stage",
        )
        for one in outcomes
    ]


def verify_document(stack: str, checks: Sequence[Check]) -> dict[str, object]:
    """The document of `verify`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "stack": stack,
        "ok": not any(check.is_wrong for check in checks),
        "checks": [
            {"process": check.process, "check": check.check, "ok": check.ok, "detail": check.detail}
            for check in checks
        ],
    }


def checks_table(checks: Sequence[Check]) -> str:
    """One row per check: how many are right, wrong and not judged, and the first reasons."""
    rows = [("check", "right", "wrong", "not judged", "detail")]
    for name in dict.fromkeys(check.check for check in checks):
        own = [check for check in checks if check.check == name]
        wrong = [check for check in own if check.is_wrong]
        unknown = [check for check in own if check.ok is None]
        told = wrong or unknown
        shown = clauses([f"{check.process}: {check.detail}" for check in told])
        right = str(len(own) - len(wrong) - len(unknown))
        words = shown or own[0].detail
        rows.append((name, right, str(len(wrong)), str(len(unknown)), words))
    return table(rows)
