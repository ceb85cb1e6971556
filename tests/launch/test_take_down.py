from __future__ import annotations

from collections import Counter

import pytest

from infra.catalog.load import Catalog
from infra.errors import HostsFailed
from infra.launch.bring_up import bring_up
from infra.launch.deployment import Deployment, Pace
from infra.launch.observation import observe, remembered, status_document
from infra.launch.proof.questions import FORMS
from infra.launch.proof.verification import verify
from infra.launch.releases import read_releases
from infra.launch.take_down import purge, take_down
from tests.launch.scripted_fleet import ScriptedFleet, make_deployment

STACK = "gb200-2p1d"
CLEANUP = f"moe-{STACK}-cleanup.service"


@pytest.fixture
def running(catalog: Catalog) -> tuple[Deployment, ScriptedFleet, list[str]]:
    deployment, fleet, said = make_deployment(STACK, catalog)
    bring_up(deployment, {}, tunes=False)
    fleet.asked.clear()
    said.clear()
    return deployment, fleet, said


def pace_of(deployment: Deployment) -> Pace:
    return Pace(limits=deployment.limits, clock=deployment.clock, say=deployment.say)


def test_router_prefill_and_decode_stop_in_this_order_and_nothing_stays(
    running: tuple[Deployment, ScriptedFleet, list[str]],
) -> None:
    deployment, fleet, said = running
    assert take_down(fleet, list(deployment.states), STACK, pace_of(deployment)).was_there
    stopped = [line for line in said if line.startswith("stopping")]
    assert stopped == [
        "stopping router: 1 processes",
        "stopping prefill: 8 processes",
        "stopping decode: 16 processes",
    ]
    (kept,) = [line for line in said if "the releases kept there" in line]
    assert deployment.plan.hash[:12] in kept
    assert any(line.endswith("and nobody holds the 24 devices") for line in said)
    assert not any(fleet.files.values())
    assert not any(unit.active_state == "active" for unit in fleet.units.values())


def test_what_engines_compiled_goes_when_it_is_asked_for(
    running: tuple[Deployment, ScriptedFleet, list[str]],
) -> None:
    deployment, fleet, said = running
    hosts = list(deployment.states)
    fleet.compiled = dict.fromkeys(hosts, 2_000_000)
    take_down(fleet, hosts, STACK, pace_of(deployment))
    assert fleet.compiled == dict.fromkeys(hosts, 2_000_000)
    purge(fleet, hosts, STACK, pace_of(deployment))
    assert fleet.compiled == {}
    assert said[-1] == f"{STACK}: 12 MB that engines had compiled removed from 6 hosts"


def test_taken_down_twice_the_second_finds_nothing(
    running: tuple[Deployment, ScriptedFleet, list[str]],
) -> None:
    deployment, fleet, _ = running
    hosts = list(deployment.states)
    assert take_down(fleet, hosts, STACK, pace_of(deployment)).was_there
    assert not take_down(fleet, hosts, STACK, pace_of(deployment)).was_there


def test_a_host_out_of_reach_keeps_nobody_else_up(
    running: tuple[Deployment, ScriptedFleet, list[str]],
) -> None:
    deployment, fleet, _ = running
    away = HostsFailed("decode-1", "decode-1 does not answer.", "Look at it.")
    fleet.fails["decode-1"] = away
    done = take_down(fleet, list(deployment.states), STACK, pace_of(deployment))
    assert (done.was_there, [(one.host, one.error) for one in done.away]) == (
        True, [("decode-1", away)],
    )  # fmt: skip
    assert {host for host, files in fleet.files.items() if files} == {"decode-1"}
    assert {u.process.host for u in fleet.units.values() if u.active_state == "active"} == {
        "decode-1"
    }
    asked_away = [request for host, _, request in fleet.asked if host == "decode-1"]
    assert len(asked_away) == 1  # nobody waits for it again at each step


def test_where_nobody_can_be_asked_nothing_is_claimed(
    running: tuple[Deployment, ScriptedFleet, list[str]],
) -> None:
    deployment, fleet, _ = running
    for host in deployment.states:
        fleet.fails[host] = HostsFailed(host, f"{host} does not answer.", "Look at it.")
    with pytest.raises(HostsFailed, match="6 of 6 hosts failed"):
        take_down(fleet, list(deployment.states), STACK, pace_of(deployment))


