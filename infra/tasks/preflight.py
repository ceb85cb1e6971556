"""`fab preflight`: whether a stack can start on its hosts, worst first, each with what mends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from infra.catalog.load import Catalog
from infra.errors import HostsFailed, PrerequisiteError, StackError
from infra.inventory.collective_baseline import RecordedCollective
from infra.inventory.facts_file import facts_path, read_collectives
from infra.launch.answering import AnsweringFleet
from infra.launch.preflight.finding import (
    Finding,
    Grouped,
    blocking,
    grouped,
    host_names,
    preflight_document,
)
from infra.launch.preflight.group_collectives.checks import CHECK, sound_collectives
from infra.launch.preflight.group_collectives.starting import JOIN_S
from infra.launch.preflight.table import AS_WANTED, judge
from infra.launch.preflight.waves import IMEX_S, look, look_further
from infra.tasks.choice import inventory_path, same_choice
from infra.tasks.facts_writing import add_facts
from infra.tasks.judging import refuse_problems
from infra.tasks.limit import left_out, limit_words, limited
from infra.tasks.options import Options
from infra.tasks.output import Output, Tone, with_failures
from infra.tasks.reached_hosts import make_deployment
from infra.tasks.recorded_facts import recorded_facts
from infra.tasks.recorded_hosts import open_fleet
from infra.tasks.stack_options import compile_for_hosts

_TONES: dict[str, Tone] = {"block": "bad", "warn": "warn", "pass": "good"}


def run(options: Options, output: Output) -> int:
    """Look at every host in three waves, and judge; 3 when something blocks, 4 when a host does not answer."""
    catalog = Catalog()
    imex_s, join_s = options.number("timeout") or IMEX_S, options.number("join") or JOIN_S
    compiled = compile_for_hosts(options, catalog)
    refuse_problems(compiled, catalog, output)
    path = facts_path(inventory_path(options, compiled.plan.stack))
    recorded = recorded_facts(options, compiled.plan.stack, compiled.book.hosts)
    with open_fleet(options, compiled.book.hosts, output) as fleet:
        answering = AnsweringFleet(fleet)
        deployment, _ = make_deployment(compiled, catalog, answering, output)
        chosen = limited(options, deployment.states, compiled.book.hosts)
        answering.leave_out(left_out(deployment.states, chosen))
        scene = look(deployment, catalog, "full", recorded).scene
        scene = replace(scene, baselines=read_collectives(path))
        scene = look_further(deployment, scene, imex_s, join_s)
    failures = tuple(one for one in answering.failures if one.host in chosen)
    findings = [one for one in judge(scene) if one.host in chosen]
    for one in grouped([one for one in findings if _tells_of_group(one)]):
        output.message(f"{host_names(one.hosts)}: {one.finding.observed}")
    _keep(path, sound_collectives(scene), output)
    document = preflight_document(compiled.plan.stack, findings)
    output.document(with_failures(document, failures))
    for group in grouped([one for one in findings if one.severity != "pass"]):
        output.data(output.toned(_paragraph(group), _TONES[group.finding.severity]))
    output.data(_summary(findings))
    if failures:
        output.next_command(f"fab preflight {same_choice(options)}{limit_words(options)}")
        return HostsFailed.exit_code
    if blocking(findings, ()):
        return PrerequisiteError.exit_code
    output.next_command(f"fab up {same_choice(options)}")
    return 0


def _tells_of_group(found: Finding) -> bool:
    """Whether it says what a group reached, or why it was not asked."""
    return found.check == CHECK and found.severity == "pass" and found.observed != AS_WANTED


def _keep(path: Path, measured: Sequence[RecordedCollective], output: Output) -> None:
    """Record what groups reached that have no baseline; that it cannot be kept is no finding about hosts."""
    if not measured:
        return
    try:
        changed = add_facts(path, {}, measured)
    except StackError as error:
        output.message(f"No baseline is kept: {error}")
        return
    if changed:
        names = ", ".join(one.group for one in measured)
        output.message(f"recorded what {names} reached as the baseline of these hosts: {path}")


def _paragraph(group: Grouped) -> str:
    """A finding for people: severity, check and hosts; what was seen, what is wanted, what to type."""
    found = group.finding
    head = f"{found.severity:<5} {', '.join(group.checks)}  {host_names(group.hosts)}"
    lines = [head, f"      observed  {found.observed}", f"      wanted    {found.wanted}"]
    return "\n".join([*lines, f"      fix       {group.fix}"])


def _summary(findings: Sequence[Finding]) -> str:
    counts = {
        severity: sum(finding.severity == severity for finding in findings)
        for severity in ("block", "warn", "pass")
    }
    hosts = len({finding.host for finding in findings})
    words = f"{counts['block']} block, {counts['warn']} warn, {counts['pass']} pass"
    return f"{words}, on {hosts} host{'s' * (hosts != 1)}"
