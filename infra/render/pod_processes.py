"""What the launcher of each pod is told: the plan's own argument vectors and variables, by group and worker index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from infra.catalog.load import Catalog
from infra.catalog.router_release import RouterRelease
from infra.engines.credentials import credentials_of
from infra.engines.serving import (
    COMPLETIONS,
    HEALTH,
    completion,
    prefill_part,
    rank_fields,
    rank_headers,
)
from infra.inventory.pods import OWN_ADDRESS, ROUTER_HOST
from infra.plan.endpoints import Endpoints, RankEndpoint
from infra.plan.process import Plan, Process
from infra.render.compile_cache import cache_variables
from infra.render.host_paths import ROUTER_ENVIRONMENTS
from infra.render.launch_script import prepend_wrapper

SCHEMA_VERSION = 1
# What engines get of a pod's grace period, and what the kubelet waits beyond it.
STOP_S = 100
GRACE_S = 120
# Peers' pods may have to be scheduled and their images pulled first.
WAIT_S = 3600
PROOF_TOKENS = 4

Document = dict[str, object]


def group_hosts(plan: Plan, group: str) -> tuple[str, ...]:
    """The hosts of a group in rank order: the index of a pod is a place in it."""
    return tuple(dict.fromkeys(p.host for p in plan.processes if p.group == group))


def groups_document(
    plan: Plan, groups: Sequence[str], endpoints: Endpoints, catalog: Catalog, *, is_unit: bool
) -> Document:
    """All processes of groups of one size, by group and by host in rank order.

    Args:
        plan: whose processes they are.
        groups: of one set, in the order of its replicas.
        endpoints: of the plan.
        catalog: where engines keep what they compile.
        is_unit: whether the hosts' names are services that may still lead to an older revision.
    """
    by_group = [group_hosts(plan, group) for group in groups]
    return {
        "schema_version": SCHEMA_VERSION,
        "group": ", ".join(groups),
        "group_size": len(by_group[0]),
        "stop_s": STOP_S,
        "wait_s": WAIT_S,
        "urls": [],
        "hosts": [
            {
                "name": host,
                "awaits": [
                    {"name": plan.host(peer).address, **({"worker": index} if is_unit else {})}
                    for index, peer in enumerate(hosts)
                ],
                "processes": [
                    _row(
                        plan,
                        replace(
                            process, env={**process.env, **cache_variables(plan, process, catalog)}
                        ),
                        endpoints,
                        plan.engine.name,
                    )
                    for process in plan.on_host(host)
                ],
            }
            for hosts in by_group
            for host in hosts
        ],
    }


def router_document(
    plan: Plan, router: Process, endpoints: Endpoints, release: RouterRelease
) -> Document:
    """The router of that release, which starts when every endpoint is healthy."""
    urls = dict.fromkeys(rank.url + HEALTH for rank in endpoints.ranks)
    folder = router_environment(release)
    path = {"PATH": f"{folder}/bin"} if folder else {}
    row = {
        **_row(plan, router, endpoints, release.id),
        "wrapper": prepend_wrapper({**path, **router.env_prepend}),
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "group": router.group,
        "group_size": 1,
        "stop_s": STOP_S,
        "wait_s": WAIT_S,
        "urls": list(urls),
        "hosts": [{"name": ROUTER_HOST, "awaits": [], "processes": [row]}],
    }


def router_environment(release: RouterRelease) -> str | None:
    """The virtual environment of a router that is a wheel, None for one that the engine's image has."""
    if release.package is None:
        return None
    return f"{ROUTER_ENVIRONMENTS}/{release.id}-{release.version}"


def as_told(text: str) -> str:
    """A word as the launcher reads it: `$` means itself, but in the pod's own address."""
    return text.replace("$", "$$").replace("$" + OWN_ADDRESS, OWN_ADDRESS)


def _row(plan: Plan, process: Process, endpoints: Endpoints, program: str) -> Document:
    return {
        "id": process.id,
        "wrapper": prepend_wrapper(process.env_prepend),
        "argv": [as_told(word) for word in process.argv],
        "env": {name: as_told(value) for name, value in process.env.items()},
        "health": list(_health(process)),
        "proof": list(_proof(plan, process, endpoints, program)),
    }


def _health(process: Process) -> Iterable[Document]:
    """Every endpoint of a process; a router's own health says little, and each has another path for it."""
    if process.kind == "engine" and process.endpoint is not None:
        for port in _http_ports(process):
            yield {"port": port, "path": HEALTH}


def _proof(plan: Plan, process: Process, endpoints: Endpoints, program: str) -> Iterable[Document]:
    """The requests that make each rank behind a process generate a token, where one pod alone can ask.

    A decode rank of a disaggregated deployment is never asked without a prefill rank (`infra/launch/proof/rank.py`):
    the router's own proof goes through both. Nor is a prefill rank whose transfer must be announced to both sides.
    """
    names = [c.variable for c in credentials_of(program, plan.secrets)]
    key = {"key_variable": next((n for n in names if n.endswith("_KEY")), "")}
    if process.kind == "router":
        body: Mapping[str, object] = completion(endpoints.model, max_tokens=PROOF_TOKENS)
        yield {"port": _http_ports(process)[0], "path": COMPLETIONS, "body": dict(body), **key}
        return
    if process.role == "decode" or endpoints.handover not in {"none", "answer"}:
        return
    for rank in (rank for rank in endpoints.ranks if rank.server == process.id):
        yield {**_question(rank, endpoints), **key}


def _question(rank: RankEndpoint, endpoints: Endpoints) -> Document:
    body: Mapping[str, object] = {
        **completion(rank.model, max_tokens=PROOF_TOKENS),
        **rank_fields(endpoints.engine, rank.index),
    }
    if rank.role == "prefill":
        body = prefill_part(body, None)
    return {
        "port": int(rank.url.rpartition(":")[2]),
        "path": COMPLETIONS,
        "headers": rank_headers(rank.index),
        "body": dict(body),
    }


def _http_ports(process: Process) -> Sequence[int]:
    bind = next(bind for bind in process.binds if bind.name == "http")
    return range(bind.port, bind.port + bind.count)
