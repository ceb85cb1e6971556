"""Whether the running processes have what the plan gives them, and their groups the transport that they should."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.catalog.load import Catalog
from infra.engines.transports import sign_patterns
from infra.launch.deployment import Deployment
from infra.launch.fleet import Report, ask_all, rows_of
from infra.launch.name_lists import clauses
from infra.launch.proof.host_drift import Check
from infra.launch.proof.transport import check_transports
from infra.plan.process import Process
from infra.render.host_paths import unit_name
from infra.render.process_launch import runnable_image

UNLIMITED = -1
# What units and containers are rendered with (render/units.py, render/container.py), by the kernel's names.
WANTED_LIMITS: Mapping[str, int] = {
    "Max locked memory": UNLIMITED,
    "Max open files": 1048576,
    "Max stack size": 67108864,
}
PRELOAD = "LD_PRELOAD"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveProcess:
    """What one running engine has.

    Args:
        pid: of its first process.
        env: value by name, None where the variable is not set.
        limits: soft and hard by the kernel's name; -1 is unlimited.
        libraries: whether each is mapped, by path.
        image: id of its container's image, None without a container.
        named: ids by which its host knows the image that it would be started in now; () where that cannot be told.
        changes: what has been put over its unit, in words.
        lines: logged lines that tell a transport.
        stopped: ids of its processes that a signal has stopped.
        is_silent: the kernel does not let its memory be read, so that environment and libraries are not known.
    """

    pid: int
    env: Mapping[str, str | None]
    limits: Mapping[str, Sequence[int]]
    libraries: Mapping[str, bool]
    image: str | None
    named: tuple[str, ...]
    changes: tuple[str, ...]
    lines: tuple[str, ...]
    stopped: tuple[int, ...]
    is_silent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """Every engine that runs, by process id.

    Args:
        processes: what it has.
        ceilings: the most that its host lets root give, by the kernel's names; {} where that is everything.
    """

    processes: Mapping[str, LiveProcess]
    ceilings: Mapping[str, Mapping[str, int]]


def read_live(deployment: Deployment) -> Live:
    """What running engines have.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    plan = deployment.plan
    image = {"runtime": plan.runtime, "reference": runnable_image(plan.engine.image)}
    shared: dict[str, object] = {"operation": "live", "signs": sign_patterns()}
    if plan.runtime != "native":
        shared = {**shared, "image": image}
    requests = {
        host: {**shared, "processes": rows} for host, rows in _questions(deployment).items()
    }
    reports = ask_all(deployment.fleet, requests, timeout_s=deployment.limits.ask_s)
    processes: dict[str, LiveProcess] = {}
    ceilings: dict[str, Mapping[str, int]] = {}
    for report in reports.values():
        for name, has in _read(report).items():
            processes[name] = has
            ceilings[name] = _ceiling(report)
    return Live(processes=processes, ceilings=ceilings)


def frozen_processes(deployment: Deployment, live: Live) -> list[Check]:
    """A failed check for each running engine that does nothing, though its port is open."""
    return [
        Check(
            process=process.id,
            check="running",
            ok=False,
            detail=why,
            is_drift=False,
            mend="restart",
        )
        for process in deployment.engines()
        if process.id in live.processes
        and (why := _why_frozen(process, live.processes[process.id]))
    ]


def check_processes(deployment: Deployment, catalog: Catalog, live: Live) -> list[Check]:
    """A check per running engine and subject; what does not run is another check's business."""
    running = [process for process in deployment.engines() if process.id in live.processes]
    checks: list[Check] = []
    for process in running:
        found = live.processes[process.id]
        if not found.is_silent:
            checks.append(_check(process, "environment", env_problem(process, found)))
        problem = limits_problem(found.limits, live.ceilings[process.id])
        checks.append(_check(process, "limits", problem))
        checks.append(_check(process, "unit", "; ".join(found.changes) or None))
        if PRELOAD in process.env_prepend and not found.is_silent:
            checks.append(_check(process, "preload", preload_problem(process, found)))
    lines = {process.id: live.processes[process.id].lines for process in running}
    checks += check_transports(deployment.plan, catalog, lines)
    return checks + image_checks(deployment, running, live.processes)


def env_problem(process: Process, found: LiveProcess) -> str | None:
    """Which variables of the plan the process does not have; None when it has all."""
    wrong = [
        f"{name} is {_said(found.env.get(name))}, planned {value}"
        for name, value in process.env.items()
        if found.env.get(name) not in (value, "***")
    ]
    wrong += [
        f"{name} is {_said(found.env.get(name))}, planned to begin with {value}"
        for name, value in process.env_prepend.items()
        if name != PRELOAD and not str(found.env.get(name) or "").startswith(value)
    ]
    return clauses(wrong) or None


