"""A room that all tests of this folder share, and stacks deployed into it by the real command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.errors import PrerequisiteError
from infra.provision.aws.eks.nodes import TAINT
from infra.provision.naming import POOL, POOL_LABEL
from infra.rehearsal.cluster.nodes import NodeGroup
from infra.rehearsal.cluster.programs import Programs, installed_programs
from infra.rehearsal.cluster.project import make_room_project
from infra.rehearsal.cluster.room import Room, ascend_nodes, open_room, racks
from infra.rehearsal.installed import find_pulumi
from tests.rehearsal.cloud.command import Pulumi
from tests.rehearsal.cloud.conftest import warm_python
from tests.rehearsal.cloud.warm_python import WarmPython
from tests.rehearsal.conftest import lab_is_possible, shell

__all__ = ["lab_is_possible", "shell", "warm_python"]

Deploy = Callable[..., Pulumi]
# Beside others on two cores, the engine, a provider of 300 MB and the API server take turns.
LIMIT_S = 600
UNIT = 6  # hosts of the stack on GB200
MANAGED = "managed"  # nodes as those of a managed node group on EKS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder carries one marker."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.kubernetes)


@pytest.fixture(scope="session")
def programs() -> Programs:
    """What the tests start; without it they are skipped, and say what to type."""
    try:
        find_pulumi()
        return installed_programs(os.environ)
    except PrerequisiteError as error:
        pytest.skip(str(error))


def node_groups(catalog: Catalog) -> list[NodeGroup]:
    """Two racks that take one stack each, hosts of Ascend, a managed node group, and trays with broken devices."""
    (broken,) = racks(catalog, UNIT)
    return [
        *racks(catalog, UNIT, UNIT),
        ascend_nodes(catalog, 4),
        NodeGroup(
            name=MANAGED,
            accelerator=catalog.accelerator("b200"),
            count=2,
            domain=None,
            labels={POOL_LABEL: POOL},
            resources={},
            taints=({"key": TAINT, "value": "present", "effect": "NoSchedule"},),
        ),
        replace(
            broken,
            name="broken",
            domain="rack-broken.0",
            labels={"nvidia.com/gpu.product": "BROKEN"},
            resources={**broken.resources, "nvidia.com/gpu": "2"},
        ),
    ]


@pytest.fixture(scope="session")
def room(
    programs: Programs, catalog: Catalog, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Room]:
    """A cluster with everything; what a test makes in it, it takes away."""
    folder = tmp_path_factory.mktemp("room") / "room"
    with open_room(folder, node_groups(catalog)) as opened:
        yield opened


@pytest.fixture
def pulumi_in(programs: Programs, warm_python: WarmPython, tmp_path: Path) -> Iterator[Deploy]:
    """The command line for a stack in a room; keyword arguments are configuration values.

    Its programs run in copies of a Python that is warm: a cold one loads for longer than a cluster answers. Whatever a
    test has left behind in the cluster is destroyed in the end.
    """
    opened: list[tuple[Room, Pulumi]] = []

    def open_project(
        room: Room, stack: str, *, spec_file: Path | None = None, **config: str
    ) -> Pulumi:
        project = make_room_project(
            stack,
            tmp_path / f"scratch-{len(opened)}",
            room,
            spec_file=spec_file,
            config=config,
        )
        warm_python.put_environment(project.folder / ".venv")
        pulumi = Pulumi(project.folder, project.environment, stack, LIMIT_S)
        made = pulumi("stack", "init")
        assert made.returncode == 0, made.stderr
        opened.append((room, pulumi))
        return pulumi

    yield open_project
    for room, pulumi in opened:
        if room.api.get(f"/api/v1/namespaces/{pulumi.stack}") is not None:
            pulumi("destroy", "--yes", "--skip-preview")
