"""What holds for every stack that compiles, whatever its shape."""

from __future__ import annotations

import ipaddress
import json
from collections import Counter
from itertools import pairwise
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.catalog.load import Catalog
from infra.checks.judge import judge_plan
from infra.checks.rules import RULES
from infra.plan.compile import CompiledStack, compile_stack
from infra.plan.document import plan_document
from infra.plan.imported import parse_plan
from infra.plan.process import Plan, Process
from infra.render.plan_listing import plan_explanation, plan_listing
from infra.spec.load import load_stack
from tests.canonical import document_hash
from tests.plan.generated import CATALOG, Made, compile_made, loaded, reordered, stacks

# Rules about what fits, starts or is wise; the others hold for whatever the compiler makes.
OF_THE_STACK = {
    "weights-memory", "kv-memory", "kv-memory-tight", "context-length", "batched-tokens", "vision-nixl",
    "aiter-heads", "missing-image", "ascend-prefill-width", "heads-divisible", "engine-vendor",
    "checkpoint-accelerator", "draft-checkpoint", "different-images", "router-engine", "context-parallel-size",
    "flash-comm-layout", "remote-code", "decode-stages", "recipe-release",
    "advisory", "no-recipe", "efa-userspace",
}  # fmt: skip

examples = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@examples
@given(stacks())
def test_a_plan_of_any_shape_is_whole(made: Made) -> None:
    compiled = compile_made(made, CATALOG)
    plan = compiled.plan
    assert_every_port_once(plan)
    assert_every_connect_meets_a_bind(plan)
    assert_every_rank_once(compiled)
    assert_devices_disjoint_and_complete(plan, made.idle)
    assert_addresses_real(plan)
    assert_ids_follow_from_hosts(plan)
    assert_router_knows_every_endpoint(plan)
    assert_text_shows_every_process(plan)


@examples
@given(stacks())
def test_a_plan_of_any_shape_reads_back_as_itself(made: Made) -> None:
    plan = compile_made(made, CATALOG).plan
    document = json.loads(json.dumps(plan_document(plan)))
    again = parse_plan(document, "plan.json")
    assert plan_document(again) == document
    assert document_hash({k: v for k, v in document.items() if k != "hash"}) == plan.hash
    found = [p for p in judge_plan(again, "plan.json", CATALOG) if p.rule not in OF_THE_STACK]
    assert [str(problem) for problem in found] == []


@settings(examples, max_examples=60)
@given(stacks(), st.data())
def test_the_order_of_keys_changes_nothing(made: Made, data: st.DataObject) -> None:
    plan = compile_made(made, CATALOG).plan
    shuffled = data.draw(reordered(made.data))
    assert isinstance(shuffled, dict)
    again = compile_stack(loaded(shuffled), catalog=CATALOG).plan
    assert json.dumps(plan_document(again)) == json.dumps(plan_document(plan))
    assert plan_listing(again, documentation_addresses=True) == plan_listing(
        plan, documentation_addresses=True
    )


@settings(examples, max_examples=8)
@given(stacks())
def test_the_same_stack_gives_the_same_bytes_with_a_fresh_catalogue(made: Made) -> None:
    first = compile_made(made, CATALOG).plan
    again = compile_stack(loaded(made.data), catalog=Catalog()).plan
    assert json.dumps(plan_document(again)) == json.dumps(plan_document(first))


def test_rules_left_out_of_the_properties_exist() -> None:
    assert set(RULES) >= OF_THE_STACK


def assert_every_port_once(plan: Plan) -> None:
    address = {host.name: host.address for host in plan.hosts}
    bound = Counter(
        (address[process.host], bind.port + i)
        for process in plan.processes
        for bind in process.binds
        for i in range(bind.count)
    )
    assert [place for place, times in bound.items() if times > 1] == []
    assert all(0 < port < 65536 for _, port in bound)


def assert_every_connect_meets_a_bind(plan: Plan) -> None:
    processes = {process.id: process for process in plan.processes}
    for process in plan.processes:
        for connect in process.connects:
            target = processes[connect.to]
            assert any(
                bind.name == connect.name and bind.port <= connect.port < bind.port + bind.count
                for bind in target.binds
            ), (process.id, connect)


