"""Roles joined with the catalogue: checkpoint, release, accelerator and the one recipe that matches.

`layers.py` merges their flags and variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

from infra.catalog.load import Catalog, Combination, UnknownIdError
from infra.catalog.schema import Accelerator, Checkpoint, Release
from infra.engines.command_line import flag_named
from infra.engines.per_process_settings import OF_TRANSFER
from infra.engines.registry import ENGINES
from infra.engines.settings import RoleSettings, Speculation, WeightsOnHost
from infra.errors import Problem
from infra.plan.command import PLACEHOLDERS, unknown_placeholders
from infra.plan.images import choose_image, network_between
from infra.plan.layers import RoleSources, merge_flags, merge_variables
from infra.spec.load import LoadedStack
from infra.spec.nearest import nearest
from infra.spec.platform_words import meant_platform
from infra.spec.stack import Role, RoleName, Tuning
from infra.spec.told_once import role_of, told_once

_T = TypeVar("_T")


@dataclass(slots=True)
class Problems:
    """Collects problems with the place in the stack where each was written."""

    stack: LoadedStack
    rows: list[tuple[Problem, str | None]] = field(default_factory=list)

    @property
    def found(self) -> list[Problem]:
        """Every problem once; what is written for several roles names those that it is wrong for."""
        return told_once(self.rows)

    def add(self, rule: str, where: str, what: str, fix: str, role: RoleName | None = None) -> None:
        """Record an error at a dotted field, about a role where the field does not say which."""
        written = self.stack.written_field(where)
        place = self.stack.place(written)
        problem = Problem(
            rule=rule,
            severity="error",
            field=written,
            what=what,
            fix=fix,
            file=place.file,
            line=place.line,
        )
        self.rows.append((problem, role or role_of(where)))


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
    chips = {
        name: _accelerator(stack, name, role, catalog, problems)
        for name, role in spec.roles.items()
    }
    found = [chip for chip in chips.values() if chip is not None]
    weights = _Weights(catalog=catalog, chips=found, problems=problems)
    checkpoint = weights.look_up("checkpoint", spec.checkpoint, "model")
    release = _look_up(
        problems, "engine.version", lambda: catalog.release(spec.engine.name, spec.engine.version)
    )
    draft: Checkpoint | None = None
    if spec.draft is not None:
        draft = weights.look_up("draft.checkpoint", spec.draft.checkpoint, "draft")
    roles: list[RoleSettings] = []
    for name, accelerator in chips.items():
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weights:
    """Looks checkpoints up, and leads to those that run on a stack's chips."""

    catalog: Catalog
    chips: Sequence[Accelerator]
    problems: Problems

    def look_up(self, where: str, name: str, kind: Literal["model", "draft"]) -> Checkpoint | None:
        """The checkpoint of a name; None, and a problem that names others, where there is none."""
        try:
            return self.catalog.checkpoint(name)
        except UnknownIdError as error:
            builds, what, fix = self.catalog.builds_of(name), error.what, error.fix
            fitting = self._fitting(kind)
            of_model = [each for each in builds if each in fitting]
            if builds:
                what = f"{name} is a model, of which the catalogue has {', '.join(builds)}."
            if of_model and self.chips:
                on = " and ".join(sorted({chip.id for chip in self.chips}))
                fix = f"Use {' or '.join(of_model)} on {on}."
            elif not builds and fitting:
                fix = nearest(name, fitting)
            self.problems.add("unknown-id", where, what, fix)
            return None

    def _fitting(self, kind: str) -> list[str]:
        """The ids of the kind that every chip runs."""
        entries = map(self.catalog.checkpoint, self.catalog.ids("checkpoints"))
        generations = {chip.generation for chip in self.chips}
        return [
            each.id for each in entries if each.kind == kind and generations <= {*each.generations}
        ]


