"""One task of another tool on one host: what it asks the agent, and when it fails, changes or waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.errors import PrerequisiteError
from infra.launch.fleet import Report, Request
from infra.launch.lease import owner_of
from infra.launch.rendered.host import RenderedHost
from infra.launch.rendered.work import OPERATIONS, HostAtWork, Wish
from infra.launch.secret import Secret
from infra.launch.supervision import new_watch_key
from infra.plan.compile import compile_file
from infra.remote.failures import LeaseHeld
from infra.render.host_paths import release_path
from infra.render.host_state import host_state
from infra.render.wanted_tuning import Tuning
from infra.spec.load import PROJECT
from tests.launch.scripted_fleet import FakeClock, ScriptedFleet

HOST = "decode-0"
WISH = Wish(
    operation="look",
    mode="apply",
    allow=(),
    kind="engine",
    lease=None,
    since=None,
    ready_s=1800.0,
    checks=False,
    diff=False,
)


@dataclass(slots=True)
class Bench:
    """Work on one scripted host of gb200-2p1d: four ranks of the decode role."""

    host: RenderedHost
    hosts: ScriptedFleet
    clock: FakeClock
    said: list[str] = field(default_factory=list)

    def play(self, operation: str, **wishes: Any) -> dict[str, Any]:
        """The result of a task."""
        work = HostAtWork(
            host=self.host,
            ask=self.ask,
            secrets=lambda: {"api_key": Secret("sesame")},
            watch_key=lambda: Secret("ab" * 32),
            say=self.said.append,
            clock=self.clock,
        )
        values = {name: getattr(WISH, name) for name in Wish.__slots__}
        return OPERATIONS[operation](work, Wish(**{**values, "operation": operation, **wishes}))

    def ask(self, request: Request, *, timeout_s: float) -> Report:
        answer = self.hosts.ask({HOST: request}, timeout_s=timeout_s)[HOST]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def asked(self, operation: str) -> list[Mapping[str, Any]]:
        """Requests of an operation so far."""
        return [request for _, name, request in self.hosts.asked if name == operation]


@pytest.fixture
def bench(catalog: Catalog) -> Bench:
    return bench_of(catalog)


def bench_of(catalog: Catalog, *sets: str) -> Bench:
    plan = compile_file("gb200-2p1d", catalog=catalog, sets=sets).plan
    tuning = Tuning(profile=catalog.tuning(plan.tuning))
    state = host_state(plan, HOST, tuning=tuning, catalog=catalog)
    clock = FakeClock()
    return Bench(
        RenderedHost(plan=plan, state=state, inventory_names=()), ScriptedFleet(plan, clock), clock
    )


def test_tuning_sends_what_tune_hosts_sends(bench: Bench) -> None:
    result = bench.play("tune", diff=True)
    (request,) = bench.asked("state")
    assert (request["mode"], request["diff"], request["groups"]) == ("apply", True, ["tuning"])
    tuning = [item.as_document() for item in bench.host.state.of_groups("tuning")]
    assert request["items"] == tuning
    assert result["changed"] is False


def test_check_mode_asks_for_a_check_and_a_rollback_is_not_told_beforehand(bench: Bench) -> None:
    bench.play("tune", checks=True)
    (request,) = bench.asked("state")
    assert request["mode"] == "check"
    assert bench.play("tune", checks=True, mode="rollback")["skipped"] is True
    bench.play("tune", mode="rollback")
    assert [request["mode"] for request in bench.asked("state")] == ["check", "rollback"]


def test_a_look_changes_nothing_and_tells_which_engines_run(bench: Bench) -> None:
    bench.hosts.unit("decode-0/1").active_state = "active"
    with pytest.raises(PrerequisiteError, match="Another release of it runs"):
        bench.play("look")
    bench.hosts.unit("decode-0/1").active_state = "inactive"
    result = bench.play("look")
    assert result["running"] == []
    assert result["ended"] == ["decode-0/0", "decode-0/1", "decode-0/2", "decode-0/3"]
    assert {request["mode"] for request in bench.asked("state")} == {"check"}
    assert not any(bench.hosts.files.values())


@pytest.mark.parametrize("operation", ["look", "install"])
def test_a_host_is_not_served_open_that_its_plan_closes(catalog: Catalog, operation: str) -> None:
    bench = bench_of(catalog, "firewall=plan")
    table = "firewall:moe-gb200-2p1d"
    bench.hosts.wrong_items[HOST, table] = ("changed", "only who dials by the plan is let in")
    with pytest.raises(PrerequisiteError, match=r"Run `fab up --stack gb200-2p1d` once"):
        bench.play(operation)
    assert not any(bench.hosts.files.values())
    bench.hosts.wrong_items.clear()  # `fab up` has closed it
    bench.play(operation)


def test_a_look_refuses_what_up_refuses(bench: Bench) -> None:
    weights = next(item.id for item in bench.host.state.of_groups("weights"))
    bench.hosts.wrong_items[HOST, weights] = ("failed", "2 shards are missing")
    with pytest.raises(PrerequisiteError, match="2 shards are missing"):
        bench.play("look")
    bench.hosts.wrong_items.clear()
    bench.hosts.listeners[HOST] = [{"port": 7100, "pid": 7, "command": "nginx"}]
    with pytest.raises(PrerequisiteError, match=r"port 7100.*nginx"):
        bench.play("look")


def test_a_host_is_installed_as_up_does_it_and_a_second_time_nothing_changes(bench: Bench) -> None:
    assert bench.play("install", checks=True)["changed"] is True
    assert not bench.hosts.files[HOST]
    assert bench.play("install")["changed"] is True
    apply = bench.asked("state")[-1]
    assert (apply["mode"], apply["prunes"]) == ("apply", True)
    assert apply["keep"]["hash"] == bench.host.plan.hash
    assert release_path(bench.host.plan.stack) in bench.hosts.files[HOST]
    again = bench.play("install")
    assert again["changed"] is False
    assert "sesame" not in str(again)
    bench.hosts.unit("decode-0/0").active_state = "active"
    assert bench.play("look")["running"] == ["decode-0/0"]


def test_units_that_run_are_left_and_the_others_are_started_at_once(bench: Bench) -> None:
    bench.hosts.unit("decode-0/0").active_state = "active"
    assert bench.play("start", checks=True)["changed"] is True
    result = bench.play("start")
    starts = [request for request in bench.asked("units") if request["action"] == "start"]
    assert [len(request["units"]) for request in starts] == [3]
    assert result["started"] == starts[0]["units"]
    again = bench.play("start")
    assert (again["changed"], again["started"]) == (False, [])


def test_a_host_without_units_of_a_kind_has_nothing_to_start_or_to_await(bench: Bench) -> None:
    assert bench.play("start", kind="router")["changed"] is False
    assert bench.play("ready", kind="router")["ready"] is True


def started(bench: Bench) -> float:
    """When the host's engines were started."""
    bench.play("install")
    return float(bench.play("start")["at"])


