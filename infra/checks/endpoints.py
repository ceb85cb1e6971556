"""Rules about how engines serve HTTP: where they listen, and that whoever asks them can speak to them."""

from __future__ import annotations

from collections.abc import Iterator

from infra.checks.apart import is_loopback
from infra.checks.view import Finding, PlanView
from infra.plan.process import Process

# What makes vLLM and SGLang serve TLS, or a Unix socket in place of a port (vllm entrypoints/openai/api_server.py,
# sglang srt/entrypoints/http_server.py: handed to uvicorn).
ENCRYPTING = ("ssl-keyfile", "ssl-certfile")
SOCKET = "uds"


def endpoint_reachable(view: PlanView) -> Iterator[Finding]:
    """What a router dials at a host's address does not listen on that host's loopback alone."""
    served = {claim.place: claim.process for claim in view.http_claims}
    hosts = set(view.addresses.values())
    told: set[str] = set()
    for router in view.routers:
        for dial in view.readings[router.id].dials:
            process = served.get((dial.address, dial.port))
            is_known = process is not None
            if process is None and dial.address not in hosts:
                process = _sure_to_be_meant(view, dial.port)
            if process is None or process.id in told or is_loopback(dial.address):
                continue
            host = str(view.in_effect(process, "host") or "")
            if is_loopback(host):
                told.add(process.id)
                by = "" if "host" in view.flags(process) else " by default"
                what = f"{process.id} listens on {host}{by}, and {router.id} dials {dial.address}:{dial.port}."
                fix = "Add --host 0.0.0.0, or the host's address."
                yield Finding(
                    field=f"roles.{process.role}.flags.host",
                    what=what,
                    fix=fix,
                    process=process.id,
                    holds_anywhere=not is_known,
                )


def _sure_to_be_meant(view: PlanView, port: int) -> Process | None:
    """Some process behind an address that no host is known to have: each with that port listens on loopback."""
    found = [claim.process for claim in view.http_claims if claim.place[1] == port]
    is_sure = all(is_loopback(str(view.in_effect(each, "host") or "")) for each in found)
    return found[0] if found and is_sure else None


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
