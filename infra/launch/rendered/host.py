"""One host of a folder that `fab render` wrote, for another tool than `fab` that lends the connection to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from infra.catalog.load import Catalog
from infra.errors import InfraError, StackError
from infra.launch.deployment import Deployment, Limits, Say
from infra.launch.fleet import Answers, Clock, Report, Request
from infra.plan.endpoints import read_endpoints
from infra.plan.imported import MAX_BYTES
from infra.plan.process import Plan
from infra.render.items import HostState, Item
from infra.render.kept_release import read_kept
from infra.spec.text_file import read_text

DETAILS_BESIDE = ("id", "group", "kind", "target", "why")


class Ask(Protocol):
    """Sends one request to the host's agent."""

    def __call__(self, request: Request, *, timeout_s: float) -> Report:
        """The report; raises HostsFailed when there is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedHost:
    """The documents of one host.

    Args:
        state: its host state; `state.host` is the plan's name of it.
        inventory_names: of every host of the plan.
    """

    plan: Plan
    state: HostState
    inventory_names: tuple[str, ...]


@dataclass(slots=True)
class OneHost:
    """A fleet of one; it remembers what was reported."""

    name: str
    ask_host: Ask
    reports: list[Report] = field(default_factory=list)

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        """See `Fleet`."""
        answers: Answers = {}
        for name, request in requests.items():
            try:
                report = self.ask_host(request, timeout_s=timeout_s)
            except InfraError as error:
                answers[name] = error
            else:
                answers[name] = report
                self.reports.append(report)
        return answers


def read_rendered(folder: Path, inventory_name: str) -> RenderedHost | None:
    """The documents of a host by its name in the inventory; None when no process of the plan is on it.

    Raises:
        StackError: the folder is not whole, or was rendered without an inventory.
        HostsFailed: the plan is not what its hash says.
    """
    stack = _document(folder / "stack.json")
    if stack["hosts"] is None:
        what = "It was rendered without an inventory: its addresses are examples."
        raise StackError(str(folder), what, "Render it again with --inventory PATH.")
    name = stack["hosts"].get(inventory_name)
    if name is None:
        return None
    kept = read_kept(str(folder / "stack.json"), stack["release"])
    return RenderedHost(
        plan=kept.plan,
        state=_host_state(_document(folder / name / "host-state.json"), kept.enable),
        inventory_names=tuple(stack["hosts"]),
    )


def deployment_on(host: RenderedHost, fleet: OneHost, clock: Clock, say: Say) -> Deployment:
    """The whole deployment, of which only this host can be asked."""
    return Deployment(
        plan=host.plan,
        states={host.state.host: host.state},
        endpoints=read_endpoints(host.plan, Catalog()),
        fleet=fleet,
        clock=clock,
        limits=Limits(),
        headers={},
        say=say,
        nonce="",
    )


def part_of(deployment: Deployment) -> Deployment:
    """The part of a deployment whose hosts can be asked: what the others hold is not judged from here."""
    plan = deployment.plan
    here = tuple(p for p in plan.processes if p.host in deployment.states)
    return replace(deployment, plan=replace(plan, processes=here))


def _host_state(document: Mapping[str, Any], enable: Sequence[str]) -> HostState:
    return HostState(
        stack=document["stack"],
        host=document["host"],
        release=document["release"],
        enable=tuple(enable),
        items=tuple(
            Item(
                **{key: item[key] for key in DETAILS_BESIDE},
                details={key: value for key, value in item.items() if key not in DETAILS_BESIDE},
            )
            for item in document["items"]
        ),
    )


def _document(path: Path) -> Mapping[str, Any]:
    try:
        document: Mapping[str, Any] = json.loads(read_text(path, MAX_BYTES))
    except (OSError, ValueError) as error:
        what = f"It cannot be read: {error}."
        fix = "Render the folder again: fab render --stack NAME --inventory PATH --to DIR"
        raise StackError(str(path), what, fix) from error
    return document
