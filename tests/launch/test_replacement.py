from __future__ import annotations

import json
from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.errors import HostsFailed, PrerequisiteError, StackError
from infra.launch.bring_up import bring_up
from infra.launch.deployment import Deployment
from infra.launch.releases import find_kept, read_recorded
from infra.remote.failures import Unreachable
from infra.render.host_paths import UNIT_FOLDER, cleanup_unit, release_path
from infra.render.kept_release import read_kept
from tests.launch.scripted_fleet import ScriptedFleet, make_deployment

STACK = "gb200-2p1d"


def other_release(
    catalog: Catalog, sets: tuple[str, ...]
) -> tuple[Deployment, ScriptedFleet, list[str]]:
    """A release that runs, and another one of the same stack on the same hosts, not yet brought up."""
    first, fleet, said = make_deployment(STACK, catalog)
    bring_up(first, {}, tunes=False)
    second, _, _ = make_deployment(STACK, catalog, sets=sets)
    fleet.asked.clear()
    said.clear()
    return replace(second, fleet=fleet, clock=first.clock, say=said.append), fleet, said


def begun(fleet: ScriptedFleet) -> dict[str, float | None]:
    return {unit.process.id: unit.started_at for unit in fleet.units.values()}


def test_only_groups_that_change_are_stopped_and_started_as_one(catalog: Catalog) -> None:
    deployment, fleet, said = other_release(catalog, ("roles.decode.max_num_seqs=7",))
    before = begun(fleet)
    bring_up(deployment, {}, tunes=False, replaces=True)
    after = begun(fleet)
    again = {process for process in after if after[process] != before[process]}
    assert again == {p.id for p in deployment.engines() if p.group == "decode/0"}
    assert any(line.startswith("replacing decode/0 of release ") for line in said)
    record = json.loads(fleet.files["prefill-0"][release_path(STACK)])
    assert record["release"] == deployment.plan.hash


def test_without_the_word_nothing_that_runs_is_replaced(catalog: Catalog) -> None:
    deployment, fleet, _ = other_release(catalog, ("roles.decode.max_num_seqs=7",))
    before = begun(fleet)
    with pytest.raises(PrerequisiteError, match="fab diff") as caught:
        bring_up(deployment, {}, tunes=False)
    assert all(word in str(caught.value) for word in ("decode-0/0", "--replace", "fab down"))
    assert begun(fleet) == before
    assert not any(request.get("mode") == "apply" for _, _, request in fleet.asked)


def test_another_text_of_the_unit_that_removes_containers_stops_nobody(catalog: Catalog) -> None:
    deployment, fleet, _ = other_release(catalog, ())
    path = f"{UNIT_FOLDER}/{cleanup_unit(STACK)}"
    wanted = fleet.files["decode-0"][path]
    fleet.files["decode-0"][path] = "as an older program wrote it"
    before = begun(fleet)
    bring_up(deployment, {}, tunes=False)
    assert (begun(fleet), fleet.files["decode-0"][path]) == (before, wanted)


def test_stopped_processes_are_replaced_without_a_word(catalog: Catalog) -> None:
    deployment, fleet, _ = other_release(catalog, ("roles.decode.max_num_seqs=7",))
    for unit in fleet.units.values():
        if unit.process.group == "decode/0":
            unit.active_state = "inactive"
    bring_up(deployment, {}, tunes=False)
    record = json.loads(fleet.files["decode-0"][release_path(STACK)])
    assert record["release"] == deployment.plan.hash


def test_a_unit_that_changes_stops_every_group_of_its_host(catalog: Catalog) -> None:
    deployment, fleet, _ = other_release(catalog, ())
    fleet.files["decode-2"][f"/etc/systemd/system/moe-{STACK}-engine@.service"] = "older"
    before = begun(fleet)
    bring_up(deployment, {}, tunes=False, replaces=True)
    again = {process for process, at in begun(fleet).items() if at != before[process]}
    assert again == {p.id for p in deployment.engines() if p.group == "decode/0"}


def test_a_host_that_is_not_used_any_more_is_cleared_and_a_dead_one_is_named(
    catalog: Catalog,
) -> None:
    deployment, fleet, said = other_release(catalog, ("roles.decode.max_num_seqs=7",))
    fleet.files["old-0"] = {release_path(STACK): fleet.files["decode-3"][release_path(STACK)]}
    for name, unit in [(key[1], unit) for key, unit in fleet.units.items() if key[0] == "decode-3"]:
        fleet.units["old-0", name] = unit
    fleet.fails["old-1"] = Unreachable("old-1", "no answer.", "Look.")
    bring_up(replace(deployment, spares=("old-0", "old-1")), {}, tunes=False, replaces=True)
    assert fleet.files["old-0"] == {}
    assert any("old-1 is left as it is: old-1: no answer." in line for line in said)


def test_devices_and_ports_of_another_stack_are_named(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)

    def put(devices: list[int], ports: list[list[int]]) -> None:
        process = {
            "id": "decode-0/0",
            "unit": "moe-small-engine@0.service",
            "kind": "engine",
            "group": "unified/0",
            "role": "unified",
            "endpoint": None,
            "devices": devices,
            "ports": ports,
        }
        record = {"stack": "small", "release": "ab", "cleanup": None, "processes": [process]}
        fleet.other_records["decode-0"] = {"small": json.dumps(record)}

    put([3], [[9000, 4]])
    with pytest.raises(PrerequisiteError, match=r"0/3 and decode-0/0 of stack small.*device 3"):
        bring_up(deployment, {}, tunes=False)
    put([], [[7100, 2]])
    with pytest.raises(PrerequisiteError, match=r"stack small.*port 7100.*fab down --stack small"):
        bring_up(deployment, {}, tunes=False)
    assert not any(fleet.files.values())
    put([], [[9000, 4]])
    bring_up(deployment, {}, tunes=False)


