from __future__ import annotations

from typing import cast

import pytest

from infra.catalog.load import Catalog
from infra.engines.serving import (
    LONG_PROMPT,
    answer_text,
    answer_tokens,
    generated_tokens,
    served_model_name,
)
from infra.launch.proof.questions import question_for
from infra.launch.proof.rank import (
    Asking,
    Proof,
    build_proof,
    build_question,
    judge_proof,
    partners,
)
from infra.plan.compile import compile_file
from infra.plan.endpoints import Endpoints, RankEndpoint, read_endpoints

METRICS = 'vllm:generation_tokens_total{engine="0",model_name="m"} %s'
EMPTY = {"status": 200, "body": ""}
EVENT = 'data: {"choices": [{"delta": {"content": "42"}}]}'
GOOD = {"status": 200, "error": None, "body": {"choices": [{}], "usage": {"completion_tokens": 4}}}


def counted(tokens: int) -> dict[str, object]:
    return {"status": 200, "body": METRICS % tokens}


def endpoints_of(stack: str, catalog: Catalog) -> Endpoints:
    return read_endpoints(compile_file(stack, catalog=catalog).plan, catalog)


def asking(nonce: str = "n") -> Asking:
    ids = {("http://192.0.2.1:12600", 0): "engine-of-prefill"}
    return Asking(
        nonce=nonce, timeout_s=15.0, headers={"Authorization": "Bearer k"}, engine_ids=ids
    )


def proof_of(
    stack: str, process: str, catalog: Catalog, nonce: str = "n"
) -> tuple[Endpoints, Proof]:
    endpoints = endpoints_of(stack, catalog)
    rank = [rank for rank in endpoints.ranks if rank.process == process][-1]
    return endpoints, build_proof(endpoints, rank, partners(endpoints).get(rank), asking(nonce))


def body_of(proof: Proof, probe: int, step: int) -> dict[str, object]:
    return cast("dict[str, object]", proof.probes[probe][step]["body"])


def header_of(proof: Proof, probe: int, step: int, name: str) -> str | None:
    return cast("dict[str, str]", proof.probes[probe][step]["headers"]).get(name)


def test_a_single_rank_is_asked_between_two_looks_at_its_counter(catalog: Catalog) -> None:
    _, proof = proof_of("h200-tp8", "unified-0/0", catalog)
    assert [step["method"] for step in proof.probes[0]] == ["GET", "POST", "GET"]
    assert proof.counted == (0, 2)
    assert body_of(proof, 0, 1)["max_tokens"] == 4
    assert header_of(proof, 0, 1, "X-data-parallel-rank") is None
    assert header_of(proof, 0, 1, "Authorization") == "Bearer k"


def test_ranks_behind_one_endpoint_are_chosen_by_header(catalog: Catalog) -> None:
    endpoints = endpoints_of("a2-2n-dp4tp4", catalog)
    assert [rank.index for rank in endpoints.ranks] == [0, 1, 2, 3]
    assert [rank.process for rank in endpoints.ranks] == ["unified-0/0"] * 2 + ["unified-1/0"] * 2
    assert {rank.host for rank in endpoints.ranks} == {"unified-0"}
    _, proof = proof_of("a2-2n-dp4tp4", "unified-1/0", catalog)
    assert header_of(proof, 0, 1, "X-data-parallel-rank") == "3"


def test_hybrid_servers_count_their_ranks_from_zero(catalog: Catalog) -> None:
    ranks = endpoints_of("vllm-hybrid-2n", catalog).ranks
    assert [(rank.rank, rank.index) for rank in ranks] == [(0, 0), (1, 1), (2, 0), (3, 1)]


def test_multi_port_ranks_have_ports_of_their_own(catalog: Catalog) -> None:
    ranks = endpoints_of("vllm-multi-port", catalog).ranks
    assert [rank.url.rpartition(":")[2] for rank in ranks] == ["7100", "7101"]
    assert [rank.index for rank in ranks] == [None, None]


def test_a_prefill_rank_is_asked_as_the_router_would(catalog: Catalog) -> None:
    _, proof = proof_of("gb200-2p1d", "prefill-0/2", catalog)
    body = body_of(proof, 0, 1)
    assert body["max_tokens"] == body["min_tokens"] == 1
    assert cast("dict[str, object]", body["kv_transfer_params"])["do_remote_decode"] is True
    assert len(proof.needs) == 1


