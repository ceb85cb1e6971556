"""Whatever is done to a plan document, it is judged or refused, never crashed on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.catalog.load import Catalog
from infra.checks.judge import judge_plan
from infra.errors import InfraError
from infra.plan.compile import compile_file
from infra.plan.document import plan_document
from infra.plan.imported import parse_plan

CATALOG = Catalog()
STACKS = (
    "gb200-2p1d",
    "a3-2p1d",
    "h200-2n-tp16",
    "vllm-hybrid-2n",
    "vllm-multi-port",
    "sglang-pd-nixl",
)
DOCUMENTS = {
    name: json.dumps(plan_document(compile_file(name, catalog=CATALOG).plan)) for name in STACKS
}
WORDS = (
    "--port", "-1", "0", "99999", "999999999999", "", "x", "--headless", "--nnodes", "2", "--node-rank",
    "--data-parallel-rank", "--data-parallel-size",
    "--data-parallel-size-local", "--tensor-parallel-size", "{", "[1]", "{}",
    '{"kv_role": 1}', "--kv-transfer-config", "--speculative-config", "http://", "http://[::1]:80", "--prefill",
    "--worker-urls", "--dist-init-addr", "--data-parallel-start-rank", "localhost", "--dp-size", "--tp-size",
)  # fmt: skip


@st.composite
def broken(draw: st.DrawFn) -> dict[str, Any]:
    """A document with one to four changes of command lines, variables, hosts or fields."""
    document: dict[str, Any] = json.loads(DOCUMENTS[draw(st.sampled_from(STACKS))])
    for _ in range(draw(st.integers(1, 4))):
        row = draw(st.sampled_from(document["processes"]))
        kind = draw(
            st.sampled_from(["drop", "replace", "insert", "env", "host", "field", "remove"])
        )
        argv = row["argv"]
        at = draw(st.integers(0, max(len(argv) - 1, 0)))
        word = draw(st.sampled_from(WORDS))
        if kind == "drop" and len(argv) > 1:
            del argv[at]
        elif kind == "replace":
            argv[at] = word
        elif kind == "insert":
            argv.insert(at, word)
        elif kind == "env" and row["env"]:
            row["env"][draw(st.sampled_from(sorted(row["env"])))] = word
        elif kind == "host":
            row["host"] = draw(st.sampled_from(document["hosts"]))["name"]
        elif kind == "field":
            row[draw(st.sampled_from(["role", "group"]))] = draw(
                st.sampled_from(["prefill", "x", "router/0"])
            )
        elif kind == "remove" and len(document["processes"]) > 1:
            document["processes"].remove(row)
    return document


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(broken())
def test_a_broken_document_is_judged_or_refused(document: dict[str, Any]) -> None:
    try:
        problems = judge_plan(parse_plan(document, "plan.json"), "plan.json", CATALOG)
    except InfraError:
        return
    assert all(problem.what and problem.fix for problem in problems)


@pytest.mark.parametrize(
    ("stack", "flag", "rule"),
    [
        ("gb200-2p1d", "--tool-call-parser", "parser-name"),
        ("gb200-2p1d", "--reasoning-parser", "parser-name"),
        ("a3-2p1d", "--quantization", "quantization-method"),
    ],
)
def test_a_map_in_the_place_of_a_name_is_judged(stack: str, flag: str, rule: str) -> None:
    document = json.loads(DOCUMENTS[stack])
    argv = document["processes"][0]["argv"]
    argv[argv.index(flag) + 1] = "{}"
    problems = judge_plan(parse_plan(document, "plan.json"), "plan.json", CATALOG)
    assert rule in {problem.rule for problem in problems}
