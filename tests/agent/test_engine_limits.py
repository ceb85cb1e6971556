"""Limits of engine units: what each has too little of, and what systemd is asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from infra.agent.kinds.engine_limits import too_low
from tests.agent.stubborn_host import StubbornHost

WANT = "LimitMEMLOCK=infinity LimitNOFILE=1048576 LimitSTACK=67108864"
WANTED = dict(word.split("=") for word in WANT.split())
UNLIMITED = str(2**64 - 1)  # how systemctl shows infinity before systemd 246


@pytest.mark.parametrize(
    ("limits", "low"),
    [
        (WANTED, ""),
        ({**WANTED, "LimitMEMLOCK": UNLIMITED, "LimitSTACK": "infinity"}, ""),
        ({**WANTED, "LimitNOFILE": "1048577"}, ""),
        ({**WANTED, "LimitNOFILE": "1048575"}, "a has LimitNOFILE=1048575"),
        ({**WANTED, "LimitMEMLOCK": "67108864"}, "a has LimitMEMLOCK=67108864"),
        ({**WANTED, "LimitSTACK": "0"}, "a has LimitSTACK=0"),
        ({**WANTED, "LimitNOFILE": "[not set]"}, "a has LimitNOFILE=[not set]"),
        ({"LimitMEMLOCK": "infinity", "LimitNOFILE": "1048576"}, "a has LimitSTACK=nothing"),
        (
            {"LimitMEMLOCK": "1", "LimitNOFILE": "2", "LimitSTACK": "3"},
            "a has LimitMEMLOCK=1, a has LimitNOFILE=2, a has LimitSTACK=3",
        ),
    ],
)
def test_each_limit_of_a_unit_may_be_exceeded_and_not_missed(
    limits: dict[str, str], low: str
) -> None:
    assert ", ".join(too_low([{"Id": "a", **limits}], WANTED)) == low


def test_every_unit_is_looked_at() -> None:
    units = [
        {"Id": name, **WANTED, "LimitNOFILE": files} for name, files in (("a", "1"), ("b", "2"))
    ]
    assert too_low(units, WANTED) == ["a has LimitNOFILE=1", "b has LimitNOFILE=2"]
    assert too_low([], WANTED) == []
    assert too_low(units, {}) == []


@pytest.fixture
def ask(
    host: StubbornHost, stand_in: Callable[[str, str], None], tmp_path: Path
) -> Callable[[str], dict[str, object]]:
    """The row when `systemctl show` prints this text."""
    (Path(host.root) / "run/systemd/system").mkdir(parents=True)
    item: dict[str, object] = {
        "id": "limits",
        "kind": "unit-limits",
        "want": WANT,
        "tolerate_absent": True,
    }

    def row(text: str, end: str = "") -> dict[str, object]:
        (tmp_path / "shown").write_text(text)
        stand_in("systemctl", f"cat {tmp_path}/shown; {end}")
        return host.state("check", [item])["limits"]

    return row


def test_a_host_says_which_unit_has_what(ask: Callable[..., dict[str, object]]) -> None:
    def unit(name: str, files: int) -> str:
        return f"Id={name}\nLimitMEMLOCK=infinity\nLimitNOFILE={files}\nLimitSTACK=67108864\n"

    row = ask(unit("a", 1048576) + "\n" + unit("b", 1048576))
    assert (row["state"], row["before"]) == ("ok", "2 engine units hold them")
    row = ask(unit("a", 1048576) + "\n" + unit("b", 1024))
    assert row["state"] == "blocked"
    assert str(row["why"]).startswith("b has LimitNOFILE=1024: `fab down`, then `fab up`")
    assert ask("")["state"] == "not_applicable"
    row = ask("Failed to connect to bus\n", "exit 1")
    assert (row["state"], "Failed to connect to bus" in str(row["why"])) == ("failed", True)
