"""Rules about secrets, and about what clients make an engine read or run."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath

from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_map
from infra.engines.credentials import SECRET_OF_VARIABLE, TAKEN_SECRETS, credentials_of
from infra.engines.recognition import CODE_FILE_FLAGS, recognise
from infra.plan.edge import CERTIFICATE, FIELDS
from infra.plan.grammar import shown
from infra.plan.host_environment import brings_code, is_anybodys, is_roots
from infra.plan.host_mounts import mount_refusal
from infra.plan.process import Process
from infra.plan.resolve import weights_on_host
from infra.spec.weights_source import HUB_SECRETS

MOVING = ("main", "master", "latest", "HEAD")
# Names of variables that hold a secret; an imported recipe's values are masked before.
SECRET_VARIABLE = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY|ACCESS_KEY_ID)$")
MASKED = "***"
# Flags that name a checkpoint, or a part of one, whose code --trust-remote-code runs; those whose words may name code
# (transformers dynamic_module_utils.py: auto_map "REPOSITORY--MODULE.CLASS"; vllm config/model.py@0.22.1; sglang
# server_args.py@0.5.9).
_MODEL_FLAGS = (
    "model",
    "model-path",
    "tokenizer",
    "tokenizer-path",
    "hf-config-path",
    "speculative-draft-model-path",
)
_OVERRIDES = ("hf-overrides", "json-model-override-args", "speculative-config")
_COMMIT = re.compile(r"[0-9a-f]{40}")


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


def host_stays_closed(view: PlanView) -> Iterator[Finding]:
    """No process is shown a path of its host that gives the host away."""
    plan = view.plan
    if plan.runtime != "native":
        yield from _given_away(None, "weights.path", plan.weights_path, read_only=True)
    seen: set[tuple[int, str]] = set()
    for process in plan.processes:
        key = (id(process.mounts), process.role)
        if process.mounts and key not in seen:
            seen.add(key)
            for mount in process.mounts:
                field = f"mounts.{mount.source}"
                yield from _given_away(process, field, mount.source, read_only=mount.read_only)


def _given_away(
    process: Process | None, field: str, source: str, *, read_only: bool
) -> Iterator[Finding]:
    refusal = mount_refusal(source, read_only=read_only)
    if refusal is not None:
        what, fix = refusal
        yield Finding(field=field, what=what, fix=fix, process=process.id if process else None)


def host_runs_what_is_known(view: PlanView) -> Iterator[Finding]:
    """What an engine runs on its host without a container is the engine, and no other program.

    A router's program is looked up in the catalogue, and an edge's is one alone (`plan/imported.py`).
    """
    for process in view.engines if view.plan.runtime == "native" else ():
        program = recognise(process.argv)
        if "/" in process.argv[0] or program is None or program.kind != "engine":
            what = (
                f"{process.id} starts {process.argv[0]} on the host itself, and that is no engine."
            )
            fix = "Write the engine's own words, as `fab plan` shows them for a stack."
            yield Finding(field="argv", what=what, fix=fix, process=process.id)


def host_environment_is_plain(view: PlanView) -> Iterator[Finding]:
    """What a plan from elsewhere starts on a host without a container gets no code by a variable or a plugin's file.

    What a stack's own author writes in it is the author's: whoever can write it can start anything anyway.
    """
    if view.surroundings.spec is not None:
        return
    told: set[tuple[str, str, str]] = set()
    for process in view.plan.processes:
        if not _is_on_host(view, process):
            continue
        for name, value in (*process.env.items(), *process.env_prepend.items()):
            key = (process.role, name, value)
            if key not in told and brings_code(name, value):
                told.add(key)
                what = (
                    f"{name}={shown(value)} has {process.id} run code on the host itself, "
                    "from a place that is not the host's own packages."
                )
                fix = f"Remove {name}, or name what lies in /usr, /lib or /opt."
                field = f"roles.{process.role}.env.{name}"
                yield Finding(field=field, what=what, fix=fix, process=process.id)
    for process in view.variants if view.plan.runtime == "native" else ():
        for name in CODE_FILE_FLAGS:
            file = view.flags(process).get(name)
            if isinstance(file, str) and not is_roots(file):
                what = f"--{name} {shown(file)} has {process.id} run what that file says on the host itself."
                fix = f"Remove --{name}, or name what lies in /usr, /lib or /opt."
                field = f"roles.{process.role}.flags.{name}"
                yield Finding(field=field, what=what, fix=fix, process=process.id)


def _is_on_host(view: PlanView, process: Process) -> bool:
    """Whether a process runs without a container, as a unit of the host."""
    if view.plan.runtime == "native" or process.kind == "edge":
        return True
    router = view.catalog.router_of(process.argv) if process.kind == "router" else None
    return router is not None and router.package is not None


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


def host_runs_pinned_models(view: PlanView) -> Iterator[Finding]:
    """A plan from elsewhere runs a checkpoint's code on a host itself where it lies in the weights, pinned."""
    if view.surroundings.spec is not None or view.plan.runtime != "native":
        return
    for process in view.variants:
        flags = view.flags(process)
        if not flags.get("trust-remote-code"):
            continue
        for flag in _OVERRIDES:
            if "auto_map" in str(flags.get(flag) or ""):
                what = f"--{flag} names an auto_map: {process.id} would run code of its choice on the host itself."
                field = f"roles.{process.role}.flags.{flag}"
                fix = f"Take auto_map out of --{flag}."
                yield Finding(field=field, what=what, fix=fix, process=process.id)
        draft = as_map(flags.get("speculative-config")).get("model")
        sources = {flag: flags.get(flag) for flag in _MODEL_FLAGS} | {"speculative-config": draft}
        for flag, model in sources.items():
            if isinstance(model, str) and model and not _is_pinned_here(view, process, model):
                what = (
                    f"--trust-remote-code has {process.id} run code of {shown(model)} (--{flag}) on the host "
                    "itself, and that is no pinned revision in the plan's weights."
                )
                fix = f"Write {view.plan.weights_path}/NAME/COMMIT, or remove --trust-remote-code."
                field = f"roles.{process.role}.flags.trust-remote-code"
                yield Finding(field=field, what=what, fix=fix, process=process.id)


