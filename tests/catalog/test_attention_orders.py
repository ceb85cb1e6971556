from __future__ import annotations

from typing import get_args

import pytest

from infra.catalog.attention_orders import Devices, attention_orders
from infra.catalog.load import Catalog
from infra.catalog.read_releases import read_versions

CATALOG = Catalog()
PLATFORM = {"blackwell": "cuda", "cuda": "cuda", "rocm-aiter": "rocm", "rocm": "rocm"}


def test_every_kind_of_device_has_its_order() -> None:
    orders = attention_orders().orders
    assert set(orders) == set(get_args(Devices)) == set(PLATFORM)
    assert all(len(set(names)) == len(names) > 0 for names in orders.values())


@pytest.mark.parametrize("version", read_versions(CATALOG, "vllm"))
def test_what_is_tried_is_dense_latent_attention_of_the_platform(version: str) -> None:
    known = CATALOG.package(f"vllm-{version}").attention_backends
    for devices, names in attention_orders().orders.items():
        for name in names:
            assert known[name].is_mla, (devices, name)
            assert not known[name].is_sparse, (devices, name)
            assert PLATFORM[devices] in known[name].platforms, (devices, name)
    tried = {name for names in attention_orders().orders.values() for name in names}
    assert attention_orders().dense_on_hopper_alone <= tried
