"""Whether hosts can be closed by their plan, by what nft tells of the chains that are there."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.launch.preflight.observed import Told
from infra.launch.preflight.rule_checks import CHAINS, find_other_rules, parse_chains
from infra.launch.preflight.scene import Scene
from infra.plan.process import Firewall
from tests.launch.preflight.scenes import healthy

HOST = "decode-1"


def chains(*rows: dict[str, object]) -> str:
    return json.dumps(
        {"nftables": [{"metainfo": {"version": "1.0.6"}}, *({"chain": r} for r in rows)]}
    )


def chain(table: str, policy: str, hook: str = "input") -> dict[str, object]:
    return {
        "family": "inet",
        "table": table,
        "name": "c",
        "hook": hook,
        "prio": 0,
        "policy": policy,
    }


def closed_scene(catalog: Catalog, told: Told) -> Scene:
    scene = healthy("gb200-2p1d", catalog)
    plan = replace(scene.plan, firewall=Firewall(clients=(), monitors=()))
    seen = scene.hosts[HOST]
    observed = replace(seen, commands={**seen.commands, CHAINS: told})
    return replace(scene, plan=plan, hosts={HOST: observed})


def told(scene: Scene, stdout: str) -> Told:
    first = next(iter(scene.hosts[HOST].commands.values()))
    return replace(first, stdout=stdout)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([chain("filter", "drop")], "inet filter c drops"),
        ([chain("firewalld", "accept")], "inet firewalld c drops"),
        ([chain("moe-other", "drop")], None),
        ([chain("filter", "accept"), chain("filter", "drop", "forward")], None),
        ([], None),
    ],
)
def test_tables_that_ours_cannot_overrule_are_told(
    catalog: Catalog, rows: list[dict[str, object]], says: str | None
) -> None:
    scene = healthy("gb200-2p1d", catalog)
    found = list(find_other_rules(closed_scene(catalog, told(scene, chains(*rows)))))
    assert [one.severity for one in found] == (["warn"] if says else [])
    assert all(says is not None and says in one.observed for one in found)


def test_a_host_without_nft_blocks_and_open_plans_ask_nothing(catalog: Catalog) -> None:
    scene = healthy("gb200-2p1d", catalog)
    missing = replace(told(scene, ""), exit_code=None, stderr="nft: No such file or directory")
    (found,) = find_other_rules(closed_scene(catalog, missing))
    assert (found.host, found.severity) == (HOST, "block")
    assert "Install the package nftables" in found.fix
    assert list(find_other_rules(scene)) == []


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"nftables": 1}', '{"nftables": [1]}'])
def test_what_is_no_listing_is_none(text: str) -> None:
    assert parse_chains(text) is None
