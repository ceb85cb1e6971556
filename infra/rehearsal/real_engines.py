"""Real engines on simulated hosts: for hosts whose accelerator is this machine's own processors, nothing stands in.

`scripts/install-cpu-engine` puts the engine into this user's cache; hosts get it lent, where production looks for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.catalog.load import Catalog
from infra.engines.serving import METRICS
from infra.errors import NotReady, PrerequisiteError
from infra.plan.process import Plan
from infra.rehearsal.installed import cache_folder, checksum
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.hosts import Bind
from infra.render.host_paths import ENGINE_ENVIRONMENTS
from infra.spec.load import PROJECT

ENGINE, VERSION = "vllm", "0.22.1"
INSTALLER = "scripts/install-cpu-engine"
# The installer writes the checksum of its pins to it, last: without it the environment is not whole.
STAMP = ".moe-infra-installed"
PINS = PROJECT / "scripts" / "cpu-engine" / "requirements.txt"
# Counters of vllm 0.22.1: v1/metrics/loggers.py, kv_connector/v1/nixl/metrics.py.
ANSWERED = "vllm:request_success_total"
TRANSFERS = "vllm:nixl_xfer_time_seconds_count"
OK_STATUS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the engines' own counters tell.

    Args:
        answered: role → the process of that role that has answered requests (of several, the last of the plan).
        transfers: KV caches that decode ranks have fetched over NIXL.
    """

    answered: Mapping[str, str]
    transfers: int


def has_real_engines(plan: Plan, catalog: Catalog) -> bool:
    """Whether the engines of a plan run on processors, and so really run in a rehearsal."""
    return are_processors([host.accelerator for host in plan.hosts], catalog)


def are_processors(accelerators: Iterable[str], catalog: Catalog) -> bool:
    """Whether any of these ids of accelerators stands for a host's own processors."""
    known = catalog.ids("accelerators")
    return any(name in known and catalog.accelerator(name).vendor == "cpu" for name in accelerators)


def engine_environment(plan: Plan) -> Path:
    """The folder of the installed engine that a plan asks for.

    Raises:
        PrerequisiteError: it is not installed, or the plan asks for something else.
    """
    wanted = f"{plan.engine.name} {plan.engine.version}"
    if (plan.engine.name, plan.engine.version, plan.runtime) != (ENGINE, VERSION, "native"):
        what = f"On processors {ENGINE} {VERSION} is rehearsed, without a container, not {wanted} with {plan.runtime}."
        raise PrerequisiteError(plan.stack, what, "Name that release, and `runtime: native`.")
    return installed_engine(os.environ)


def installed_engine(environ: Mapping[str, str], pins: Path = PINS) -> Path:
    """The folder of the installed engine.

    Args:
        environ: says where the cache is.
        pins: the requirements that it has to be installed from.

    Raises:
        PrerequisiteError: it is not installed, or from other requirements.
    """
    folder = cache_folder(environ) / f"cpu-engine-{VERSION}"
    stamp = folder / STAMP
    if not stamp.is_file():
        what = (
            f"It does not hold the real {ENGINE} {VERSION} that runs on this machine's processors."
        )
        raise PrerequisiteError(str(folder), what, f"Run {INSTALLER} first; it says what it needs.")
    if stamp.read_text(encoding="utf-8").strip() != checksum((pins,)):
        what = f"It was installed from other packages than scripts/cpu-engine/{pins.name} pins now."
        raise PrerequisiteError(str(folder), what, f"Run {INSTALLER} again: it renews it.")
    return folder


def engine_binds(plan: Plan) -> tuple[Bind, ...]:
    """What a host is lent: the environment where launch scripts look and where it was made, and its Python.

    Raises:
        PrerequisiteError: the engine is not installed.
    """
    folder = engine_environment(plan)
    python = (folder / "bin" / "python").resolve().parents[1]
    targets = {
        f"{ENGINE_ENVIRONMENTS}/{ENGINE}-{VERSION}": folder,
        str(folder): folder,  # its programs' first lines name it
    }
    if not python.is_relative_to("/usr"):
        targets[str(python)] = python
    return tuple(Bind(source=str(source), target=target) for target, source in targets.items())


def look(lab: Lab, plan: Plan) -> Seen:
    """Ask every engine's metrics what it has done.

    Raises:
        NotReady: a role has answered nothing, or no KV cache has moved between prefill and decode.
    """
    answered: dict[str, str] = {}
    transfers = 0
    for process in plan.processes:
        ports = [bind.port for bind in process.binds if bind.name == "http"]
        if process.kind != "engine" or not ports:
            continue
        text = _metrics(lab, process.host, ports[0])
        if total(text, ANSWERED):
            answered[process.role] = process.id
        if process.role == "decode":
            transfers += int(total(text, TRANSFERS))
    roles = {process.role for process in plan.processes if process.kind == "engine"}
    if silent := roles - set(answered):
        raise NotReady(", ".join(sorted(silent)), "No engine of it has answered a request.", _FIX)
    if "decode" in roles and not transfers:
        raise NotReady("decode", f"No KV cache was fetched: {TRANSFERS} counts none.", _FIX)
    return Seen(answered=answered, transfers=transfers)


def total(metrics: str, name: str) -> float:
    """The sum of a metric over its labels, by the text of `/metrics`; 0 where it is not there."""
    pattern = re.compile(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", re.MULTILINE)
    return sum(float(value) for value in pattern.findall(metrics))


_FIX = "With --keep the hosts stay: `fab logs` shows what the engines say."


def _metrics(lab: Lab, host: str, port: int) -> str:
    connection = lab.http(host, port)
    try:
        connection.request("GET", METRICS)
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    return text if answer.status == OK_STATUS else ""
