"""What an imported recipe says beside its plan, for rules that read it: of containers, pods and batch jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from infra.catalog.load import Catalog
from infra.checks.view import Nodes, PlanView, Share, Surroundings, view_plan
from infra.plan.foreign.engine_release import release_of
from infra.plan.foreign.imported_recipe import ImportedRecipe


def view_recipe(recipe: ImportedRecipe, version: str, catalog: Catalog) -> PlanView:
    """The plan as a release of its engine reads it."""
    plan = recipe.assembled.plan
    silence_s = {
        process: seat.launch.container.silence_s
        for process, seat in recipe.assembled.seats.items()
        if seat.launch.container is not None and seat.launch.container.silence_s is not None
    }
    asked = replace(plan, engine=replace(plan.engine, version=version))
    named = None if recipe.facts.is_between_releases else recipe.facts.release_named
    seats = recipe.assembled.seats.items()
    around = Surroundings(
        silence_s=silence_s,
        named_release=named,
        partly_open=frozenset(process for process, seat in seats if seat.is_partly_open),
        shared_bytes=_shared_bytes(recipe),
        told_hosts=recipe.assembled.told_hosts,
        ports_open=frozenset(process for process, seat in seats if seat.are_ports_open),
        own_networks=_where(recipe, "has_own_network"),
        bridged=_where(recipe, "is_bridged"),
        without_names=_where(recipe, "lacks_names"),
        leads_in_turn=_where(recipe, "leads_in_turn"),
        releases=_releases(recipe),
        shares=() if recipe.uses_ray else tuple(_shares(recipe)),
        nodes=()
        if recipe.uses_ray
        else tuple(Nodes(n.by, n.asked, n.used, n.devices) for n in recipe.nodes_asked),
    )
    return view_plan(asked, catalog, around)


def _where(recipe: ImportedRecipe, what: str) -> frozenset[str]:
    """Ids of processes whose containers are so."""
    seats = recipe.assembled.seats.items()
    return frozenset(
        process for process, seat in seats if getattr(seat.launch.container, what, False)
    )


def _releases(recipe: ImportedRecipe) -> dict[str, str]:
    """By process id, the release that its container's image names."""
    images = {
        process: container.image
        for process, seat in recipe.assembled.seats.items()
        if seat.kind == "engine" and (container := seat.launch.container) is not None
    }
    named = {process: release_of(image) for process, image in images.items() if image is not None}
    return {process: release for process, release in named.items() if release is not None}


def _shared_bytes(recipe: ImportedRecipe) -> dict[str, int]:
    """By process id, what the shared memory of its container holds, where that is bounded."""
    return {
        process: seat.launch.container.shared_bytes
        for process, seat in recipe.assembled.seats.items()
        if seat.launch.container is not None and seat.launch.container.shared_bytes is not None
    }


def _shares(recipe: ImportedRecipe) -> Iterable[Share]:
    """Containers that ask for a number of devices, with the processes that run in each."""
    found: dict[int, tuple[int, list[str]]] = {}
    for process in recipe.assembled.plan.processes:
        container = recipe.assembled.seats[process.id].launch.container
        if process.kind == "engine" and container is not None and container.num_devices:
            row = found.setdefault(id(container), (container.num_devices, []))
            row[1].append(process.id)
    return [Share(count, tuple(names)) for count, names in found.values()]
