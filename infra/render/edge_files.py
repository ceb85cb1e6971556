"""What the edge's host holds for it: its configuration, its unit, and the script that hands it its secrets."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import NamedTuple

from infra.engines.credentials import Credential, credentials_of
from infra.engines.haproxy import (
    CERTIFICATE,
    CHECK,
    CONFIG,
    ENGINE_KEY_VARIABLE,
    KEYS,
    OLDEST,
    PACKAGE,
    PRIVATE_KEY,
    RELOAD_SIGNAL,
    SECRETS_VARIABLE,
    VERSION_FLAG,
    Front,
    write_config,
)
from infra.plan.edge import EDGE_ID
from infra.plan.process import Plan, Process
from infra.render.host_paths import (
    UNIT_FOLDER,
    credentials_folder,
    edge_secrets_folder,
    metadata_unit,
    process_folder,
    stack_folder,
    stack_slice,
    unit_name,
    unit_template,
)
from infra.render.units import (
    CONFINED,
    LOW_PORTS,
    OPEN_FILES,
    ROUTER_RESTARTS,
    ROUTER_RESTARTS_S,
    STOP_S,
    STOPPED_CODES,
    unit_text,
)

# The plan's name of each secret → its file in the folder that the configuration names.
SECRET_FILES = {"edge_keys": KEYS, "edge_certificate": CERTIFICATE, "edge_private_key": PRIVATE_KEY}
# What of the distribution's must be there, as the agent looks at it.
EDGE_PROGRAM = {
    "target": PACKAGE,
    "want": OLDEST,
    "flag": VERSION_FLAG,
    "fix": f"`sudo apt-get install {PACKAGE}` there, or `sudo dnf install {PACKAGE}`",
}
# HAProxy sets its own limit of open files, within the unit's.
_MORE_CALLS = "SystemCallFilter=setrlimit prlimit64"


class EdgeFile(NamedTuple):
    """A file of the edge's host."""

    path: str
    content: str
    why: str
    mode: str = "0644"
    is_unit: bool = False


def edge_credentials(plan: Plan) -> tuple[Credential, ...]:
    """The secrets that the edge takes: the engines' key only where no router sends it."""
    has_router = any(process.kind == "router" for process in plan.processes)
    found = credentials_of("haproxy", plan.secrets)
    return tuple(each for each in found if not (has_router and each.name == "api_key"))


def edge_front(plan: Plan, process: Process) -> Front:
    """What the edge's configuration is made of.

    Raises:
        ValueError: the plan says of no edge what it lets through.
    """
    if plan.edge is None:
        message = f"{process.id}: the plan says of no edge what it lets through"
        raise ValueError(message)
    connect = process.connects[0]
    serving = next(each for each in plan.processes if each.id == connect.to)
    address = (serving.endpoint or "").partition("://")[2].rpartition(":")[0]
    return Front(
        port=process.binds[0].port,
        has_tls=plan.edge.tls == "given",
        allow=plan.edge.allow,
        connections_per_address=plan.edge.connections_per_address,
        connections_per_key=plan.edge.connections_per_key,
        behind=f"{address}:{connect.port}",
        sends_key=any(each.variable == ENGINE_KEY_VARIABLE for each in edge_credentials(plan)),
    )


def edge_files(plan: Plan, process: Process) -> Iterable[EdgeFile]:
    """Everything of the edge but its launch script, its environment and its secrets."""
    folder, unit = process_folder(plan.stack, process), unit_name(plan.stack, process)
    config = write_config(edge_front(plan, process))
    yield EdgeFile(edge_config_path(plan.stack), config, f"what {process.id} lets through")
    script = _take_secrets(plan, process)
    yield EdgeFile(f"{folder}/take-secrets", script, f"hands secrets to {process.id}", mode="0755")
    wanted = f"# Written by moe-infra for stack {plan.stack}.\n[Unit]\nWants={unit}\n"
    template = f"{UNIT_FOLDER}/{unit_template(plan.stack, process.kind) % ''}"
    yield EdgeFile(template, edge_unit(plan, process), "supervises the processes", is_unit=True)
    yield EdgeFile(
        edge_boot_path(plan.stack), wanted, f"starts {process.id} with the host", is_unit=True
    )


def edge_config_path(stack: str) -> str:
    """The edge's configuration, which it reads at its start and at a reload."""
    return f"{stack_folder(stack)}/{EDGE_ID.replace('/', '-')}/{CONFIG}"


def edge_boot_path(stack: str) -> str:
    """What has systemd start the edge with the host: it needs nobody's proof, and answers 503 until then."""
    return f"{UNIT_FOLDER}/multi-user.target.d/moe-{stack}-edge.conf"


def edge_unit(plan: Plan, process: Process) -> str:
    """The unit of the edge. Secrets are copies for its own user: a reload hands it new ones.

    systemd's own credentials are read once, at the start (systemd.exec(5) of 252, checked 2026-11-26).
    """
    folder, secrets = process_folder(plan.stack, process), edge_secrets_folder(plan.stack)
    service = [
        "Type=notify",
        f"WorkingDirectory={folder}",
        f"Environment={SECRETS_VARIABLE}={secrets}",
        f"RuntimeDirectory={_own_folder(plan.stack)}",
        f"ExecStartPre=+{folder}/take-secrets",
        f"ExecStart={folder}/launch",
        f"ExecReload=+{folder}/take-secrets",
        f"ExecReload={shlex.join(CHECK)}",
        f"ExecReload=/bin/kill -{RELOAD_SIGNAL} $MAINPID",
        f"ExecStopPost=+/bin/rm -rf {secrets}",
        f"Slice={stack_slice(plan.stack)}",
        "Restart=always",
        "RestartSec=1",
        "KillMode=mixed",
        f"TimeoutStopSec={STOP_S}",
        f"SuccessExitStatus={STOPPED_CODES}",
        OPEN_FILES,
        "LogRateLimitIntervalSec=0",
        *CONFINED,
        *(LOW_PORTS if process.binds_low_port else ()),
        _MORE_CALLS,
    ]
    unit = [
        f"Description=moe-infra {plan.stack}: edge %i, which asks clients for keys",
        f"Wants=network-online.target {metadata_unit(plan.stack)}",
        f"After=network-online.target {metadata_unit(plan.stack)}",
        f"StartLimitIntervalSec={ROUTER_RESTARTS_S}",
        f"StartLimitBurst={ROUTER_RESTARTS}",
    ]
    return unit_text(plan.stack, {"Unit": unit, "Service": service})


def _own_folder(stack: str) -> str:
    """A folder below /run that systemd gives to the edge's user; its group is that user's."""
    return f"moe-{stack}-edge"


def _take_secrets(plan: Plan, process: Process) -> str:
    """A script for root. The edge's user can read the copies, and change nothing there."""
    names = [credential.name for credential in edge_credentials(plan)]
    lines = [
        "#!/bin/sh",
        f"# Hands {process.id} of stack {plan.stack} its secrets, at its start and at a reload; written by moe-infra.",
        "set -eu",
        f"from={credentials_folder(plan.stack)}",
        f"to={edge_secrets_folder(plan.stack)}",
        f"group=$(stat -c %g /run/{_own_folder(plan.stack)})",
        'install -d -m 0750 -o root -g "$group" "$to"',
        "take() {",
        '  install -m 0640 -o root -g "$group" "$from/$1" "$to/.new"',
        '  mv -f "$to/.new" "$to/$2"',
        "}",
        *(f"take {name} {SECRET_FILES.get(name, name)}" for name in names),
    ]
    return "\n".join(lines) + "\n"
