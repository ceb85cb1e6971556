"""What `up` looks at before it changes anything: the light preflight, and what the operator overrules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from infra.catalog.load import Catalog
from infra.errors import HostsFailed, InfraError, PrerequisiteError, StackError
from infra.inventory.facts_file import RecordedHost
from infra.launch.answering import names_of
from infra.launch.deployment import Deployment
from infra.launch.fleet import all_reports
from infra.launch.preflight.finding import Finding, Grouped, blocking, grouped, host_names
from infra.launch.preflight.scene import Scene
from infra.launch.preflight.table import CHECKS, judge
from infra.remote.failures import MAY_BE_GONE, HostFailure, SeveralHostsFailed

# A lease is forced by its own word (launch/lease.py), and is no check of a host.
OTHER_FORCES = ("lease", "daemon-reload")
NEEDS_TUNING = "ports-reserved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """How `up` judges hosts.

    Args:
        catalog: what is true of the world.
        recorded: what the facts file says, by plan host.
    """

    catalog: Catalog = field(default_factory=Catalog)
    recorded: Mapping[str, RecordedHost] = field(default_factory=dict)


class NotFit(PrerequisiteError):
    """Hosts on which a stack cannot start; `findings` are those that block, equal ones once."""

    def __init__(self, stack: str, findings: Sequence[Finding]) -> None:
        """Where, what and fix are the first finding's; the text lists all."""
        groups = grouped(findings)
        first = groups[0]
        what = f"{sentence(first.finding.observed)} [{first.finding.check}]"
        super().__init__(host_names(first.hosts), what, advice(first.fix))
        self.findings = tuple(findings)
        self.lines = tuple(finding_line(group) for group in groups)
        names = " ".join(f"--force {name}" for name in dict.fromkeys(f.check for f in findings))
        self._way_past = (
            f"Nothing was changed. `fab preflight --stack {stack}` looks at more; "
            f"`fab up --stack {stack} {names}` goes on all the same."
        )

    def each(self) -> tuple[InfraError, ...]:
        """One failure per finding, for `--json`."""
        return tuple(
            PrerequisiteError(one.host, f"{sentence(one.observed)} [{one.check}]", advice(one.fix))
            for one in self.findings
        )

    def __str__(self) -> str:
        """One line per finding, and the way past them."""
        return "\n".join([*self.lines, self._way_past])


class NotAllAnswer(HostsFailed):
    """Hosts that cannot be asked, with what speaks against a start on the others."""

    def __init__(
        self,
        errors: Mapping[str, InfraError],
        num_hosts: int,
        others: Sequence[PrerequisiteError],
    ) -> None:
        """Where, what and fix are the first host's; the text lists all."""
        first = next(iter(errors.values()))
        super().__init__(first.where, first.what, first.fix)
        failures = [HostFailure(host, error) for host, error in errors.items()]
        alone = str(first) if len(errors) == 1 else str(SeveralHostsFailed(failures, num_hosts))
        self._errors = (*errors.values(), *(one for other in others for one in other.each()))
        # what is the way past findings is none here
        told = (other.lines if isinstance(other, NotFit) else (str(other),) for other in others)
        self._lines = (alone, *(line for lines in told for line in lines))

    def each(self) -> tuple[InfraError, ...]:
        """One failure per host and per finding, for `--json`."""
        return self._errors

    def __str__(self) -> str:
        """The hosts, then one line per finding."""
        return "\n".join(self._lines)


def refuse_silent(
    deployment: Deployment, scene: Scene, *, tunes: bool, also: Sequence[PrerequisiteError]
) -> None:
    """Refuse the start when a host cannot be asked, and say what speaks against it on the others.

    Args:
        deployment: the plan and its hosts.
        scene: the hosts as they were found.
        tunes: whether tuning follows, which brings about what its items lack.
        also: what speaks against it beside their checks, worst first.

    Raises:
        HostsFailed: a host is away; `NotAllAnswer` where something blocks others.
    """
    if not scene.away:
        return
    stack = deployment.plan.stack
    words = f"{names_of(scene.away)} cannot be asked, so nothing is changed."
    words += f" `fab preflight --stack {stack}` judges the others"
    gone = [host for host, error in scene.away.items() if isinstance(error, MAY_BE_GONE)]
    if gone and not deployment.leaving:  # who replaces a host types that already
        replaces = f"`fab replace-host {gone[0]} NEW --stack {stack}`"
        words += f"; {replaces} puts another machine in the place of one that is gone"
    deployment.say(f"{words}.")
    refused = blocking(_judged(scene, tunes=tunes), deployment.forces)
    others = [*also, *([NotFit(stack, refused)] if refused else [])]
    if others:
        raise NotAllAnswer(scene.away, len(deployment.states), others)
    all_reports(scene.away)


def find_unfit(deployment: Deployment, scene: Scene, *, tunes: bool) -> list[PrerequisiteError]:
    """The refusal of a start that a check blocks and nobody forces; where there is none, warnings are said.

    Args:
        deployment: the plan and its hosts.
        scene: the hosts as they were found.
        tunes: whether tuning follows, which brings about what its items lack.
    """
    found = _judged(scene, tunes=tunes)
    refused = blocking(found, deployment.forces)
    if refused:
        return [NotFit(deployment.plan.stack, refused)]
    _say_rest(found, deployment.forces, deployment.say)
    return []


def refuse_unknown_checks(forces: Iterable[str]) -> None:
    """Refuse to force what is no check.

    Raises:
        StackError: a word names none.
    """
    for name in forces:
        if name not in CHECKS and name not in OTHER_FORCES:
            known = ", ".join(
                [*OTHER_FORCES, *(n for n, c in CHECKS.items() if c.depth == "light")]
            )
            raise StackError(f"--force {name}", "There is no such check.", f"Known are {known}.")


def _judged(scene: Scene, *, tunes: bool) -> list[Finding]:
    mended = (NEEDS_TUNING,) if tunes else ()
    return [finding for finding in judge(scene) if finding.check not in mended]


def finding_line(group: Grouped) -> str:
    """Who, what, fix and checks of a finding, in one line."""
    found = group.finding
    checks = ", ".join(group.checks)
    return f"{host_names(group.hosts)}: {sentence(found.observed)} {advice(group.fix)} [{checks}]"


def sentence(text: str) -> str:
    """A fact as a sentence, with its full stop; its first word may be a name, and stays as it is."""
    return text if text.endswith((".", "!", "?")) or not text else f"{text}."


def advice(fix: str) -> str:
    """A fix as a sentence: commands are quoted."""
    is_command = fix.startswith(("fab ", "ssh "))
    return f"Run `{fix}`." if is_command and not fix.endswith(".") else sentence(fix)


def _say_rest(found: Sequence[Finding], forces: Sequence[str], say: Callable[[str], None]) -> None:
    """Warnings, and what was forced."""
    for group in grouped([one for one in found if one.severity != "pass"]):
        is_forced = group.finding.severity == "block" and group.finding.check in forces
        word = f"forced by --force {group.finding.check}" if is_forced else "warning"
        say(f"{word}: {finding_line(group)}")
