"""Two stacks on one host: fine while their devices and ports do not meet."""

from __future__ import annotations

from collections.abc import Mapping

from infra.errors import PrerequisiteError
from infra.launch.fleet import Report
from infra.launch.name_lists import clauses
from infra.plan.process import Plan, Process
from infra.render.release_record import RecordedProcess, Release, read_release
from infra.render.reserved_ports import reserved_ports_text


def records_of(host: str, report: Report) -> dict[str, Release]:
    """Every stack that is recorded on a host, by name.

    Raises:
        HostsFailed: a record is damaged.
    """
    texts = report.get("records")
    listed = texts.items() if isinstance(texts, Mapping) else ()
    return {str(stack): read_release(host, str(stack), str(text)) for stack, text in listed}


def find_shared(
    plan: Plan, records: Mapping[str, Mapping[str, Release]]
) -> list[PrerequisiteError]:
    """Devices and ports that another stack on a host has, running or not: one refusal for each host and stack.

    Args:
        plan: what is to be brought up.
        records: by host, then by stack; the plan's own is left out.
    """
    found = []
    for host, stacks in records.items():
        for stack, release in stacks.items():
            meets = [
                f"{own.id} and {theirs.id} of stack {stack}, installed there, both want {words}"
                for theirs in (release.processes if stack != plan.stack else ())
                for own in plan.on_host(host)
                if (words := _shared(own, theirs))
            ]
            if meets:
                fix = f"Run `fab down --stack {stack}`, or give one of the two other hosts, devices or ports."
                what = f"{clauses(meets)}."
                found.append(PrerequisiteError(host, what, fix))
    return found


def find_unlike(
    plan: Plan, records: Mapping[str, Mapping[str, Release]]
) -> list[PrerequisiteError]:
    """Another stack on a host that is closed by its plan where this one is not, or the other way round.

    The one that is closed drops what strangers dial in the ranges in which engines choose their ports, and peers of
    the other stack are strangers to it. Of two closed ones each lets in its own.

    Args:
        plan: what is to be brought up.
        records: by host, then by stack; the plan's own is left out.
    """
    is_closed = plan.firewall is not None
    found = []
    for host, stacks in records.items():
        for stack, release in stacks.items():
            if stack == plan.stack or release.is_closed == is_closed:
                continue
            closed, other = (plan.stack, stack) if is_closed else (stack, plan.stack)
            what = (
                f"Stack {closed} closes this host, and would shut out the peers of stack {other}, which does not: "
                "both choose ports of one range."
            )
            fix = "Write `firewall: plan` in both stacks, or in neither."
            found.append(PrerequisiteError(host, what, fix))
    return found


def _shared(own: Process, theirs: RecordedProcess) -> str:
    """The devices and ports that both want, in words; empty when there are none."""
    bound = {bind.port + i for bind in own.binds for i in range(bind.count)}
    both = {"device": {*own.devices} & {*theirs.devices}, "port": bound & {*theirs.ports}}
    return " and ".join(
        f"{name}{'s' if len(numbers) > 1 else ''} {reserved_ports_text('', numbers)}"
        for name, numbers in both.items()
        if numbers
    )
