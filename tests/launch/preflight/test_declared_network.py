"""What the inventory declares of hosts' networks, and what their firmware says, against what is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.inventory.book import documentation_hosts
from infra.launch.preflight.finding import Finding
from infra.launch.preflight.reach_report import read_reached
from infra.launch.preflight.recording import observed_record
from infra.launch.preflight.scene import Scene
from infra.launch.preflight.table import judge
from infra.render.declared_network import domain_peers, with_declared_network
from infra.render.dialing import planned_dials
from infra.render.host_state import host_state
from infra.render.wanted_tuning import Tuning
from tests.launch.preflight.scenes import change, fabric, healthy, imex, tell, troubles
from tests.launch.preflight.test_rdma import port
from tests.launch.scripted_facts import addresses_text

RACK = "gb200-2p1d"
TWO = "a2-2n-dp4tp4"
CARDS = "/sys/class/infiniband"
DECODE = ("decode-0", "decode-1", "decode-2", "decode-3")


def declared(scene: Scene, **by_host: dict[str, Any]) -> Scene:
    """The scene with an inventory's entries; `decode_0` is decode-0, `all` every host."""
    entries = dict(documentation_hosts([host.name for host in scene.plan.hosts]).hosts)
    for key, values in by_host.items():
        for name in entries if key == "all" else (key.replace("_", "-"),):
            entries[name] = replace(entries[name], **values)
    return replace(scene, declared=entries)


def found(scene: Scene, check: str) -> list[Finding]:
    return [one for one in judge(scene) if one.check == check and one.severity != "pass"]


def test_an_interface_below_the_declared_mtu_blocks_and_tuning_mends_it(catalog: Catalog) -> None:
    scene = declared(healthy(TWO, catalog), all={"mtu": 9000})
    wide = addresses_text("eth0", "192.0.2.1", mtu=9000)
    (only,) = found(tell(scene, "unified-0", "addresses", wide), "declared-mtu")
    assert (only.host, only.severity) == ("unified-1", "block")
    assert (only.observed, only.wanted) == ("eth0 carries 1500 bytes", "9000 bytes (moe.mtu)")
    assert "`fab tune-hosts --stack a2-2n-dp4tp4 --allow drain`" in only.fix
    assert {one.needs for one in catalog.tuning("any-host").items if one.id == "net.mtu"} == {
        "drain"
    }
    assert found(healthy(TWO, catalog), "declared-mtu") == []


def test_a_rails_interface_must_carry_it_too(catalog: Catalog) -> None:
    scene = declared(healthy(TWO, catalog), unified_1={"mtu": 1500, "rdma_devices": ("mlx5_0:1",)})
    two = (
        addresses_text("eth0", "192.0.2.2")[:-1]
        + ', {"ifname": "ens9", "flags": ["UP"], "mtu": 1400}]'
    )
    scene = tell(scene, "unified-1", "addresses", two)
    scene = change(scene, "unified-1", paths=frozenset({f"{CARDS}/mlx5_0/device/net/ens9"}))
    assert [one.observed for one in found(scene, "declared-mtu")] == ["ens9 carries 1400 bytes"]


def test_a_hop_that_carries_less_than_declared_is_told_for_each_peer(catalog: Catalog) -> None:
    scene = declared(healthy(TWO, catalog), all={"mtu": 9000})
    dials = planned_dials(scene.plan)
    rows = [
        {"to": d.host, "port": d.port, "ok": True, "path_mtu": 1500, "whole": True} for d in dials
    ]
    scene = replace(scene, reached=read_reached(dials, {h: {"dials": rows} for h in scene.hosts}))
    assert [(one.host, one.observed) for one in found(scene, "declared-path-mtu")] == [
        ("unified-0", "no more than 1500 bytes go to unified-1"),
        ("unified-1", "no more than 1500 bytes go to unified-0"),
    ]
    assert found(declared(scene, all={"mtu": 1500}), "declared-path-mtu") == []
    assert found(replace(scene, declared={}), "declared-path-mtu") == []


