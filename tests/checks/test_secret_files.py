"""Files of secrets as `fab check` looks at them, and secrets that no process takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.checks.judge import judge_stack
from infra.errors import Problem
from infra.plan.compile import compile_file
from infra.tasks.secret_files import secret_files
from tests.checks.rule_cases import CATALOG


def found(rule: str, stack: str, *sets: str) -> list[Problem]:
    compiled = compile_file(stack, catalog=CATALOG, sets=sets)
    looks = secret_files(compiled.plan.secrets)
    return [p for p in judge_stack(compiled.plan, compiled.stack, CATALOG, looks) if p.rule == rule]


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (None, 0, "No such file"),
        ("", 0o600, "is empty"),
        ("k", 0o640, "Other users of this machine"),
        ("k", 0o604, "Other users of this machine"),
        ("k", 0o600, ""),
        ("k", 0o400, ""),
    ],
)
def test_a_file_is_said_to_be_what_it_is(
    content: str | None, mode: int, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "api key"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    stack = tmp_path / "mine.yaml"
    stack.write_text("extends: h200-tp8\nsecrets:\n  api_key: {file: api key}\n")
    problems = found("secret-file", str(stack))
    assert len(problems) == (1 if said else 0)
    for problem in problems:
        assert said in problem.what
        assert (problem.line, problem.severity) == (3, "warning")
        assert ("chmod 600 '" in problem.fix) == ("Other" in said)


def test_a_file_that_nobody_may_read_is_not_opened(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"\xff")  # no text: whoever reads it says so
    file.chmod(0o600)
    assert found("secret-file", "h200-tp8", f"secrets.api_key.file={file}") == []


KEY = "a" * 40
EDGE = ("edge.name=haproxy", "edge.keys.file={}/clients.keys")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"alice {KEY}\n", ""),
        (f"# all\n\nalice {KEY}\nbob short-one\n", "Line 4 of the clients' keys has a key of 9"),
        (f"\n\nalice {KEY} more\n", "Line 3 of the clients' keys is of 3 words"),
        (f"\n\x0b\nalice {KEY}\nalice {'b' * 40}\n", "Line 4 of the clients' keys has the name"),
        ("# nobody\n", "no line with a client's key"),
        ("\n\n \n", "is empty"),
        ("alice \udcff\n", "is no UTF-8 text"),
    ],
)
def test_clients_keys_are_read_and_none_is_shown(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "clients.keys"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    file.chmod(0o600)
    problems = found("secret-file", "h200-tp8", *(each.format(tmp_path) for each in EDGE))
    assert [said in p.what and p.field == "edge.keys.file" for p in problems] == (
        [True] if said else []
    )
    told = " ".join(f"{p.what} {p.fix}" for p in problems)
    assert not [word for word in (KEY, "short-one", "b" * 40) if word in told]


def test_a_certificate_that_is_none_is_said_at_the_field_that_names_it(tmp_path: Path) -> None:
    for name, text in (("clients.keys", f"a {KEY}\n"), ("crt", "none"), ("key", "none")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    tls = (f"edge.tls.certificate.file={tmp_path}/crt", f"edge.tls.key.file={tmp_path}/key")
    (problem,) = found("secret-file", "h200-tp8", *(each.format(tmp_path) for each in EDGE), *tls)
    assert problem.field == "edge.tls.certificate.file"
    assert "It holds no certificate" in problem.what
    assert "as PEM" in problem.fix


def test_what_nobody_takes_is_said_of_each() -> None:
    sets = ("secrets.api_key.env=K", "secrets.edge_keys.env=E", "secrets.hf_token.env=T")
    said = [p.what for p in found("key-not-taken", "sglang-replicas", *sets)]
    assert [what.split()[0] for what in said] == ["sglang", "No"]
    assert [p.field for p in found("key-not-taken", "h200-tp8", *sets)] == ["secrets.edge_keys"]


@pytest.mark.parametrize(
    ("stack", "variable", "fix"),
    [
        ("h200-tp8", "HUGGING_FACE_HUB_TOKEN", "hf_token: {env: HUGGING_FACE_HUB_TOKEN}"),
        ("h200-tp8", "OPENAI_API_KEY", "api_key: {env: OPENAI_API_KEY}"),
        ("sglang-replicas", "OPENAI_API_KEY", "sglang takes no api_key"),
        ("h200-tp8", "AWS_SECRET_ACCESS_KEY", "by its role or by a file of root's"),
    ],
)
def test_a_value_in_the_plan_is_mended_by_what_exists(stack: str, variable: str, fix: str) -> None:
    problems = found("secret-value", stack, f"roles.unified.env.{variable}=abc")
    assert [fix in problem.fix for problem in problems] == [True]


def test_another_place_of_a_secret_is_no_other_release() -> None:
    hashes = {
        compile_file("h200-tp8", catalog=CATALOG, sets=(word,)).plan.hash
        for word in ("secrets.api_key.env=A", "secrets.api_key.file=/a", "secrets.api_key.file=b")
    }
    assert len(hashes) == 1
    assert compile_file("h200-tp8", catalog=CATALOG).plan.hash not in hashes