def test_what_status_calls_ready_is_ready(bench: Bench) -> None:
    since = started(bench)
    assert bench.play("ready", since=since) == {"ready": True, "silent": []}
    assert bench.clock.at - since == pytest.approx(bench.hosts.load_s)


@pytest.mark.parametrize(("waited_s", "round_s"), [(0, 8), (96, 24), (1000, 60)])
def test_rounds_of_waiting_grow_and_name_who_is_awaited(
    bench: Bench, waited_s: float, round_s: float
) -> None:
    since = started(bench) - waited_s
    bench.hosts.silent.add("decode-0/2")
    result = bench.play("ready", since=since)
    assert result == {"ready": False, "silent": ["decode-0/2"]}
    (line,) = bench.said[-1:]
    assert line.startswith("awaiting decode-0/2, ")
    assert line.endswith(" s of 1800")
    assert bench.clock.at - since == pytest.approx(waited_s + round_s, abs=1)


def test_a_wait_over_its_limit_fails_with_who_is_awaited(bench: Bench) -> None:
    since = started(bench) - 1801
    bench.hosts.silent.add("decode-0/2")
    result = bench.play("ready", since=since)
    assert result["failed"] is True
    assert result["msg"].startswith("not ready within 1800 s: ")
    assert "decode-0/2" in result["msg"]