def _accelerator(
    stack: LoadedStack, name: RoleName, role: Role, catalog: Catalog, problems: Problems
) -> Accelerator | None:
    spec = stack.spec
    chosen = role.accelerator or spec.defaults.accelerator or spec.accelerator
    if chosen is None:
        problems.add(
            "missing-key",
            "accelerator",
            "No accelerator is named.",
            "Add `accelerator:` to the stack.",
            name,
        )
        return None
    where = f"roles.{name}.accelerator" if role.accelerator else "accelerator"
    platform = meant_platform(chosen)
    if platform is not None:
        what = f"{chosen} says where a stack runs, and is no chip."
        chips = ", ".join(catalog.ids("accelerators"))
        problems.add(
            "unknown-id", where, what, f"Write platform: {platform}, and here one of {chips}."
        )
        return None
    return _look_up(problems, where, lambda: catalog.accelerator(chosen))


def _settings(
    stack: LoadedStack, name: RoleName, facts: _Facts, catalog: Catalog, problems: Problems
) -> RoleSettings:
    spec, merged = stack.spec, _merged_role(stack, name)
    recipe = catalog.recipe_for(_combination(stack, name, merged, facts))
    kv_transfer = None if name == "unified" else spec.kv_transfer
    network = network_between(
        merged, facts.accelerator, spec.platform, catalog, moves_kv=kv_transfer is not None
    )
    image = choose_image(facts.release, facts.accelerator, network)
    sources = RoleSources(
        stack=stack,
        role=name,
        accelerator=facts.accelerator,
        release=facts.release,
        image=image,
        network=network,
        checkpoint=facts.checkpoint,
        catalogue=catalog.flags(facts.release.flags_catalogue),
        recipe=recipe,
        features=_features(merged, facts.checkpoint, name, problems),
    )
    owned = _refuse_owned(sources, problems)
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
        image=image,
        network=network,
        weights=weights_on_host(facts.checkpoint, spec.weights.path, spec.weights.revision),
        speculation=_speculation(stack, facts),
        served_model_name=spec.served_name
        or facts.checkpoint.served_model_name
        or facts.checkpoint.repository,
        kv_transfer=kv_transfer,
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
        draft=facts.draft is not None,
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


def _refuse_owned(sources: RoleSources, problems: Problems) -> frozenset[str]:
    """Problems for every flag and variable of the stack that the compiler writes; the flags, as merged."""
    engine = ENGINES[sources.stack.spec.engine.name]
    owned: set[str] = set()
    for section, role in sources.sections():
        for flag in role.flags:
            named = flag_named(flag, sources.catalogue)
            canonical = named.name
            is_free = canonical in OF_TRANSFER and sources.stack.spec.kv_transfer is None
            if canonical in engine.owned_flags and not is_free:
                what = f"--{canonical} is derived and cannot be set as a flag."
                fix = _instead_of_owned(engine.owned_flags[canonical])
                problems.add("owned-flag", f"{section}.flags.{flag}", what, fix, sources.role)
                owned.add(named.whole)
        for variable in role.env:
            if variable in engine.owned_variables:
                what = f"{variable} is derived and cannot be set."
                fix = _instead_of_owned(engine.owned_variables[variable])
                problems.add("owned-variable", f"{section}.env.{variable}", what, fix, sources.role)
            for word in unknown_placeholders(str(role.env[variable])):
                what = f"{{{word}}} stands for nothing: {variable} would hold it as it is."
                known = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
                problems.add(
                    "unknown-placeholder",
                    f"{section}.env.{variable}",
                    what,
                    f"Known are {known}.",
                    sources.role,
                )
    return frozenset(owned)


def _instead_of_owned(origin: str) -> str:
    """The fix: the field that sets it, or, where a sentence says what it follows from, none."""
    return f"Leave it out: {origin}." if " " in origin else f"Use the field {origin}."


def _tuning(stack: LoadedStack, accelerator: Accelerator) -> tuple[str, tuple[str, ...]]:
    chosen = stack.spec.tuning
    profile = chosen.profile if isinstance(chosen, Tuning) else chosen or accelerator.tuning
    return profile, stack.spec.enabled_tuning
