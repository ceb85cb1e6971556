"""The plan as the JSON document of `fab plan --json`, and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from infra.plan.process import Plan, Process

SCHEMA_VERSION = 1


def plan_document(plan: Plan) -> dict[str, object]:
    """The contract with every other tool: keys as in the design, in its order."""
    return {
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
            }
            for host in plan.hosts
        ],
        "processes": [process_document(process) for process in plan.processes],
        "capabilities": list(plan.capabilities),
    }


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
    """SHA-256 of the canonical document without `hash`, addresses included."""
    document = plan_document(plan)
    del document["hash"]
    return document_hash(document)


def document_hash(document: Mapping[str, object]) -> str:
    """SHA-256 of a document: sorted keys, no spaces, UTF-8."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
