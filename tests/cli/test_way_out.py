"""What `fab status` names as the way out of each state that a group, a router or a host can be in."""

from __future__ import annotations

import pytest

from infra.agent.group.record import RECORDS
from infra.agent.group.rules import RUNNING, STOP, STOPPED, Limits, Member, Memory, Own, awaited
from infra.catalog.load import Catalog
from infra.launch.bring_up import bring_up
from infra.launch.observation import ProcessStatus, observe, status_document, unwatched
from infra.launch.proof.host_drift import Check, Mend
from infra.remote.failures import SudoRefused, Unreachable
from infra.tasks.verify import other_key, serving_way_out
from infra.tasks.way_out import next_words, not_watched, out_of_reach, told
from tests.launch.running_deployment import Running, make_running
from tests.launch.scripted_fleet import make_deployment

STACK, GROUP = "gb200-2p1d", "decode/0"
AGAIN = f"--stack {STACK}"
DIED = "decode-1: decode-1/2 was ended by signal 9"
LIMITS = Limits(1.0, 60.0, 5, 600.0, 10.0, 2.0, 30.0, 2.0)


@pytest.fixture
def running(catalog: Catalog) -> Running:
    return make_running(STACK, catalog)


def rows_of(running: Running) -> tuple[ProcessStatus, ...]:
    deployment, fleet = running
    return observe(fleet, list(deployment.states), STACK, timeout_s=10.0)


def told_of(running: Running, ended: str = "decode-1/2", **row: object) -> tuple[list[str], str]:
    """What is said, and what is to be typed next, while the group is so and one of its ranks has ended."""
    fleet = running[1]
    fleet.group_rows[GROUP] = row
    if ended:
        fleet.unit(ended).active_state = "failed"
    rows = rows_of(running)
    return told(rows, AGAIN), next_words(rows, (), AGAIN)


def waits(member: Own, heard: float | None) -> tuple[str, ...]:
    """What the host of rank 0 says that it waits for, in its own words."""
    memory = Memory(3, STOP, 1, 1, DIED, 0.0)
    members = [Member("decode-0", Own(STOPPED, 3, obeys=(3, STOP)), 100.0)]
    return awaited(memory, [*members, Member("decode-1", member, heard)], 100.0, LIMITS)


def test_of_what_runs_as_it_was_started_nothing_is_said(running: Running) -> None:
    rows = rows_of(running)
    assert told(rows, AGAIN) == []
    assert next_words(rows, (), AGAIN) == f"fab verify {AGAIN}"
    assert status_document(STACK, rows)["ok"] is True


def test_a_group_that_was_given_up_names_the_restart_of_it_alone(running: Running) -> None:
    (line,), after = told_of(
        running, phase="failed", why=f"given up after 5 restarts in a row; {DIED}"
    )
    assert line.startswith(f"{GROUP}, epoch 1: given up after 5 restarts in a row; {DIED}. ")
    assert f"`fab logs {AGAIN} --role decode`" in line
    assert f"`fab restart {AGAIN} --role decode --replica 0`" in line
    assert after == f"fab restart {AGAIN} --role decode --replica 0"


@pytest.mark.parametrize(
    ("pause", "when"), [(4.0, ", 4 s after its end: "), (0.0, ": "), (None, ": ")]
)
def test_a_group_between_two_starts_says_when_and_that_nothing_is_to_be_typed(
    running: Running, pause: float | None, when: str
) -> None:
    (line,), after = told_of(running, phase="stop", why=DIED, restarts=3, pause_s=pause)
    assert (
        line
        == f"{GROUP}, epoch 1: restarts ({DIED}). It starts again by itself{when}nothing to type."
    )
    assert after == f"fab status {AGAIN} --watch"


@pytest.mark.parametrize("heard", [20.0, None])
def test_a_host_that_is_silent_is_waited_for_or_replaced(
    running: Running, heard: float | None
) -> None:
    reasons = list(waits(Own(STOPPED, 3, obeys=(3, STOP)), heard))
    (line,), _ = told_of(running, phase="stop", why=DIED, waits_for=reasons)
    assert "as soon as decode-1 can be heard: nothing to type." in line
    assert f"`fab replace-host decode-1 NEW {AGAIN}`" in line


def test_a_port_that_is_held_is_asked_about(running: Running) -> None:
    reasons = waits(Own("clearing", 3, fault="port 7101, 7102 is held"), 100.0)
    (line,), _ = told_of(running, phase="stop", why=DIED, waits_for=list(reasons))
    assert "`ssh decode-1 sudo ss -Hltnp 'sport = :7101'`" in line


