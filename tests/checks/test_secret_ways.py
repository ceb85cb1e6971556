"""What a plan from elsewhere takes of the operator's machine, and where a stack's own token goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.checks.judge import judge_plan, judge_stack, never_made
from infra.plan.compile import compile_file
from infra.plan.imported import parse_plan
from tests.checks.rule_cases import CATALOG, right_document, rule_cases


def elsewhere(file: str, plan_file: Path) -> bool:
    document = right_document("h200-tp8") | {"secrets": {"hf_token": {"file": file}}}
    plan = parse_plan(document, str(plan_file))
    found = [p.rule for p in never_made(plan, str(plan_file), CATALOG)]
    assert found == [p.rule for p in judge_plan(plan, str(plan_file), CATALOG) if p.blocks]
    return found == ["secret-elsewhere"]


def test_a_plan_takes_what_lies_beside_and_below_it_wherever_links_lead(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "keys").mkdir(parents=True)
    (tmp_path / "out").write_text("s")
    (home / "link").symlink_to(tmp_path / "out")
    (home / "inside").symlink_to(home / "keys" / "hub")
    plan = home / "plan.json"
    for file in ("token", "keys/hub", "inside", "not-there"):
        assert not elsewhere(str(home / file), plan), file
    for file in ("link", "../out", ".ssh/id_rsa", ".netrc", "keys/../../out"):
        assert elsewhere(str(home / file), plan), file
    assert elsewhere("~/token", plan)


@pytest.mark.parametrize(
    ("variable", "is_taken"),
    [
        ("HF_TOKEN", True),
        ("HUGGING_FACE_HUB_TOKEN", True),
        ("MY_HF_TOKEN", True),
        ("AWS_SESSION_TOKEN", False),
        ("OPENAI_API_KEY", False),
        ("XHF_TOKEN", False),
    ],
)
def test_a_plan_takes_a_variable_that_is_named_for_the_secret(
    variable: str, is_taken: bool
) -> None:
    document = right_document("h200-tp8") | {"secrets": {"hf_token": {"env": variable}}}
    found = never_made(parse_plan(document, "plan.json"), "plan.json", CATALOG)
    assert [p.rule for p in found] == ([] if is_taken else ["secret-elsewhere"])


@pytest.mark.parametrize(
    ("endpoint", "has_token", "is_found"),
    [
        ("http://192.0.2.9", True, True),
        ("HTTP://hub.example.com:8080/x", True, True),
        ("http://192.0.2.9", False, False),
        ("https://hub.example.com", True, False),
        ("http://127.0.0.1:8080", True, False),
    ],
)
def test_a_stacks_own_token_does_not_go_over_plain_http(
    endpoint: str, has_token: bool, is_found: bool
) -> None:
    sets = [f"roles.unified.env.HF_ENDPOINT={endpoint}"]
    sets += ["secrets.hf_token.env=MINE"] if has_token else []
    compiled = compile_file("h200-tp8", catalog=CATALOG, sets=sets)
    found = [p.rule for p in judge_stack(compiled.plan, compiled.stack, CATALOG) if p.blocks]
    assert found == (["token-endpoint"] if is_found else [])


@pytest.mark.parametrize("rule", ["edge-paths", "edge-secrets"])
def test_no_edge_is_made_that_lets_strangers_through(rule: str) -> None:
    for case in rule_cases()[rule]:
        plan = parse_plan(case.broken(), "plan.json")
        assert {p.rule for p in never_made(plan, "plan.json", CATALOG)} == {rule}
    right = parse_plan(right_document(rule_cases()[rule][0].stack), "plan.json")
    assert never_made(right, "plan.json", CATALOG) == ()
