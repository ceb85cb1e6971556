"""A published command beside the process of ours that stands on it: every difference, and whether it is a named one."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from infra.catalog.flags import FlagCatalogue
from infra.catalog.load import Catalog
from infra.engines.command_line import parse_flags
from infra.plan.compile import CompiledStack, compile_file
from infra.plan.process import Process
from infra.render.host_paths import process_folder
from infra.render.host_state import host_state
from infra.render.wanted_tuning import Tuning
from tests.recipes.commands import ReadCommand, split, take_apart, take_docker_apart

CATALOG = Catalog()

# How a container is started, stopped and named belongs to its unit.
UNIT_OPTIONS = {"--rm", "-d", "-it", "--entrypoint=/bin/bash"}
# Paths of the kernel → items of the tuning profiles.
SETTINGS = {
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor": "cpu.scaling_governor",
    "kernel.sched_migration_cost_ns": "sched.migration_cost_ns",
}


Differences = dict[tuple[str, str], tuple[object, object]]


@cache
def compiled(stack: str) -> CompiledStack:
    return compile_file(stack, catalog=CATALOG)


def processes(document: Mapping[str, Any], stack: str) -> list[Process]:
    found = [
        p for p in compiled(stack).plan.processes if fnmatch.fnmatch(p.id, document["process"])
    ]
    assert found, f"{stack} has no process {document['process']}"
    return found


def fill(text: str, document: Mapping[str, Any], stack: str, process: Process) -> str:
    """Placeholders of the guide replaced by what the plan gives this process."""
    plan = compiled(stack).plan
    group = [p for p in plan.processes if p.group == process.group]
    rpc = {b.name: b.port for b in group[0].binds}.get("dp_rpc")
    facts = {
        "address": plan.host(process.host).address,
        "interface": "eth0",
        "devices": ",".join(map(str, process.devices)),
        "port": urlsplit(process.endpoint or "").port,
        "rank": next(iter(process.dp_ranks), None),
        "group_size": sum(len(p.dp_ranks) for p in group),
        "leader_address": plan.host(group[0].host).address,
        "rpc_port": rpc,
        "tensor_parallel": len(process.devices) // max(len(process.dp_ranks), 1),
    }
    for name, value in sorted(document.get("placeholders", {}).items(), key=lambda p: -len(p[0])):
        text = text.replace(name, value.format(**facts))
    return text


def leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(f"{name}.{key}", inner)
    else:
        yield name, list(value) if isinstance(value, tuple) else value


def flags_of(words: list[str], catalogue: str) -> tuple[dict[str, object], tuple[str, ...]]:
    return read_as_leaves(words, CATALOG.flags(catalogue))


def read_as_leaves(
    words: list[str], flags: FlagCatalogue
) -> tuple[dict[str, object], tuple[str, ...]]:
    parsed = parse_flags(words, flags)
    refused = {word.partition("=")[0]: reason for word, reason in parsed.rejected}
    values = {
        leaf: value for name, v in parsed.values.items() for leaf, value in leaves(f"--{name}", v)
    }
    return {**values, **refused}, parsed.positionals


def on_hub(value: object, stack: str) -> object:
    """A path of staged weights as the repository that it holds."""
    root = compiled(stack).plan.weights_path + "/"
    if isinstance(value, str) and value.startswith(root):
        return CATALOG.checkpoint(value.removeprefix(root).partition("/")[0]).repository
    return value


def compare_flags(read: ReadCommand, stack: str, process: Process) -> Differences:
    catalogue = compiled(stack).resolved.roles[0].release.flags_catalogue
    theirs, model = flags_of(read.words, catalogue)
    ours, our_model = flags_of(list(process.argv[len(read.program) :]), catalogue)
    assert read.program == process.argv[: len(read.program)]
    if model:
        theirs["model"], ours["model"] = model[0], our_model[0]
    found = {name: (value, on_hub(ours.get(name), stack)) for name, value in theirs.items()}
    return {("flag", name): pair for name, pair in found.items() if pair[0] != pair[1]}


def compare_env(read: ReadCommand, process: Process) -> Differences:
    ours = {**process.env, **process.env_prepend}
    found = {name: (value, ours.get(name)) for name, value in read.env.items()}
    return {("variable", name): pair for name, pair in found.items() if pair[0] != pair[1]}


def compare_settings(read: ReadCommand, stack: str) -> Differences:
    items = {item.id: item.want for item in CATALOG.tuning(compiled(stack).plan.tuning).items}
    found = {
        name: (value, items.get(SETTINGS.get(name, name))) for name, value in read.settings.items()
    }
    return {("setting", name): pair for name, pair in found.items() if pair[0] != pair[1]}


def container_options(stack: str, process: Process) -> set[str]:
    """Options of `docker run` in the launch script that the host gets, in the guides' spelling."""
    compiled_stack = compiled(stack)
    profile = CATALOG.tuning(compiled_stack.plan.tuning)
    tuning = Tuning(profile=profile, enable=compiled_stack.resolved.tuning_enabled)
    state = host_state(compiled_stack.plan, process.host, tuning=tuning, catalog=CATALOG)
    path = f"{process_folder(stack, process)}/launch"
    (script,) = [str(i.details["content"]) for i in state.items if i.target == path]
    words = split(script.partition("exec docker")[2])
    read = ReadCommand()
    take_docker_apart(read, words[1:])
    mounts = [
        dict(part.partition("=")[::2] for part in o.split(",")) for o in options_of(read, "--mount")
    ]
    return {*read.options, *(f"-v {mount['source']}:{mount['target']}" for mount in mounts)}


