"""Each host of a plan as a simulated host: drivers' files, stand-in tools, images, checkpoints, router programs."""

from __future__ import annotations

import hashlib
import json
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.catalog.load import Catalog
from infra.catalog.schema import Accelerator, Release
from infra.memory.overhead import OVERHEAD_GIB
from infra.plan.process import Plan, PlanHost
from infra.rehearsal import engine, standins
from infra.rehearsal.checkpoints import SimulatedCheckpoint, checkpoints_of
from infra.rehearsal.engine.world import EFA_LIBRARIES
from infra.rehearsal.lab.hosts import Bind, LabFile, LabHost, LabUser
from infra.rehearsal.real_engines import engine_binds
from infra.rehearsal.standins.vendor_files import vendor_files
from infra.render.host_paths import ENGINE_ENVIRONMENTS, ROUTER_ENVIRONMENTS

STATE = "/var/lib/moe-rehearsal"
PROGRAMS = "/opt/moe-rehearsal"
LOGIN = "ubuntu"
PRODUCT_NAME = "/sys/devices/virtual/dmi/id/product_name"
REQUESTS = f"{STATE}/requests.jsonl"

# Plausible releases of each vendor's driver; nothing in the product depends on the numbers.
_NVIDIA_MODULE = "NVRM version: NVIDIA UNIX Open Kernel Module for a rehearsal"
# By vendor, an interface of every host that no other host can reach: the one that its library takes if left to guess.
_ASIDE = {"nvidia": ("ib0",), "amd": ("ib0",), "ascend": ("bond1",)}
# What images hold where the loader looks, or is told to look (vllm-ascend Dockerfile.a3@v0.22.1rc1).
_LIBRARIES = {
    "vllm-ascend": (
        "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2",
        "/usr/local/lib/ascend_transport.so",
    )
}
_DRIVERS = {"nvidia": "580.95.05", "amd": "6.14.14", "ascend": "25.2.0", "cpu": "0"}


