"""Every command of the five guides, as data: ours contains it, or says why not."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from infra.catalog.flags import FlagCatalogue
from infra.catalog.load import Catalog
from infra.engines.command_line import parse_flags
from infra.plan.compile import CompiledStack, compile_file
from infra.plan.process import Process
from infra.render.host_paths import process_folder
from infra.render.host_state import host_state
from infra.render.wanted_tuning import Tuning
from infra.spec.load import stack_names

HERE = Path(__file__).parent
CATALOG = Catalog()
BENCHED = ("vllm-0.17.0", "vllm-0.22.1", "vllm-0.33.0")

# How a container is started, stopped and named belongs to its unit.
UNIT_OPTIONS = {"--rm", "-d", "-it", "--entrypoint=/bin/bash"}
VALUED_OPTIONS = {
    *("--cap-add", "--device", "--entrypoint", "--env", "--gpus", "--group-add", "--ipc", "--name"),
    *("--net", "--network", "--security-opt", "--shm-size", "-e", "-p", "-v"),
    *("--env-file", "--label", "--log-driver", "--mount", "--pull", "--ulimit"),
}
SETTINGS = {
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor": "cpu.scaling_governor",
    "kernel.sched_migration_cost_ns": "sched.migration_cost_ns",
}

Differences = dict[tuple[str, str], tuple[object, object]]


@dataclass
class ReadCommand:
    """A published command, taken apart."""

    env: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)
    image: str | None = None
    program: tuple[str, ...] = ()
    words: list[str] = field(default_factory=list)


def published(*kinds: str) -> list[Any]:
    found = []
    for path in sorted(HERE.glob("0*.yaml")):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        if document["kind"] in kinds:
            found += [pytest.param(document, s, id=f"{path.stem}[{s}]") for s in document["stacks"]]
    return found


@cache
def compiled(stack: str) -> CompiledStack:
    return compile_file(stack, catalog=CATALOG)


def processes(document: Mapping[str, Any], stack: str) -> list[Process]:
    found = [
        p for p in compiled(stack).plan.processes if fnmatch.fnmatch(p.id, document["process"])
    ]
    assert found, f"{stack} has no process {document['process']}"
    return found


# ---- taking a command apart


def split(text: str) -> list[str]:
    """Words of a script; a copy whose lines were folded into one has its comments in the middle."""
    has_lines = "\n" in text.strip()
    joined = re.sub(r"\\\s*\n", " ", text) if has_lines else text
    return shlex.split(re.sub(r"\\(\s|$)", " ", joined), comments=has_lines)


def take_apart(text: str, program: tuple[str, ...] = ()) -> ReadCommand:
    read, words = ReadCommand(program=program), split(text)
    if program:
        read.words = words
        return read
    while words:
        word = words.pop(0)
        if word == "sysctl":
            words = words[1:] if words[0] == "-w" else words
            name, _, value = words.pop(0).partition("=")
            read.settings[name] = value
        elif word == "echo":
            value, _, _, target = (words.pop(0) for _ in range(4))
            read.settings[target] = value
        elif word == "docker":
            words = take_docker_apart(read, words[1:])
        elif word in {"vllm", "python"}:
            length = 2 if word == "python" and words[0] == "-m" else 1
            read.program = (word, *words[:length])
            read.words = words[length:]
            break
        elif re.match(r"[A-Z_][A-Z0-9_]*=", word):
            name, _, value = word.partition("=")
            read.env[name] = value.removesuffix(f":${name}")
    if read.image == "$IMAGE":
        read.image = read.env.pop("IMAGE")
    return read


def take_docker_apart(read: ReadCommand, words: list[str]) -> list[str]:
    """Options and image off `docker run`; what is left runs in the container."""
    while words and words[0].startswith("-"):
        name, equals, value = words.pop(0).partition("=")
        if name in VALUED_OPTIONS and not equals:
            value = words.pop(0)
        name = "--network" if name == "--net" else name
        if name in {"-e", "--env"}:
            variable, _, value = value.partition("=")
            read.env[variable] = value
        elif name.startswith("--"):
            read.options.append(f"{name}={value}" if value else name)
        else:
            read.options.append(f"{name} {value}".strip())
    read.image = words.pop(0)
    if words and words[0] not in {"vllm", "python", "bash"}:
        return ["vllm", "serve", *words]
    return words


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


# ---- comparing


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


# ---- tests


@pytest.mark.parametrize(("document", "stack"), published("serve"))
def test_process_contains_the_published_command(document: Mapping[str, Any], stack: str) -> None:
    judge_all(document, stack, engine=True)


@pytest.mark.parametrize(("document", "stack"), published("container"))
def test_container_has_the_published_access(document: Mapping[str, Any], stack: str) -> None:
    judge_all(document, stack, engine=False)


@pytest.mark.parametrize(("document", "stack"), published("launcher"))
def test_host_runs_what_the_launcher_would_start(document: Mapping[str, Any], stack: str) -> None:
    plan = compiled(stack).plan
    here = [p for p in plan.on_host(document["host"]) if p.kind == "engine"]
    words = split(fill(document["command"], document, stack, here[0]))
    given = dict(zip(words[2::2], words[3::2], strict=True))
    devices, local = int(given["--tp-size"]), int(given["--dp-size-local"])
    expected = [
        {
            "rank": int(given["--dp-rank-start"]) + i,
            "port": int(given["--vllm-start-port"]) + i,
            "devices": tuple(range(i * devices, (i + 1) * devices)),
            "size": int(given["--dp-size"]),
            "address": given["--dp-address"],
            "rpc": int(given["--dp-rpc-port"]),
        }
        for i in range(local)
    ]
    catalogue = compiled(stack).resolved.roles[0].release.flags_catalogue
    ours = []
    for process in here:
        flags, _ = flags_of(list(process.argv[2:]), catalogue)
        ours.append(
            {
                "rank": flags["--data-parallel-rank"],
                "port": flags["--port"],
                "devices": process.devices,
                "size": flags["--data-parallel-size"],
                "address": flags["--data-parallel-address"],
                "rpc": flags["--data-parallel-rpc-port"],
            }
        )
    assert ours == expected


@pytest.mark.parametrize(("document", "stack"), published("proxy"))
def test_router_has_the_published_arguments(document: Mapping[str, Any], stack: str) -> None:
    (process,) = processes(document, stack)
    words = split(fill(document["command"], document, stack, process))
    assert Path(process.argv[1]).name == words[1]
    ours, theirs = lists_of(list(process.argv[2:])), lists_of(words[2:])
    differences: Differences = {
        ("flag", flag): (theirs.get(flag), ours.get(flag))
        for flag in {**theirs, **ours}
        if theirs.get(flag) != ours.get(flag)
    }
    used = judge(differences, document, f"{stack} {process.id}")
    assert used == {("flag", deviation["flag"]) for deviation in document.get("deviations", [])}


def lists_of(words: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            found[word] = []
        else:
            found[list(found)[-1]].append(word)
    return found


@pytest.mark.parametrize(("document", "stack"), published("prose"))
def test_process_has_the_flags_that_the_text_asks_for(
    document: Mapping[str, Any], stack: str
) -> None:
    by_id = {process.id: process for process in compiled(stack).plan.processes}
    for name, flags in document["flags"].items():
        line = " ".join(by_id[name].argv) + " "
        assert [flag for flag in flags if f" {flag} " not in line] == []


@pytest.mark.parametrize(("document", "stack"), published("benchmark"))
def test_benchmark_command_parses_and_asks_for_our_model(
    document: Mapping[str, Any], stack: str
) -> None:
    words = split(document["command"])
    if "vllm" in words:
        rest = words[words.index("vllm") + 3 :]
        for package in BENCHED:
            flags = CATALOG.package(package).flags_of("vllm bench serve")
            values, positionals = read_as_leaves(rest, flags)
            assert not positionals
            assert parse_flags(rest, flags).rejected == ()
            assert str(values["--model"]).lower() == compiled(stack).plan.model.lower()
    else:
        given = dict(zip(words[3::2], words[4::2], strict=True))
        assert words[2] in {"sglang.bench_serving", "sglang.test.few_shot_gsm8k"}
        assert given.get("--model", compiled(stack).plan.model) == compiled(stack).plan.model
        assert (
            int(given.get("--port", compiled(stack).stack.spec.port))
            == compiled(stack).stack.spec.port
        )


@pytest.mark.parametrize(("document", "stack"), published("request"))
def test_published_request_reaches_the_stack(document: Mapping[str, Any], stack: str) -> None:
    spec, plan = compiled(stack).stack.spec, compiled(stack).plan
    words = split(document["command"])
    url = urlsplit(words[1])
    body = json.loads(words[words.index("-d") + 1])
    assert (url.port, url.path) == (spec.port, "/v1/chat/completions")
    assert body["model"] == compiled(stack).resolved.roles[0].served_model_name
    assert "image_url" not in document["command"] or "vision" in plan.capabilities
    assert "tools" not in body or "tools" in plan.capabilities


def test_every_shipped_stack_stands_on_a_published_command() -> None:
    stacks = {str(p.values[1]) for p in published("serve", "prose")}
    in_pods = {name for name in stack_names() if compiled(name).topology.is_of_pods}
    assert set(stack_names()) - in_pods == stacks
    # in pods run the commands of a stack that does: `tests/inventory/test_pods.py` compares them
    assert {name.removeprefix("k8s-") for name in in_pods} <= stacks


def test_every_command_left_out_has_a_reason() -> None:
    left_out = yaml.safe_load((HERE / "other.yaml").read_text(encoding="utf-8"))
    assert all(entry["command"].strip() and len(entry["why"]) > 20 for entry in left_out)


def test_an_unnamed_difference_is_noticed() -> None:
    document = {
        "process": "unified-0/0",
        "command": "vllm serve moonshotai/Kimi-K2.5 --block-size 7",
    }
    with pytest.raises(AssertionError, match="differs from the guide without a reason"):
        judge_all(document, "h200-tp8", engine=True)


def test_a_deviation_that_is_none_is_noticed() -> None:
    deviation = {"flag": "--seed", "ours": None, "reason": "there is none here", "source": "a test"}
    document = {
        "process": "unified-0/0",
        "command": "vllm serve moonshotai/Kimi-K2.5 -tp 8",
        "deviations": [deviation],
    }
    with pytest.raises(AssertionError, match="deviations that are none"):
        judge_all(document, "h200-tp8", engine=True)
