"""The catalogue read from its files, one entry at a time, when it is asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

import yaml
from pydantic import ValidationError

from infra.catalog.fields import FieldCatalogue
from infra.catalog.files import catalogue_error, read_entry
from infra.catalog.flags import EnvironmentNames, FlagCatalogue
from infra.catalog.host_networks import HostNetwork
from infra.catalog.packages import PackageCatalogue, read_package
from infra.catalog.router_release import RouterRelease
from infra.catalog.schema import (
    Accelerator,
    Applies,
    Checkpoint,
    PlainImage,
    Recipe,
    Release,
    TuningItem,
    TuningProfile,
    Vendor,
)
from infra.catalog.sourced import Entry
from infra.errors import StackError
from infra.spec.nearest import nearest
from infra.spec.plain_yaml import parse_yaml
from infra.spec.present import is_file
from infra.spec.stack import RoleName

ROOT = Path(__file__).resolve().parent

_Entry = TypeVar("_Entry", bound=Entry)


class UnknownIdError(StackError):
    """A stack names an id that the catalogue does not have."""


class Combination(NamedTuple):
    """What a recipe is chosen by: one role of one stack."""

    engine: str
    version: str
    accelerator: str
    checkpoint: str
    role: RoleName
    tensor_parallel: int
    data_parallel_over_hosts: bool
    draft: bool


def names_in(folder: Path) -> tuple[str, ...]:
    """The names of the entries of a folder, sorted."""
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


def read_named(folder: Path, kind: type[_Entry], noun: str, name: str) -> _Entry:
    """The entry of that name.

    Args:
        folder: of the catalogue; it is asked by its names, so that a name leads nowhere else.
        kind: the shape of its files.
        noun: what an entry is to an operator.
        name: of the entry.

    Raises:
        UnknownIdError: the folder has none; the message names the nearest.
        CatalogueError: its file is wrong.
    """
    known = names_in(folder)
    if name not in known:
        where, what = (
            f"infra/catalog/{folder.relative_to(ROOT)}",
            f"The catalogue has no {noun} {name}.",
        )
        raise UnknownIdError(where, what, nearest(name, known))
    return read_entry(folder / f"{name}.yaml", kind, id=name)


@dataclass(frozen=True)
class Catalog:
    """Lazy access to the catalogue under `root`; folders are listed and entries are read once."""

    root: Path = ROOT
    _entries: dict[tuple[str, str], Entry] = field(default_factory=dict, repr=False)
    _ids: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    def ids(self, folder: str) -> tuple[str, ...]:
        """The ids in a folder (`accelerators`, `checkpoints`, `engines/vllm`, …), sorted."""
        if folder not in self._ids:
            found = (path.stem for path in (self.root / folder).glob("*.yaml"))
            self._ids[folder] = tuple(sorted(found))
        return self._ids[folder]

    def accelerator(self, name: str) -> Accelerator:
        """The accelerator of that id, also in other letters or by its vendor's name (`NVIDIA H200`).

        Raises:
            UnknownIdError: there is none; the message names the nearest.
        """
        found = self._meant(name, "accelerators", self._accelerator_names)
        return self._entry("accelerators", found, Accelerator)

    def checkpoint(self, name: str) -> Checkpoint:
        """The checkpoint or draft of that id, also in other letters or by its name at a hub (`moonshotai/Kimi-K2.5`).

        A name that several builds of a model share is none of them.

        Raises:
            UnknownIdError: there is none; the message names the nearest.
        """
        found = self._meant(name, "checkpoints", self._checkpoint_names)
        return self._entry("checkpoints", found, Checkpoint)

    def builds_of(self, model: str) -> tuple[str, ...]:
        """The ids of the checkpoints of a model (`Kimi-K2.5`, in any letters), sorted; () for an unknown one."""
        wanted = model.rpartition("/")[2].casefold()
        shapes = ((name, self.checkpoint(name).shape) for name in self.ids("checkpoints"))
        return tuple(name for name, shape in shapes if shape and shape.name.casefold() == wanted)

    def release(self, engine: str, version: str) -> Release:
        """The pinned release of an engine.

        Raises:
            UnknownIdError: that version is not in the catalogue.
        """
        return self._entry(f"engines/{engine}", version, Release)

    def plain_image(self, name: str) -> str:
        """The reference of an image that no engine runs in, by tag and digest."""
        image = self._entry("images", name, PlainImage)
        return f"{image.reference}@{image.digest}"

    def networks(self) -> tuple[HostNetwork, ...]:
        """The networks between hosts whose libraries are not every image's."""
        return tuple(self._entry("networks", name, HostNetwork) for name in self.ids("networks"))

    def image_digest(self, engine: str, version: str, reference: str) -> str | None:
        """What a tag is known to mean; None where nobody has recorded it, or the release is none of the catalogue's."""
        if version not in self.ids(f"engines/{engine}"):
            return None
        images = self.release(engine, version).images
        return next((image.digest for image in images if image.reference == reference), None)

    def router(self, name: str) -> RouterRelease:
        """The pinned release of a router."""
        return self._entry("routers", name, RouterRelease)

    @cached_property
    def engines(self) -> tuple[str, ...]:
        """Every engine, sorted."""
        return tuple(
            sorted(path.name for path in (self.root / "engines").iterdir() if path.is_dir())
        )

    def releases(self, engine: str) -> tuple[str, ...]:
        """The versions of an engine's releases, oldest first."""
        return tuple(sorted(self.ids(f"engines/{engine}"), key=version_key))

    def engines_for(self, vendor: Vendor) -> tuple[str, ...]:
        """The engines with a release that runs on a vendor's accelerators, sorted."""
        return tuple(
            name
            for name in self.engines
            if any(vendor in self.release(name, v).vendors for v in self.ids(f"engines/{name}"))
        )

    def routers_for(self, engine: str) -> tuple[str, ...]:
        """The routers that speak to an engine, sorted."""
        return tuple(name for name in self.ids("routers") if engine in self.router(name).engines)

    def router_of(self, argv: tuple[str, ...]) -> RouterRelease | None:
        """The router whose program a command starts with; None for one that is unknown."""
        routers = map(self.router, self.ids("routers"))
        return next((each for each in routers if argv[: len(each.program)] == each.program), None)

    def tuning_id(self, name: str) -> str:
        """The id itself, where there is a profile of that name; nothing is read.

        Raises:
            UnknownIdError: there is none; the message names the nearest.
        """
        self._path("tuning", name)
        return name

    def tuning(self, name: str) -> TuningProfile:
        """A tuning profile with the items of what it extends; an own item replaces one of the same id."""
        profile = self._entry("tuning", name, TuningProfile)
        if profile.extends is None:
            return profile
        items: dict[str, TuningItem] = {
            item.id: item for item in self.tuning(profile.extends).items
        }
        items.update({item.id: item for item in profile.items})
        return profile.model_copy(update={"items": tuple(items.values())})

    def package(self, name: str) -> PackageCatalogue:
        """What a released package accepts, by the stem of its file (`vllm-0.22.1`)."""
        return read_package(self.root / "packages" / f"{name}.json")

    def flags(self, name: str) -> FlagCatalogue:
        """The flags of a released package's server, by the stem of its file."""
        return self.package(name).flags

    def fields(self, name: str) -> FieldCatalogue | None:
        """The classes behind a package's JSON flags, by the stem of its file; None for one that has no such flags."""
        return self.package(name).fields

    def environment_names(self, names: Iterable[str]) -> EnvironmentNames:
        """The environment variables that a release reads, united over packages."""
        packages = [self.package(name) for name in names]
        return EnvironmentNames(
            frozenset[str]().union(*(package.variables for package in packages)),
            frozenset[str]().union(
                *(package.names("additional_config_keys") for package in packages)
            ),
        )

    @cached_property
    def recipes(self) -> Mapping[str, Recipe]:
        """All recipes by id."""
        return {name: self._entry("recipes", name, Recipe) for name in self.ids("recipes")}

    def recipe_for(self, combination: Combination) -> Recipe | None:
        """The matching recipe that names the most keys, or None.

        Raises:
            CatalogueError: two recipes match equally well.
        """
        num_keys = {
            name: len(when.model_fields_set)
            for name, when in self._conditions.items()
            if _applies(when, combination)
        }
        closest = [name for name, keys in num_keys.items() if keys == max(num_keys.values())]
        if len(closest) > 1:
            what = f"{' and '.join(closest)} match {combination} equally well."
            fix = "Name one key more under `applies` of one of them."
            raise catalogue_error(self._path("recipes", closest[0]), what, fix)
        return self._entry("recipes", closest[0], Recipe) if closest else None

    def _meant(self, name: str, folder: str, names_of: Callable[[str], tuple[str, ...]]) -> str:
        """The one id that a name stands for; the name itself where it is an id, or stands for none or several."""
        known = self.ids(folder)
        if name in known:
            return name
        wanted = name.casefold()
        found = [each for each in known if wanted in map(str.casefold, names_of(each))]
        return found[0] if len(found) == 1 else name

    def _accelerator_names(self, name: str) -> tuple[str, ...]:
        product = self._entry("accelerators", name, Accelerator).product_name
        return name, product, product.partition(" ")[2]

    def _checkpoint_names(self, name: str) -> tuple[str, ...]:
        entry = self._entry("checkpoints", name, Checkpoint)
        model = entry.shape.name if entry.shape else name
        return name, entry.repository, entry.repository.rpartition("/")[2], model

    @cached_property
    def _conditions(self) -> Mapping[str, Applies]:
        """By recipe, what it is chosen by: one line of its file, where all files take a tenth of judging a stack."""
        return {name: _read_conditions(self._path("recipes", name)) for name in self.ids("recipes")}

    def _entry(self, folder: str, name: str, kind: type[_Entry]) -> _Entry:
        known = self._entries.get((folder, name))
        if isinstance(known, kind):
            return known
        path = self._path(folder, name)
        entry = read_entry(path, kind) if kind is TuningItem else read_entry(path, kind, id=name)
        self._entries[folder, name] = entry
        return entry

    def _path(self, folder: str, name: str) -> Path:
        path = self.root / folder / f"{name}.yaml"
        if "/" in name or not is_file(path):
            what = f"The catalogue has no {folder.rstrip('s').replace('/', ' ')} {name}."
            raise UnknownIdError(f"infra/catalog/{folder}", what, nearest(name, self.ids(folder)))
        return path