def test_a_kept_release_is_found_by_the_beginning_of_its_hash(catalog: Catalog) -> None:
    deployment, fleet, _ = other_release(catalog, ("roles.decode.max_num_seqs=7",))
    hosts = list(deployment.states)
    old = next(iter(fleet.kept["decode-0"]))
    kept = find_kept(fleet, hosts, (STACK, old[:6]), timeout_s=5.0)
    assert kept.plan.hash == old
    with pytest.raises(StackError, match=f"Newest first, there are {old[:12]}"):
        find_kept(fleet, hosts, (STACK, "0000000"), timeout_s=5.0)
    bring_up(deployment, {}, tunes=False, replaces=True)
    with pytest.raises(StackError, match="Several releases begin"):
        find_kept(fleet, hosts, (STACK, ""), timeout_s=5.0)


def test_a_kept_release_is_the_plan_that_was_compiled(catalog: Catalog) -> None:
    deployment, fleet, _ = other_release(catalog, ())
    kept = read_kept("decode-0", fleet.kept["decode-0"][deployment.plan.hash])
    assert kept.plan.hash == deployment.plan.hash
    assert [p.argv for p in kept.plan.processes] == [p.argv for p in deployment.plan.processes]


def test_what_was_left_half_installed_is_said_and_gone_on_with(catalog: Catalog) -> None:
    deployment, fleet, said = make_deployment(STACK, catalog)
    fleet.unfinished["decode-1"] = deployment.plan.hash
    bring_up(deployment, {}, tunes=False)
    words = f"release {deployment.plan.hash[:12]} was not installed to the end on decode-1"
    assert words in said
    mark = f"/var/lib/moe-infra/releases/{STACK}/unfinished"
    fleet.files["decode-1"][mark] = "abc"
    recorded = read_recorded(fleet, list(deployment.states), STACK, timeout_s=5.0)
    assert recorded.unfinished == {"decode-1": "abc"}


def test_a_host_that_leaves_is_cleared_once_nothing_speaks_against_it(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    fleet.files["old-0"] = {release_path(STACK): "{}"}
    order: list[str] = []

    def decided() -> None:
        assert not any(request.get("mode") == "apply" for _, _, request in fleet.asked)
        order.append("decided")

    leaving = replace(deployment, leaving=("old-0",), decided=decided)
    fleet.wrong_items["decode-3", "weights:kimi-k2.5-nvfp4"] = ("failed", "it does not exist")
    with pytest.raises(PrerequisiteError):
        bring_up(leaving, {}, tunes=False, replaces=True)
    assert order == []
    fleet.wrong_items.clear()
    fleet.files["old-0"] = {}
    bring_up(leaving, {}, tunes=False, replaces=True)
    assert order == ["decided"]
    assert ("old-0", "rollback") in [(host, r.get("mode")) for host, _, r in fleet.asked]


def test_all_that_speaks_against_a_start_is_told_at_once_worst_first(catalog: Catalog) -> None:
    deployment, fleet, _ = other_release(catalog, ("roles.decode.max_num_seqs=7",))
    theirs = {
        "id": "unified-0/0", "unit": "moe-small-engine@0.service", "kind": "engine", "group": "unified/0",
        "role": "unified", "endpoint": None, "devices": [0, 1], "ports": [],
    }  # fmt: skip
    for host in ("decode-0", "decode-1"):
        processes = [theirs, {**theirs, "id": "unified-0/1", "devices": [2, 3]}]
        record = {"stack": "small", "release": "ab", "cleanup": None, "processes": processes}
        fleet.other_records[host] = {"small": json.dumps(record)}
    blocked = "a reload would cut the GPUs from running containers of somebody. Drain them first"
    fleet.wrong_items["prefill-0", f"file:{release_path(STACK)}"] = ("blocked", blocked)
    weights = f"weights:{deployment.plan.checkpoint}"
    fleet.wrong_items["decode-2", weights] = ("blocked", "it does not exist")
    with pytest.raises(PrerequisiteError) as caught:
        bring_up(deployment, {}, tunes=False)
    lines = str(caught.value).splitlines()
    assert [line.partition(":")[0] for line in lines[:5]] == [
        "decode-0", "decode-1", f"stack {STACK}", "prefill-0", "decode-2",
    ]  # fmt: skip
    assert (
        "; decode-0/1 and unified-0/0 of stack small, installed there, both want device 1; "
        in lines[0]
    )
    assert "; and 1 more. Run `fab down --stack small`" in lines[0]
    assert "Drain them first." in lines[3]
    assert lines[4].endswith("[weights-staged]")
    assert "--force weights-staged" in lines[-1]
    assert len(caught.value.each()) == 5
    # and what speaks against it on the hosts that answer, beside one that does not
    fleet.fails["prefill-1"] = Unreachable("prefill-1", "no answer.", "Look at it.")
    with pytest.raises(HostsFailed) as failed:
        bring_up(deployment, {}, tunes=False)
    said = str(failed.value)
    for words in ("prefill-1: no answer.", "of stack small", "Drain them", "[weights-staged]"):
        assert words in said
    assert not any(request.get("mode") == "apply" for _, _, request in fleet.asked)
