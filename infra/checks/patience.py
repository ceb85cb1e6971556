"""Rules about who waits for an engine that loads, and for how long."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalog.figures import read_loading_rates
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_int
from infra.memory.time_to_ready import Delivery, TimeToReady, time_to_ready
from infra.plan.process import Process
from infra.spec.bounded import is_whole_number

READY_VARIABLE = "VLLM_ENGINE_READY_TIMEOUT_S"
READY_DEFAULT_S = 600
# A load is slower than its figure more often than faster.
MARGIN = 1.5


def probes_wait(view: PlanView) -> Iterator[Finding]:
    """No probe of a pod kills an engine before its weights can have been read.

    What is held against a probe is the least that reading takes, from a disk of the host's own and without compiling
    or capturing anything.
    """
    for process in view.engines:
        silence_s = view.surroundings.silence_s.get(process.id)
        expected = None if silence_s is None else _expected(view, process)
        if silence_s is None or expected is None or expected.load_s is None:
            continue
        if silence_s < expected.load_s:
            what = (
                f"The pod of {process.id} is killed after {silence_s} s without an answer; reading its weights alone "
                f"takes {expected.load_s:.0f} s ({expected.why})."
            )
            least = 10 * round(_patient_s(expected) / 10)
            fix = f"Add a startupProbe whose failureThreshold x periodSeconds is at least {least}."
            field = f"roles.{process.role}.startupProbe"
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def api_servers_wait(view: PlanView) -> Iterator[Finding]:
    """Where several API servers wait for engines that load, they wait long enough."""
    for process in view.variants:
        if not _has_several_servers(view, process):
            continue
        given = process.env.get(READY_VARIABLE, str(READY_DEFAULT_S))
        expected = _expected(view, process)
        if expected is None or expected.load_s is None or not is_whole_number(given):
            continue
        needed = _patient_s(expected)
        if int(given) < needed:
            what = (
                f"API servers wait {given} s for their engines; {expected.load_s:.0f} s of loading ({expected.why}) "
                f"and {expected.start_s:.0f} s of compiling want {needed:.0f} s."
            )
            fix = f"Set {READY_VARIABLE} to {10 * -(-round(needed) // 10)} or more."
            field = f"roles.{process.role}.env.{READY_VARIABLE}"
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def router_waits(view: PlanView) -> Iterator[Finding]:
    """A router that starts with its engines waits until they can answer."""
    if view.surroundings.spec is not None:
        return  # `fab up` starts it when every engine has answered
    for router in view.routers:
        patience_s = as_int(view.readings[router.id].flags.get("worker-startup-timeout-secs"), 0)
        expected = _expected(view, view.leaders[0]) if patience_s and view.leaders else None
        if expected is None or expected.load_s is None:
            continue
        if patience_s < expected.load_s + expected.start_s:
            what = (
                f"The router leaves after {patience_s} s without its engines; loading takes {expected.load_s:.0f} s "
                f"({expected.why}), and compiling {expected.start_s:.0f} s."
            )
            fix = (
                "Raise --worker-startup-timeout-secs, or start the router when the engines answer."
            )
            yield Finding(field="router", what=what, fix=fix, process=router.id)


def storage_meets_target(view: PlanView) -> Iterator[Finding]:
    """The storage delivers the weights within the time that the stack names."""
    spec = view.surroundings.spec
    target_s = spec.weights.load_target_s if spec is not None else None
    if target_s is None or not view.leaders:
        return
    expected = _expected(view, view.leaders[0])
    if expected is None or expected.load_s is None:
        return
    if expected.load_s > target_s:
        what = (
            f"Loading takes {expected.load_s:.0f} s ({expected.why}); load_target_s is {target_s}."
        )
        fix = "Use a faster storage or load-format, or a larger load_target_s."
        yield Finding(field="weights.load_target_s", what=what, fix=fix)


def _has_several_servers(view: PlanView, process: Process) -> bool:
    """Whether more than one API server of a process waits for engines (vllm entrypoints/cli/serve.py@0.22.1)."""
    reading = view.readings[process.id]
    if reading.http_port is None or view.flags(process).get("data-parallel-multi-port-external-lb"):
        return False
    mode = getattr(reading.extra.get("parallel"), "mode", "single")
    default = {"internal": reading.group_size, "hybrid": len(reading.dp_ranks)}.get(mode, 1)
    return as_int(view.flags(process).get("api-server-count"), default) > 1


def _expected(view: PlanView, process: Process) -> TimeToReady | None:
    """What a load takes at best, the hosts of a group sharing it; None when the checkpoint is not in the catalogue."""
    if view.checkpoint is None:
        return None
    spec = view.surroundings.spec
    hosts = {member.host for member in view.groups[process.group]}
    draft = view.draft(process)
    delivery = Delivery(
        storage=spec.weights.storage if spec is not None else None,
        size_bytes=(view.checkpoint.size_bytes + (draft.size_bytes if draft else 0)) // len(hosts),
        num_hosts=len(hosts),
        load_format=str(view.flags(process).get("load-format", "auto")),
        family=view.family,
        lustre=None,
    )
    return time_to_ready(delivery, read_loading_rates())


def _patient_s(expected: TimeToReady) -> float:
    return (expected.load_s or 0) * MARGIN + expected.start_s
