"""`--break PROCESS:KIND`: spoils one installed file of one process, to see it noticed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from infra.engines.sizes import MASKS
from infra.errors import StackError
from infra.plan.process import Plan, Process
from infra.render.host_paths import process_folder
from infra.spec.nearest import nearest

# A documentation address that no host of a lab has (RFC 5737, TEST-NET-3).
NOBODY = "203.0.113.250"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The two files that start a process."""

    launch: str
    environment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """What is spoilt: a process and one of `KINDS`."""

    process: Process
    kind: str


def parse_break(text: str, plan: Plan) -> Break:
    """`decode-0/3:port` as a break of this plan.

    Raises:
        StackError: no such process or kind, or the kind needs something that the process does not have.
    """
    name, colon, kind = text.rpartition(":")
    known = {process.id: process for process in plan.processes if process.kind == "engine"}
    if not colon or kind not in KINDS:
        fix = f"Write PROCESS:KIND with KIND one of {', '.join(KINDS)}."
        raise StackError("--break", f"{text} names no kind of break.", fix)
    if name not in known:
        raise StackError("--break", f"The plan has no engine process {name}.", nearest(name, known))
    return Break(process=known[name], kind=kind)


def spoil(broken: Break, installed: Installed, plan: Plan) -> tuple[Installed, str]:
    """The spoilt files, and what was done to them in one line.

    Raises:
        StackError: the process has nothing of that kind to spoil.
    """
    spoilt, done = KINDS[broken.kind](broken.process, installed, plan)
    if spoilt == installed:
        what = f"{broken.process.id} has nothing that {broken.kind} could spoil."
        raise StackError("--break", what, "Choose another process or kind.")
    return spoilt, done


def files_of(stack: str, process: Process) -> tuple[str, str]:
    """Paths of the launch script and the environment file."""
    folder = process_folder(stack, process)
    return f"{folder}/launch", f"{folder}/environment"


def _spoil_port(process: Process, installed: Installed, plan: Plan) -> tuple[Installed, str]:
    """The HTTP port of a neighbour, or the next one where there is no neighbour."""
    own = _http_port(process)
    ports = [_http_port(other) for other in plan.on_host(process.host) if other.id != process.id]
    wrong = next((port for port in ports if port), own + 1)
    launch = re.sub(rf"--port {own}\b", f"--port {wrong}", installed.launch)
    return Installed(
        launch=launch, environment=installed.environment
    ), f"--port {own} became {wrong}"


def _spoil_devices(process: Process, installed: Installed, plan: Plan) -> tuple[Installed, str]:
    """The device of a neighbour; where there is no mask, one that leaves too few devices."""
    for name in MASKS:
        if name in process.env:
            others = [
                p.env[name]
                for p in plan.on_host(process.host)
                if p.id != process.id and name in p.env
            ]
            wrong = others[0] if others else "99"
            environment = _with_variable(installed.environment, name, wrong)
            return Installed(
                launch=installed.launch, environment=environment
            ), f"{name} became {wrong}"
    name = (
        "ASCEND_RT_VISIBLE_DEVICES" if plan.engine.name == "vllm-ascend" else "CUDA_VISIBLE_DEVICES"
    )
    environment = _with_variable(installed.environment, name, "0")
    return Installed(launch=installed.launch, environment=environment), f"{name}=0 was added"


def _spoil_address(_process: Process, installed: Installed, _plan: Plan) -> tuple[Installed, str]:
    """An address of the group that no host has."""
    pattern = r"--(data-parallel-address|master-addr|dist-init-addr) [^\s:\\]+"
    launch = re.sub(pattern, rf"--\1 {NOBODY}", installed.launch)
    return Installed(
        launch=launch, environment=installed.environment
    ), f"the group's address became {NOBODY}"


def _spoil_parallel_flag(
    process: Process, installed: Installed, _plan: Plan
) -> tuple[Installed, str]:
    """A flag that all ranks of a group must share."""
    if "--enable-expert-parallel" in process.argv:
        launch = re.sub(
            r"--enable-expert-parallel\b", "--no-enable-expert-parallel", installed.launch
        )
        return Installed(
            launch=launch, environment=installed.environment
        ), "--enable-expert-parallel was negated"
    match = re.search(r"--(tensor-parallel-size|tp-size) (\d+)", installed.launch)
    if match is None:
        return installed, ""
    wrong = int(match[2]) * 2
    launch = installed.launch.replace(match[0], f"--{match[1]} {wrong}")
    return Installed(
        launch=launch, environment=installed.environment
    ), f"--{match[1]} {match[2]} became {wrong}"


def _spoil_side_channel(
    process: Process, installed: Installed, _plan: Plan
) -> tuple[Installed, str]:
    """What peers are told to dial: localhost."""
    name = (
        "VLLM_NIXL_SIDE_CHANNEL_HOST"
        if "VLLM_NIXL_SIDE_CHANNEL_HOST" in process.env
        else "VLLM_HOST_IP"
    )
    if name not in process.env:
        return installed, ""
    environment = _with_variable(installed.environment, name, "localhost")
    return Installed(launch=installed.launch, environment=environment), f"{name} became localhost"


def _spoil_env(process: Process, installed: Installed, _plan: Plan) -> tuple[Installed, str]:
    """One variable is missing: the most telling that the process has."""
    telling = (
        "VLLM_NIXL_SIDE_CHANNEL_HOST",
        *MASKS,
        "HCCL_IF_IP",
        "VLLM_HOST_IP",
        *sorted(process.env),
    )
    name = next((name for name in telling if name in process.env), "")
    lines = [line for line in installed.environment.splitlines() if not line.startswith(f"{name}=")]
    return Installed(
        launch=installed.launch, environment="\n".join(lines) + "\n"
    ), f"{name} is missing"


def _spoil_mount(process: Process, installed: Installed, plan: Plan) -> tuple[Installed, str]:
    """The weights are not mounted (or, without a container, lie elsewhere)."""
    pattern = rf"^\s*--mount \S*source={re.escape(plan.weights_path)}\S*.*\n"
    launch = re.sub(pattern, "", installed.launch, count=1, flags=re.MULTILINE)
    if launch == installed.launch:
        launch = installed.launch.replace(f"{plan.weights_path}/", f"{plan.weights_path}-missing/")
    del process
    return Installed(
        launch=launch, environment=installed.environment
    ), f"{plan.weights_path} is not mounted"


KINDS: Mapping[str, Callable[[Process, Installed, Plan], tuple[Installed, str]]] = {
    "port": _spoil_port,
    "devices": _spoil_devices,
    "dp-address": _spoil_address,
    "parallel-flag": _spoil_parallel_flag,
    "side-channel": _spoil_side_channel,
    "env": _spoil_env,
    "mount": _spoil_mount,
}


def _http_port(process: Process) -> int:
    return next((bind.port for bind in process.binds if bind.name == "http"), 0)


def _with_variable(text: str, name: str, value: str) -> str:
    """An environment file with one variable set."""
    lines = [line for line in text.splitlines() if not line.startswith(f"{name}=")]
    return "\n".join([*lines, f"{name}={value}"]) + "\n"
