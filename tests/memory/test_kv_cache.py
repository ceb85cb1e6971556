"""KV arithmetic against the start-up log of Kimi-K2-Thinking on H200 (vLLM recipe, 2025-11-06)."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.catalog.schema import ModelShape
from infra.memory.kv_cache import OVERHEAD_GIB, Room, kv_bytes_per_token, kv_tokens, request_gib


@pytest.fixture
def shape(catalog: Catalog) -> ModelShape:
    found = catalog.checkpoint("kimi-k2-thinking").shape
    assert found is not None
    return found


def tokens(shape: ModelShape, gib: float, block_size: int, context_parallel: int = 1) -> int:
    return kv_tokens(
        shape,
        gib,
        block_size=block_size,
        kv_cache_dtype="auto",
        decode_context_parallel=context_parallel,
    )


def test_a_token_takes_one_copy_over_all_layers(shape: ModelShape) -> None:
    assert kv_bytes_per_token(shape) == 70_272
    assert kv_bytes_per_token(shape, kv_cache_dtype="fp8") == 35_136
    assert kv_bytes_per_token(shape, kv_cache_dtype="fp8_e4m3") == 35_136


@pytest.mark.parametrize(
    ("block_size", "count"), [(16, 715_088), (32, 715_072), (64, 715_072), (128, 715_008)]
)
def test_the_published_start_up_log_is_reproduced(
    shape: ModelShape, block_size: int, count: int
) -> None:
    assert tokens(shape, 46.80, block_size) == count


def test_context_parallel_multiplies_whole_blocks(shape: ModelShape) -> None:
    assert tokens(shape, 46.80, 64, context_parallel=8) == 8 * 715_072
    # the published run had one block more per device, which also prints as 46.80
    assert tokens(shape, 46.803, 64, context_parallel=8) == 5_721_088 == 8 * 11_174 * 64


@pytest.mark.parametrize(
    ("length", "dtype", "gib"),
    [(262_144, "auto", 17.16), (262_144, "fp8", 8.58), (32_768, "auto", 2.14)],
)
def test_one_request(shape: ModelShape, length: int, dtype: str, gib: float) -> None:
    found = request_gib(shape, length, kv_cache_dtype=dtype, decode_context_parallel=1)
    assert found == pytest.approx(gib, abs=0.006)


def test_context_parallel_divides_a_request(shape: ModelShape) -> None:
    whole = request_gib(shape, 262_144, kv_cache_dtype="auto", decode_context_parallel=1)
    part = request_gib(shape, 262_144, kv_cache_dtype="auto", decode_context_parallel=8)
    assert part == whole / 8


def test_the_overhead_is_what_the_log_leaves(catalog: Catalog) -> None:
    usable = catalog.accelerator("h200").memory_mib / 1024 * 0.90
    room = Room(usable_gib=usable, weights_gib=71.07)
    assert room.left_gib - OVERHEAD_GIB == pytest.approx(46.80, abs=0.2)


def test_nothing_fits_into_nothing(shape: ModelShape) -> None:
    assert tokens(shape, 0.0, 64) == 0
    assert tokens(shape, 0.004, 64) == 0
