from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.errors import HostsFailed, NotReady, PrerequisiteError
from infra.launch.bring_up import bring_up
from infra.launch.proof.router import ends_again_and_again
from infra.launch.unit_states import read_units
from infra.remote.failures import HostKeyChanged, SudoRefused, Unreachable
from infra.render.reserved_ports import RESERVED_PORTS_ID
from infra.render.wanted_tuning import JEMALLOC_ID
from tests.launch.scripted_fleet import FakeUnit, ScriptedFleet, make_deployment

STACK = "gb200-2p1d"


def actions(fleet: ScriptedFleet, kind: str) -> list[tuple[str, object]]:
    """(host, action) of every request to units of a kind."""
    return [
        (host, request["action"])
        for host, operation, request in fleet.asked
        if operation == "units" and any(kind in str(name) for name in request["units"])  # type: ignore[attr-defined]
    ]


def test_every_rank_is_proven_and_a_request_goes_through_the_router(catalog: Catalog) -> None:
    deployment, _, said = make_deployment(STACK, catalog)
    served = bring_up(deployment, {}, tunes=False)
    assert len(served.proofs) == 24
    assert all(verdict.ok for verdict in served.proofs.values())
    assert served.through_router == "'The answer is 42.'"
    assert any("24 ranks" in line for line in said)


def test_waiting_tells_the_phase_of_who_is_behind_without_asking_once_more(
    catalog: Catalog,
) -> None:
    deployment, fleet, said = make_deployment(STACK, catalog)
    fleet.load_s = 12.0
    for unit in fleet.units.values():
        unit.log = ["Loading safetensors checkpoint shards:  98% Completed | 63/64 [00:01<00:01]"]
    fleet.unit("decode-1/2").log = ["Loading safetensors checkpoint shards:  58% Completed | 37/64"]
    bring_up(deployment, {}, tunes=False)
    line = next(line for line in said if "proven; waiting" in line)
    assert "decode 0/16" in line
    assert "waiting for decode-1/2: weights 37 of 64 shards; 23 more: weights" in line
    assert line.endswith("of 1 min)")
    looks = [
        operation
        for host, operation, request in fleet.asked
        if host == "decode-1" and operation in {"units", "probe"}
    ]
    # between two looks at the units there is always one at the endpoints: no look for the logs alone
    waiting = looks[looks.index("probe") :]
    assert all(pair != ("units", "units") for pair in itertools.pairwise(waiting))


