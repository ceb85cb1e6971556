"""How a group's collective is started on each of its hosts: a short-lived unit, in the engine's own runtime; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from infra.catalog.schema import Vendor
from infra.engines.transport_signs import SIGNS, SPEAKS_WITH, Library
from infra.launch.preflight.commands import Command
from infra.launch.preflight.group_collectives import adding_up
from infra.launch.preflight.group_collectives.layout import GroupLayout, Member
from infra.launch.preflight.scene import Scene
from infra.render.host_paths import trial_name
from infra.render.launch_script import ContainerLaunch, NativeLaunch
from infra.render.process_launch import process_launch
from infra.render.python_command import python_command, removal_command
from infra.render.units import LIMITS

COMMAND = "group-collective"
# Loading torch from a disk that has not read it yet takes most of it.
JOIN_S = 90.0
# The libraries' own wiring up of many ranks, which grows with them, and then some seconds of bytes.
WORK_S = 120.0
# A container's start and end, and Python's.
AROUND_S = 30.0
STOP_S = 10
# The agent ends it in time; systemd does where no agent is left.
BEYOND_S = 60.0
SCRIPT = Path(adding_up.__file__).read_text(encoding="utf-8")
# They would keep the lines of NCCL's log from where they are read.
SILENCERS = ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """How devices of a vendor add up.

    Args:
        name: of torch.distributed.
        device: torch's word for them.
        plugin: a module that brings the device to torch, "" where torch has it.
        library: who moves the bytes and says how; None for gloo, which is TCP and says nothing.
        num_bytes: to add up: bandwidth has stopped growing with it, and a device has it free several times.
    """

    name: str
    device: str
    plugin: str
    library: Library | None
    num_bytes: int


# ROCm's torch calls its devices cuda, and RCCL nccl (pytorch.org/docs: notes/hip); torch_npu brings `npu` and `hccl`.
_GPU = Backend(name="nccl", device="cuda", plugin="", library="NCCL", num_bytes=1 << 30)
BACKENDS: Mapping[Vendor, Backend] = {
    "nvidia": _GPU,
    "amd": _GPU,
    "ascend": Backend(
        name="hccl", device="npu", plugin="torch_npu", library="HCCL", num_bytes=1 << 30
    ),
    "cpu": Backend(name="gloo", device="cpu", plugin="", library=None, num_bytes=1 << 24),
}


def backend_of(scene: Scene, layout: GroupLayout) -> Backend:
    """How a group adds up; its hosts carry one vendor's devices (`fab check`)."""
    return BACKENDS[scene.accelerator(layout.hosts[0]).vendor]


def collective_command(scene: Scene, layout: GroupLayout, member: Member, join_s: float) -> Command:
    """What the agent of one host runs.

    Args:
        scene: the plan.
        layout: the group, whose port is known.
        member: the host's part of it.
        join_s: seconds that the ranks have until all have met.
    """
    launch = _without_weights(
        scene, process_launch(scene.plan, member.process, None, scene.catalog)
    )
    name = trial_name(scene.plan.stack, layout.group)
    words = ("-c", SCRIPT, json.dumps(_task(scene, layout, member, join_s)))
    argv = python_command(launch, member.process, name, _environment(scene, layout, member), words)
    limit_s = join_s + WORK_S + AROUND_S
    removal = removal_command(launch, name)
    hooks = ("ExecStartPre", "ExecStopPost") if removal is not None else ()
    ends = [f"{hook}=-/bin/sh -c '{removal}'" for hook in hooks]
    longest = f"RuntimeMaxSec={limit_s + BEYOND_S:g}"
    limits = (longest, f"TimeoutStopSec={STOP_S}", "KillMode=mixed")
    unit = f"{name}.service"
    return Command(
        id=COMMAND,
        argv=(
            *("systemd-run", "--quiet", "--collect", "--wait", "--pipe", f"--unit={unit}"),
            *(f"--property={one}" for one in (*LIMITS, *limits, *ends)),
            "--",
            *(word.replace("$", "$$") for word in argv),  # systemd.service(5), "Command lines"
        ),
        timeout_s=limit_s,
        behind=("systemctl", "stop", "--no-block", "--", unit),
    )


def runtime_item(scene: Scene, layout: GroupLayout) -> str:
    """Id of the item of a host's state that is the image, or the environment, in which the group adds up."""
    launch = process_launch(scene.plan, layout.members[0].process, None, scene.catalog)
    if isinstance(launch, NativeLaunch):
        return f"environment:{launch.environment}"
    return f"image:{scene.plan.engine.image}"


def _task(scene: Scene, layout: GroupLayout, member: Member, join_s: float) -> dict[str, object]:
    """See `adding_up`."""
    backend = backend_of(scene, layout)
    return {
        "backend": backend.name,
        "device": backend.device,
        "plugin": backend.plugin,
        "address": layout.address,
        "port": layout.port,
        "num_ranks": layout.num_ranks,
        "first_rank": member.first_rank,
        "num_local": len(member.devices),
        "num_bytes": backend.num_bytes,
        "join_s": join_s,
        "work_s": WORK_S,
        "patterns": [sign.pattern for sign in SIGNS if sign.library == backend.library],
    }


def _environment(scene: Scene, layout: GroupLayout, member: Member) -> dict[str, str]:
    """The engine's, with all of the group's devices, and with a library that says what it does."""
    library = backend_of(scene, layout).library
    env = {name: text for name, text in member.process.env.items() if name not in SILENCERS}
    mask = scene.accelerator(member.host).mask_variable
    if mask in env:
        env[mask] = ",".join(map(str, member.devices))
    if library is not None:
        variable, _, value = SPEAKS_WITH[library].partition("=")
        env[variable] = value
    return env


def _without_weights(
    scene: Scene, launch: ContainerLaunch | NativeLaunch
) -> ContainerLaunch | NativeLaunch:
    """Nothing is read of them, and they need not be staged yet."""
    if isinstance(launch, NativeLaunch):
        return launch
    kept = tuple(one for one in launch.mounts if one.source != scene.plan.weights_path)
    return replace(launch, mounts=kept)
