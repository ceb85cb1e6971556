"""The rules as a document: `python -m infra.checks.listing` writes docs/rules.md."""

from __future__ import annotations

import inspect
from pathlib import Path

from infra.checks.rule_releases import described_with_parts
from infra.checks.rules import RULES
from infra.checks.view import Rule

PATH = Path(__file__).resolve().parents[2] / "docs" / "rules.md"
HEAD = """\
# Rules

Written by `python -m infra.checks.listing` from `infra/checks/`; a test keeps it current. `fab check` applies every
rule to the plan of a stack, or to a plan document with `--plan FILE`. An error refuses the stack and leaves with 2;
a warning is printed; `fab check --explain RULE` prints one rule. A stack accepts a finding with
`waive: [{rule: ID, reason: WHY}]`; it is printed all the same.

What cannot be read or placed at all (an unknown key, a wrong type, an id that the catalogue lacks, devices left idle
without being declared) is reported with its line before these rules. Which of them stop failures that users reported in
public: [outages.md](outages.md).

| rule | severity | what holds | releases | source |
|---|---|---|---|---|
"""


def rules_document() -> str:
    """The content of docs/rules.md: one row per rule, in the order in which they are applied."""
    return HEAD + "".join(_row(name, rule) for name, rule in RULES.items())


def explained(rule: Rule) -> tuple[str, str]:
    """What holds, in one sentence, and what is to be said beyond it; the latter may be empty."""
    sentence, _, reason = (inspect.getdoc(rule.check) or "").partition("\n\n")
    return sentence.replace("\n", " "), reason


def told_releases(rule: Rule) -> str:
    """The releases that a rule holds for, in words, and those of its parts."""
    return described_with_parts(rule.releases, rule.parts)


def _row(name: str, rule: Rule) -> str:
    cells = (f"`{name}`", rule.severity, explained(rule)[0], told_releases(rule), rule.source)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    PATH.write_text(rules_document(), encoding="utf-8")