@pytest.mark.parametrize("before", ["", "decode-1/2 was ended by signal 9; "])
@pytest.mark.parametrize(
    ("why", "todo", "look"),
    [
        ("No space left on device", "Make room on the disk of", "df -h"),
        ("Disk quota exceeded", "Make room on the disk of", "df -h"),
        ("Read-only file system", "mounted for writing again", "findmnt -T"),
        ("Input/output error", "Mend the disk of", "findmnt -T"),
        ("the disk does not answer", "Mend the disk of", "findmnt -T"),
    ],
)
def test_a_disk_that_takes_no_record_is_to_be_mended_before_anything_starts(
    running: Running, before: str, why: str, todo: str, look: str
) -> None:
    fault = f"{before}{RECORDS} cannot be written: {why}"
    reasons = waits(Own("clearing", 3, fault=fault), 100.0)
    (line,), after = told_of(running, phase="stop", why=DIED, waits_for=list(reasons), pause_s=4.0)
    assert f"it waits for decode-1: {fault}. The group does not start until" in line
    assert todo in line
    assert f"`ssh decode-1 {look} /var/lib/moe-infra/groups`" in line
    assert line.endswith("Then it starts again by itself.")
    assert "nothing to type" not in line
    assert after == f"fab status {AGAIN} --watch"


def test_a_full_disk_is_told_beside_a_host_that_is_silent(running: Running) -> None:
    full = "decode-1: /var/lib/moe-infra/groups cannot be written: No space left on device"
    (line,), _ = told_of(running, phase="stop", why=DIED, waits_for=["decode-0 is silent", full])
    assert "decode-0 is silent" in line
    assert "Make room on the disk of /var/lib/moe-infra/groups on decode-1" in line
    assert "nothing to type" not in line


@pytest.mark.parametrize("before", ["", "decode-1/2 was ended by signal 9; "])
def test_a_process_that_has_outlived_its_unit_is_looked_at(running: Running, before: str) -> None:
    fault = f"{before}process 4711 (python3) of decode-1/2 has outlived its unit, and 2 more"
    (line,), _ = told_of(
        running,
        phase="stop",
        why=DIED,
        waits_for=list(waits(Own("clearing", 3, fault=fault), 100.0)),
    )
    assert f"it waits for decode-1: {fault}. It starts again by itself as soon as" in line
    assert "`ssh decode-1 sudo cat /proc/4711/stack`" in line
    assert "`ssh decode-1 sudo kill -9 4711`" in line


@pytest.mark.parametrize("before", ["", "decode-1/2 was ended by signal 9; "])
def test_a_runtime_that_does_not_tell_what_is_left_is_asked(running: Running, before: str) -> None:
    said = "docker did not answer within 5 s and was killed"
    fault = f"{before}{said}: what is left of docker's containers is not known"
    reasons = list(waits(Own("clearing", 3, fault=fault), 100.0))
    (line,), _ = told_of(running, phase="stop", why=DIED, waits_for=reasons)
    assert f"it waits for decode-1: {fault}. It starts again by itself as soon as docker" in line
    assert "`ssh decode-1 sudo docker ps`" in line


def test_what_is_waited_for_in_passing_needs_nobody(running: Running) -> None:
    reasons = waits(Own(RUNNING, 3), 100.0)
    (line,), _ = told_of(running, phase="stop", why=DIED, waits_for=list(reasons), pause_s=1.0)
    assert line.endswith("It starts again by itself, 1 s after its end: nothing to type.")


@pytest.mark.parametrize("phase", ["run", "stop", "failed"])
def test_a_masked_unit_is_to_be_unmasked(running: Running, phase: str) -> None:
    unit = f"moe-{STACK}-engine@2.service"
    why = f"decode-1: systemctl start: Failed to start {unit}: Unit {unit} is masked."
    if phase == "failed":
        why = f"given up after 5 restarts in a row; {why}"
    running[1].unit("decode-1/2").load_state = "masked"
    (line,), _ = told_of(running, phase=phase, why=why)
    unmasks = f"sudo systemctl unmask {unit}; sudo systemctl unmask --runtime {unit}"
    assert f"`ssh decode-1 '{unmasks}'`" in line
    assert "nothing to type" not in line
    assert (f"`fab restart {AGAIN} --role decode --replica 0`" in line) is (phase == "failed")


