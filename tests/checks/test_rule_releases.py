from __future__ import annotations

import pytest

from infra.checks.rule_releases import changed_clauses


@pytest.mark.parametrize(
    ("releases", "between", "started", "ceased"),
    [
        ("all", ("vllm", "0.17.0", "0.33.0"), (), ()),
        ("vllm, vllm-ascend", ("vllm", "0.17.0", "0.33.0"), (), ()),
        (
            "vllm 0.33.0 and later",
            ("vllm", "0.22.1", "0.33.0"),
            ("vllm 0.33.0 and later",),
            (),
        ),
        ("vllm 0.33.0 and later", ("vllm", "0.17.0", "0.22.1"), (), ()),
        ("vllm 0.33.0 and later", ("vllm-ascend", "0.22.1rc1", "0.33.0"), (), ()),
        (
            "vllm up to 0.17.1; sglang 0.5.9",
            ("vllm", "0.17.0", "0.22.1"),
            (),
            ("vllm up to 0.17.1",),
        ),
        ("vllm up to 0.17.1; sglang 0.5.9", ("sglang", "0.5.9", "0.5.23"), (), ("sglang 0.5.9",)),
        ("vllm up to 0.17.1; sglang 0.5.9", ("sglang", "0.5.16", "0.5.9"), ("sglang 0.5.9",), ()),
        (
            "all; Eagle3 for Kimi from vllm 0.18.0",
            ("vllm", "0.17.0", "0.22.1"),
            ("Eagle3 for Kimi from vllm 0.18.0",),
            (),
        ),
        (
            "vllm-ascend 0.22.0 and later; on prefill 0.23.0 and later",
            ("vllm-ascend", "0.22.1rc1", "0.26.0rc1"),
            ("on prefill 0.23.0 and later",),
            (),
        ),
        (
            "vllm-ascend; vision before 0.18.0",
            ("vllm-ascend", "0.17.0rc1", "0.18.0"),
            (),
            ("vision before 0.18.0",),
        ),
    ],
)
def test_a_clause_starts_or_ceases_where_its_bound_lies_between(
    releases: str,
    between: tuple[str, str, str],
    started: tuple[str, ...],
    ceased: tuple[str, ...],
) -> None:
    engine, old, new = between
    assert changed_clauses(releases, engine, old, new) == (started, ceased)
    assert changed_clauses(releases, engine, new, old) == (ceased, started)