@pytest.mark.parametrize("stack", ["gb200-2p1d", "a3-2p1d"])
def test_a_decode_rank_is_never_asked_without_a_prefill_rank(stack: str, catalog: Catalog) -> None:
    endpoints = endpoints_of(stack, catalog)
    pairs = partners(endpoints)
    for rank in endpoints.of_role("decode"):
        proof = build_proof(endpoints, rank, pairs[rank], asking())
        first, second = proof.probes[0][1], proof.probes[0][2]
        assert str(first["url"]).startswith(pairs[rank].url)
        assert "min_tokens" in cast("dict[str, object]", first["body"])
        assert str(second["url"]).startswith(rank.url)
        assert second["merge"] == {"from_step": 1, "key": "kv_transfer_params"}
        assert set(proof.needs) == {rank.url, pairs[rank].url}


def test_every_prefill_rank_is_somebodys_partner(catalog: Catalog) -> None:
    endpoints = endpoints_of("a3-2p1d", catalog)
    pairs = partners(endpoints)
    used = {pairs[rank] for rank in endpoints.of_role("decode")}
    assert used == set(endpoints.of_role("prefill"))


def test_the_prompt_is_longer_than_a_block_of_every_backend() -> None:
    assert len(LONG_PROMPT.split()) > 256


def test_sglang_pairs_meet_in_one_room_at_the_same_time(catalog: Catalog) -> None:
    _, proof = proof_of("sglang-pd-mooncake", "decode-0/0", catalog)
    bodies = [body_of(proof, probe, 0) for probe in (0, 1)]
    assert bodies[0] == bodies[1]
    assert bodies[0]["bootstrap_host"] == "192.0.2.1"
    assert bodies[0]["bootstrap_port"] == 12600
    assert 0 <= int(str(bodies[0]["bootstrap_room"])) < 2**63
    _, again = proof_of("sglang-pd-mooncake", "decode-0/0", catalog, nonce="other")
    assert body_of(again, 0, 0)["bootstrap_room"] != bodies[0]["bootstrap_room"]


def test_mooncake_pairs_are_told_of_one_transfer(catalog: Catalog) -> None:
    _, proof = proof_of("vllm-pd-mooncake", "decode-0/0", catalog)
    decode = cast("dict[str, object]", body_of(proof, 0, 1)["kv_transfer_params"])
    prefill = cast("dict[str, object]", body_of(proof, 1, 0)["kv_transfer_params"])
    assert decode["transfer_id"] == prefill["transfer_id"]
    assert decode["remote_engine_id"] == "engine-of-prefill"
    assert decode["remote_bootstrap_addr"] == "http://192.0.2.1:12600"
    assert prefill["do_remote_decode"] is True


def test_sglang_ranks_are_chosen_in_the_body_too(catalog: Catalog) -> None:
    _, proof = proof_of("sglang-dp-attention", "unified-0/0", catalog)
    assert proof.counted is None
    assert body_of(proof, 0, 0)["data_parallel_rank"] == 7


@pytest.mark.parametrize(
    ("answers", "ok", "definite", "words"),
    [
        (
            [counted(3), GOOD, counted(7)],
            True,
            True,
            "4 tokens",
        ),
        (
            [counted(3), GOOD, counted(3)],
            False,
            True,
            "stayed at 3",
        ),
        ([counted(3), GOOD], False, True, "counter of generated tokens is not there"),
        ([EMPTY, GOOD, counted(4)], True, True, "4 tokens"),
        ([EMPTY, GOOD, counted(0)], False, True, "stayed at 0"),
        ([EMPTY, GOOD, EMPTY], False, True, "counter of generated tokens is not there"),
        ([{"status": None, "error": "Connection refused"}], False, False, "Connection refused"),
        (
            [EMPTY, {"status": None, "error": "timed out"}],
            False,
            False,
            "timed out",
        ),
        (
            [
                {"status": 200, "body": ""},
                {"status": 500, "body": {"error": {"message": "no blocks"}}},
            ],
            False,
            True,
            "HTTP 500: no blocks",
        ),
        (
            [EMPTY, {"status": 200, "body": {"choices": []}}],
            False,
            True,
            "without a single token",
        ),
        (
            [EMPTY, {"status": 200, "body": {"choices": [{"text": ""}]}}],
            False,
            True,
            "without a single token",
        ),
        ([], False, False, "no answer"),
    ],
)
def test_verdicts(
    answers: list[dict[str, object]], ok: bool, definite: bool, words: str, catalog: Catalog
) -> None:
    endpoints, proof = proof_of("h200-tp8", "unified-0/0", catalog)
    verdict = judge_proof(endpoints.engine, proof, [answers])
    assert (verdict.ok, verdict.is_definite) == (ok, definite)
    assert words in verdict.detail


