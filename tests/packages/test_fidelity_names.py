"""What a refusal names is read out of it, and looked for in other words."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.engines.vllm import OWNED_FLAGS
from tests.packages.fidelity_names import named_in, names_the_same

CATALOG = Catalog()
VLLM, SGLANG = CATALOG.flags("vllm-0.22.1"), CATALOG.flags("sglang-0.5.9")


@pytest.mark.parametrize(
    ("says", "named"),
    [
        (
            "vllm serve: error: argument --tensor-parallel-size/-tp: invalid int value: 'none-such'",
            [{"tensor-parallel-size"}],
        ),
        ("vllm: error: unrecognized arguments: --host-none-such 0.0.0.0", [{"host-none-such"}]),
        (
            (
                "vllm serve: error: argument --kv-transfer-config: 1 validation error for KVTransferConfig no_such_key "
                "Unexpected keyword argument [type=unexpected_keyword_argument"
            ),
            [{"kv-transfer-config"}, {"no_such_key"}],
        ),
        (
            (
                "ValidationError: 1 validation error for VllmConfig Value error, Total number of attention heads (64) "
                "must be divisible by tensor parallel size (3)."
            ),
            [{"tensor-parallel-size"}],
        ),
        ("AssertionError: world_size=16 must be divisible by nnodes=3.", [{"nnodes"}]),
        ("ValueError: VLLM_PORT 'tcp://x' appears to be a URI", [{"VLLM_PORT"}]),
        ("OverflowError: out of range integral type conversion attempted", []),
    ],
)
def test_what_vllm_names(says: str, named: list[set[str]]) -> None:
    assert named_in(says, VLLM, ("VLLM_PORT",)) == tuple(map(frozenset, named))


@pytest.mark.parametrize(
    ("says", "named"),
    [
        (
            "launch_server.py: error: the following arguments are required: --model-path/--model",
            [{"model-path"}],
        ),
        ("AssertionError: [assert self.ep_size > 1]", [{"expert-parallel-size"}]),
    ],
)
def test_what_sglang_names(says: str, named: list[set[str]]) -> None:
    assert named_in(says, SGLANG, ()) == tuple(map(frozenset, named))


@pytest.mark.parametrize(
    ("text", "is_same"),
    [
        ("--tensor-parallel-size is 3", True),
        ("roles.decode.tensor_parallel 3 does not divide 64 attention heads", True),
        ("--data-parallel-size is 3", False),
        ("a tensor of three", False),
    ],
)
def test_a_flag_is_named_in_any_spelling_or_by_the_stacks_field(
    text: str, *, is_same: bool
) -> None:
    wanted = (frozenset({"tensor-parallel-size", "nnodes"}),)
    assert names_the_same(text, wanted, VLLM, OWNED_FLAGS) is is_same


def test_each_of_several_names_has_to_be_there() -> None:
    wanted = (frozenset({"kv-transfer-config"}), frozenset({"kv_rank"}))
    assert names_the_same("--kv-transfer-config.kv_rank is none", wanted, VLLM, {})
    assert not names_the_same("--kv-transfer-config is wrong", wanted, VLLM, {})
