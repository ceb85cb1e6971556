"""A router is told to leave a group out before it ends, and to take it back: what it is told, and what remains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from infra.catalog.load import Catalog
from infra.engines.router_members import Member, joining_steps, leaving_steps, read_listing
from infra.errors import NotReady
from infra.launch.bring_up import bring_up
from infra.launch.deployment import Deployment
from infra.launch.draining import DRAIN_S, Draining, draining
from infra.launch.fleet import Clock
from infra.launch.handover import look_at
from infra.launch.proof.verification import check_members
from tests.launch.scripted_fleet import ScriptedFleet, make_deployment

REPLICAS = "tests/stacks/vllm-shared-replicas.yaml"
FIRST, SECOND = "unified/0", "unified/1"
ASCEND = "a3-2p1d"


def answered(status: int, body: object) -> Mapping[str, object]:
    return {"status": status, "body": body}


@dataclass
class VllmRouter:
    """vllm-router 0.1.17 outside prefill/decode mode, as it answered on 2026-11-22."""

    urls: list[str]
    asked: list[str] = field(default_factory=list)

    def __call__(self, step: Mapping[str, object]) -> Mapping[str, object]:
        url = urlsplit(str(step["url"]))
        told = parse_qs(url.query).get("url", [""])[0]
        self.asked.append(url.path.lstrip("/"))
        if url.path == "/list_workers":
            return answered(200, {"urls": list(self.urls)})
        if url.path == "/remove_worker":
            self.urls = [one for one in self.urls if one != told]
            return answered(200, f"Successfully removed worker: {told}")
        if told in self.urls:
            return answered(400, f"Worker {told} already exists")
        self.urls.append(told)
        return answered(200, f"Successfully added worker: {told}")


@dataclass
class Proxy:
    """vllm-ascend's proxy, v0.22.1rc1: marks while requests run, and takes nothing back before it has been idle."""

    members: dict[str, list[str]]
    idle_at: int = 0
    marked: set[str] = field(default_factory=set)
    looks: int = 0

    def __call__(self, step: Mapping[str, object]) -> Mapping[str, object]:
        body = step["body"]
        assert isinstance(body, Mapping)
        path, role, names = urlsplit(str(step["url"])).path, str(body["type"]), body["instances"]
        self.looks += 1
        is_idle = self.looks > self.idle_at
        if is_idle:
            for pool in self.members.values():
                pool[:] = [name for name in pool if name not in self.marked]
            self.marked.clear()
        if path == "/instances/remove":
            self.marked |= set(names)
        else:
            self.members[role] += [name for name in names if name not in self.members[role]]
        current = {f"current_{pool}_instances": list(n) for pool, n in self.members.items()}
        return answered(200, {"message": "", **current})


def up(stack: str, catalog: Catalog) -> tuple[Deployment, ScriptedFleet, list[str], Draining]:
    """A deployment that serves."""
    deployment, fleet, said = make_deployment(stack, catalog)
    bring_up(deployment, {}, tunes=False)
    told = draining(deployment)
    assert told is not None
    return deployment, fleet, said, told


def urls_of(deployment: Deployment, role: str) -> list[str]:
    return list(dict.fromkeys(rank.url for rank in deployment.endpoints.of_role(role)))


def test_a_replica_leaves_the_router_and_comes_back(catalog: Catalog) -> None:
    deployment, fleet, _, told = up(REPLICAS, catalog)
    urls = urls_of(deployment, "unified")
    router = fleet.members = VllmRouter(list(urls))
    base = urls[0].removeprefix("http://")
    fleet.open_requests[base] = [3, 0, 1]
    begun = deployment.clock.now()
    assert told.leave((FIRST,), ()) == (FIRST,)
    assert router.urls == urls[1:]
    assert not fleet.open_requests[base]  # it has been looked at until nothing ran twice in a row
    assert deployment.clock.now() - begun >= 3.0
    assert look_at(deployment).left_out == (FIRST,)
    told.join((FIRST,), (FIRST,))
    assert set(router.urls) == set(urls)
    assert fleet.left_out == []


