"""`fab verify`: prove that hosts are as declared and that every rank serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.catalog.load import Catalog
from infra.engines.capabilities import CAPABILITIES
from infra.errors import Differs, HostsFailed, NotReady
from infra.launch.answering import AnsweringFleet
from infra.launch.fleet import Fleet
from infra.launch.name_lists import clauses
from infra.launch.proof.host_drift import Check
from infra.launch.proof.verification import verify
from infra.launch.proof.watchers import WATCHED
from infra.launch.releases import HASH_SHOWN
from infra.launch.staging.checkpoints import deep_check
from infra.launch.staging.order import Outcome, mount_step
from infra.plan.router import ROUTER_ID
from infra.render.host_paths import credential_path
from infra.tasks.choice import same_choice
from infra.tasks.diff import listing
from infra.tasks.judged_release import JudgedRelease, judged_release
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, Output, table, with_failures
from infra.tasks.reached_hosts import deployment_of
from infra.tasks.recorded_hosts import open_fleet
from infra.tasks.stack_options import compile_for_hosts
from infra.tasks.staging_choice import staging_of

REQUEST_S = 60.0


def run(options: Options, output: Output) -> int:
    """Print every check; 4 when a host cannot be asked, 5 when something does not serve, 6 when a host differs."""
    catalog = Catalog()
    compiled = compile_for_hosts(options, catalog)
    with open_fleet(options, compiled.book.hosts, output) as opened:
        judged = judged_release(options, compiled, opened, output)
        if judged.other is None:
            return _prove(options, judged, catalog, opened, output)
    with open_fleet(options, judged.chosen.hosts, output) as opened:
        return _prove(options, judged, catalog, opened, output)


def _prove(
    options: Options, judged: JudgedRelease, catalog: Catalog, opened: Fleet, output: Output
) -> int:
    chosen, again = judged.chosen, same_choice(options)
    plan = chosen.plan
    if judged.other is not None:
        output.message(output.toned(judged.told, "warn"))
    fleet = AnsweringFleet(opened)
    fleet.leave_out({one.host: one.error for one in judged.away if one.host in chosen.hosts})
    deployment, secrets = deployment_of(chosen.placed, catalog, fleet, output)
    timeout_s = options.number("timeout") or REQUEST_S
    checks = verify(deployment, secrets, timeout_s, catalog)
    if options.is_on("deep"):
        output.message("reading every byte of the weights: engines are slower meanwhile")
        # asked without the one that leaves out who fails: a reading goes on while its host is away for a moment
        weights = judged.file.stack.spec.weights
        checkpoints, staging = staging_of(chosen.placed, weights, catalog, opened, output)
        outcomes = deep_check(staging, checkpoints)
        checks += deep_rows(outcomes)
        fleet.leave_out({one.host: one.error for one in outcomes if one.error is not None})
    document = {**verify_document(plan.stack, checks), **judged_document(judged)}
    output.document(with_failures(document, fleet.failures))
    output.data(checks_table(checks))
    _tell_rest(judged, checks, output)
    if fleet.away:
        output.failed_hosts(fleet.failures, len(chosen.hosts))
        output.next_command(f"fab verify {again}")
        return HostsFailed.exit_code
    wrong = [check for check in checks if check.is_wrong]
    if any(not check.is_drift for check in wrong):
        groups = {process.id: process.group for process in plan.processes}
        output.next_command(
            other_key(wrong, plan.stack, again) or serving_way_out(wrong, groups, again)
        )
        return NotReady.exit_code
    if wrong:
        output.next_command(way_out(wrong, again, judged))
        return Differs.exit_code
    output.next_command(f"fab {'logs' if judged.other is None else 'diff'} {again}")
    return 0


def _tell_rest(judged: JudgedRelease, checks: Sequence[Check], output: Output) -> None:
    """What a stack does not serve, how many checks there were, and how the stack file differs from what was judged."""
    cannot = [name for name in CAPABILITIES if name not in judged.chosen.plan.capabilities]
    if cannot:
        output.data(f"This stack does not serve: {', '.join(cannot)}.")
    wrong = [check for check in checks if check.is_wrong]
    unknown = [check for check in checks if check.ok is None]
    open_ones = f", {len(unknown)} not judged" if unknown else ""
    output.data(f"{len(checks)} checks, {len(wrong)} wrong{open_ones}.")
    if judged.other is not None:
        changes = listing(judged.changes) if judged.changes else "nothing of any process"
        output.data(f"\n{judged.told} The stack file would change:\n{changes}")


def other_key(wrong: Sequence[Check], stack: str, again: str) -> str:
    """What to type when engines ask for another key than the stack's: no answer to the stack's tells anything."""
    held = f"file:{credential_path(stack, 'api_key')}"
    if not any(check.check == held for check in wrong):
        return ""
    return f"fab diff {again}, then fab up {again} --replace"


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


def way_out(wrong: Sequence[Check], again: str, judged: JudgedRelease | None = None) -> str:
    """What to type when hosts differ.

    Where the hosts hold another release than the stack file says, nothing here ends with the file's release in its
    place, and nothing removes the releases that hosts keep.

    Args:
        wrong: what differs.
        again: the options that choose the same stack and inventory.
        judged: what hosts were held against; None for the stack file's release.
    """
    other = None if judged is None else judged.other
    mends = {check.mend for check in wrong if check.check != WATCHED}
    is_kept = other is not None or (judged is not None and judged.is_mixed)
    if is_kept and mends & {"drain", "reboot"}:
        # only `down` clears a host, and with the release goes what could bring it back
        return f"fab diff {again}{_release_words(other)}"
    # what serves is handed to its watchers, and its hosts are closed, while it serves: for them nothing is stopped
    needs_up = any(check.check == WATCHED or check.mend in {"close", "renew"} for check in wrong)
    stops = bool(mends & {"start", "drain", "reboot"})
    steps = [f"fab down {again}"] if stops and not is_kept else []
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
    if stops or needs_up:
        steps += [f"fab diff {again}"] if is_kept and other is None else []
        steps.append(f"fab up {again}{_up_words(other, is_kept=is_kept)}")
    if blind and len(steps) == 1:
        steps.append(f"fab verify {again} --deep")
    return ", then ".join(steps)


def _release_words(other: str | None) -> str:
    return "" if other is None else f" --release {other[:HASH_SHOWN]}"


def _up_words(other: str | None, *, is_kept: bool) -> str:
    """What has `up` bring back the release that was judged: one that hosts keep, or the file's over several."""
    if other is not None:
        return _release_words(other)
    return " --replace" if is_kept else ""


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


def judged_document(judged: JudgedRelease) -> dict[str, object]:
    """Which release `verify` has judged, and what the stack file would change of it; of `--json`."""
    return {
        "release": judged.chosen.plan.hash,
        "file_release": judged.file.plan.hash,
        "file_changes": [change.as_document() for change in judged.changes],
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
