"""`fab stage-weights`: checkpoints, drafts and images on every host, or once on the mount that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

from infra.catalog.load import Catalog
from infra.errors import Differs, HostsFailed, InfraError, StackError
from infra.inventory.hosts import InventoryHost
from infra.launch.images.archive import read_archive
from infra.launch.images.presence import ImageOnHost, bring_images, unequal_images
from infra.launch.images.sending import Sending, plan_sending, send_and_load
from infra.launch.staging.caches import CacheOnHost, stage_caches
from infra.launch.staging.checkpoints import deep_check, end_stagings, stage
from infra.launch.staging.order import Outcome, Staging, mount_step
from infra.launch.staging.plan import SHARED_STORAGE, Checkpoint, giga
from infra.plan.compile import CompiledStack
from infra.plan.weights_origin import source_host
from infra.remote.failures import HostFailure
from infra.render.items import HostState
from infra.tasks.choice import chosen_name, needed_inventory, same_choice
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, Output, table, with_failures
from infra.tasks.reached_hosts import host_states, placed
from infra.tasks.recorded_hosts import open_fleet
from infra.tasks.stack_options import compile_for_hosts
from infra.tasks.staging_choice import chosen_checkpoints, open_staging


def run(options: Options, output: Output) -> int:
    """Stage, check or stop; 3 when a disk is too small, 4 when a host failed, 6 when a check finds damage."""
    _refuse_both(options)
    catalog = Catalog()
    compiled = compile_for_hosts(options, catalog)
    sending, states = _planned_sending(options, compiled, host_states(compiled, catalog))
    checkpoints = chosen_checkpoints(compiled, catalog, options.text("source"))
    hosts = _hosts(options, compiled, checkpoints)
    with open_fleet(options, hosts, output) as fleet:
        staging = open_staging(placed(compiled), fleet, output)
        staging = replace(staging, addresses={n: host.service_address for n, host in hosts.items()})
        if options.is_on("stop"):
            return _stop(staging, checkpoints, options, output)
        try:
            is_check = options.is_on("check")
            outcomes = (deep_check if is_check else stage)(staging, checkpoints)
            sent = None if is_check else sending
            images, problem = _images(staging, states, sent, is_check=is_check)
            caches = stage_caches(staging, compiled.plan) if options.is_on("caches") else []
        except KeyboardInterrupt:
            again = same_choice(options)
            output.message(
                f"The work goes on on the hosts: `fab stage-weights {again}` follows it, with --stop it ends "
                "and what has arrived is kept."
            )
            raise
    failures = _failures(outcomes, images, problem)
    document = {**stage_document(compiled.plan.stack, outcomes, images), **_caches_document(caches)}
    output.document(with_failures(document, failures))
    for one in caches:
        line = f"{one.host}: compile caches of {one.accelerator} {one.state}: {one.why}"
        output.data(output.toned(line, "bad") if one.state == "failed" else line)
    code = _report(outcomes, images, problem, options, output)
    return code or (HostsFailed.exit_code if _bad_caches(caches) else 0)


def _bad_caches(caches: Sequence[CacheOnHost]) -> bool:
    return any(one.state == "failed" for one in caches)


def _caches_document(caches: Sequence[CacheOnHost]) -> dict[str, object]:
    """A row for each host whose engines compile; nothing where caches were not asked for."""
    if not caches:
        return {}
    return {
        "caches": [asdict(one) for one in caches],
        **({"ok": False} if _bad_caches(caches) else {}),
    }


def _images(
    staging: Staging, states: Mapping[str, HostState], sending: Sending | None, *, is_check: bool
) -> tuple[list[ImageOnHost], InfraError | None]:
    """What became of the images, and why that is not known; what was staged before is told all the same."""
    try:
        if sending is None:
            mode: Literal["check", "apply"] = "check" if is_check else "apply"
            return bring_images(staging.fleet, states, mode, staging.pace), None
        return send_and_load(sending, states, staging), None
    except InfraError as error:
        return [], error


def _failures(
    outcomes: Sequence[Outcome], images: Sequence[ImageOnHost], problem: InfraError | None
) -> tuple[HostFailure, ...]:
    """The hosts that could not be asked, each once, and what else ended the work on images."""
    found = {one.host: one.error for one in outcomes if one.error is not None}
    found |= {one.host: one.error for one in images if one.error is not None}
    away = tuple(HostFailure(host, error) for host, error in found.items())
    return (*away, *(HostFailure(one.where, one) for one in (problem.each() if problem else ())))


def _planned_sending(
    options: Options, compiled: CompiledStack, states: Mapping[str, HostState]
) -> tuple[Sending | None, Mapping[str, HostState]]:
    """The archive of the command line, and host states whose image comes out of it; nothing without one."""
    path = options.text("image-archive")
    if path is None or options.is_on("stop"):
        return None, states
    weights = compiled.stack.spec.weights
    archive = read_archive(Path(path))
    return plan_sending(archive, states, weights.path, is_shared=weights.storage in SHARED_STORAGE)


def stage_document(
    stack: str, outcomes: Sequence[Outcome], images: Sequence[ImageOnHost]
) -> dict[str, object]:
    """The document of `stage-weights`."""
    hosts: dict[str, list[dict[str, object]]] = {one.host: [] for one in images}
    held: dict[str, list[dict[str, object]]] = {}
    for image in images:
        row: dict[str, object] = {"id": image.id, "state": image.state, "why": image.why}
        row["digest"] = image.digest
        held.setdefault(image.host, []).append(row)
    for one in outcomes:
        own = {"checkpoint": one.checkpoint, "path": one.path, "state": one.state, "why": one.why}
        amount = {"files": one.num_files, "size_bytes": one.size_bytes}
        hosts.setdefault(one.host, []).append({**own, **amount})
    return {
        "schema_version": SCHEMA_VERSION,
        "stack": stack,
        "ok": all(one.ok for one in outcomes) and not bad_images(images),
        "hosts": [
            {"name": name, "checkpoints": rows, "images": held.get(name, [])}
            for name, rows in hosts.items()
        ],
    }


def bad_images(images: Sequence[ImageOnHost]) -> list[str]:
    """What is wrong with the hosts' images, in words."""
    bad = [f"{one.id} on {one.host}: {one.why}" for one in images if one.state == "failed"]
    for name, hosts in unequal_images(images).items():
        held = "; ".join(f"{digest} on {', '.join(names)}" for digest, names in hosts.items())
        bad.append(
            f"{name} is not the same on every host: {held}. Pin it with @sha256:… in engine.image."
        )
    return bad