def test_both_sides_of_a_pair_must_answer(catalog: Catalog) -> None:
    endpoints, proof = proof_of("sglang-pd-nixl", "decode-0/0", catalog)
    assert judge_proof(endpoints.engine, proof, [[GOOD], [GOOD]]).ok
    bad = {"status": 500, "body": "bootstrap failed", "error": None}
    assert "bootstrap failed" in judge_proof(endpoints.engine, proof, [[GOOD], [bad]]).detail


def test_counters_are_read_for_the_rank_alone() -> None:
    text = """\
vllm:generation_tokens_total{engine="1",model_name="m"} 9.0
vllm:generation_tokens_total{engine="0",model_name="m"} 4.0
vllm:generation_tokens_created{engine="0",model_name="m"} 1e9
vllm:generation_tokens_total{engine="0",model_name="m"} nonsense x"""
    assert generated_tokens("vllm", text, 0) == 4.0
    assert generated_tokens("vllm", text, 2) is None
    assert generated_tokens("vllm", "", 0) is None
    assert (
        generated_tokens("sglang", 'sglang:generation_tokens_total{model_name="m"} 0.0', 3) == 0.0
    )


def test_questions_go_through_prefill_and_decode(catalog: Catalog) -> None:
    endpoints = endpoints_of("gb200-2p1d", catalog)
    pairs = partners(endpoints)
    for rank in (endpoints.of_role("prefill")[0], endpoints.of_role("decode")[0]):
        question = question_for("stream", rank.model)
        proof = build_question(endpoints, rank, pairs[rank], question, asking())
        first, last = body_of(proof, 0, 1), body_of(proof, 0, 2)
        assert first["stream"] is False
        assert "stream_options" not in first  # vLLM refuses them without a stream
        assert last["stream"] is True
        assert "stream_options" in last
        assert str(proof.probes[0][0]["url"]) == rank.url + "/metrics"


def chat(**message: object) -> dict[str, object]:
    return {"choices": [{"message": message}]}


@pytest.mark.parametrize(
    ("body", "text", "num_tokens"),
    [
        ({"choices": [{"text": " 42"}], "usage": {"completion_tokens": 4}}, " 42", 4),
        ({"choices": [{"text": ""}], "usage": {"completion_tokens": 1}}, "", 1),
        ({"choices": [{"text": " 42"}], "usage": {"completion_tokens": 0}}, " 42", 0),
        (chat(content="42", reasoning="I think. "), "I think. 42", 1),
        ({"choices": [{"text": ""}]}, "", 0),
        (f"{EVENT}\n\n{EVENT}\n\ndata: [DONE]\n", "4242", 1),
        (f'{EVENT}\n\ndata: {{"choices": [], "usage": {{"completion_tokens": 7}}}}\n', "42", 7),
        ('data: {"error": {"message": "no blocks"}}\n\ndata: [DONE]\n', "", 0),
        ("data: {damaged\n", "", 0),
        ("Internal Server Error", "", 0),
        (None, "", 0),
    ],
)
def test_what_an_answer_says(body: object, text: str, num_tokens: int) -> None:
    assert (answer_text(body), answer_tokens(body)) == (text, num_tokens)


def test_endpoints_cover_every_rank_of_every_stack(catalog: Catalog) -> None:
    plan = compile_file("vllm-pd-hybrid", catalog=catalog).plan
    ranks: tuple[RankEndpoint, ...] = read_endpoints(plan, catalog).ranks
    assert {(r.group, r.rank) for r in ranks} == {
        (p.group, rank) for p in plan.processes for rank in p.dp_ranks
    }


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ({"served-model-name": ("kimi", "k2"), "model": "/models/x"}, "kimi"),
        ({"served-model-name": "kimi"}, "kimi"),
        ({"model": "/models/x"}, "/models/x"),
        ({"model-path": "/models/x"}, "/models/x"),
        ({}, None),
    ],
)
def test_the_name_that_clients_ask_for(flags: dict[str, object], name: str | None) -> None:
    assert served_model_name(flags) == name