def assert_every_rank_once(compiled: CompiledStack) -> None:
    by_group: dict[str, list[int]] = {group.name: [] for group in compiled.topology.groups}
    for process in compiled.plan.processes:
        if process.kind == "engine":
            by_group[process.group].extend(process.dp_ranks)
    for group in compiled.topology.groups:
        assert by_group[group.name] == list(range(group.settings.data_parallel)), group.name


def assert_devices_disjoint_and_complete(plan: Plan, idle: int) -> None:
    taken = Counter(
        (process.host, device) for process in plan.processes for device in process.devices
    )
    assert [place for place, times in taken.items() if times > 1] == []
    sizes = {host.name: host.num_devices for host in plan.hosts}
    assert all(0 <= device < sizes[host] for host, device in taken)
    assert sum(sizes.values()) - len(taken) == idle


def assert_addresses_real(plan: Plan) -> None:
    address = {host.name: host.address for host in plan.hosts}
    assert len(set(address.values())) == len(plan.hosts)
    for text in address.values():
        found = ipaddress.ip_address(text)
        assert not found.is_loopback
        assert not found.is_unspecified
    for process in plan.processes:
        if process.endpoint is not None:
            parts = urlsplit(process.endpoint)
            assert parts.hostname == address[process.host]
            assert any(bind.port == parts.port for bind in process.binds if bind.name == "http")
        words = [*process.argv, *process.env.values()]
        assert not [word for word in words if "{address}" in word or "{interface}" in word]
        # a router's metrics are the only thing that is for its own host alone
        dialled = [w for before, w in pairwise(["", *words]) if before != "--prometheus-host"]
        assert not [word for word in dialled if word in {"None", "localhost", "127.0.0.1"}]


def assert_ids_follow_from_hosts(plan: Plan) -> None:
    engines = [process for process in plan.processes if process.kind == "engine"]
    for host in plan.hosts:
        own = [process.id for process in engines if process.host == host.name]
        assert own == [f"{host.name}/{i}" for i in range(len(own))]
        assert own, f"{host.name} runs nothing"
    routers = plan.processes[len(engines) :]
    assert [process.id for process in routers] in ([], ["router/0"])
    assert len({process.id for process in plan.processes}) == len(plan.processes)


def assert_router_knows_every_endpoint(plan: Plan) -> None:
    routers = [process for process in plan.processes if process.kind == "router"]
    serving = [
        process
        for process in plan.processes
        if process.kind == "engine" and process.endpoint and not _only_answers_health(process)
    ]
    if not routers:
        assert len(serving) == 1
        return
    dialled = {
        (connect.to, connect.port) for connect in routers[0].connects if connect.name == "http"
    }
    wanted = {
        (process.id, bind.port + i)
        for process in serving
        for bind in process.binds
        if bind.name == "http"
        for i in range(bind.count)
    }
    assert wanted <= dialled
    assert {to for to, _ in dialled} <= {process.id for process in serving}


def _only_answers_health(process: Process) -> bool:
    """SGLang's hosts behind the first serve nothing but a dummy `/health`."""
    words = process.argv
    return "--node-rank" in words and words[words.index("--node-rank") + 1] != "0"


def assert_text_shows_every_process(plan: Plan) -> None:
    text = plan_listing(plan, documentation_addresses=True)
    assert all(f"  {process.id} " in text for process in plan.processes if process.kind == "engine")
    assert "unknown (imported plan)" not in plan_explanation(plan, documentation_addresses=True)


@pytest.mark.parametrize("port", [1999, 7100, 12321, 17600, 29000])
def test_a_clients_port_inside_a_block_is_left_to_the_clients(port: int) -> None:
    for name, count in (("gb200-2p1d", 24), ("a2-2n-dp4tp4", 2), ("h200-2n-tp16", 2)):
        plan = compile_stack(load_stack(name, (f"port={port}",)), catalog=CATALOG).plan
        assert_every_port_once(plan)
        assert sum(process.kind == "engine" for process in plan.processes) == count
