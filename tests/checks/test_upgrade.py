from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.checks.upgrade import Upgrade, compare_stack, judge_release
from infra.errors import StackError
from infra.spec.load import load_stack

CATALOG = Catalog()


def upgraded(name: str, old: str, new: str, *sets: str) -> Upgrade:
    stack = load_stack(name, sets)
    sides = [
        (judge_release(load_stack(name, [*sets, f"engine.version='{v}'"]), CATALOG, None), v)
        for v in (old, new)
    ]
    return compare_stack(sides[0], sides[1], stack, CATALOG)


def named(rows: object) -> list[str]:
    assert isinstance(rows, tuple)
    return [row.name for row in rows]


def test_flags_of_the_commands_that_are_gone_are_named_with_their_roles() -> None:
    upgrade = upgraded("h200-tp8", "0.17.0", "0.33.0", "roles.unified.flags.swap-space=0")
    assert [(each.name, each.roles) for each in upgrade.removed_flags] == [
        ("swap-space", ("unified",))
    ]
    assert [p.rule for p in upgrade.unchanged if "swap-space" in p.what] == ["unknown-flag"]
    assert [p.rule for p in upgrade.appearing if "swap-space" in p.what] == ["unknown-flag"]


def test_only_what_the_stack_uses_counts_as_gone() -> None:
    upgrade = upgraded("h200-tp8", "0.17.0", "0.33.0")
    assert upgrade.removed_flags == ()
    assert "swap-space" in upgrade.changes.removed_flags


def test_a_key_inside_a_json_flag_is_found_at_its_depth() -> None:
    config = 'roles.unified.flags.compilation-config={"level": 3, "pass_config": {}}'
    upgrade = upgraded("h200-tp8", "0.17.0", "0.22.1", config)
    assert named(upgrade.removed_keys) == ["compilation-config.level"]
    assert [p.rule for p in upgrade.unchanged if "level" in p.what] == ["json-flag-value"]


def test_variables_that_nobody_reads_any_more_are_named() -> None:
    upgrade = upgraded("gb200-2p1d", "0.22.1", "0.33.0")
    assert [(each.name, each.roles) for each in upgrade.removed_variables] == [
        ("VLLM_USE_FLASHINFER_MOE_FP4", ("prefill", "decode"))
    ]
    assert {problem.rule for problem in upgrade.unchanged} == {"unread-variable"}


def test_a_changed_default_that_the_stack_sets_itself_stands_apart() -> None:
    default = upgraded("h200-tp8", "0.17.0", "0.22.1")
    told = upgraded(
        "h200-tp8", "0.17.0", "0.22.1", "roles.unified.flags.safetensors-load-strategy=lazy"
    )
    assert "safetensors-load-strategy" in named(default.defaults_taken)
    assert "safetensors-load-strategy" in named(told.defaults_set)
    assert "safetensors-load-strategy" not in named(told.defaults_taken)


def test_what_holds_on_the_new_release_alone_is_seen_on_the_commands_as_they_are() -> None:
    on_prefill = "roles.prefill.flags.additional-config={recompute_scheduler_enable: true}"
    plain = upgraded("a3-2p1d", "0.22.1rc1", "0.26.0rc1")
    upgrade = upgraded("a3-2p1d", "0.22.1rc1", "0.26.0rc1", on_prefill)
    assert (
        "recompute-on-prefill",
        "ignored: vllm-ascend 0.23.0 and later",
    ) in upgrade.rules_started
    assert "recompute-on-prefill" in {problem.rule for problem in upgrade.unchanged}
    assert "recipe-release" in {problem.rule for problem in plain.appearing}
    assert ("prefill", "vllm-ascend-a3-pd-prefill", None) in plain.recipes
    assert "additional-config" in named(plain.commands_dropped)


def test_going_back_turns_everything_round() -> None:
    there = upgraded("h200-tp8-eagle3", "0.17.0", "0.22.1")
    back = upgraded("h200-tp8-eagle3", "0.22.1", "0.17.0")
    assert "draft-checkpoint" in {problem.rule for problem in there.vanishing}
    assert {p.rule for p in back.appearing} == {p.rule for p in there.vanishing}
    assert back.rules_ceased == there.rules_started
    assert ("draft-checkpoint", "no Eagle3 for Kimi: vllm before 0.18.0") in there.rules_ceased


def test_a_finding_that_differs_in_the_version_alone_neither_appears_nor_vanishes() -> None:
    upgrade = upgraded("h200-tp8", "0.17.0", "0.22.1", "roles.unified.flags.no-such-flag=1")
    found = [*upgrade.appearing, *upgrade.vanishing]
    assert [problem for problem in found if "no-such-flag" in problem.what] == []


def test_a_stack_that_cannot_be_placed_has_nothing_to_upgrade() -> None:
    with pytest.raises(StackError, match="cannot be placed"):
        upgraded("h200-tp8", "0.17.0", "0.22.1", "checkpoint=kimi-k9")
