"""The picture of a plan: complete, self-contained, the same bytes each time, and stored ones current."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from infra.catalog.load import Catalog
from infra.plan.compile import compile_file
from infra.plan.process import Plan
from infra.render.picture import draw_plan
from infra.spec.load import PROJECT, load_stack, stack_names
from infra.spec.stack import KUBERNETES

PICTURES = PROJECT / "docs" / "pictures"
STORED = ("a2-2n-dp4tp4", "a3-2p1d", "gb200-2p1d", "h200-2n-tp16")
MODES = (
    "vllm-shared-1p1d",
    "vllm-multi-port",
    "vllm-pd-tp16",
    "sglang-dp-attention-2n",
    "vllm-shared-replicas",
)
SVG = "{http://www.w3.org/2000/svg}"
FEW = ("gb200-2p1d", "a3-2p1d", "h200-2n-tp16")


def plan_of(name: str, catalog: Catalog) -> Plan:
    return compile_file(name, catalog=catalog).plan


def parsed(picture: str) -> ET.Element:
    return ET.fromstring(picture)  # noqa: S314 - our own text


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in parsed(picture).iter(f"{SVG}text")]


@pytest.mark.parametrize("name", STORED)
def test_the_stored_picture_is_current(name: str, catalog: Catalog, update_golden: bool) -> None:
    picture = draw_plan(plan_of(name, catalog))
    path = PICTURES / f"{name}.svg"
    if update_golden:
        path.write_text(picture, encoding="utf-8")
    assert picture == path.read_text(encoding="utf-8"), "run with --update-golden"


def test_every_stack_over_several_hosts_has_a_stored_picture(catalog: Catalog) -> None:
    # in pods and at Google a stack is laid out as the one that it extends
    extended = {*KUBERNETES, "gcp-gce"}
    named = [name for name in stack_names() if load_stack(name).spec.platform not in extended]
    wide = [name for name in named if len(plan_of(name, catalog).hosts) > 1]
    assert tuple(wide) == STORED
    drawn = {path.stem for path in PICTURES.glob("*.svg")} - {"security"}  # drawn by hand
    assert sorted(drawn) == list(STORED)


@pytest.mark.parametrize("name", [*stack_names(), *MODES])
def test_every_host_and_process_is_drawn(name: str, catalog: Catalog) -> None:
    plan = plan_of(name, catalog)
    picture = draw_plan(plan)
    words = texts(picture)
    for host in plan.hosts:
        assert words.count(host.name) == 1
        assert words.count(host.address) == 1
    titles = [title.text or "" for title in parsed(picture).iter(f"{SVG}title")]
    for process in plan.processes:
        if process.kind == "engine":
            assert sum(title.startswith(f"{process.id},") for title in titles) == 1
    devices = [word for word in words if word.isdigit() and len(word) <= 2]
    assert len(devices) >= sum(len(process.devices) for process in plan.processes)


@pytest.mark.parametrize("name", FEW)
def test_it_needs_nothing_from_outside(name: str, catalog: Catalog) -> None:
    picture = draw_plan(plan_of(name, catalog))
    assert "href" not in picture
    assert "url(" not in picture
    assert "@font-face" not in picture
    assert "<style" not in picture
    assert "<script" not in picture


@pytest.mark.parametrize("name", FEW)
def test_it_is_legible_at_page_width(name: str, catalog: Catalog) -> None:
    picture = draw_plan(plan_of(name, catalog))
    root = parsed(picture)
    assert float(root.attrib["width"]) <= 1280
    sizes = {float(element.attrib["font-size"]) for element in root.iter(f"{SVG}text")}
    assert min(sizes) >= 11
    background = root.find(f"{SVG}rect")
    assert background is not None
    assert background.attrib["width"] == root.attrib["width"]
    assert _luminance(background.attrib["fill"]) > 0.9
    inks = {element.attrib["fill"] for element in root.iter(f"{SVG}text")} - {"#ffffff"}
    assert all(_contrast(ink, background.attrib["fill"]) >= 4.5 for ink in inks)


@pytest.mark.parametrize("name", [*FEW, *MODES])
def test_no_text_lies_outside_the_picture(name: str, catalog: Catalog) -> None:
    root = parsed(draw_plan(plan_of(name, catalog)))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for element in root.iter(f"{SVG}text"):
        x, y = float(element.attrib["x"]), float(element.attrib["y"])
        about = len(element.text or "") * float(element.attrib["font-size"]) * 0.6
        before = {"middle": about / 2, "end": about}.get(element.attrib.get("text-anchor", ""), 0)
        assert x - before >= 0, element.text
        assert x - before + about <= width, element.text
        assert y <= height, element.text


def test_the_same_plan_gives_the_same_bytes() -> None:
    first = draw_plan(plan_of("gb200-2p1d", Catalog()))
    assert first == draw_plan(plan_of("gb200-2p1d", Catalog()))


def test_the_way_of_a_request_is_numbered(catalog: Catalog) -> None:
    words = texts(draw_plan(plan_of("gb200-2p1d", catalog)))
    badges = [word for word in words if re.fullmatch(r"[1-5]", word)]
    assert {"1", "2", "3", "4", "5"} <= set(badges)
    assert "KV cache" in words
    assert "17600–17603" in words
    assert "dp_rpc :12321" in words


def test_a_picture_of_roles_on_one_host_shows_where_kv_moves(catalog: Catalog) -> None:
    words = texts(draw_plan(plan_of("vllm-shared-1p1d", catalog)))
    assert any(word.startswith("KV cache: side channel") for word in words)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(first: str, second: str) -> float:
    high, low = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)
