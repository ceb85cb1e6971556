"""One or more broken plans for every rule: a stack that passes, and what is changed in its plan document."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]
Change = Callable[[Document], None]


@dataclass(frozen=True)
class Case:
    """A plan that a rule finds fault with.

    Args:
        stack: it passes the rule as it is; `name@version` for another release of its engine.
        change: breaks its document.
        says: words of the message.
        process: the process that is named, when one is.
    """

    stack: str
    change: Change
    says: str
    process: str | None = None


def process(document: Document, name: str) -> Document:
    found: Document = next(row for row in document["processes"] if row["id"] == name)
    return found


def flag(name: str, option: str, value: str | None) -> Change:
    """Another value for an option of a process; None removes it with its words; new ones are appended."""

    def change(document: Document) -> None:
        argv = process(document, name)["argv"]
        if option in argv:
            start = argv.index(option)
            end = start + 1
            while end < len(argv) and not argv[end].startswith("--"):
                end += 1
            argv[start:end] = []
        if value is not None:
            argv += [option, value] if value else [option]

    return change


def env(name: str, variable: str, value: str) -> Change:
    def change(document: Document) -> None:
        process(document, name)["env"][variable] = value

    return change


def both(*changes: Change) -> Change:
    def change(document: Document) -> None:
        for each in changes:
            each(document)

    return change


def without(name: str) -> Change:
    def change(document: Document) -> None:
        document["processes"].remove(process(document, name))

    return change


def without_role(role: str) -> Change:
    def change(document: Document) -> None:
        document["processes"] = [row for row in document["processes"] if row["role"] != role]

    return change


def top(field: str, value: object) -> Change:
    def change(document: Document) -> None:
        document[field] = value

    return change


def image(reference: str) -> Change:
    def change(document: Document) -> None:
        document["engine"]["image"] = reference

    return change


def accelerator(name: str, *hosts: str) -> Change:
    def change(document: Document) -> None:
        for host in document["hosts"]:
            if not hosts or host["name"] in hosts:
                host["accelerator"] = name

    return change


def every(role: str, change_of: Callable[[str], Change]) -> Change:
    """A change of every process of a role."""

    def change(document: Document) -> None:
        for row in document["processes"]:
            if row["role"] == role:
                change_of(row["id"])(document)

    return change


def kv_config(name: str, **values: object) -> Change:
    def change(document: Document) -> None:
        argv = process(document, name)["argv"]
        at = argv.index("--kv-transfer-config") + 1
        argv[at] = json.dumps({**json.loads(argv[at]), **values})

    return change


def additional(name: str, **values: object) -> Change:
    """Further keys of vllm-ascend's own configuration."""

    def change(document: Document) -> None:
        argv = process(document, name)["argv"]
        if "--additional-config" not in argv:
            argv += ["--additional-config", "{}"]
        at = argv.index("--additional-config") + 1
        argv[at] = json.dumps({**json.loads(argv[at]), **values})

    return change


def model(path: str) -> Change:
    """Another path of the checkpoint, on every process."""

    def change(document: Document) -> None:
        for row in document["processes"]:
            if row["kind"] == "engine":
                row["argv"][row["argv"].index("serve") + 1] = path

    return change


def one_model(name: str, path: str) -> Change:
    """Another path of the checkpoint on one process."""

    def change(document: Document) -> None:
        argv = process(document, name)["argv"]
        argv[argv.index("serve") + 1] = path

    return change


def address(host: str, value: str) -> Change:
    def change(document: Document) -> None:
        next(row for row in document["hosts"] if row["name"] == host)["address"] = value

    return change


def spec_of(draft: str) -> Change:
    """Speculation with a checkpoint as the draft."""
    config = {"method": "eagle3", "model": f"/models/{draft}/main", "num_speculative_tokens": 3}
    return flag("unified-0/0", "--speculative-config", json.dumps(config))


def drop_url(option: str, index: int) -> Change:
    """One URL fewer on the router's list."""

    def change(document: Document) -> None:
        argv = process(document, "router/0")["argv"]
        places = [i for i, word in enumerate(argv) if word == option]
        del argv[places[index] : places[index] + 2]

    return change


def swap_router(*program: str) -> Change:
    def change(document: Document) -> None:
        argv = process(document, "router/0")["argv"]
        argv[:1] = program

    return change


def no_mounts(document: Document) -> None:
    for row in document["processes"]:
        row["mounts"] = []


