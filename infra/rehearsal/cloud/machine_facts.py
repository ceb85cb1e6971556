"""The catalogue's instance types as the emulated cloud reads them.

Plain YAML: a plug-in that starts with every command cannot afford to load the catalogue's schema (0.3 s);
the catalogue's own tests hold the files to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from infra.spec.plain_yaml import read_yaml

_FOLDER = Path(__file__).resolve().parents[2] / "catalog" / "instances"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """One instance type.

    Args:
        efa_cards: cards that carry an EFA device.
        efa_only_cards: cards that carry nothing else.
    """

    name: str
    architecture: str
    num_vcpus: int
    capacity_kinds: tuple[str, ...]
    num_cards: int
    interfaces_per_card: int
    efa_cards: frozenset[int]
    efa_only_cards: frozenset[int]


@cache
def machine_facts(name: str) -> MachineFacts | None:
    """The facts of an instance type, None when the catalogue has none of that name."""
    data = _read("aws", name)
    if data is None:
        return None
    cards = data["cards"]
    return MachineFacts(
        name=name,
        architecture=data["architecture"],
        num_vcpus=data["num_vcpus"],
        capacity_kinds=tuple(data["capacity_kinds"]),
        num_cards=cards["num_cards"],
        interfaces_per_card=cards["interfaces_per_card"],
        efa_cards=_indices(cards["efa"]),
        efa_only_cards=_indices(cards.get("efa_only")),
    )


def _read(cloud: str, name: str) -> dict[str, Any] | None:
    """The entry of that name; None for a name that leads anywhere else."""
    path = _FOLDER / cloud / f"{name}.yaml"
    return read_yaml(path) if path.parent == _FOLDER / cloud and path.is_file() else None


def _indices(cards: dict[str, int] | None) -> frozenset[int]:
    if cards is None:
        return frozenset()
    return frozenset(range(cards["first"], cards["last"] + 1, cards.get("step", 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class GoogleFacts:
    """One machine type of Compute Engine: see `infra.catalog.machine_types.MachineType`."""

    name: str
    num_host_interfaces: int
    num_rdma_interfaces: int
    gpu_topology: str | None
    hosts_per_domain: int | None
    boot_disk: str


@cache
def google_facts(name: str) -> GoogleFacts | None:
    """The facts of a machine type, None when the catalogue has none of that name."""
    facts = _read("gcp", name)
    if facts is None:
        return None
    return GoogleFacts(
        name=name,
        num_host_interfaces=facts["num_host_interfaces"],
        num_rdma_interfaces=facts["num_rdma_interfaces"],
        gpu_topology=facts.get("gpu_topology"),
        hosts_per_domain=facts.get("hosts_per_domain"),
        boot_disk=facts["boot_disk"],
    )


@cache
def gpu_topologies() -> frozenset[str]:
    """The shapes of NVLink domains over hosts, of all machine types."""
    found = (google_facts(path.stem) for path in sorted((_FOLDER / "gcp").glob("*.yaml")))
    return frozenset(each.gpu_topology for each in found if each and each.gpu_topology)
