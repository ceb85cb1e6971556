"""systemd units: one template per kind of process, one that watches groups, one that removes containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.plan.process import ProcessKind
from infra.render.cloud_metadata import metadata_table
from infra.render.host_paths import (
    credential_path,
    firewall_path,
    metadata_guard,
    metadata_unit,
    router_credentials,
    stack_folder,
    stack_slice,
    watch_config,
    watch_program,
    watch_unit,
)
from infra.spec.stack import Runtime

# What starts the unit that closes a host: every boot, and `nftables.service`, which flushes all rules first.
BOOT_TARGETS = ("multi-user.target", "nftables.service")
# Engines drain or abort on SIGTERM; two minutes are far beyond either (facts: recommended unit).
STOP_S = 120
# What a container gets of it before it is killed, so that its end is still seen by the unit.
GRACE_S = 100
# For the removal of what is left of all containers of a host; what one wrote may be large.
REMOVAL_S = 120
REMOVAL_FAILS = "cannot "  # how its last line begins where one stays
# A router is no rank: it begins again by itself, until it has failed this often within that time.
ROUTER_RESTARTS, ROUTER_RESTARTS_S = 10, 300
# Engines and clients that end on SIGINT or SIGTERM leave with 128 + signal: a stop, not a failure.
STOPPED_CODES = "130 143"
# What engines need of the service that starts them; preflight tries whether a host can grant it.
OPEN_FILES = "LimitNOFILE=1048576"
LIMITS = ("LimitMEMLOCK=infinity", OPEN_FILES, "LimitSTACK=67108864")

# What a program of the host's packages that parses strangers' requests may do: no more than to serve ports beyond 1023
# and to read files that everybody may. Settings that a systemd is too old for are left out by it with a warning.
# (systemd.exec(5) of 252, checked 2026-11-26; no PrivateUsers: a user namespace has no say over the host's ports.)
CONFINED = (
    "DynamicUser=yes",
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "ProtectProc=invisible",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelLogs=yes",
    "ProtectControlGroups=yes",
    "ProtectClock=yes",
    "ProtectHostname=yes",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
    "LockPersonality=yes",
    "MemoryDenyWriteExecute=yes",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "SystemCallFilter=~@privileged @resources",
    "SystemCallErrorNumber=EPERM",
    "UMask=0077",
)


# Ports below 1024 are the one thing that some programs are allowed beyond CONFINED.
LOW_PORTS = (
    "CapabilityBoundingSet=CAP_NET_BIND_SERVICE",
    "AmbientCapabilities=CAP_NET_BIND_SERVICE",
)


def process_unit(
    stack: str,
    kind: ProcessKind,
    runtime: Runtime,
    credentials: Sequence[str],
    *,
    binds_low_port: bool,
) -> str:
    """The template unit of engines or routers; the instance is the process's index on its host.

    Args:
        stack: its name.
        kind: `engine` or `router`.
        runtime: how these processes run; a container's client is what systemd sees, and it has to be root.
        credentials: names of the secrets that the processes take.
        binds_low_port: whether one of them serves a port below 1024.
    """
    folder = f"{stack_folder(stack)}/{kind}-%i"
    after = ["network-online.target", "moe-infra-tuning.service", metadata_unit(stack)]
    service = [
        "Type=exec",
        f"ExecStart={folder}/launch",
        f"ExecStartPre=+/bin/sh {metadata_guard(stack)}",
        *(f"LoadCredential={name}:{credential_path(stack, name)}" for name in credentials),
    ]
    if runtime == "native":
        service.append(f"EnvironmentFile={folder}/environment")
    else:
        after += ["docker.service"] if runtime == "docker" else []
        container = f"moe-{stack}-{kind}-%i"
        service.append(f"ExecStop=-/bin/sh -c '{_stop(runtime, container)}'")
        service.append(f"ExecStopPost=-/bin/sh -c '{_after_stop(runtime, container)}'")
    if kind == "router":
        service += _router_settings(stack, runtime, credentials, binds_low_port=binds_low_port)
    # A rank that restarts alone hangs its group: groups are started and stopped as one, by the watcher.
    restart = ["Restart=no"] if kind == "engine" else ["Restart=always", "RestartSec=1"]
    service += [
        f"Slice={stack_slice(stack)}",
        *restart,
        "KillMode=mixed",
        f"TimeoutStopSec={STOP_S}",
        f"SuccessExitStatus={STOPPED_CODES}",
        "OOMPolicy=stop",
        *(LIMITS if kind == "engine" else [OPEN_FILES]),
        "TasksMax=infinity",  # threads of sixteen workers; systemd's default is a share of what the host can have
        "LogRateLimitIntervalSec=0",
    ]
    unit = [
        f"Description=moe-infra {stack}: {kind} %i of this host",
        f"Wants=network-online.target {metadata_unit(stack)}",
        f"After={' '.join(after)}",
    ]
    if kind == "router":
        unit += [
            f"StartLimitIntervalSec={ROUTER_RESTARTS_S}",
            f"StartLimitBurst={ROUTER_RESTARTS}",
        ]
    return unit_text(stack, {"Unit": unit, "Service": service})


def metadata_unit_text(stack: str) -> str:
    """The unit that keeps the stack's slice from the metadata service of a cloud, while any process of it runs.

    It is of the slice itself: the rule names a control group that has to be there, and to stay the same one. Nothing
    requires this unit: its end would be that of engines. Each of them runs the guard itself before it starts.
    """
    unit = [
        f"Description=moe-infra {stack}: keeps its processes from the cloud's metadata service",
        "After=nftables.service",
        # its restart or reload flushes every table: this one is loaded again with it
        "PartOf=nftables.service",
        "ReloadPropagatedFrom=nftables.service",
        "StopWhenUnneeded=yes",
    ]
    service = [
        "Type=oneshot",
        "RemainAfterExit=yes",
        f"Slice={stack_slice(stack)}",
        f"ExecStart=/bin/sh {metadata_guard(stack)}",
        f"ExecReload=/bin/sh {metadata_guard(stack)}",
        f"ExecStop=-/bin/sh -c 'exec nft delete table {metadata_table(stack)}'",
    ]
    return unit_text(stack, {"Unit": unit, "Service": service})


def cleanup_unit_text(stack: str, runtime: Runtime, containers: Sequence[str]) -> str:
    """The unit that removes what is left of the stack's containers: `down` starts it once.

    It fails while one is there afterwards, and its last line names it. (What `rm` itself leaves with says little:
    releases differ in what a container that is not there is to them.)
    """
    service = [
        "Type=oneshot",
        f"TimeoutStartSec={REMOVAL_S}",
        f"ExecStart=/bin/sh -c '{_remove(runtime, containers)}'",
    ]
    return unit_text(
        stack, {"Unit": [f"Description=moe-infra {stack}: remove containers"], "Service": service}
    )


def firewall_unit_text(stack: str) -> str:
    """The unit that loads a stack's table at every boot, and again when nftables' own unit has flushed all rules.

    It does not remain active, so that a start of that unit starts this one, too.
    """
    path = firewall_path(stack)
    unit = [
        f"Description=moe-infra {stack}: lets in only who dials by the plan",
        "After=nftables.service",
        f"Before={watch_unit(stack)}",
        f"ConditionPathExists={path}",
    ]
    service = ["Type=oneshot", f"ExecStart=/bin/sh -c 'exec nft -f {path}'"]
    install = [f"WantedBy={' '.join(BOOT_TARGETS)}"]
    return unit_text(stack, {"Unit": unit, "Service": service, "Install": install})


def watch_unit_text(stack: str) -> str:
    """The unit that watches the groups of a host; enabled while they are watched, and never otherwise.

    Started without that, it stands by.
    """
    unit = [
        f"Description=moe-infra {stack}: watches this host's ranks, restarts groups as one",
        "Wants=network-online.target",
        "After=network-online.target moe-infra-tuning.service",
        "StartLimitIntervalSec=0",
    ]
    service = [
        "Type=exec",
        f"ExecStart={watch_program(stack)} {watch_config(stack)}",
        "Restart=always",
        "RestartSec=500ms",
        # It must be heard while engines take all memory and all processors.
        "OOMScoreAdjust=-900",
        "Nice=-5",
        # Above all connections that its doors let in (agent/doors.py), whatever the distribution gives services.
        "LimitNOFILE=4096",
    ]
    install = ["WantedBy=multi-user.target"]
    return unit_text(stack, {"Unit": unit, "Service": service, "Install": install})


def _router_settings(
    stack: str, runtime: Runtime, credentials: Sequence[str], *, binds_low_port: bool
) -> list[str]:
    """What the unit of a router holds beyond that of an engine.

    systemd before 247 hands out no credentials: root copies them to a folder that the router's user alone can enter.
    """
    settings: list[str] = []
    if credentials:
        folder = router_credentials(stack, "%i")
        settings += [f"RuntimeDirectory={folder.rpartition('/')[2]}", "RuntimeDirectoryMode=0700"]
        if runtime == "native":
            files = " ".join(credential_path(stack, name) for name in credentials)
            copies = f"cp {files} {folder}/ && chown --reference={folder} {folder}/*"
            settings.append(
                f"ExecStartPre=+/bin/sh -c 'test -n \"$$CREDENTIALS_DIRECTORY\" || {{ {copies}; }}'"
            )
    if runtime == "native":
        settings += [*CONFINED, *(LOW_PORTS if binds_low_port else ())]
    return settings


def _stop(runtime: Runtime, container: str) -> str:
    """Shell words that end the container itself: systemd's own signals reach the runtime's client alone.

    Without a client there is nobody to be patient for: what is left is killed at once, by `_after_stop`.
    """
    return f'test -z "$$MAINPID" || {runtime} stop -t {GRACE_S} {container} >/dev/null 2>&1'


def _after_stop(runtime: Runtime, container: str) -> str:
    """Shell words for when the client has ended: nothing of the container may run on behind it.

    A container that failed is kept, with its logs and cores, until the next start or `down`.
    """
    return (
        f'case "$$SERVICE_RESULT" in success|timeout) {runtime} rm --force {container};; '
        f"*) {runtime} kill {container};; esac >/dev/null 2>&1"
    )


def _remove(runtime: Runtime, containers: Sequence[str]) -> str:
    """Shell words that remove containers, then look; a runtime that is not installed has none."""
    names = " ".join(containers)
    return (
        f"command -v {runtime} >/dev/null || exit 0; "
        f"said=$$({runtime} rm --force {names} 2>&1); "
        f'there=$$({runtime} ps --all --format "{{{{.Names}}}}" 2>&1) || '
        f'{{ echo "{REMOVAL_FAILS}list containers: $$there"; exit 1; }}; '
        f"left=; for name in {names}; do "
        'case " "$$(echo $$there)" " in *" $$name "*) left="$$left $$name";; esac; done; '
        f'test -z "$$left" || {{ echo "{REMOVAL_FAILS}remove$$left:" $$said; exit 1; }}'
    )


def unit_text(stack: str, sections: Mapping[str, Sequence[str]]) -> str:
    """A unit file of a stack."""
    stack_folder(stack)  # a name that is none would be more than a name in every line
    lines = [f"# Written by moe-infra for stack {stack}; `fab down` removes it."]
    for title, settings in sections.items():
        lines += [f"[{title}]", *settings, ""]
    return "\n".join(lines)