def test_ranks_that_load_again_need_nobody(running: Running) -> None:
    running[1].silent.add("decode-1/2")
    (line,), after = told_of(running, ended="", phase="run", why=DIED, restarts=1, epoch=2)
    assert line.startswith(
        f"{GROUP}, epoch 2: restarted once; the last time: {DIED}. Its ranks load;"
    )
    assert line.endswith("nothing to type.")
    assert after == f"fab logs {AGAIN} --rank decode-1/2"


def test_ranks_that_nobody_was_handed_are_not_up_although_they_serve(running: Running) -> None:
    deployment, fleet = running
    fleet.watched.clear()
    rows = rows_of(running)
    assert all(row.ready for row in rows)
    assert status_document(STACK, rows)["ok"] is False
    hosts = [host for host in deployment.states if host in deployment.units("engine")]
    (line,) = told(rows, AGAIN)
    assert line.startswith(f"{', '.join(hosts)}: Nobody watches the ranks there")
    assert f"`fab up {AGAIN}`" in line
    assert [failure.host for failure in not_watched(rows, AGAIN)] == hosts
    assert next_words(rows, (), AGAIN) == f"fab up {AGAIN}"


def test_a_group_whose_hosts_have_not_met_is_not_up(running: Running) -> None:
    (line,), after = told_of(running, ended="", phase="adopt", unmet=["decode-1"])
    assert "not watched yet: decode-1 must be heard of. Until then nobody would start it" in line
    assert after == f"fab up {AGAIN}"
    assert {row.group.group for row in unwatched(rows_of(running)) if row.group} == {GROUP}


def test_a_group_that_ended_where_nobody_watches_is_not_said_to_start_by_itself(
    running: Running,
) -> None:
    fleet = running[1]
    fleet.watched.remove("decode-1")
    lines, after = told_of(running, phase="stop", why=DIED)
    assert "by itself" not in "".join(lines)
    assert lines[-1].startswith("decode-1: Nobody watches the ranks there")
    assert after == f"fab up {AGAIN}"


def test_what_was_not_installed_to_the_end_is_gone_on_with(running: Running) -> None:
    fleet = running[1]
    fleet.unit("decode-1/2").active_state = "failed"
    assert next_words(rows_of(running), {"decode-1": "1f"}, AGAIN) == f"fab up {AGAIN}"


def groups_of(running: Running) -> dict[str, str]:
    return {process.id: process.group for process in running[0].plan.processes}


def failing(process: str, mend: Mend = "start") -> Check:
    return Check(process=process, check="chat", ok=False, detail="", is_drift=False, mend=mend)


@pytest.mark.parametrize(
    ("wrong", "steps"),
    [
        (["decode-1/2"], [f"fab restart {AGAIN} --role decode --replica 0"]),
        # asked through each other: a prefill rank that hangs has its partners hang
        (
            ["decode-1/2", "prefill-1/0", "prefill-1/1"],
            [
                f"fab restart {AGAIN} --role decode --replica 0",
                f"fab restart {AGAIN} --role prefill --replica 1",
            ],
        ),
        (["prefill-0/0", "decode-0/0", "prefill-1/0"], [f"fab restart {AGAIN}"]),
    ],
)
def test_ranks_that_run_and_give_no_answer_are_restarted_when_their_evidence_is_kept(
    running: Running, wrong: list[str], steps: list[str]
) -> None:
    """`fab status` shows nothing of them: it is not what is typed next."""
    found = [failing(name, "restart") for name in wrong]
    words = ", then ".join([f"fab bundle {AGAIN}", *steps])
    groups = groups_of(running)
    assert serving_way_out(found, groups, AGAIN) == words
    assert serving_way_out([*found, failing("router/0")], groups, AGAIN) == words


def test_engines_with_another_key_than_the_stack_s_get_the_stack_s() -> None:
    """Every answer is a 401 then, and `fab status` shows nothing wrong."""

    def differs(file: str) -> Check:
        return Check(process="decode-0", check=f"file:{file}", ok=False, detail="", is_drift=True)

    refused = [failing("decode-1/2"), differs("/etc/moe-infra/mine/credentials/api_key")]
    words = f"fab diff {AGAIN}, then fab up {AGAIN} --replace"
    assert other_key(refused, "mine", AGAIN) == words
    assert other_key([failing("decode-1/2"), differs("/etc/other")], "mine", AGAIN) == ""