# A clock service and its verdict: the lab's hosts share the machine's clock, which none of them may set. All else is
# the machine's own tool's to refuse.
_CLOCK = {
    "/usr/lib/systemd/system/chrony.service": LabFile(
        content=b"[Service]\nType=exec\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
    ),
    "/usr/local/bin/timedatectl": LabFile(
        content=b'#!/bin/sh\ncase "$*" in show|"show -p NTPSynchronized") echo NTPSynchronized=yes ;; '
        b'*) exec /usr/bin/timedatectl "$@" ;; esac\n',
        mode=0o755,
    ),
}
# Simulated hosts have no kernel of their own, and so no log of it: words that may ask for it go to the stand-in.
_KERNEL_LOG = {
    "/usr/local/bin/journalctl": LabFile(
        content=b"#!/bin/sh\nfor word; do\n  case $word in -k*|-[!-]*k*|--dm*) "
        + f'exec {standins.KERNEL_LOG} "$@"'.encode()
        + b' ;; esac\ndone\nexec /usr/bin/journalctl "$@"\n',
        mode=0o755,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast simulated time runs.

    Args:
        time_scale: every time limit of an engine is multiplied by it (0.02: five minutes are six seconds).
        load_seconds: real seconds that loading the weights takes.
    """

    time_scale: float
    load_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _World:
    """What all simulated hosts of a plan share."""

    plan: Plan
    catalog: Catalog
    release: Release
    checkpoints: tuple[SimulatedCheckpoint, ...]
    pace: Pace
    has_asides: bool


def simulate_hosts(
    plan: Plan, catalog: Catalog, pace: Pace, *, has_asides: bool = True
) -> tuple[LabHost, ...]:
    """One simulated host per host of the plan, at its address, untuned and without any process.

    Args:
        plan: whose hosts they are.
        catalog: what is true of the world.
        pace: how fast simulated time runs.
        has_asides: whether each has an interface beside that of its address. Hosts of a plan from elsewhere, whose
            author may have had one, have one.
    """
    world = _World(
        plan=plan,
        catalog=catalog,
        release=catalog.release(plan.engine.name, plan.engine.version),
        checkpoints=checkpoints_of(plan, catalog),
        pace=pace,
        has_asides=has_asides,
    )
    return tuple(_simulate(host, world) for host in plan.hosts)


def _simulate(host: PlanHost, world: _World) -> LabHost:
    plan, accelerator = world.plan, world.catalog.accelerator(host.accelerator)
    facts = _facts(host, world)
    files = {
        path: LabFile(content=text.encode(), mode=0o666)
        for path, text in vendor_files(facts).items()
    }
    files[f"{STATE}/host.json"] = LabFile(content=json.dumps(facts).encode())
    files[REQUESTS] = LabFile(content=b"", mode=0o666)
    for index in range(host.num_devices):
        files[f"{STATE}/devices/{index}"] = LabFile(content=b"", mode=0o666)
    for path, (source, mode) in _programs(plan, accelerator).items():
        files[path] = LabFile(content=Path(source).read_bytes(), mode=mode)
    files.update(_router_programs(world.catalog))
    files.update(_CLOCK)
    files.update(_KERNEL_LOG)
    if accelerator.vendor == "nvidia":
        version = f"{_NVIDIA_MODULE}  {facts['driver_version']}  Release Build\n"
        files["/proc/driver/nvidia/version"] = LabFile(content=version.encode())
    # firmware that is no cloud's: /sys/devices/virtual takes another name then
    files[PRODUCT_NAME] = LabFile(content=b"moe-infra rehearsal\n", mode=0o666)
    is_simulated = accelerator.vendor != "cpu"
    if is_simulated:
        files["/proc/cpuinfo"] = LabFile(content=_processor(accelerator, plan).encode())
    sparse: dict[str, int] = {}
    for checkpoint in world.checkpoints:
        for name, content in checkpoint.contents.items():
            files[f"{checkpoint.path}/{name}"] = LabFile(content=content)
        for name, size in checkpoint.weight_files.items():
            sparse[f"{checkpoint.path}/{name}"] = size
    return LabHost(
        name=host.name,
        address=host.address,
        aside=_ASIDE.get(accelerator.vendor, ()) if world.has_asides else (),
        kernel="sysctl" if accelerator.vendor == "ascend" else "debugfs",
        has_cpufreq="-vm-" not in plan.tuning,
        knobs={"/proc/sys/kernel/arch": accelerator.architecture},
        files=files,
        sparse_files=sparse,
        binds=_binds() if is_simulated else (*_binds(), *engine_binds(plan)),
        users=(LabUser(name=LOGIN),),
        units=_started_units(plan, accelerator),
    )


def _started_units(plan: Plan, accelerator: Accelerator) -> tuple[str, ...]:
    """What a host of this kind starts at every boot besides the lab's own."""
    starts = {
        standins.DOCKER_UNIT: plan.runtime == "docker",
        standins.COUNTERS_UNIT: accelerator.vendor not in ("cpu", "ascend"),
        standins.FABRIC_MANAGER_UNIT: accelerator.fabric.kind == "nvlink"
        and not accelerator.fabric_spans_hosts,
        standins.IMEX_UNIT: accelerator.fabric.kind == "nvlink" and accelerator.fabric_spans_hosts,
    }
    return tuple(unit for unit, is_started in starts.items() if is_started)


def _processor(accelerator: Accelerator, plan: Plan) -> str:
    """What /proc/cpuinfo says first on a host of this kind."""
    if accelerator.architecture == "aarch64":
        maker, part = ("0x48", "0xd01") if accelerator.vendor == "ascend" else ("0x41", "0xd4f")
        return f"processor\t: 0\nCPU implementer\t: {maker}\nCPU part\t: {part}\n"
    flags = "fpu vme hypervisor" if "-vm-" in plan.tuning else "fpu vme"
    return f"processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: {flags}\n"


def _programs(plan: Plan, accelerator: Accelerator) -> Mapping[str, tuple[str, int]]:
    """Stand-in programs by path on the host; their library is lent as a folder."""
    programs = {
        path: file
        for path, file in standins.standin_files(accelerator.vendor).items()
        if not path.startswith(standins.LIBRARY)
    }
    if plan.runtime == "native" and accelerator.vendor != "cpu":
        environment = f"{ENGINE_ENVIRONMENTS}/{plan.engine.name}-{plan.engine.version}"
        for path, file in standins.native_files().items():
            programs[path.replace(standins.NATIVE_FOLDER, environment)] = file
    return programs


def _facts(host: PlanHost, world: _World) -> dict[str, object]:
    """`host.json`: what the stand-ins and the simulated engine know of their host."""
    plan, release, pace = world.plan, world.release, world.pace
    accelerator = world.catalog.accelerator(host.accelerator)
    position = [other.name for other in plan.hosts].index(host.name)
    return {
        "schema_version": 1,
        "host": host.name,
        "address": host.address,
        "vendor": accelerator.vendor,
        "accelerator": accelerator.id,
        "generation": accelerator.generation,
        "fabric_spans_hosts": accelerator.fabric_spans_hosts,
        "product_name": accelerator.product_name,
        "memory_mib": accelerator.memory_mib,
        "overhead_gib": OVERHEAD_GIB[release.family],
        "num_devices": host.num_devices,
        "driver_version": _DRIVERS[accelerator.vendor],
        "architecture": accelerator.architecture,
        "time_scale": pace.time_scale,
        "load_seconds": pace.load_seconds,
        "engine_program": f"{PROGRAMS}/engine",
        "catalogues": f"{PROGRAMS}/catalogues",
        "fabric": {
            "state": "Completed",
            "clique_id": 1,
            "cluster_uuid": "6f3d3c1e-0000-4000-8000-000000000001",
        },
        "super_pod_id": 1,
        "server_index": position,
        "imex_nodes": [other.address for other in plan.hosts],
        **_network(plan, accelerator, world.catalog),
        "images": _images(world, accelerator) if plan.runtime != "native" else [],
        "native_engine": _played(release) if plan.runtime == "native" else None,
    }


def _network(plan: Plan, accelerator: Accelerator, catalog: Catalog) -> dict[str, str]:
    """What carries data between hosts where that is no card that verbs speak to: a platform's own network."""
    if accelerator.fabric_spans_hosts:
        return {}
    own = [each.id for each in catalog.networks() if plan.platform in each.platforms]
    return {"network": own[0]} if own else {}


def _images(world: _World, accelerator: Accelerator) -> list[dict[str, object]]:
    """The images that a host holds: the engine's, and the one that pods with the agent run in."""
    reference, _, digest = world.catalog.plain_image("python").partition("@")
    python: dict[str, object] = {
        "reference": reference,
        "digest": digest,
        "architecture": accelerator.architecture,
        "entrypoint": [],
        "env": {},
        "files": [],
        "programs": {"python3": ["/usr/bin/python3"]},
        "engine": None,
        "engine_version": None,
        "plugin_version": None,
    }
    return [_image(world.plan, accelerator, world.release), python]


def _image(plan: Plan, accelerator: Accelerator, release: Release) -> dict[str, object]:
    """The engine's image as the host holds it; a digest that nobody knows is made from its name."""
    known = [image.digest for image in release.images if image.reference == plan.engine.image]
    made = f"sha256:{hashlib.sha256(plan.engine.image.encode()).hexdigest()}"
    return {
        "reference": plan.engine.image,
        "digest": next(filter(None, known), made),
        "architecture": accelerator.architecture,
        "entrypoint": list(plan.engine.entrypoint),
        "env": {},
        "files": _libraries(plan, release),
        **_played(release),
    }


def _libraries(plan: Plan, release: Release) -> list[str]:
    """The libraries of an image that the loader has to find; an image that the catalogue does not know has all."""
    lacks = [each.network is None for each in release.images if each.reference == plan.engine.image]
    own = _LIBRARIES.get(release.engine, ())
    return [*own, *(() if any(lacks) else EFA_LIBRARIES)]


def _played(release: Release) -> dict[str, object]:
    """Which release the simulated engine plays."""
    is_plugin = release.engine == "vllm-ascend"
    return {
        "engine": release.engine,
        "engine_version": release.base_version if is_plugin else release.version,
        "plugin_version": release.version if is_plugin else None,
    }


def _router_programs(catalog: Catalog) -> Mapping[str, LabFile]:
    """The routers' virtual environments as hosts have them: they start the wheels of this project's own."""
    python = Path(sys.executable).resolve()
    lines = []
    if sys.base_prefix in (lent := lent_python()):
        python = Path(lent[sys.base_prefix]) / "bin" / python.name
        lines.append(f"export LD_LIBRARY_PATH={lent[sys.base_prefix]}/lib")
    packages = Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    lines.append(f"export PYTHONPATH={lent[sys.prefix]}/{packages}")
    files: dict[str, LabFile] = {}
    for name in catalog.ids("routers"):
        release = catalog.router(name)
        if release.package is None:
            continue
        program = release.program[0]
        own = "" if program == "python" else f" {lent[sys.prefix]}/bin/{program}"
        script = "\n".join(["#!/bin/sh", *lines, f'exec {python}{own} "$@"', ""])
        files[f"{ROUTER_ENVIRONMENTS}/{name}-{release.version}/bin/{program}"] = LabFile(
            content=script.encode(), mode=0o755
        )
    return files


def lent_python() -> dict[str, str]:
    """Where hosts have this environment and its Python, with which routers start.

    A router's user reads no one's home, where both may lie on this machine.
    """
    lent = {sys.prefix: f"{PROGRAMS}/environment"}
    if not sys.base_prefix.startswith("/usr"):
        lent[sys.base_prefix] = f"{PROGRAMS}/python"
    return lent


def _binds() -> tuple[Bind, ...]:
    """What this machine lends: the simulated engine, the stand-ins, catalogues, and Python for the routers."""
    rehearsal = Path(engine.__file__).resolve().parents[1]
    shared = {
        str(rehearsal / "engine"): f"{PROGRAMS}/engine",
        str(rehearsal / "standins"): standins.LIBRARY,
        str(rehearsal.parent / "catalog"): f"{PROGRAMS}/catalogues",
        **lent_python(),
    }
    return tuple(Bind(source=source, target=target) for source, target in shared.items())
