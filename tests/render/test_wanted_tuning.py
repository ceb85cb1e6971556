"""What a profile wants of hosts, and what the plan adds to it."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.errors import StackError
from infra.plan.compile import compile_file
from infra.render.host_state import HOSTS_OWNER, hosts_state
from infra.render.wanted_tuning import Tuning, WantedTuning, plan_tuning, profile_tuning

CATALOG = Catalog()


def wanted(stack: str, item: str, host: int = 0) -> WantedTuning:
    plan = compile_file(stack, catalog=CATALOG).plan
    tuning = Tuning(profile=CATALOG.tuning(plan.tuning))
    found = plan_tuning(tuning, plan, plan.hosts[host].name, CATALOG)
    return next(one for one in found if one.id == item)


def test_every_tray_lists_all_trays_of_its_domain() -> None:
    lists = {wanted("gb200-2p1d", "imex.nodes", host).want for host in range(6)}
    assert lists == {",".join(f"192.0.2.{number}" for number in range(1, 7))}
    assert wanted("gb200-2p1d", "imex.nodes").details["needs"] == "drain"


def test_a_tray_that_serves_alone_keeps_its_list() -> None:
    assert wanted("gb200-tp4", "imex.nodes").want is None


def test_a_library_is_proven_in_the_image_of_the_engines_that_preload_it() -> None:
    plan = compile_file("a3-2p1d", catalog=CATALOG).plan
    item = wanted("a3-2p1d", "jemalloc")
    assert (item.target, item.want) == ("/usr/lib/aarch64-linux-gnu/libjemalloc.so.2", "usable")
    assert item.details["reference"] == plan.engine.image


def test_a_profile_alone_names_no_nodes_and_no_image() -> None:
    for name in CATALOG.ids("tuning"):
        state = hosts_state("h", Tuning(profile=CATALOG.tuning(name)))
        assert (state.stack, state.release) == (HOSTS_OWNER, "")
        documents = [item.as_document() for item in state.items]
        assert not any("reference" in document for document in documents)
        assert {d["want"] for d in documents if d["kind"] == "imex-nodes"} <= {None}


def test_what_must_be_switched_on_is_left_alone_until_it_is() -> None:
    profile = CATALOG.tuning("x86-amd")
    for enable, want in (((), None), (("cpu.idle_state2",), "1")):
        items = {item.id: item for item in profile_tuning(Tuning(profile=profile, enable=enable))}
        assert items["cpu.idle_state2"].want == want
    with pytest.raises(StackError, match=r"has no item cpu\.idle_state9"):
        list(profile_tuning(Tuning(profile=profile, enable=("cpu.idle_state9",))))
