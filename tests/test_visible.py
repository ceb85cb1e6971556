"""What commands a terminal or hides what stands there is shown as text, whoever wrote it."""

from __future__ import annotations

import ast
import json
import time
from pathlib import Path

import pytest

from infra.spec.load import PROJECT
from infra.visible import visible, visible_bytes, visible_json

HIDDEN = (
    *(chr(code) for code in (*range(9), *range(11, 32), *range(127, 160))),
    *"\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
    *"\xad\u034f\u115f\u180e\u200b\u200c\u200d\u2060\u2063\u206f\u3164\ufeff\uffa0\ufffb\U000e0041\U000e01ef",
)
# Up to which number a character is written how, and with how many digits.
ENDS = ((0x100, "x", 2), (0x10000, "u", 4), (0x110000, "U", 8))
PLAIN = "tab\tand newline\n, größe, 東京, עברית, 👩‍💻, 👁️‍🗨️, می‌خواهم, × – …"


@pytest.mark.parametrize("character", HIDDEN, ids=ascii)
@pytest.mark.parametrize("beside", ["", "ü"])
def test_each_such_character_is_written_out(character: str, beside: str) -> None:
    sign, width = next(each for end, *each in ENDS if ord(character) < end)
    written = f"\\{sign}{ord(character):0{width}x}"
    assert visible(f"{beside}a{character}b") == f"{beside}a{written}b"
    assert visible(f"東{character}") == f"東{written}"


def test_what_people_write_stays() -> None:
    assert visible(PLAIN) == PLAIN
    assert visible_bytes(PLAIN.encode()) == PLAIN.encode()


def test_a_title_a_colour_and_a_carriage_return_are_text() -> None:
    assert visible("\x1b]0;x\x07\x1b[31mred\rover") == r"\x1b]0;x\x07\x1b[31mred\x0dover"


def test_bytes_that_are_no_text_are_told_one_by_one() -> None:
    assert visible_bytes(b"a\xff\x9b\x1bz\n") == rb"a\xff\x9b\x1bz" + b"\n"
    assert visible("\udcff") == r"\xff"


def test_json_says_the_same_with_nothing_raw() -> None:
    value = {"key\x9b": ["".join(HIDDEN), PLAIN, "\x1b[2J"]}
    text = visible_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert visible(text) == text
    assert "größe" in text


def test_clean_logs_cost_nearly_nothing() -> None:
    text = "Avg prompt throughput: 123.4 tokens/s, Running: 12 reqs\n" * 50_000
    began = time.process_time()
    assert visible(text) == text
    # 3 ms of a machine's time; an expression takes six times as much, a table on other text 200 times
    assert time.process_time() - began < 0.1


# Each makes its own words visible, or says nothing but constants and names of tasks.
DOORS = {"infra/tasks/output.py", "infra/tasks/program.py", "infra/tasks/interrupts.py"}
# Programs of their own: on hosts, on simulated ones, for the developers, under Pulumi.
PROGRAMS = ("infra/agent/", "infra/rehearsal/", "infra/packages/", "infra/provision/policy/")
ON_HOSTS = "infra/launch/preflight/group_collectives/adding_up.py"


def test_fab_prints_through_one_door() -> None:
    found = {
        name
        for path in (PROJECT / "infra").rglob("*.py")
        if not (name := str(path.relative_to(PROJECT))).startswith((*PROGRAMS, ON_HOSTS))
        and _prints(path)
    }
    assert found == DOORS


def _prints(path: Path) -> bool:
    """Whether a module calls `print` or `sys.stdout.write`."""
    calls = (
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    )
    return not {"print", "sys.stdout.write", "sys.stderr.write"}.isdisjoint(calls)