def limits_problem(limits: Mapping[str, Sequence[int]], ceiling: Mapping[str, int]) -> str | None:
    """Which limits are below what units and containers are rendered with; None when none is.

    Args:
        limits: soft and hard of the running process.
        ceiling: the most that this host lets root give; {} where that is everything.
    """
    wrong = []
    for name, planned in WANTED_LIMITS.items():
        wanted = _lower(planned, ceiling.get(name, UNLIMITED))
        soft = limits[name][0] if name in limits else 0
        if _lower(soft, wanted) != wanted:
            wrong.append(f"{name} is {soft}, wanted {_limit_words(wanted)}")
    return "; ".join(wrong) or None


def preload_problem(process: Process, found: LiveProcess) -> str | None:
    """Which library of LD_PRELOAD is not in the process's memory; None when all are."""
    missing = [path for path in _libraries(process) if not found.libraries.get(path)]
    return f"{', '.join(missing)} is not mapped: it is missing in the image" if missing else None


def image_checks(
    deployment: Deployment, running: Sequence[Process], live: Mapping[str, LiveProcess]
) -> list[Check]:
    """Whether all engines of one kind of accelerator run in the same image."""
    kinds = {host.name: host.accelerator for host in deployment.plan.hosts}
    checks: list[Check] = []
    for kind in dict.fromkeys(kinds[process.host] for process in running):
        own = [p for p in running if kinds[p.host] == kind and live[p.id].image is not None]
        if not own:
            continue
        counts = Counter(live[process.id].image for process in own)
        usual = counts.most_common(1)[0][0]
        for process in own:
            has = live[process.id]
            checks.append(_check(process, "image", image_problem(has, usual), f"{has.image}"))
    return checks


def image_problem(has: LiveProcess, usual: str | None) -> str | None:
    """Why a process runs in another image than it should; None when it does not."""
    if has.named and has.image not in has.named:
        return f"it runs in {has.image}, and its host has {has.named[0]} under that name since"
    return None if has.image == usual else f"it runs in {has.image}, most others in {usual}"


def _why_frozen(process: Process, found: LiveProcess) -> str:
    """Why it does nothing, "" where nothing tells that it does not."""
    if found.stopped:
        pids = " ".join(map(str, found.stopped))
        return (
            f"process {pids} of it is stopped (SIGSTOP): `ssh {process.host} sudo kill -CONT {pids}`, "
            "or restart its group"
        )
    if found.is_silent:
        return (
            f"process {found.pid} of it waits in the kernel, which does not let its memory be read: "
            f"`ssh {process.host} sudo cat /proc/{found.pid}/stack` says for what; restart its group, or reboot "
            "where that does not end it"
        )
    return ""


def _questions(deployment: Deployment) -> dict[str, list[dict[str, object]]]:
    questions: dict[str, list[dict[str, object]]] = {}
    for process in deployment.engines():
        row: dict[str, object] = {
            "id": process.id,
            "unit": unit_name(deployment.plan.stack, process),
            "names": [*process.env, *process.env_prepend],
            "libraries": _libraries(process),
        }
        questions.setdefault(process.host, []).append(row)
    return questions


def _libraries(process: Process) -> list[str]:
    return [path for path in process.env_prepend.get(PRELOAD, "").split(":") if path]


def _read(report: Report) -> dict[str, LiveProcess]:
    """The processes that run, by id."""
    found: dict[str, LiveProcess] = {}
    for row in rows_of(report, "processes"):
        env, limits, libraries = (row.get(key) for key in ("env", "limits", "libraries"))
        if row.get("pid") is None or not isinstance(env, Mapping):
            continue
        found[str(row["id"])] = LiveProcess(
            pid=int(str(row["pid"])),
            env={str(k): None if v is None else str(v) for k, v in env.items()},
            limits=limits if isinstance(limits, Mapping) else {},
            libraries=libraries if isinstance(libraries, Mapping) else {},
            image=None if row.get("image") is None else str(row["image"]),
            named=_texts(report.get("image_ids")),
            changes=_texts(row.get("changes")),
            lines=_texts(row.get("lines")),
            stopped=tuple(map(int, _texts(row.get("stopped")))),
            is_silent=row.get("is_silent") is True,
        )
    return found


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _ceiling(report: Report) -> Mapping[str, int]:
    ceiling = report.get("ceiling")
    return ceiling if isinstance(ceiling, Mapping) else {}


def _check(process: Process, subject: str, problem: str | None, fine: str = "as planned") -> Check:
    return Check(
        process=process.id,
        check=subject,
        ok=problem is None,
        detail=problem or fine,
        is_drift=True,
    )


def _lower(first: int, second: int) -> int:
    """The lower of two limits."""
    if UNLIMITED in (first, second):
        return max(first, second)
    return min(first, second)


def _limit_words(limit: int) -> str:
    return "unlimited" if limit == UNLIMITED else str(limit)


def _said(value: str | None) -> str:
    return "not set" if value is None else value
