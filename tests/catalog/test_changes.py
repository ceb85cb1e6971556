from __future__ import annotations

from itertools import pairwise

import pytest

from infra.catalog.changes import Changed, ReleaseChanges, release_changes
from infra.catalog.load import Catalog

CATALOG = Catalog()
NEIGHBOURS = [
    (engine, old, new)
    for engine in CATALOG.engines
    for old, new in pairwise(CATALOG.releases(engine))
]


def changes(engine: str, old: str, new: str) -> ReleaseChanges:
    return release_changes(CATALOG.release(engine, old), CATALOG.release(engine, new), CATALOG)


def test_releases_are_in_the_order_in_which_they_came() -> None:
    assert CATALOG.releases("sglang") == ("0.5.9", "0.5.16", "0.5.23")
    assert CATALOG.releases("vllm-ascend") == ("0.17.0rc1", "0.18.0", "0.22.1rc1", "0.26.0rc1")


@pytest.mark.parametrize("engine", CATALOG.engines)
def test_every_engine_has_catalogues_of_at_least_three_releases(engine: str) -> None:
    known = CATALOG.releases(engine)
    assert len(known) >= 3
    for version in known:
        release = CATALOG.release(engine, version)
        package = CATALOG.package(f"{engine}-{version}")
        assert (package.package, package.version) == (engine, version)
        assert package.document in [
            CATALOG.package(name).document
            for name in (release.flags_catalogue, *release.envs_catalogues)
        ]
        assert len(CATALOG.flags(release.flags_catalogue).by_name) > 200


@pytest.mark.parametrize(("engine", "old", "new"), NEIGHBOURS)
def test_readers_know_every_flag_by_one_name(engine: str, old: str, new: str) -> None:
    """A new spelling that is longer joins `SAME` in infra/catalog/flags.py: rules ask for the old name."""
    assert changes(engine, old, new).renamed_flags == {}


def test_the_longer_name_of_a_flag_is_read_under_the_old_one() -> None:
    by_option = CATALOG.flags("vllm-0.33.0").by_option
    assert by_option["--device-memory-utilization"][0].name == "gpu-memory-utilization"


def test_what_a_release_took_away_is_named() -> None:
    found = changes("vllm", "0.17.0", "0.33.0")
    assert found.removed_flags == (
        "calculate-kv-scales",
        "disable-frontend-multiprocessing",
        "max-long-partial-prefills",
        "max-num-partial-prefills",
        "override-attention-dtype",
        "swap-space",
        "use-gpu-for-pooling-score",
    )
    assert {"kv-transfer-config.kv_ip", "kv-transfer-config.kv_rank"} <= set(found.removed_keys)
    assert "VLLM_USE_FLASHINFER_MOE_FP4" in found.removed_variables
    assert "data-parallel-supervisor-port" in found.added_flags


def test_changed_defaults_are_those_of_flags_and_of_their_keys() -> None:
    found = changes("vllm", "0.17.0", "0.22.1").defaults
    assert Changed(name="gpu-memory-utilization", old=0.9, new=0.92) in found
    newer = changes("vllm", "0.22.1", "0.33.0").defaults
    assert Changed(name="eplb-config.use_async", old=False, new=True) in newer


def test_keys_of_the_plugins_configuration_count_too() -> None:
    found = changes("vllm-ascend", "0.22.1rc1", "0.26.0rc1")
    assert "additional-config.SLO_limits_for_dynamic_batch" in found.removed_keys
    assert "additional-config.recompute_scheduler_enable" not in found.removed_keys


def test_a_release_differs_in_nothing_from_itself() -> None:
    same = changes("vllm", "0.22.1", "0.22.1")
    assert not any(getattr(same, name) for name in ReleaseChanges.__dataclass_fields__)


def test_a_variable_that_others_read_as_well_is_never_called_unread() -> None:
    every = [changes(*names).removed_variables for names in NEIGHBOURS]
    assert [
        name for names in every for name in names if not name.startswith(("VLLM_", "SGL"))
    ] == []
    assert any(every)


def test_the_catalogue_registers_the_models_of_every_stack() -> None:
    assert "KimiK25ForConditionalGeneration" in CATALOG.package("vllm-0.22.1").models
    assert "KimiK25ForConditionalGeneration" in CATALOG.package("sglang-0.5.9").models


@pytest.mark.parametrize("version", CATALOG.releases("sglang"))
def test_chat_templates_are_those_of_the_package(version: str) -> None:
    known = CATALOG.package(f"sglang-{version}").names("chat_templates")
    assert set(CATALOG.release("sglang", version).chat_templates) == known
