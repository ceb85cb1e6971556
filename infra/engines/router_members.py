"""How a running router is told to leave an endpoint out, and to take it back.

Sources: vllm-router 0.1.17 (its source, src/server.rs and src/routers/http/; run 2026-11-22), sglang-router 0.3.2 (run
2026-11-22), vllm-ascend v0.22.1rc1 examples/disaggregated_prefill_v1/load_balance_proxy_server_example.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, urlsplit

from infra.engines.command_line import as_map
from infra.spec.stack import RouterName

Step = dict[str, object]
ENDPOINT_S = 30.0
# vllm-router answers an addition when the endpoint is healthy.
ADDITION_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An endpoint that a router spreads requests over.

    Args:
        role: `prefill`, `decode` or `unified`.
        url: `http://address:port`.
        bootstrap_port: of a prefill process that serves one, else None.
    """

    role: str
    url: str
    bootstrap_port: int | None

    @property
    def place(self) -> str:
        """`address:port`."""
        return urlsplit(self.url).netloc


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The members that a router has by now: their names for it, by `address:port`."""

    names: Mapping[str, str]


def router_kind(argv: Sequence[str]) -> RouterName:
    """Which router a command line starts."""
    words = " ".join(argv[:3])
    kinds: tuple[RouterName, ...] = ("vllm-router", "sglang-router")
    return next((kind for kind in kinds if kind in words.replace("_", "-")), "ascend-proxy")


def why_fixed(argv: Sequence[str]) -> str:
    """Why a router's members cannot be changed while it runs, "" where they can."""
    if router_kind(argv) == "vllm-router" and "--vllm-pd-disaggregation" in argv:
        # POST /remove_worker works; /add_worker and POST /workers answer 400, and --enable-igw, which has both, spreads
        # nothing over prefill and decode for /v1/responses and answers /v1/models in a form of its own.
        return "vllm-router takes no endpoint back in prefill/decode mode"
    return ""


def drains_when_idle(argv: Sequence[str]) -> bool:
    """Whether the router takes an endpoint back only after a moment without any request.

    vllm-ascend's proxy only marks an endpoint while requests run, gives it no new ones, and ignores its addition until
    no request has run at one of its looks, every `--waiting-retry-interval`.
    """
    return router_kind(argv) == "ascend-proxy"


def listing_step(argv: Sequence[str], base: str, role: str) -> Step:
    """What asks a router for its members; the proxy lists them when it is told to add none."""
    kind = router_kind(argv)
    if kind == "ascend-proxy":
        return _post(f"{base}/instances/add", {"type": role, "instances": []})
    path = "/list_workers" if kind == "vllm-router" else "/workers"
    return {"method": "GET", "url": base + path, "timeout_s": ENDPOINT_S}


def read_listing(argv: Sequence[str], body: object, role: str) -> Listing:
    """The members in the answer to `listing_step`."""
    kind, answer = router_kind(argv), as_map(body)
    if kind == "ascend-proxy":
        return Listing(
            names={name: name for name in _texts(answer.get(f"current_{role}_instances"))}
        )
    if kind == "vllm-router":
        return Listing(names={_place(url): url for url in _texts(answer.get("urls"))})
    workers = answer.get("workers")
    rows = [as_map(row) for row in workers] if isinstance(workers, list) else []
    return Listing(names={_place(str(row.get("url"))): str(row.get("id")) for row in rows})


def leaving_steps(
    argv: Sequence[str], base: str, members: Iterable[Member], listing: Listing
) -> list[Step]:
    """What has a router send nothing new to members; those that it does not have are passed over."""
    kind = router_kind(argv)
    steps: list[Step] = []
    for member in members:
        name = listing.names.get(member.place)
        if name is None:
            continue
        if kind == "ascend-proxy":
            asked: Step = {"type": member.role, "instances": [member.place]}
            steps.append(_post(f"{base}/instances/remove", asked))
        elif kind == "vllm-router":
            steps.append(_post(f"{base}/remove_worker?url={quote(name, safe='')}", None))
        else:
            url = f"{base}/workers/{quote(name, safe='')}"
            steps.append({"method": "DELETE", "url": url, "timeout_s": ENDPOINT_S})
    return steps


def joining_steps(
    argv: Sequence[str], base: str, members: Iterable[Member], listing: Listing
) -> list[Step]:
    """What has a router take members back; those that it has already are passed over."""
    kind = router_kind(argv)
    steps: list[Step] = []
    for member in members:
        if member.place in listing.names:
            continue
        if kind == "ascend-proxy":
            asked: Step = {"type": member.role, "instances": [member.place]}
            steps.append(_post(f"{base}/instances/add", asked))
        elif kind == "vllm-router":
            steps.append(_post(f"{base}/add_worker?url={quote(member.url, safe='')}", None))
        else:
            asked = {"url": member.url}
            if member.role != "unified":
                asked["worker_type"] = member.role
            if member.bootstrap_port is not None:
                asked["bootstrap_port"] = member.bootstrap_port
            steps.append(_post(f"{base}/workers", asked))
    return steps


def _post(url: str, body: Step | None) -> Step:
    method: Literal["POST"] = "POST"
    return {"method": method, "url": url, "body": body, "timeout_s": ADDITION_S}


def _place(url: str) -> str:
    """`http://address:port@rank` → `address:port`."""
    return url.partition("://")[2].partition("@")[0].rstrip("/")


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []
