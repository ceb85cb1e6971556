"""Roles joined with the catalogue: checkpoint, release, accelerator and the one recipe that matches.

The one function that merges flags and variables is `_merge_layers`; its order is accelerator, engine,
checkpoint, recipe, role, operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from infra.catalog.load import Catalog, Combination, UnknownIdError
from infra.catalog.schema import Accelerator, Checkpoint, FlagData, Recipe, Release
from infra.engines.contract import Engine
from infra.engines.registry import ENGINES, FLAG_FAMILY
from infra.engines.settings import Flag, Origin, RoleSettings, Speculation, Variable, WeightsOnHost
from infra.errors import Problem
from infra.spec.load import LoadedStack
from infra.spec.stack import Role, RoleName, Scalar, Tuning

PREPENDED = ("LD_PRELOAD", "LD_LIBRARY_PATH")

_T = TypeVar("_T")


@dataclass(slots=True)
class Problems:
    """Collects problems with the place in the stack where each was written."""

    stack: LoadedStack
    found: list[Problem] = field(default_factory=list)

    def add(self, rule: str, where: str, what: str, fix: str) -> None:
        """Record an error at a dotted field."""
        place = self.stack.place(where)
        self.found.append(
            Problem(
                rule=rule,
                severity="error",
                field=where,
                what=what,
                fix=fix,
                file=place.file,
                line=place.line,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedStack:
    """A stack whose names have all been looked up.

    `roles` is in the order of the roles; `tuning` is the profile's id, `tuning_enabled` what is
    switched on beyond its defaults.
    """

    stack: LoadedStack
    roles: tuple[RoleSettings, ...]
    tuning: str
    tuning_enabled: tuple[str, ...]


def resolve(stack: LoadedStack, catalog: Catalog, problems: Problems) -> ResolvedStack | None:
    """Every role of a stack joined with the catalogue.

    Args:
        stack: the validated stack.
        catalog: what is true of the world.
        problems: receives what is wrong.

    Returns:
        The resolved stack, or None when an id is unknown (then `problems` says so).
    """
    spec = stack.spec
    checkpoint = _look_up(problems, "checkpoint", lambda: catalog.checkpoint(spec.checkpoint))
    release = _look_up(
        problems, "engine.version", lambda: catalog.release(spec.engine.name, spec.engine.version)
    )
    draft: Checkpoint | None = None
    if spec.draft is not None:
        name = spec.draft.checkpoint
        draft = _look_up(problems, "draft.checkpoint", lambda: catalog.checkpoint(name))
    roles: list[RoleSettings] = []
    for name, role in spec.roles.items():
        accelerator = _accelerator(stack, name, role, catalog, problems)
        if (
            checkpoint is None
            or release is None
            or accelerator is None
            or (spec.draft and draft is None)
        ):
            continue
        facts = _Facts(checkpoint=checkpoint, draft=draft, release=release, accelerator=accelerator)
        settings = _settings(stack, name, role, facts, catalog, problems)
        if settings is not None:
            roles.append(settings)
    if len(roles) != len(spec.roles.items()):
        return None
    tuning, enabled = _tuning(stack, roles[0].accelerator)
    if _look_up(problems, "tuning", lambda: catalog.tuning(tuning)) is None:
        return None
    return ResolvedStack(stack=stack, roles=tuple(roles), tuning=tuning, tuning_enabled=enabled)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    checkpoint: Checkpoint
    draft: Checkpoint | None
    release: Release
    accelerator: Accelerator


def weights_on_host(checkpoint: Checkpoint, path: str, revision: str | None) -> WeightsOnHost:
    """`<path>/<checkpoint>/<revision>`: the directory that argument vectors name on every host."""
    return WeightsOnHost(
        checkpoint=checkpoint, path=f"{path}/{checkpoint.id}/{revision or checkpoint.revision}"
    )


def _look_up(problems: Problems, where: str, find: Callable[[], _T]) -> _T | None:
    try:
        return find()
    except UnknownIdError as error:
        problems.add("unknown-id", where, error.what, error.fix)
        return None


def _accelerator(
    stack: LoadedStack, name: RoleName, role: Role, catalog: Catalog, problems: Problems
) -> Accelerator | None:
    spec = stack.spec
    chosen = role.accelerator or spec.defaults.accelerator or spec.accelerator
    if chosen is None:
        problems.add(
            "missing-key",
            f"roles.{name}",
            "No accelerator is named.",
            "Add `accelerator:` to the stack.",
        )
        return None
    where = f"roles.{name}.accelerator" if role.accelerator else "accelerator"
    return _look_up(problems, where, lambda: catalog.accelerator(chosen))


def _settings(
    stack: LoadedStack,
    name: RoleName,
    role: Role,
    facts: _Facts,
    catalog: Catalog,
    problems: Problems,
) -> RoleSettings | None:
    spec, merged = stack.spec, _merged_role(stack, role)
    engine = ENGINES[spec.engine.name]
    tensor, data = merged.tensor_parallel or 1, merged.data_parallel or 1
    devices = tensor * (merged.pipeline_parallel or 1) * data
    recipe = catalog.recipe_for(
        Combination(
            engine=spec.engine.name,
            version=spec.engine.version,
            accelerator=facts.accelerator.id,
            checkpoint=facts.checkpoint.id,
            role=name,
            tensor_parallel=tensor,
            data_parallel_over_hosts=data > 1 and devices > facts.accelerator.devices_per_host,
        )
    )
    features = _features(merged, facts.checkpoint, name, problems)
    owned = _refuse_owned(stack, name, engine, facts, catalog, problems)
    flags = {
        key: flag
        for key, flag in _flags(stack, name, facts, recipe, features).items()
        if key not in owned
    }
    env, prepend = _environment(stack, name, facts, recipe)
    return RoleSettings(
        role=name,
        replicas=merged.replicas or 1,
        data_parallel=data,
        tensor_parallel=tensor,
        pipeline_parallel=merged.pipeline_parallel or 1,
        decode_context_parallel=merged.decode_context_parallel or 1,
        expert_parallel=bool(merged.expert_parallel),
        load_balancing=merged.load_balancing or "internal",
        max_model_len=merged.max_model_len,
        max_num_seqs=merged.max_num_seqs,
        max_num_batched_tokens=merged.max_num_batched_tokens,
        gpu_memory_utilization=merged.gpu_memory_utilization,
        devices_idle=merged.devices_idle or 0,
        accelerator=facts.accelerator,
        release=facts.release,
        weights=weights_on_host(facts.checkpoint, spec.weights.path, spec.weights.revision),
        speculation=_speculation(stack, facts),
        served_model_name=facts.checkpoint.served_model_name or facts.checkpoint.repository,
        kv_transfer=None if name == "unified" else spec.kv_transfer,
        runtime=spec.runtime,
        features=features,
        flags=flags,
        env=env,
        env_prepend=prepend,
        mounts=recipe.mounts if recipe else (),
        recipe=recipe.id if recipe else None,
    )


def _merged_role(stack: LoadedStack, role: Role) -> Role:
    """The role's own values over the defaults of every role; flags and env are merged elsewhere."""
    defaults = stack.spec.defaults.model_dump(exclude_none=True)
    return Role.model_validate({**defaults, **role.model_dump(exclude_none=True)})


