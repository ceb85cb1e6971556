"""The catalogue's files: their shape, and that they agree with each other and with the releases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from infra.catalog.load import Catalog, Combination
from infra.catalog.schema import Recipe, Release, TuningProfile
from infra.catalog.sourced import SourcedEntry
from infra.engines.registry import ENGINES, FLAG_FAMILY
from infra.plan.compile import compile_file
from infra.spec.load import stack_names
from infra.spec.stack import EngineName, RoleName

ROOT = Path(__file__).parents[2]
CATALOG = Catalog()
ENGINE_NAMES: tuple[EngineName, ...] = ("vllm", "vllm-ascend", "sglang")
ROLES: tuple[RoleName, ...] = ("unified", "prefill", "decode")
RELEASES = [(e, v) for e in ENGINE_NAMES for v in CATALOG.ids(f"engines/{e}")]
TEST_STACKS = sorted(path.stem for path in (ROOT / "tests" / "stacks").glob("*.yaml"))
STACKS = (*stack_names(), *TEST_STACKS)
MASKS = {
    "nvidia": "CUDA_VISIBLE_DEVICES",
    "amd": "HIP_VISIBLE_DEVICES",
    "ascend": "ASCEND_RT_VISIBLE_DEVICES",
    "cpu": "CPU_VISIBLE_MEMORY_NODES",
}


def sourced_entries() -> Iterator[tuple[str, SourcedEntry]]:
    for name in CATALOG.ids("accelerators"):
        yield f"accelerators/{name}", CATALOG.accelerator(name)
    for name in CATALOG.ids("checkpoints"):
        yield f"checkpoints/{name}", CATALOG.checkpoint(name)
    for engine, version in RELEASES:
        yield f"engines/{engine}/{version}", CATALOG.release(engine, version)
    for name in CATALOG.ids("routers"):
        yield f"routers/{name}", CATALOG.router(name)


def releases_of(recipe: Recipe) -> list[Release]:
    engine = recipe.applies.engine
    versions = recipe.applies.versions or CATALOG.ids(f"engines/{engine}")
    return [CATALOG.release(engine, version) for version in versions]


def flag_errors(flags: Mapping[str, object], release: Release) -> list[str]:
    known = CATALOG.flags(release.flags_catalogue).by_option
    return [name for name in flags if f"--{name}" not in known]


ENTRIES = dict(sourced_entries())


@pytest.mark.parametrize("name", ENTRIES)
def test_each_source_is_named_and_dated(name: str) -> None:
    for source in ENTRIES[name].sources:
        assert len(source.source) > 5
        assert source.checked.year >= 2026
        assert source.unverified is None or len(source.unverified) > 10


def test_every_file_is_in_a_folder_that_the_catalogue_reads() -> None:
    read = {f"{name}.yaml" for name in ENTRIES}
    read |= {f"tuning/{name}.yaml" for name in CATALOG.ids("tuning")}
    read |= {f"recipes/{name}.yaml" for name in CATALOG.recipes}
    root = ROOT / "infra" / "catalog"
    folders = {name.partition("/")[0] for name in read}
    found = {path for folder in folders for path in (root / folder).rglob("*.y*ml")}
    assert {str(path.relative_to(root)) for path in found} == read


def test_repositories_are_catalogued_once() -> None:
    repositories = [CATALOG.checkpoint(name).repository for name in CATALOG.ids("checkpoints")]
    assert len(set(repositories)) == len(repositories)


@pytest.mark.parametrize("name", CATALOG.ids("accelerators"))
def test_accelerator_agrees_with_its_vendor_and_tuning(name: str) -> None:
    entry = CATALOG.accelerator(name)
    assert CATALOG.tuning(entry.tuning).items
    assert entry.mask_variable == MASKS[entry.vendor]
    assert entry.fabric.num_devices % entry.devices_per_host == 0
    assert (entry.container.gpus is not None) == (entry.vendor == "nvidia")


@pytest.mark.parametrize("name", CATALOG.ids("checkpoints"))
def test_checkpoint_is_a_model_with_a_shape_or_a_draft_of_models(name: str) -> None:
    entry = CATALOG.checkpoint(name)
    targets = [CATALOG.checkpoint(target) for target in entry.draft_of]
    if entry.kind == "model":
        # the shape is that of latent attention, which nothing on processors has
        assert (entry.shape is None) == (entry.generations == ("cpu",))
        assert not targets
        assert 0 < entry.expert_bytes < entry.size_bytes
    else:
        assert entry.draft_method is not None
        assert entry.shape is None
        assert {target.kind for target in targets} == {"model"}
        reachable = {generation for target in targets for generation in target.generations}
        assert set(entry.generations) <= reachable


@pytest.mark.parametrize(("engine", "version"), RELEASES)
def test_release_takes_the_flags_of_every_checkpoint(engine: EngineName, version: str) -> None:
    release, family = CATALOG.release(engine, version), FLAG_FAMILY[engine]
    assert CATALOG.environment_names(release.envs_catalogues) is not None
    for name in CATALOG.ids("checkpoints"):
        checkpoint = CATALOG.checkpoint(name)
        assert flag_errors(checkpoint.flags.get(family, {}), release) == []
        for feature in checkpoint.features.values():
            assert flag_errors(feature.vllm if family == "vllm" else feature.sglang, release) == []


@pytest.mark.parametrize(("engine", "version"), RELEASES)
def test_release_has_one_image_per_accelerator_and_network(engine: str, version: str) -> None:
    names = [
        (name, image.network)
        for image in CATALOG.release(engine, version).images
        for name in image.accelerators
    ]
    assert len(set(names)) == len(names)
    assert {name for name, _ in names} <= set(CATALOG.ids("accelerators"))


@pytest.mark.parametrize("name", STACKS)
def test_stack_has_a_verified_image(name: str) -> None:
    plan = compile_file(name, catalog=CATALOG).plan
    release = CATALOG.release(plan.engine.name, plan.engine.version)
    for host in plan.hosts:
        if CATALOG.accelerator(host.accelerator).vendor == "cpu":
            assert (plan.runtime, plan.engine.image) == ("native", "")
            continue
        (image,) = [i for i in release.images if i.reference == plan.engine.image]
        assert host.accelerator in image.accelerators
        assert image.verified


@pytest.mark.parametrize("engine", CATALOG.engines)
def test_an_accelerator_has_one_image_of_a_release_for_each_network(engine: str) -> None:
    for version in CATALOG.releases(engine):
        images = CATALOG.release(engine, version).images
        seen = [(each.network, name) for each in images for name in each.accelerators]
        assert len(seen) == len(set(seen))


def test_a_recipe_is_chosen_by_what_one_line_of_it_says() -> None:
    assert CATALOG._conditions == {name: each.applies for name, each in CATALOG.recipes.items()}


@pytest.mark.parametrize("name", CATALOG.recipes)
def test_recipe_names_what_exists(name: str) -> None:
    applies = CATALOG.recipes[name].applies
    assert set(applies.versions) <= set(CATALOG.ids(f"engines/{applies.engine}"))
    assert set(applies.accelerators) <= set(CATALOG.ids("accelerators"))
    assert set(applies.checkpoints) <= set(CATALOG.ids("checkpoints"))


@pytest.mark.parametrize("name", CATALOG.recipes)
def test_recipe_sets_only_what_its_releases_know_and_the_compiler_does_not_own(name: str) -> None:
    recipe = CATALOG.recipes[name]
    engine = ENGINES[recipe.applies.engine]
    assert not set(recipe.flags) & set(engine.owned_flags)
    assert not set(recipe.env) & set(engine.owned_variables)
    for release in releases_of(recipe):
        assert flag_errors(recipe.flags, release) == []
        known = CATALOG.environment_names(release.envs_catalogues)
        assert [v for v in recipe.env if v.startswith("VLLM_") and v not in known.names] == []
        additional = recipe.flags.get("additional-config", {})
        assert isinstance(additional, dict)
        assert set(additional) <= known.additional_config


@pytest.mark.parametrize("name", CATALOG.recipes)
def test_recipe_uses_known_placeholders(name: str) -> None:
    for value in CATALOG.recipes[name].env.values():
        for known in ("{address}", "{interface}", "{rdma_devices}"):
            value = value.replace(known, "")  # noqa: PLW2901 - what is left is the test
        assert "{" not in value


@pytest.mark.parametrize("name", CATALOG.recipes)
def test_recipe_gives_every_decision_a_reason_and_a_source(name: str) -> None:
    for decision in CATALOG.recipes[name].decisions:
        assert decision.choice
        assert len(decision.why) > 20
        assert len(decision.source) > 5


# A shipped stack on devices that none of them has.
ON_OTHER_DEVICES = (
    ("h200-sglang-tp8", "accelerator=b300"),
    ("gb200-nvfp4-tp4", "accelerator=b200", "roles.unified.tensor_parallel=8"),
    (
        "gb200-2p1d",
        "accelerator=b300",
        "roles.prefill.data_parallel=8",
        "roles.decode.data_parallel=8",
    ),
)


def test_every_recipe_serves_a_stack_and_every_shipped_stack_has_one() -> None:
    used: set[str | None] = {
        settings.recipe
        for name, *sets in ON_OTHER_DEVICES
        for settings in compile_file(name, catalog=CATALOG, sets=tuple(sets)).resolved.roles
    }
    for name in STACKS:
        recipes = {
            settings.recipe for settings in compile_file(name, catalog=CATALOG).resolved.roles
        }
        assert name not in stack_names() or None not in recipes, f"{name} has no recipe"
        used |= recipes
    assert set(CATALOG.recipes) <= used


def test_no_combination_matches_two_recipes_equally_well() -> None:
    models = [n for n in CATALOG.ids("checkpoints") if CATALOG.checkpoint(n).kind == "model"]
    sizes, spread = (1, 4, 8, 16), (False, True)
    for (engine, version), accelerator, checkpoint, role, size, over, draft in itertools.product(
        RELEASES, CATALOG.ids("accelerators"), models, ROLES, sizes, spread, spread
    ):
        CATALOG.recipe_for(
            Combination(
                engine=engine,
                version=version,
                accelerator=accelerator,
                checkpoint=checkpoint,
                role=role,
                tensor_parallel=size,
                data_parallel_over_hosts=over,
                draft=draft,
            )
        )


@pytest.mark.parametrize("name", CATALOG.ids("tuning"))
def test_tuning_items_are_unique_and_explained(name: str) -> None:
    profile: TuningProfile = CATALOG.tuning(name)
    ids = [item.id for item in profile.items]
    assert len(set(ids)) == len(ids)
    for item in profile.items:
        assert len(item.why) > 20
        assert item.checked.year >= 2026
        assert item.opt_in is None or item.want is None


@pytest.mark.parametrize("name", CATALOG.ids("tuning"))
def test_the_migration_cost_is_left_alone_unless_the_stack_asks(name: str) -> None:
    (item,) = [item for item in CATALOG.tuning(name).items if item.id == "sched.migration_cost_ns"]
    assert (item.kind, item.want, item.opt_in) == ("migration-cost", None, "50000")