def _is_pinned_here(view: PlanView, process: Process, model: str) -> bool:
    """Whether a checkpoint is a folder of the plan's weights at a commit, or where staging lays a known one."""
    root = view.plan.weights_path
    if posixpath.normpath(model) != model or not model.startswith(f"{root.rstrip('/')}/"):
        return False
    known = (each for each in (view.checkpoint, view.draft(process)) if each is not None)
    return not is_anybodys(root) and (
        _COMMIT.fullmatch(posixpath.basename(model)) is not None
        or model in {weights_on_host(each, root, None).path for each in known}
    )


def router_has_engines_key(view: PlanView) -> Iterator[Finding]:
    """A router that replaces clients' credentials has the key that its engines ask for."""
    guarded = next((p for p in view.variants if _has_key(view, p)), None)
    if guarded is None:
        return
    for process in view.routers:
        router = view.catalog.router_of(process.argv)
        passes_clients_key = router is not None and not router.access.sends_own_key
        replaces = view.readings[process.id].flags.get("api-key") is None and not passes_clients_key
        if replaces and "OPENAI_API_KEY" not in process.env and "api_key" not in view.plan.secrets:
            asked = "VLLM_API_KEY" if "VLLM_API_KEY" in guarded.env else "--api-key"
            what = f"{guarded.id} asks for a key ({asked}), and the router has no OPENAI_API_KEY to send."
            fix = "Declare the key as secrets.api_key: engines and router then share it."
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


