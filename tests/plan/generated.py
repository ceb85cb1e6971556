"""Stacks made up by hypothesis: roles × modes × sizes × accelerators × placement × engines."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hypothesis import strategies as st

from infra.catalog.load import Catalog
from infra.errors import ProblemsFound
from infra.plan.compile import CompiledStack, compile_stack
from infra.spec.load import LoadedStack
from infra.spec.stack import StackSpec


@dataclass(frozen=True)
class Kind:
    """An engine release on hardware that it runs on, with a checkpoint that both take."""

    engine: str
    version: str
    accelerators: tuple[str, ...]
    checkpoint: str
    modes: tuple[str, ...]
    kv_transfer: tuple[str, ...]
    routers: tuple[str, ...]


CATALOG = Catalog()
_MODES = ("internal", "hybrid", "external")
NVIDIA = ("h200", "b200", "gb200")
KINDS = (
    Kind("vllm", "0.17.0", (*NVIDIA, "mi325x"), "kimi-k2.5-int4", _MODES, ("nixl", "mooncake"), ("vllm-router",)),
    Kind(
        "vllm", "0.22.1", (*NVIDIA, "mi300x", "mi355x"), "kimi-k2.5-int4",
        (*_MODES, "multi-port"), ("nixl", "mooncake"), ("vllm-router",),
    ),
    Kind(
        "vllm", "0.33.0", ("b200", "b300", "gb200"), "kimi-k2.5-nvfp4",
        (*_MODES, "multi-port"), ("nixl",), ("vllm-router",),
    ),
    Kind(
        "vllm-ascend", "0.22.1rc1", ("ascend-a2", "ascend-a3"), "kimi-k2.5-w4a8",
        _MODES, ("mooncake",), ("ascend-proxy", "vllm-router"),
    ),
    Kind(
        "sglang", "0.5.9", ("h200", "b200"), "kimi-k2.5-int4",
        ("internal",), ("nixl", "mooncake"), ("sglang-router",),
    ),
    Kind("sglang", "0.5.23", ("b200", "gb200"), "kimi-k2.5-nvfp4", ("internal",), ("nixl",), ("sglang-router",)),
)  # fmt: skip

# Ports of clients: the usual one, and some inside the blocks that the compiler hands out.
CLIENT_PORTS = (8000, 1999, 7100, 7103, 12321, 12400, 12600, 12800, 17600, 29000, 61000)


@dataclass
class Made:
    """A generated stack file, before and after it is compiled."""

    data: dict[str, object]
    idle: int = 0
    kind: Kind = KINDS[0]
    notes: list[str] = field(default_factory=list)


def loaded(data: dict[str, object], name: str = "generated") -> LoadedStack:
    """A stack of plain values, as if read from a file without line numbers."""
    return LoadedStack(
        name=name, file=f"{name}.yaml", spec=StackSpec.model_validate(data), places={}
    )


def compile_made(made: Made, catalog: Catalog) -> CompiledStack:
    """Compile; devices that stay idle are declared as the message asks, for that is allowed."""
    try:
        return compile_stack(loaded(made.data), catalog=catalog)
    except ProblemsFound as found:
        if {problem.rule for problem in found.problems} != {"idle-devices"}:
            raise
        for problem in found.problems:
            _declare_idle(made, problem.field, problem.what)
    return compile_stack(loaded(made.data), catalog=catalog)


def _declare_idle(made: Made, where: str, what: str) -> None:
    count = re.match(r"(\d+) of \d+ devices", what)
    assert count is not None, what
    idle = int(count[1])
    made.idle += idle
    roles = made.data["roles"]
    assert isinstance(roles, dict)
    parts = where.split(".")
    name = parts[1] if len(parts) > 1 else next(iter(roles))
    replicas = roles[name]["replicas"] if len(parts) > 1 else 1
    assert idle % replicas == 0
    roles[name]["devices_idle"] = idle // replicas


@st.composite
def stacks(draw: st.DrawFn) -> Made:
    """A stack that can be placed: every shape that an operator may ask for."""
    kind = draw(st.sampled_from(KINDS))
    accelerator = draw(st.sampled_from(kind.accelerators))
    fact = CATALOG.accelerator(accelerator)
    per_host = fact.devices_per_host
    platforms = ["aws-ec2", "existing-hosts"] if "aws" in fact.instances else ["existing-hosts"]
    disaggregated = draw(st.booleans())
    names = ("prefill", "decode") if disaggregated else ("unified",)
    roles = {name: draw(_roles(kind, per_host)) for name in names}
    if kind.engine == "vllm-ascend" and disaggregated:
        # the connector's own rule: prefill at least as wide as decode
        widest = max(int(str(role["tensor_parallel"])) for role in roles.values())
        if widest != roles["prefill"]["tensor_parallel"]:
            wider = {"tensor_parallel": widest, "data_parallel": 1, "load_balancing": "external"}
            roles["prefill"] = {**roles["prefill"], **wider}
    data: dict[str, object] = {
        "checkpoint": kind.checkpoint,
        "accelerator": accelerator,
        "engine": {"name": kind.engine, "version": kind.version},
        "platform": draw(st.sampled_from(platforms)),
        "runtime": draw(st.sampled_from(["docker", "podman", "native"])),
        "placement": draw(st.sampled_from(["dedicated", "shared"])),
        "roles": roles,
        "defaults": {"max_model_len": draw(st.sampled_from([4096, 32768]))},
        "port": draw(st.sampled_from(CLIENT_PORTS)),
    }
    if disaggregated:
        data["kv_transfer"] = draw(st.sampled_from(kind.kv_transfer))
    router = draw(st.sampled_from(kind.routers[: None if disaggregated else 1]))
    single = not disaggregated and _num_endpoints(roles["unified"]) == 1
    if disaggregated or not single or draw(st.booleans()):
        names_of_unified = [name for name in kind.routers if name != "ascend-proxy"]
        data["router"] = {"name": router if disaggregated else names_of_unified[0]}
    return Made(data=data, kind=kind)


def _num_endpoints(role: dict[str, object]) -> int:
    """1 when clients face one endpoint, else any greater number."""
    if role["replicas"] != 1:
        return 2
    return 1 if role["data_parallel"] == 1 or role["load_balancing"] == "internal" else 2


@st.composite
def _roles(draw: st.DrawFn, kind: Kind, per_host: int) -> dict[str, object]:
    mode = draw(st.sampled_from(kind.modes))
    tensor = draw(st.sampled_from([1, 2, 4, 8, 2 * per_host]))
    role: dict[str, object] = {
        "replicas": draw(st.integers(1, 3)),
        "tensor_parallel": tensor,
        "data_parallel": 1,
        "load_balancing": mode,
        "expert_parallel": draw(st.booleans()),
        "flags": draw(_flags(kind)),
    }
    if kind.engine == "sglang":
        if draw(st.booleans()):
            role["data_parallel"] = draw(
                st.sampled_from([n for n in (1, 2, 4, 8) if tensor % n == 0])
            )
            role["flags"] = {"enable-dp-attention": True}
        return role
    if tensor > per_host or draw(st.integers(0, 4)) == 0:
        if tensor < per_host and draw(st.booleans()):
            role["pipeline_parallel"] = 2
        return role
    on_host = per_host // tensor
    sizes = {
        "internal": [2, on_host, 2 * on_host, 3 * on_host, on_host + 1],
        "external": [2, 3, on_host, 2 * on_host, 4 * on_host, on_host + 1],
        # the engine switches hybrid off unless every host has more than one and fewer than all ranks
        "hybrid": [2 * on_host, 3 * on_host] if on_host > 1 else [1],
        "multi-port": [on_host, 2 * on_host] if on_host > 1 else [1],
    }[mode]
    role["data_parallel"] = draw(st.sampled_from([size for size in sizes if size >= 1]))
    return role


@st.composite
def _flags(draw: st.DrawFn, kind: Kind) -> dict[str, object]:
    if kind.engine == "sglang":
        return {}
    known: dict[str, object] = {
        "enforce-eager": True,
        "block-size": 64,
        "compilation-config": {
            "cudagraph_mode": "FULL_DECODE_ONLY",
            "cudagraph_capture_sizes": [8, 4],
        },
        "enable-prefix-caching": False,
        "seed": 1,
    }
    chosen = draw(st.permutations(sorted(known)))
    return {name: known[name] for name in chosen[: draw(st.integers(0, 4))]}


@st.composite
def reordered(draw: st.DrawFn, value: object) -> object:
    """The same value with the keys of every map in another order."""
    if isinstance(value, dict):
        return {key: draw(reordered(value[key])) for key in draw(st.permutations(list(value)))}
    if isinstance(value, list):
        return [draw(reordered(item)) for item in value]
    return value
