"""How fast weights move, and what a machine costs: figures for estimates alone, with their dates."""

from datetime import date
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import StrictInt, StrictStr, ValidationError

from infra.catalog.instance_types import CapacityKind
from infra.catalog.load import CatalogueError
from infra.catalog.schema import Entry, SourcedEntry
from infra.spec.plain_yaml import read_yaml

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


class ControlPlanePrice(Entry):
    """USD per hour of a control plane on EKS, by the support that its Kubernetes version has."""

    standard: float
    extended: float


class SupportEnds(Entry):
    """The last days on which EKS supports a Kubernetes version; `extended` costs more."""

    standard: date
    extended: date


class PriceList(SourcedEntry):
    """`prices.yaml`.

    Args:
        kubernetes_support: by minor version (`1.35`).
        system_nodes_usd_per_hour: on demand, by instance type.
    """

    prices: tuple[Price, ...]
    control_plane_usd_per_hour: ControlPlanePrice
    kubernetes_support: dict[StrictStr, SupportEnds]
    system_nodes_usd_per_hour: dict[StrictStr, float]


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
    data = read_yaml(FOLDER / name)
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise CatalogueError(
            f"infra/catalog/figures/{name}", str(error), "Mend the file."
        ) from error