def _speculation(stack: LoadedStack, facts: _Facts) -> Speculation | None:
    if stack.spec.draft is None or facts.draft is None:
        return None
    weights = weights_on_host(facts.draft, stack.spec.weights.path, None)
    return Speculation(
        weights=weights, num_speculative_tokens=stack.spec.draft.num_speculative_tokens
    )


def _features(
    role: Role, checkpoint: Checkpoint, name: RoleName, problems: Problems
) -> tuple[str, ...]:
    """The features asked for, or all defaults of the checkpoint, in the checkpoint's order."""
    if role.features is None:
        return tuple(feature for feature, flags in checkpoint.features.items() if flags.default)
    for feature in role.features:
        if feature not in checkpoint.features:
            what = f"{checkpoint.id} has no feature {feature}."
            known = ", ".join(checkpoint.features) or "none"
            problems.add("unknown-feature", f"roles.{name}.features", what, f"It has: {known}.")
    return tuple(feature for feature in checkpoint.features if feature in role.features)


def _refuse_owned(
    stack: LoadedStack,
    name: RoleName,
    engine: Engine,
    facts: _Facts,
    catalog: Catalog,
    problems: Problems,
) -> frozenset[str]:
    """Problems for every flag and variable of the stack that the compiler writes; the flags, as spelt."""
    owned: set[str] = set()
    catalogue = catalog.flags(facts.release.flags_catalogue)
    for section, role in (
        (f"roles.{name}", dict(stack.spec.roles.items())[name]),
        ("defaults", stack.spec.defaults),
    ):
        for flag in role.flags:
            spelt = f"--{flag.replace('_', '-')}"
            fact = catalogue.by_option.get(spelt.partition(".")[0]) or catalogue.by_option.get(
                f"-{flag}"
            )
            canonical = fact[0].name if fact else flag.partition(".")[0]
            if canonical in engine.owned_flags:
                what = f"--{canonical} is derived and cannot be set as a flag."
                fix = f"Use the field {engine.owned_flags[canonical]}."
                problems.add("owned-flag", f"{section}.flags.{flag}", what, fix)
                owned.add(flag.replace("_", "-"))
        for variable in role.env:
            if variable in engine.owned_variables:
                what = f"{variable} is derived and cannot be set."
                fix = f"Use the field {engine.owned_variables[variable]}."
                problems.add("owned-variable", f"{section}.env.{variable}", what, fix)
    return frozenset(owned)


