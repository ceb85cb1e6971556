"""Stacks that cannot be compiled, or that a rule refuses: the field, the numbers and the fix are named."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from infra.catalog.load import Catalog
from infra.checks.judge import judge_stack
from infra.errors import Problem
from infra.plan.compile import address_book, analyse_stack, compile_plan
from infra.spec.load import load_stack

CATALOG = Catalog()


def problems_of(name: str, sets: Sequence[str]) -> list[Problem]:
    """Everything that `fab check` would print as an error."""
    stack = load_stack(name, sets)
    resolved, topology, found = analyse_stack(stack, CATALOG)
    problems = list(found)
    if resolved is not None and topology is not None:
        plan = compile_plan(resolved, topology, address_book(topology, None), CATALOG)
        problems += judge_stack(plan, stack, CATALOG)
    return [problem for problem in problems if problem.blocks]


ROWS = [
    pytest.param(
        "h200-tp8", ("roles.unified.replicas=100000000",),
        "too-many-devices", "roles.unified", "800000000 devices; at most 100000", "Correct replicas",
        id="a size that is a slip of the pen",
    ),
    pytest.param(
        "h200-tp8", ("roles.unified.tensor_parallel=800000000",),
        "too-many-devices", "roles.unified", "800000000 devices", "Correct replicas",
        id="a rank over more hosts than there are",
    ),
    pytest.param(
        "h200-tp8", ("roles.unified.flags.tensor-parallel-size=4",),
        "owned-flag", "roles.unified.flags.tensor-parallel-size", "--tensor-parallel-size is", "tensor_parallel",
        id="owned flag",
    ),
    pytest.param(
        "h200-tp8", ("roles.unified.flags.tp=4",),
        "owned-flag", "roles.unified.flags.tp", "--tensor-parallel-size is derived", "tensor_parallel",
        id="owned flag by its short name",
    ),
    pytest.param(
        "h200-tp8", ("defaults.flags.max_model_len=4",),
        "owned-flag", "defaults.flags.max_model_len", "--max-model-len is derived", "max_model_len",
        id="owned flag with underscores",
    ),
    pytest.param(
        "h200-sglang-tp8", ("roles.unified.flags.tp-size=4",),
        "owned-flag", "roles.unified.flags.tp-size", "derived", "tensor_parallel",
        id="owned flag of SGLang",
    ),
    pytest.param(
        "h200-tp8", ("roles.unified.flags.max-model=4",),
        "owned-flag", "roles.unified.flags.max-model", "--max-model-len is derived", "max_model_len",
        id="owned flag abbreviated",
    ),
    pytest.param(
        "h200-tp8", ("roles.unified.flags.t=4",),
        "owned-flag", "roles.unified.flags.t", "--tensor-parallel-size is derived", "tensor_parallel",
        id="owned flag by a part of its short name",
    ),
    pytest.param(
        "h200-tp8", ("roles.unified.flags.no-enable-expert-parallel=true",),
        "owned-flag", "roles.unified.flags.no-enable-expert-parallel", "--enable-expert-parallel is", "expert_parallel",
        id="owned flag negated",
    ),
    pytest.param(
        "gb200-2p1d", ("roles.decode.flags.enable_expert=true",),
        "owned-flag", "roles.decode.flags.enable_expert", "--enable-expert-parallel is derived", "expert_parallel",
        id="owned flag abbreviated with underscores",
    ),
    pytest.param(
        "a3-2p1d", ("roles.decode.flags.kv_transfer={kv_role: kv_both}",),
        "owned-flag", "roles.decode.flags.kv_transfer", "--kv-transfer-config is derived", "kv_transfer",
        id="owned flag of the Ascend plugin abbreviated",
    ),
    pytest.param(
        "h200-sglang-tp8", ("roles.unified.flags.tp=4",),
        "owned-flag", "roles.unified.flags.tp", "--tensor-parallel-size is derived", "tensor_parallel",
        id="owned flag of SGLang abbreviated",
    ),
    pytest.param(
        "h200-sglang-tp8", ("roles.unified.flags.mem-frac=0.5",),
        "owned-flag", "roles.unified.flags.mem-frac", "--mem-fraction-static is derived", "gpu_memory_utilization",
        id="owned fraction of SGLang abbreviated",
    ),
    pytest.param(
        "gb200-2p1d", ("roles.decode.flags.kv-transfer-config={kv_role: kv_both}",),
        "owned-flag", "roles.decode.flags.kv-transfer-config", "derived", "kv_transfer",
        id="what the compiler tells of a transfer",
    ),
    pytest.param(
        "gb200-2p1d", ("roles.decode.env.CUDA_VISIBLE_DEVICES='0'",),
        "owned-variable", "roles.decode.env.CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES is derived", "topology",
        id="owned variable",
    ),
    pytest.param(
        "gb200-2p1d", ("roles.decode.env.MY_NET='{interfce}'",),
        "unknown-placeholder", "roles.decode.env.MY_NET", "{interfce} stands for nothing", "{interface}",
        id="a word in braces that stands for nothing",
    ),
    pytest.param(
        "h200-tp8", ("roles.unified.tensor_parallel=6", "roles.unified.devices_idle=2"),
        "heads-divisible", "roles.unified.tensor_parallel", "6 does not divide 64 attention heads", "1, 2, 4, 8",
        id="tensor parallel that does not divide the heads",
    ),
    pytest.param(
        "h200-tp8", ("roles.unified.tensor_parallel=12",),
        "uneven-hosts", "roles.unified.tensor_parallel", "needs 12 devices; h200 hosts have 8", "multiple of 8",
        id="a rank larger than a host and no multiple",
    ),
    pytest.param(
        "h200-tp8", ("roles.unified.tensor_parallel=16", "roles.unified.data_parallel=2"),
        "spanning-ranks", "roles.unified.data_parallel", "16 devices on 2 hosts", "replicas",
        id="ranks that span hosts",
    ),
    pytest.param(
        "h200-tp8", ("roles.unified.data_parallel=3", "roles.unified.tensor_parallel=4"),
        "idle-devices", "roles.unified.devices_idle", "4 of 16 devices on 2 hosts are idle", "devices_idle",
        id="devices left idle",
    ),
    pytest.param(
        "gb200-2p1d", ("roles.decode.tensor_parallel=3",),
        "idle-devices", "roles.decode.devices_idle", "16 of 64 devices on 16 hosts", "devices_idle: 16 (per replica)",
        id="devices left idle by one replica over many hosts",
    ),
    pytest.param(
        "gb200-2p1d", ("roles.decode.flags.kv-cache-dtype=fp7",),
        "unknown-flag", "roles.decode.flags.kv-cache-dtype", "invalid choice: 'fp7'", "vllm-0.22.1.json",
        id="a flag's wrong value is the flag's",
    ),
    pytest.param(
        "h200-tp8", ("checkpoint=kimi-k2.5-eagle3",),
        "draft-checkpoint", "checkpoint", "is a draft", "kimi-k2.5-int4",
        id="a draft as the checkpoint",
    ),
    pytest.param(
        "h200-tp8", ("draft={checkpoint: kimi-k2.5-int4, num_speculative_tokens: 3}",),
        "draft-checkpoint", "draft.checkpoint", "is no draft", "Use a draft",
        id="a checkpoint as the draft",
    ),
    pytest.param(
        "gb200-2p1d", ("defaults.max_model_len=262144",),
        "kv-memory", "defaults.max_model_len", "10.2 GiB per device are left", "Lower max_model_len",
        id="a context that the KV cache cannot hold",
    ),
    pytest.param(
        "a3-2p1d", ("kv_transfer=nixl",),
        "kv-transfer-engine", "kv_transfer", "nixl would be left unused", "kv_transfer: mooncake",
        id="NIXL on Ascend",
    ),
    pytest.param(
        "a3-2p1d", ("router.name=vllm-router",),
        "router-engine", "router.name", "bootstrap server", "ascend-proxy",
        id="vllm-router before Ascend's Mooncake connector",
    ),
    pytest.param(
        "h200-tp8", ("roles.unified.devices_idle=4",),
        "idle-devices", "roles.unified.devices_idle", "0 of 8 devices on 1 host are idle, 4 are declared", "Remove",
        id="idle devices that are not idle",
    ),
    pytest.param(
        "gb200-2p1d", ("router=null",),
        "missing-router", "router", "need a router", "vllm-router",
        id="prefill and decode without a router",
    ),
    pytest.param(
        "gb200-2p1d", ("kv_transfer=null",),
        "missing-kv-transfer", "kv_transfer", "need a KV transfer", "nixl",
        id="prefill and decode without KV transfer",
    ),
    pytest.param(
        "h200-tp8", ("kv_transfer=nixl",),
        "needless-kv-transfer", "kv_transfer", "transfers no KV", "Remove",
        id="KV transfer of one role",
    ),
    pytest.param(
        "h200-tp8", ("kubernetes.workload=disaggregated-set",),
        "workload-of-one-role", "kubernetes.workload", "a unified role is one set", "leader-worker-set",
        id="a DisaggregatedSet of one role",
    ),
    pytest.param(
        "h200-tp8", ("roles.unified.replicas=2",),
        "missing-router", "router", "2 endpoints and no router", "vllm-router",
        id="two endpoints without a router",
    ),
    pytest.param(
        "gb200-2p1d", ("checkpoint=kimi-k2.5-w4a8",),
        "checkpoint-accelerator", "checkpoint", "kimi-k2.5-w4a8 (w4a8) does not run on gb200", "kimi-k2.5-nvfp4",
        id="a checkpoint for another vendor",
    ),
    pytest.param(
        "h200-tp8", ("checkpoint=kimi-k2.5-nvfp4",),
        "checkpoint-accelerator", "checkpoint", "does not run on h200 (hopper)", "kimi-k2.5-int4",
        id="NVFP4 on Hopper",
    ),
    pytest.param(
        "h200-tp8", ("accelerator=ascend-a2", "checkpoint=kimi-k2.5-w4a8"),
        "engine-vendor", "engine.name", "vllm does not run on ascend-a2", "vllm-ascend",
        id="an engine for another vendor",
    ),
    pytest.param(
        "gb200-2p1d", ("router.name=sglang-router",),
        "router-engine", "router.name", "sglang-router does not speak to vllm", "vllm-router",
        id="a router of another engine",
    ),
    pytest.param(
        "h200-tp8", ("roles.unified.max_model_len=400000",),
        "context-length", "roles.unified.max_model_len", "400000 is greater than the model's 262144", "262144",
        id="a context longer than the model's",
    ),
    pytest.param(
        "h200-tp8", ("roles.unified.flags.no-such-flag=1",),
        "unknown-flag", "roles.unified.flags.no-such-flag", "rejects --no-such-flag", "vllm-0.22.1.json",
        id="a flag that the release does not know",
    ),
    pytest.param(
        "h200-tp8", ("checkpoint=kimi-k2.5-int",),
        "unknown-id", "checkpoint", "no checkpoint kimi-k2.5-int", "kimi-k2.5-int4",
        id="an unknown checkpoint",
    ),
    pytest.param(
        "h200-tp8", ("accelerator=h2000",),
        "unknown-id", "accelerator", "no accelerator h2000", "h200",
        id="an unknown accelerator",
    ),
    pytest.param(
        "h200-tp8", ("engine.version=0.22.2",),
        "unknown-id", "engine.version", "0.22.2", "0.22.1",
        id="an unknown release",
    ),
    pytest.param(
        "h200-tp8", ("tuning=grace",),
        "unknown-id", "tuning", "grace", "grace-nvidia",
        id="an unknown tuning profile",
    ),
    pytest.param(
        "h200-tp8-eagle3", ("draft.checkpoint=kimi-k2.5-eagle4",),
        "unknown-id", "draft.checkpoint", "kimi-k2.5-eagle4", "kimi-k2.5-eagle3",
        id="an unknown draft",
    ),
    pytest.param(
        "h200-tp8-eagle3", ("engine.version=0.17.0",),
        "draft-checkpoint", "draft", "Eagle3 for Kimi needs vLLM 0.18.0", "engine.version",
        id="a draft that the release refuses",
    ),
    pytest.param(
        "k2-thinking-h200-tp8", ("roles.unified.features=[vision]",),
        "unknown-feature", "roles.unified.features", "kimi-k2-thinking has no feature vision", "tools",
        id="a feature that the checkpoint lacks",
    ),
    pytest.param(
        "a3-2p1d", ("roles.decode.tensor_parallel=16", "roles.decode.data_parallel=2"),
        "ascend-prefill-width", "roles.decode.tensor_parallel", "16 is larger than prefill's 8", "at most 8",
        id="decode wider than prefill on Ascend",
    ),
    pytest.param(
        "k2-thinking-h200-dcp8", ("roles.unified.decode_context_parallel=3",),
        "context-parallel-size", "roles.unified.decode_context_parallel", "3 does not divide", "1, 2, 4, 8",
        id="context parallel that does not divide",
    ),
    pytest.param(
        "a2-2n-dp4tp4", ("defaults.max_num_batched_tokens=8", "roles.unified.max_num_batched_tokens=8"),
        "batched-tokens", "roles.unified.max_num_batched_tokens", "8 is smaller than max_num_seqs", "at least",
        id="a batch smaller than its sequences",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "sets", "rule", "field", "what", "fix"), ROWS)
def test_it_is_refused(  # noqa: PLR0917 - a row of the table
    name: str, sets: Sequence[str], rule: str, field: str, what: str, fix: str
) -> None:
    found = problems_of(name, sets)
    problem = next((problem for problem in found if problem.rule == rule), None)
    assert problem is not None, [str(each) for each in found]
    assert problem.field == field
    assert what in problem.what
    assert fix in problem.fix
    assert problem.file is not None


def test_several_problems_are_told_together() -> None:
    found = problems_of(
        "gb200-2p1d",
        (
            "router=null",
            "roles.decode.flags.port=1",
            "roles.prefill.flags.tensor-parallel-size=2",
            "kv_transfer=null",
        ),
    )
    assert {"missing-router", "owned-flag", "missing-kv-transfer"} <= {
        problem.rule for problem in found
    }
    assert sum(problem.rule == "owned-flag" for problem in found) == 2


def test_all_unknown_ids_are_told_together() -> None:
    found = problems_of("h200-tp8", ("checkpoint=a", "accelerator=b", "engine.version='9'"))
    assert {problem.field for problem in found} == {"checkpoint", "accelerator", "engine.version"}


@pytest.mark.parametrize("mode", ["internal", "external"])
def test_plain_data_parallel_of_sglang_stays_on_one_host(mode: str) -> None:
    found = problems_of(
        "h200-sglang-tp8",
        (
            "roles.unified.data_parallel=2",
            f"roles.unified.load_balancing={mode}",
            "router={name: sglang-router}",
        ),
    )
    assert "sglang-data-parallel" in {problem.rule for problem in found}
