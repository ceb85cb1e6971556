from __future__ import annotations

import pytest

from infra.launch.host_tuning import Rows, tuning_document


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
