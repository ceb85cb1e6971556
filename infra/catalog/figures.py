"""How fast weights move: figures for estimates alone, with their dates."""

from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import StrictStr

from infra.catalog.files import read_entry
from infra.catalog.sourced import Entry, SourcedEntry

FOLDER = Path(__file__).resolve().parent / "figures"
_Kind = TypeVar("_Kind", bound=Entry)
StorageKind = Literal["s3-to-nvme", "fsx-lustre", "efs", "local", "shared-mount", "pvc"]


class LoadingRates(SourcedEntry):
    """`loading.yaml`; the comments there say what each figure is a rate of."""

    copies_gb_per_s: dict[StorageKind, float]
    reads_gb_per_s: dict[StorageKind, float]
    unknown: tuple[StorageKind, ...]
    loaders_gb_per_s: dict[StrictStr, float]
    start_s: dict[Literal["vllm", "sglang"], float]


@cache
def read_loading_rates() -> LoadingRates:
    """The rates of `loading.yaml`.

    Raises:
        CatalogueError: the file is wrong.
    """
    return read_figures("loading.yaml", LoadingRates)


def read_figures(name: str, kind: type[_Kind]) -> _Kind:
    """A file of `figures/`.

    Raises:
        CatalogueError: the file is wrong.
    """
    return read_entry(FOLDER / name, kind)
