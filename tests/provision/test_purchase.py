"""What a preview says of money."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.catalog.prices import read_prices
from infra.memory.price import hourly_price, no_price
from infra.provision.aws.capacity import plan_capacity
from infra.provision.aws.purchase import tell_cost
from infra.rehearsal.cloud.scratch_project import RESERVATION
from infra.rehearsal.cloud.store import Store
from infra.render.purchases import cost_sentence
from infra.spec.stack import Capacity
from tests.provision.belongings import own_stack
from tests.provision.test_capacity import topology

Record = Callable[..., Any]


def cost(recorded: Any) -> str:
    """The one sentence about money."""
    (line,) = [each for each in recorded.said if " USD " in each or "not known" in each]
    return str(line)


def test_a_preview_says_what_an_hour_and_a_day_cost_and_what_of_it_is_idle(record: Record) -> None:
    told = cost(record("gb200-2p1d"))
    assert told.startswith("info: The machines cost 380.95 USD per hour, 9,142.85 per day: ")
    assert "1 × u-p6e-gb200x36 ultraserver at 380.95; list of 2026-09-19" in told
    assert "3 of 9 machines are idle: 126.98 USD per hour, 3,047.62 per day." in told


def test_what_is_reserved_beyond_the_stack_is_idle(record: Record, tmp_path: Path) -> None:
    def prepare(store: Store) -> dict[str, str]:
        larger = replace(store.account.reservations[RESERVATION], num_instances=5)
        store.account = replace(store.account, reservations={RESERVATION: larger})
        return {}

    root = own_stack(tmp_path, "h200-2n-tp16", capacity={"kind": "odcr"})
    told = cost(record("mine", root=root, prepare=prepare))
    assert "cost 316.48 USD per hour" in told
    assert "3 of 5 machines are idle: 189.89 USD per hour, 4,557.31 per day." in told


def test_on_demand_nothing_is_idle(record: Record) -> None:
    told = cost(record("h200-2n-tp16"))
    assert "cost 126.59 USD per hour, 3,038.21 per day" in told
    assert told.endswith("None of them is idle.")


def test_a_cluster_costs_beside_its_nodes(record: Record) -> None:
    told = cost(record("eks-b200-tp8"))
    assert "p6-b200.48xlarge capacity-block at 98.84" in told
    assert "control plane at " in told
    assert "2 system nodes at 0.81" in told


def test_a_price_that_nobody_publishes_is_said_to_be_unknown(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("infra.provision.aws.purchase.pulumi.log.info", said.append)
    plan = plan_capacity(topology(catalog, "h200"), Capacity(kind="on-demand"))
    tell_cost(replace(plan, num_machines={"p5e.48xlarge": 1}), None)
    assert said == [
        "What the machines cost is not known: no published price for p5e.48xlarge on-demand."
    ]


def test_a_sentence_needs_a_price() -> None:
    assert cost_sentence(no_price("nobody knows")).endswith("not known: nobody knows.")
    one = hourly_price({"p5en.48xlarge": 1}, "on-demand", read_prices())
    assert cost_sentence(one).startswith("The machines cost 63.30 USD per hour, 1,519.10 per day:")
