"""What an edge's host holds, and how an edge stands in a plan that is compiled, edited or read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.engines.haproxy import ALLOW
from infra.errors import ProblemsFound
from infra.plan.compile import address_book, analyse_stack, compile_file, compile_plan
from infra.plan.document import plan_document
from infra.plan.imported import parse_plan
from infra.plan.process import Plan
from infra.render.host_state import host_state
from infra.render.wanted_tuning import Tuning
from infra.spec.load import load_stack

CATALOG = Catalog()
STACK = "tests/stacks/vllm-shared-edge.yaml"
SINGLE = ("router=null", "kv_transfer=null", "roles={unified: {tensor_parallel: 8}}")


def compiled(*sets: str) -> Plan:
    return compile_file(STACK, catalog=CATALOG, sets=sets).plan


def files(plan: Plan, host: str) -> Mapping[str, Mapping[str, Any]]:
    tuning = Tuning(profile=CATALOG.tuning(plan.tuning), enable=())
    items = host_state(plan, host, tuning=tuning, catalog=CATALOG).items
    return {item.target: item.details for item in items}


def config_of(plan: Plan, host: str = "host-0") -> str:
    return str(files(plan, host)["/etc/moe-infra/vllm-shared-edge/edge-0/haproxy.cfg"]["content"])


def unit_of(plan: Plan, host: str = "host-0") -> str:
    name = "/etc/systemd/system/moe-vllm-shared-edge-edge@.service"
    return str(files(plan, host)[name]["content"])


def test_clients_dial_the_edge_and_nobody_else_reaches_the_router() -> None:
    plan = compiled()
    router, edge = plan.processes[-2:]
    assert [process.kind for process in plan.processes] == ["engine", "engine", "router", "edge"]
    assert plan.entrances == (edge,)
    assert (edge.endpoint, edge.binds[0].port) == ("https://192.0.2.1:8000", 8000)
    assert router.argv[1:3] == ("--host", "127.0.0.1")
    assert router.endpoint == f"http://127.0.0.1:{router.binds[0].port}"
    assert edge.connects[0][1:] == ("router/0", router.binds[0].port)
    assert f"server behind 127.0.0.1:{router.binds[0].port}" in config_of(plan)


def test_an_edge_of_its_own_host_dials_the_router_of_another() -> None:
    plan = compiled("edge.host=own")
    assert plan.processes[-1].host == "edge-0"
    assert plan.host("edge-0").num_devices == 0
    assert plan.num_hosts == 1
    assert plan.processes[-2].endpoint == "http://192.0.2.1:8000"
    assert "server behind 192.0.2.1:8000" in config_of(plan, "edge-0")
    assert "/etc/moe-infra/vllm-shared-edge/edge-0/haproxy.cfg" not in files(plan, "host-0")


def test_before_a_single_endpoint_the_edge_sends_the_engines_key() -> None:
    plan = compiled(*SINGLE, "secrets.api_key.env=K")
    engine, edge = plan.processes
    assert edge.connects[0].to == engine.id
    assert engine.binds[0].port != 8000
    assert 'set-header Authorization "Bearer %[env(MOE_ENGINE_KEY)]"' in config_of(plan)
    assert "MOE_ENGINE_KEY" not in config_of(compiled("secrets.api_key.env=K"))
    script = files(plan, "host-0")["/etc/moe-infra/vllm-shared-edge/edge-0/take-secrets"]
    assert "take api_key api_key" in str(script["content"])


def test_a_plan_read_back_renders_the_same() -> None:
    plan = compiled("edge.allow=[/v1/models, /v1/chat/completions]", "edge.connections_per_key=7")
    document = json.loads(json.dumps(plan_document(plan)))
    again = parse_plan(document, "plan.json")
    assert config_of(again) == config_of(plan)
    assert "acl allowed path -m str /v1/models /v1/chat/completions" in config_of(plan)
    assert "gt 7 }" in config_of(plan)


def test_a_stack_without_an_edge_has_the_document_that_it_had() -> None:
    plan = compiled("edge=null")
    assert "edge" not in plan_document(plan)
    assert "edge_keys" not in plan.secrets


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("edge", None, "says nothing"),
        ("allow", ["/v1/../pause"], "edge.allow"),
        ("allow", [], "edge.allow"),
        ("argv", ["sh", "-c", "id"], "runs another command"),
        ("connects", [], "stands before one process"),
        ("binds", [], "binds `http` alone"),
    ],
)
def test_a_plan_that_was_edited_is_no_way_round(field: str, value: object, says: str) -> None:
    document: dict[str, Any] = json.loads(json.dumps(plan_document(compiled())))
    row = (
        document
        if field == "edge"
        else document["edge"]
        if field == "allow"
        else document["processes"][-1]
    )
    if value is None:
        del row[field]
    else:
        row[field] = value
    with pytest.raises(ProblemsFound) as caught:
        parse_plan(document, "plan.json")
    assert any(says in f"{problem.field} {problem.what}" for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (("edge.keys=null",), "is told none"),
        (("edge.allow=[]",), "let nothing through"),
        (("edge.allow=[/v1/models]",), "/v1/chat/completions would be closed"),
        (("platform=aws-ec2", "edge.host=own"), "makes no host for the edge"),
    ],
)
def test_an_edge_that_cannot_be_is_refused_with_a_way_out(sets: tuple[str, ...], says: str) -> None:
    _, _, problems = analyse_stack(load_stack(STACK, sets), CATALOG)
    found = [problem for problem in problems if problem.rule == "edge"]
    assert [says in problem.what for problem in found] == [True]
    assert found[0].fix


def test_an_edge_without_keys_is_judged_like_any_other_stack() -> None:
    stack = load_stack(STACK, ("edge.keys=null",))
    resolved, topology, _ = analyse_stack(stack, CATALOG)
    assert resolved is not None
    assert topology is not None
    plan = compile_plan(resolved, topology, address_book(topology, None), CATALOG)
    assert "edge_keys" not in plan.secrets


def test_a_port_below_1024_needs_one_capability_and_no_other_port_does() -> None:
    capability = "AmbientCapabilities=CAP_NET_BIND_SERVICE"
    assert capability in unit_of(compiled("port=443")).splitlines()
    assert capability not in unit_of(compiled()).splitlines()
    assert "CapabilityBoundingSet=" in unit_of(compiled()).splitlines()


def test_no_secret_and_no_reference_to_one_is_in_a_file() -> None:
    plan = compiled("edge.keys={env: CLIENT_KEYS}", "edge.tls=none")
    for target, details in files(plan, "host-0").items():
        assert "CLIENT_KEYS" not in str(details.get("content")), target
    assert "ssl crt" not in config_of(plan)
    assert plan.processes[-1].endpoint == "http://192.0.2.1:8000"


def test_what_is_let_through_by_default_is_what_clients_of_openai_ask() -> None:
    plan = compiled()
    assert plan.edge is not None
    assert set(plan.edge.allow) == set(ALLOW)
    assert len(ALLOW) == 7
