"""What is brought about before a start, and what of the hosts is known then."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.launch.bring_up import bring_up
from tests.launch.scripted_fleet import make_deployment

STACK = "gb200-2p1d"


@pytest.mark.parametrize(("image", "num_looks"), [("ok", 1), ("changed", 2)])
def test_hosts_are_looked_at_again_after_images_were_pulled(
    image: str, num_looks: int, catalog: Catalog
) -> None:
    """One look comes with the state; where that takes as long as a pull, it is not the last before the start."""
    deployment, fleet, _ = make_deployment(STACK, catalog)
    host = "decode-3"
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
