"""Minutes to ready: what is copied, what is loaded, what bounds it."""

from __future__ import annotations

import dataclasses

import pytest

from infra.catalog.figures import read_loading_rates
from infra.catalog.lustre_sizes import LustreSettings
from infra.memory.time_to_ready import Delivery, lustre_gb_per_s, time_to_ready

RATES = read_loading_rates()
ON_DISK = Delivery(
    storage="local",
    size_bytes=430_000_000_000,
    num_hosts=4,
    load_format="auto",
    family="vllm",
    lustre=None,
)


def lustre(gib: int, tier: int, *, efa: bool = False) -> LustreSettings:
    return LustreSettings(capacity_gib=gib, throughput=tier, has_efa=efa)


def test_weights_on_the_hosts_own_disk_take_what_the_loader_takes() -> None:
    found = time_to_ready(ON_DISK, RATES)
    assert found.copy_s == 0.0
    assert found.load_s == pytest.approx(100.0)
    assert found.minutes == pytest.approx((100 + found.start_s) / 60)


def test_a_bucket_is_copied_first() -> None:
    found = time_to_ready(dataclasses.replace(ON_DISK, storage="s3-to-nvme"), RATES)
    assert found.copy_s == pytest.approx(100.0)
    assert found.load_s == pytest.approx(100.0)


def test_a_faster_loader_is_counted_and_an_unknown_one_is_not_guessed() -> None:
    fast = time_to_ready(dataclasses.replace(ON_DISK, load_format="instanttensor"), RATES)
    assert fast.load_s == pytest.approx(430 / 45)
    unknown = time_to_ready(dataclasses.replace(ON_DISK, load_format="tensorizer"), RATES)
    assert unknown.minutes is None
    assert "tensorizer" in unknown.why


@pytest.mark.parametrize("storage", ["shared-mount", "pvc"])
def test_the_customers_storage_is_not_guessed(storage: str) -> None:
    found = time_to_ready(dataclasses.replace(ON_DISK, storage=storage), RATES)  # type: ignore[arg-type]  # parametrized
    assert found.minutes is None
    assert storage in found.why


def test_every_storage_of_a_stack_has_an_answer() -> None:
    for storage in ("s3-to-nvme", "fsx-lustre", "efs", "local", "shared-mount", "pvc"):
        size = lustre(4800, 1000) if storage == "fsx-lustre" else None
        delivery = dataclasses.replace(ON_DISK, storage=storage, lustre=size)
        assert time_to_ready(delivery, RATES).why


@pytest.mark.parametrize(
    ("settings", "hosts", "gb_per_s"),
    [
        (
            lustre(4800, 1000),
            1,
            1.25,
        ),  # two servers of 5 Gbit/s: the tier does not help a single client
        (lustre(4800, 125), 1, 0.586),
        (lustre(4800, 1000, efa=True), 1, 4.69),
        (lustre(4800, 1000, efa=True), 4, 1.17),
        (lustre(1200, 125), 1, 0.146),
        (lustre(96000, 1000), 1, 12.5),  # forty servers, and one client's 100 Gbit/s
        (lustre(96000, 1000, efa=True), 1, 87.5),  # over EFA 700 Gbit/s
        (lustre(96000, 1000, efa=True), 2, 46.875),
    ],
)
def test_a_small_fast_file_system_is_slow(
    settings: LustreSettings, hosts: int, gb_per_s: float
) -> None:
    assert lustre_gb_per_s(settings, hosts) == pytest.approx(gb_per_s, abs=0.01)


def test_a_slow_file_system_bounds_the_load_and_is_named() -> None:
    delivery = dataclasses.replace(
        ON_DISK, storage="fsx-lustre", lustre=lustre(4800, 1000), num_hosts=1
    )
    found = time_to_ready(delivery, RATES)
    assert found.load_s == pytest.approx(430 / 1.25)
    assert "4800 GiB at 1000 MB/s per TiB" in found.why
