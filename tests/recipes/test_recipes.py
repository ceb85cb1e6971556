"""Every command of the five guides, as data: ours contains it, or says why not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from infra.engines.command_line import parse_flags
from infra.spec.load import PROJECT, stack_names
from infra.spec.plain_yaml import read_yaml
from tests.recipes.commands import split
from tests.recipes.comparing import (
    CATALOG,
    Differences,
    compiled,
    fill,
    flags_of,
    judge,
    judge_all,
    processes,
    read_as_leaves,
)

HERE = Path(__file__).parent
BENCHED = ("vllm-0.17.0", "vllm-0.22.1", "vllm-0.33.0")


@cache
def documents() -> Mapping[str, Any]:
    """Every published command, by the name of its file."""
    return {path.stem: read_yaml(path) for path in sorted(HERE.glob("0*.yaml"))}


def published(*kinds: str) -> list[Any]:
    return [
        pytest.param(document, stack, id=f"{name}[{stack}]")
        for name, document in documents().items()
        if document["kind"] in kinds
        for stack in document["stacks"]
    ]


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
    # in pods and at Google run the commands of a stack that does: `tests/inventory/test_pods.py` compares them
    elsewhere = {
        name
        for name in stack_names()
        if compiled(name).topology.is_of_pods or compiled(name).stack.spec.platform == "gcp-gce"
    }
    assert set(stack_names()) - elsewhere == stacks
    extended = {read_yaml(PROJECT / "stacks" / f"{name}.yaml")["extends"] for name in elsewhere}
    assert extended <= stacks


def test_every_command_left_out_has_a_reason() -> None:
    left_out = read_yaml(HERE / "other.yaml")
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