def test_containers_that_were_kept_are_removed_before_the_files(
    running: tuple[Deployment, ScriptedFleet, list[str]],
) -> None:
    deployment, fleet, _ = running
    take_down(fleet, list(deployment.states), STACK, pace_of(deployment))
    cleanup = next(
        i for i, (_, _, request) in enumerate(fleet.asked) if "cleanup" in str(request.get("units"))
    )
    removal = next(
        i for i, (_, _, request) in enumerate(fleet.asked) if request.get("mode") == "rollback"
    )
    assert cleanup < removal


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {
                "active_state": "failed", "result": "exit-code", "exec_main_status": 1,
                "log_tail": ["cannot remove moe-gb200-2p1d-engine-2: Error: busy", "Failed to start moe-…"],
            },
            ": cannot remove moe-gb200-2p1d-engine-2: Error: busy.",
        ),
        ({"active_state": "failed", "result": "timeout"}, "systemd ended it (timeout)."),
        ({"active_state": "activating"}, "is activating; it has not ended in time."),
    ],
)  # fmt: skip
def test_a_container_that_stays_is_named_and_keeps_the_files(
    running: tuple[Deployment, ScriptedFleet, list[str]], row: dict[str, object], said: str
) -> None:
    deployment, fleet, _ = running
    fleet.foreign_units["decode-1", CLEANUP] = row
    (failed,) = take_down(fleet, list(deployment.states), STACK, pace_of(deployment)).away
    assert (failed.host, failed.error.exit_code) == ("decode-1", 4)
    assert failed.error.what.startswith("Its containers are not removed: ")
    assert failed.error.what.endswith(said)
    assert f"systemctl status {CLEANUP}" in failed.error.fix
    assert {host for host, files in fleet.files.items() if files} == {"decode-1"}
    fleet.foreign_units.clear()
    assert take_down(fleet, ["decode-1"], STACK, pace_of(deployment)).away == ()


def test_a_clean_up_that_went_in_an_earlier_attempt_is_done(
    running: tuple[Deployment, ScriptedFleet, list[str]],
) -> None:
    deployment, fleet, _ = running
    fleet.foreign_units["decode-1", CLEANUP] = {"load_state": "not-found"}
    assert take_down(fleet, ["decode-1"], STACK, pace_of(deployment)).away == ()


def test_a_process_that_does_not_stop_keeps_its_files(
    running: tuple[Deployment, ScriptedFleet, list[str]],
) -> None:
    deployment, fleet, _ = running
    fleet.unit("decode-1/0").stops_as = "deactivating"
    (failed,) = take_down(fleet, list(deployment.states), STACK, pace_of(deployment)).away
    assert (failed.host, failed.error.where) == ("decode-1", "decode-1 decode-1/0")
    assert "does not stop: it is deactivating" in failed.error.what
    assert {host for host, files in fleet.files.items() if files} == {"decode-1"}
    with pytest.raises(HostsFailed, match=r"decode-1/0.*does not stop"):
        take_down(fleet, ["decode-1"], STACK, pace_of(deployment))
    assert fleet.files["decode-1"]


THIEF = {"device": "/dev/nvidia2", "pid": 4711, "command": "python3 train.py"}


@pytest.mark.parametrize(
    ("holder", "said"),
    [
        ({"control_group": "/user.slice/session-3.scope"}, "(python3 train.py; session-3.scope)"),
        ({"control_group": "/moe_infra.slice/moe_infra-gb200_2p1d.slice/x"}, "(python3 train.py; x)"),
    ],
)  # fmt: skip
def test_a_device_that_somebody_holds_behind_the_stop_keeps_the_files(
    running: tuple[Deployment, ScriptedFleet, list[str]], holder: dict[str, object], said: str
) -> None:
    deployment, fleet, _ = running
    fleet.facts["decode-1"] = {"holders": [{**THIEF, **holder}]}
    (failed,) = take_down(fleet, list(deployment.states), STACK, pace_of(deployment)).away
    assert failed.host == "decode-1"
    assert f"/dev/nvidia2 is held by process 4711 {said}" in failed.error.what
    assert "sudo kill 4711" in failed.error.fix
    assert {host for host, files in fleet.files.items() if files} == {"decode-1"}
    fleet.facts.clear()  # it has gone
    again = take_down(fleet, list(deployment.states), STACK, pace_of(deployment))
    assert (again.was_there, again.away) == (True, ())
    assert not any(fleet.files.values())


def test_a_device_that_is_closed_a_moment_later_is_free(
    running: tuple[Deployment, ScriptedFleet, list[str]],
) -> None:
    deployment, fleet, _ = running
    real, holders = fleet._facts, [[THIEF], [THIEF], []]
    fleet._facts = lambda host, request: {**real(host, request), "holders": holders.pop(0)}  # type: ignore[method-assign]
    assert take_down(fleet, ["decode-1"], STACK, pace_of(deployment)).away == ()
    assert holders == []


