"""What running engines have against the plan: environment, limits, preloaded libraries, images, transports."""

from __future__ import annotations

import re

import pytest

from infra.catalog.load import Catalog
from infra.engines.transports import Told, fallen_back, is_mixed, read_transports, sign_patterns
from infra.launch.bring_up import bring_up
from infra.launch.proof.host_drift import Check
from infra.launch.proof.live import check_processes, frozen_processes, limits_problem, read_live
from infra.launch.proof.verification import verify
from infra.launch.transport_verdicts import judge_collective, judge_kv
from tests.launch.scripted_fleet import ScriptedFleet, make_deployment

IB = "h:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:192.0.2.1<0>"
NO_IB = "h:1:1 [0] NCCL INFO NET/IB : No device found."
SOCKET_THERE = "h:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:192.0.2.1<0>"
SOCKET_USED = "h:1:1 [0] NCCL INFO Using network Socket"
USES_IB = "h:1:1 [0] NCCL INFO Using network IB"
MNNVL = "h:1:1 [0] NCCL INFO MNNVL 1 cliqueId 1 cliqueSize 16 cliqueRank 0 nvlDomainSize 16"
UCX = "[1795304354.064823] [h:1:0]      ucp_worker.c:1997 UCX  INFO    a inter-node cfg#1 "
UCX_TCP = UCX + "rma_am(tcp/eth0)  amo_am(tcp/eth0)  am(tcp/eth0)  ka(tcp/eth0)"
UCX_RDMA = UCX + "rma(rc_mlx5/mlx5_0:1)  amo(rc_mlx5/mlx5_0:1)  am(rc_mlx5/mlx5_0:1)  ka(tcp/eth0)"


def wrong_checks(stack: str, catalog: Catalog, **live: dict[str, object]) -> list[Check]:
    return [check for check in checks_of(stack, catalog, **live) if check.is_wrong]


def checks_of(stack: str, catalog: Catalog, **live: dict[str, object]) -> list[Check]:
    deployment, fleet, _ = make_deployment(stack, catalog)
    bring_up(deployment, {}, tunes=False)
    for process, facts in live.items():
        change(fleet, process.replace("__", "/").replace("_", "-"), facts)
    return check_processes(deployment, catalog, read_live(deployment))


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
    found = check_processes(deployment, catalog, read_live(deployment))
    (wrong,) = [check for check in found if check.is_wrong]
    assert wrong.check == "image"
    assert wrong.detail == "it runs in sha256:1, and its host has sha256:2 under that name since"
    fleet.image_ids = []  # the image was removed: nothing to compare with
    found = check_processes(deployment, catalog, read_live(deployment))
    assert not any(check.is_wrong for check in found)


def test_what_was_put_over_a_unit_is_named(catalog: Catalog) -> None:
    dropped = "/etc/systemd/system/moe-gb200-2p1d-engine@1.service.d/a.conf changes it"
    wrong = wrong_checks("gb200-2p1d", catalog, decode_0__1={"changes": [dropped]})
    assert [(c.process, c.check, c.detail) for c in wrong] == [("decode-0/1", "unit", dropped)]