def _merge_layers(
    layers: Iterable[tuple[Mapping[str, _T], Origin]],
) -> dict[str, tuple[_T, Origin]]:
    """The last layer that names a key wins and is its origin; keys keep the order of first mention."""
    merged: dict[str, tuple[_T, Origin]] = {}
    for values, origin in layers:
        for key, value in values.items():
            merged[key] = (value, origin)
    return merged


def _flags(
    stack: LoadedStack,
    name: RoleName,
    facts: _Facts,
    recipe: Recipe | None,
    features: tuple[str, ...],
) -> dict[str, Flag]:
    family = FLAG_FAMILY[stack.spec.engine.name]
    checkpoint = facts.checkpoint
    layers: list[tuple[Mapping[str, FlagData], Origin]] = [
        (checkpoint.flags.get(family, {}), Origin(kind="checkpoint", name=checkpoint.id))
    ]
    for feature in features:
        described = checkpoint.features[feature]  # type: ignore[index]
        values = described.vllm if family == "vllm" else described.sglang
        layers.append(
            (values, Origin(kind="checkpoint", name=checkpoint.id, detail=f"feature {feature}"))
        )
    if recipe is not None:
        layers.append((recipe.flags, Origin(kind="recipe", name=recipe.id)))
    for section, role in (
        ("defaults", stack.spec.defaults),
        (f"roles.{name}", dict(stack.spec.roles.items())[name]),
    ):
        # sorted: two files that differ only in the order of keys are one plan
        for flag, value in sorted(role.flags.items()):
            canonical = flag.replace("_", "-") if "." not in flag else flag
            layers.append(({canonical: value}, _stack_origin(stack, f"{section}.flags.{flag}")))  # type: ignore[dict-item]
    merged = _merge_layers(layers)
    return {
        key: Flag(name=key, value=value, origin=origin) for key, (value, origin) in merged.items()
    }


def _environment(
    stack: LoadedStack, name: RoleName, facts: _Facts, recipe: Recipe | None
) -> tuple[dict[str, Variable], dict[str, Variable]]:
    """Variables, and those that must be put before what the image has."""
    layers: list[tuple[Mapping[str, str], Origin]] = [
        (facts.accelerator.env, Origin(kind="accelerator", name=facts.accelerator.id)),
        (
            facts.release.env,
            Origin(kind="engine", name=f"{facts.release.engine} {facts.release.version}"),
        ),
        (facts.checkpoint.env, Origin(kind="checkpoint", name=facts.checkpoint.id)),
    ]
    if recipe is not None:
        origin = Origin(kind="recipe", name=recipe.id)
        layers += [(recipe.env, origin), (recipe.env_prepend, origin)]
    for section, role in (
        ("defaults", stack.spec.defaults),
        (f"roles.{name}", dict(stack.spec.roles.items())[name]),
    ):
        for variable, value in role.env.items():
            layers.append(
                ({variable: _as_text(value)}, _stack_origin(stack, f"{section}.env.{variable}"))
            )
    merged = _merge_layers(layers)
    variables = {
        key: Variable(name=key, value=value, origin=origin)
        for key, (value, origin) in merged.items()
    }
    prepend = {key: variable for key, variable in variables.items() if key in PREPENDED}
    return {key: variable for key, variable in variables.items() if key not in PREPENDED}, prepend


def _stack_origin(stack: LoadedStack, where: str) -> Origin:
    is_set = stack.place(where).file.startswith("--set")
    return Origin(kind="operator" if is_set else "role", name=where)


def _as_text(value: Scalar) -> str:
    """A YAML scalar as an environment value: booleans as 1 and 0."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)


def _tuning(stack: LoadedStack, accelerator: Accelerator) -> tuple[str, tuple[str, ...]]:
    chosen = stack.spec.tuning
    if isinstance(chosen, Tuning):
        return chosen.profile, chosen.enable
    return chosen or accelerator.tuning, ()
