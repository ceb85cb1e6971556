"""Parallel sizes that SGLang multiplies or divides: `fab check` and the simulated engine judge each layout alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.rehearsal.engine.failures import Failed
from infra.rehearsal.engine.settings import Release
from tests.checks.rule_cases import judged, right_document
from tests.plan_edits import PlanEdit, apply_edits
from tests.rehearsal.engine.verdicts import configure_sglang, world

STACK = "h200-sglang-tp8"
A2A = "Flashinfer MoE A2A is only supported with dp_size == tp_size"
PRODUCT = "tp_size must be divisible by dp_size * attn_cp_size"
LATER_PRODUCT = "tp_size must be divisible by attn_dp_size * attn_cp_size"
WITHIN, EQUAL = "must be less than or equal to tp_size", "ep_size * moe_dp_size must be equal to"
CUTLASS = "The expert parallel size must be 1 or the same as the tensor parallel size"
ATTENTION = "--dp 4 --enable-dp-attention"
# (release, flags beside --tp 8, the release's words; none where it takes them)
LAYOUTS = [
    ("0.5.9", f"--attn-cp-size 4 {ATTENTION}", PRODUCT),
    ("0.5.9", f"--attn-cp-size 2 {ATTENTION}", ""),
    ("0.5.16", f"--attn-cp-size 4 {ATTENTION}", PRODUCT),
    ("0.5.16", f"--attn-cp-size 4 {ATTENTION} --enable-prefill-cp --cp-strategy interleave", ""),
    ("0.5.16", "--enable-prefill-cp", "--cp-strategy must be set when"),
    ("0.5.23", f"--attn-cp-size 4 {ATTENTION}", LATER_PRODUCT),
    ("0.5.23", "--attn-cp-size 4 --attn-dp-size 4", LATER_PRODUCT),
    ("0.5.23", "--attn-cp-size 4 --attn-dp-size 2", ""),
    ("0.5.23", "--attn-dp-size 2 --dp 2", "combined with attention data parallelism"),
    ("0.5.9", "--moe-dp-size 4 --ep 4", WITHIN),
    ("0.5.9", "--moe-dp-size 2 --ep 2", EQUAL),
    ("0.5.9", "--moe-dp-size 2 --ep 4", ""),
    ("0.5.9", "--moe-dp-size 2", ""),
    ("0.5.23", "--moe-dp-size 4 --attn-cp-size 4 --ep 4", WITHIN),
    ("0.5.23", "--moe-dp-size 2 --attn-cp-size 2 --ep 2", EQUAL),
    ("0.5.23", "--moe-dp-size 2 --ep 4", "only supported when moe_dp_size == 1"),
    ("0.5.23", "--moe-dp-size 2 --attn-cp-size 2 --ep 4", ""),
    ("0.5.9", "--ep 3", "The new group's rank should be within the world_size"),
    ("0.5.9", "--ep 16", "self.cpu_group is not None"),
    ("0.5.9", "--ep 4", ""),
    ("0.5.9", "--ep 3 --moe-a2a-backend deepep", ""),
    ("0.5.9", "--ep 4 --moe-runner-backend flashinfer_cutlass", CUTLASS),
    ("0.5.9", "--ep 8 --moe-runner-backend flashinfer_cutlass", ""),
    ("0.5.9", "--moe-dense-tp-size 8", "moe_dense_tp_size only support 1 and None"),
    ("0.5.16", "--moe-dense-tp-size 4", "moe_dense_tp_size only supports None, 1, or tp_size"),
    ("0.5.16", "--moe-dense-tp-size 8", ""),
    ("0.5.16", f"--moe-a2a-backend flashinfer {ATTENTION}", A2A),
    ("0.5.16", "--moe-a2a-backend flashinfer", A2A),
    ("0.5.16", "--moe-a2a-backend flashinfer --dp 8 --enable-dp-attention", ""),
    ("0.5.16", "--attn-cp-size 2 --enable-aiter-allreduce-fusion", "Aiter allreduce fusion is not"),
    (
        "0.5.23",
        "--dcp-size 2 --enable-prefill-cp --cp-strategy interleave",
        "--dcp-size > 1 does not support",
    ),
    ("0.5.23", "--dcp-comm-backend a2a", "--dcp-comm-backend a2a only affects"),
    ("0.5.23", "--dcp-comm-backend a2a --dcp-size 2", ""),
    ("0.5.16", "--enable-eplb --elastic-ep-join-mode scale", ""),
]


def edits_of(flags: str) -> list[PlanEdit]:
    found: list[PlanEdit] = []
    for word in flags.split():
        if word.startswith("--"):
            found.append(PlanEdit(process="unified-0/0", flag=word, value=""))
        else:
            found[-1] = found[-1].model_copy(update={"value": word})
    return found


@pytest.mark.parametrize(("version", "flags", "words"), LAYOUTS)
def test_check_refuses_a_layout_in_the_releases_words_or_passes_it(
    version: str, flags: str, words: str
) -> None:
    document = right_document(f"{STACK}@{version}")
    apply_edits(document, edits_of(flags))
    found = [
        problem
        for problem in judged(document)
        if problem.rule in ("flag-combination", "server-arguments")
    ]
    assert [problem for problem in found if words not in problem.what] == []
    assert bool(found) is bool(words)


@pytest.mark.parametrize(("version", "flags", "words"), LAYOUTS)
def test_the_simulated_engine_refuses_the_same_layouts(
    kimi: Path, tmp_path: Path, version: str, flags: str, words: str
) -> None:
    place = world(tmp_path, {}, accelerator="h200", num_devices=8)
    text = f"--model-path {kimi} --tp 8 {flags}"
    if words:
        with pytest.raises(Failed) as caught:
            configure_sglang(text, Release("sglang", version, ""), place)
        assert words in caught.value.message
    else:
        assert configure_sglang(text, Release("sglang", version, ""), place).kv_tokens > 0


def test_a_refused_product_says_its_sizes_and_what_they_are_held_against() -> None:
    document = right_document(f"{STACK}@0.5.9")
    apply_edits(document, edits_of(f"--attn-cp-size 4 {ATTENTION}"))
    (found,) = [problem for problem in judged(document) if problem.rule == "flag-combination"]
    assert found.field == "unified-0/0 roles.unified.flags.attention-context-parallel-size"
    assert found.what.startswith(
        "--attention-context-parallel-size 4 and --data-parallel-size 4 and --tensor-parallel-size 8: "
        "sglang 0.5.9 refuses them together: tp_size must be divisible"
    )
    assert found.fix == "Use sizes whose product divides tensor_parallel."


@pytest.mark.parametrize("version", ["0.5.16", "0.5.23"])
def test_decode_contexts_divide_the_tensor_ranks(kimi: Path, tmp_path: Path, version: str) -> None:
    document = right_document(f"{STACK}@{version}")
    apply_edits(document, edits_of("--dcp-size 3"))
    assert "context-parallel-size" in {problem.rule for problem in judged(document)}
    place = world(tmp_path, {}, accelerator="h200", num_devices=8)
    with pytest.raises(Failed, match=r"\(8\) must be divisible by decode_context_parallel_size"):
        configure_sglang(
            f"--model-path {kimi} --tp 8 --dcp-size 3", Release("sglang", version, ""), place
        )
