"""Flags and variables of one role merged in the one order: accelerator, engine, checkpoint, recipe, role, operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

from infra.catalog.flags import FlagCatalogue
from infra.catalog.host_networks import HostNetwork
from infra.catalog.schema import Accelerator, Checkpoint, FlagData, Image, Recipe, Release
from infra.engines.command_line import flag_named
from infra.engines.registry import FLAG_FAMILY
from infra.engines.settings import Flag, Origin, Variable
from infra.spec.load import LoadedStack
from infra.spec.stack import Role, RoleName, Scalar

# What must be put before what the image already has.
PREPENDED = ("LD_PRELOAD", "LD_LIBRARY_PATH")
# Folders that are searched in turn: what one layer names comes before what an earlier one names, and hides nothing.
SEARCHED = "LD_LIBRARY_PATH"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSources:
    """Everything that has a say in one role's flags and variables.

    Args:
        image: the release's that the role runs in.
        network: what its processes reach other hosts over, where that asks for libraries of its own.
    """

    stack: LoadedStack
    role: RoleName
    accelerator: Accelerator
    release: Release
    image: Image | None
    network: HostNetwork | None
    checkpoint: Checkpoint
    catalogue: FlagCatalogue
    recipe: Recipe | None
    features: tuple[str, ...]

    def sections(self) -> tuple[tuple[str, Role], ...]:
        """(dotted field, values) of the stack's own sections, the later wins."""
        own = dict(self.stack.spec.roles.items())[self.role]
        return (("defaults", self.stack.spec.defaults), (f"roles.{self.role}", own))


def merge_flags(sources: RoleSources) -> dict[str, Flag]:
    """One flag per name, each with its origin."""
    family = FLAG_FAMILY[sources.stack.spec.engine.name]
    checkpoint = sources.checkpoint
    layers: list[tuple[Mapping[str, FlagData], Origin]] = [
        (checkpoint.flags.get(family, {}), Origin(kind="checkpoint", name=checkpoint.id))
    ]
    for feature, described in checkpoint.features.items():
        if feature in sources.features:
            values = described.vllm if family == "vllm" else described.sglang
            origin = Origin(kind="checkpoint", name=checkpoint.id, detail=f"feature {feature}")
            layers.append((values, origin))
    if sources.recipe is not None:
        layers.append((sources.recipe.flags, Origin(kind="recipe", name=sources.recipe.id)))
    for section, role in sources.sections():
        # sorted: two files that differ only in the order of keys are one plan
        for flag, value in sorted(role.flags.items()):
            named = flag_named(flag, sources.catalogue)
            turned = value if named.positive or not isinstance(value, bool) else not value
            origin = _stack_origin(sources.stack, f"{section}.flags.{flag}")
            layers.append(({named.whole: cast("FlagData", turned)}, origin))
    merged = _merge_layers(layers)
    return {
        name: Flag(name=name, value=value, origin=origin)
        for name, (value, origin) in merged.items()
    }


def merge_variables(sources: RoleSources) -> tuple[dict[str, Variable], dict[str, Variable]]:
    """One variable per name, and apart from them those of `PREPENDED`."""
    release, recipe = sources.release, sources.recipe
    engine = f"{release.engine} {release.version}"
    shell = sources.image.shell if sources.image else {}
    layers: list[tuple[Mapping[str, str], Origin]] = [
        (sources.accelerator.env, Origin(kind="accelerator", name=sources.accelerator.id)),
        (release.env, Origin(kind="engine", name=engine)),
        (
            {str(name): value for name, value in shell.items()},
            Origin(kind="engine", name=engine, detail="as a shell of its image has it"),
        ),
        (sources.checkpoint.env, Origin(kind="checkpoint", name=sources.checkpoint.id)),
    ]
    if sources.network is not None:
        origin = Origin(kind="compiler", name="plan", detail=sources.network.summary)
        layers.append((sources.network.env, origin))
    if recipe is not None:
        origin = Origin(kind="recipe", name=recipe.id)
        layers += [(recipe.env, origin), (recipe.env_prepend, origin)]
    for section, role in sources.sections():
        for name, value in role.env.items():
            origin = _stack_origin(sources.stack, f"{section}.env.{name}")
            layers.append(({name: _as_text(value)}, origin))
    merged = {
        name: Variable(name=name, value=value, origin=origin)
        for name, (value, origin) in _merge_layers(layers).items()
    }
    if SEARCHED in merged:
        merged[SEARCHED] = merged[SEARCHED]._replace(value=_search_path(layers))
    prepended = {name: variable for name, variable in merged.items() if name in PREPENDED}
    plain = {name: variable for name, variable in merged.items() if name not in PREPENDED}
    return plain, prepended


def _search_path(layers: Iterable[tuple[Mapping[str, str], Origin]]) -> str:
    """The folders of every layer, the last layer's first, each once."""
    texts = [values[SEARCHED] for values, _ in layers if SEARCHED in values]
    folders = [folder for text in reversed(texts) for folder in text.split(":") if folder]
    return ":".join(dict.fromkeys(folders))


def _merge_layers(
    layers: Iterable[tuple[Mapping[str, _T], Origin]],
) -> dict[str, tuple[_T, Origin]]:
    """The last layer that names a key wins and is its origin; keys keep the order of first mention."""
    merged: dict[str, tuple[_T, Origin]] = {}
    for values, origin in layers:
        for key, value in values.items():
            merged[key] = (value, origin)
    return merged


def _stack_origin(stack: LoadedStack, where: str) -> Origin:
    is_set = stack.place(where).file.startswith("--set")
    return Origin(kind="operator" if is_set else "role", name=where)


def _as_text(value: Scalar) -> str:
    """A YAML scalar as an environment value: booleans as 1 and 0."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)
