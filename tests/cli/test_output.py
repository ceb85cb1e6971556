from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from infra.errors import HostsFailed, Problem, ProblemsFound, StackError
from infra.launch.first_failure import Failure
from infra.launch.logs.lines import LogLines
from infra.launch.proof.host_drift import Check
from infra.tasks.bundle import document_of, told_of
from infra.tasks.completion import Completion
from infra.tasks.logs import _Shown
from infra.tasks.options import Options
from infra.tasks.output import AsWritten, Output, failure_document, table
from infra.tasks.verify import checks_table, verify_document
from tests.cli.test_typable import PLAIN


def an_output(
    *, wants_json: bool = False, has_colour: bool = False
) -> tuple[Output, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    output = Output(
        wants_json=wants_json,
        has_colour=has_colour,
        complete=Completion(lambda: Options({})),
        stdout=out,
        stderr=err,
    )
    output.complete.reach({"decode-0": replace(PLAIN, port=2222)})
    return output, out, err


def with_place(text: str) -> str:
    return text.replace("ssh decode-0", "ssh -p 2222 192.0.2.7")


LOGGED = "type `ssh decode-0 ls`"


def test_data_and_messages_go_their_own_ways() -> None:
    output, out, err = an_output()
    output.data("rows")
    output.message("working")
    output.document({"ok": True})
    output.next_command("fab up")
    assert out.getvalue() == "rows\n"
    assert err.getvalue() == "working\nNext: fab up\n"


def test_json_leaves_one_document_and_nothing_else_on_standard_output() -> None:
    output, out, err = an_output(wants_json=True)
    output.data("rows")
    output.next_command("fab up")
    output.document({"ok": True, "word": "ü"})
    assert json.loads(out.getvalue()) == {"ok": True, "word": "ü"}
    assert err.getvalue() == ""


def test_commands_are_completed_but_not_those_that_a_host_has_written() -> None:
    output, out, err = an_output()
    for say in (output.data, output.message):
        say(LOGGED)
        say(AsWritten(LOGGED))
    assert out.getvalue() == err.getvalue() == f"{with_place(LOGGED)}\n{LOGGED}\n"
    output, out, _ = an_output(wants_json=True)
    output.document({"fix": LOGGED, "rows": [{"line": AsWritten(LOGGED)}]})
    assert json.loads(out.getvalue()) == {"fix": with_place(LOGGED), "rows": [{"line": LOGGED}]}


@pytest.mark.parametrize("wants_json", [False, True], ids=["lines", "document"])
def test_a_log_s_lines_are_shown_as_they_were_logged(wants_json: bool) -> None:
    output, out, _ = an_output(wants_json=wants_json)
    shown = _Shown(output, "s")
    shown.show(shown.shape(LogLines([1_000_000], ["a/0"], [LOGGED])))
    shown.end(ok=True, missing={})
    assert LOGGED in out.getvalue()


def test_the_first_failure_of_a_bundle_is_shown_as_it_was_logged() -> None:
    first = Failure("2026-11-20T16:59:37.793999", "decode-0/3", LOGGED, "decode-0")
    output, out, _ = an_output()
    output.data(told_of(first, 0, 2))
    assert out.getvalue() == f"First failure: {first.at} decode-0/3: {LOGGED}\n"
    output, out, _ = an_output(wants_json=True)
    output.document({"first_failure": document_of(first)})
    assert json.loads(out.getvalue())["first_failure"]["line"] == LOGGED


HOSTILE = "\x1b]0;mine\x07\x1b[2J\u202e\x9b31m\rover"
SHOWN = r"\x1b]0;mine\x07\x1b[2J\u202e\x9b31m\x0dover"


@pytest.mark.parametrize("kind", [str, AsWritten])
@pytest.mark.parametrize("has_colour", [False, True])
def test_what_is_quoted_commands_no_terminal(kind: type[str], has_colour: bool) -> None:
    output, out, err = an_output(has_colour=has_colour)
    output.data(kind(HOSTILE))
    output.redrawn(kind(HOSTILE))
    assert out.getvalue() == f"{SHOWN}\n" * 2
    output.message(output.toned(kind(HOSTILE), "bad"))
    output.next_command(kind(HOSTILE))
    output.failure(StackError(kind(HOSTILE), "w.", "f."))
    toned = [f"{SHOWN}", f"Next: {SHOWN}", f"{SHOWN}: w. f."]
    codes = ("31", "2", "31") if has_colour else ("", "", "")
    lines = [f"\033[{c}m{t}\033[0m" if c else t for c, t in zip(codes, toned, strict=True)]
    assert err.getvalue().splitlines() == lines


def test_a_document_says_the_same_with_nothing_raw() -> None:
    output, out, _ = an_output(wants_json=True)
    output.document({"line": AsWritten(HOSTILE), HOSTILE: "größe"})
    assert json.loads(out.getvalue()) == {"line": HOSTILE, HOSTILE: "größe"}
    assert not {"\x1b", "\x9b", "\u202e", "\r"} & set(out.getvalue())


@pytest.mark.parametrize("wants_json", [False, True], ids=["lines", "document"])
def test_a_log_s_lines_command_no_terminal(wants_json: bool) -> None:
    output, out, _ = an_output(wants_json=wants_json)
    shown = _Shown(output, "s")
    shown.show(shown.shape(LogLines([1_000_000], ["a/0"], [HOSTILE])))
    shown.end(ok=True, missing={"a": HOSTILE})
    assert not {"\x1b", "\x9b", "\u202e", "\r"} & set(out.getvalue())
    if wants_json:
        told = json.loads(out.getvalue())
        assert (told["lines"][0]["message"], told["missing"]["a"]) == (HOSTILE, HOSTILE)
    else:
        assert SHOWN in out.getvalue()


def test_colour_is_there_only_where_it_is_shown() -> None:
    assert an_output()[0].toned("x", "bad") == "x"
    assert an_output(has_colour=True)[0].toned("x", "bad") == "\033[31mx\033[0m"
    assert an_output(has_colour=True)[0].toned("", "bad") == ""


def test_failures_carry_where_what_and_fix() -> None:
    document = failure_document(HostsFailed("decode-0", "it is away", "Look."))
    assert document["exit_code"] == 4
    assert document["errors"] == [{"where": "decode-0", "what": "it is away", "fix": "Look."}]
    problems = tuple(
        Problem(rule="a-rule", severity="error", field=f, what="w", fix="f", file="x.yaml", line=1)
        for f in ("one", "two")
    )
    errors = failure_document(ProblemsFound(problems))["errors"]
    assert [error["where"] for error in errors] == ["x.yaml:1 one", "x.yaml:1 two"]  # type: ignore[attr-defined]


def test_tables_are_aligned() -> None:
    assert table([("a", "long head"), ("longer", "x")]) == "a       long head\nlonger  x"
    assert table([]) == ""


def test_options_are_read_by_kind() -> None:
    options = Options({"stack": "x", "json": True, "set": ["a=b", "c=d"], "lines": "5"})
    assert options.text("stack") == "x"
    assert options.text("file") is None
    assert options.is_on("json")
    assert not options.is_on("check")
    assert options.words("set") == ("a=b", "c=d")
    assert options.words("other") == ()
    assert options.number("lines") == 5.0
    assert options.number("timeout") is None


@pytest.mark.parametrize("text", ["0", "-1", "x", "nan", "inf"])
def test_numbers_are_above_zero(text: str) -> None:
    with pytest.raises(StackError, match="above zero"):
        Options({"timeout": text}).number("timeout")


def test_an_empty_value_is_refused() -> None:
    with pytest.raises(StackError, match="empty"):
        Options({"stack": ""}).text("stack")
    with pytest.raises(StackError, match="--to"):
        Options({}).needed("to")


def test_a_check_that_tells_nothing_is_neither_right_nor_wrong() -> None:
    def check(process: str, ok: bool | None) -> Check:
        return Check(
            process=process, check="transport", ok=ok, detail=f"of {process}", is_drift=True
        )

    known = [check("a/0", True), check("a/1", None)]
    document = verify_document("s", known)
    assert document["ok"] is True
    assert json.loads(json.dumps(document))["checks"][1]["ok"] is None
    head, row = checks_table(known).splitlines()
    assert head.split() == ["check", "right", "wrong", "not", "judged", "detail"]
    assert row.split() == ["transport", "1", "0", "1", "a/1:", "of", "a/1"]
    with_wrong = [*known, check("a/2", False)]
    assert verify_document("s", with_wrong)["ok"] is False
    assert checks_table(with_wrong).splitlines()[1].split()[1:] == [
        "1",
        "1",
        "1",
        "a/2:",
        "of",
        "a/2",
    ]
