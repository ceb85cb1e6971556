"""One file for each released package: what `scripts/dump-engine-catalogue` read out of it (`packages/`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from infra.catalog.fields import FieldCatalogue, read_fields
from infra.catalog.files import read_json
from infra.catalog.flags import FlagCatalogue, read_flags

# sglang srt/environ.py@0.5.8 to 0.5.23: what its classes of variables read; any other value is passed over.
_DECLARED: Mapping[str, Mapping[str, Any]] = {
    "EnvBool": {"choices": ("true", "1", "yes", "y", "false", "0", "no", "n"), "any_case": True},
    "EnvInt": {"reads": "int"},
    "EnvFloat": {"reads": "float"},
}


class AttentionBackend(NamedTuple):
    """One that vLLM registers.

    Args:
        is_tag: it has no class, and serves no text.
        platforms: of `cpu`, `cuda`, `rocm` and `xpu`, those whose own code names it, or whose devices it takes.
        capabilities: the compute capabilities that it takes (`9.0`); None for any.
        is_mla: whether it computes multi-head latent attention; None where its class does not say.
        is_sparse: whether it attends to chosen tokens alone.
        block_sizes: of which one divides each block that it takes, in tokens; None where its class does not tell.
        kv_cache_dtypes: those that it reads; None where its class does not tell.
        impl: the class that computes; empty where none is told.
        returns_lse: whether decode gets a log-sum-exp of it, which decode contexts need.
    """

    is_tag: bool
    platforms: tuple[str, ...]
    capabilities: tuple[str, ...] | None
    is_mla: bool | None
    is_sparse: bool
    block_sizes: tuple[int, ...] | None
    kv_cache_dtypes: tuple[str, ...] | None
    impl: str
    returns_lse: bool


class VariableReader(NamedTuple):
    """What a package takes as the value of an environment variable.

    Args:
        number: `int` or `float` where it is read as one; "" else.
        is_switch: whether the number stands for on and off.
        choices: the words that it may be; () for any.
        any_case: whether words count in any case.
        separator: between several words; "" where it is one.
    """

    number: str
    is_switch: bool
    choices: tuple[str, ...]
    any_case: bool
    separator: str

    def takes(self, value: str) -> bool:
        """Whether the package reads a value without an error."""
        if self.number:
            return _is_number(value, int if self.number == "int" else float)
        words = (
            [word.strip() for word in value.split(self.separator)] if self.separator else [value]
        )
        known = {self._folded(choice) for choice in self.choices}
        return all(self._folded(word) in known for word in words if word or not self.separator)

    def _folded(self, word: str) -> str:
        return word.lower() if self.any_case else word


@dataclass(frozen=True, eq=False)
class PackageCatalogue:
    """What one release accepts. Equal only to itself; its tables are built when they are asked for.

    Args:
        document: the file; `infra/catalog/packages/README.md` has its sections.
    """

    document: Mapping[str, Any]

    @property
    def package(self) -> str:
        """The package's name in an index."""
        return str(self.document["package"])

    @property
    def version(self) -> str:
        """The release."""
        return str(self.document["version"])

    @property
    def command(self) -> str:
        """The command that serves; "" for a package that only adds to another."""
        return next((name for name in self.document.get("commands", {}) if "bench" not in name), "")

    @cached_property
    def flags(self) -> FlagCatalogue:
        """The flags of the command that serves."""
        return self.flags_of(self.command)

    def flags_of(self, command: str) -> FlagCatalogue:
        """The flags of one of the package's commands: `vllm bench serve` beside `vllm serve`."""
        return read_flags(command, self.version, self.document["commands"][command])

    @cached_property
    def fields(self) -> FieldCatalogue | None:
        """What its JSON flags may hold; None for a package that says nothing of it."""
        if "classes" not in self.document:
            return None
        return read_fields(self._rows, self.document["classes"], self.document.get("names", {}))

    @cached_property
    def class_defaults(self) -> Mapping[str, Mapping[str, object]]:
        """Class → field → default; a field without one is None."""
        return {
            name: {field: row.get("default") for field, row in fields.items()}
            for name, fields in self.document.get("classes", {}).items()
        }

    @cached_property
    def variables(self) -> Mapping[str, str | None]:
        """Environment variable → its default as the package writes it, None where it has none."""
        return {row["name"]: row.get("default") for row in self.document.get("variables", ())}

    @cached_property
    def variable_readers(self) -> Mapping[str, VariableReader]:
        """Environment variable → what the package takes as its value; those that may be anything are left out."""
        return {
            row["name"]: VariableReader(
                number=row.get("reads", ""),
                is_switch=str(row.get("type", "")).startswith("bool"),
                choices=tuple(row.get("choices", ())),
                any_case=row.get("any_case", False),
                separator=row.get("separator", ""),
            )
            for row in (_with_kind(row) for row in self.document.get("variables", ()))
            if "reads" in row or "choices" in row
        }

    @cached_property
    def models(self) -> frozenset[str]:
        """The architectures that the release registers."""
        return frozenset(self.document.get("models", ()))

    @cached_property
    def attention_backends(self) -> Mapping[str, AttentionBackend]:
        """The attention back ends that vLLM registers, by name; {} for another package."""
        return _backends(self.document.get("attention_backends", {}))

    @cached_property
    def mla_prefill_backends(self) -> Mapping[str, AttentionBackend]:
        """Those that vLLM prefills multi-head latent attention with; {} before 0.21.0, and for another package."""
        return _backends(self.document.get("mla_prefill_backends", {}))

    def names(self, kind: str) -> frozenset[str]:
        """What the release registers under a kind, `kv_connectors` for example."""
        return frozenset(self.document.get("names", {}).get(kind, ()))

    @property
    def _rows(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self.document.get("commands", {}).get(self.command, ()))


def _with_kind(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row with what its declared type reads, of a package that declares its variables by classes of its own."""
    return {**_DECLARED.get(row.get("type", ""), {}), **row}


def _is_number(value: str, kind: type[int | float]) -> bool:
    try:
        kind(value)
    except ValueError:
        return False
    return True


def _backends(rows: Mapping[str, Mapping[str, Any]]) -> Mapping[str, AttentionBackend]:
    return {
        name: AttentionBackend(
            is_tag=row["class"] == "",
            platforms=tuple(row["platforms"]),
            capabilities=_several(row, "capabilities"),
            is_mla=row.get("is_mla"),
            is_sparse=row.get("is_sparse", False),
            block_sizes=_several(row, "block_sizes"),
            kv_cache_dtypes=_several(row, "kv_cache_dtypes"),
            impl=row.get("impl", ""),
            returns_lse=row.get("returns_lse", False),
        )
        for name, row in rows.items()
    }


def _several(row: Mapping[str, Any], key: str) -> tuple[Any, ...] | None:
    return tuple(row[key]) if key in row else None


@lru_cache(maxsize=32)
def read_package(path: Path) -> PackageCatalogue:
    """A catalogue file.

    Raises:
        CatalogueError: it is not there, or no such document.
    """
    return read_json(path, _package)


def _package(document: Any) -> PackageCatalogue:
    package = PackageCatalogue(document)
    _ = package.package, package.version  # what every document of a package says
    return package
