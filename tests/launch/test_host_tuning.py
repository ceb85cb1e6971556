from __future__ import annotations

from dataclasses import replace

import pytest

from infra.agent.kinds.kernel_modules import REBUILD_S
from infra.launch.host_tuning import (
    Allowance,
    Rows,
    TuningMode,
    TuningOrder,
    limit_s,
    tuning_document,
)
from infra.render.items import HostState, Item


@pytest.mark.parametrize(
    ("states", "only_checked", "is_ok"),
    [
        (("ok", "blocked"), True, True),
        (("ok", "changed"), True, False),
        (("ok", "changed"), False, True),
        (("changed", "failed"), False, False),
        ((), True, True),
    ],
)
def test_what_would_change_is_not_as_declared(
    states: tuple[str, ...], only_checked: bool, is_ok: bool
) -> None:
    rows: Rows = {"a": [{"id": str(place), "state": state} for place, state in enumerate(states)]}
    document = tuning_document("s", rows, {}, only_checked=only_checked)
    assert document["ok"] is is_ok


def item(kind: str, needs: str | None = None, want: str | None = "x") -> Item:
    details = {"want": want, **({"needs": needs} if needs else {})}
    return Item(id=kind, group="tuning", kind=kind, target=kind, why="w", details=details)


OPTIONS = item("module-options", "reboot")


@pytest.mark.parametrize(
    ("mode", "allow", "items", "is_longer"),
    [
        ("apply", (), (OPTIONS, item("sysctl")), False),
        ("apply", ("reboot",), (OPTIONS,), True),
        ("apply", ("drain",), (OPTIONS,), False),
        ("apply", ("reboot",), (), True),
        ("check", ("reboot",), (OPTIONS,), False),
        ("rollback", (), (), True),
    ],
)
def test_a_host_has_the_time_that_its_tools_may_take(
    mode: TuningMode, allow: tuple[Allowance, ...], items: tuple[Item, ...], is_longer: bool
) -> None:
    """As long as the agent itself lets them run: it kills them at its own deadline."""
    state = HostState(stack="s", host="a", release="", items=items, enable=())
    order = TuningOrder(mode=mode, allow=allow, timeout_s=60)
    limit = limit_s({"a": state, "b": replace(state, items=())}, order)
    assert (limit >= 60 + REBUILD_S) is is_longer
    assert limit >= 60


def test_every_item_that_rebuilds_has_its_own_time() -> None:
    items = tuple(replace(OPTIONS, id=name) for name in "abc")
    state = HostState(stack="s", host="a", release="", items=items, enable=())
    order = TuningOrder(mode="apply", allow=("reboot",), timeout_s=60)
    assert limit_s({"a": state}, order) == 60 + 3 * REBUILD_S
    withheld = replace(order, allow=())
    assert limit_s({"a": state}, withheld) == 60
    unwanted = replace(state, items=(item("module-options", "reboot", want=None),))
    assert limit_s({"a": unwanted, "b": state}, withheld) == 60