class InterruptedClock:
    """The first wait is interrupted, as by Ctrl-C."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.is_interrupted = False

    def now(self) -> float:
        return self.clock.now()

    def sleep(self, seconds: float) -> None:
        if not self.is_interrupted:
            self.is_interrupted = True
            raise KeyboardInterrupt
        self.clock.sleep(seconds)


def test_interrupted_while_it_drains_the_router_gets_back_what_it_had(catalog: Catalog) -> None:
    deployment, fleet, said, _ = up(REPLICAS, catalog)
    urls = urls_of(deployment, "unified")
    router = fleet.members = VllmRouter(list(urls))
    told = draining(replace(deployment, clock=InterruptedClock(deployment.clock)))
    assert told is not None
    with pytest.raises(KeyboardInterrupt):
        told.leave((FIRST,), ())
    assert set(router.urls) == set(urls)
    assert fleet.left_out == []
    assert f"the router sends requests to {FIRST} again" in said


def test_interrupted_before_a_router_that_takes_back_when_idle_nobody_waits_for_it(
    catalog: Catalog,
) -> None:
    deployment, fleet, _, _ = up(ASCEND, catalog)
    fleet.members = ascend_proxy(deployment, 1000)
    told = draining(replace(deployment, clock=InterruptedClock(deployment.clock)))
    assert told is not None
    with pytest.raises(KeyboardInterrupt):
        told.leave(("prefill/0",), ())
    assert look_at(deployment).left_out == ("prefill/0",)  # the next run knows


def test_requests_that_never_end_are_not_waited_for(catalog: Catalog) -> None:
    deployment, fleet, said, told = up(REPLICAS, catalog)
    fleet.members = VllmRouter(urls_of(deployment, "unified"))
    fleet.open_requests[urls_of(deployment, "unified")[0].removeprefix("http://")] = [7] * 1000
    begun = deployment.clock.now()
    told.leave((FIRST,), ())
    assert DRAIN_S < deployment.clock.now() - begun < DRAIN_S + 5
    assert any("7 requests still run on unified/0" in line for line in said)


@pytest.mark.parametrize(
    ("groups", "left_out"),
    [((FIRST, SECOND), ()), ((FIRST,), (SECOND,))],
    ids=["both are restarted", "the other one is left out already"],
)
def test_the_last_replica_of_a_role_is_never_left_out(
    groups: tuple[str, ...], left_out: tuple[str, ...], catalog: Catalog
) -> None:
    deployment, fleet, _, told = up(REPLICAS, catalog)
    router = fleet.members = VllmRouter(urls_of(deployment, "unified"))
    assert told.leave(groups, left_out) == ()
    assert not router.asked


def test_it_is_remembered_before_the_router_is_told(catalog: Catalog) -> None:
    _, fleet, _, told = up(REPLICAS, catalog)
    fleet.members = lambda _step: answered(500, "out of order")
    with pytest.raises(NotReady, match=r"does not answer .*: HTTP 500: out of order"):
        told.leave((FIRST,), ())
    assert fleet.left_out == [FIRST]


def test_up_has_taken_back_what_a_killed_restart_left_out(catalog: Catalog) -> None:
    deployment, fleet, said, told = up(REPLICAS, catalog)
    urls = urls_of(deployment, "unified")
    router = fleet.members = VllmRouter(list(urls))
    told.leave((FIRST,), ())  # and then it was killed
    state = look_at(deployment).groups[FIRST]
    assert state.left_out
    assert "the router leaves it out" in state.words
    assert [
        check.detail.partition(" since")[0]
        for check in check_members(deployment, look_at(deployment))
    ] == ["it leaves out unified/0"]
    served = bring_up(deployment, {}, tunes=False)
    assert set(router.urls) == set(urls)
    assert not served.groups[FIRST].words
    assert not check_members(deployment, look_at(deployment))
    assert any("sends requests to unified/0 again" in line for line in said)


def test_a_router_that_cannot_take_back_is_told_nothing(catalog: Catalog) -> None:
    _, fleet, said, told = up("gb200-2p1d", catalog)
    assert told.leave(("prefill/0",), ()) == ()
    assert fleet.left_out == []
    assert any("takes no endpoint back in prefill/decode mode" in line for line in said)


def ascend_proxy(deployment: Deployment, idle_at: int) -> Proxy:
    pools = {
        role: [url.removeprefix("http://") for url in urls_of(deployment, role)]
        for role in ("prefill", "decode")
    }
    return Proxy(pools, idle_at)


def test_the_proxy_takes_back_what_it_marked_once_it_was_idle(catalog: Catalog) -> None:
    deployment, fleet, _, told = up(ASCEND, catalog)
    proxy = fleet.members = ascend_proxy(deployment, 8)
    own = proxy.members["prefill"][:2]
    told.leave(("prefill/0",), ())
    assert proxy.marked == set(own)
    told.join(("prefill/0",), ("prefill/0",))
    assert len(proxy.members["prefill"]) == 4
    assert set(own) <= set(proxy.members["prefill"])
    assert not proxy.marked
    assert fleet.left_out == []


def test_a_proxy_that_is_never_idle_keeps_it_out_and_that_is_said(catalog: Catalog) -> None:
    deployment, fleet, _, told = up(ASCEND, catalog)
    fleet.members = ascend_proxy(deployment, 100000)
    told.leave(("prefill/0",), ())
    with pytest.raises(NotReady, match="when no request at all has run for a moment"):
        told.join(("prefill/0",), ("prefill/0",))
    assert fleet.left_out == ["prefill/0"]
    assert "leaves it out" in look_at(deployment).groups["prefill/0"].words


def test_sglangs_router_is_told_by_its_own_names() -> None:
    argv = ("python", "-m", "sglang_router.launch_router", "--pd-disaggregation")
    rows = [{"id": "baec6030", "url": "http://192.0.2.1:30000", "worker_type": "prefill"}]
    listing = read_listing(argv, {"workers": rows}, "prefill")
    here = Member(role="prefill", url="http://192.0.2.1:30000", bootstrap_port=8998)
    gone = Member(role="prefill", url="http://192.0.2.2:30000", bootstrap_port=8998)
    (leaving,) = leaving_steps(argv, "http://r:1", [here, gone], listing)
    assert (leaving["method"], leaving["url"]) == ("DELETE", "http://r:1/workers/baec6030")
    (joining,) = joining_steps(argv, "http://r:1", [here, gone], listing)
    assert (joining["method"], unquote(str(joining["url"]))) == ("POST", "http://r:1/workers")
    assert joining["body"] == {"url": gone.url, "worker_type": "prefill", "bootstrap_port": 8998}