def test_every_declared_rail_is_looked_at_although_no_process_names_it(catalog: Catalog) -> None:
    scene = declared(healthy(TWO, catalog), all={"rdma_devices": ("mlx5_0:1", "mlx5_1:1")})
    files = {**port("mlx5_0"), **port("mlx5_1")}
    for host in scene.hosts:
        scene = change(scene, host, files={**scene.hosts[host].files, **files})
    assert troubles(scene) == []
    bad = {
        **scene.hosts["unified-1"].files,
        **port("mlx5_1", **{"gids/3": "fe80:0000:0000:0000:0000:0000:0000:0001"}),
    }
    assert troubles(change(scene, "unified-1", files=bad)) == [
        ("block", "unified-1", "rdma-devices")
    ]


def test_hosts_of_a_group_have_the_same_rails(catalog: Catalog) -> None:
    scene = declared(
        healthy(TWO, catalog),
        unified_0={"rdma_devices": ("mlx5_0:1", "mlx5_1:1")},
        unified_1={"rdma_devices": ("mlx5_0:1",)},
    )
    (only,) = found(scene, "rdma-rails")
    assert only.severity == "block"
    assert only.observed == "rails mlx5_0:1, while unified-0 has rails mlx5_0:1, mlx5_1:1"
    bare = replace(scene, declared={})
    for host, cards in {"unified-0": ("mlx5_0", "mlx5_1"), "unified-1": ("mlx5_0",)}.items():
        files = {key: text for card in cards for key, text in port(card).items()}
        bare = change(bare, host, files={**bare.hosts[host].files, **files})
    (only,) = found(bare, "rdma-rails")
    assert only.observed == "1 rails of 400 Gbit/s, while unified-0 has 2 rails of 400 Gbit/s"


def test_hosts_whose_processes_name_their_own_cards_use_as_many(catalog: Catalog) -> None:
    scene = healthy(TWO, catalog)
    for host, cards in {"unified-0": ("mlx5_0", "mlx5_1"), "unified-1": ("mlx5_0",)}.items():
        files = {key: text for card in ("mlx5_0", "mlx5_1") for key, text in port(card).items()}
        scene = change(scene, host, files={**scene.hosts[host].files, **files})
        named = [
            replace(p, env={**p.env, "NCCL_IB_HCA": ",".join(cards)}) if p.host == host else p
            for p in scene.plan.processes
        ]
        scene = replace(scene, plan=replace(scene.plan, processes=tuple(named)))
    (only,) = found(scene, "rdma-rails")
    assert (only.host, only.severity) == ("unified-1", "block")
    assert only.observed == "1 rails, while unified-0 has 2 rails"


@pytest.mark.parametrize(
    ("kind", "num", "severities"),
    [
        ("p5en.48xlarge", 16, []),
        ("p5en.48xlarge", 15, ["block"]),
        ("p5en.48xlarge", 0, ["block"]),
        ("p6-b200.48xlarge", 8, []),
        ("p6-b200.48xlarge", 9, ["warn"]),
        ("p6e-gb200.36xlarge", 4, []),
        ("p6e-gb200.36xlarge", 8, []),
        ("p6e-gb200.36xlarge", 3, ["block"]),
        ("PowerEdge XE9680", 0, []),
    ],
)
def test_an_instance_has_the_efa_devices_of_its_type(
    kind: str, num: int, severities: list[str], catalog: Catalog
) -> None:
    files = {"/sys/devices/virtual/dmi/id/product_name": f"{kind}\n"}
    files |= {f"{CARDS}/rdmap{i}s0/device/vendor": "0x1d0f\n" for i in range(num)}
    files[f"{CARDS}/mlx5_0/device/vendor"] = "0x15b3\n"
    scene = change(healthy("h200-2n-tp16", catalog), "unified-1", files=files)
    told = found(scene, "efa-devices")
    assert [one.severity for one in told] == severities
    assert all(f"{num} EFA devices" in one.observed and kind in one.wanted for one in told)