def version_key(version: str) -> tuple[tuple[int, ...], bool, str]:
    """What versions are sorted by: 0.5.9 before 0.5.16, and 0.18.0rc1 before 0.18.0."""
    release = re.match(r"[\d.]*\d", version)
    numbers = tuple(int(part) for part in release[0].split(".")) if release else ()
    return numbers, "rc" not in version, version


def _read_conditions(path: Path) -> Applies:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("applies: "):
                try:
                    return Applies.model_validate(parse_yaml(line)["applies"])
                except (ValidationError, yaml.YAMLError):
                    read_entry(path, Recipe, id=path.stem)  # every problem of the file
    what = "No line says `applies: {…}`, whole."
    raise catalogue_error(path, what, "Write it, as one line.")


def _applies(when: Applies, combination: Combination) -> bool:
    """Whether every key that the recipe names matches."""
    over_hosts = when.data_parallel_over_hosts
    return (
        when.engine == combination.engine
        and _one_of(combination.version, when.versions)
        and _one_of(combination.accelerator, when.accelerators)
        and _one_of(combination.checkpoint, when.checkpoints)
        and _one_of(combination.role, when.roles)
        and _one_of(combination.tensor_parallel, when.tensor_parallel)
        and (over_hosts is None or over_hosts == combination.data_parallel_over_hosts)
        and (when.draft is None or when.draft == combination.draft)
    )


def _one_of(value: object, allowed: tuple[object, ...]) -> bool:
    return not allowed or value in allowed
