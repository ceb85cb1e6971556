"""Which program a foreign command line starts: an engine, a router, or neither.

Sources: vllm entrypoints/cli/main.py and entrypoints/openai/api_server.py@0.22.1; sglang launch_server.py and
cli@0.5.23; vllm-router 0.1.17, sglang-router 0.3.2; vllm-ascend examples/disaggregated_prefill_v1; ai-dynamo components
(dynamo.vllm, dynamo.sglang) as started by NVIDIA/srt-slurm@c88ef731.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from infra.catalog.schema import Family

_PYTHON = re.compile(r"python(3(\.\d+)?)?")
# Python 3.12 "Command line and environment": options that run nothing themselves. `-cCODE` and `-mMODULE` do.
_SWITCHES = re.compile(r"-[bBdEiIOPqsSuv]+")
_VALUED = re.compile(r"-[XW](.*)", re.DOTALL)
_MODULES: Mapping[str, tuple[Literal["engine", "router"], Family]] = {
    "vllm.entrypoints.openai.api_server": ("engine", "vllm"),
    "vllm.entrypoints.cli.main": ("engine", "vllm"),
    "dynamo.vllm": ("engine", "vllm"),
    "sglang.launch_server": ("engine", "sglang"),
    "dynamo.sglang": ("engine", "sglang"),
    "sglang_router.launch_router": ("router", "sglang"),
}
_PROXY_SCRIPT = "load_balance_proxy_server_example.py"
# Programs whose flags are an engine's and their own: what the engine's parser would refuse, they may take.
WRAPPED_MODULES = frozenset({"dynamo.vllm", "dynamo.sglang"})
# Their own flags → how many words each takes (ai-dynamo components, as srt-slurm and its recipes write them).
_MODE = "--disaggregation-mode"
_WRAPPERS_OWN: Mapping[str, int] = {
    _MODE: 1,
    "--is-prefill-worker": 0,
    "--is-decode-worker": 0,
    "--request-plane": 1,
    "--event-plane": 1,
    "--connector": 1,
    "--endpoint": 1,
    "--migration-limit": 1,
    "--dump-config-to": 1,
    "--dyn-tool-call-parser": 1,
    "--dyn-reasoning-parser": 1,
    "--custom-jinja-template": 1,
}
# What proxies of P/D examples list both roles by: vllm tests/v1/kv_connector/nixl_integration/toy_proxy_server.py and
# examples/online_serving/disaggregated_serving@0.22.1, vllm-ascend examples/disaggregated_prefill_v1@v0.22.1rc1, sglang
# srt/disaggregation/mini_lb.py@0.5.9.
PROXY_LISTS: Mapping[str, tuple[str, ...]] = {
    "prefill": (
        "--prefill", "--prefillers", "--prefiller-hosts", "--prefiller-host", "--prefiller-ports", "--prefiller-port",
        "--prefill-urls", "--prefill-url", "--prefill-hosts", "--prefill-host", "--prefill-ports", "--prefill-port",
    ),
    "decode": (
        "--decode", "--decoders", "--decoder-hosts", "--decoder-host", "--decoder-ports", "--decoder-port",
        "--decode-urls", "--decode-url", "--decode-hosts", "--decode-host", "--decode-ports", "--decode-port",
    ),
}  # fmt: skip
_ROUTERS: Mapping[str, tuple[Family, tuple[str, ...]]] = {
    "vllm-router": ("vllm", ("vllm-router",)),
    "sglang-router": ("sglang", ("python", "-m", "sglang_router.launch_router")),
}
_SERVE_WITHIN = 2


class Program(NamedTuple):
    """What a command line starts.

    Args:
        length: words before the first flag or model.
        canonical: the program's words as plans write them.
    """

    kind: Literal["engine", "router"]
    family: Family
    length: int
    canonical: tuple[str, ...]


_SERVE: Mapping[str, Program] = {
    "vllm": Program("engine", "vllm", 2, ("vllm", "serve")),
    "sglang": Program("engine", "sglang", 2, ("sglang", "serve")),
}


def recognise(words: Sequence[str]) -> Program | None:
    """The engine or router that a command line starts, None for any other program."""
    if not words:
        return None
    name = words[0].rpartition("/")[2]
    if _PYTHON.fullmatch(name):
        return _of_python(words)
    if name in _SERVE and tuple(words[1:2]) == ("serve",):
        return _SERVE[name]
    if name in _ROUTERS:
        family, canonical = _ROUTERS[name]
        length = 2 if tuple(words[1:2]) == ("launch",) else 1
        return Program("router", family, length, canonical)
    return None


def program_length(argv: Sequence[str]) -> int:
    """How many words of an engine's argument vector stand before its flags and model."""
    found = recognise(argv)
    if found is not None:
        return found.length
    return argv.index("serve") + 1 if "serve" in argv[: _SERVE_WITHIN + 1] else 1


def engine_words(argv: Sequence[str]) -> tuple[str, ...]:
    """The words behind the program that are the engine's: without a wrapper's own flags."""
    words = tuple(argv[program_length(argv) :])
    if not is_wrapped(argv) or "dynamo.sglang" in argv[:5]:
        return words
    kept: list[str] = []
    skip = 0
    for word in words:
        own, equals, _ = _wrappers_flag(word)
        if skip:
            skip -= 1
        elif own:
            skip = 0 if equals else _WRAPPERS_OWN[own]
        else:
            kept.append(word)
    return tuple(kept)


