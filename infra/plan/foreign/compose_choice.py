"""Services of a Compose file that are never up together: of two profiles, or with one container name.

On hosts of their own they are one deployment (a prefill and a decode host that start from one file). Where they name
one host, each is a deployment of its own.

Source: the Compose specification (docs.docker.com/reference/compose-file: container_name, profiles), read 2026-11-26.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from infra.engines.recognition import ADDRESS_VARIABLES
from infra.plan.foreign.seats import is_address
from infra.plan.foreign.source import Launch, Recipe
from infra.plan.foreign.yaml_pages import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What of a service says beside which others it runs.

    Args:
        container: its container's name, "" where Compose makes one.
        profiles: that start it; () for one that always starts.
        addresses: of the host that it is meant for, as its variables say.
    """

    name: str
    launches: tuple[Launch, ...]
    container: str
    profiles: frozenset[str]
    addresses: frozenset[str]

    def excludes(self, other: Service) -> bool:
        """Whether Compose never has both up on one host."""
        if self.container and self.container == other.container:
            return True
        # one that always starts is up beside those of every profile, or stands for the file's default
        return self.profiles != other.profiles and not self.profiles & other.profiles


def service_of(name: str, service: Node, launches: Sequence[Launch]) -> Service:
    """A service with the processes that it starts."""
    words = (
        word
        for launch in launches
        for variable in ADDRESS_VARIABLES
        if (word := launch.env.get(variable)) is not None and not word.open_names
    )
    return Service(
        name=name,
        launches=tuple(launches),
        container=service.get("container_name").text(),
        profiles=frozenset(node.text() for node in service.get("profiles").nodes()),
        addresses=frozenset(word.text for word in words if is_address(word.text)),
    )


def in_turn(recipe: Recipe, services: Sequence[Service], settings: Mapping[str, str]) -> Recipe:
    """The file's deployments: one, or one of each set of services that can be up together on the hosts they name.

    Args:
        recipe: the file, without processes.
        services: in the order of the file.
        settings: `variant` names a service: then the others that it excludes are left out.
    """
    chosen = next((s for s in services if s.name == settings.get("variant")), None)
    if chosen is not None:
        services = [s for s in services if not _clash(chosen, s)]
    starting = [s for s in services if s.launches]
    turns: list[list[Service]] = []
    for service in starting:
        if any(_clash(service, other) for other in starting):
            turn = next((t for t in turns if not any(_clash(service, o) for o in t)), None)
            if turn is None:
                turns.append([service])
            else:
                turn.append(service)
    found = [
        replace(
            recipe,
            launches=tuple(_launches([s for s in starting if s in turn or not _in_any(s, turns)])),
            choice={"variant": turn[0].name},
        )
        for turn in turns
    ]
    if not found:
        return replace(recipe, launches=tuple(_launches(starting)))
    return replace(found[0], others=tuple(found[1:]))


def _clash(one: Service, other: Service) -> bool:
    return one is not other and bool(one.addresses & other.addresses) and one.excludes(other)


def _in_any(service: Service, turns: Sequence[Sequence[Service]]) -> bool:
    return any(service in turn for turn in turns)


def _launches(services: Sequence[Service]) -> list[Launch]:
    """Their processes; a service that starts where it is asked for has a host of its own."""
    return [
        replace(launch, blocks=launch.blocks or _is_asked_for(s, services))
        for s in services
        for launch in s.launches
    ]


def _is_asked_for(service: Service, services: Sequence[Service]) -> bool:
    return bool(service.profiles) or any(
        service.excludes(other) for other in services if other is not service
    )
