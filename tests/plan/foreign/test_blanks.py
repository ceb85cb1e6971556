"""A blank of any form is open and never a value; a mark that a model writes is a value and never a blank."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.checks.foreign import judge_recipe
from tests.plan.foreign.importing import CATALOG, imported

BLANKS = ("{tp}", "{{ tp }}", "<tp>", "%(tp)s", "@TP@", "${TP}", "<your tp>")


VLLM = 'vllm serve moonshotai/Kimi-K2.5 --tensor-parallel-size "{}" --port 8000\n'
SGLANG = "python3 -m sglang.launch_server --model-path moonshotai/Kimi-K2.5 --tp '{}'\n"
COMPOSE = """\
services:
  a:
    image: vllm/vllm-openai:v0.22.1
    command: ["--model", "moonshotai/Kimi-K2.5", "--tensor-parallel-size", "{}"]
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
    - name: e
      image: vllm/vllm-openai:v0.22.1
      args: ["--model=moonshotai/Kimi-K2.5", "--tensor-parallel-size={}"]
"""
FILES = (("a.sh", VLLM), ("b.sh", SGLANG), ("compose.yaml", COMPOSE), ("pod.yaml", POD))


@pytest.mark.parametrize("blank", BLANKS)
@pytest.mark.parametrize(("name", "text"), FILES, ids=[name for name, _ in FILES])
def test_a_blank_is_open_in_every_format(blank: str, name: str, text: str, tmp_path: Path) -> None:
    recipe = imported(tmp_path, text.replace("{}", blank), name)
    (seat,) = recipe.assembled.seats.values()
    assert "tensor-parallel-size" in seat.open_flags
    assert [p.what for p in judge_recipe(recipe, CATALOG).problems if p.blocks] == []


MARKS = (
    '{"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}',
    '{"reasoning_start_str": "<think>"}',
    '{"reasoning_start_str": "<reason>", "reasoning_end_str": "</reason>"}',
    '{"stop_tokens": ["<end_of_turn>", "<eot>"]}',
    '{"image_token": "<image>"}',
    '{"a": "<seed:think>"}',
)


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("quoted", ["'{}'", '"{}"'])
def test_a_mark_of_the_model_is_a_value(mark: str, quoted: str, tmp_path: Path) -> None:
    text = mark.replace('"', '\\"') if quoted[0] == '"' else mark
    line = (
        f"vllm serve moonshotai/Kimi-K2.5 -tp 8 --reasoning-config {quoted.replace('{}', text)}\n"
    )
    (seat,) = imported(tmp_path, line).assembled.seats.values()
    assert seat.open_flags == frozenset()
    assert mark in seat.argv


def test_a_blank_in_json_stays_open(tmp_path: Path) -> None:
    config = '{"method": "eagle3", "model": "<draft model>", "num_speculative_tokens": 3}'
    line = f"vllm serve moonshotai/Kimi-K2.5 -tp 8 --speculative-config '{config}'\n"
    (seat,) = imported(tmp_path, line).assembled.seats.values()
    assert seat.open_flags == {"speculative-config"}
