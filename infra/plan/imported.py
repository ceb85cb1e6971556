"""A plan document read back: `--plan FILE`, hand-edited or imported."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infra.catalog.schema import Mount
from infra.engines.capabilities import CAPABILITIES
from infra.engines.haproxy import START, START_IN_POD
from infra.engines.reading import Bind
from infra.errors import Problem, ProblemsFound
from infra.plan.document import SCHEMA_VERSION
from infra.plan.gate import MAX_TOLD, misfits
from infra.plan.grammar import field_of, shown
from infra.plan.process import (
    Connect,
    Firewall,
    Plan,
    PlanEdge,
    PlanEngine,
    PlanHost,
    Process,
    ProcessKind,
)
from infra.spec.bounded import read_json
from infra.spec.edge import EdgeName, RequestPath
from infra.spec.stack import EngineName, Network, Platform, Runtime
from infra.spec.text_file import read_bytes

MAX_BYTES = 50_000_000


class _Row(BaseModel):
    """A map of the document: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class _Engine(_Row):
    name: EngineName
    version: str
    image: str
    entrypoint: tuple[str, ...]


class _Weights(_Row):
    path: str


class _Host(_Row):
    name: str
    roles: tuple[str, ...]
    address: str
    accelerator: str
    num_devices: int = Field(ge=0)
    networks: tuple[Literal["efa"], ...] = ()


class _Bind(_Row):
    name: str
    port: int
    count: int = Field(ge=1)


class _Connect(_Row):
    name: str
    to: str
    port: int


class _Process(_Row):
    id: str
    kind: ProcessKind
    group: str
    host: str
    role: str
    replica: int
    dp_ranks: tuple[int, ...]
    devices: tuple[int, ...]
    endpoint: str | None
    binds: tuple[_Bind, ...]
    connects: tuple[_Connect, ...]
    env: dict[str, str]
    env_prepend: dict[str, str]
    mounts: tuple[Mount, ...]
    argv: tuple[str, ...] = Field(min_length=1)


class _Firewall(_Row):
    clients: tuple[Network, ...]
    monitors: tuple[Network, ...]


class _Edge(_Row):
    name: EdgeName
    tls: Literal["given", "none", "unsaid"]
    allow: tuple[RequestPath, ...] = Field(min_length=1)
    connections_per_address: int = Field(ge=1)
    connections_per_key: int = Field(ge=1)


class _Plan(_Row):
    schema_version: Literal[1]
    stack: str
    hash: str
    model: str
    checkpoint: str
    platform: Platform
    runtime: Runtime
    tuning: str
    engine: _Engine
    weights: _Weights
    secrets: dict[str, dict[str, str]]
    hosts: tuple[_Host, ...]
    processes: tuple[_Process, ...]
    capabilities: tuple[str, ...]
    firewall: _Firewall | None = None
    edge: _Edge | None = None


def read_plan(path: Path) -> Plan:
    """The plan of a document file. Its `hash` is kept as written.

    Raises:
        ProblemsFound: the file cannot be read, is no plan document, or names a host that it does not have.
    """
    file = str(path)
    try:
        text = read_bytes(path, MAX_BYTES).decode("utf-8")
        document = read_json(text)
    except OSError as error:
        raise ProblemsFound(
            (_problem(file, "", f"The plan cannot be read: {error.strerror}."),)
        ) from error
    except (ValueError, RecursionError) as error:
        raise ProblemsFound((_problem(file, "", f"The plan is not JSON: {error}."),)) from error
    return parse_plan(document, file)


def parse_plan(document: object, file: str) -> Plan:
    """The plan of a document; see `read_plan`."""
    if isinstance(document, Mapping) and document.get("schema_version") != SCHEMA_VERSION:
        given = shown(str(document.get("schema_version")))
        what = f"schema_version is {given}; this program reads {SCHEMA_VERSION}."
        raise ProblemsFound((_problem(file, "schema_version", what),))
    try:
        read = _Plan.model_validate(document)
    except ValidationError as error:
        raise ProblemsFound(
            tuple(
                _problem(file, field_of(detail["loc"]), f"{detail['msg']}.")
                for detail in error.errors(include_url=False, include_input=False)[:MAX_TOLD]
            )
        ) from error
    plan = Plan(
        stack=read.stack,
        hash=read.hash,
        model=read.model,
        checkpoint=read.checkpoint,
        platform=read.platform,
        runtime=read.runtime,
        tuning=read.tuning,
        engine=PlanEngine(
            name=read.engine.name,
            version=read.engine.version,
            image=read.engine.image,
            entrypoint=read.engine.entrypoint,
        ),
        weights_path=read.weights.path,
        secrets=read.secrets,
        hosts=tuple(PlanHost(**host.model_dump()) for host in read.hosts),
        processes=tuple(_process(process) for process in read.processes),
        capabilities=read.capabilities,
        firewall=Firewall(**read.firewall.model_dump()) if read.firewall else None,
        edge=None if read.edge is None else PlanEdge(**read.edge.model_dump()),
    )
    if wrong := misfits(plan):
        raise ProblemsFound(tuple(_problem(file, m.field, m.what, m.fix) for m in wrong))
    if problems := _inconsistent(read, file):
        raise ProblemsFound(problems)
    return plan


