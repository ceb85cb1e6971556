"""Recipes as stack files: what a stack can say is said, and every difference is listed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from infra.errors import StackError
from infra.plan.compile import compile_file
from infra.plan.foreign.as_stack import differences, stack_fields
from infra.plan.foreign.assumed import Told
from tests.plan.foreign.importing import CATALOG, imported

CASES = Path(__file__).parents[2] / "cases" / "import"
KIMI = (
    "docker run --net=host -e NCCL_DEBUG=WARN vllm/vllm-openai:v0.22.1 moonshotai/Kimi-K2.5 -tp 8 --max-model-len 64k "
    "--mm-encoder-tp-mode data --port 8123"
)


def test_a_single_engine_comes_back_but_for_what_is_ours(tmp_path: Path) -> None:
    recipe = imported(tmp_path, KIMI, told=Told(accelerator="h200"))
    fields = stack_fields(recipe, CATALOG)
    assert fields["port"] == 8123
    assert fields["roles"] == {
        "unified": {
            "tensor_parallel": 8,
            "max_model_len": 64_000,
            "features": [],
            "flags": {"mm-encoder-tp-mode": "data"},
            "env": {"NCCL_DEBUG": "WARN"},
        }
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(fields))
    ours = compile_file(str(tmp_path / "mine.yaml"), catalog=CATALOG).plan
    found = {row.what for row in differences(recipe, ours, CATALOG)}
    assert found == {
        "--model", "--served-model-name", "--host", "--trust-remote-code", "env HF_HUB_OFFLINE",
        "env VLLM_ENGINE_READY_TIMEOUT_S",
    }  # fmt: skip


def test_prefill_and_decode_keep_their_layout(tmp_path: Path) -> None:
    text = (CASES / "ranks.yaml").read_text()
    recipe = imported(tmp_path, text, "ranks.yaml", Told(engine="vllm-ascend:0.22.1rc1"))
    fields = stack_fields(recipe, CATALOG)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(fields | {"leave_devices": 0}))
    ours = compile_file(str(tmp_path / "mine.yaml"), catalog=CATALOG).plan
    layout = [(p.role, p.replica, p.dp_ranks, p.devices) for p in ours.processes]
    assert layout == [
        (p.role, p.replica, p.dp_ranks, p.devices) for p in recipe.assembled.plan.processes
    ]
    assert "192.0.2" not in yaml.safe_dump(fields)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (KIMI, Told()),
        (KIMI.replace("moonshotai/Kimi-K2.5", "a/b"), Told(accelerator="h200")),
        (
            KIMI
            + """ --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}'""",
            Told(accelerator="h200"),
        ),
    ],
)
def test_what_a_stack_must_say_is_asked_for(tmp_path: Path, text: str, told: Told) -> None:
    with pytest.raises(StackError) as caught:
        stack_fields(imported(tmp_path, text, told=told), CATALOG)
    assert caught.value.fix