def role_told(argv: Sequence[str]) -> Literal["prefill", "decode"] | None:
    """The role that a wrapper is told, for engines that have no such flag."""
    told: Literal["prefill", "decode"] | None = None
    for word, following in zip(argv, (*argv[1:], ""), strict=True):
        own, equals, inline = _wrappers_flag(word)
        mode = inline if equals else following
        if own == "--is-prefill-worker" or (own == _MODE and mode == "prefill"):
            told = "prefill"
        elif own == "--is-decode-worker" or (own == _MODE and mode == "decode"):
            told = "decode"
    return told


def _wrappers_flag(word: str) -> tuple[str, str, str]:
    """(a wrapper's own flag that a word names, "" for none; `=`; the value behind it).

    Abbreviations are left out: the wrapper's parser knows the engine's flags, too, and may mean one of them.
    """
    head, equals, inline = word.partition("=")
    dashed = head.replace("_", "-") if head.startswith("--") else head
    return (dashed if dashed in _WRAPPERS_OWN else "", equals, inline)


def is_wrapped(argv: Sequence[str]) -> bool:
    """Whether another program takes the engine's flags beside its own."""
    return not WRAPPED_MODULES.isdisjoint(argv[:5])


def _of_python(words: Sequence[str]) -> Program | None:
    """`python -m module …`, or a script of vllm-ascend; options that run nothing are passed over, others are not."""
    index = 1
    while index < len(words):
        valued = _VALUED.fullmatch(words[index])
        if valued is None and not _SWITCHES.fullmatch(words[index]):
            break
        index += 2 if valued is not None and not valued[1] else 1
    if index >= len(words):
        return None
    if words[index] != "-m":
        return _of_script(words, index)
    module = words[index + 1] if index + 1 < len(words) else ""
    found = _MODULES.get(module)
    length = index + 2
    if found is None:
        is_proxy = lists_both_roles(words[length:])
        return Program("router", "vllm", length, ("python", "-m", module)) if is_proxy else None
    if module == "vllm.entrypoints.cli.main":
        if tuple(words[length : length + 1]) != ("serve",):
            return None
        return Program("engine", "vllm", length + 1, ("vllm", "serve"))
    return Program(found[0], found[1], length, ("python", "-m", module))


def _of_script(words: Sequence[str], index: int) -> Program | None:
    is_option = words[index].startswith("-")
    if not is_option and (is_ascend_proxy(words[index]) or lists_both_roles(words[index + 1 :])):
        return Program("router", "vllm", index + 1, (words[0], words[index]))
    return None


def is_ascend_proxy(script: str) -> bool:
    """Whether a script is vllm-ascend's proxy, whose flags are known."""
    return script.rpartition("/")[2] == _PROXY_SCRIPT


def lists_both_roles(words: Sequence[str]) -> bool:
    """Whether the words behind a program list prefill and decode endpoints, as a proxy's do."""
    names = {word.partition("=")[0].replace("_", "-") for word in words}
    return all(names & set(listed) for listed in PROXY_LISTS.values())


# Flags that say how ranks lie over devices and hosts; while one of them is open, no rule about layout can be judged.
LAYOUT_FLAGS = frozenset(
    {
        "tensor-parallel-size",
        "pipeline-parallel-size",
        "data-parallel-size",
        "data-parallel-size-local",
        "data-parallel-rank",
        "data-parallel-start-rank",
        "decode-context-parallel-size",
        "prefill-context-parallel-size",
        "expert-parallel-size",
        "attn-dp-size",
        "nnodes",
        "node-rank",
        "disaggregation-mode",
    }
)
ADDRESS_FLAGS = frozenset({"data-parallel-address", "master-addr", "dist-init-addr", "host"})
ADDRESS_VARIABLES = ("VLLM_HOST_IP", "HCCL_IF_IP", "VLLM_NIXL_SIDE_CHANNEL_HOST")
PORT_FLAGS = frozenset(
    {"port", "data-parallel-rpc-port", "master-port", "disaggregation-bootstrap-port", "nccl-port"}
)
# Files whose code an engine runs, or whose words it takes for its own command line (vllm tool_parsers/ and reasoning/
# abstract managers, utils/argparse_utils.py@0.22.1; sglang server_args.py@0.5.23).
CODE_FILE_FLAGS = ("tool-parser-plugin", "reasoning-parser-plugin", "config")
# Where a process is told which devices are its own, by vendor of the accelerator.
MASK_OF_VENDOR: Mapping[str, str] = {
    "nvidia": "CUDA_VISIBLE_DEVICES",
    "amd": "HIP_VISIBLE_DEVICES",
    "ascend": "ASCEND_RT_VISIBLE_DEVICES",
}
_ASCEND = re.compile(r"(HCCL|ASCEND|VLLM_ASCEND|ACL)_|TASK_QUEUE_ENABLE$|PYTORCH_NPU_")
_AMD = re.compile(r"(HIP|ROCR|HSA|VLLM_ROCM|MIOPEN|AITER)_|SGLANG_USE_AITER$")


def vendor_named(variables: Sequence[str], argv: Sequence[str]) -> Literal["amd", "ascend"] | None:
    """Whose accelerator a process is written for, by the variables and values that no other vendor's has."""
    if any(_ASCEND.match(name) for name in variables) or "ascend" in argv:
        return "ascend"
    if any("MooncakeConnectorV1" in word for word in argv):
        return "ascend"
    return "amd" if any(_AMD.match(name) for name in variables) else None