def _inconsistent(read: _Plan, file: str) -> tuple[Problem, ...]:
    """Names that nothing else of the document can be told by."""
    known = {host.name for host in read.hosts}
    found = []
    if strange := [name for name in read.capabilities if name not in CAPABILITIES]:
        what = f"{', '.join(map(shown, strange[:MAX_TOLD]))} is no capability."
        found.append(_problem(file, "capabilities", what, f"Use {', '.join(CAPABILITIES)}."))
    for process in read.processes:
        if process.host in known and not _is_own_id(process):
            of = f"{process.host if process.kind == 'engine' else process.kind}/0"
            what = f"{process.id!r} is no id of such a process on {process.host}."
            found.append(_problem(file, "processes", what, f"Write HOST/INDEX: {of}."))
    found += _edge_problems(read, file)
    if not any(process.kind == "engine" for process in read.processes):
        found.append(_problem(file, "processes", "The plan has no engine process."))
    if strays := [process.id for process in read.processes if process.host not in known]:
        what = f"{', '.join(strays[:MAX_TOLD])} name a host that is not there."
        found.append(_problem(file, "processes", what))
    names: list[tuple[str, list[str]]] = [
        ("hosts", [host.name for host in read.hosts]),
        ("processes", [process.id for process in read.processes]),
    ]
    for field, listed in names:
        if twice := [name for name, times in Counter(listed).items() if times > 1]:
            found.append(_problem(file, field, f"{', '.join(twice[:MAX_TOLD])} written twice."))
    return tuple(found)


def _edge_problems(read: _Plan, file: str) -> Iterator[Problem]:
    """An edge is one process, and dials one that serves HTTP."""
    edges = [process for process in read.processes if process.kind == "edge"]
    if len(edges) != (read.edge is not None):
        what = f"`edge` says {'nothing' if read.edge is None else 'what one lets through'}; {len(edges)} run."
        yield _problem(file, "edge", what, "Write one process of the kind edge, and `edge`.")
    serving = {process.id for process in read.processes if process.endpoint is not None}
    for process in edges:
        dialled = [connect.to for connect in process.connects]
        if len(dialled) != 1 or dialled[0] not in serving - {process.id}:
            named = shown(", ".join(dialled))
            what = (
                f"{process.id} connects to {named}: it stands before one process with an endpoint."
            )
            yield _problem(file, "processes", what, "Name one: router/0, or the only endpoint.")
        if process.argv not in (START, START_IN_POD):
            what = f"{process.id} runs another command than {' '.join(START)}."
            yield _problem(file, "processes", what)
        if [bind.name for bind in process.binds] != ["http"] or process.endpoint is None:
            what = f"{process.id} has an endpoint and binds `http` alone."
            yield _problem(file, "processes", what)


def _is_own_id(process: _Process) -> bool:
    """Whether an id names the process's host and its number there, which its folder and unit are called after."""
    place, _, index = process.id.rpartition("/")
    named = process.host if process.kind == "engine" else process.kind
    return place == named and re.fullmatch(r"0|[1-9][0-9]{0,5}", index) is not None


def _process(read: _Process) -> Process:
    return Process(
        id=read.id,
        kind=read.kind,
        group=read.group,
        host=read.host,
        role=read.role,
        replica=read.replica,
        dp_ranks=read.dp_ranks,
        devices=read.devices,
        endpoint=read.endpoint,
        binds=tuple(Bind(name=bind.name, port=bind.port, count=bind.count) for bind in read.binds),
        connects=tuple(Connect(name=c.name, to=c.to, port=c.port) for c in read.connects),
        env=read.env,
        env_prepend=read.env_prepend,
        mounts=read.mounts,
        argv=read.argv,
        flag_origins={},
        env_origins={},
    )


def _problem(
    file: str, field: str, what: str, fix: str = "Write one with `fab plan --json --stack NAME`."
) -> Problem:
    return Problem(
        rule="plan-document", severity="error", field=field, what=what, fix=fix, file=file
    )
