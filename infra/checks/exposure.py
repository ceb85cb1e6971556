"""Rules about what clients and strangers could reach."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from infra.checks.view import Finding, PlanView
from infra.engines.credentials import credentials_of
from infra.plan.process import Process

MOVING = ("main", "master", "latest", "HEAD")
# Names of variables that hold a secret; an imported recipe's values are masked before.
SECRET_VARIABLE = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY|ACCESS_KEY_ID)$")
MASKED = "***"


def media_path_narrow(view: PlanView) -> Iterator[Finding]:
    """Clients may name files of one directory, not of the whole host."""
    for process in view.variants:
        value = str(view.flags(process).get("allowed-local-media-path") or "")
        if value.startswith("/") and len(PurePosixPath(value).parts) == 1:
            what = "allowed-local-media-path / lets clients read every file that the engine can."
            field = f"roles.{process.role}.flags.allowed-local-media-path"
            yield Finding(
                field=field, what=what, fix="Name the directory with media.", process=process.id
            )


def remote_code_pinned(view: PlanView) -> Iterator[Finding]:
    """Code that comes with a checkpoint comes at a pinned revision."""
    for process in view.variants:
        flags = view.flags(process)
        if not flags.get("trust-remote-code"):
            continue
        model = str(flags.get("model") or flags.get("model-path") or "")
        revision = str(flags.get("code-revision") or flags.get("revision") or "")
        is_path = model.startswith("/")
        moving = model.rstrip("/").rpartition("/")[2] if is_path else revision or "main"
        if moving in MOVING:
            what = f"--trust-remote-code runs code of {model}, and its revision {moving} is a branch that moves."
            fix = "Pin a commit: weights.revision in a stack, --revision in a command."
            yield Finding(field="weights.revision", what=what, fix=fix, process=process.id)


def router_has_engines_key(view: PlanView) -> Iterator[Finding]:
    """A router that replaces clients' credentials has the key that its engines ask for."""
    guarded = next((p for p in view.variants if _asks_for_key(view, p)), None)
    if guarded is None:
        return
    for router in view.routers:
        replaces = view.readings[router.id].flags.get("api-key") is None
        if replaces and "OPENAI_API_KEY" not in router.env and "api_key" not in view.plan.secrets:
            asked = "VLLM_API_KEY" if "VLLM_API_KEY" in guarded.env else "--api-key"
            what = f"{guarded.id} asks for a key ({asked}), and the router has no OPENAI_API_KEY to send."
            fix = "Declare the key as secrets.api_key: engines and router then share it."
            yield Finding(field="secrets.api_key", what=what, fix=fix, process=router.id)


def key_is_taken(view: PlanView) -> Iterator[Finding]:
    """A declared API key is one that the engine takes: SGLang's stands on its command line, for `ps` to show."""
    engine = view.plan.engine.name
    taken = {credential.name for credential in credentials_of(engine, view.plan.secrets)}
    if "api_key" in view.plan.secrets and "api_key" not in taken:
        what = f"{engine} takes a key as --api-key alone, which every user of a host sees: api_key is given to nobody."
        fix = "Remove secrets.api_key, and have a proxy before the endpoints ask clients for a key."
        yield Finding(field="secrets.api_key", what=what, fix=fix)


def public_router_guarded(view: PlanView) -> Iterator[Finding]:
    """What listens on a public address asks for a key."""
    entrances = view.routers or view.leaders[:1]
    for process in entrances:
        address = view.addresses[process.host]
        if "api_key" in view.plan.secrets or view.readings[process.id].flags.get("api-key"):
            continue
        if _is_public(address):
            what = f"{process.id} serves on {address}, a public address, and asks nobody for a key."
            fix = "Declare secrets.api_key, or give the host a private address."
            yield Finding(field="secrets.api_key", what=what, fix=fix, process=process.id)


def clients_let_in(view: PlanView) -> Iterator[Finding]:
    """A stack that closes its hosts says which clients it lets in."""
    if view.plan.firewall is not None and not view.plan.firewall.clients:
        where = ", ".join(process.id for process in view.plan.entrances)
        what = f"firewall: plan lets no client dial {where}: only the stack's own hosts may."
        yield Finding(field="clients", what=what, fix="Write clients: [10.0.0.0/8], your networks.")


def networks_are_read(view: PlanView) -> Iterator[Finding]:
    """A stack that names the networks that may dial closes its hosts to all others."""
    spec = view.surroundings.spec
    if spec is None or spec.firewall == "plan":
        return
    for field, networks in (("clients", spec.clients), ("monitors", spec.monitors)):
        if networks:
            what = f"Nothing reads {field} without firewall: plan, so every network may dial."
            yield Finding(field=field, what=what, fix=f"Write firewall: plan, or remove {field}.")


def secrets_referenced(view: PlanView) -> Iterator[Finding]:
    """A secret is a reference, never a value: plans, unit files and `ps` show values."""
    for process in view.variants:
        for name, value in process.env.items():
            if SECRET_VARIABLE.search(name) and _is_value(value):
                what = f"{name} stands in the plan with its value."
                fix = f"Write secrets: {{{name.lower()}: {{env: {name}}}}}, and remove it here."
                field = f"roles.{process.role}.env.{name}"
                yield Finding(field=field, what=what, fix=fix, process=process.id)
        given = view.flags(process).get("api-key")
        keys = given if isinstance(given, tuple) else (given,)
        if any(_is_value(key) for key in keys):
            what = "--api-key stands in the plan with its value."
            fix = "Write secrets: {api_key: {env: NAME}}: engines and router share it."
            field = f"roles.{process.role}.flags.api-key"
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def _asks_for_key(view: PlanView, process: Process) -> bool:
    return bool(view.flags(process).get("api-key")) or "VLLM_API_KEY" in process.env


def _is_public(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_global
    except ValueError:
        return False  # a name, or an expression that a pod expands


def _is_value(text: object) -> bool:
    """Whether a text is a secret itself: neither masked, nor a reference that something expands."""
    return isinstance(text, str) and text not in ("", MASKED) and not text.startswith("$")
