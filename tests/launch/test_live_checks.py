"""What running engines have against the plan: environment, limits, preloaded libraries, images, transports."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.engines.transports import fallen_back
from infra.launch.bring_up import bring_up
from infra.launch.host_drift import Check
from infra.launch.live_checks import check_live, limits_problem
from tests.launch.scripted_fleet import ScriptedFleet, make_deployment

IB = "h:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:192.0.2.1<0>"
NO_IB = "h:1:1 [0] NCCL INFO NET/IB : No device found."
SOCKET_THERE = "h:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:192.0.2.1<0>"
SOCKET_USED = "h:1:1 [0] NCCL INFO Using network Socket"


def wrong_checks(stack: str, catalog: Catalog, **live: dict[str, object]) -> list[Check]:
    deployment, fleet, _ = make_deployment(stack, catalog)
    bring_up(deployment, {}, tunes=False)
    for process, facts in live.items():
        change(fleet, process.replace("__", "/").replace("_", "-"), facts)
    return [check for check in check_live(deployment) if not check.ok]


def change(fleet: ScriptedFleet, process: str, facts: dict[str, object]) -> None:
    env = facts.pop("env", None)
    if isinstance(env, dict):
        facts["env"] = {**fleet.unit(process).process.env, **env}
    fleet.live[process] = facts


def test_what_runs_as_planned_has_no_problem(catalog: Catalog) -> None:
    assert wrong_checks("gb200-2p1d", catalog) == []
    assert wrong_checks("a3-2p1d", catalog) == []


def test_a_variable_that_differs_is_named_with_both_values(catalog: Catalog) -> None:
    wrong = wrong_checks(
        "gb200-2p1d",
        catalog,
        decode_0__1={"env": {"VLLM_HOST_IP": "127.0.0.1", "NCCL_NVLS_ENABLE": None}},
    )
    assert [(check.process, check.check, check.is_drift) for check in wrong] == [
        ("decode-0/1", "environment", True)
    ]
    assert "VLLM_HOST_IP is 127.0.0.1, planned 192.0.2." in wrong[0].detail
    assert "NCCL_NVLS_ENABLE is not set" in wrong[0].detail


def test_a_library_that_is_not_mapped_is_named(catalog: Catalog) -> None:
    wrong = wrong_checks("a3-2p1d", catalog, decode_0__1={"libraries": {}})
    assert [check.check for check in wrong] == ["preload"]
    assert "libjemalloc.so.2 is not mapped" in wrong[0].detail


def test_an_image_of_its_own_is_named(catalog: Catalog) -> None:
    wrong = wrong_checks("gb200-2p1d", catalog, decode_0__1={"image": "sha256:2"})
    assert [(check.process, check.check) for check in wrong] == [("decode-0/1", "image")]
    assert "sha256:1" in wrong[0].detail


def test_an_image_that_was_replaced_under_its_name_is_named(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment("gb200-tp4", catalog)
    bring_up(deployment, {}, tunes=False)
    fleet.image_ids = ["sha256:2"]
    (wrong,) = [check for check in check_live(deployment) if not check.ok]
    assert wrong.check == "image"
    assert wrong.detail == "it runs in sha256:1, and its host has sha256:2 under that name since"
    fleet.image_ids = []  # the image was removed: nothing to compare with
    assert all(check.ok for check in check_live(deployment))


def test_what_was_put_over_a_unit_is_named(catalog: Catalog) -> None:
    dropped = "/etc/systemd/system/moe-gb200-2p1d-engine@1.service.d/a.conf changes it"
    wrong = wrong_checks("gb200-2p1d", catalog, decode_0__1={"changes": [dropped]})
    assert [(c.process, c.check, c.detail) for c in wrong] == [("decode-0/1", "unit", dropped)]


def test_a_group_that_fell_back_to_sockets_is_a_failure(catalog: Catalog) -> None:
    wrong = wrong_checks(
        "gb200-2p1d", catalog, decode_0__1={"lines": [NO_IB, SOCKET_THERE, SOCKET_USED]}
    )
    assert [(check.process, check.check) for check in wrong] == [("decode-0/1", "transport")]
    assert "fell back to sockets" in wrong[0].detail


def test_what_does_not_run_is_not_compared(catalog: Catalog) -> None:
    assert wrong_checks("gb200-2p1d", catalog, decode_0__1={"pid": None, "libraries": {}}) == []


@pytest.mark.parametrize(
    ("lines", "falls_back"),
    [
        ([], False),
        ([IB, "NCCL INFO Using network IB"], False),
        ([IB, SOCKET_THERE], False),
        ([NO_IB, SOCKET_USED], True),
        (["NCCL INFO Channel 00 : 0[0] -> 1[0] [send] via NET/Socket/0"], True),
        (["NCCL INFO Using network AWS Libfabric"], False),
        (["nothing of the kind"], False),
    ],
)
def test_lines_tell_a_fallback(lines: list[str], falls_back: bool) -> None:
    assert (fallen_back(lines) is not None) is falls_back


@pytest.mark.parametrize(
    ("memlock", "files", "ceiling", "problem"),
    [
        (-1, 1048576, {}, None),
        (-1, -1, {}, None),
        (8388608, 1048576, {}, "Max locked memory is 8388608, wanted unlimited"),
        (-1, 1024, {}, "Max open files is 1024, wanted 1048576"),
        # root of a user namespace can give no more than it has
        (8388608, 20000, {"Max locked memory": 8388608, "Max open files": 20000}, None),
        (65536, 20000, {"Max locked memory": 8388608, "Max open files": 20000}, "wanted 8388608"),
    ],
)
def test_limits_are_what_the_host_can_give(
    memlock: int, files: int, ceiling: dict[str, int], problem: str | None
) -> None:
    limits = {
        "Max locked memory": [memlock, memlock],
        "Max open files": [files, files],
        "Max stack size": [67108864, -1],
    }
    found = limits_problem(limits, ceiling)
    assert (found is None) if problem is None else problem in str(found)
    assert limits_problem({}, {}) is not None
