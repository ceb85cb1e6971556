"""Groups that span hosts and add up before their engines start: who with whom, how it is asked, what is judged."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.inventory.collective_baseline import RecordedCollective
from infra.launch.preflight.finding import Finding
from infra.launch.preflight.group_collectives.adding_up import MARK
from infra.launch.preflight.group_collectives.blame import who_broke_off, who_did_not_join
from infra.launch.preflight.group_collectives.checks import CHECK, sound_collectives
from infra.launch.preflight.group_collectives.layout import (
    GroupLayout,
    rounds,
    spanning_groups,
)
from infra.launch.preflight.group_collectives.ready import what_stops
from infra.launch.preflight.group_collectives.starting import SCRIPT, collective_command
from infra.launch.preflight.group_collectives.told import ToldHost, bus_gb_s, parse_told
from infra.launch.preflight.observed import Told
from infra.launch.preflight.scene import GroupRun, Scene
from infra.launch.preflight.table import judge
from tests.launch.preflight.scenes import healthy, row

HGX, ASCEND, RACK, SPLIT = "h200-2n-tp16", "a2-2n-dp4tp4", "gb200-2p1d", "vllm-external-2n"
GROUP = "unified/0"
IB = "h:1:1 [0] NCCL INFO Using network IB"
SOCKET = "h:1:1 [0] NCCL INFO Using network Socket"
# 1 GiB over sixteen ranks in 5 ms: 402.65 GB/s
FAST_S = 0.005


def only_group(scene: Scene) -> GroupLayout:
    (layout,) = spanning_groups(scene.plan)
    return layout


def printed(
    ranks: list[dict[str, object]], lines: tuple[str, ...] = (IB,), last: tuple[str, ...] = ()
) -> str:
    return f"\n{MARK}{json.dumps({'ranks': ranks, 'lines': lines, 'last': last})}\n"


def done(rank: int, seconds: float = FAST_S, wrong: int = 0) -> dict[str, object]:
    return {
        "rank": rank, "phase": "done", "ended": 0, "torch": "2.9.0", "wrong": wrong, "seconds": seconds,
    }  # fmt: skip


def at(rank: int, phase: str, error: str | None = None, ended: int = -9) -> dict[str, object]:
    said = {} if error is None else {"error": error}
    return {"rank": rank, "phase": phase, "ended": ended, **said}


def told(text: str, exit_code: int | None = 0, stderr: str = "") -> Told:
    return Told(exit_code=exit_code, stdout=text, stderr=stderr, seconds=9.0)


def with_run(scene: Scene, *texts: str, group: str = GROUP) -> Scene:
    """The scene with what each host of a group printed."""
    layout = next(one for one in spanning_groups(scene.plan) if one.group == group)
    run = GroupRun(told=dict(zip(layout.hosts, map(told, texts), strict=True)))
    return replace(scene, group_runs={**scene.group_runs, group: run})


def right(scene: Scene, seconds: float = FAST_S, lines: tuple[str, ...] = (IB,)) -> Scene:
    """The scene with a group that adds up as it should."""
    texts = [
        printed([done(rank, seconds) for rank in member.ranks], lines)
        for member in only_group(scene).members
    ]
    return with_run(scene, *texts)


def against(scene: Scene) -> list[tuple[str, str, str]]:
    """(severity, host, observed) of what the check says."""
    return [(f.severity, f.host, f.observed) for f in judge(scene) if f.check == CHECK]


def bad(scene: Scene) -> list[tuple[str, str, str]]:
    return [one for one in against(scene) if one[0] != "pass"]


@pytest.mark.parametrize(
    ("stack", "groups"),
    [
        (HGX, {GROUP: (16, 12400)}),
        (ASCEND, {GROUP: (16, 12321)}),
        ("sglang-2n-tp16", {GROUP: (16, 12800)}),
        (RACK, {"decode/0": (16, 12321)}),
        ("vllm-pd-tp16", {"prefill/0": (16, 12400)}),
        ("h200-tp8", {}),
    ],
)
def test_groups_over_hosts_have_a_rank_per_device_and_meet_at_a_planned_port(
    stack: str, groups: dict[str, tuple[int, int]], catalog: Catalog
) -> None:
    found = spanning_groups(healthy(stack, catalog).plan)
    assert {one.group: (one.num_ranks, one.port) for one in found} == groups


def test_ranks_go_by_host_and_processes_of_a_host_are_taken_together(catalog: Catalog) -> None:
    scene = healthy(SPLIT, catalog)
    layout = only_group(scene)
    assert [(m.host, m.first_rank, m.devices) for m in layout.members] == [
        ("unified-0", 0, tuple(range(8))),
        ("unified-1", 8, tuple(range(8))),
    ]
    assert layout.address == scene.plan.host("unified-0").address
    assert layout.place(11) == "rank 11 (unified-1, device 3)"


def test_groups_with_a_common_host_take_turns(catalog: Catalog) -> None:
    layout = only_group(healthy(HGX, catalog))
    first, second = layout.members
    left = replace(layout, group="a", members=(replace(first, host="x"), first))
    right_one = replace(layout, group="b", members=(second, replace(second, host="y")))
    apart = replace(layout, group="c", members=(replace(second, host="z"), second))
    assert [[one.group for one in together] for together in rounds([left, right_one, apart])] == [
        ["a", "b"],
        ["c"],
    ]
    assert rounds([]) == ()


def test_a_container_has_the_engines_devices_and_environment_and_is_gone_in_the_end(
    catalog: Catalog,
) -> None:
    scene = healthy(SPLIT, catalog)
    layout = only_group(scene)
    command = collective_command(scene, layout, layout.members[1], 20.0)
    words = list(command.argv)
    assert words[:5] == ["systemd-run", "--quiet", "--collect", "--wait", "--pipe"]
    name = f"moe-{scene.plan.stack}-collective-unified-0"
    removal = f"docker rm --force {name} >/dev/null 2>&1"
    assert f"--property=ExecStopPost=-/bin/sh -c '{removal}'" in words
    assert "--property=RuntimeMaxSec=230" in words
    assert command.timeout_s == 170
    assert command.behind == ("systemctl", "stop", "--no-block", "--", f"{name}.service")
    inner = words[words.index("--") + 1 :]
    assert inner[:4] == ["docker", "run", "--rm", f"--name={name}"]
    assert "--gpus" in inner
    assert "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7" in inner
    assert "NCCL_DEBUG=INFO" in inner
    assert not any(scene.plan.weights_path in word for word in inner[: inner.index("-c")])
    text, task = (word.replace("$$", "$") for word in inner[-2:])
    assert text == SCRIPT
    asked = json.loads(task)
    assert (asked["backend"], asked["device"], asked["port"]) == ("nccl", "cuda", 12321)
    assert (asked["num_ranks"], asked["first_rank"], asked["num_local"]) == (16, 8, 8)


def test_npus_add_up_with_hccl_and_a_plugin(catalog: Catalog) -> None:
    scene = healthy(ASCEND, catalog)
    layout = only_group(scene)
    command = collective_command(scene, layout, layout.members[0], 20.0)
    asked = json.loads(command.argv[-1].replace("$$", "$"))
    assert (asked["backend"], asked["device"], asked["plugin"]) == ("hccl", "npu", "torch_npu")
    assert "ASCEND_SLOG_PRINT_TO_STDOUT=1" in command.argv
    assert "/dev/davinci7" in command.argv
    # systemd would expand what follows a dollar: the preloaded library's check has some
    prepended = next(word for word in command.argv if "LD_PRELOAD" in word)
    assert '"$$@"' in prepended


def test_without_a_container_the_environments_python_is_started(catalog: Catalog) -> None:
    scene = healthy("vllm-internal-2n", catalog, ("runtime=native",))
    layout = only_group(scene)
    command = collective_command(scene, layout, layout.members[0], 20.0)
    inner = command.argv[command.argv.index("--") + 1 :]
    version = scene.plan.engine.version
    assert inner[0] == "env"
    assert inner[-4:-2] == (f"/opt/moe-infra/engines/vllm-{version}/bin/python3", "-c")
    assert not any("docker" in word for word in command.argv if word != command.argv[-2])


def test_processors_add_up_with_gloo(catalog: Catalog) -> None:
    scene = healthy(HGX, catalog)
    plan = replace(
        scene.plan, hosts=tuple(replace(host, accelerator="cpu") for host in scene.plan.hosts)
    )
    layout = only_group(scene)
    command = collective_command(replace(scene, plan=plan), layout, layout.members[0], 20.0)
    asked = json.loads(command.argv[-1])
    assert (asked["backend"], asked["device"], asked["patterns"]) == ("gloo", "cpu", [])


def test_bandwidth_is_counted_as_nccl_tests_do() -> None:
    # doc/PERFORMANCE.md: S / t x 2 (n - 1) / n
    assert bus_gb_s(8_000_000_000, 0.02, 16) == pytest.approx(750.0)
    assert bus_gb_s(1_000_000_000, 1.0, 2) == pytest.approx(1.0)


def block(host: str, check: str) -> Finding:
    return Finding(host=host, check=check, severity="block", observed="o", wanted="w", fix="f")


def test_what_keeps_a_group_from_being_asked_is_said_with_what_to_do_first(
    catalog: Catalog,
) -> None:
    scene = healthy(HGX, catalog)
    layout = only_group(scene)

    def why(scene: Scene, *findings: Finding) -> str:
        stopped = what_stops(scene, layout, findings)
        assert stopped is not None
        assert stopped.first
        return stopped.why_not

    assert what_stops(scene, layout, []) is None
    assert what_stops(scene, layout, [block("unified-0", "weights-staged")]) is None
    assert what_stops(scene, layout, [block("elsewhere", "nvlink")]) is None
    assert why(scene, block("unified-1", "peer-ports")) == "peer-ports blocks a host of it"
    running = replace(scene, running=frozenset({"unified-1/0"}))
    assert why(running) == "engines run on unified-1"
    image = f"image:{scene.plan.engine.image}"
    absent = row(scene, "unified-1", image, state="changed")
    assert why(absent) == f"{scene.plan.engine.image} is not on unified-1"
    portless = what_stops(scene, replace(layout, port=None), [])
    assert portless is not None
    assert "names a port" in portless.why_not


def test_a_group_that_was_not_asked_has_a_note_on_each_host(catalog: Catalog) -> None:
    scene = healthy(HGX, catalog)
    run = GroupRun(told={}, why_not="engines run on unified-1", first="fab down")
    found = against(replace(scene, group_runs={GROUP: run}))
    said = "not run: engines run on unified-1"
    assert found == [("pass", "unified-0", said), ("pass", "unified-1", said)]
    assert {one[2] for one in against(scene)} == {"not run: it was not asked"}


def test_a_group_that_adds_up_says_how_fast_and_which_rank_is_slowest(catalog: Catalog) -> None:
    scene = healthy(HGX, catalog)
    first = printed([done(rank) for rank in range(8)])
    second = printed([done(rank, 0.0051 if rank == 11 else FAST_S) for rank in range(8, 16)])
    scene = with_run(scene, first, second)
    ((severity, host, said), other) = against(scene)
    assert (severity, host) == ("pass", "unified-0")
    assert said == (
        "group unified/0 adds up 395 GB/s over 16 devices on 2 hosts (nccl, torch 2.9.0, over RDMA); "
        "slowest is rank 11 (unified-1, device 3)"
    )
    assert other == ("pass", "unified-1", "as wanted")
    (measured,) = sound_collectives(scene)
    assert (measured.group, measured.num_ranks, measured.backend) == (GROUP, 16, "nccl")
    assert measured.bus_gb_s == pytest.approx(394.758)


def test_wrong_sums_name_the_rank_and_are_no_baseline(catalog: Catalog) -> None:
    rows = [done(rank, wrong=7 if rank == 9 else 0) for rank in range(8, 16)]
    scene = with_run(healthy(HGX, catalog), printed([done(r) for r in range(8)]), printed(rows))
    assert bad(scene) == [
        (
            "block",
            "unified-1",
            "group unified/0 adds up wrongly: rank 9 (unified-1, device 1) has 7 wrong sums",
        )
    ]
    assert sound_collectives(scene) == ()


def test_sockets_block_where_rdma_is_declared_and_warn_where_nothing_is(catalog: Catalog) -> None:
    plain = right(healthy(HGX, catalog), lines=(SOCKET,))
    assert [(severity, host) for severity, host, _ in bad(plain)] == [
        ("warn", "unified-0"),
        ("warn", "unified-1"),
    ]
    assert "its group fell back to sockets: h:1:1" in bad(plain)[0][2]
    assert sound_collectives(plain) == ()
    declared = right(healthy(HGX, catalog, ("defaults.env.NCCL_IB_HCA=mlx5_0",)), lines=(SOCKET,))
    worst = {severity for severity, _, said in bad(declared) if "sockets" in said}
    assert worst == {"block"}


def test_a_rack_that_leaves_its_nvlink_unused_is_found(catalog: Catalog) -> None:
    scene = healthy(RACK, catalog)
    (layout,) = spanning_groups(scene.plan)
    texts = [printed([done(rank) for rank in member.ranks]) for member in layout.members]
    found = bad(with_run(scene, *texts, group="decode/0"))
    assert {severity for severity, _, _ in found} == {"block"}
    assert "although its hosts share NVLink" in found[0][2]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (400.0, []),
        # 402.65 is more than four fifths of it
        (500.0, []),
        (510.0, ["510 GB/s or little less, the baseline of these hosts (with old:1)"]),
    ],
)
def test_a_run_far_behind_the_baseline_warns(
    before: float, expected: list[str], catalog: Catalog
) -> None:
    scene = right(healthy(HGX, catalog))
    (now,) = sound_collectives(scene)
    scene = replace(scene, baselines=(replace(now, bus_gb_s=before, runtime="old:1"),))
    found = [f for f in judge(scene) if f.check == CHECK and f.severity != "pass"]
    assert [f.wanted for f in found] == expected
    assert all(f.severity == "warn" and "403 GB/s" in f.observed for f in found)


def test_a_baseline_of_other_hosts_or_devices_says_nothing(catalog: Catalog) -> None:
    scene = right(healthy(HGX, catalog))
    (now,) = sound_collectives(scene)
    others: tuple[RecordedCollective, ...] = (
        replace(now, bus_gb_s=9000.0, addresses=now.addresses[::-1]),
        replace(now, bus_gb_s=9000.0, num_ranks=8),
        replace(now, bus_gb_s=9000.0, backend="gloo"),
    )
    assert bad(replace(scene, baselines=others)) == []


def test_a_group_behind_groups_like_it_warns(catalog: Catalog) -> None:
    scene = healthy(HGX, catalog, ("roles.unified.replicas=2", "router.name=vllm-router"))
    for group, seconds in ((GROUP, 0.02), ("unified/1", FAST_S)):
        layout = next(one for one in spanning_groups(scene.plan) if one.group == group)
        texts = [printed([done(r, seconds) for r in m.ranks]) for m in layout.members]
        scene = with_run(scene, *texts, group=group)
    ((severity, host, said),) = bad(scene)
    assert (severity, host) == ("warn", "unified-0")
    assert "adds up 101 GB/s" in said


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # torch hangs on one host, and the other says that it waited
        (
            [at(0, "reached", "DistStoreError: wait timeout")],
            [at(1, "begun")],
            [("unified-1", "rank 1 did not join: still loading torch when the time was over")],
        ),
        # rank 0 never listens: nobody else is to blame
        (
            [at(0, "begun")],
            [at(1, "loaded", "DistNetworkError: timed out")],
            [("unified-0", "rank 0 did not join: still loading torch when the time was over")],
        ),
        # rank 0 listens, and one host cannot reach it
        (
            [at(0, "reached", "DistStoreError: wait timeout")],
            [at(1, "loaded", "DistNetworkError: timed out")],
            [("unified-1", "rank 1 did not join: DistNetworkError: timed out")],
        ),
        # a device that is not there
        (
            [at(0, "reached", "DistStoreError: wait timeout")],
            [at(1, "begun", "RuntimeError: CUDA error: invalid device ordinal", 1)],
            [
                (
                    "unified-1",
                    "rank 1 did not join: RuntimeError: CUDA error: invalid device ordinal",
                )
            ],
        ),
        # met, and one dies: the other's wait is no fault of its own
        (
            [at(0, "met")],
            [at(1, "met", None, -11)],
            [("unified-1", "rank 1 did not add up: ended by signal 11")],
        ),
        # met, and the network between them carries nothing
        (
            [at(0, "met")],
            [at(1, "met")],
            [
                ("unified-0", "rank 0 did not add up: still adding up when the time was over"),
                ("unified-1", "rank 1 did not add up: still adding up when the time was over"),
            ],
        ),
        ([done(0)], [done(1)], []),
    ],
)
def test_who_kept_a_group_from_adding_up(
    first: list[dict[str, object]],
    second: list[dict[str, object]],
    expected: list[tuple[str, str]],
    catalog: Catalog,
) -> None:
    layout = only_group(healthy(HGX, catalog))
    small = replace(
        layout,
        members=tuple(
            replace(member, first_rank=place, devices=(0,))
            for place, member in enumerate(layout.members)
        ),
    )
    heard: dict[str, ToldHost] = {}
    for host, rows in zip(small.hosts, (first, second), strict=True):
        parsed = parse_told(printed(rows))
        assert parsed is not None
        heard[host] = parsed
    found = who_did_not_join(small, heard) or who_broke_off(small, heard)
    assert [(one.host, one.said) for one in found] == expected


def test_ranks_of_a_host_are_told_together_with_its_last_words(catalog: Catalog) -> None:
    last = ("libhccl.so: cannot open shared object file",)
    rows = [at(rank, "begun") for rank in range(8, 16)]
    waiting = [at(rank, "reached", "DistStoreError: wait timeout") for rank in range(8)]
    scene = with_run(healthy(HGX, catalog), printed(waiting), printed(rows, (), last))
    ((severity, host, said),) = bad(scene)
    assert (severity, host) == ("block", "unified-1")
    assert "ranks 8-15 did not join: still loading torch" in said
    assert "(libhccl.so: cannot open shared object file)" in said


def test_a_runtime_that_hangs_blocks_and_one_that_refuses_is_a_note(catalog: Catalog) -> None:
    scene = healthy(HGX, catalog)
    hangs = told("", None, "systemd-run did not answer within 180 s and was killed")
    refuses = told("", 1, "Failed to start transient service unit: Unit already exists")
    good = told(printed([done(rank) for rank in range(8)]))

    def beside(other: Told) -> Scene:
        run = GroupRun(told={"unified-0": good, "unified-1": other})
        return replace(scene, group_runs={GROUP: run})

    ((severity, host, said),) = bad(beside(hangs))
    assert (severity, host) == ("block", "unified-1")
    assert "nothing was heard of its ranks" in said
    assert bad(beside(refuses)) == []
    assert {host: said for _, host, said in against(beside(refuses))} == {
        "unified-0": "not run: unified-1 did not begin",
        "unified-1": "not run: Failed to start transient service unit: Unit already exists",
    }
    daemon = "docker: Error response from daemon: could not select device driver"
    advice = "\n\nRun 'docker run --help' for more information"
    ((severity, host, said),) = bad(beside(told("", 125, daemon + advice)))
    assert (severity, host) == ("block", "unified-1")
    assert said == f"docker refuses the engine's container: {daemon}"
    assert sound_collectives(beside(refuses)) == ()


def test_a_runtime_without_torch_is_a_note(catalog: Catalog) -> None:
    error = "ModuleNotFoundError: No module named 'torch'"
    rows = [[at(rank, "begun", error, 1) for rank in ranks] for ranks in (range(8), range(8, 16))]
    scene = with_run(healthy(HGX, catalog), *map(printed, rows))
    assert bad(scene) == []
    assert {said for _, _, said in against(scene)} == {
        f"not run: its runtime has no torch ({error})"
    }