def test_links_that_flap_and_slow_clocks_are_warned_of(catalog: Catalog) -> None:
    source = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    downed = {
        f"{CARDS}/mlx5_{i}/ports/1/counters/link_downed": f"{n}\n" for i, n in enumerate((9, 4))
    }
    scene = healthy("h200-tp8", catalog)
    files = {**port("mlx5_0"), **port("mlx5_1"), **downed, source: "hpet\n"}
    files = {**scene.hosts["unified-0"].files, **files}
    scene = change(scene, "unified-0", files=files)
    told = {one.check: one.observed for one in judge(scene) if one.severity == "warn"}
    assert told == {
        "rdma-flaps": "links went down since boot: mlx5_0 9 times",
        "clock-source": "its clock source is hpet",
    }


def test_a_group_over_two_nvlink_domains_is_refused_and_both_are_named(catalog: Catalog) -> None:
    scene = healthy(RACK, catalog)
    for host in ("decode-2", "decode-3"):
        scene = tell(scene, host, "nvidia.query", fabric(4, cluster="beef"))
    told = found(scene, "nvlink-domain")
    assert [(one.host, one.severity) for one in told] == [
        ("decode-2", "block"),
        ("decode-3", "block"),
    ]
    assert told[0].observed == (
        "group decode/0 spans 2 NVLink domains: c0ffee.1 (decode-0, decode-1) and beef.1 (decode-2, decode-3)"
    )
    named = declared(
        scene, decode_0={"nvlink_domain": "rack-a"}, decode_1={"nvlink_domain": "rack-a"}
    )
    assert "rack-a = c0ffee.1 (decode-0, decode-1)" in found(named, "nvlink-domain")[0].observed


def test_what_the_inventory_declares_is_refused_before_any_tool_is_asked(catalog: Catalog) -> None:
    scene = replace(
        declared(healthy(RACK, catalog), decode_3={"nvlink_domain": "b"}), depth="light"
    )
    for host in DECODE:
        scene = tell(scene, host, "nvidia.query", "")
    assert found(scene, "nvlink-domain") == []  # of one alone nothing follows
    both = declared(scene, decode_3={"nvlink_domain": "b"}, decode_0={"nvlink_domain": "a"})
    assert "spans 2 NVLink domains: a (decode-0) and b (decode-3)" in (
        found(both, "nvlink-domain")[0].observed
    )


def test_prefill_and_decode_may_lie_in_two_domains_each_with_its_own_imex_list(
    catalog: Catalog,
) -> None:
    scene = healthy(RACK, catalog)
    addresses = {host.name: host.address for host in scene.plan.hosts}
    prefill = [name for name in addresses if name not in DECODE]
    for names, cluster in ((prefill, "aaaa"), (DECODE, "bbbb")):
        nodes = {addresses[name]: "READY" for name in names}
        for name in names:
            scene = tell(scene, name, "nvidia.query", fabric(4, cluster=cluster))
            scene = tell(scene, name, "nvidia.imex", imex(nodes))
            listed = {"/etc/nvidia-imex/nodes_config.cfg": "\n".join(nodes)}
            scene = change(scene, name, files={**scene.hosts[name].files, **listed})
    assert troubles(scene) == []
    stranger = {"/etc/nvidia-imex/nodes_config.cfg": "\n".join(addresses.values())}
    scene = change(scene, "decode-1", files={**scene.hosts["decode-1"].files, **stranger})
    observed = [one.observed for one in found(scene, "imex-domain")]
    assert any("names prefill-0, prefill-1 of another NVLink domain" in said for said in observed)


def test_a_tray_without_a_domain_is_held_against_nobody_but_itself(catalog: Catalog) -> None:
    scene = healthy(RACK, catalog)
    nodes = "\n".join(host.address for host in scene.plan.hosts)
    for name in scene.hosts:
        listed = {"/etc/nvidia-imex/nodes_config.cfg": nodes}
        scene = change(scene, name, files={**scene.hosts[name].files, **listed})
    assert troubles(scene) == []
    lost = fabric(4, state="In Progress", cluster="00000000-0000-0000-0000-000000000000")
    assert troubles(tell(scene, "decode-1", "nvidia.query", lost)) == [
        ("block", "decode-1", "fabric-state")
    ]


