"""The plan as the JSON document of `fab plan --json`, and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from itertools import starmap
from json.encoder import encode_basestring

from infra.catalog.schema import Mount
from infra.plan.process import Plan, Process

SCHEMA_VERSION = 1


def plan_document(plan: Plan) -> dict[str, object]:
    """The contract with every other tool: keys as in the design, in its order; `edge` where there is one."""
    document: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "stack": plan.stack,
        "hash": plan.hash,
        "model": plan.model,
        "checkpoint": plan.checkpoint,
        "platform": plan.platform,
        "runtime": plan.runtime,
        "tuning": plan.tuning,
        "engine": {
            "name": plan.engine.name,
            "version": plan.engine.version,
            "image": plan.engine.image,
            "entrypoint": list(plan.engine.entrypoint),
        },
        "weights": {"path": plan.weights_path},
        "secrets": {name: dict(reference) for name, reference in plan.secrets.items()},
        "hosts": [
            {
                "name": host.name,
                "roles": list(host.roles),
                "address": host.address,
                "accelerator": host.accelerator,
                "num_devices": host.num_devices,
                # left out where there are none: by themselves they move no hash
                **({"networks": list(host.networks)} if host.networks else {}),
            }
            for host in plan.hosts
        ],
        "processes": [process_document(process) for process in plan.processes],
        "capabilities": list(plan.capabilities),
        **_firewall_document(plan),
    }
    if plan.edge is not None:
        document["edge"] = {**asdict(plan.edge), "allow": list(plan.edge.allow)}
    return document


def _firewall_document(plan: Plan) -> dict[str, object]:
    """Left out where there is none, as `edge` and a host's `networks` are: by itself it moves no hash."""
    if plan.firewall is None:
        return {}
    allowed = {"clients": list(plan.firewall.clients), "monitors": list(plan.firewall.monitors)}
    return {"firewall": allowed}


def process_document(process: Process) -> dict[str, object]:
    """One row of `processes`; every key is always there."""
    return {
        "id": process.id,
        "kind": process.kind,
        "group": process.group,
        "host": process.host,
        "role": process.role,
        "replica": process.replica,
        "dp_ranks": list(process.dp_ranks),
        "devices": list(process.devices),
        "endpoint": process.endpoint,
        "binds": [
            {"name": bind.name, "port": bind.port, "count": bind.count} for bind in process.binds
        ],
        "connects": [{"name": c.name, "to": c.to, "port": c.port} for c in process.connects],
        "env": dict(process.env),
        "env_prepend": dict(process.env_prepend),
        "mounts": [
            {"source": mount.source, "target": mount.target, "read_only": mount.read_only}
            for mount in process.mounts
        ],
        "argv": list(process.argv),
    }


def plan_hash(plan: Plan) -> str:
    """SHA-256 of the canonical document without `hash`, addresses included: sorted keys, no spaces, UTF-8.

    Of secrets the names count alone: where an operator keeps them makes no other release.
    """
    digest = hashlib.sha256()
    for piece in _canonical(plan):
        digest.update(piece.encode())
    return digest.hexdigest()


def _canonical(plan: Plan) -> Iterator[str]:
    """The text of the canonical document in pieces, one per process: of a large plan it has tens of megabytes."""
    named: dict[str, dict[str, str]] = {name: {} for name in plan.secrets}
    document = plan_document(replace(plan, processes=(), secrets=named))
    opening = "{"
    for name in sorted(document.keys() - {"hash"}):
        yield f'{opening}"{name}":'
        if name == "processes":
            for index, process in enumerate(plan.processes):
                yield f"{',' if index else '['}{_canonical_process(process)}"
            yield "]" if plan.processes else "[]"
        else:
            yield json.dumps(
                document[name], sort_keys=True, separators=(",", ":"), ensure_ascii=False
            )
        opening = ","
    yield "}"


def _canonical_process(process: Process) -> str:
    """`process_document` as canonical text. Ranks share nearly all words, and each is quoted once."""
    binds = ",".join(
        f'{{"count":{bind.count},"name":{_quoted(bind.name)},"port":{bind.port}}}'
        for bind in process.binds
    )
    connects = ",".join(
        f'{{"name":{_quoted(each.name)},"port":{each.port},"to":{_quoted(each.to)}}}'
        for each in process.connects
    )
    return (
        f'{{"argv":[{",".join(map(_quoted, process.argv))}]'
        f',"binds":[{binds}]'
        f',"connects":[{connects}]'
        f',"devices":[{",".join(map(str, process.devices))}]'
        f',"dp_ranks":[{",".join(map(str, process.dp_ranks))}]'
        f',"endpoint":{"null" if process.endpoint is None else _quoted(process.endpoint)}'
        f',"env":{_canonical_map(process.env)}'
        f',"env_prepend":{_canonical_map(process.env_prepend)}'
        f',"group":{_quoted(process.group)}'
        f',"host":{_quoted(process.host)}'
        f',"id":{_quoted(process.id)}'
        f',"kind":{_quoted(process.kind)}'
        f',"mounts":[{",".join(map(_canonical_mount, process.mounts))}]'
        f',"replica":{process.replica}'
        f',"role":{_quoted(process.role)}}}'
    )


def _canonical_mount(mount: Mount) -> str:
    read_only = "true" if mount.read_only else "false"
    source, target = _quoted(mount.source), _quoted(mount.target)
    return f'{{"read_only":{read_only},"source":{source},"target":{target}}}'


def _canonical_map(values: Mapping[str, str]) -> str:
    return f"{{{','.join(starmap(_member, sorted(values.items())))}}}"


@lru_cache(maxsize=65536)
def _member(name: str, value: str) -> str:
    return f"{encode_basestring(name)}:{encode_basestring(value)}"


@lru_cache(maxsize=65536)
def _quoted(text: str) -> str:
    return encode_basestring(text)