def options_of(read: ReadCommand, name: str) -> list[str]:
    return [o.removeprefix(f"{name}=") for o in read.options if o.startswith(f"{name}=")]


def compare_container(read: ReadCommand, stack: str, process: Process) -> Differences:
    if read.image is None:
        return {}
    plan = compiled(stack).plan
    ours = container_options(stack, process)
    asked = [o for o in read.options if o not in UNIT_OPTIONS and not o.startswith("--name=")]
    found: Differences = {("option", o): (o, None) for o in asked if o not in ours}
    if read.image != plan.engine.image:
        found["image", read.image] = (read.image, plan.engine.image)
    return found


def judge(
    differences: Differences, document: Mapping[str, Any], where: str
) -> set[tuple[str, str]]:
    """Every difference is a named deviation with our true value; returns the deviations in use."""
    named: dict[tuple[str, str], object] = {}
    for deviation in document.get("deviations", []):
        kind = next(iter(deviation))
        assert set(deviation) == {kind, "ours", "reason", "source"}
        assert len(deviation["reason"]) > 10
        assert len(deviation["source"]) > 3
        named[kind, deviation[kind]] = deviation["ours"]
    unnamed = {key: pair for key, pair in differences.items() if key not in named}
    assert not unnamed, f"{where} differs from the guide without a reason: {unnamed}"
    untrue = {
        key: (pair[1], named[key]) for key, pair in differences.items() if named[key] != pair[1]
    }
    assert not untrue, f"{where}: the deviation does not say what we have: {untrue}"
    return set(differences)


def judge_all(document: Mapping[str, Any], stack: str, *, engine: bool) -> None:
    for process in processes(document, stack):
        if process.kind == "router":
            continue
        text = fill(document["command"], document, stack, process)
        read = take_apart(text, tuple(document.get("program", ())))
        differences = compare_env(read, process) | compare_settings(read, stack)
        differences |= compare_container(read, stack, process)
        if engine:
            assert read.program
            differences |= compare_flags(read, stack, process)
        used = judge(differences, document, f"{stack} {process.id}")
        named = {(next(iter(d)), next(iter(d.values()))) for d in document.get("deviations", [])}
        assert named == used, f"{stack} {process.id}: deviations that are none: {named - used}"