def way_out(bad: Sequence[Outcome], again: str) -> str:
    """What to type when weights or images are not there.

    Args:
        bad: weights that are not.
        again: the options that choose the same stack and inventory.
    """
    blind = [one.host for one in bad if one.is_unseen]
    steps = [mount_step(blind)] if blind else []
    return ", then ".join([*steps, f"fab stage-weights {again}"])


def _hosts(
    options: Options, compiled: CompiledStack, checkpoints: Sequence[Checkpoint]
) -> dict[str, InventoryHost]:
    """The plan's hosts, and the one that holds the checkpoints already where the source names it.

    Raises:
        StackError: the inventory has no such host.
    """
    hosts: dict[str, InventoryHost] = dict(compiled.book.hosts)
    for name in {one.source.host for one in checkpoints if one.source.host is not None} - set(
        hosts
    ):
        host = source_host(name, needed_inventory(options, compiled.stack.name))
        hosts[name] = host
    return hosts


def _refuse_both(options: Options) -> None:
    given = [f"--{name}" for name in ("check", "stop", "caches") if options.is_on(name)]
    if len(given) > 1:
        raise StackError("command line", f"{' and '.join(given)} were given together.", "Give one.")


def _stop(
    staging: Staging, checkpoints: Sequence[Checkpoint], options: Options, output: Output
) -> int:
    ended, away = end_stagings(staging, checkpoints)
    rows = [{"name": host, "ended": jobs} for host, jobs in ended.items()]
    document: dict[str, object] = {"schema_version": SCHEMA_VERSION, "stack": chosen_name(options)}
    output.document(with_failures({**document, "ok": True, "hosts": rows}, away))
    names = [host for host, jobs in ended.items() if jobs]
    output.data(
        f"Ended on {', '.join(names)}; what has arrived is kept." if names else "Nothing ran."
    )
    if away:
        output.failed_hosts(away, len(ended) + len(away))
        output.next_command(f"fab stage-weights {same_choice(options)} --stop")
        return HostsFailed.exit_code
    output.next_command(f"fab stage-weights {same_choice(options)}")
    return 0


def _report(
    outcomes: Sequence[Outcome],
    images: Sequence[ImageOnHost],
    problem: InfraError | None,
    options: Options,
    output: Output,
) -> int:
    is_check = options.is_on("check")
    rows = [("host", "checkpoint", "state", "files", "GB", "what")]
    rows += [
        (one.host, one.checkpoint, one.state, str(one.num_files), giga(one.size_bytes), one.why)
        for one in outcomes
    ]
    text = table(rows).splitlines()
    output.data(text[0])
    for line, one in zip(text[1:], outcomes, strict=True):
        output.data(line if one.ok else output.toned(line, "bad"))
    changed = [one for one in images if one.state == "changed"]
    for name in dict.fromkeys(one.id for one in changed):
        hosts = ", ".join(one.host for one in changed if one.id == name)
        output.data(f"{name} {'is missing' if is_check else 'was brought'} on {hosts}")
    wrong = bad_images(images)
    for what in wrong:
        output.data(output.toned(what, "bad"))
    again = same_choice(options)
    bad = [one for one in outcomes if not one.ok]
    if problem is not None:
        output.message(output.toned(f"The images are not there: {problem}", "bad"))
        output.next_command(f"fab stage-weights {again}")
        return HostsFailed.exit_code if bad else problem.exit_code
    if not bad and not wrong and not (is_check and changed):
        output.next_command(f"fab up {again}")
        return 0
    output.next_command(way_out(bad, again))
    if is_check and all(one.state in {"damaged", "missing"} for one in bad):
        return Differs.exit_code
    return HostsFailed.exit_code
