"""All that one host must hold for a plan: tuning, files, images, weights, as one document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from infra.catalog.load import Catalog
from infra.catalog.router_release import RouterRelease
from infra.engines.credentials import TAKEN_SECRETS, Credential, credentials_of
from infra.plan.process import Plan, Process
from infra.render.cloud_metadata import (
    metadata_guard_text,
    metadata_item,
    metadata_rules_text,
)
from infra.render.compile_cache import cache_variables
from infra.render.edge_files import EDGE_PROGRAM, edge_credentials, edge_files
from infra.render.environment_file import environment_file
from infra.render.firewall import boot_files, firewall_items
from infra.render.host_paths import (
    UNIT_FOLDER,
    cleanup_unit,
    container_name,
    credential_path,
    metadata_guard,
    metadata_rules,
    metadata_unit,
    process_folder,
    release_path,
    stack_folder,
    unit_template,
    watch_config,
    watch_program,
    watch_unit,
)
from infra.render.items import HostState, Item, file_item
from infra.render.launch_script import NativeLaunch, launch_script
from infra.render.process_launch import process_launch, router_release, runnable_image
from infra.render.release_record import release_record
from infra.render.supervision import watch_document
from infra.render.units import (
    cleanup_unit_text,
    metadata_unit_text,
    process_unit,
    watch_unit_text,
)
from infra.render.wanted_tuning import (
    Tuning,
    WantedTuning,
    node_tuning,
    plan_tuning,
    profile_tuning,
)
from infra.spec.stack import Runtime

# What is tuned without a stack belongs to this owner; no stack's name begins so.
HOSTS_OWNER = "@hosts"


def host_state(plan: Plan, host: str, *, tuning: Tuning, catalog: Catalog) -> HostState:
    """All that a host must hold.

    Raises:
        StackError: the stack's name cannot be a path, or it switches on an item that the profile lacks.
    """
    state = tuning_state(plan, host, tuning=tuning, catalog=catalog)
    return replace(
        state,
        items=(
            *state.items,
            *_file_items(plan, host, catalog),
            *_image_items(plan, host, catalog),
            *_environment_items(plan, host, catalog),
            *_weights_items(plan, host, catalog),
            *firewall_items(plan, host),
        ),
    )


def tuning_state(plan: Plan, host: str, *, tuning: Tuning, catalog: Catalog) -> HostState:
    """What a host must hold of tuning, with nothing else rendered.

    Raises:
        StackError: as for `host_state`.
    """
    stack_folder(plan.stack)  # hosts keep records under the stack's name, whatever is asked of them
    # a profile is of hosts with devices: that of an edge alone is left as it is
    is_tuned = plan.host(host).num_devices > 0
    wanted = plan_tuning(tuning, plan, host, catalog) if is_tuned else ()
    return HostState(
        stack=plan.stack,
        host=host,
        release=plan.hash,
        enable=tuning.enable,
        items=tuple(map(_tuning_item, wanted)),
    )


def hosts_state(host: str, tuning: Tuning) -> HostState:
    """What a profile alone wants of a host that no stack names; its owner is `HOSTS_OWNER`.

    Raises:
        StackError: an item is switched on that the profile lacks.
    """
    items = tuple(_tuning_item(wanted) for wanted in profile_tuning(tuning))
    return HostState(stack=HOSTS_OWNER, host=host, release="", items=items, enable=tuning.enable)


def node_state(stack: str, tuning: Tuning) -> HostState:
    """What a stack wants of every node on which its pods may run: they are alike, and none is a plan's host.

    Raises:
        StackError: an item is switched on that the profile lacks.
    """
    items = tuple(_tuning_item(wanted) for wanted in node_tuning(tuning))
    return HostState(stack=stack, host="", release="", items=items, enable=tuning.enable)


def _tuning_item(wanted: WantedTuning) -> Item:
    return Item(
        id=wanted.id,
        group="tuning",
        kind=wanted.kind,
        target=wanted.target,
        why=wanted.why,
        details={"want": wanted.want, **wanted.details},
    )


def _file_items(plan: Plan, host: str, catalog: Catalog) -> Iterable[Item]:
    processes = plan.on_host(host)
    if not processes:
        return
    named: set[str] = set()
    containers: list[str] = []
    units = {metadata_unit(plan.stack): metadata_unit_text(plan.stack)}
    why = "engines fetch what clients name, and not the host's own credentials"
    yield file_item(metadata_rules(plan.stack), metadata_rules_text(plan.stack), why)
    guard = metadata_guard_text(plan.stack)
    yield file_item(metadata_guard(plan.stack), guard, why, mode="0755")
    for process in processes:
        if process.kind == "edge":
            credentials = edge_credentials(plan)
            named |= {credential.name for credential in credentials}
            yield from _process_files(plan, process, None, credentials, catalog)
            for each in edge_files(plan, process):
                yield file_item(
                    each.path, each.content, each.why, mode=each.mode, unit=each.is_unit
                )
            continue
        release = router_release(process, catalog) if process.kind == "router" else None
        credentials = credentials_of(release.id if release else plan.engine.name, plan.secrets)
        named |= {credential.name for credential in credentials}
        yield from _process_files(plan, process, release, credentials, catalog)
        runtime: Runtime = "native" if release is not None and release.package else plan.runtime
        containers += [container_name(plan.stack, process)] if runtime != "native" else []
        template = unit_template(plan.stack, process.kind) % ""
        names = [credential.name for credential in credentials]
        low = any(p.binds_low_port for p in processes if p.kind == process.kind)
        units[template] = process_unit(plan.stack, process.kind, runtime, names, binds_low_port=low)
    yield from (_secret(plan.stack, name) for name in TAKEN_SECRETS if name in named)
    if any(process.kind == "engine" for process in processes):
        units[watch_unit(plan.stack)] = watch_unit_text(plan.stack)
        why = "groups of ranks start and stop as one"
        yield file_item(watch_config(plan.stack), watch_document(plan, host), why)
        yield _watcher(plan.stack, why)
    if plan.firewall is not None:
        yield from boot_files(plan.stack)
    if containers:
        units[cleanup_unit(plan.stack)] = cleanup_unit_text(plan.stack, plan.runtime, containers)
    for name, text in units.items():
        yield file_item(f"{UNIT_FOLDER}/{name}", text, "supervises the processes", unit=True)
    record = release_record(plan, processes, has_containers=bool(containers))
    yield file_item(release_path(plan.stack), record, "the record of this release")
    yield metadata_item(plan.stack)


def _process_files(
    plan: Plan,
    process: Process,
    router: RouterRelease | None,
    credentials: Sequence[Credential],
    catalog: Catalog,
) -> Iterable[Item]:
    folder = process_folder(plan.stack, process)
    launch = process_launch(plan, process, router, catalog)
    yield file_item(
        f"{folder}/environment",
        environment_file(process.id, {**process.env, **cache_variables(plan, process, catalog)}),
        f"environment of {process.id}",
    )
    script = launch_script(plan.stack, process, launch, credentials)
    yield file_item(f"{folder}/launch", script, f"starts {process.id}", mode="0755")


def _image_items(plan: Plan, host: str, catalog: Catalog) -> Iterable[Item]:
    def runs_in_image(process: Process) -> bool:
        if process.kind == "edge":
            return False
        return process.kind == "engine" or router_release(process, catalog).package is None

    if plan.runtime == "native" or not any(runs_in_image(p) for p in plan.on_host(host)):
        return
    reference, digest = runnable_image(plan.engine.image), plan.engine.image.partition("@")[2]
    engine = plan.engine
    details = {"runtime": plan.runtime, "reference": reference}
    known = catalog.image_digest(engine.name, engine.version, engine.image)
    yield Item(
        id=f"image:{plan.engine.image}",
        group="images",
        kind="image",
        target=reference,
        why=f"{plan.engine.name} {plan.engine.version} runs in it.",
        details={
            **details,
            **({"digest": digest} if digest else {}),
            **({"known_digest": known} if known else {}),
        },
    )


def _environment_items(plan: Plan, host: str, catalog: Catalog) -> Iterable[Item]:
    """What a host's native processes start from, each once: virtual environments, and an edge's program."""
    found: dict[str, tuple[str, str]] = {}
    for process in plan.on_host(host):
        release = router_release(process, catalog) if process.kind == "router" else None
        launch = process_launch(plan, process, release, catalog)
        if process.kind == "edge":
            details = dict(EDGE_PROGRAM)
            name, why = str(details.pop("target")), "The edge runs it."
            yield Item(
                id=f"program:{name}",
                group="images",
                kind="program",
                target=name,
                why=why,
                details=details,
            )
        elif isinstance(launch, NativeLaunch) and launch.environment is not None:
            found[launch.environment] = (launch.package, process.argv[0])
    for folder, (package, program) in found.items():
        make = f"python3 -m venv {folder} && {folder}/bin/pip install {package}"
        yield Item(
            id=f"environment:{folder}",
            group="images",
            kind="environment",
            target=folder,
            why=f"{program} is started from it.",
            details={"want": package, "package": package, "program": program, "fix": make},
        )


def _weights_items(plan: Plan, host: str, catalog: Catalog) -> Iterable[Item]:
    """Every `<weights path>/<checkpoint>/<revision>` that an argument vector of the host names."""
    pattern = re.compile(re.escape(plan.weights_path) + r"/([^/\s\"]+)/([^/\s\",]+)")
    found = {
        match[0]: match[1]
        for process in plan.on_host(host)
        for word in process.argv
        for match in pattern.finditer(word)
    }
    access = catalog.accelerator(plan.host(host).accelerator).container
    is_limited = plan.runtime != "native" and "DAC_OVERRIDE" not in access.capabilities
    reader = {"reader": "container"} if is_limited else {}
    for folder, name in found.items():
        known = catalog.checkpoint(name) if name in catalog.ids("checkpoints") else None
        details = {"repository": known.repository, "size_bytes": known.size_bytes} if known else {}
        yield Item(
            id=f"weights:{name}",
            group="weights",
            kind="weights",
            target=folder,
            why="Argument vectors name this folder.",
            details={**details, **reader},
        )


def _watcher(stack: str, why: str) -> Item:
    """The watcher's program, which every agent carries with it."""
    target = watch_program(stack)
    return Item(
        id=f"file:{target}",
        group="files",
        kind="file",
        target=target,
        why=why,
        details={"program": "watcher", "mode": "0755"},
    )


def _secret(stack: str, name: str) -> Item:
    """A credential; its content travels beside the document, never in it."""
    target = credential_path(stack, name)
    return Item(
        id=f"file:{target}",
        group="files",
        kind="file",
        target=target,
        why=f"The stack declares the secret {name}.",
        details={"secret": name, "mode": "0600"},
    )