@pytest.mark.parametrize(
    "holder",
    [
        {"command": "/usr/bin/nvidia-persistenced --verbose"},
        # one file for all devices of an AMD host: its holder may use others
        {"device": "/dev/kfd", "control_group": "/moe_infra.slice/moe_infra-other.slice/x"},
    ],
)
def test_who_only_watches_devices_or_may_use_others_holds_none(
    running: tuple[Deployment, ScriptedFleet, list[str]], holder: dict[str, object]
) -> None:
    deployment, fleet, _ = running
    fleet.facts["decode-1"] = {"holders": [{**THIEF, **holder}]}
    assert take_down(fleet, ["decode-1"], STACK, pace_of(deployment)).away == ()


def test_a_process_of_the_stack_that_holds_the_file_of_all_devices_is_named(
    running: tuple[Deployment, ScriptedFleet, list[str]],
) -> None:
    deployment, fleet, _ = running
    group = "/moe_infra.slice/moe_infra-gb200_2p1d.slice/moe-x.service"
    fleet.facts["decode-1"] = {"holders": [{**THIEF, "device": "/dev/kfd", "control_group": group}]}
    with pytest.raises(HostsFailed, match=r"/dev/kfd.*4711"):
        take_down(fleet, ["decode-1"], STACK, pace_of(deployment))


def test_a_damaged_record_keeps_nobody_else_up(
    running: tuple[Deployment, ScriptedFleet, list[str]],
) -> None:
    deployment, fleet, _ = running
    fleet.files["decode-0"]["/etc/moe-infra/gb200-2p1d/release.json"] = "{"
    (failed,) = take_down(fleet, list(deployment.states), STACK, pace_of(deployment)).away
    assert "The record cannot be read" in failed.error.what
    assert {host for host, files in fleet.files.items() if files} == {"decode-0"}


def test_a_host_that_goes_away_in_the_middle_keeps_nobody_else_up(
    running: tuple[Deployment, ScriptedFleet, list[str]],
) -> None:
    deployment, fleet, _ = running
    away = HostsFailed("prefill-1", "prefill-1 does not answer.", "Look at it.")
    fleet.last["prefill-1", "units"] = away
    done = take_down(fleet, list(deployment.states), STACK, pace_of(deployment))
    assert [one.host for one in done.away] == ["prefill-1"]
    assert {host for host, files in fleet.files.items() if files} == {"prefill-1"}


def test_status_follows_the_record(running: tuple[Deployment, ScriptedFleet, list[str]]) -> None:
    deployment, fleet, _ = running
    rows = observe(fleet, list(deployment.states), STACK, timeout_s=10.0)
    document = status_document(STACK, rows)
    assert document["ok"] is True
    assert len(document["processes"]) == 24  # type: ignore[arg-type]
    router = document["router"]
    assert isinstance(router, dict)
    assert list(router) == [
        "id", "host", "unit", "state", "ready", "since", "epoch", "restarts", "devices",
    ]  # fmt: skip
    fleet.unit("decode-0/1").active_state = "failed"
    fleet.silent.add("prefill-1/0")
    rows = observe(fleet, list(deployment.states), STACK, timeout_s=10.0)
    assert [row.id for row in rows if not row.ready] == ["prefill-1/0", "decode-0/1"]


def test_status_asks_every_host_once(running: tuple[Deployment, ScriptedFleet, list[str]]) -> None:
    deployment, fleet, _ = running
    observe(fleet, list(deployment.states), STACK, timeout_s=10.0)
    assert [(host, operation) for host, operation, _ in fleet.asked] == [
        (host, "status") for host in deployment.states
    ]


def test_a_host_out_of_reach_is_a_row_and_hides_nobody(
    running: tuple[Deployment, ScriptedFleet, list[str]],
) -> None:
    deployment, fleet, _ = running
    before = observe(fleet, list(deployment.states), STACK, timeout_s=10.0)
    fleet.fails["decode-1"] = HostsFailed("decode-1", "decode-1 does not answer.", "Look at it.")
    rows = observe(fleet, list(deployment.states), STACK, timeout_s=10.0)
    unknown = [row for row in rows if row.state == "unknown"]
    assert [(row.id, row.host, row.ready) for row in unknown] == [("decode-1", "decode-1", False)]
    assert "does not answer" in str(unknown[0].problem)
    assert sum(row.ready for row in rows) == 21
    assert status_document(STACK, rows)["ok"] is False
    known = remembered(rows, before)
    assert [row.id for row in known if row.state == "unknown"] == [
        f"decode-1/{index}" for index in range(4)
    ]
    assert len(known) == len(before)


