"""The rule about the names under which a deployment serves its model."""

from __future__ import annotations

from collections.abc import Iterator

from infra.checks.view import Finding, PlanView
from infra.plan.process import Process


def served_names_shared(view: PlanView) -> Iterator[Finding]:
    """All ranks of a group, and all endpoints behind one router, serve the model under a common name.

    A name is one of `--served-model-name`, or the model as it was given where that flag is missing. Followers answer
    no request, and what they call the model is compared with nothing: vLLM's handshake hashes parallel sizes, and its
    model's hash leaves the name out (config/parallel.py, config/model.py compute_hash@0.17.0, 0.22.1); SGLang's other
    nodes answer `/health` alone (srt/entrypoints/engine.py@0.5.9).
    """
    names_of = {first.id: _names(view, first) for first in view.kinds.first}
    for processes in _served_together(view):
        told: set[tuple[str, frozenset[str]]] = set()
        first: tuple[Process, frozenset[str]] | None = None
        for process in processes:
            names = names_of[view.kinds.of[process.id].id]
            if not names or not view.answers_requests(process):
                continue
            common = names if first is None else first[1] & names
            if common:
                first = first if first is not None and common == first[1] else (process, common)
            elif first is not None and (process.role, names) not in told:
                told.add((process.role, names))
                yield _differs(view, process, names, first)


def _names(view: PlanView, process: Process) -> frozenset[str]:
    """The names that requests may use; none where the command line does not settle them."""
    flags = view.flags(process)
    given = flags.get("served-model-name") or flags.get("model") or flags.get("model-path") or ()
    names = frozenset(map(str, given)) if isinstance(given, tuple) else frozenset({str(given)})
    return frozenset() if any("$" in name for name in names) else names


def _served_together(view: PlanView) -> list[list[Process]]:
    """The processes that clients see as one: behind each router those of its groups, else each group."""
    behind = [
        _groups_behind(view, router) for router in view.routers if _has_one_model(view, router)
    ]
    alone = {group for group in view.groups if not any(group in groups for groups in behind)}
    return [
        [
            process
            for group, members in view.groups.items()
            if group in groups
            for process in members
        ]
        for groups in (*behind, *({group} for group in sorted(alone)))
    ]


def _has_one_model(view: PlanView, router: Process) -> bool:
    """A gateway of several models sends each request to those that serve its name."""
    return not view.flags(router).get("enable-igw")


def _groups_behind(view: PlanView, router: Process) -> set[str]:
    """Groups with an endpoint that a router lists; all of them where one router lists none that is known."""
    dialled = {(d.address, d.port) for d in view.readings[router.id].dials if d.name == "http"}
    found = {claim.process.group for claim in view.http_claims if claim.place in dialled}
    return set(view.groups) if not found and len(view.routers) == 1 else found


def _differs(
    view: PlanView, process: Process, names: frozenset[str], first: tuple[Process, frozenset[str]]
) -> Finding:
    other, theirs = first
    what = f"{process.id} serves {_listed(names)}, and {other.id} serves {_listed(theirs)}: a request names one."
    has_flag = "served-model-name" in view.flags(process)
    return Finding(
        field=f"roles.{process.role}.flags.served-model-name" if has_flag else "checkpoint",
        what=what,
        fix="Give every process one common --served-model-name.",
        process=process.id,
    )


def _listed(names: frozenset[str]) -> str:
    return " and ".join(sorted(names))
