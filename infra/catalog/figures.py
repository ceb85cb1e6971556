"""How fast weights move, and what a machine costs: figures for estimates alone, with their dates."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

import yaml
from pydantic import StrictInt, StrictStr, ValidationError

from infra.catalog.instance_types import CapacityKind
from infra.catalog.load import CatalogueError
from infra.catalog.schema import Entry, SourcedEntry

FOLDER = Path(__file__).resolve().parent / "figures"
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Kind = TypeVar("_Kind", bound=Entry)
StorageKind = Literal["s3-to-nvme", "fsx-lustre", "efs", "local", "shared-mount", "pvc"]


class LoadingRates(SourcedEntry):
    """`loading.yaml`; the comments there say what each figure is a rate of."""

    copies_gb_per_s: dict[StorageKind, float]
    reads_gb_per_s: dict[StorageKind, float]
    unknown: tuple[StorageKind, ...]
    loaders_gb_per_s: dict[StrictStr, float]
    start_s: dict[Literal["vllm", "sglang"], float]


class Bundle(Entry):
    """Instances that are sold together."""

    name: StrictStr
    instances: StrictInt


class Price(Entry):
    """USD per hour of one instance, or of a bundle of them."""

    instance_type: StrictStr
    kind: CapacityKind
    per: Literal["instance"] | Bundle
    usd_per_hour: float


class PriceList(SourcedEntry):
    """`prices.yaml`."""

    prices: tuple[Price, ...]


@cache
def read_loading_rates() -> LoadingRates:
    """The rates of `loading.yaml`.

    Raises:
        CatalogueError: the file is wrong.
    """
    return _read("loading.yaml", LoadingRates)


@cache
def read_prices() -> PriceList:
    """The prices of `prices.yaml`.

    Raises:
        CatalogueError: the file is wrong.
    """
    return _read("prices.yaml", PriceList)


def _read(name: str, kind: type[_Kind]) -> _Kind:
    data = yaml.load((FOLDER / name).read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - the C safe loader
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise CatalogueError(
            f"infra/catalog/figures/{name}", str(error), "Mend the file."
        ) from error
