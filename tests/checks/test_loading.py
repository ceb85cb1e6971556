"""Which releases map the files of a checkpoint that lies behind a network, and what is written instead."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.checks.judge import judge_stack
from infra.plan.compile import compile_stack
from infra.spec.load import load_stack

CATALOG = Catalog()


def fixes(stack: str, *sets: str) -> list[str]:
    loaded = load_stack(stack, sets)
    problems = judge_stack(compile_stack(loaded, catalog=CATALOG).plan, loaded, CATALOG)
    return [problem.fix for problem in problems if problem.rule == "mapped-weights"]


@pytest.mark.parametrize(
    ("stack", "version", "word"),
    [
        ("h200-tp8", "0.17.0", "safetensors-load-strategy: eager"),
        ("h200-tp8", "0.22.1", ""),  # it reads ahead by itself
        ("a2-2n-dp4tp4", "0.18.0", "safetensors-load-strategy: eager"),
        ("h200-sglang-tp8", "0.5.9", "weight-loader-disable-mmap: true"),
        ("h200-sglang-tp8", "0.5.23", "weight-loader-prefetch-checkpoints: true"),
    ],
)
def test_a_release_is_told_its_own_word(stack: str, version: str, word: str) -> None:
    found = fixes(stack, f"engine.version={version}", "weights.storage=efs")
    assert [word in fix for fix in found] == ([True] if word else [])


@pytest.mark.parametrize(
    "more",
    [
        "roles.unified.flags.weight-loader-disable-mmap=true",
        "roles.unified.flags.load-format=fastsafetensors",
        "weights.storage=local",
        "weights.storage=pvc",
    ],
)
def test_who_reads_whole_files_or_disks_of_its_own_is_told_nothing(more: str) -> None:
    assert fixes("h200-sglang-tp8", "weights.storage=shared-mount") != []
    assert fixes("h200-sglang-tp8", "weights.storage=shared-mount", more) == []