def other_bind(document: Document) -> None:
    process(document, "decode-0/0")["binds"][0]["port"] += 1


def other_endpoint(document: Document) -> None:
    process(document, "decode-0/0")["endpoint"] = "http://192.0.2.3:9"


def other_connect(of: str, **values: object) -> Change:
    def change(document: Document) -> None:
        process(document, of)["connects"][0].update(values)

    return change


def forgotten_connect(document: Document) -> None:
    del process(document, "router/0")["connects"][0]


GB200, A3 = "gb200-2p1d", "a3-2p1d"
NO_MODEL = '{"method": "eagle3", "num_speculative_tokens": 3}'
PARALLEL_DRAFT = (
    '{"method": "eagle3", "model": "a/b", "num_speculative_tokens": 3, "parallel_drafting": true}'
)
DRAFT = (
    '{"method": "eagle3", "model": "/models/kimi-k2.5-eagle3/main", "num_speculative_tokens": 3}'
)
NO_TOKENS = '{"method": "eagle3", "model": "/models/kimi-k2.5-eagle3/main"}'
SHORT = '{"cudagraph_capture_sizes": [4, 8, 160]}'
flashcomm = env("unified-0/0", "VLLM_ASCEND_ENABLE_FLASHCOMM1", "1")
THREE_KEYS = {"prefill": {"dp_size": 4, "tp_size": 8}, "decode": {"dp_size": 32, "tp_size": 1}}

