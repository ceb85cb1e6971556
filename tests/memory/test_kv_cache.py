"""KV arithmetic against the start-up log of Kimi-K2-Thinking on H200 (vLLM recipe, 2025-11-06)."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.catalog.schema import ModelShape
from infra.memory.kv_cache import KvLayout, kv_bytes_per_token, kv_tokens, request_gib


@pytest.fixture
def shape(catalog: Catalog) -> ModelShape:
    found = catalog.checkpoint("kimi-k2-thinking").shape
    assert found is not None
    return found


def laid_out(
    *, block_size: int = 64, context_parallel: int = 1, dtype: str = "auto", stages: int = 1
) -> KvLayout:
    return KvLayout(
        dtype=dtype,
        block_size=block_size,
        decode_context_parallel=context_parallel,
        pipeline_parallel=stages,
    )


def tokens(shape: ModelShape, gib: float, block_size: int, context_parallel: int = 1) -> int:
    return kv_tokens(shape, gib, laid_out(block_size=block_size, context_parallel=context_parallel))


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
    found = request_gib(shape, length, laid_out(dtype=dtype))
    assert found == pytest.approx(gib, abs=0.006)


def test_context_parallel_divides_a_request(shape: ModelShape) -> None:
    whole = request_gib(shape, 262_144, laid_out())
    assert request_gib(shape, 262_144, laid_out(context_parallel=8)) == whole / 8


def test_a_stage_of_a_pipeline_keeps_the_kv_of_its_own_layers(shape: ModelShape) -> None:
    assert shape.num_layers == 61
    assert kv_bytes_per_token(shape, pipeline_parallel=2) == 70_272 // 61 * 31


def test_nothing_fits_into_nothing(shape: ModelShape) -> None:
    assert tokens(shape, 0.0, 64) == 0
    assert tokens(shape, 0.004, 64) == 0
