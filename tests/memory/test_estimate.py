"""What `fab estimate` says of deployments whose answers are known: published logs, or arithmetic in recipes."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.checks.view import view_plan
from infra.memory.estimate import RoleEstimate, estimate_role
from infra.plan.compile import compile_file
from infra.render.estimates import Surroundings, estimate_plan

NOWHERE = Surroundings(
    storage=None,
    lustre=None,
    request_tokens=None,
    cloud=None,
    capacity=None,
    num_reserved=None,
    cluster=None,
)
# A published figure is rounded to a tenth, and so are the parts it is made of.
ROUNDING = 0.16


def roles(catalog: Catalog, stack: str, *sets: str) -> dict[str, RoleEstimate]:
    compiled = compile_file(stack, catalog=catalog, sets=sets)
    estimate = estimate_plan(stack, view_plan(compiled.plan, catalog), NOWHERE)
    assert estimate is not None
    return {role.load.role: role for role in estimate.roles}


@pytest.mark.parametrize(
    ("stack", "role", "weights_gib", "kv_gib"),
    [
        ("k2-thinking-h200-tp8", "unified", 71.1, 46.8),  # measured
        ("h200-tp8", "unified", 72.0, 48.7),
        ("gb200-tp4", "unified", 141.0, 25.8),
        ("gb200-2p1d", "prefill", 156.6, 10.2),
        ("gb200-2p1d", "decode", 56.9, 109.9),
        (
            "mi325x-tp4",
            "unified",
            141.0,
            81.4,
        ),  # the guide's "about 40 GB per GPU" is wrong by 3.5 times
        ("a3-dp4tp4", "unified", 35.3, 10.5),
        ("a2-2n-dp4tp4", "unified", 35.3, 10.2),
        ("a3-longctx-tp16", "unified", 32.7, 14.1),
    ],
)
def test_devices_of_known_deployments(
    stack: str, role: str, weights_gib: float, kv_gib: float, catalog: Catalog
) -> None:
    memory = roles(catalog, stack)[role].memory
    assert memory.weights_gib == pytest.approx(weights_gib, abs=ROUNDING)
    assert memory.kv_gib == pytest.approx(kv_gib, abs=ROUNDING)


def test_a_draft_is_split_as_the_model_is(catalog: Catalog) -> None:
    of = roles(catalog, "a3-2p1d")
    assert of["prefill"].memory.draft_gib == pytest.approx(of["decode"].memory.draft_gib / 8)
    assert of["decode"].memory.draft_gib == pytest.approx(5.59, abs=0.01)


def test_context_parallel_holds_eight_times_as_many_tokens(catalog: Catalog) -> None:
    one = roles(catalog, "k2-thinking-h200-tp8")["unified"]
    eight = roles(catalog, "k2-thinking-h200-dcp8")["unified"]
    assert eight.kv_tokens == 8 * one.kv_tokens


def test_ranks_are_counted_over_replicas(catalog: Catalog) -> None:
    of = roles(catalog, "gb200-2p1d")
    assert [of[name].load.num_ranks for name in ("prefill", "decode")] == [8, 16]
    assert of["decode"].concurrent_requests == 16 * (of["decode"].kv_tokens // 131_072)


def test_requests_at_once_end_at_the_engines_own_limit(catalog: Catalog) -> None:
    free = roles(catalog, "gb200-2p1d")["decode"]
    limited = roles(catalog, "gb200-2p1d", "roles.decode.max_num_seqs=2")["decode"]
    assert free.concurrent_requests > limited.concurrent_requests == 2 * 16


def test_no_request_is_counted_that_is_not_admitted(catalog: Catalog) -> None:
    decode = roles(catalog, "gb200-2p1d")["decode"].load
    counts = [estimate_role(decode, length) for length in (131_072, 131_073)]
    assert [each is not None and each.concurrent_requests > 0 for each in counts] == [True, False]


def test_no_context_is_longer_than_the_models(catalog: Catalog) -> None:
    decode = roles(catalog, "gb200-2p1d")["decode"]
    assert decode.kv_tokens > 262_144 == decode.max_context


def test_a_role_that_cannot_hold_one_request_says_so(catalog: Catalog) -> None:
    long = roles(catalog, "gb200-2p1d", "roles.prefill.max_model_len=262144")["prefill"]
    assert not long.fits
    assert long.concurrent_requests == 0
    assert 131_072 < long.max_context < 262_144


def test_half_precision_kv_is_twice_the_tokens_of_none(catalog: Catalog) -> None:
    plain = roles(catalog, "h200-tp8")["unified"]
    fp8 = roles(catalog, "h200-tp8", "roles.unified.flags.kv-cache-dtype=fp8")["unified"]
    assert fp8.kv_tokens == pytest.approx(2 * plain.kv_tokens, abs=64)


def test_attention_ranks_of_sglang_hold_a_copy_of_attention_each(catalog: Catalog) -> None:
    tensor = roles(catalog, "tests/stacks/sglang-dp-attention.yaml")["unified"]
    plain = roles(catalog, "h200-sglang-tp8")["unified"]
    assert tensor.memory.weights_gib > plain.memory.weights_gib + 1
