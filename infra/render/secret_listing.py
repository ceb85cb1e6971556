"""The secrets of a plan for people: by name, where each is read, where it goes, and who takes it there; no value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.catalog.load import Catalog
from infra.engines.credentials import Credential, credentials_of
from infra.plan.edge import KEYS
from infra.plan.process import Plan, Process
from infra.render.edge_files import edge_credentials
from infra.render.host_paths import credential_path
from infra.render.pod_objects import secret_name
from infra.render.process_launch import router_release
from infra.spec.stack import KUBERNETES
from infra.spec.weights_source import HUB_SECRETS

HEAD = "secrets    (values stand in no plan; a task reads them on this machine when it needs them)"
# Of the stack's secrets, what `stage-weights` sends with its requests: no file on a host holds it for that.
STAGED = tuple(HUB_SECRETS.values())


def secret_listing(plan: Plan, catalog: Catalog) -> str:
    """A paragraph for each secret; "" for a plan without any."""
    if not plan.secrets:
        return ""
    lines = [HEAD]
    for name, reference in sorted(plan.secrets.items()):
        lines.append(f"  {name}: {_source(reference)}")
        takers = dict(_takers(plan, catalog, name))
        if takers:
            lines.append(f"    goes to {_place(plan, name)} on {', '.join(_hosts(plan, takers))}")
            lines += [f"    {_taken(credential, ids)}" for credential, ids in _by_way(takers)]
        if name in STAGED:
            lines.append(
                "    goes to hosts with the requests of `fab stage-weights` to a hub, and is not kept"
            )
        elif not takers:
            lines.append("    no program of this plan takes it: it stays on this machine")
    return "\n".join(lines) + "\n"


def _source(reference: Mapping[str, str]) -> str:
    if "env" in reference:
        return f"from the variable {reference['env']}"
    return f"from the file {reference.get('file', '?')}"


def _place(plan: Plan, name: str) -> str:
    if plan.platform in KUBERNETES:
        return f"key {name} of the Secret {secret_name(plan.stack)}, for pods"
    digest = ", as SHA-256 digests" if name == KEYS else ""
    return f"{credential_path(plan.stack, name)} (root's, 0600{digest})"


def _takers(plan: Plan, catalog: Catalog, name: str) -> Iterator[tuple[str, Credential]]:
    """Processes that take a secret, and how."""
    for process in plan.processes:
        for credential in _credentials(plan, process, catalog):
            if credential.name == name:
                yield process.id, credential


def _credentials(plan: Plan, process: Process, catalog: Catalog) -> tuple[Credential, ...]:
    if process.kind == "edge":
        return edge_credentials(plan)
    release = router_release(process, catalog) if process.kind == "router" else None
    return credentials_of(release.id if release else plan.engine.name, plan.secrets)


def _hosts(plan: Plan, takers: Mapping[str, Credential]) -> list[str]:
    return list(dict.fromkeys(p.host for p in plan.processes if p.id in takers))


def _by_way(takers: Mapping[str, Credential]) -> Iterator[tuple[Credential, list[str]]]:
    """Each way in which it is taken, and the processes that do so."""
    for credential in dict.fromkeys(takers.values()):
        yield credential, [process for process, each in takers.items() if each == credential]


def _taken(credential: Credential, processes: list[str]) -> str:
    """How processes take it."""
    named = f"{processes[0]} and {len(processes) - 1} more" if processes[1:] else processes[0]
    if credential.holds == "file":
        return f"{named}: reads the file"
    holds = "holds it" if credential.holds == "value" else "names its file"
    return f"{named}: its variable {credential.variable} {holds}, inside the process alone"
