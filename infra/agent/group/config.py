"""What a watcher is told by the plan: `groups.json` beside its program."""

import json
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .progress import Counters, Patience
from .rules import Limits


class Group(NamedTuple):
    """One group with ranks on this host.

    Args:
        name: `prefill/0`.
        leader: the host of rank 0.
        address: where its watcher answers.
        members: every host of the group, the leader's first.
        units: process id by unit, of this host.
        ports: what its processes listen on here.
        metrics: where its engines on this host count.
        asks: by where it counts, what asks every rank of an engine for one token: url, headers and body (None to get
            it); no entry for one that nobody may ask so.
    """

    name: str
    leader: str
    address: Tuple[str, int]
    members: List[str]
    units: Dict[str, str]
    ports: List[int]
    metrics: List[str]
    asks: Dict[str, List[Dict[str, Any]]]


class Router(NamedTuple):
    """The router of this host.

    Args:
        unit: its systemd unit.
        process: `router/0`.
        url: where any HTTP answer says that it lives.
        silent_s: how long it may not answer, once it has.
    """

    unit: str
    process: str
    url: str
    silent_s: float


class Config(NamedTuple):
    """What one watcher looks after.

    Args:
        runtime: what runs the ranks: `docker`, `podman` or `native`.
        router: None where none runs.
        key: the file with the key that engines ask for, "" without one.
        addresses: where every host of these groups dials from and is dialled, by name.
    """

    stack: str
    release: str
    host: str
    runtime: str
    groups: List[Group]
    router: Optional[Router]
    limits: Limits
    patience: Patience
    counters: Counters
    key: str
    addresses: Dict[str, str]

    @property
    def units(self) -> List[str]:
        """Every unit of every group here."""
        return [unit for group in self.groups for unit in group.units]


def read_config(path: str) -> Config:
    """The configuration at a path; a wrong one ends the watcher with Python's own words."""
    with open(path, encoding="utf-8") as stream:
        document = json.load(stream)
    counters = document["counters"]
    return Config(
        stack=document["stack"],
        release=document["release"],
        host=document["host"],
        runtime=document["runtime"],
        groups=[
            Group(
                name=row["name"],
                leader=row["leader"],
                address=(row["address"], row["port"]),
                members=row["members"],
                units=row["units"],
                ports=row["ports"],
                metrics=row["metrics"],
                asks=row["asks"],
            )
            for row in document["groups"]
        ],
        router=_router(document["router"]),
        limits=Limits(**document["limits"]),
        patience=Patience(**document["patience"]),
        counters=Counters(tuple(counters["open"]), tuple(counters["growing"])),
        key=document["key"],
        addresses=document["addresses"],
    )


def _router(row: Optional[Dict[str, Any]]) -> Optional[Router]:
    if row is None:
        return None
    return Router(row["unit"], row["process"], row["url"], float(row["silent_s"]))
