"""Roles joined with the catalogue: checkpoint, release, accelerator and the one recipe that matches.

`layers.py` merges their flags and variables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from infra.catalog.load import Catalog, Combination, UnknownIdError
from infra.catalog.schema import Accelerator, Checkpoint, Release
from infra.engines.per_process_settings import OF_TRANSFER
from infra.engines.registry import ENGINES
from infra.engines.settings import RoleSettings, Speculation, WeightsOnHost
from infra.errors import Problem
from infra.plan.layers import RoleSources, merge_flags, merge_variables
from infra.spec.load import LoadedStack
from infra.spec.stack import Role, RoleName, Tuning

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
        roles.append(_settings(stack, name, facts, catalog, problems))
    if len(roles) != len(spec.roles.items()):
        return None
    tuning, enabled = _tuning(stack, roles[0].accelerator)
    if _look_up(problems, "tuning", lambda: catalog.tuning_id(tuning)) is None:
        return None
    return ResolvedStack(stack=stack, roles=tuple(roles), tuning=tuning, tuning_enabled=enabled)


class _Facts(NamedTuple):
    """The catalogue's entries that one role names."""

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
    stack: LoadedStack, name: RoleName, facts: _Facts, catalog: Catalog, problems: Problems
) -> RoleSettings:
    spec, merged = stack.spec, _merged_role(stack, name)
    recipe = catalog.recipe_for(_combination(stack, name, merged, facts))
    sources = RoleSources(
        stack=stack,
        role=name,
        accelerator=facts.accelerator,
        release=facts.release,
        checkpoint=facts.checkpoint,
        recipe=recipe,
        features=_features(merged, facts.checkpoint, name, problems),
    )
    owned = _refuse_owned(sources, catalog, problems)
    env, prepend = merge_variables(sources)
    return RoleSettings(
        role=name,
        replicas=merged.replicas or 1,
        data_parallel=merged.data_parallel or 1,
        tensor_parallel=merged.tensor_parallel or 1,
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
        features=sources.features,
        flags={key: flag for key, flag in merge_flags(sources).items() if key not in owned},
        env=env,
        env_prepend=prepend,
        mounts=recipe.mounts if recipe else (),
        recipe=recipe.id if recipe else None,
    )


def _combination(stack: LoadedStack, name: RoleName, merged: Role, facts: _Facts) -> Combination:
    """What the role's recipe is chosen by."""
    tensor, data = merged.tensor_parallel or 1, merged.data_parallel or 1
    devices = tensor * (merged.pipeline_parallel or 1) * data
    return Combination(
        engine=stack.spec.engine.name,
        version=stack.spec.engine.version,
        accelerator=facts.accelerator.id,
        checkpoint=facts.checkpoint.id,
        role=name,
        tensor_parallel=tensor,
        data_parallel_over_hosts=data > 1 and devices > facts.accelerator.devices_per_host,
    )


def _merged_role(stack: LoadedStack, name: RoleName) -> Role:
    """The role's own values over the defaults of every role; flags and env are merged elsewhere."""
    defaults = stack.spec.defaults.model_dump(exclude_none=True)
    own = dict(stack.spec.roles.items())[name].model_dump(exclude_none=True)
    return Role.model_validate({**defaults, **own})


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


def _refuse_owned(sources: RoleSources, catalog: Catalog, problems: Problems) -> frozenset[str]:
    """Problems for every flag and variable of the stack that the compiler writes; the flags, as spelt."""
    engine = ENGINES[sources.stack.spec.engine.name]
    catalogue = catalog.flags(sources.release.flags_catalogue)
    owned: set[str] = set()
    for section, role in sources.sections():
        for flag in role.flags:
            head = flag.replace("_", "-").partition(".")[0]
            fact = catalogue.by_option.get(f"--{head}") or catalogue.by_option.get(f"-{flag}")
            canonical = fact[0].name if fact else head
            is_free = canonical in OF_TRANSFER and sources.stack.spec.kv_transfer is None
            if canonical in engine.owned_flags and not is_free:
                what = f"--{canonical} is derived and cannot be set as a flag."
                fix = _instead_of_owned(engine.owned_flags[canonical])
                problems.add("owned-flag", f"{section}.flags.{flag}", what, fix)
                owned.add(flag.replace("_", "-"))
        for variable in role.env:
            if variable in engine.owned_variables:
                what = f"{variable} is derived and cannot be set."
                fix = _instead_of_owned(engine.owned_variables[variable])
                problems.add("owned-variable", f"{section}.env.{variable}", what, fix)
    return frozenset(owned)


def _instead_of_owned(origin: str) -> str:
    """The fix: the field that sets it, or, where a sentence says what it follows from, none."""
    return f"Leave it out: {origin}." if " " in origin else f"Use the field {origin}."


def _tuning(stack: LoadedStack, accelerator: Accelerator) -> tuple[str, tuple[str, ...]]:
    chosen = stack.spec.tuning
    profile = chosen.profile if isinstance(chosen, Tuning) else chosen or accelerator.tuning
    return profile, stack.spec.enabled_tuning
