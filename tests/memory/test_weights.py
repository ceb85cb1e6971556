"""Weights per device against known answers (arithmetic over config.json; facts of 2026-11-20)."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.memory.weights import GIB, Layout, weight_bytes_per_device


def weights_gib(catalog: Catalog, checkpoint: str, layout: Layout) -> float:
    return weight_bytes_per_device(catalog.checkpoint(checkpoint), layout) / GIB


def layout(
    tensor: int, data: int = 1, *, expert_parallel: bool = False, pipeline: int = 1
) -> Layout:
    return Layout(
        tensor=tensor,
        attention_tensor=tensor,
        pipeline=pipeline,
        data=data,
        expert_parallel=expert_parallel,
        vision_on_every_device=True,
    )


@pytest.mark.parametrize(
    ("checkpoint", "tensor", "data", "gib"),
    [
        ("kimi-k2-thinking", 8, 1, 71.1),
        ("kimi-k2.5-int4", 8, 1, 72.0),
        ("kimi-k2.5-int4", 4, 1, 141.0),
        ("kimi-k2.5-nvfp4", 4, 1, 141.0),
        ("kimi-k2.5-nvfp4", 1, 4, 156.6),
        ("kimi-k2.5-nvfp4", 1, 16, 56.9),
        ("kimi-k2.5-w4a8", 4, 4, 35.3),
        ("kimi-k2.5-w4a8", 8, 2, 33.6),
        ("kimi-k2.5-w4a8", 1, 32, 30.5),
        ("kimi-k2.5-w4a8", 16, 1, 32.7),
    ],
)
def test_known_deployments(
    checkpoint: str, tensor: int, data: int, gib: float, catalog: Catalog
) -> None:
    found = weights_gib(catalog, checkpoint, layout(tensor, data, expert_parallel=data > 1))
    assert found == pytest.approx(gib, abs=0.06)


def test_parts_of_the_int8_layers_make_up_the_size_on_disk(catalog: Catalog) -> None:
    w4a8, int4 = (catalog.checkpoint(f"kimi-k2.5-{name}") for name in ("w4a8", "int4"))
    others = [each.size_bytes - each.expert_bytes for each in (int4, w4a8)]
    # attention without kv_b, dense layers and shared experts: 8.695e9 parameters, two bytes there and one here
    assert others[0] - others[1] == pytest.approx(8.695e9, rel=2e-3)


@pytest.mark.parametrize(
    ("checkpoint", "gb"),
    [("kimi-k2-thinking", 594.2), ("kimi-k2.5-int4", 595.1), ("kimi-k2.5-nvfp4", 591.0)],
)
def test_sizes_on_disk(checkpoint: str, gb: float, catalog: Catalog) -> None:
    assert catalog.checkpoint(checkpoint).size_bytes / 1e9 == pytest.approx(gb, abs=0.05)


def test_experts_of_the_int4_build_are_their_parameters_times_0_5625_bytes(
    catalog: Catalog,
) -> None:
    shape = catalog.checkpoint("kimi-k2.5-int4").shape
    assert shape is not None
    moe_layers = shape.num_layers - shape.num_dense_layers
    parameters = (
        moe_layers * shape.num_experts * 3 * shape.hidden_size * shape.moe_intermediate_size
    )
    assert parameters == pytest.approx(1014.686e9, rel=1e-5)
    assert catalog.checkpoint("kimi-k2.5-int4").expert_bytes == pytest.approx(
        parameters * 0.5625, rel=1e-5
    )


def test_more_devices_hold_less_each(catalog: Catalog) -> None:
    sizes = [weights_gib(catalog, "kimi-k2.5-int4", layout(tensor)) for tensor in (1, 2, 4, 8, 16)]
    assert sizes == sorted(sizes, reverse=True)


def test_a_vision_tower_that_is_split_takes_less(catalog: Catalog) -> None:
    whole = layout(8)
    split = Layout(
        tensor=8,
        attention_tensor=8,
        pipeline=1,
        data=1,
        expert_parallel=False,
        vision_on_every_device=False,
    )
    difference = weights_gib(catalog, "kimi-k2.5-int4", whole) - weights_gib(
        catalog, "kimi-k2.5-int4", split
    )
    assert difference == pytest.approx(0.942e9 * 7 / 8 / GIB, rel=1e-6)


def test_the_fullest_device_holds_whole_experts(catalog: Catalog) -> None:
    # 384 experts on 36 devices: some hold 11, which is more than 384 / 36
    even = weights_gib(catalog, "kimi-k2.5-nvfp4", layout(1, 36))
    fullest = weights_gib(catalog, "kimi-k2.5-nvfp4", layout(1, 36, expert_parallel=True))
    experts = catalog.checkpoint("kimi-k2.5-nvfp4").expert_bytes / GIB
    assert fullest - even == pytest.approx(experts * (11 / 384 - 1 / 36), rel=1e-6)


def test_stages_share_the_layers(catalog: Catalog) -> None:
    one, two = (weights_gib(catalog, "kimi-k2-thinking", layout(8, pipeline=n)) for n in (1, 2))
    assert two == pytest.approx(one / 2, rel=1e-6)


def test_a_draft_is_split_over_its_tensor_parallel_devices(catalog: Catalog) -> None:
    draft = catalog.checkpoint("kimi-k2.5-eagle3")
    assert weight_bytes_per_device(draft, layout(8)) == draft.size_bytes / 8
