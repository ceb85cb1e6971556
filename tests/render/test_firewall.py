"""Who is let in on a host, and the rules that say so."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.errors import ProblemsFound, StackError
from infra.plan.compile import compile_file
from infra.plan.document import plan_document, plan_hash
from infra.plan.imported import parse_plan
from infra.plan.ports import EPHEMERAL_FIRST, STAGING_BLOCK
from infra.plan.process import Connect, Firewall, Plan
from infra.render.dialing import planned_dials
from infra.render.firewall import firewall_document, firewall_items, firewall_text, guarded
from infra.render.host_state import host_state
from infra.render.reach import Opening, openings
from infra.render.release_record import read_release
from infra.render.supervision import plan_watch_port
from infra.render.wanted_tuning import Tuning
from infra.spec.load import load_stack, stack_names
from infra.spec.stack import KUBERNETES
from tests.needed import need_program, need_root

OPEN = Firewall(clients=("203.0.113.0/24",), monitors=("198.51.100.9/32",))
HOST_STACKS = [name for name in stack_names() if load_stack(name).spec.platform not in KUBERNETES]


def closed_plan(stack: str, catalog: Catalog, firewall: Firewall = OPEN) -> Plan:
    return replace(compile_file(stack, catalog=catalog).plan, firewall=firewall)


def opening(plan: Plan, host: str, port: int) -> Opening:
    """The opening of a port that its own process binds, else of its range."""
    found = [one for one in openings(plan, host) if one.first <= port <= one.last]
    return min(found, key=lambda one: not one.is_own)


@pytest.mark.parametrize("stack", HOST_STACKS)
def test_every_planned_dial_is_let_in_and_every_bind_is_guarded(
    stack: str, catalog: Catalog
) -> None:
    plan = closed_plan(stack, catalog)
    for dial in planned_dials(plan):
        assert dial.caller in opening(plan, dial.host, dial.port).hosts, dial
    for host in plan.hosts:
        spans = guarded(plan, host.name)
        bound = {
            b.port + i for p in plan.on_host(host.name) for b in p.binds for i in range(b.count)
        }
        for port in (*bound, plan_watch_port(plan), STAGING_BLOCK.first, EPHEMERAL_FIRST):
            assert any(first <= port <= last for first, last in spans), (host.name, port)
        (item,) = firewall_items(plan, host.name)
        own = item.details["own"]
        assert isinstance(own, list)
        ports = {port for first, last in own for port in range(first, last + 1)}
        staging = range(STAGING_BLOCK.first, STAGING_BLOCK.last + 1)
        assert ports == {*bound, plan_watch_port(plan), *staging}
        flat = [port for span in spans for port in span]
        assert flat == sorted(flat)
        assert not any(first <= 22 <= last for first, last in spans)


@pytest.mark.parametrize("stack", HOST_STACKS)
def test_real_nft_takes_the_rules_of_every_stack(stack: str, catalog: Catalog) -> None:
    need_root("nft loads rules in a network namespace of its own")
    need_program("nft", "nftables")
    plan = closed_plan(stack, catalog)
    for host in (plan.hosts[0], plan.hosts[-1]):
        text = firewall_text(plan, host.name)
        loaded = subprocess.run(
            ["unshare", "--net", "sh", "-c", "nft -f - && nft list table inet " + f"moe-{stack}"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert loaded.returncode == 0, loaded.stderr
        assert loaded.stdout.count(" accept comment ") == text.count(" accept comment ")


def test_only_clients_and_the_stacks_hosts_dial_what_clients_use(catalog: Catalog) -> None:
    plan = closed_plan("gb200-2p1d", catalog)
    router = opening(plan, "prefill-0", 8000)
    assert router.networks == OPEN.clients
    assert set(router.hosts) == {host.name for host in plan.hosts} - {"prefill-0"}
    assert opening(plan, "prefill-0", 29000).networks == OPEN.monitors
    assert opening(plan, "prefill-0", 29000).hosts == ()
    assert opening(plan, "decode-1", 7100).networks == OPEN.monitors
    nobody = closed_plan("gb200-2p1d", catalog, Firewall(clients=(), monitors=()))
    assert opening(nobody, "prefill-0", 8000).networks == ()


def test_an_edge_takes_the_clients_and_closes_the_router_to_them(catalog: Catalog) -> None:
    plan = closed_plan("gb200-2p1d", catalog)
    router = next(process for process in plan.processes if process.kind == "router")
    edge = replace(
        router,
        id="edge/0",
        kind="edge",
        host="decode-3",
        endpoint="https://192.0.2.6:8443",
        binds=(replace(router.binds[0], port=8443),),
        connects=(Connect(name="http", to=router.id, port=8000),),
    )
    plan = replace(plan, processes=(*plan.processes, edge))
    assert opening(plan, "decode-3", 8443).networks == OPEN.clients
    assert opening(plan, "prefill-0", 8000).networks == ()
    assert opening(plan, "prefill-0", 8000).hosts == ("decode-3",)


def test_without_a_router_the_only_endpoint_takes_clients_and_monitors(catalog: Catalog) -> None:
    plan = closed_plan("a2-2n-dp4tp4", catalog)
    assert opening(plan, "unified-0", 8088).networks == (*OPEN.clients, *OPEN.monitors)


def test_ports_that_engines_choose_are_open_to_the_group_and_the_other_role(
    catalog: Catalog,
) -> None:
    plan = closed_plan("gb200-2p1d", catalog)
    others = {f"decode-{i}" for i in range(4)}
    assert set(opening(plan, "prefill-0", 40000).hosts) == others
    assert set(opening(plan, "decode-0", 40000).hosts) == {
        *others - {"decode-0"}, "prefill-0", "prefill-1"
    }  # fmt: skip
    ascend = closed_plan("a3-2p1d", catalog)
    assert set(opening(ascend, "prefill-0", 16000).hosts) == {"decode-0", "decode-1"}
    assert set(opening(ascend, "prefill-0", 20100).hosts) == {"decode-0", "decode-1"}


def test_addresses_of_both_families_are_let_in(catalog: Catalog) -> None:
    plan = closed_plan("gb200-2p1d", catalog, Firewall(clients=("2001:db8::/32",), monitors=()))
    hosts = tuple(
        replace(host, address=f"2001:db8:1::{index}") if index == 3 else host
        for index, host in enumerate(plan.hosts)
    )
    text = firewall_text(replace(plan, hosts=hosts), "prefill-0")
    assert re.search(r"ip6 saddr \{ 2001:db8::/32 \} tcp dport 8000 .* accept", text)
    assert re.search(r"ip6 saddr \{ 2001:db8:1::3 \} tcp dport 7100-7103 .* accept", text)


def test_a_host_that_is_known_by_name_alone_is_refused(catalog: Catalog) -> None:
    plan = closed_plan("gb200-2p1d", catalog)
    hosts = (replace(plan.hosts[0], address="node-1.example.com"), *plan.hosts[1:])
    with pytest.raises(StackError, match=r"node-1\.example\.com is a name.*moe\.address"):
        firewall_text(replace(plan, hosts=hosts), "prefill-1")


def test_a_name_that_a_plan_gives_ends_no_rule(catalog: Catalog) -> None:
    plan = closed_plan("gb200-2p1d", catalog)
    chosen = next(each for each in plan.processes if each.host == "decode-3")
    bind = replace(chosen.binds[0], name='x" accept\n\t\taccept comment "' + "y" * 200)
    renamed = replace(chosen, binds=(bind,))
    plan = replace(
        plan, processes=tuple(renamed if each is chosen else each for each in plan.processes)
    )
    text = firewall_text(plan, "decode-3")
    assert "\n\t\taccept" not in text
    assert 'comment "engine x_ accept___accept comment _yyy' in text
    assert max(map(len, re.findall(r'comment "([^"]*)"', text))) <= 64


def test_the_host_state_of_a_closed_plan_has_its_table_and_what_loads_it_at_boot(
    catalog: Catalog,
) -> None:
    plan = closed_plan("gb200-2p1d", catalog)
    tuning = Tuning(profile=catalog.tuning(plan.tuning))
    state = host_state(plan, "decode-0", tuning=tuning, catalog=catalog)
    (item,) = state.of_groups("firewall")
    assert item.details["content"] == firewall_text(plan, "decode-0")
    files = {each.target: each for each in state.of_groups("files")}
    unit = "moe-gb200-2p1d-firewall.service"
    text = str(files[f"/etc/systemd/system/{unit}"].details["content"])
    assert "Before=moe-gb200-2p1d-watch.service" in text
    assert "exec nft -f /var/lib/moe-infra/firewall/gb200-2p1d.nft" in text
    links = [t for t, each in files.items() if "link" in each.details]
    wanting = ("multi-user.target", "nftables.service")
    assert links == [f"/etc/systemd/system/{name}.wants/{unit}" for name in wanting]
    record = str(files["/etc/moe-infra/gb200-2p1d/release.json"].details["content"])
    assert read_release("decode-0", "gb200-2p1d", record).is_closed
    left = host_state(replace(plan, firewall=None), "decode-0", tuning=tuning, catalog=catalog)
    assert left.of_groups("firewall") == ()
    assert not any("firewall" in each.target for each in left.items)


def test_the_document_says_who_is_let_in(catalog: Catalog) -> None:
    plan = closed_plan("gb200-2p1d", catalog)
    document = firewall_document(plan, ["decode-0"])
    hosts = document["hosts"]
    assert isinstance(hosts, dict)
    first = hosts["decode-0"]["openings"][0]
    assert (first["first"], first["name"], first["networks"]) == (
        7100, "engine http", ["198.51.100.9/32"]
    )  # fmt: skip
    assert hosts["decode-0"]["rules"] == firewall_text(plan, "decode-0")


def test_a_plan_keeps_its_networks_and_one_without_its_hash(catalog: Catalog) -> None:
    plan = compile_file("gb200-2p1d", catalog=catalog).plan
    assert "firewall" not in plan_document(plan)
    words = ("firewall=plan", "clients=[203.0.113.0/24, 2001:db8::7]", "monitors=[10.0.0.0/8]")
    closed = compile_file("gb200-2p1d", catalog=catalog, sets=words).plan
    assert closed.firewall == Firewall(
        clients=("203.0.113.0/24", "2001:db8::7/128"), monitors=("10.0.0.0/8",)
    )
    assert closed.hash != plan.hash
    back = parse_plan(plan_document(closed), "plan.json")
    assert (back.firewall, plan_hash(back)) == (closed.firewall, closed.hash)
    document = plan_document(closed)
    document["firewall"] = {"clients": ["10.0.0.1/8"], "monitors": []}
    with pytest.raises(ProblemsFound, match=r"firewall\.clients\.0"):
        parse_plan(document, "plan.json")


def test_pods_are_not_closed(catalog: Catalog) -> None:
    with pytest.raises(ProblemsFound, match="firewall-of-pods"):
        compile_file("k8s-gb200-2p1d", catalog=catalog, sets=("firewall=plan",))
