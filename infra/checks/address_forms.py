"""Rules about how an address is written: a host alone, or with its port, where the engine adds the rest itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from infra.checks.view import Finding, PlanView
from infra.plan.process import Process

# By family, flags that hold a host alone: vLLM makes tcp://HOST:PORT of it (utils/network_utils.py get_tcp_uri,
# v1/engine/utils.py@0.22.1), and its server and SGLang's bind it.
_HOST_FLAGS: Mapping[str, tuple[str, ...]] = {
    "vllm": ("host", "data-parallel-address", "master-addr"),
    "sglang": ("host",),
}
_HOST_VARIABLES = (
    "VLLM_HOST_IP",
    "VLLM_NIXL_SIDE_CHANNEL_HOST",
    "VLLM_DP_MASTER_IP",
    "HCCL_IF_IP",
    "SGLANG_HOST_IP",
)
# Flags that hold HOST:PORT: torch is told tcp://HOST:PORT (srt/model_executor/model_runner.py@0.5.9).
_PLACE_FLAGS: Mapping[str, tuple[str, ...]] = {"sglang": ("dist-init-addr",)}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# A name or an address with a port behind it; an IPv6 address without brackets has two colons or more.
_WITH_PORT = re.compile(r"(?P<host>\[[^\]\s]+\]|[^:/\[\]\s]+):\d*")


def addresses_well_formed(view: PlanView) -> Iterator[Finding]:
    """What is to be a host holds no scheme, path or port, for the engine puts its own around the host."""
    for process in view.engines:
        for field, name, value, is_place in _written(view, process):
            scheme = _SCHEME.match(value)
            rest = value[scheme.end() :] if scheme else value
            port = None if is_place else _WITH_PORT.fullmatch(rest.rstrip("/"))
            if not (scheme or port or "/" in rest):
                continue
            host = port["host"] if port else rest.partition("/")[0]
            wanted = "HOST:PORT" if is_place else "a host alone"
            added = "the scheme" if is_place else "scheme and port"
            yield Finding(
                field=field,
                what=f"{name} is {value}; it takes {wanted}, and {process.id} adds {added} itself.",
                fix=f"Write {host}." if host else "Write the host's address.",
                process=process.id,
                holds_anywhere=True,
            )


def _written(view: PlanView, process: Process) -> Iterator[tuple[str, str, str, bool]]:
    """(field, name, value, whether a port belongs to it) of everything that names one host."""
    flags, role = view.flags(process), f"roles.{process.role}"
    for names, is_place in ((_HOST_FLAGS, False), (_PLACE_FLAGS, True)):
        for name in names.get(view.family, ()):
            if flags.get(name):
                yield f"{role}.flags.{name}", f"--{name}", str(flags[name]), is_place
    for name in _HOST_VARIABLES:
        if process.env.get(name):
            yield f"{role}.env.{name}", name, process.env[name], False
