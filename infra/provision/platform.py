"""What a platform is to the program: it decides everything that can be refused, and only then it makes things."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import pulumi

from infra.catalog.load import Catalog
from infra.plan.topology import Topology
from infra.spec.load import LoadedStack

DecidedT = TypeVar("DecidedT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a stack declares, whatever platform it names.

    Args:
        root: the folder of `Pulumi.yaml`.
        topology: the stack's hosts and groups.
        catalog: what is true of the world.
        size_bytes: of checkpoint and draft.
    """

    root: Path
    stack: LoadedStack
    topology: Topology
    catalog: Catalog
    size_bytes: int


class Platform(Protocol[DecidedT]):
    """A platform: a module with these two functions."""

    def decide(self, declared: Declared) -> DecidedT:
        """Ask, judge and choose; registers nothing.

        Raises:
            InfraError: the stack, the configuration or the platform's own state is wrong.
        """

    def make(self, declared: Declared, decided: DecidedT) -> pulumi.Input[dict[str, object]]:
        """Register the resources that were decided; returns the inventory document."""


def provisioned(
    platform: Platform[DecidedT], declared: Declared
) -> pulumi.Input[dict[str, object]]:
    """Everything that a stack needs of a platform; returns the inventory document.

    Raises:
        InfraError: the platform refuses the stack; nothing was registered.
    """
    return platform.make(declared, platform.decide(declared))