def test_engines_of_all_groups_start_in_one_window_and_the_router_last(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    bring_up(deployment, {}, tunes=False)
    starts = [
        (host, request["units"])
        for host, operation, request in fleet.asked
        if operation == "units" and request["action"] == "start"
    ]
    assert [host for host, _ in starts] == [*[h.name for h in deployment.plan.hosts], "prefill-0"]
    assert "router" in str(starts[-1][1])
    router_started = fleet.unit("router/0").started_at or 0.0
    assert all((fleet.unit(p.id).started_at or 0.0) < router_started for p in deployment.engines())


@pytest.mark.parametrize(
    "stack",
    [
        "a3-2p1d",
        "a2-2n-dp4tp4",
        "h200-2n-tp16",
        "h200-sglang-tp8",
        "vllm-pd-mooncake",
        "vllm-hybrid-2n",
        "vllm-multi-port",
        "sglang-pd-nixl",
        "sglang-dp-attention-2n",
    ],
)
def test_every_kind_of_group_comes_up(stack: str, catalog: Catalog) -> None:
    deployment, _, _ = make_deployment(stack, catalog)
    served = bring_up(deployment, {}, tunes=False)
    assert set(served.proofs) == set(deployment.endpoints.ranks)
    assert set(served.units) == {process.id for process in deployment.plan.processes}


def test_brought_up_again_it_changes_nothing_and_proves_again(catalog: Catalog) -> None:
    deployment, fleet, said = make_deployment(STACK, catalog)
    bring_up(deployment, {}, tunes=False)
    assert "started 24 engine processes on 6 hosts" in said
    begun = {process.id: fleet.unit(process.id).started_at for process in deployment.plan.processes}
    said.clear()
    bring_up(deployment, {}, tunes=False)
    assert any("0 items changed" in line for line in said)
    assert "24 engine processes run already and are left running" in said
    assert not any("started" in line for line in said)
    assert begun == {p.id: fleet.unit(p.id).started_at for p in deployment.plan.processes}


def test_watchers_load_beside_the_engines_and_are_armed_when_all_are_proven(
    catalog: Catalog,
) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    bring_up(deployment, {}, tunes=False)
    told: list[tuple[str, str]] = []
    for host, operation, request in fleet.asked:
        if request.get("beside"):
            assert request["beside"] == [f"moe-{STACK}-watch.service"]
            told.append((host, "stands by"))
        also = request.get("also")
        every = (request, *(also if isinstance(also, list) else ()))
        told += [(host, "armed") for one in every if one.get("action") == "arm"]
        if operation == "probe":
            told.append((host, "probed"))
    for host in deployment.units("engine"):
        words = [word for name, word in told if name == host]
        assert words[0] == "stands by"
        assert "probed" in words[: words.index("armed")]


def test_watchers_and_the_router_begin_and_meet_in_one_execution_on_each_host(
    catalog: Catalog,
) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    bring_up(deployment, {}, tunes=False)
    armed: dict[str, dict[str, object]] = {}
    on_router: list[tuple[object, object]] = []
    for host, _, request in fleet.asked:
        also = request.get("also")
        every = [dict(request), *(also if isinstance(also, list) else [])]
        if any(one.get("action") == "arm" for one in every) and host not in armed:
            (armed[host],) = [one for one in every if one.get("action") == "arm"]
            if host == "prefill-0":
                on_router = [(one["operation"], one.get("action")) for one in every]
    assert set(armed) == {host.name for host in deployment.plan.hosts}
    assert on_router == [
        ("units", "start"),
        ("groups", "arm"),
        ("probe", None),
        ("units", "status"),
    ]
    awaited = {host: asked.get("awaits") for host, asked in armed.items()}
    led = {p.group: p.host for p in reversed(deployment.engines())}
    assert {host: groups for host, groups in awaited.items() if groups} == {
        host: [group for group, leader in sorted(led.items()) if leader == host]
        for host in led.values()
    }


def test_a_group_of_which_a_part_has_ended_starts_again_as_one(catalog: Catalog) -> None:
    deployment, fleet, said = make_deployment(STACK, catalog)
    bring_up(deployment, {}, tunes=False)
    begun = {process.id: fleet.unit(process.id).started_at for process in deployment.plan.processes}
    fleet.unit("decode-1/1").active_state = "failed"
    bring_up(deployment, {}, tunes=False)
    again = {p for p in begun if fleet.unit(p).started_at != begun[p]}
    assert again == {p.id for p in deployment.engines() if p.group == "decode/0"}
    assert "decode/0 starts again as one: decode-1/1 has ended" in said
    left = "8 engine processes run already and are left running"
    assert f"started 16 engine processes on 4 hosts; {left}" in said


def test_units_are_looked_at_once_a_second_while_endpoints_are_asked_more_often(
    catalog: Catalog,
) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    fleet.load_s = 2.0
    begun = deployment.clock.now()
    bring_up(deployment, {}, tunes=False)
    waited = deployment.clock.now() - begun
    operations = [operation for host, operation, _ in fleet.asked if host == "decode-1"]
    asked = operations[operations.index("probe") :]
    assert waited > 2.0
    assert asked.count("units") <= waited + 1
    assert asked.count("probe") > 4


def test_a_unit_that_fails_is_named_with_its_reason_at_once(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    log = [
        "INFO 11-20 14:00:00 [loader.py:1] Loading",
        "(EngineCore pid=7) ERROR 11-20 14:00:01 [core.py:2] torch.OutOfMemoryError: CUDA out of memory.",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    ]
    fleet.end("decode-1/2", log)
    begun = deployment.clock.now()
    with pytest.raises(NotReady) as caught:
        bring_up(deployment, {}, tunes=False)
    assert caught.value.where == "decode-1/2"
    assert "exit code 1: torch.OutOfMemoryError: CUDA out of memory." in caught.value.what
    assert "fab logs --stack gb200-2p1d --rank decode-1/2" in caught.value.fix
    assert "`fab up --stack gb200-2p1d` starts what has ended" in caught.value.fix
    assert deployment.clock.now() - begun < 2


def test_masked_units_are_refused_with_all_else_before_anything_changes(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    for process in ("decode-1/0", "decode-1/2", "router/0"):
        fleet.unit(process).load_state = "masked"
    fleet.wrong_items["decode-3", "weights:kimi-k2.5-nvfp4"] = ("failed", "it does not exist")
    with pytest.raises(PrerequisiteError) as caught:
        bring_up(deployment, {}, tunes=False)
    units = f"moe-{STACK}-engine@0.service moe-{STACK}-engine@2.service"
    text = str(caught.value)
    assert (
        f"decode-1: Somebody masked units, so systemd would not start them there: {units.replace(' ', ', ')}."
        in text
    )
    assert (
        f"`ssh decode-1 'sudo systemctl unmask {units}; sudo systemctl unmask --runtime {units}'`"
        in text
    )
    assert f"`ssh prefill-0 'sudo systemctl unmask moe-{STACK}-router@0.service; " in text
    assert "decode-3: weights:kimi-k2.5-nvfp4" in text
    assert not any(fleet.files.values())


@pytest.mark.parametrize("process", ["decode-1/2", "router/0"])
def test_what_systemctl_says_of_a_start_that_it_does_not_take_is_told_and_no_older_word(
    catalog: Catalog, process: str
) -> None:
    deployment, fleet, said = make_deployment(STACK, catalog)
    unit = fleet.unit(process)
    unit.not_taken = "Failed to start it: Bad unit file.\nSee the status."
    unit.log = ["RuntimeError: of last week"]
    with pytest.raises(NotReady) as caught:
        bring_up(deployment, {}, tunes=False)
    host = unit.process.host
    assert str(caught.value).startswith(
        f"{host}: Systemd does not take the start: Failed to start it: Bad unit file. See the status. "
    )
    assert f"`ssh {host} systemctl status 'moe-{STACK}-*'`" in caught.value.fix
    assert "last week" not in str(caught.value)
    assert any("started" in line for line in said) is (process == "router/0")


def test_what_systemctl_says_of_a_watcher_is_no_word_about_a_process_that_ended(
    catalog: Catalog,
) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    unit = f"moe-{STACK}-watch.service"
    fleet.no_watchers["decode-1"] = (
        f"Failed to start {unit}: Unit {unit} has a bad unit file setting."
    )
    fleet.end("decode-1/2", ["ValueError: no such model"])
    with pytest.raises(NotReady, match="exit code 1: ValueError: no such model") as caught:
        bring_up(deployment, {}, tunes=False)
    assert caught.value.where == "decode-1/2"
    # of both, each is told where it stands for itself
    fleet.unit("decode-1/3").not_taken = "Failed to start that one.\nSee the status."
    fleet.unit("decode-1/3").active_state = "inactive"
    with pytest.raises(NotReady) as caught:
        bring_up(deployment, {}, tunes=False)
    said = "decode-1: Systemd does not take the start: Failed to start that one. See the status. "
    assert str(caught.value).startswith(said)


def test_the_first_of_several_failures_stands_in_front(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    fleet.end("decode-0/0", ["ValueError: late"], since="2026-11-20T14:00:05.000Z")
    fleet.end("decode-2/1", ["ValueError: early"], since="2026-11-20T14:00:01.000Z")
    with pytest.raises(NotReady, match="early") as caught:
        bring_up(deployment, {}, tunes=False)
    assert caught.value.where == "decode-2/1"
    assert "After it ended decode-0/0." in caught.value.what


def test_a_leaders_message_about_a_rank_names_its_process(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    fleet.end("decode-0/0", ["RuntimeError: Configuration mismatch detected for engine 5."])
    with pytest.raises(NotReady) as caught:
        bring_up(deployment, {}, tunes=False)
    assert "(rank 5 is decode-1/1)" in caught.value.what


def test_a_taken_port_is_refused_before_anything_changes(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    fleet.listeners["decode-0"] = [
        {"port": 7102, "address": "0.0.0.0", "pid": 4711, "command": "python3 -m http.server"}
    ]
    with pytest.raises(PrerequisiteError) as caught:
        bring_up(deployment, {}, tunes=False)
    text = str(caught.value)
    assert all(word in text for word in ("decode-0", "7102", "4711", "http.server", "decode-0/2"))
    assert not any(fleet.files.values())
    assert not any(unit.active_state == "active" for unit in fleet.units.values())


def test_missing_weights_are_refused_before_anything_changes(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    fleet.wrong_items["decode-3", "weights:kimi-k2.5-nvfp4"] = ("failed", "it does not exist")
    with pytest.raises(PrerequisiteError, match=r"decode-3.*weights:kimi-k2.5-nvfp4"):
        bring_up(deployment, {}, tunes=False)
    assert not any(fleet.files.values())


def test_a_file_that_cannot_be_written_fails_the_host(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    target = "file:/etc/moe-infra/gb200-2p1d/release.json"
    fleet.wrong_items["decode-0", target] = ("failed", "No space left on device (ENOSPC)")
    with pytest.raises(HostsFailed, match="No space left"):
        bring_up(deployment, {}, tunes=False)
    assert {action for _, action in actions(fleet, "engine")} == {"status"}


def test_another_release_that_runs_is_not_written_over(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    bring_up(deployment, {}, tunes=False)
    fleet.files["decode-0"]["/etc/moe-infra/gb200-2p1d/engine-0/launch"] = "older"
    with pytest.raises(PrerequisiteError, match="fab down"):
        bring_up(deployment, {}, tunes=False)


def test_a_lost_connection_is_looked_at_again(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    fleet.lose = [("decode-0", "facts"), ("decode-1", "units"), ("decode-2", "probe")]

    def lose_later(_unit: FakeUnit) -> None:
        fleet.lose = [("decode-1", "units"), ("decode-2", "probe")]

    fleet.on_start["prefill-0/0"] = lose_later
    assert len(bring_up(deployment, {}, tunes=False).proofs) == 24


def test_a_connection_lost_while_files_are_written_is_asked_again(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    real = fleet._state

    def lose_apply(host: str, request: object) -> object:
        if request["mode"] == "apply" and host == "decode-0" and not fleet.files[host]:  # type: ignore[index]
            fleet.lose.append((host, "state"))
        return real(host, request)  # type: ignore[arg-type]

    fleet._state = lose_apply  # type: ignore[assignment, method-assign]
    assert len(bring_up(deployment, {}, tunes=False).proofs) == 24


def test_a_host_out_of_reach_fails_with_its_own_words(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    fleet.fails["decode-2"] = Unreachable("decode-2", "port 22 refuses connections.", "Start sshd.")
    with pytest.raises(Unreachable, match="decode-2"):
        bring_up(deployment, {}, tunes=False)


def test_a_silent_rank_among_serving_ones_is_noticed(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    fleet.silent.add("decode-1/0")
    begun = deployment.clock.now()
    with pytest.raises(NotReady) as caught:
        bring_up(deployment, {}, tunes=False)
    assert caught.value.where == "decode-1/0"
    assert "although the others of its group serve" in caught.value.what
    assert deployment.clock.now() - begun < fleet.load_s + 10


def test_a_rank_whose_log_claims_to_serve_elsewhere_is_noticed(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment("h200-tp8", catalog)
    fleet.silent.add("unified-0/0")
    fleet.unit("unified-0/0").log = ["INFO: Application startup complete."]
    with pytest.raises(NotReady, match="its own log says that it serves"):
        bring_up(deployment, {}, tunes=False)


def test_a_rank_that_answers_with_errors_is_not_waited_for(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    fleet.answer_with["decode-2/3"] = {
        "status": 500,
        "body": {"error": {"message": "NIXL handshake failed"}},
    }
    begun = deployment.clock.now()
    with pytest.raises(NotReady, match="HTTP 500: NIXL handshake failed") as caught:
        bring_up(deployment, {}, tunes=False)
    assert caught.value.where == "decode-2/3"
    assert "`fab down --stack gb200-2p1d`, then `fab up --stack gb200-2p1d`" in caught.value.fix
    assert deployment.clock.now() - begun < fleet.load_s + 10


def test_wrong_answers_beside_a_silent_neighbour_are_not_believed_at_once(catalog: Catalog) -> None:
    """Two engines share a port: which of them answered a request is chance, which is wrong its log tells."""
    deployment, fleet, _ = make_deployment(STACK, catalog)
    fleet.silent.add("decode-1/1")
    fleet.unit("decode-1/1").log = ["INFO: Application startup complete."]
    fleet.answer_with["decode-1/0"] = {"status": 500, "body": {"error": {"message": "not mine"}}}
    with pytest.raises(NotReady, match="its own log says that it serves") as caught:
        bring_up(deployment, {}, tunes=False)
    assert caught.value.where == "decode-1/1"


def test_a_rank_without_a_rising_counter_is_not_proven(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment("h200-tp8", catalog)
    fleet.counts_tokens = False
    with pytest.raises(NotReady, match="counter of generated tokens stayed at 0"):
        bring_up(deployment, {}, tunes=False)


def test_what_is_not_ready_in_time_is_named(catalog: Catalog) -> None:
    deployment, fleet, said = make_deployment(STACK, catalog)
    fleet.load_s = 1000.0
    with pytest.raises(NotReady) as caught:
        bring_up(deployment, {}, tunes=False)
    assert "not ready within 60 s" in caught.value.what.lower()
    assert "prefill-0/0" in caught.value.where
    assert "--timeout" in caught.value.fix
    waits = [line for line in said if "waiting for prefill-0/0" in line]
    assert waits
    assert "of 1 min" in waits[0]


def test_a_start_that_systemd_has_wait_is_awaited_and_named(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment("h200-tp8", catalog)

    def queue(unit: FakeUnit) -> None:
        unit.active_state, unit.job = "inactive", 17

    fleet.on_start["unified-0/0"] = queue
    with pytest.raises(NotReady) as caught:
        bring_up(deployment, {}, tunes=False)
    assert "systemd on unified-0 starts something else first" in caught.value.what


def test_a_router_that_ends_is_named_with_its_reason(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    fleet.end(
        "router/0", ["moe-infra: vllm-router is not in /opt/moe-infra/routers/vllm-router-0.1.17"]
    )
    with pytest.raises(NotReady, match="vllm-router is not in /opt") as caught:
        bring_up(deployment, {}, tunes=False)
    assert caught.value.where == "router/0"
    assert "`fab up --stack gb200-2p1d` starts it anew" in caught.value.fix


@pytest.mark.parametrize(
    ("restarts", "sub_state", "result", "is_given_up"),
    [
        (0, "running", "success", False),
        (0, "auto-restart", "exit-code", True),
        (0, "auto-restart", "signal", False),  # its watcher ends a router that hangs
        (1, "running", "success", False),
        (1, "auto-restart", "signal", True),
        (2, "running", "success", True),
    ],
)
def test_a_router_that_was_killed_once_is_waited_for(
    restarts: int, sub_state: str, result: str, *, is_given_up: bool
) -> None:
    row = {"unit": "u", "n_restarts": restarts, "sub_state": sub_state, "result": result}
    report = {"units": [{**row, "load_state": "loaded", "active_state": "activating"}]}
    state = read_units("host-0", report, {"u": "router/0"})["router/0"]
    assert ends_again_and_again(state) is is_given_up


def test_a_router_that_passes_nothing_on_is_given_up(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    fleet.answer_with["router/0"] = {"status": 503, "body": "No available workers"}
    with pytest.raises(NotReady, match="within 20 s: HTTP 503: No available workers") as caught:
        bring_up(deployment, {}, tunes=False)
    host = fleet.unit("router/0").process.host
    restarted = f"`ssh {host} sudo systemctl restart moe-gb200-2p1d-router@0.service`"
    assert f"{restarted}, then `fab up --stack gb200-2p1d`" in caught.value.fix


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"status": 200, "body": {"choices": []}}, "it answered without a single token"),
        ({"status": 200, "body": "OK"}, "it answered without a single token"),
        (
            {
                "status": 200,
                "body": {"choices": [{"message": {"content": "4"}}]},
                "error": "the answer stopped",
            },
            "HTTP 200: the answer stopped",
        ),
    ],
)
def test_a_router_s_good_status_alone_proves_nothing(
    answer: dict[str, object], words: str, catalog: Catalog
) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    fleet.answer_with["router/0"] = answer
    with pytest.raises(NotReady, match=f"within 20 s: {words}"):
        bring_up(deployment, {}, tunes=False)


def test_an_interrupt_goes_through(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)

    def interrupt(_unit: FakeUnit) -> None:
        raise KeyboardInterrupt

    fleet.on_start["decode-0/0"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        bring_up(deployment, {}, tunes=False)


def test_tuning_is_applied_only_when_asked_for(catalog: Catalog) -> None:
    for tunes in (False, True):
        deployment, fleet, _ = make_deployment(STACK, catalog)
        bring_up(deployment, {}, tunes=tunes)
        applied = {
            item["id"]
            for _, operation, request in fleet.asked
            if operation == "state" and request["mode"] == "apply"
            for item in request["items"]  # type: ignore[attr-defined]
        }
        assert ("vm.swappiness" in applied) is tunes


def test_ports_among_the_ephemeral_ones_must_be_reserved(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment("h200-tp8", catalog, sets=("port=40000",))
    fleet.wrong_items["unified-0", RESERVED_PORTS_ID] = ("changed", "not reserved")
    with pytest.raises(PrerequisiteError, match=r"40000.*fab tune-hosts"):
        bring_up(deployment, {}, tunes=False)
    fleet.wrong_items.clear()
    assert len(bring_up(deployment, {}, tunes=False).proofs) == 1


def test_everything_that_blocks_is_told_at_once_and_nothing_is_installed(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment("a2-2n-dp4tp4", catalog)
    fleet.wrong_items["unified-1", "weights:kimi-k2.5-w4a8"] = ("blocked", "it does not exist")
    fleet.listeners["unified-0"] = [
        {"port": 8088, "address": "0.0.0.0", "pid": 7, "command": "nginx"}
    ]
    with pytest.raises(PrerequisiteError) as caught:
        bring_up(deployment, {}, tunes=False)
    first, second, last = str(caught.value).splitlines()
    assert first.startswith("unified-1: weights:kimi-k2.5-w4a8")
    assert "unified-0: port 8088, which unified-0/0 needs, is taken by process 7 (nginx)" in second
    assert "--force weights-staged --force ports-free" in last
    assert [one.where for one in caught.value.each()] == ["unified-1", "unified-0"]
    assert fleet.files == {"unified-0": {}, "unified-1": {}}


def test_a_forced_check_is_said_and_passed(catalog: Catalog) -> None:
    deployment, fleet, said = make_deployment("a2-2n-dp4tp4", catalog)
    fleet.wrong_items["unified-1", "weights:kimi-k2.5-w4a8"] = ("blocked", "it does not exist")
    forced = replace(deployment, forces=("weights-staged",))
    assert bring_up(forced, {}, tunes=False).proofs
    assert any(line.startswith("forced by --force weights-staged: unified-1") for line in said)


def test_tuning_that_follows_mends_what_is_not_reserved(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment("h200-tp8", catalog, sets=("port=40000",))
    fleet.wrong_items["unified-0", RESERVED_PORTS_ID] = ("changed", "not reserved")
    assert bring_up(deployment, {}, tunes=True).proofs


def test_a_library_that_cannot_be_preloaded_is_said_and_engines_start(catalog: Catalog) -> None:
    deployment, fleet, said = make_deployment("a2-2n-dp4tp4", catalog)
    for host in ("unified-0", "unified-1"):
        fleet.wrong_items[host, JEMALLOC_ID] = ("blocked", "it does not exist in the image")
    assert bring_up(deployment, {}, tunes=False).proofs
    assert "unified-0, unified-1: jemalloc: it does not exist in the image" in said


def test_a_host_out_of_reach_hides_not_what_blocks_a_start_on_the_others(catalog: Catalog) -> None:
    deployment, fleet, said = make_deployment(STACK, catalog)
    fleet.fails["decode-2"] = Unreachable("decode-2", "port 22 refuses connections.", "Start sshd.")
    weights = next(i.id for i in deployment.states["decode-0"].of_groups("weights"))
    fleet.wrong_items["decode-0", weights] = ("failed", "its manifest is not there")
    fleet.wrong_items["prefill-1", weights] = ("failed", "its manifest is not there")
    with pytest.raises(HostsFailed) as caught:
        bring_up(deployment, {}, tunes=False)
    assert [error.where for error in caught.value.each()] == ["decode-2", "prefill-1", "decode-0"]
    lines = str(caught.value).splitlines()
    assert lines[0] == "decode-2: port 22 refuses connections. Start sshd."
    assert lines[1].startswith("prefill-1, decode-0: weights:")
    assert lines[1].endswith("[weights-staged]")
    assert "`fab replace-host decode-2 NEW --stack gb200-2p1d`" in said[-1]
    assert not any(fleet.files.values())


@pytest.mark.parametrize(
    ("error", "leaving"),
    [(SudoRefused, ()), (HostKeyChanged, ()), (Unreachable, ("decode-2 (old)",))],
)
def test_a_machine_that_lives_or_comes_is_not_to_be_replaced(
    catalog: Catalog, error: type[HostsFailed], leaving: tuple[str, ...]
) -> None:
    deployment, fleet, said = make_deployment(STACK, catalog)
    fleet.fails["decode-2"] = error("decode-2", "it says no.", "Mend it.")
    with pytest.raises(HostsFailed, match=r"it says no\. Mend it\."):
        bring_up(replace(deployment, leaving=leaving), {}, tunes=False)
    assert said[-1].startswith("decode-2 cannot be asked, so nothing is changed. `fab preflight ")
    assert not any("replace-host" in line for line in said)
