"""Prices: bundles bought whole, and nothing guessed."""

from __future__ import annotations

import pytest

from infra.catalog.prices import read_prices
from infra.memory.price import hourly_price

PRICES = read_prices()


def test_instances_are_multiplied() -> None:
    found = hourly_price({"p5en.48xlarge": 2}, "on-demand", PRICES)
    assert found.usd_per_hour == pytest.approx(2 * 63.296)
    assert "2 × p5en.48xlarge on-demand" in found.why


@pytest.mark.parametrize(
    ("trays", "usd", "name"),
    [(1, 380.952, "u-p6e-gb200x36"), (9, 380.952, "x36"), (10, 761.904, "u-p6e-gb200x72")],
)
def test_an_ultraserver_is_bought_whole(trays: int, usd: float, name: str) -> None:
    found = hourly_price({"p6e-gb200.36xlarge": trays}, "ultraserver", PRICES)
    assert found.usd_per_hour == pytest.approx(usd)
    assert name in found.why


def test_what_is_bought_and_not_used_is_idle() -> None:
    found = hourly_price({"p6e-gb200.36xlarge": 6}, "ultraserver", PRICES)
    assert (found.num_bought, found.num_used) == (9, 6)
    assert found.idle_usd_per_hour == pytest.approx(380.952 / 3)
    assert found.saved_usd_per_hour == 0.0
    larger = hourly_price({"p6e-gb200.36xlarge": 6}, "ultraserver", PRICES, num_reserved=18)
    assert [(each.sold_as, each.num_units) for each in larger.purchases] == [("u-p6e-gb200x72", 1)]
    assert larger.idle_usd_per_hour == pytest.approx(761.904 * 12 / 18)


def test_only_machines_on_demand_save_money_by_being_given_back() -> None:
    rented = hourly_price({"p5en.48xlarge": 2, "p6-b200.48xlarge": 1}, "on-demand", PRICES)
    assert rented.saved_usd_per_hour == rented.usd_per_hour == pytest.approx(2 * 63.296 + 113.9328)
    assert rented.idle_usd_per_hour == 0.0
    assert hourly_price({"p5en.48xlarge": 2}, "odcr", PRICES).saved_usd_per_hour == 0.0


def test_a_price_that_is_not_published_is_not_guessed() -> None:
    found = hourly_price({"p5e.48xlarge": 1}, "on-demand", PRICES)
    assert found.usd_per_hour is None
    assert "no published price for p5e.48xlarge on-demand" in found.why


def test_every_price_is_of_an_instance_of_the_catalogue_and_names_its_day() -> None:
    assert all(price.usd_per_hour > 0 for price in PRICES.prices)
    assert str(PRICES.sources[0].checked) in hourly_price({"p5en.48xlarge": 1}, "odcr", PRICES).why
