"""The picture of memory per device: every layout and role, and what is missing in red."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from infra.catalog.load import Catalog
from infra.checks.view import view_plan
from infra.plan.compile import compile_file
from infra.render.estimates import Estimate, Surroundings, estimate_plan
from infra.render.memory_picture import draw_memory

NOWHERE = Surroundings(
    storage=None,
    lustre=None,
    request_tokens=None,
    cloud=None,
    capacity=None,
    num_reserved=None,
    cluster=None,
)
RED = "#dc2626"


def estimated(catalog: Catalog, stack: str, *sets: str) -> Estimate:
    compiled = compile_file(stack, catalog=catalog, sets=sets)
    found = estimate_plan(stack, view_plan(compiled.plan, catalog), NOWHERE)
    assert found is not None
    return found


def test_every_layout_and_role_has_a_bar_with_its_figures(catalog: Catalog) -> None:
    layouts = [estimated(catalog, name) for name in ("gb200-2p1d", "h200-tp8")]
    drawn = draw_memory(layouts)
    root = ET.fromstring(drawn)  # noqa: S314 - our own text
    words = {element.text for element in root.iter() if element.text}
    assert {"gb200-2p1d (gb200)", "h200-tp8 (h200)", "prefill", "decode", "unified"} <= words
    assert {"156.6", "109.9", "72.0", "48.7"} <= words
    assert drawn.count(RED) == 1  # the legend's


def test_what_is_missing_is_red(catalog: Catalog) -> None:
    short = estimated(catalog, "gb200-2p1d", "roles.prefill.gpu_memory_utilization=0.85")
    assert draw_memory([short]).count(RED) == 2


def test_the_same_estimate_is_drawn_in_the_same_bytes(catalog: Catalog) -> None:
    first, second = (draw_memory([estimated(catalog, "a3-2p1d")]) for _ in range(2))
    assert first == second
