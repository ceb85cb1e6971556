"""Rules about how engines serve HTTP: where they listen, and that whoever asks them can speak to them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from infra.checks.view import Finding, PlanView

# What makes vLLM and SGLang serve TLS, or a Unix socket in place of a port (vllm entrypoints/openai/api_server.py,
# sglang srt/entrypoints/http_server.py: handed to uvicorn).
ENCRYPTING = ("ssl-keyfile", "ssl-certfile")
SOCKET = "uds"


def endpoint_reachable(view: PlanView) -> Iterator[Finding]:
    """What a router dials at a host's address does not listen on that host's loopback alone."""
    served = {claim.place: claim.process for claim in view.http_claims}
    told: set[str] = set()
    for router in view.routers:
        for dial in view.readings[router.id].dials:
            process = served.get((dial.address, dial.port))
            if process is None or process.id in told or _is_loopback(dial.address):
                continue
            host = str(view.in_effect(process, "host") or "")
            if _is_loopback(host):
                told.add(process.id)
                by = "" if "host" in view.flags(process) else " by default"
                what = f"{process.id} listens on {host}{by}, and {router.id} dials {dial.address}:{dial.port}."
                fix = "Add --host 0.0.0.0, or the host's address."
                yield Finding(
                    field=f"roles.{process.role}.flags.host",
                    what=what,
                    fix=fix,
                    process=process.id,
                )


def endpoint_plain(view: PlanView) -> Iterator[Finding]:
    """Engines serve plain HTTP on a port: routers, probes and proofs of a stack speak nothing else to them."""
    for process in view.variants:
        flags = view.flags(process)
        encrypting = next((name for name in ENCRYPTING if flags.get(name)), None)
        name = encrypting or (SOCKET if flags.get(SOCKET) else None)
        if name is None:
            continue
        kind = "TLS" if encrypting else "a Unix socket in place of its port"
        what = f"--{name} makes {process.role} serve {kind}; readiness, proofs and routers ask it over plain HTTP."
        fix = "Remove it: encrypt before the router, with `ingress` or a proxy of your own."
        field = f"roles.{process.role}.flags.{name}"
        yield Finding(field=field, what=what, fix=fix, process=process.id)


def _is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    if ":" not in address and not address.startswith("127."):
        return False  # of ten thousand addresses hardly one is looked at closer
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False  # a name, or an expression that a pod expands