@pytest.mark.parametrize("others", [[], [failing("decode-1/2", "restart")]])
@pytest.mark.parametrize("ended", ["router/0", "prefill-0/1"])
def test_what_has_ended_or_answers_wrongly_is_told_by_status(
    running: Running, ended: str, others: list[Check]
) -> None:
    words = serving_way_out([failing(ended), *others], groups_of(running), AGAIN)
    only_ranks_hang = bool(others) and ended == "router/0"
    assert (words == f"fab status {AGAIN}") is not only_ranks_hang


def test_a_router_that_does_not_run_or_answer_names_its_way_out(running: Running) -> None:
    deployment, fleet = running
    router = fleet.unit("router/0")
    router.active_state = "inactive"
    assert told(rows_of(running), AGAIN) == [
        f"router/0: it does not run. `fab up {AGAIN}` starts it."
    ]
    assert next_words(rows_of(running), (), AGAIN) == f"fab up {AGAIN}"
    router.active_state = "active"
    fleet.silent.add("router/0")
    is_watched = router.process.host in deployment.units("engine")
    (line,) = told(rows_of(running), AGAIN)
    assert line.startswith("router/0: it does not answer. ")
    assert line.endswith(
        "nothing to type."
        if is_watched
        else f"`ssh {router.process.host} sudo systemctl restart moe-{STACK}-router@0`."
    )


def test_a_host_that_may_be_dead_can_be_replaced_and_one_that_says_no_needs_not(
    running: Running,
) -> None:
    fleet = running[1]
    fleet.fails["decode-1"] = Unreachable("decode-1", "did not answer within 10 s.", "Look at it.")
    fleet.fails["decode-2"] = SudoRefused("decode-2", "sudo wants a password.", "Give it.")
    rows = rows_of(running)
    lines = {row.host: out_of_reach(row, AGAIN) for row in rows if row.state == "unknown"}
    assert lines["decode-1"].startswith(
        "Out of reach: decode-1: did not answer within 10 s. Look at it."
    )
    assert f"`fab replace-host decode-1 NEW {AGAIN}`" in lines["decode-1"]
    assert "replace-host" not in lines["decode-2"]
    assert next_words(rows, (), AGAIN) == f"fab status {AGAIN}"


def test_ranks_whose_start_systemd_has_wait_say_where_it_is_told_what_for(running: Running) -> None:
    unit = running[1].unit("decode-1/2")
    unit.active_state, unit.job = "inactive", 17
    (line,), after = told_of(running, ended="", phase="run", why=DIED, restarts=1, epoch=2)
    assert after == f"fab status {AGAIN} --watch"
    assert line.endswith(
        "On decode-1 systemd starts something else first, then its ranks by itself: "
        "`ssh decode-1 systemctl list-jobs` says what."
    )
    (row,) = [row for row in rows_of(running) if row.id == "decode-1/2"]
    assert (row.state, row.ready) == ("waiting", False)


@pytest.mark.parametrize("watched", [True, False])
def test_a_router_whose_start_systemd_has_wait_says_so(running: Running, *, watched: bool) -> None:
    deployment, fleet = running
    host = deployment.plan.processes[-1].host
    unit = fleet.unit("router/0")
    unit.active_state, unit.job = "inactive", 17
    if not watched:
        fleet.watched.remove(host)
    assert told(rows_of(running), AGAIN)[0] == (
        f"router/0: On {host} systemd starts something else first, then it by itself: "
        f"`ssh {host} systemctl list-jobs` says what."
    )


@pytest.mark.parametrize("state", ["failed", "activating"])
def test_an_edge_whose_program_is_not_there_says_what_to_install(
    catalog: Catalog, state: str
) -> None:
    edge = "edge={name: haproxy, tls: none, keys: {file: clients.keys}}"
    deployment, fleet, _ = make_deployment(STACK, catalog, sets=(edge,))
    bring_up(deployment, {}, tunes=False)
    for name in ("edge/0", "router/0"):
        fleet.unit(name).active_state, fleet.unit(name).exit_status = state, 127
    router, edge_line = told(rows_of((deployment, fleet)), AGAIN)
    host = deployment.endpoints.edge.host if deployment.endpoints.edge else ""
    assert edge_line.startswith(
        f"edge/0: haproxy is not on {host}. Install it: `sudo apt-get install haproxy` there"
    )
    assert f"then `fab up {AGAIN}` starts it" in edge_line
    assert "systemctl restart" not in edge_line + router
    assert router.startswith(
        f"router/0: its program is not on {host}. `fab logs {AGAIN} --role router`"
    )
