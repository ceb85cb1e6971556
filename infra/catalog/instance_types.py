"""What a cloud rents: network cards, interface layouts and images of each instance type, as data."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import yaml
from pydantic import StrictInt, StrictStr, ValidationError, model_validator

from infra.catalog.load import CatalogueError, UnknownIdError
from infra.catalog.schema import Architecture, Entry, SourcedEntry
from infra.spec.load import nearest

FOLDER = Path(__file__).resolve().parent / "instances"

InterfaceType = Literal["interface", "efa", "efa-only"]
LayoutPolicy = Literal["ip-saving", "maximum"]
CapacityKind = Literal["on-demand", "odcr", "capacity-block", "ultraserver"]
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Cards(Entry):
    """Network cards `first`, `first + step`, … `last` (0-based, `last` included)."""

    first: StrictInt
    last: StrictInt
    step: StrictInt = 1

    @property
    def indices(self) -> tuple[int, ...]:
        """The card indices, ascending."""
        return tuple(range(self.first, self.last + 1, self.step))


class InterfaceRow(Entry):
    """One interface on each of some cards."""

    cards: Cards
    device: StrictInt
    type: InterfaceType


class NetworkCards(Entry):
    """The network cards of an instance type.

    Args:
        num_cards: cards are numbered from 0.
        interfaces_per_card: device indices of a card are below it.
        efa: the cards that carry an EFA device, at most one each.
        efa_only: the cards that carry nothing else, None when every card has an address.
    """

    num_cards: StrictInt
    interfaces_per_card: StrictInt
    efa: Cards
    efa_only: Cards | None = None


class MachineImage(Entry):
    """The image a host starts from when the operator pins none.

    Args:
        ssm_parameter: public parameter whose value is the current image id.
        user: SSH login of the image.
    """

    ssm_parameter: StrictStr
    user: StrictStr


class InstanceType(SourcedEntry):
    """`instances/<instance type>.yaml`."""

    id: StrictStr
    architecture: Architecture
    num_vcpus: StrictInt
    num_devices: StrictInt
    memory_gib: StrictInt
    capacity_kinds: tuple[CapacityKind, ...]
    cards: NetworkCards
    layouts: dict[LayoutPolicy, tuple[InterfaceRow, ...]]
    image: MachineImage

    @model_validator(mode="after")
    def _has_every_layout(self) -> InstanceType:
        if missing := {"ip-saving", "maximum"} - set(self.layouts):
            message = f"no layout for {', '.join(sorted(missing))}"
            raise ValueError(message)
        return self


def instance_type_names() -> tuple[str, ...]:
    """The instance types of the catalogue, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def read_instance_type(name: str) -> InstanceType:
    """The instance type of that name.

    Raises:
        UnknownIdError: the catalogue has none; the message names the nearest.
        CatalogueError: its file is wrong.
    """
    path = FOLDER / f"{name}.yaml"
    if name not in instance_type_names():
        raise UnknownIdError(
            "infra/catalog/instances",
            f"The catalogue has no instance type {name}.",
            nearest(name, instance_type_names()),
        )
    data = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - the C safe loader
    try:
        return InstanceType.model_validate({"id": name, **data})
    except (ValidationError, TypeError) as error:
        raise CatalogueError(
            f"infra/catalog/instances/{name}.yaml", str(error), "Mend the file."
        ) from error
