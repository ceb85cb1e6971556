"""What a rehearsal says at its end: a row per step, what was real, what was simulated, what it cannot show."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from infra.errors import InfraError
from infra.plan.process import Plan
from infra.spec.stack import KUBERNETES
from infra.whole_file import write_whole

StepName = Literal["check", "plan", "provision", "hosts", "weights", "tune", "start", "verify"]
STEPS: tuple[StepName, ...] = (
    "check",
    "plan",
    "provision",
    "hosts",
    "weights",
    "tune",
    "start",
    "verify",
)

SCHEMA_VERSION = 1
RECORD = "rehearsal.json"


class StepFailed(InfraError):
    """A step failed; `cause` is its error, and its exit code is that of the rehearsal."""

    def __init__(self, step: StepName, cause: InfraError) -> None:
        """Take the words of the cause."""
        super().__init__(cause.where, cause.what, cause.fix)
        self.exit_code = cause.exit_code
        self.step = step
        self.cause = cause

    def __str__(self) -> str:
        """Which step, then the cause's own words."""
        return f"{self.step}: {self.cause}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step as it went. `simulated` says whether something stood in for the real thing."""

    name: StepName
    seconds: float
    simulated: bool
    ok: bool
    detail: str


@dataclass(slots=True, kw_only=True)
class Report:
    """The document of `fab rehearse`, while it grows.

    Args:
        first_token_s: seconds from the start of the command's process to the first token through the
            deployment's own front door; None before.
        served_by: role → process id of the last request through the router.
    """

    stack: str
    id: str = ""
    steps: list[Step] = field(default_factory=list)
    first_token_s: float | None = None
    served_by: Mapping[str, str] = field(default_factory=dict)
    inventory: str = ""
    ssh_config: str = ""
    pulumi_dir: str = ""
    pulumi_env: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """As JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            "stack": self.stack,
            "ok": all(step.ok for step in self.steps),
            "id": self.id,
            "steps": [
                {
                    "name": step.name,
                    "seconds": round(step.seconds, 3),
                    "simulated": step.simulated,
                    "ok": step.ok,
                    "detail": step.detail,
                }
                for step in self.steps
            ],
            "first_token_s": None if self.first_token_s is None else round(self.first_token_s, 3),
            "served_by": dict(self.served_by),
            "inventory": self.inventory,
            "ssh_config": self.ssh_config,
            "pulumi_dir": self.pulumi_dir,
            "pulumi_env": dict(self.pulumi_env),
        }


_CLOUD = (
    (
        "cloud",
        "Pulumi engine and language host, the project's program",
        "the cloud's provider and what it creates",
    ),
)
_STANDING_CLUSTER = (
    (
        "provisioning",
        "Pulumi engine and its kubernetes provider, the project's program",
        "-",
    ),
    (
        "cluster",
        "API server, controllers, scheduler, LeaderWorkerSet, names of pods",
        "nodes, kubelets, DNS, NVIDIA's DRA driver",
    ),
)
_OWN_CLUSTER = (
    *_CLOUD,
    (
        "cluster",
        "API server, controllers, scheduler, LeaderWorkerSet, names of pods",
        "EKS, its add-ons and charts, nodes, kubelets, DNS",
    ),
)


def counted(count: int, noun: str, plural: str = "s") -> str:
    """`1 host`, `2 hosts`, `no hosts`."""
    return f"{count or 'no'} {noun}{'' if count == 1 else plural}"


def keep_record(report: Report, folder: Path) -> None:
    """Leave a report beside a kept lab, for `--list`."""
    write_whole(folder / RECORD, json.dumps(report.document()) + "\n")


def seconds_of_this_process() -> float:
    """Seconds since this operating-system process was started, imports included."""
    with Path("/proc/self/stat").open(encoding="ascii") as file:
        started_ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")


_EDGE = ("HAProxy of the distribution's package, TLS, keys", "-")
_EDGE_IN_PODS = ("its objects in a real API", "all that runs")


def reality_rows(
    plan: Plan, *, provisioned: bool, time_scale: float | None
) -> Sequence[tuple[str, str, str]]:
    """(part, real, simulated) of this rehearsal, with a head.

    Args:
        plan: what was rehearsed.
        provisioned: whether the cloud had a part in it.
        time_scale: what time limits were multiplied by; None where the engines were real.
    """
    router = next((process.argv[0] for process in plan.processes if process.kind == "router"), None)
    is_wheel = router in {"vllm-router", "python"}
    rows = [
        ("part", "real", "simulated"),
        ("compiler", "the whole of it", "-"),
    ]
    in_pods = plan.platform in KUBERNETES
    if in_pods:
        rows += _OWN_CLUSTER if plan.platform == "aws-eks" else _STANDING_CLUSTER
    elif provisioned:
        rows += _CLOUD
    rows += [
        (
            "hosts",
            "Linux namespaces, systemd, sshd, sudo, TCP/IP",
            "kernel knobs, drivers, devices; one kernel for all",
        ),
        (
            "tuning",
            "the agent, from the DaemonSet's pod"
            if in_pods
            else "the agent, over SSH, as on any host",
            "the kernel's answers",
        ),
    ]
    if plan.runtime != "native":
        runtime = (
            "a node's runtime, what init containers fetch,"
            if in_pods
            else f"{plan.runtime}, its daemon"
        )
        asked = "mount namespaces with what was asked for"
        rows.append(("containers", asked, f"{runtime} and images"))
    if time_scale is None:
        rows.append(("engines", f"{plan.engine.name} {plan.engine.version} and NIXL", "-"))
    else:
        scaled = f"the model, the accelerator, load times (time limits x {time_scale:g})"
        rows.append(("engines", "arguments, ports, handshakes, HTTP", scaled))
    if router is not None:
        rows.append(
            ("router", *(("the released wheel", "-") if is_wheel else ("-", "its program")))
        )
    if plan.edge is not None:
        rows.append(("edge", *(_EDGE_IN_PODS if in_pods else _EDGE)))
    return rows


def not_shown(plan: Plan, *, has_real_engines: bool) -> Sequence[str]:
    """What this rehearsal cannot show."""
    if has_real_engines:
        return (
            "accelerators: their kernels, drivers, memory, speed and faults",
            "a model that anybody wants: its weights are random",
            "RDMA and the fabric between devices: KV caches travelled through the memory or the network of one kernel",
        )
    lines = [
        "speed, memory use and numerical results of the model",
        "collectives, RDMA and the fabric between devices: no byte of KV cache or gradient crosses a real one",
        "drivers, firmware, real device counts and faults",
        "the real image: its digest, its libraries, what its entry point does beside the documented",
    ]
    if plan.platform in KUBERNETES:
        lines.append(
            "pods that share a node, or are started again: each has a simulated host to itself, and is started once"
        )
    if plan.platform.startswith("aws"):
        lines.append(
            "whether the cloud has the capacity, and what its API accepts beyond the checks of the emulation"
        )
    return lines
