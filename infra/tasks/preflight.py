"""`fab preflight`: whether a stack can start on its hosts, worst first, each with what mends it."""

from __future__ import annotations

from collections.abc import Sequence

from infra.catalog.load import Catalog
from infra.errors import PrerequisiteError
from infra.launch.preflight.finding import (
    Finding,
    Grouped,
    blocking,
    grouped,
    host_names,
    preflight_document,
)
from infra.launch.preflight.table import judge
from infra.launch.preflight.waves import IMEX_S, look, look_further
from infra.tasks.choice import recorded_facts, same_choice
from infra.tasks.options import Options
from infra.tasks.output import Output, Tone
from infra.tasks.reached_hosts import make_deployment
from infra.tasks.recorded_hosts import open_fleet
from infra.tasks.stack_options import compile_for_hosts, refuse_problems

_TONES: dict[str, Tone] = {"block": "bad", "warn": "warn", "pass": "good"}


def run(options: Options, output: Output) -> int:
    """Look at every host in three waves, and judge; nothing is changed."""
    catalog = Catalog()
    compiled = compile_for_hosts(options, catalog)
    refuse_problems(compiled, catalog, output)
    recorded = recorded_facts(options, compiled.plan.stack, compiled.book.hosts)
    with open_fleet(options, compiled.book.hosts) as fleet:
        deployment, _ = make_deployment(compiled, catalog, fleet, output)
        scene = look(deployment, catalog, "full", recorded).scene
        scene = look_further(deployment, scene, options.number("timeout") or IMEX_S)
    findings = judge(scene)
    output.document(preflight_document(compiled.plan.stack, findings))
    for group in grouped([one for one in findings if one.severity != "pass"]):
        output.data(output.toned(_paragraph(group), _TONES[group.finding.severity]))
    output.data(_summary(findings))
    refused = blocking(findings, ())
    if refused:
        return PrerequisiteError.exit_code
    output.next_command(f"fab up {same_choice(options)}")
    return 0


def _paragraph(group: Grouped) -> str:
    """A finding for people: severity, check and hosts; what was seen, what is wanted, what to type."""
    found = group.finding
    head = f"{found.severity:<5} {found.check}  {host_names(group.hosts)}"
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