def test_a_router_that_wants_a_key_is_ready_all_the_same(
    running: tuple[Deployment, ScriptedFleet, list[str]],
) -> None:
    deployment, fleet, _ = running
    for status, ready in ((401, True), (503, False)):
        fleet.answer_with["router/0"] = {"status": status, "body": ""}
        rows = observe(fleet, list(deployment.states), STACK, timeout_s=10.0)
        assert [row.ready for row in rows if row.kind == "router"] == [ready]


def test_status_of_nothing_is_not_ok(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    rows = observe(fleet, list(deployment.states), STACK, timeout_s=10.0)
    assert rows == ()
    assert status_document(STACK, rows)["ok"] is False


def test_a_headless_process_is_as_ready_as_its_leader(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment("h200-2n-tp16", catalog)
    bring_up(deployment, {}, tunes=False)
    hosts = list(deployment.states)
    assert all(row.ready for row in observe(fleet, hosts, "h200-2n-tp16", timeout_s=10.0))
    fleet.silent.add("unified-0/0")
    assert not any(row.ready for row in observe(fleet, hosts, "h200-2n-tp16", timeout_s=10.0))


def test_a_damaged_record_is_a_named_failure(
    running: tuple[Deployment, ScriptedFleet, list[str]],
) -> None:
    deployment, fleet, _ = running
    fleet.files["decode-0"]["/etc/moe-infra/gb200-2p1d/release.json"] = "{"
    with pytest.raises(HostsFailed, match=r"decode-0:/etc/moe-infra/gb200-2p1d/release.json"):
        read_releases(fleet, list(deployment.states), STACK, timeout_s=10.0)


def test_verify_asks_every_rank_and_the_router_for_every_capability(
    running: tuple[Deployment, ScriptedFleet, list[str]],
) -> None:
    deployment, fleet, _ = running
    checks = verify(deployment, {}, 5.0, Catalog())
    serving = [check for check in checks if not check.is_drift]
    counts = Counter(check.check for check in serving)
    assert counts == {
        **dict.fromkeys(deployment.plan.capabilities, 25),
        **dict.fromkeys(FORMS, 17),  # once for each server of decode ranks, and through the router
        "known-answer": 16,
    }
    assert all(check.ok for check in serving if check.check == "known-answer")
    assert all(check.ok for check in serving if check.check == "chat")
    groups = ["tuning", "files", "images", "weights"]
    drift = [check for check in checks if check.is_drift]
    assert [check.check for check in drift][: len(groups) * 6] == groups * 6
    live = {
        "environment",
        "limits",
        "unit",
        "transport",
        "kv-transport",
        "image",
        "rdma-counters",
        "watched",
    }
    assert {check.check for check in drift[len(groups) * 6 :]} == live
    assert not any(check.is_wrong for check in drift)
    unknown = {check.check for check in drift if check.ok is None}
    assert unknown == {"transport", "kv-transport", "rdma-counters"}
    fleet.unit("decode-3/3").active_state = "failed"
    fleet.unit("decode-3/3").log = ["ValueError: gone"]
    checks = verify(deployment, {}, 5.0, Catalog())
    ended = [check for check in checks if check.check == "running"]
    assert [(check.process, check.ok) for check in ended] == [("decode-3/3", False)]
    assert "ValueError: gone" in ended[0].detail
    wrong = {check.process for check in checks if check.check == "chat" and not check.ok}
    assert {"decode-0/0", "decode-3/3", "router/0"} <= wrong


def test_verify_waits_for_a_silent_rank_once(
    running: tuple[Deployment, ScriptedFleet, list[str]],
) -> None:
    deployment, fleet, _ = running
    fleet.silent.add("decode-3/3")
    checks = [
        c
        for c in verify(deployment, {}, 5.0, Catalog())
        if c.process == "decode-3/3" and not c.is_drift
    ]
    assert not any(check.ok for check in checks)
    assert ["not asked again" in check.detail for check in checks] == [False] + [True] * (
        len(checks) - 1
    )


def test_verify_names_what_differs(
    running: tuple[Deployment, ScriptedFleet, list[str]],
) -> None:
    deployment, fleet, _ = running
    fleet.files["prefill-1"]["/etc/moe-infra/gb200-2p1d/engine-2/launch"] = "spoilt"
    fleet.wrong_items["decode-0", "vm.swappiness"] = ("changed", "somebody set it")
    wrong = [
        check
        for check in verify(deployment, {}, 5.0, Catalog())
        if check.is_drift and check.is_wrong
    ]
    assert {(check.process, check.check) for check in wrong} == {
        ("prefill-1", "file:/etc/moe-infra/gb200-2p1d/engine-2/launch"),
        ("decode-0", "vm.swappiness"),
    }