def test_a_rank_that_a_signal_has_stopped_is_named(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment("gb200-2p1d", catalog)
    bring_up(deployment, {}, tunes=False)
    assert frozen_processes(deployment, read_live(deployment)) == []
    change(fleet, "decode-0/1", {"stopped": [85, 91]})
    (found,) = frozen_processes(deployment, read_live(deployment))
    assert (found.process, found.check, found.ok, found.mend) == (
        "decode-0/1",
        "running",
        False,
        "restart",
    )
    assert "`ssh decode-0 sudo kill -CONT 85 91`" in found.detail


def test_a_rank_whose_memory_is_held_is_named_and_not_judged_by_it(catalog: Catalog) -> None:
    silent = {"env": {}, "libraries": {}, "is_silent": True, "pid": 85}
    assert wrong_checks("a3-2p1d", catalog, decode_0__1=silent) == []
    deployment, fleet, _ = make_deployment("a3-2p1d", catalog)
    bring_up(deployment, {}, tunes=False)
    change(fleet, "decode-0/1", silent)
    live = read_live(deployment)
    (found,) = frozen_processes(deployment, live)
    assert (found.process, found.ok, found.mend) == ("decode-0/1", False, "restart")
    assert "`ssh decode-0 sudo cat /proc/85/stack`" in found.detail
    judged = {
        c.check for c in check_processes(deployment, catalog, live) if c.process == "decode-0/1"
    }
    assert {"environment", "preload"}.isdisjoint(judged)
    assert "limits" in judged


@pytest.mark.parametrize(
    ("error", "mend"),
    [
        ("timed out", "restart"),
        # it loads, or has just ended: `fab status` tells, and a restart would only begin anew
        ("Connection refused", "start"),
        ("Remote end closed connection without response", "start"),
    ],
)
def test_only_a_rank_that_takes_a_question_and_gives_no_answer_hangs(
    catalog: Catalog, error: str, mend: str
) -> None:
    deployment, fleet, _ = make_deployment("gb200-tp4", catalog)
    bring_up(deployment, {}, tunes=False)
    process = deployment.engines()[0].id
    fleet.answer_with[process] = {"status": None, "body": None, "error": error}
    found = [one for one in verify(deployment, {}, 1.0, catalog) if one.is_wrong]
    assert {(one.process, one.mend) for one in found if one.check == "chat"} == {(process, mend)}
    assert {one.mend for one in found if one.process == process} == {mend}


def test_a_group_that_fell_back_to_sockets_is_a_failure(catalog: Catalog) -> None:
    wrong = wrong_checks(
        "gb200-2p1d", catalog, decode_0__1={"lines": [NO_IB, SOCKET_THERE, SOCKET_USED]}
    )
    assert [(check.process, check.check) for check in wrong] == [("decode-0/1", "transport")]
    assert "fell back to sockets" in wrong[0].detail


def test_what_does_not_run_is_not_compared(catalog: Catalog) -> None:
    assert wrong_checks("gb200-2p1d", catalog, decode_0__1={"pid": None, "libraries": {}}) == []


def test_a_process_that_tells_nothing_is_not_known_and_never_fine(catalog: Catalog) -> None:
    found = {
        (check.process, check.check): (check.ok, check.detail)
        for check in checks_of("gb200-2p1d", catalog)
        if "transport" in check.check
    }
    assert found["decode-0/1", "transport"] == (
        None,
        "not known: no line tells it (NCCL_DEBUG=INFO would)",
    )
    assert found["prefill-0/0", "kv-transport"] == (
        None,
        "not known: no line tells it (UCX_LOG_LEVEL=info would)",
    )
    assert ("prefill-0/0", "transport") not in found  # its group lies on one host


def test_a_rack_whose_groups_go_over_cards_has_lost_its_nvlink(catalog: Catalog) -> None:
    (wrong,) = wrong_checks("gb200-2p1d", catalog, decode_0__1={"lines": [IB, USES_IB]})
    assert (wrong.process, wrong.check) == ("decode-0/1", "transport")
    assert "goes over RDMA although its hosts share NVLink: no line says MNNVL" in wrong.detail
    assert wrong_checks("gb200-2p1d", catalog, decode_0__1={"lines": [USES_IB, MNNVL]}) == []


def test_kv_that_goes_over_sockets_is_named_with_its_line(catalog: Catalog) -> None:
    (wrong,) = wrong_checks("gb200-2p1d", catalog, decode_0__1={"lines": [UCX_TCP]})
    assert (wrong.process, wrong.check) == ("decode-0/1", "kv-transport")
    assert "its KV goes over sockets" in wrong.detail
    assert "inter-node cfg#1 rma_am(tcp/eth0)" in wrong.detail


@pytest.mark.parametrize(
    ("lines", "falls_back"),
    [
        ([], False),
        ([IB, "NCCL INFO Using network IB"], False),
        ([IB, SOCKET_THERE], False),
        ([NO_IB, SOCKET_USED], True),
        (["NCCL INFO Channel 00 : 0[0] -> 1[0] [send] via NET/Socket/0"], True),
        (["NCCL INFO Using network AWS Libfabric"], False),
        ([UCX_TCP], True),
        ([UCX_TCP, UCX_RDMA], False),
        (
            [
                "I1121 23:46:23.567077 11056 tcp_transport.cpp:391] TcpTransport: listen on port 16095"
            ],
            True,
        ),
        (
            ["I1121 23:46:23.567077 1 transfer_engine_impl.cpp:429] installTransport, type=rdma"],
            False,
        ),
        (["nothing of the kind"], False),
    ],
)
def test_lines_tell_a_fallback(lines: list[str], falls_back: bool) -> None:
    assert (fallen_back(read_transports(lines)) is not None) is falls_back


def test_one_peer_over_sockets_beside_others_is_not_known() -> None:
    told = read_transports([UCX_RDMA, UCX_TCP])
    assert is_mixed(told) == UCX_TCP
    verdict = judge_kv(told, "UCX")
    assert verdict.ok is None
    assert "one of its peers is reached by sockets" in verdict.detail


def test_hccl_within_a_super_pod_and_a_connector_without_lines() -> None:
    hccs = Told(library="HCCL", transport="hccs", line="…transporttype[HCCS_SW]")
    assert judge_collective([hccs], "HCCL", over_nvlink=False).detail == "HCCS"
    assert judge_collective([], "HCCL", over_nvlink=False).ok is None
    assert judge_kv([hccs], None).ok is None


@pytest.mark.parametrize("line", [IB, SOCKET_USED, MNNVL, UCX_TCP, UCX_RDMA])
def test_an_agent_keeps_every_line_that_is_read(line: str) -> None:
    assert any(re.search(pattern.encode(), line.encode()) for pattern in sign_patterns())


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
