"""One small stack per mode that no shipped stack uses: each compiles and is judged sound."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.checks.judge import judge_stack
from infra.engines.settings import RoleSettings
from infra.plan.compile import compile_file
from infra.plan.topology import Group
from infra.spec.load import stack_names

CATALOG = Catalog()
SMALL = sorted(path.stem for path in Path(__file__).parent.glob("*.yaml"))
ALL = (*SMALL, *stack_names())


def modes_of(name: str) -> set[str]:
    """Words for what a stack is made of, one per thing that an engine or a back end does differently."""
    compiled = compile_file(name, catalog=CATALOG)
    spec = compiled.stack.spec
    found: set[str] = {spec.runtime, f"{spec.placement} placement"}
    for group in compiled.topology.groups:
        found |= layout_modes(group) | extra_modes(group.settings)
    if spec.router:
        kind = "prefill and decode" if spec.kv_transfer else "replicas"
        found.add(f"{spec.router.name}, {kind}")
    return found


def layout_modes(group: Group) -> set[str]:
    settings, hosts = group.settings, len(group.hosts)
    engine, transfer = settings.release.engine, settings.kv_transfer
    if settings.data_parallel == 1:
        return (
            {f"{engine}, one rank over hosts, {transfer or 'no'} transfer"} if hosts > 1 else set()
        )
    attention = "enable-dp-attention" in settings.flags
    mode = f"{engine}, {'dp attention' if attention else settings.load_balancing}"
    over = "one host" if hosts == 1 else "hosts"
    return {f"{mode}, {over}", *([f"{mode}, {settings.role}"] if transfer else [])}


def extra_modes(settings: RoleSettings) -> set[str]:
    engine, vendor = settings.release.engine, settings.accelerator.vendor
    modes = {
        f"{engine} on {vendor}": True,
        f"{engine}, {settings.kv_transfer}": settings.kv_transfer,
        f"{engine}, pipeline": settings.pipeline_parallel > 1,
        f"{vendor}, decode context parallel": settings.decode_context_parallel > 1,
        f"{engine}, draft": settings.speculation,
        "idle devices": settings.devices_idle,
    }
    return {mode for mode, is_used in modes.items() if is_used}


@pytest.mark.parametrize("name", ALL)
def test_stack_has_no_errors(name: str) -> None:
    compiled = compile_file(name, catalog=CATALOG)
    problems = judge_stack(compiled.plan, compiled.stack, CATALOG)
    assert [problem for problem in problems if problem.severity == "error"] == []


@pytest.mark.parametrize("name", SMALL)
def test_small_stack_is_small_and_adds_a_mode(name: str) -> None:
    assert len(compile_file(name, catalog=CATALOG).plan.hosts) <= 3
    assert modes_of(name) - {mode for other in stack_names() for mode in modes_of(other)}


def test_every_mode_is_covered() -> None:
    covered = {mode for name in ALL for mode in modes_of(name)}
    assert covered >= {
        "vllm, internal, hosts",
        "vllm, hybrid, hosts",
        "vllm, external, one host",
        "vllm, external, hosts",
        "vllm, multi-port, one host",
        "vllm, one rank over hosts, no transfer",
        "vllm, one rank over hosts, nixl transfer",
        "vllm, pipeline",
        "vllm, nixl",
        "vllm, mooncake",
        "vllm, draft",
        "vllm-ascend, internal, one host",
        "vllm-ascend, internal, hosts",
        "vllm-ascend, external, one host",
        "vllm-ascend, external, hosts",
        "vllm-ascend, one rank over hosts, no transfer",
        "vllm-ascend, mooncake",
        "vllm-ascend, draft",
        "vllm-ascend, internal, decode",
        "sglang, dp attention, one host",
        "sglang, dp attention, hosts",
        "sglang, one rank over hosts, no transfer",
        "sglang, mooncake",
        "sglang, nixl",
        "sglang, draft",
        "sglang on amd",
        "vllm on cpu",
        "nvidia, decode context parallel",
        "amd, decode context parallel",
        "ascend, decode context parallel",
        "idle devices",
        "docker",
        "podman",
        "native",
        "dedicated placement",
        "shared placement",
        "vllm-router, prefill and decode",
        "vllm-router, replicas",
        "sglang-router, prefill and decode",
        "sglang-router, replicas",
        "ascend-proxy, prefill and decode",
    }
