"""What of a host's state `verify` calls drift, what it leaves open, and what it tells to type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.launch.fleet import Answers, Request
from infra.launch.proof.host_drift import Check, drift
from infra.launch.proof.watchers import WATCHED
from infra.render.edge_files import edge_config_path
from infra.render.host_paths import credential_path
from infra.tasks.verify import way_out
from tests.launch.scripted_fleet import make_deployment

STACK = "mi300x-tp8"  # one host
AGAIN = "--stack s"


@dataclass(frozen=True)
class Told:
    """A fleet whose every host tells these rows."""

    rows: list[dict[str, Any]]

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        assert timeout_s > 0
        assert {(one["mode"], one["withdraws"]) for one in requests.values()} == {("check", True)}
        return {host: {"items": self.rows} for host in requests}


def row(state: str, **keys: object) -> dict[str, Any]:
    given = {"id": "x", "group": "tuning", "before": "1", "wanted": "0", "why": "w", "needs": None}
    return {**given, "state": state, **keys}


def checks(catalog: Catalog, *rows: dict[str, Any]) -> list[Check]:
    deployment, _, _ = make_deployment(STACK, catalog)
    return drift(replace(deployment, fleet=Told(list(rows))), {})


HELD = {"state": "ok", "wanted": "0"}
REFUSED = {"state": "blocked", "wanted": "0", "after": "1", "why": "Operation not permitted"}


@pytest.mark.parametrize(
    ("given", "ok"),
    [
        (row("ok"), True),
        (row("not_applicable"), True),
        (row("changed"), False),
        (row("failed"), False),
        (row("blocked", needs="drain", last=HELD), False),
        (row("blocked", last=HELD), False),  # masked, locked down since
        (row("blocked", needs="drain"), None),
        (row("blocked", needs="reboot", last=REFUSED), None),
        (row("blocked"), None),  # locked down, another stack's wish, unusable here
        (row("changed", last=HELD), False),
        (row("changed", last=REFUSED), None),
        (row("changed", last={**REFUSED, "after": "5"}), False),  # somebody has changed it since
        (row("changed", last={**REFUSED, "wanted": "2"}), False),
        (row("blocked", needs="drain", last={**HELD, "wanted": "2"}), None),
        (row("blocked", group="files", needs="drain"), False),
        (row("failed", group="images"), False),
        (row("failed", group="weights"), False),
    ],
)  # fmt: skip
def test_what_a_host_had_is_drift_and_what_it_never_had_is_left_open(
    catalog: Catalog, given: dict[str, Any], ok: bool | None
) -> None:
    found = checks(catalog, given)
    assert found[-1].ok is ok
    assert [check.check for check in found if check.ok] == ([] if ok is False else [given["group"]])
    if ok is not True:
        assert found[-1].detail.startswith("is 1, declared 0: ")


def test_another_secret_and_none_are_told_apart(catalog: Catalog) -> None:
    mode = "secret mode 0600 owner 0:0"
    of_files = {"group": "files", "id": "s", "wanted": mode}
    (other,) = checks(catalog, row("changed", before=mode, **of_files))
    assert other.detail == "is not what the stack declares (its value is not shown): w"
    (none,) = checks(catalog, row("changed", before=None, **of_files))
    assert none.detail == f"is not there, declared {mode}: w"


def test_what_the_host_refused_is_told_in_its_words(catalog: Catalog) -> None:
    (_, open_one) = checks(catalog, row("changed", why="less noise", last=REFUSED))
    assert open_one.detail == (
        "is 1, declared 0: `fab tune-hosts` could not bring it about: Operation not permitted"
    )


@pytest.mark.parametrize(("wrote", "is_told"), [("1", False), ("8", True)])
def test_files_for_the_next_boot_are_no_loss_more_where_they_are_as_they_were_written(
    catalog: Catalog, wrote: str, is_told: bool
) -> None:
    waits = row("blocked", needs="drain", last=HELD)
    file = row("changed", id="file:/f", last={"state": "ok", "wanted": wrote})
    assert [check.check for check in checks(catalog, waits, file)] == ["x", *["file:/f"] * is_told]
    assert checks(catalog, file)[0].check == "file:/f"


def test_beside_drift_what_is_open_is_told_too(catalog: Catalog) -> None:
    found = checks(catalog, row("changed", id="a"), row("blocked", id="b"), row("ok", id="c"))
    assert [(check.check, check.ok) for check in found] == [("a", False), ("b", None)]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([row("changed")], "fab tune-hosts --stack s"),
        ([row("blocked", last=HELD)], "fab tune-hosts --stack s"),
        (
            [row("blocked", needs="drain", last=HELD), row("changed")],
            "fab down --stack s, then fab tune-hosts --stack s --allow drain, then fab up --stack s",
        ),
        (
            [
                row("blocked", needs="drain", last=HELD),
                row("blocked", needs="reboot", last=HELD, id="y"),
            ],
            (
                "fab down --stack s, then fab tune-hosts --stack s --allow drain --allow reboot, "
                "then reboot unified-0, then fab up --stack s"
            ),
        ),
        ([row("changed", group="files")], "fab down --stack s, then fab up --stack s"),
        (
            [row("failed", group="images"), row("changed")],
            "fab down --stack s, then fab tune-hosts --stack s, then fab up --stack s",
        ),
        (
            [row("changed", group="files", id=f"file:{credential_path(STACK, 'edge_keys')}")],
            "fab up --stack s",
        ),
        ([row("changed", group="files", id=f"file:{edge_config_path(STACK)}")], "fab up --stack s"),
        ([row("failed", group="images", id="program:haproxy")], "fab up --stack s"),
        ([row("failed", group="weights")], "fab stage-weights --stack s"),
        (
            [row("failed", group="weights"), row("changed", group="files")],
            "fab down --stack s, then fab stage-weights --stack s, then fab up --stack s",
        ),
    ],
)
def test_what_is_printed_brings_back_what_is_declared(
    catalog: Catalog, rows: list[dict[str, Any]], words: str
) -> None:
    assert way_out([check for check in checks(catalog, *rows) if check.is_wrong], AGAIN) == words


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "fab up --stack s"),
        ([row("changed")], "fab tune-hosts --stack s, then fab up --stack s"),
        ([row("failed", group="weights")], "fab stage-weights --stack s, then fab up --stack s"),
        ([row("changed", group="files")], "fab down --stack s, then fab up --stack s"),
        (
            [row("blocked", needs="drain", last=HELD)],
            "fab down --stack s, then fab tune-hosts --stack s --allow drain, then fab up --stack s",
        ),
    ],
    ids=["alone", "tune", "weights", "files", "drain"],
)
def test_what_nobody_watches_is_handed_over_again_and_stops_nothing(
    catalog: Catalog, rows: list[dict[str, Any]], words: str
) -> None:
    unwatched = Check(process="a", check=WATCHED, ok=False, detail="", is_drift=True)
    assert way_out([unwatched, *checks(catalog, *rows)], AGAIN) == words