CASES: Mapping[str, tuple[Case, ...]] = {
    "unknown-flag": (
        Case(GB200, flag("decode-0/0", "--no-such-flag", ""), "rejects --no-such-flag", "decode-0/0"),
        Case(GB200, flag("decode-0/0", "--max-model-len", "long"), "invalid human_readable_int", "decode-0/0"),
        Case(GB200, flag("router/0", "--polciy", "random"), "--polciy", "router/0"),
        Case("h200-sglang-tp8", flag("unified-0/0", "--tool-call-parser", "kimi_k3"), "argument --tool-call-parser"),
        Case("h200-sglang-tp8", flag("unified-0/0", "--reasoning-parser", "kimi_k3"), "argument --reasoning-parser"),
    ),
    "json-flag-value": (
        Case("h200-tp8", flag("unified-0/0", "--compilation-config", '{"graph_mode": "FULL"}'), "field graph_mode"),
        Case("h200-tp8", flag("unified-0/0", "--compilation-config", '{"cudagraph_mode": "HALF"}'), "HALF is none of"),
        Case("h200-tp8", flag("unified-0/0", "--eplb-config", '{"window_size": "long"}'), "'long' is not int"),
        Case("h200-tp8-eagle3", flag("unified-0/0", "--speculative-config", '{"draft_kind": "x"}'), "field draft_kind"),
        Case(GB200, kv_config("decode-1/2", kv_iq=1), "KVTransferConfig has no field kv_iq", "decode-1/2"),
    ),
    "parser-name": (
        Case("h200-tp8", flag("unified-0/0", "--reasoning-parser", "kimi_k3"), "no reasoning-parser kimi_k3"),
        Case("h200-tp8", flag("unified-0/0", "--tool-call-parser", "kimi_k3"), "no tool-call-parser kimi_k3"),
        Case("h200-tp8", flag("unified-0/0", "--tool-call-parser", None), "needs --tool-call-parser"),
    ),
    "quantization-method": (
        Case("h200-tp8", flag("unified-0/0", "--quantization", "int3"), "knows no quantisation int3"),
        Case("h200-tp8", flag("unified-0/0", "--quantization", "ascend"), "vllm 0.22.1 knows no quantisation ascend"),
    ),
    "model-path": (
        Case(GB200, model("weights"), "decode-0/0 serves weights: neither a path nor a repository"),
        Case(GB200, one_model("decode-3/1", "/models/kimi-k2.5-nvfp4/other"), "and decode-0/0 of decode/0 serves"),
        Case("h200-sglang-tp8", flag("unified-0/0", "--model-path", None), "unified-0/0 serves None"),
    ),
    "server-arguments": (
        Case("h200-sglang-tp8", flag("unified-0/0", "--page-size", "7"), "page-size 7 does not divide"),
        Case("h200-sglang-tp8", flag("unified-0/0", "--enable-two-batch-overlap", ""), "needs a transport"),
        Case("sglang-2n-tp16", flag("unified-0/0", "--tp-size", "17"), "17 devices do not spread evenly over 2 nodes"),
        Case("sglang-pd-nixl", flag("decode-0/0", "--disaggregation-decode-tp", "8"), "is for prefill", "decode-0/0"),
        Case("sglang-pd-nixl", flag("prefill-0/0", "--disaggregation-decode-tp", "3"), "no multiples of each other"),
        Case("sglang-pd-nixl", flag("prefill-0/0", "--disaggregation-ib-device", "mlx5_0,mlx5_0"), "a device twice"),
    ),
    "chat-template": (
        Case("h200-sglang-tp8", flag("unified-0/0", "--chat-template", "kimi_k2"), "neither built into sglang 0.5.9"),
        Case("h200-tp8", flag("unified-0/0", "--chat-template", "kimi_k2"), "neither built into vllm 0.22.1"),
    ),
    "served-name-colon": (
        Case("h200-sglang-tp8", flag("unified-0/0", "--served-model-name", "kimi:k2"), "holds a colon"),
    ),
    "unread-variable": (
        Case("h200-tp8", env("unified-0/0", "VLLM_USE_V1", "1"), "does not read VLLM_USE_V1"),
        Case(A3, env("decode-1/3", "VLLM_ASCEND_ENABLE_CONTEXT_PARALLEL", "1"), "does not read", "decode-1/3"),
    ),
    "port-variable": (
        Case(GB200, env("decode-0/0", "VLLM_NIXL_SIDE_CHANNEL_PORT", "any"), "is 'any', and no number", "decode-0/0"),
    ),
    "internal-port": (
        Case("h200-tp8", env("unified-0/0", "VLLM_PORT", "tcp://192.0.2.9:8000"), "called vllm injects"),
        Case("h200-tp8", env("unified-0/0", "VLLM_PORT", "8000"), "is the HTTP port 8000"),
    ),
    "socket-interface": (
        Case(GB200, env("decode-0/0", "GLOO_SOCKET_IFNAME", "^lo,docker"), "^ is NCCL's alone", "decode-0/0"),
        Case(A3, env("decode-1/3", "HCCL_SOCKET_IFNAME", "192.0.2.4"), "an address, and no interface", "decode-1/3"),
    ),
    "library-architecture": (
        Case(A3, env("decode-0/0", "LD_PRELOAD", "/lib/x86_64-linux-gnu/libjemalloc.so.2"), "for x86_64", "decode-0/0"),
        Case(A3, accelerator("h200", "prefill-0"), "LD_PRELOAD names a library for aarch64; prefill-0 is x86_64"),
    ),
    "image-architecture": (
        Case("h200-tp8", image("vllm/vllm-openai:v0.22.1-aarch64"), "is for aarch64; h200 hosts are x86_64"),
        Case(GB200, image("vllm/vllm-openai:v0.22.1-x86_64-cu129-ubuntu2404"), "is for x86_64; gb200 hosts"),
    ),
    "engine-vendor": (Case("h200-tp8", accelerator("ascend-a2"), "does not run on ascend-a2"),),
    "checkpoint-accelerator": (Case(GB200, accelerator("h200"), "does not run on h200 (hopper)"),),
    "accelerator-not-rented": (
        Case("a3-2p1d", top("platform", "aws-ec2"), "AWS rents no "),
    ),
    "missing-image": (Case("h200-tp8", image(""), "no image for h200"),),
    "different-images": (Case(GB200, accelerator("mi355x", "decode-3"), "different images"),),
    "router-engine": (
        Case(GB200, swap_router("python", "-m", "sglang_router.launch_router"), "does not speak to vllm", "router/0"),
    ),
    "draft-checkpoint": (
        Case("h200-tp8-eagle3", top("checkpoint", "kimi-k2-thinking"), "is a draft of"),
        Case("h200-tp8", top("checkpoint", "kimi-k2.5-eagle3"), "kimi-k2.5-eagle3 is a draft: it cannot serve"),
        Case("h200-tp8", spec_of("kimi-k2.5-int4"), "kimi-k2.5-int4 is no draft", "unified-0/0"),
    ),
    "model-architecture": (
        Case(
            "h200-sglang-tp8",
            flag("unified-0/0", "--speculative-draft-model-path", "/models/kimi-k2.5-eagle3-mla/main"),
            "sglang 0.5.9 registers no Eagle3DeepseekV2ForCausalLM, which kimi-k2.5-eagle3-mla is",
            "unified-0/0",
        ),
    ),
    "draft-accelerator": (
        Case(
            "sglang-rocm-tp4",
            flag("unified-0/0", "--speculative-draft-model-path", "/models/kimi-k2.5-eagle3/main"),
            "does not speculate with this draft on",
        ),
    ),
    "aiter-heads": (
        Case("mi325x-tp4", flag("unified-0/0", "--tensor-parallel-size", "8"), "8 heads per device", "unified-0/0"),
    ),
    "parallel-size": (
        Case("h200-tp8", flag("unified-0/0", "--tensor-parallel-size", "0"), "is 0", "unified-0/0"),
        Case("sglang-pd-nixl", flag("prefill-0/0", "--tp-size", "0"), "is 0", "prefill-0/0"),
    ),
    "heads-divisible": (
        Case("h200-tp8", flag("unified-0/0", "--tensor-parallel-size", "3"), "3 does not divide 64", "unified-0/0"),
    ),
    "context-parallel-size": (
        Case(
            "k2-thinking-h200-dcp8@0.33.0",
            flag("unified-0/0", "--prefill-context-parallel-size", "3"),
            "8 fits no prefill context parallel of 3",
            "unified-0/0",
        ),
        Case(
            "k2-thinking-h200-dcp8",
            flag("unified-0/0", "--decode-context-parallel-size", "3"),
            "3 does not divide tensor_parallel 8",
            "unified-0/0",
        ),
    ),
    "ranks-incomplete": (
        Case(GB200, without("decode-1/1"), "rank 5 of 16 not launched"),
        Case(GB200, flag("decode-1/1", "--data-parallel-rank", "4"), "launched twice", "decode-1/0"),
        Case(GB200, flag("decode-1/1", "--data-parallel-rank", "16"), "beyond the group's size", "decode-1/1"),
        Case(GB200, flag("decode-1/1", "--data-parallel-size", "8"), "disagree on the data-parallel size"),
    ),
    "group-flags-differ": (
        Case(GB200, flag("decode-1/0", "--eplb-config", '{"window_size": 500}'), "--eplb-config is None", "decode-1/0"),
        Case(GB200, flag("decode-1/0", "--enable-expert-parallel", None), "--enable-expert-parallel", "decode-1/0"),
        Case(GB200, flag("decode-1/0", "--all2all-backend", "deepep_low_latency"), "--all2all-backend", "decode-1/0"),
    ),
    "balancing-modes": (
        Case(GB200, flag("decode-1/0", "--data-parallel-hybrid-lb", ""), "several load-balancing modes", "decode-1/0"),
        Case("h200-tp8", flag("unified-0/0", "--data-parallel-external-lb", ""), "and no rank"),
        Case("h200-2n-tp16", flag("unified-0/0", "--data-parallel-hybrid-lb", ""), "one rank over several nodes"),
        Case(GB200, flag("decode-1/0", "--data-parallel-size-local", "4"), "holds one rank and is told", "decode-1/0"),
    ),
    "local-ranks": (
        Case("vllm-internal-2n", flag("unified-0/0", "--data-parallel-size-local", "9"), "9 is more than the group's"),
    ),
    "node-place": (
        Case("h200-2n-tp16", flag("unified-1/0", "--node-rank", "2"), "--node-rank 2 is not below --nnodes 2"),
        Case("h200-2n-tp16", flag("unified-1/0", "--nnodes", "3"), "16 devices do not spread evenly"),
        Case("h200-2n-tp16", flag("unified-0/0", "--distributed-executor-backend", "ray"), "ray does not span nodes"),
    ),
    "leader-start-rank": (
        Case(
            "vllm-internal-2n@0.33.0",
            flag("unified-0/0", "--data-parallel-start-rank", "0"),
            "is then hybrid, and refuses unified-1/0",
            "unified-0/0",
        ),
    ),
    "ray-data-parallel": (
        Case(
            "vllm-internal-2n",
            both(
                flag("unified-0/0", "--distributed-executor-backend", "ray"),
                flag("unified-0/0", "--data-parallel-size-local", None),
            ),
            "all of them meet at 127.0.0.1",
            "unified-0/0",
        ),
    ),
    "api-servers": (
        Case("h200-2n-tp16", flag("unified-1/0", "--api-server-count", "2"), "headless and asks for 2 API servers"),
        Case("vllm-multi-port", flag("unified-0/0", "--api-server-count", "2"), "one API server per rank"),
    ),
    "headless-mode": (
        Case(GB200, flag("decode-1/0", "--headless", ""), "is headless", "decode-1/0"),
        Case("h200-2n-tp16", flag("unified-1/0", "--headless", None), "unified-1/0", "unified-1/0"),
    ),
    "ranks-per-host": (
        Case("vllm-hybrid-2n", flag("unified-0/0", "--data-parallel-size-local", None), "needs --data-parallel-size"),
        Case("vllm-multi-port", flag("unified-0/0", "--data-parallel-size-local", "1"), "at least two ranks"),
    ),
    "sglang-data-parallel": (
        Case("sglang-dp-attention-2n", flag("unified-0/0", "--enable-dp-attention", None), "over several hosts"),
        Case("sglang-dp-attention-2n", flag("unified-0/0", "--dp-size", "3"), "3 does not divide"),
    ),
    "expert-transport": (
        Case("h200-tp8", flag("unified-0/0", "--all2all-backend", "mori"), "needs amd devices; h200 is nvidia"),
        Case("mi300x-tp8", flag("unified-0/0", "--all2all-backend", "deepep_low_latency"), "needs nvidia devices"),
    ),
    "overlap-transport": (
        Case(GB200, flag("decode-0/0", "--enable-dbo", ""), "needs a DeepEP transport", "decode-0/0"),
    ),
    "expert-balancing": (
        Case("h200-tp8", flag("unified-0/0", "--enable-eplb", ""), "EPLB needs expert parallelism"),
        Case(A3, flag("decode-0/0", "--enable-eplb", ""), "does not run on Ascend", "decode-0/0"),
        Case(GB200, flag("decode-0/0", "--eplb-config", '{"num_redundant_experts": 8}'), "balancing is off"),
    ),
    "device-shared": (
        Case(GB200, env("decode-0/1", "CUDA_VISIBLE_DEVICES", "0"), "both take device 0", "decode-0/1"),
        Case(GB200, env("decode-0/1", "CUDA_VISIBLE_DEVICES", "7"), "device 7 does not exist", "decode-0/1"),
        Case("h200-tp8", flag("unified-0/0", "--tensor-parallel-size", "16"), "World size (16)", "unified-0/0"),
    ),
    "mixed-group": (Case(GB200, accelerator("b200", "decode-3"), "decode/0 runs on b200 and gb200"),),
    "fabric-domain": (
        Case(
            "vllm-internal-2n",
            every("unified", lambda name: flag(name, "--all2all-backend", "flashinfer_all2allv")),
            "reaches the 8 of one NVLink domain",
        ),
    ),
    "service-port": (
        Case(GB200, flag("decode-0/1", "--port", "28028"), "NCCL's RAS thread", "decode-0/1"),
        Case(A3, kv_config("prefill-0/0", kv_port="60010"), "which HCCL takes", "prefill-0/0"),
    ),
    "port-twice": (
        Case(
            GB200,
            flag(
                "decode-0/0",
                "--kv-events-config",
                '{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:7101"}',
            ),
            "7101 is claimed by kv_events of decode-0/0",
            "decode-0/1",
        ),
        Case(GB200, flag("decode-0/1", "--port", "7100"), "192.0.2.3:7100 is claimed", "decode-0/1"),
        Case(GB200, flag("decode-0/0", "--port", "12321"), "12321", "decode-0/0"),
    ),
    "port-range": (Case(GB200, flag("decode-0/1", "--port", "70000"), "70000", "decode-0/1"),),
    "dangling-connect": (
        Case(GB200, flag("decode-1/0", "--data-parallel-rpc-port", "12399"), "nobody listens", "decode-1/0"),
        Case(GB200, flag("decode-1/0", "--data-parallel-address", None), "127.0.0.1", "decode-1/0"),
    ),
    "leader-address": (
        Case(
            GB200,
            flag("decode-0/0", "--data-parallel-address", "192.0.2.9"),
            "is not an address of decode-0",
            "decode-0/0",
        ),
    ),
    "side-channel-host": (
        Case(GB200, env("decode-0/0", "VLLM_NIXL_SIDE_CHANNEL_HOST", "localhost"), "localhost", "decode-0/0"),
        Case(GB200, env("prefill-0/0", "VLLM_NIXL_SIDE_CHANNEL_HOST", "0.0.0.0"), "0.0.0.0", "prefill-0/0"),
    ),
    "host-variable": (
        Case(GB200, env("decode-1/0", "VLLM_HOST_IP", "192.0.2.3"), "is not the address of decode-1", "decode-1/0"),
        Case(A3, env("decode-1/0", "HCCL_IF_IP", "192.0.2.3"), "is not the address of decode-1", "decode-1/0"),
    ),
    "router-number": (
        Case(GB200, flag("router/0", "--queue-size", "-1"), "vllm-router takes no --queue-size below", "router/0"),
        Case("sglang-pd-nixl", flag("router/0", "--queue-size", "-1"), "sglang-router takes no --queue", "router/0"),
    ),
    "router-endpoints": (
        Case(
            "sglang-pd-mooncake",
            flag("prefill-0/0", "--disaggregation-bootstrap-port", "12345"),
            "where no prefill waits",
            "router/0",
        ),
        Case(GB200, drop_url("--decode", 5), "misses http://192.0.2.4:7101", "router/0"),
        Case(GB200, flag("decode-1/1", "--port", "7109"), "where no process serves", "router/0"),
        Case(GB200, flag("router/0", "--decode", "http://192.0.2.1:7100"), "it is a prefill process", "router/0"),
    ),
    "served-name-differs": (
        Case(GB200, every("decode", lambda name: flag(name, "--served-model-name", "x")), "a request names one"),
        Case("h200-2n-tp16", flag("unified-1/0", "--served-model-name", "x"), "unified-1/0 serves x", "unified-1/0"),
        Case(
            GB200,
            every("decode", lambda name: both(flag(name, "--served-model-name", None), one_model(name, "/models/x"))),
            "serves /models/x",
            "decode-0/0",
        ),
    ),
    "pair-incomplete": (
        Case(GB200, without("router/0"), "has prefill and decode and no router"),
        Case(GB200, without_role("decode"), "has prefill and no decode"),
    ),
    "draft-disagrees": (
        Case(
            "gb200-2p1d@0.33.0",
            every("decode", lambda name: flag(name, "--speculative-config", DRAFT)),
            "model is None on prefill and /models/kimi-k2.5-eagle3/main on decode",
        ),
    ),
    "roles-disagree": (
        Case(GB200, every("decode", lambda name: flag(name, "--kv-cache-dtype", "fp8")), "--kv-cache-dtype"),
    ),
    "block-size-order": (
        Case(
            GB200,
            both(
                every("prefill", lambda name: flag(name, "--block-size", "128")),
                every("decode", lambda name: flag(name, "--block-size", "64")),
            ),
            "block-size is 128 on prefill and 64 on decode",
        ),
    ),
    "side-channel-base": (
        Case(GB200, env("decode-2/1", "VLLM_NIXL_SIDE_CHANNEL_PORT", "17709"), "several side-channel bases"),
    ),
    "kv-role-deprecated": (
        Case(
            "gb200-2p1d@0.33.0",
            every("decode", lambda name: kv_config(name, kv_role="kv_both")),
            "kv_both is deprecated since vLLM 0.33.0; decode has it",
        ),
    ),
    "kv-connector": (
        Case(GB200, flag("decode-0/0", "--kv-transfer-config", None), "decode names no kv_connector", "decode-0/0"),
        Case(GB200, kv_config("decode-0/0", kv_connector="NIXL"), "vllm has no connector NIXL", "decode-0/0"),
    ),
    "kv-role": (Case(GB200, kv_config("decode-0/0", kv_role="kv_producer"), "kv_role is kv_producer", "decode-0/0"),),
    "instance-sizes": (
        Case(A3, kv_config("prefill-0/0", kv_connector_extra_config=THREE_KEYS), "dp_size, tp_size are 4, 8"),
        Case(A3, every("decode", lambda name: kv_config(name, engine_id="0")), "share engine_id"),
    ),
    "peer-sizes": (
        Case(A3, kv_config("decode-0/0", kv_connector_extra_config=THREE_KEYS), "prefill.dp_size, tp_size are 4, 8"),
    ),
    "ascend-prefill-width": (
        Case(A3, flag("decode-0/0", "--tensor-parallel-size", "16"), "16 is larger than prefill's 8"),
    ),
    "decode-stages": (
        Case(A3, flag("decode-0/0", "--pipeline-parallel-size", "2"), "decode has 2 pipeline stages", "decode-0/0"),
        Case(
            A3,
            both(
                flag("prefill-0/0", "--pipeline-parallel-size", "2"),
                flag("prefill-0/0", "--prefill-context-parallel-size", "2"),
            ),
            "2 pipeline stages and 2 context-parallel ranks",
            "prefill-0/0",
        ),
    ),
    "prefill-contexts": (
        Case(A3, flag("prefill-0/0", "--prefill-context-parallel-size", "2"), "exclude 2 data-parallel", "prefill-0/0"),
        Case(
            "a3-longctx-tp16@0.26.0rc1",
            flag("unified-0/0", "--prefill-context-parallel-size", "2"),
            "0.26.0rc1 has no prefill context parallelism",
        ),
    ),
    "hccn-mount": (Case(A3, no_mounts, "/etc/hccn.conf"),),
    "additional-config-key": (
        Case("a3-dp4tp4", additional("unified-0/0", recompute=True), "reads no additional-config key recompute"),
    ),
    "flash-comm-layout": (
        Case(A3, env("decode-0/0", "VLLM_ASCEND_ENABLE_FLASHCOMM1", "1"), "needs tensor parallelism above 1"),
        Case("a3-dp4tp4", both(flashcomm, flag("unified-0/0", "--enable-expert-parallel", None)), "needs expert"),
        Case(
            "a3-dp4tp4",
            both(flashcomm, flag("unified-0/0", "--compilation-config", '{"cudagraph_capture_sizes": [1, 2, 6]}')),
            "no multiples of 4, and none is left",
        ),
        Case("a3-dp4tp4@0.17.0rc1", flashcomm, "refuses models with vision"),
    ),
    "balance-scheduling": (
        Case(A3, env("decode-0/0", "VLLM_ASCEND_BALANCE_SCHEDULING", "1"), "does not both prefill and decode"),
    ),
    "balance-scheduling-early": (
        Case("a3-2p1d@0.18.0", env("decode-0/0", "VLLM_ASCEND_BALANCE_SCHEDULING", "1"), "is on for decode"),
    ),
    "recompute-scheduler": (
        Case("a3-dp4tp4", additional("unified-0/0", recompute_scheduler_enable=True), "not for a role that does both"),
        Case(
            "a3-dp4tp4@0.26.0rc1",
            additional("unified-0/0", scheduler_config={"recompute_scheduler_enable": True}),
            "for decode since vllm-ascend 0.23.0, not for unified",
        ),
    ),
    "recompute-on-prefill": (
        Case(A3, additional("prefill-0/0", recompute_scheduler_enable=True), "answers may be wrong"),
        Case(
            "a3-2p1d@0.26.0rc1",
            additional("prefill-0/0", scheduler_config={"recompute_scheduler_enable": True}),
            "is on for prefill: it is ignored",
        ),
    ),
    "interleave-size": (
        Case(A3, flag("prefill-0/0", "--decode-context-parallel-size", "2"), "differs from block-size", "prefill-0/0"),
    ),
    "role-setting": (
        Case(A3, additional("prefill-0/0", enable_kv_nz=True), "enable_kv_nz is for decode alone"),
        Case(A3, additional("decode-0/0", layer_sharding=["o_proj"]), "layer_sharding is for prefill alone"),
    ),
    "launch-blocking": (
        Case("a3-dp4tp4", env("unified-0/0", "ASCEND_LAUNCH_BLOCKING", "1"), "does not work with graphs"),
    ),
    "kv-port-drawn": (
        Case(A3, kv_config("prefill-0/0", kv_port="20100"), "from which Mooncake draws", "prefill-0/0"),
        Case(A3, kv_config("prefill-1/0", kv_port="16990"), "lie in 15000-17000", "prefill-1/0"),
        Case(A3, env("prefill-0/0", "ASCEND_BASE_PORT", "60500"), "lie in 60500-62100", "prefill-0/0"),
    ),
    "kv-port-low": (Case(A3, kv_config("prefill-0/0", kv_port="30000"), "Mooncake before 0.3.8", "prefill-0/0"),),
    "draft-incomplete": (
        Case("h200-tp8-eagle3", flag("unified-0/0", "--speculative-config", NO_MODEL), "The draft model is None"),
        Case("h200-tp8-eagle3", flag("unified-0/0", "--speculative-config", NO_TOKENS), "not how many tokens"),
    ),
    "capture-sizes": (
        Case(
            A3,
            both(
                flag("decode-0/0", "--max-num-batched-tokens", "200"),
                flag("decode-0/0", "--compilation-config", '{"cudagraph_capture_sizes": [4, 192, 256]}'),
            ),
            "256 are larger than max_num_batched_tokens 200",
        ),
        Case(
            "h200-tp8-eagle3",
            flag("unified-0/0", "--compilation-config", '{"cudagraph_capture_sizes": [4, 6, 8]}'),
            "6 are no multiples of 4",
        ),
        Case(A3, every("decode", lambda name: flag(name, "--compilation-config", SHORT)), "batches above 40 of 48"),
    ),
    "swap-space": (
        Case("gb200-tp4@0.17.0", flag("unified-0/0", "--swap-space", "200"), "800 GiB of swap space", "unified-0/0"),
    ),
    "ready-timeout": (
        Case("vllm-internal-2n", env("unified-0/0", "VLLM_ENGINE_READY_TIMEOUT_S", "60"), "API servers wait 60 s"),
    ),
    "router-patience": (
        Case(GB200, flag("router/0", "--worker-startup-timeout-secs", "60"), "leaves after 60 s", "router/0"),
    ),
    "media-path": (
        Case("h200-tp8", flag("unified-0/0", "--allowed-local-media-path", "/"), "read every file", "unified-0/0"),
    ),
    "remote-code": (Case("h200-tp8", model("/models/kimi-k2.5-int4/main"), "main is a branch that moves"),),
    "secret-value": (
        Case("h200-tp8", env("unified-0/0", "HF_TOKEN", "hf_abc"), "HF_TOKEN stands in the plan", "unified-0/0"),
        Case("h200-tp8", flag("unified-0/0", "--api-key", "abc"), "--api-key stands in the plan", "unified-0/0"),
    ),
    "router-key": (
        Case(GB200, every("decode", lambda name: env(name, "VLLM_API_KEY", "x")), "no OPENAI_API_KEY", "router/0"),
    ),
    "public-address": (Case("h200-tp8", address("unified-0", "8.8.8.8"), "8.8.8.8, a public address"),),
    "context-length": (Case(GB200, flag("decode-0/0", "--max-model-len", "400000"), "than the model's 262144"),),
    "batched-tokens": (
        Case(A3, flag("decode-0/0", "--max-num-batched-tokens", "16"), "16 is smaller than max_num_seqs 48"),
        Case(
            "h200-tp8-eagle3",
            both(
                flag("unified-0/0", "--max-num-seqs", "256"),
                flag("unified-0/0", "--max-num-batched-tokens", "512"),
                flag("unified-0/0", "--speculative-config", PARALLEL_DRAFT),
            ),
            "drafting takes 2 for each of 256 requests",
        ),
        Case(A3, flag("decode-0/0", "--no-enable-chunked-prefill", ""), "must hold max_model_len 32768"),
    ),
    "memory-share": (
        Case(GB200, flag("decode-0/2", "--gpu-memory-utilization", "1.5"), "is 1.5", "decode-0/2"),
        Case("h200-sglang-tp8", flag("unified-0/0", "--mem-fraction-static", "0.0"), "is 0.0"),
    ),
    "weights-memory": (Case(GB200, flag("decode-0/0", "--gpu-memory-utilization", "0.3"), "GiB of weights"),),
    "kv-memory": (
        Case(GB200, flag("decode-0/0", "--gpu-memory-utilization", "0.33"), "are left for KV"),
        Case(GB200, flag("prefill-0/0", "--max-model-len", "262144"), "needs 17.2 GiB", "prefill-0/0"),
        Case("gb200-tp4", flag("unified-0/0", "--gpu-memory-utilization", "0.8"), "beside weights", "unified-0/0"),
    ),
    "kv-memory-tight": (Case(GB200, flag("decode-0/0", "--gpu-memory-utilization", "0.397"), "are left for KV"),),
    "derived-field": (
        Case(GB200, other_bind, "binds is", "decode-0/0"),
        Case(GB200, other_endpoint, "endpoint is", "decode-0/0"),
        Case(GB200, flag("decode-0/0", "--port", "7177"), "its command line says", "decode-0/0"),
        Case(GB200, other_connect("decode-1/0", to="decode-0/1"), "connects is", "decode-1/0"),
        Case(GB200, other_connect("decode-1/0", name="master"), "connects is", "decode-1/0"),
        Case(GB200, forgotten_connect, "connects is without that", "router/0"),
    ),
}  # fmt: skip

# The rule holds for every plan of this kind, so its passing case is another stack.
ALWAYS = {
    "vision-nixl": (GB200, "h200-tp8", "Image inputs"),
    "recipe-release": (
        "gb200-2p1d@0.33.0",
        GB200,
        "vllm-gb200-nvfp4-prefill is for vllm 0.22.1 and not for 0.33.0",
    ),
}