def secrets_are_taken(view: PlanView) -> Iterator[Finding]:
    """A declared secret is one that a process takes: SGLang's key stands on its command line, for `ps` to show."""
    engine, secrets = view.plan.engine.name, view.plan.secrets
    routers = (view.router_name(process) or "" for process in view.routers)
    edges = (PurePosixPath(p.argv[0]).name for p in view.plan.processes if p.kind == "edge")
    programs = (engine, *routers, *edges)
    taken = {each.name for program in programs for each in credentials_of(program, secrets)}
    taken |= set(HUB_SECRETS.values())  # staging takes them
    for name in sorted(secrets.keys() - taken):
        what = f"No process of this plan takes {name}: it is given to nobody."
        fix = f"Remove secrets.{name}; programs take {', '.join(TAKEN_SECRETS)}."
        if name == "api_key":
            seen = "which every user of a host sees: api_key is given to nobody"
            what = f"{engine} takes a key as --api-key alone, {seen}."
            fix = "Remove secrets.api_key, and have an `edge:` before the endpoints ask clients for a key."
        elif name == "edge_keys":
            fix = "Add an `edge:`, which asks clients for them, or remove secrets.edge_keys."
        yield Finding(field=f"secrets.{name}", what=what, fix=fix)


def secret_files_readable(view: PlanView) -> Iterator[Finding]:
    """A secret's file is there, holds what it should, and is its owner's alone."""
    for name, file in view.surroundings.secret_files.items():
        what = f"The file {file.path} {file.flaw}."
        fix = file.fix or "Put the secret there before `fab up`."
        if file.flaw is None:
            what = f"Other users of this machine may read {file.path}."
            fix = f"Type `chmod 600 {shlex.quote(file.path)}`."
        # everybody may read a certificate: clients are shown it
        if file.flaw is not None or (file.is_shared and name != CERTIFICATE):
            yield Finding(field=f"{_field_of(view, name)}.file", what=what, fix=fix)


def _field_of(view: PlanView, secret: str) -> str:
    """Where the stack names a secret: what an edge holds stands in `edge`, its keys in `secrets` or there."""
    spec = view.surroundings.spec
    is_declared = spec is not None and secret in dict(spec.secrets.items())
    of_edge = (
        spec is not None and spec.edge is not None and not (is_declared and spec.edge.keys is None)
    )
    return FIELDS[secret] if of_edge and secret in FIELDS else f"secrets.{secret}"


def secrets_referenced(view: PlanView) -> Iterator[Finding]:
    """A secret is a reference, never a value: plans, unit files and `ps` show values."""
    for process in view.variants:
        for name, value in process.env.items():
            if SECRET_VARIABLE.search(name) and _is_value(value):
                what = f"{name} stands in the plan with its value."
                fix = _instead_of_value(view, SECRET_OF_VARIABLE.get(name), name)
                field = f"roles.{process.role}.env.{name}"
                yield Finding(field=field, what=what, fix=fix, process=process.id)
        given = view.flags(process).get("api-key")
        keys = given if isinstance(given, tuple) else (given,)
        if any(_is_value(key) for key in keys):
            what = "--api-key stands in the plan with its value."
            fix = _instead_of_value(view, "api_key", "NAME")
            field = f"roles.{process.role}.flags.api-key"
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def _instead_of_value(view: PlanView, secret: str | None, variable: str) -> str:
    """How a value gets to its process without standing in a plan."""
    if secret is None:
        return "Remove it: the host gives it to what needs it, by its role or by a file of root's."
    if credentials_of(view.plan.engine.name, {secret: None}):
        return f"Write secrets: {{{secret}: {{env: {variable}}}}}, and remove it here."
    return (
        f"Remove it: {view.plan.engine.name} takes no {secret}; an `edge:` asks clients for keys."
    )


def _has_key(view: PlanView, process: Process) -> bool:
    return bool(view.flags(process).get("api-key")) or "VLLM_API_KEY" in process.env


def _is_value(text: object) -> bool:
    """Whether a text is a secret itself: neither masked, nor a reference that something expands."""
    return isinstance(text, str) and text not in ("", MASKED) and not text.startswith("$")
