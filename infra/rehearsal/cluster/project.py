"""A scratch Pulumi project whose cluster is a room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.rehearsal.cluster.room import Room
from infra.rehearsal.installed import find_pulumi
from infra.rehearsal.pulumi_project import (
    copy_project,
    is_initialised,
    make_environment,
    read_config,
    write_config,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomProject:
    """Where the command line works for one stack.

    Args:
        folder: a scratch copy of the project's Pulumi files, for `pulumi -C`.
        environment: complete; PATH finds Pulumi, the real kubernetes provider and kubectl.
    """

    stack: str
    folder: Path
    environment: Mapping[str, str]

    @property
    def is_initialised(self) -> bool:
        """Whether `pulumi stack init` has run."""
        return is_initialised(self.folder, self.stack)


def make_room_project(
    stack: str,
    scratch: Path,
    room: Room,
    *,
    spec_file: Path | None,
    config: Mapping[str, str],
) -> RoomProject:
    """Copy the project's Pulumi files, and write what an operator of the room would configure.

    Args:
        stack: the stack's name.
        scratch: new; everything that is written lies in it.
        room: the cluster.
        spec_file: the stack file, None for a shipped one.
        config: further configuration values; they win.

    Raises:
        PrerequisiteError: there is no Pulumi command line.
    """
    scratch.mkdir()
    folder = scratch / "project"
    copy_project(folder, stack, spec_file)
    write_config(folder, stack, read_config(folder, stack), {**room.config, **config})
    environment = make_environment(scratch, (find_pulumi(), room.programs.bin))
    return RoomProject(stack=stack, folder=folder, environment=environment)
