"""`docs/fidelity.md`: recorded verdicts beside what the rules and the simulated engine say."""

from __future__ import annotations

from collections.abc import Sequence

from infra.packages.verdicts.asking_process import SPEAKERS
from infra.packages.verdicts.records import Record
from tests.packages.fidelity import (
    Compared,
    machines_refusal,
    names_differ,
    plans,
    rules_differ,
    shipped,
    shipped_to_newer,
    simulator_differs,
    simulator_names_differ,
)
from tests.packages.refusal_lists import cover_of, listed

HEAD = """\
# Fidelity

What the released engines and routers themselves say. `scripts/verify-engines` runs their own code, without an
accelerator, on commands of the stacks and on damaged ones, and records the answers in `tests/cases/verdicts/`;
`pytest tests/packages/test_fidelity.py --update-golden` compares them with the rules and the simulated engine and
writes this page.

- **parse**: the program's own argument parser, and what it checks of the arguments by themselves.
- **config**: the code that builds its configuration (`create_engine_config`, `ServerArgs`, the routers' constructors).
- **checks**: what it checks of the finished configuration for the platform, with the class of the
  accelerator's vendor.

Configuration files of checkpoints are put together from the catalogue. Weights, devices, networks and other processes
are not there: what fails only with them is the business of `fab preflight`, of the rehearsal, and of a real start.

"""


def fidelity_page(records: Sequence[Record], compared: Sequence[Compared]) -> str:
    """The whole page."""
    asked = _asked(records) + _read(records) + _shipped(records)
    return HEAD + asked + _broken(records, compared) + _rows(compared)


def _asked(records: Sequence[Record]) -> str:
    """Which of the pinned releases have a record, and what asks them."""
    recorded = {record.release for record in records}
    asked = (*shipped().values(), *shipped_to_newer().values())
    pinned = sorted({(each.release, each.package) for each in asked})
    lines = [
        "## What was asked",
        "",
        "Each release that a stack pins, and the module of `infra/packages/verdicts/` that speaks for it. Newer ones",
        "(`infra/packages/verdicts/newer.py`) are asked about the commands that the stacks would have on them, about",
        "some damaged ones, and about one command for each row of `infra/catalog/combinations/`.",
        "",
        "| release | commands of stacks | speaker | recorded |",
        "|---|---|---|---|",
    ]
    for release, package in pinned:
        count = sum(1 for each in asked if each.release == release)
        speaker = f"`{_speaker(package)}`" if package in SPEAKERS else "none"
        word = "yes" if release in recorded else "**no**"
        lines.append(f"| {release} | {count} | {speaker} | {word} |")
    heard = {_speaker(package) for release, package in pinned if release in recorded}
    unheard = sorted({_speaker(package) for package in SPEAKERS} - heard)
    silent = [release for release, _ in pinned if release not in recorded]
    mute = [release for release, package in pinned if package not in SPEAKERS]
    if silent:
        lines += ["", f"Pinned and not recorded: {', '.join(silent)}."]
    if unheard:
        lines += [
            f"Speakers without any recorded run: {', '.join(f'`{name}`' for name in unheard)}."
        ]
    if mute:
        lines += [f"Nothing speaks for: {', '.join(mute)}."]
    return "\n".join([*lines, "", ""])


def _read(records: Sequence[Record]) -> str:
    """What each release of the catalogue refuses, and how much of it a rule holds."""
    recorded = {record.release for record in records}
    lines = [
        "## What was read",
        "",
        "Each release of an engine that `fab check` and `fab import` judge by: every `raise` and `assert` of the code",
        "that decides about its command line (`tests/cases/refusals/`). A rule holds it, or there is a reason why none",
        "has to. Releases without a record were not run: they are judged by what was read alone.",
        "",
        "| release | refusals | held by a rule | with a reason | recorded |",
        "|---|---|---|---|---|",
    ]
    for release, refusals in listed().items():
        held = sum(1 for each in refusals if (cover := cover_of(each)) and cover.rule)
        rest = len(refusals) - held
        word = "yes" if release in recorded else "no"
        lines.append(f"| {release} | {len(refusals)} | {held} | {rest} | {word} |")
    return "\n".join([*lines, "", ""])


