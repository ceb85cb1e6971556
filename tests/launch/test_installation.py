"""What is brought about before a start, and what of the hosts is known then."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.launch.bring_up import bring_up
from tests.launch.scripted_fleet import make_deployment

STACK = "gb200-2p1d"


@pytest.mark.parametrize(
    ("image", "runs", "num_looks"),
    [("ok", False, 0), ("changed", False, 1), ("ok", True, 1), ("changed", True, 1)],
)
def test_hosts_are_looked_at_again_where_something_ran_and_after_images_were_pulled(
    image: str, num_looks: int, catalog: Catalog, *, runs: bool
) -> None:
    """Of a deployment of which nothing runs the first look is enough; a pull takes so long that it is old."""
    deployment, fleet, _ = make_deployment(STACK, catalog)
    host = "decode-3"
    if runs:
        bring_up(deployment, {}, tunes=False)
        fleet.asked.clear()
    (item,) = (each.id for each in deployment.states[host].items if each.kind == "image")
    fleet.wrong_items[host, item] = (image, "pulled")
    bring_up(deployment, {}, tunes=False)
    asked = [(operation, request) for name, operation, request in fleet.asked if name == host]
    applied = max(
        at for at, (kind, what) in enumerate(asked) if kind == "state" and what["mode"] == "apply"
    )
    started = next(
        at for at, (kind, what) in enumerate(asked) if kind == "units" and what["action"] == "start"
    )
    looks = [what["action"] for kind, what in asked[applied + 1 : started] if kind == "units"]
    assert looks == ["status"] * num_looks
