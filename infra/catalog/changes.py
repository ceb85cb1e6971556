"""What differs between two releases of an engine, by their packages' catalogues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from infra.catalog.advisories import advisories_of, package_of
from infra.catalog.fields import FieldCatalogue
from infra.catalog.flags import FlagCatalogue
from infra.catalog.load import Catalog
from infra.catalog.packages import PackageCatalogue
from infra.catalog.schema import Release

# A plug-in registers more names than its vLLM: keys of this flag.
ADDITIONAL = "additional-config"
# Others may go on reading what an engine stops to read: of its own names alone that is certain.
ENGINE_PREFIXES = ("VLLM_", "SGLANG_", "SGL_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A default that changed.

    Args:
        name: flag, `flag.key` of a JSON flag, or variable.
        old: in the old release; None for "decided while starting".
        new: in the new one.
    """

    name: str
    old: object
    new: object


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseChanges:
    """What an upgrade takes away or changes; all sorted by name.

    Args:
        removed_flags: canonical names that the new parser refuses.
        renamed_flags: old canonical name → the new one's: one of the old spellings still works.
        added_flags: canonical names that are new.
        removed_keys: `flag.key` of JSON flags, and `additional-config` keys, that are gone.
        defaults: of flags, and of the fields of JSON flags.
        removed_variables: environment variables that are no longer read.
        variable_defaults: of variables that both read.
        removed_models: architectures that are no longer registered.
        mended_holes: advisories that the old release has and the new one has not.
        new_holes: those that the new one has alone.
    """

    removed_flags: tuple[str, ...]
    renamed_flags: Mapping[str, str]
    added_flags: tuple[str, ...]
    removed_keys: tuple[str, ...]
    defaults: tuple[Changed, ...]
    removed_variables: tuple[str, ...]
    variable_defaults: tuple[Changed, ...]
    removed_models: tuple[str, ...]
    mended_holes: tuple[str, ...]
    new_holes: tuple[str, ...]


def release_changes(old: Release, new: Release, catalog: Catalog) -> ReleaseChanges:
    """Everything that differs between two releases of one engine."""
    before, after = catalog.package(old.flags_catalogue), catalog.package(new.flags_catalogue)
    old_flags, new_flags = before.flags, after.flags
    gone = [name for name in sorted(old_flags.by_name) if name not in new_flags.by_name]
    renamed = {name: to for name in gone if (to := _renamed(name, old_flags, new_flags))}
    known = (_variables(old, catalog), _variables(new, catalog))
    holes = (holes_of(old), holes_of(new))
    return ReleaseChanges(
        removed_flags=tuple(name for name in gone if name not in renamed),
        renamed_flags=renamed,
        added_flags=tuple(
            name
            for name in sorted(new_flags.by_name)
            if name not in old_flags.by_name and name not in renamed.values()
        ),
        removed_keys=(
            *sorted(_removed_keys(before, after)),
            *_removed_additional(old, new, catalog),
        ),
        defaults=(*_flag_defaults(old_flags, new_flags), *_field_defaults(before, after)),
        removed_variables=tuple(
            name
            for name in sorted(known[0].keys() - known[1].keys())
            if name.startswith(ENGINE_PREFIXES)
        ),
        variable_defaults=tuple(
            Changed(name=name, old=known[0][name], new=known[1][name])
            for name in sorted(known[0].keys() & known[1].keys())
            if known[0][name] != known[1][name]
        ),
        removed_models=tuple(sorted(before.models - after.models)),
        mended_holes=tuple(name for name in holes[0] if name not in holes[1]),
        new_holes=tuple(name for name in holes[1] if name not in holes[0]),
    )


def holes_of(release: Release) -> tuple[str, ...]:
    """Ids of the advisories that a release has, whatever a plan does with it; sorted."""
    return tuple(sorted({each.id for each in advisories_of(*package_of(release))}))


def _renamed(name: str, old: FlagCatalogue, new: FlagCatalogue) -> str | None:
    """The new canonical name of a flag of which one spelling is still understood as it was."""
    for option in old.by_name[name].options:
        found = new.by_option.get(option)
        if found is not None and option.startswith("--") and found[0].name not in old.by_name:
            return found[0].name
    return None


def _flag_defaults(old: FlagCatalogue, new: FlagCatalogue) -> Iterator[Changed]:
    for name in sorted(old.by_name.keys() & new.by_name.keys()):
        before, after = _written(old.by_name[name].default), _written(new.by_name[name].default)
        if before != after:
            yield Changed(name=name, old=before, new=after)


def _written(default: object) -> object:
    """A default; argparse's word for "leave it out" is none."""
    return None if default == "==SUPPRESS==" else default


def _field_defaults(before: PackageCatalogue, after: PackageCatalogue) -> Iterator[Changed]:
    """Defaults of the fields of JSON flags that both releases have."""
    for place, field, kind in _fields(before):
        old, new = before.class_defaults[kind], after.class_defaults.get(kind, {})
        if field in new and old[field] != new[field]:
            yield Changed(name=place, old=old[field], new=new[field])


def _removed_keys(before: PackageCatalogue, after: PackageCatalogue) -> Iterator[str]:
    if after.fields is None:
        return
    for place, field, kind in _fields(before):
        known = after.fields.classes.get(kind)
        if known is not None and field not in known:
            yield place


def _fields(package: PackageCatalogue) -> Iterator[tuple[str, str, str]]:
    """(`flag.key`, field, class) of every JSON flag, and of the classes inside it."""
    if package.fields is None:
        return
    for flag in sorted(package.flags.by_name):
        for kind in _classes(package.fields.flag_kinds.get(flag, ()), package.fields):
            yield from _inside(flag, kind, package.fields, ())
        if flag == "speculative-config" and "SpeculativeConfig" in package.fields.classes:
            yield from _inside(flag, "SpeculativeConfig", package.fields, ())


def _inside(
    place: str, kind: str, fields: FieldCatalogue, above: tuple[str, ...]
) -> Iterator[tuple[str, str, str]]:
    for field, kinds in sorted(fields.classes[kind].items()):
        yield f"{place}.{field}", field, kind
        for inner in _classes(kinds, fields):
            if inner not in (*above, kind):
                yield from _inside(f"{place}.{field}", inner, fields, (*above, kind))


def _classes(kinds: Iterable[str], fields: FieldCatalogue) -> Iterator[str]:
    for kind in kinds:
        name = kind.removeprefix("class:")
        if name != kind and name in fields.classes:
            yield name


def _variables(release: Release, catalog: Catalog) -> Mapping[str, str | None]:
    known: dict[str, str | None] = {}
    for name in release.envs_catalogues:
        known.update(catalog.package(name).variables)
    return known


def _removed_additional(old: Release, new: Release, catalog: Catalog) -> tuple[str, ...]:
    before = catalog.environment_names(old.envs_catalogues).additional_config
    after = catalog.environment_names(new.envs_catalogues).additional_config
    return tuple(f"{ADDITIONAL}.{key}" for key in sorted(before - after)) if after else ()