def _speaker(package: str) -> str:
    """The file name of the module that asks a package."""
    return f"{SPEAKERS[package].__module__.rpartition('.')[2]}.py"


def _shipped(records: Sequence[Record]) -> str:
    lines = [
        "## Commands as they are shipped",
        "",
        "| release | stack | commands | level | verdict |",
    ]
    lines.append("|---|---|---|---|---|")
    for record in records:
        for stack in plans():
            rows = [row for row in record.shipped if row.stack == stack]
            if rows:
                levels = ", ".join(sorted({row.verdict.level for row in rows}))
                refused = [row.verdict.says for row in rows if row.verdict.says]
                verdict = _cell(refused[0]) if refused else "accepted"
                lines.append(
                    f"| {record.release} | `{stack}` | {len(rows)} | {levels} | {verdict} |"
                )
    return "\n".join([*lines, "", ""])


def _broken(records: Sequence[Record], compared: Sequence[Compared]) -> str:
    refused_by = (
        "the release refuses | of these the rules | and the simulated engine | rules name what it names "
        "| the simulated engine names it"
    )
    lines = [
        "## Damaged commands",
        "",
        "Refusals that are due to the machine that was asked, and not to the release, stand in a column of their own",
        "and count for nothing else; the table below has the reasons. Where a release's refusal names flags, variables",
        "or fields of JSON flags, that of the rules has to name one of them, or what was damaged, and that of the",
        "simulated engine one of them: so many do, of those that could.",
        "",
        f"| release | commands | due to the machine | {refused_by} | differences |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for record in records:
        mine = [each for each in compared if each.release == record.release]
        machines = [each for each in mine if machines_refusal(each)]
        refused = [each for each in mine if each.row.verdict.is_refused and each not in machines]
        ours = sum(1 for each in refused if each.ours)
        simulated = sum(1 for each in refused if each.simulated)
        played = "not played" if all(each.simulated is None for each in mine) else str(simulated)
        naming = [each for each in refused if each.ours and each.named]
        precise = sum(1 for each in naming if not each.misses)
        naming_too = [each for each in refused if each.simulated and each.named]
        alike = sum(1 for each in naming_too if not each.simulator_misses)
        words = f"{alike} of {len(naming_too)}" if naming_too else "not played"
        different = sum(1 for each in mine if _differences(each))
        lines.append(
            f"| {record.release} | {len(mine)} | {len(machines)} | {len(refused)} | {ours} | {played} "
            f"| {precise} of {len(naming)} | {words} | {different} |"
        )
    return "\n".join([*lines, "", ""])


def _rows(compared: Sequence[Compared]) -> str:
    lines = [
        "## Each of them",
        "",
        "Refused commands and differences; where all accept, nothing is said.",
        "",
        "| release | command | damage | the release | the rules | simulated | why they differ |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in compared:
        machines = machines_refusal(each)
        why = (
            f"a fact of the recording machine: {machines}"
            if machines
            else "; ".join(_differences(each))
        )
        if each.row.verdict.is_accepted and not why:
            continue
        verdict = each.row.verdict
        says = f"{verdict.level}: {_cell(verdict.says)}" if verdict.says else "accepts"
        rules = ", ".join(f"`{rule}`" for rule in dict.fromkeys(p.rule for p in each.ours))
        played = {None: "–", "": "accepts"}.get(each.simulated, "refuses")
        lines.append(
            f"| {each.release} | `{each.row.stack}` {each.row.process} | {_cell(each.row.change)} "
            f"| {says} | {rules or 'accept'} | {played} | {why} |"
        )
    return "\n".join([*lines, ""])


def _differences(each: Compared) -> list[str]:
    """Why the rules, their words or the simulated engine differ from the release; each reason once."""
    reasons = (
        rules_differ(each),
        names_differ(each),
        simulator_differs(each),
        simulator_names_differ(each),
    )
    return list(dict.fromkeys(reason for reason in reasons if reason))


def _cell(text: str) -> str:
    """A cell of a table: one line, without bars and without what would be markup."""
    short = text if len(text) <= 150 else f"{text[:149].rpartition(' ')[0]} …"
    return short.replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