def test_a_start_that_systemd_has_wait_is_awaited(bench: Bench) -> None:
    since = started(bench)
    unit = bench.hosts.unit("decode-0/1")
    unit.active_state, unit.job = "inactive", 17
    assert bench.play("ready", since=since) == {"ready": False, "silent": ["decode-0/1"]}


def test_a_process_that_ended_fails_at_once_with_the_line_that_says_why(bench: Bench) -> None:
    bench.hosts.end("decode-0/1", ["loading", "ValueError: no such model"])
    since = started(bench)
    result = bench.play("ready", since=since)
    assert result["failed"] is True
    assert result["msg"] == "decode-0/1: it ended with exit code 1: ValueError: no such model"
    assert bench.clock.at == since


def test_every_task_of_a_run_brings_the_same_lease_and_the_last_gives_it_back(bench: Bench) -> None:
    released: list[Mapping[str, Any]] = []
    bench.hosts._operations = lambda: {  # type: ignore[method-assign]
        **ScriptedFleet._operations(bench.hosts),
        "lease": lambda _, request: released.append(request["lease"]) or {},  # type: ignore[func-returns-value, arg-type]
    }
    bench.play("tune", lease="launch")
    bench.play("tune", lease="launch")
    bench.play("tune", lease="launch", checks=True)
    first, second, checked = bench.asked("state")
    assert first["lease"] == second["lease"]
    assert (first["lease"]["stack"], first["lease"]["command"]) == ("gb200-2p1d", "launch")
    assert "lease" not in checked
    bench.play("release", lease="launch")
    assert released == [{**first["lease"], "release": True}]


def test_the_lease_of_a_dead_process_of_this_machine_is_taken_and_a_living_ones_is_not(
    bench: Bench,
) -> None:
    dead = {"token": "t", "machine": owner_of(1).machine, "process": 2**22 + 1, "started": "1"}
    takes: list[object] = []

    def held_by(holder: Mapping[str, object]) -> Callable[..., Report]:
        def ask(request: Request, *, timeout_s: float) -> Report:
            lease = request["lease"]
            assert isinstance(lease, Mapping)
            takes.append(lease.get("takes"))
            if takes[-1] != "t":
                raise LeaseHeld(HOST, "ann holds stack x.", holder)
            return {"items": []}

        return ask

    work = HostAtWork(
        host=bench.host,
        ask=held_by(dead),
        secrets=dict,
        watch_key=new_watch_key,
        say=print,
        clock=bench.clock,
    )
    wish = Wish(**{**{name: getattr(WISH, name) for name in Wish.__slots__}, "lease": "launch"})
    OPERATIONS["tune"](work, wish)
    assert takes == [None, "t"]
    alive = HostAtWork(
        host=bench.host,
        ask=held_by({**dead, "machine": "another"}),
        secrets=dict,
        watch_key=new_watch_key,
        say=print,
        clock=bench.clock,
    )
    with pytest.raises(LeaseHeld, match="ann holds stack x"):
        OPERATIONS["tune"](alive, wish)


def test_a_hand_over_brings_the_key_of_the_run_and_a_look_tells_hosts_apart(bench: Bench) -> None:
    bench.play("install")
    bench.play("watch")
    (armed,) = [one for one in bench.asked("groups") if one["action"] == "arm"]
    assert armed["key"] == "ab" * 32
    assert bench.play("look")["watched"] == "ab" * 32  # of a real host: what marks it


def test_every_operation_is_described_for_operators() -> None:
    described = (PROJECT / "ansible" / "library" / "moe_agent.py").read_text(encoding="utf-8")
    assert all(f"- V({name})" in described for name in OPERATIONS)
