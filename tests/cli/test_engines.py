"""`fab engines` as an operator types it; no host is needed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.spec.load import stack_names
from infra.tasks.command_words import pairs_as_one_word
from tests.cli.commands import FAB, run


def document(*words: str, code: int = 0) -> dict[str, Any]:
    done = run(FAB, "engines", *words, "--json")
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["schema_version"] == 1
    return found


def test_the_table_has_every_release_and_every_shipped_stack() -> None:
    found = document()
    catalog = Catalog()
    assert [(row["engine"], row["version"]) for row in found["engines"]] == [
        (engine, version) for engine in catalog.engines for version in catalog.releases(engine)
    ]
    assert sorted(name for row in found["engines"] for name in row["stacks"]) == list(stack_names())
    assert (found["stack"], found["ok"]) == (None, True)


def test_people_get_a_table_and_the_next_command() -> None:
    done = run(FAB, "engines", "--stack", "h200-tp8")
    assert done.returncode == 0
    head, *rows = done.stdout.splitlines()
    assert head.split()[:6] == ["engine", "version", "flags", "variables", "models", "advisories"]
    assert [row.split()[1] for row in rows[:3]] == ["0.17.0", "0.22.1", "0.33.0"]
    end = rows.index("", 4)
    title, *holes = rows[4:end]
    assert title == f"releases with advisories: {len(holes)}"
    told = [line for line in rows[end:] if line.startswith("  CVE-2026-48746: ")]
    assert told == ["  CVE-2026-48746: Whoever forges the Host header is let in without the key"]
    assert holes[0].startswith("  vllm 0.17.0: CVE-")
    assert "CVE-2026-48746" in holes[0]
    assert not [line for line in holes[1:] if "CVE-2026-48746" in line]
    assert "fab engines --stack h200-tp8 --diff 0.22.1 0.33.0" in done.stderr


def test_an_upgrade_lists_the_advisories_that_it_mends() -> None:
    done = run(FAB, "engines", "--diff", "0.5.9", "0.5.16")
    lines = done.stdout.splitlines()
    at = lines.index("advisories that are mended: 6")
    assert "  CVE-2026-3059" in lines[at : at + 7]
    assert "advisories that are new: 1" in lines  # CVE-2026-111392, of 0.5.13 to 0.5.21


def test_an_upgrade_that_is_accepted_leaves_with_0() -> None:
    found = document("--stack", "gb200-2p1d", "--diff", "0.22.1", "0.33.0")
    assert (found["stack"], found["ok"], found["from"], found["to"]) == (
        "gb200-2p1d",
        True,
        "0.22.1",
        "0.33.0",
    )
    assert [row["name"] for row in found["removed_variables"]] == ["VLLM_USE_FLASHINFER_MOE_FP4"]
    assert {"rule": "kv-role-deprecated", "releases": "vllm 0.33.0 and later"} in found[
        "rules_started"
    ]
    assert {"name": "eplb-config.use_async", "old": False, "new": True} in found["defaults_taken"]


def test_an_upgrade_that_would_be_refused_leaves_with_2_and_says_why() -> None:
    words = (
        "--stack",
        "h200-tp8",
        "--set",
        "defaults.flags.swap-space=0",
        "--diff",
        "0.17.0",
        "0.22.1",
    )
    found = document(*words, code=2)
    assert found["ok"] is False
    assert found["removed_flags"] == [{"name": "swap-space", "roles": ["unified"]}]
    assert "unknown-flag" in {row["rule"] for row in found["appearing"]}
    done = run(FAB, "engines", *words)
    assert done.returncode == 2
    assert "--swap-space (unified)" in done.stdout
    assert "0.22.1 would be refused" in done.stdout


def test_two_releases_can_be_compared_without_a_stack() -> None:
    found = document("--diff", "0.17.0", "0.22.1")
    assert (found["engine"], found["stack"]) == ("vllm", None)
    assert "swap-space" in found["release"]["removed_flags"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--diff", "0.22.1"), "It takes two values"),
        (("--diff", "0.22.1", "0.22.9"), "No engine has both"),
        (("--stack", "h200-tp8", "--diff", "0.22.1", "0.34.0"), "no engines vllm 0.34.0"),
        (
            (
                "--stack",
                "h200-tp9",
            ),
            "no stack h200-tp9",
        ),
    ],
)
def test_a_wrong_command_line_leaves_with_2_and_no_traceback(
    words: tuple[str, ...], said: str
) -> None:
    done = run(FAB, "engines", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "joined"),
    [
        (["engines", "--diff", "A", "B", "--json"], ["engines", "--diff", "A B", "--json"]),
        (["engines", "--diff=A", "B"], ["engines", "--diff=A B"]),
        (["engines", "--diff", "A"], ["engines", "--diff", "A"]),
        (["engines", "--diff", "A", "--json"], ["engines", "--diff", "A", "--json"]),
        (["engines", "--diff", "A", "check"], ["engines", "--diff", "A", "check"]),
        (["tune-hosts", "--diff", "--check"], ["tune-hosts", "--diff", "--check"]),
        (["check", "--stack", "x", "y"], ["check", "--stack", "x", "y"]),
    ],
)
def test_both_values_of_a_pair_are_one_word_to_the_parser(
    words: list[str], joined: list[str]
) -> None:
    assert pairs_as_one_word(words) == joined
