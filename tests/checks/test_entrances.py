"""Who is let in where clients dial, in words for each router, mode and engine release."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.checks.entrances import open_entrances, public_entrances
from infra.checks.view import Finding, Surroundings, view_plan
from infra.plan.compile import compile_file
from infra.plan.process import Firewall, Plan
from tests.checks.rule_cases import CATALOG

KEY = "secrets.api_key.env=K"
PUBLIC = "8.8.8.8"


def moved(plan: Plan, address: str) -> Plan:
    """The plan with every host at one address."""
    return replace(plan, hosts=tuple(replace(host, address=address) for host in plan.hosts))


def found(stack: str, address: str | None, *sets: str) -> list[Finding]:
    compiled = compile_file(stack, catalog=CATALOG, sets=sets)
    plan = compiled.plan if address is None else moved(compiled.plan, address)
    view = view_plan(plan, CATALOG, Surroundings(spec=compiled.stack.spec))
    return [*public_entrances(view), *open_entrances(view)]


@pytest.mark.parametrize(
    ("stack", "sets", "said"),
    [
        ("vllm-shared-1p1d", (KEY,), ("vllm-router in prefill/decode mode asks clients for no key; it gives the "
         "engines its own for every client; a POST to any path passes to the engines (/invocations, /scale_elastic_ep, "
         "/tokenize, …); its own /remove_worker, /workers, /flush_cache, … obey anybody.")),
        ("vllm-shared-replicas", (), "vllm-router asks clients for no key; a POST to any path passes to the engines "),
        ("a3-2p1d", (KEY,), ("ascend-proxy in prefill/decode mode asks clients for no key; it gives the engines its "
         "own for every client; its own /instances/add, /instances/remove, /reset_prefix_cache obey anybody.")),
        ("sglang-pd-nixl", (), ("sglang-router in prefill/decode mode asks clients for no key; its own /flush_cache, "
         "/workers obey anybody.")),
        ("h200-tp8", (KEY,), ("vllm asks for a key on /v1, /v2, /inference alone: /invocations, /scale_elastic_ep, "
         "/tokenize, … answer anybody.")),
        ("h200-tp8", (KEY, "engine.version='0.33.0'"), ("on /v1, /v2, /inference, /cohere alone: /invocations, "
         "/fault_tolerance/apply, ")),
        ("mi325x-tp4", (KEY,), "vllm asks for a key on /v1 alone: /invocations, "),
        ("h200-tp8", (), "vllm asks nobody for a key: /v1, "),
        ("a3-dp4tp4", (KEY,), "vllm-ascend asks for a key on /v1"),
        ("h200-sglang-tp8", (), "sglang asks nobody for a key: /generate, "),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("address", "where"), [(PUBLIC, "a public"), ("10.0.0.1", "other machines")]
)
def test_it_is_said_who_is_let_in(
    stack: str, sets: tuple[str, ...], said: str, address: str, where: str
) -> None:
    (finding,) = found(stack, address, *sets)
    assert said in finding.what
    assert f"serves on {address}, " in finding.what
    assert where in finding.what
    assert "`edge:`" in finding.fix
    assert "api_key" not in finding.fix  # a declared key guards nothing at the front


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "localhost", "192.0.2.7", "198.18.0.1"])
def test_what_nobody_else_reaches_and_what_is_not_known_is_not_judged(address: str) -> None:
    assert found("h200-tp8", address) == []


@pytest.mark.parametrize("address", ["engine.example.com", "2a00:1450::1", "fd00::1"])
def test_names_and_both_kinds_of_addresses_are_judged(address: str) -> None:
    assert len(found("h200-tp8", address)) == 1


def test_a_router_that_guards_every_path_is_sound_where_its_engines_do_or_are_closed() -> None:
    plan = moved(compile_file("sglang-pd-nixl", catalog=CATALOG).plan, PUBLIC)

    def keyed(*kinds: str) -> Plan:
        return replace(
            plan,
            processes=tuple(
                replace(p, argv=(*p.argv, "--api-key", "$KEY")) if p.kind in kinds else p
                for p in plan.processes
            ),
        )

    def let_in(plan: Plan) -> list[str | None]:
        return [finding.process for finding in public_entrances(view_plan(plan, CATALOG))]

    serving = [p.id for p in plan.processes if p.kind == "engine" and p.endpoint is not None]
    assert let_in(keyed()) == ["router/0"]
    assert let_in(keyed("router")) == serving[:1]
    assert let_in(keyed("router", "engine")) == []
    closed = replace(keyed("router"), firewall=Firewall(clients=("10.0.0.0/8",), monitors=()))
    assert let_in(closed) == []
    assert list(open_entrances(view_plan(keyed("router"), CATALOG))) == []
    assert let_in(moved(keyed("router"), "192.0.2.7")) == []


def test_without_a_router_every_engine_that_serves_is_an_entrance() -> None:
    """Of a plan from elsewhere: two engines that serve, the first of them on its own host alone."""
    plan = compile_file("vllm-shared-replicas", catalog=CATALOG).plan
    first, *others = [p for p in plan.processes if p.kind == "engine" and p.endpoint is not None]
    processes = tuple(p for p in plan.processes if p.kind != "router")
    alone = replace(moved(plan, "127.0.0.1"), processes=processes)
    assert list(public_entrances(view_plan(alone, CATALOG))) == []
    apart = replace(alone.hosts[0], name="other", address=PUBLIC)
    there = tuple(replace(p, host="other") if p == others[0] else p for p in processes)
    (finding,) = public_entrances(
        view_plan(replace(alone, hosts=(*alone.hosts, apart), processes=there), CATALOG)
    )
    assert finding.process == others[0].id != first.id


def test_an_edge_before_the_router_asks_for_the_key() -> None:
    plan = moved(compile_file("vllm-shared-1p1d", catalog=CATALOG).plan, PUBLIC)
    view = view_plan(plan, CATALOG)
    edge = replace(plan.processes[-1], id="edge/0", kind="edge")
    fronted = replace(view, plan=replace(plan, processes=(*plan.processes, edge)))
    assert list(public_entrances(view)) != []
    assert list(public_entrances(fronted)) == []


@pytest.mark.parametrize(
    ("clients", "is_judged"),
    [
        ((), False),
        (("10.0.0.0/8",), False),
        (("10.0.0.0/8", "0.0.0.0/0"), True),
        (("::/0",), True),
        (("0.0.0.0/1", "128.0.0.0/1"), True),
    ],
)
def test_hosts_that_are_closed_let_in_whom_the_stack_names(
    clients: tuple[str, ...], *, is_judged: bool
) -> None:
    plan = moved(compile_file("h200-tp8", catalog=CATALOG).plan, PUBLIC)
    closed = replace(plan, firewall=Firewall(clients=clients, monitors=()))
    assert bool(list(public_entrances(view_plan(closed, CATALOG)))) is is_judged


def test_a_closed_stack_that_lets_everybody_in_is_told_what_to_change() -> None:
    (finding,) = found("h200-tp8", "10.0.0.1", "firewall=plan", "clients=['0.0.0.0/0']")
    assert "let `clients:` name your networks" in finding.fix
    assert "firewall: plan" not in finding.fix


def test_a_service_lets_in_every_pod() -> None:
    (finding,) = found("k8s-gb200-2p1d", None)
    assert "by every pod of the cluster" in finding.what


def test_a_load_balancer_is_an_entrance_before_its_hosts_have_addresses() -> None:
    assert found("h200-tp8", None) == []
    (finding,) = found("h200-tp8", None, "ingress=internal-load-balancer")
    assert "through a load balancer" in finding.what
