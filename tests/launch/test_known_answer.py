"""A known answer through pairs: which are asked, and that a pair whose KV cache arrives garbled is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.launch.deployment import Deployment
from infra.launch.proof.host_drift import Check
from infra.launch.proof.known_answer import (
    ANSWER,
    KNOWN_ANSWER,
    MAX_PAIRS,
    Pair,
    cover,
    question,
    wrong_pairs,
)
from infra.launch.proof.serving import Serving
from infra.plan.compile import compile_file
from infra.plan.endpoints import Endpoints, RankEndpoint, read_endpoints
from tests.launch.agent_fleet import AgentFleet
from tests.launch.scripted_fleet import make_deployment
from tests.ports import free_ports
from tests.rehearsal.engine.simulated_host import (
    Engine,
    Lab,
    call,
    make_checkpoint,
    make_state,
    wait_healthy,
)

NUM = 2
RIGHT = " ".join(ANSWER.split()[:8])


def endpoints_of(catalog: Catalog, stack: str, *sets: str) -> Endpoints:
    return read_endpoints(compile_file(stack, catalog=catalog, sets=sets).plan, catalog)


@pytest.mark.parametrize("stack", ["gb200-2p1d", "a3-2p1d"])
def test_every_pair_of_shipped_stacks_is_asked(stack: str, catalog: Catalog) -> None:
    endpoints = endpoints_of(catalog, stack)
    covering = cover(endpoints)
    assert len(set(covering.pairs)) == covering.num_pairs <= MAX_PAIRS
    assert covering.words == "every one of 128 pairs"
    assert {d for _, d in covering.pairs} == set(endpoints.of_role("decode"))


@pytest.mark.parametrize("limit", [1, 20, 40, 127])
def test_of_too_many_pairs_every_rank_is_asked_and_first_every_two_hosts(
    limit: int, catalog: Catalog
) -> None:
    endpoints = endpoints_of(catalog, "gb200-2p1d")
    covering = cover(endpoints, limit)
    assert len(set(covering.pairs)) == len(covering.pairs) == max(limit, 16)
    assert {rank for pair in covering.pairs for rank in pair} == set(endpoints.ranks)
    hosts = {(p.host, d.host) for p, d in covering.pairs}
    assert len(hosts) == 8 or limit < 20  # two prefill hosts with four of decode
    assert covering.words.startswith(f"{len(covering.pairs)} of 128 pairs")


def test_without_a_handover_there_are_no_pairs(catalog: Catalog) -> None:
    assert cover(endpoints_of(catalog, "h200-tp8")).pairs == ()


def test_both_answers_of_a_pair_are_judged(catalog: Catalog) -> None:
    first, second, third = cover(endpoints_of(catalog, "gb200-2p1d")).pairs[:3]
    told: dict[Pair, tuple[str, str]] = {first: (RIGHT, RIGHT), second: (RIGHT, "! ! ! ! ! !")}
    told[third] = ("! ! !", "! ! !")
    wrong = wrong_pairs(told)
    assert list(wrong) == [second, third]
    assert "and asked again '! ! ! ! ! !'" in wrong[second]
    assert wrong[third].startswith("it answers '! ! !', the list goes on ")
    assert wrong_pairs({first: (RIGHT, RIGHT)}) == {}
    assert list(wrong_pairs({first: ("", "")})) == [first]
    short = " ".join(ANSWER.split()[:3])
    assert list(wrong_pairs({first: (short, short)})) == [first]


def test_where_every_pair_says_the_same_it_is_none_of_a_pairs_cache(catalog: Catalog) -> None:
    pairs = cover(endpoints_of(catalog, "gb200-2p1d")).pairs
    wrong = wrong_pairs(dict.fromkeys(pairs, ("so on", "so on")))
    assert len(wrong) == len(pairs)
    assert "none of a pair's KV cache, look at the weights" in set(wrong.values()).pop()


def test_of_random_weights_no_answer_is_known(catalog: Catalog) -> None:
    deployment, *_ = make_deployment("gb200-2p1d", catalog)
    model = catalog.checkpoint("tiny-qwen3-moe")
    assert Serving(deployment, 5.0, model).check_pairs() == []
    assert Serving(deployment, 5.0, catalog.checkpoint("kimi-k2.5-nvfp4")).check_pairs() != []


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    started = Lab(tmp_path)
    yield started
    started.stop()


def start(lab: Lab, folder: Path, role: str, *garbled: str) -> tuple[Engine, RankEndpoint, str]:
    """An engine of a role, its rank, and where others fetch its KV cache from."""
    name = f"{role}-{len(lab.engines)}"
    port, channel = free_ports(2)
    config = {
        "kv_connector": "NixlConnector",
        "kv_role": {"prefill": "kv_producer", "decode": "kv_consumer"}[role],
    }
    argv = [
        "vllm", "serve", str(folder / "kimi"), "-tp", "8", "--port", str(port), "--served-model-name",
        "kimi", "--max-model-len", "8192", "--kv-transfer-config", json.dumps(config),
    ]  # fmt: skip
    environ = {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(channel),
    }
    state = make_state(folder / name, faults={"garbled_kv": garbled})
    rank = RankEndpoint(
        process=f"{name}/0", server=f"{name}/0", host=name, group=f"{role}/{len(lab.engines) % NUM}",
        role=role, rank=0, url=f"http://127.0.0.1:{port}", index=None, bootstrap=None, model="kimi",
        counts_tokens=True,
    )  # fmt: skip
    engine = lab.start(state, argv, env=environ, port=port)
    wait_healthy(engine, port)
    return engine, rank, f"127.0.0.1:{channel}"


def running(
    lab: Lab, folder: Path, catalog: Catalog, garbles: tuple[int, int] | None
) -> Deployment:
    """Two prefill and two decode engines of loopback; one pair garbles what is handed over."""
    make_checkpoint(folder / "kimi")
    prefill = [start(lab, folder, "prefill") for _ in range(NUM)]
    decode = [
        start(lab, folder, "decode", *([prefill[garbles[0]][2]] if garbles and garbles[1] == i else []))
        for i in range(NUM)
    ]  # fmt: skip
    scripted, _, _ = make_deployment("gb200-2p1d", catalog)
    ranks = tuple(rank for _, rank, _ in (*prefill, *decode))
    endpoints = replace(scripted.endpoints, ranks=ranks, router=None, model="kimi")
    for rank in ranks:
        (folder / "hosts" / rank.host).mkdir(parents=True)
    processes = tuple(
        replace(like, id=rank.process, host=rank.host)
        for like, rank in zip(scripted.plan.processes, ranks, strict=False)
    )
    plan = replace(scripted.plan, processes=processes)
    fleet = AgentFleet(folder / "hosts")
    return replace(scripted, plan=plan, endpoints=endpoints, fleet=fleet)


def asked(deployment: Deployment) -> list[Check]:
    return Serving(deployment, 20.0, None).check_pairs()


def test_every_pair_gives_the_known_answer(lab: Lab, tmp_path: Path, catalog: Catalog) -> None:
    checks = asked(running(lab, tmp_path, catalog, None))
    assert [(c.process, c.check, c.ok, c.detail) for c in checks] == [
        (f"decode-{i}/0", KNOWN_ANSWER, True, "the known answer, twice through 2 of 2 pairs")
        for i in (2, 3)
    ]


def test_the_pair_that_garbles_is_named_and_no_other(
    lab: Lab, tmp_path: Path, catalog: Catalog
) -> None:
    deployment = running(lab, tmp_path, catalog, (1, 0))
    decode, prefill = deployment.endpoints.ranks[2], deployment.endpoints.ranks[1]
    for _ in range(2):  # a decode rank that has seen the prompt is asked with another salt
        checks = asked(deployment)
        wrong = [check for check in checks if check.is_wrong]
        assert [check.process for check in wrong] == [decode.process]
        assert (
            f"behind rank 0 of {prefill.group} ({prefill.process}): it answers" in wrong[0].detail
        )
        assert sum(check.ok is True for check in checks) == NUM


def test_without_a_salt_a_decode_rank_answers_from_what_it_has_seen(
    lab: Lab, tmp_path: Path, catalog: Catalog
) -> None:
    """Why each request has one: of the same prompt nothing is fetched, and the pair is not tried."""
    deployment = running(lab, tmp_path, catalog, (1, 0))
    one, other, decode = deployment.endpoints.ranks[:3]
    said = []
    for prefill, salt in ((one, "a"), (other, "a"), (other, "b")):
        body = {**question("kimi").body, "cache_salt": salt}
        kept = {"do_remote_decode": True, "do_remote_prefill": False}
        port = int(prefill.url.rpartition(":")[2])
        first = {**body, "max_tokens": 1, "kv_transfer_params": kept}
        _, text = call(port, "/v1/completions", first)
        params = json.loads(text)["kv_transfer_params"]
        second = {**body, "kv_transfer_params": params}
        _, text = call(int(decode.url.rpartition(":")[2]), "/v1/completions", second)
        said.append(json.loads(text)["choices"][0]["text"].startswith("!"))
    assert said == [False, False, True]