def test_a_tray_that_is_not_in_the_rack_that_the_inventory_says(catalog: Catalog) -> None:
    scene = declared(healthy(RACK, catalog), all={"nvlink_domain": "rack-a"})
    assert found(scene, "nvlink-declared") == []
    scene = tell(scene, "decode-3", "nvidia.query", fabric(4, clique=2))
    (only,) = found(scene, "nvlink-declared")
    assert only.host == "decode-3"
    assert "declared in rack-a, and its GPUs are in c0ffee.2" in only.observed


def test_the_imex_list_holds_the_hosts_of_one_domain_alone(catalog: Catalog) -> None:
    plan = healthy(RACK, catalog).plan
    hosts = dict(documentation_hosts([host.name for host in plan.hosts]).hosts)
    assert len(domain_peers(plan, "decode-0", hosts)) == len(plan.hosts)
    hosts = {
        name: replace(host, nvlink_domain="rack-b" if name in DECODE else "rack-a")
        for name, host in hosts.items()
    }
    assert domain_peers(plan, "decode-0", hosts) == DECODE
    tuning = Tuning(profile=catalog.tuning(plan.tuning))
    state = host_state(plan, "decode-0", tuning=tuning, catalog=catalog)
    (item,) = (
        one for one in with_declared_network(state, plan, hosts).items if one.kind == "imex-nodes"
    )
    assert item.details["want"] == ",".join(plan.host(name).address for name in DECODE)
    alone = {**hosts, "decode-0": replace(hosts["decode-0"], nvlink_domain="rack-c")}
    (item,) = (
        one for one in with_declared_network(state, plan, alone).items if one.kind == "imex-nodes"
    )
    assert item.details["want"] is None


def test_the_mtu_item_follows_from_the_declaration_and_is_left_alone_without(
    catalog: Catalog,
) -> None:
    plan = healthy(TWO, catalog).plan
    tuning = Tuning(profile=catalog.tuning(plan.tuning))
    state = host_state(plan, "unified-0", tuning=tuning, catalog=catalog)
    hosts = dict(documentation_hosts(["unified-0", "unified-1"]).hosts)
    assert with_declared_network(state, plan, hosts) is state
    hosts["unified-0"] = replace(hosts["unified-0"], mtu=9000, rdma_devices=("mlx5_0:1",))
    (item,) = (
        one for one in with_declared_network(state, plan, hosts).items if one.id == "net.mtu"
    )
    assert (item.target, item.details["want"]) == ("eth0,mlx5_0:1", "9000")
    (before,) = (one for one in state.items if one.id == "net.mtu")
    assert before.details["want"] is None


@pytest.mark.parametrize(("stack", "blocks"), [("gb200-2p1d", False), ("h200-2n-tp16", True)])
def test_a_fabric_manager_at_rest_matters_where_the_switches_are_the_hosts_own(
    stack: str, blocks: bool, catalog: Catalog
) -> None:
    scene = healthy(stack, catalog)
    answer = "Id=nvidia-fabricmanager.service\nLoadState=loaded\nActiveState=inactive\n"
    host = scene.plan.hosts[0].name
    told = found(tell(scene, host, "nvidia.services", answer), "fabric-manager")
    assert [one.severity for one in told] == (["block"] if blocks else [])


def test_a_tray_that_was_moved_to_another_rack_makes_facts_stale(catalog: Catalog) -> None:
    scene = healthy(RACK, catalog)
    records = {
        name: observed_record(host, scene.plan.host(name).address)
        for name, host in scene.hosts.items()
    }
    assert records["decode-0"].nvlink_domain == "c0ffee.1"
    records["decode-0"] = replace(records["decode-0"], nvlink_domain="beef.1")
    scene = replace(scene, recorded=records)
    (only,) = found(scene, "facts-fresh")
    assert only.observed == "NVLink domain c0ffee.1 (recorded beef.1)"
    light = replace(scene, depth="light")
    assert found(tell(light, "decode-0", "nvidia.query", ""), "facts-fresh") == []
    (unseen,) = found(tell(scene, "decode-0", "nvidia.query", ""), "facts-fresh")
    assert (unseen.severity, unseen.fix) == ("warn", "ssh decode-0 sudo nvidia-smi -q")
