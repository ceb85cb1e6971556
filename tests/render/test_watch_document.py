"""What the watcher of a host is told: what counts as work, and how a rank is asked for a token."""

from __future__ import annotations

import json

import pytest

from infra.catalog.load import Catalog
from infra.plan.compile import compile_file
from infra.plan.endpoints import read_endpoints
from infra.render.supervision import PATIENCE, watch_document


def groups(stack: str, catalog: Catalog) -> list[dict[str, dict[str, list[dict[str, object]]]]]:
    """The groups of every host of a stack."""
    plan = compile_file(stack, catalog=catalog).plan
    return [
        group
        for host in plan.hosts
        if host.num_devices
        for group in json.loads(watch_document(plan, host.name))["groups"]
    ]


@pytest.mark.parametrize(
    "stack", ["h200-tp8", "a2-2n-dp4tp4", "gb200-2p1d", "vllm-pd-hybrid", "vllm-multi-port"]
)
def test_every_rank_is_asked_for_one_token(stack: str, catalog: Catalog) -> None:
    plan = compile_file(stack, catalog=catalog).plan
    asked = [
        (one["url"], one["headers"])
        for group in groups(stack, catalog)
        for asks in group["asks"].values()
        for one in asks
    ]
    headers = [
        (f"{rank.url}/v1/completions", {} if rank.index is None else {"X-data-parallel-rank": str(rank.index)})
        for rank in read_endpoints(plan, catalog).ranks
    ]  # fmt: skip
    assert sorted(map(str, asked)) == sorted(map(str, headers))


def test_it_costs_one_token(catalog: Catalog) -> None:
    (group,) = groups("h200-tp8", catalog)
    ((one,),) = group["asks"].values()
    assert one["body"] == {"prompt": "1", "max_tokens": 1, "temperature": 0}
    assert PATIENCE["idle_s"] > PATIENCE["stuck_s"]


def test_a_decode_rank_that_dies_of_a_bare_prompt_is_asked_nothing(catalog: Catalog) -> None:
    for group in groups("a3-2p1d", catalog):
        assert bool(group["asks"]) is str(group["name"]).startswith("prefill/")


@pytest.mark.parametrize("stack", ["h200-sglang-tp8", "sglang-pd-nixl"])
def test_sglang_asks_its_own_scheduler(stack: str, catalog: Catalog) -> None:
    for group in groups(stack, catalog):
        for asks in group["asks"].values():
            assert [str(one["url"]).rpartition("/")[2] for one in asks] == ["health_generate"]
            assert [one["body"] for one in asks] == [None]


def test_requests_that_wait_are_work(catalog: Catalog) -> None:
    for stack, prefix in (("h200-tp8", "vllm:"), ("h200-sglang-tp8", "sglang:")):
        plan = compile_file(stack, catalog=catalog).plan
        told = json.loads(watch_document(plan, plan.hosts[0].name))["counters"]
        assert len(told["open"]) == 2
        assert all(name.startswith(prefix) for name in (*told["open"], *told["growing"]))


def test_the_key_is_read_from_its_file(catalog: Catalog) -> None:
    sets = ("secrets.api_key.env=KEY",)
    plan = compile_file("h200-tp8", catalog=catalog, sets=sets).plan
    told = json.loads(watch_document(plan, plan.hosts[0].name))
    assert told["key"] == "/etc/moe-infra/h200-tp8/credentials/api_key"
    without = compile_file("h200-tp8", catalog=catalog).plan
    assert json.loads(watch_document(without, without.hosts[0].name))["key"] == ""
