"""The handshake of a data-parallel group, and several nodes of one tensor-parallel engine."""

from __future__ import annotations

import http.client
import json
import re
import signal
import time
import urllib.request
from pathlib import Path

import pytest

from tests.ports import free_ports
from tests.rehearsal.engine.simulated_host import (
    Engine,
    Lab,
    call,
    chat,
    journal,
    make_state,
    wait_healthy,
)

# each starts several engines, and waits for what they find of each other
pytestmark = pytest.mark.slow

HEAD, OTHER = "127.0.0.1", "127.0.0.2"
COMMON = ("--max-model-len", "8192", "--enable-expert-parallel")


def serve(model: Path, *flags: str) -> list[str]:
    return ["vllm", "serve", str(model), *COMMON, *flags]


def external(model: Path, rank: int, port: int, rpc: int, *flags: str, size: int = 2) -> list[str]:
    place = ["-dp", str(size), "--data-parallel-rank", str(rank), "--data-parallel-address", HEAD]
    return serve(
        model, "-tp", "4", "--port", str(port), *place, "--data-parallel-rpc-port", str(rpc), *flags
    )


def mask(rank: int) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": ",".join(str(rank * 4 + x) for x in range(4))}


def test_external_ranks_are_healthy_together(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    state, (first, second, rpc) = make_state(tmp_path / "h"), free_ports(3)
    follower = lab.start(state, external(kimi, 1, second, rpc), env=mask(1))
    time.sleep(0.3)
    with pytest.raises(OSError, match="refused"):
        call(second, "/health")
    leader = lab.start(state, external(kimi, 0, first, rpc), env=mask(0))
    wait_healthy(leader, first)
    wait_healthy(follower, second)
    assert chat(second, "Hello", max_tokens=2)[0] == 200
    assert journal(state)[-1]["dp_rank"] == 1
    assert 'engine="1"' in call(second, "/metrics")[1]
    # the rpc port speaks ZMQ, not HTTP
    with pytest.raises(http.client.BadStatusLine):
        call(rpc, "/health")


def test_a_dead_rank_stalls_the_others_but_not_their_health(
    lab: Lab, kimi: Path, tmp_path: Path
) -> None:
    state, (first, second, rpc) = make_state(tmp_path / "h"), free_ports(3)
    leader = lab.start(state, external(kimi, 0, first, rpc), env=mask(0))
    follower = lab.start(state, external(kimi, 1, second, rpc), env=mask(1))
    wait_healthy(leader, first)
    wait_healthy(follower, second)
    follower.process.kill()
    time.sleep(0.2)
    assert call(first, "/health")[0] == 200
    assert "rank 1 is gone" in leader.output()
    with pytest.raises(OSError, match="timed out"):
        _ask_briefly(first)


def test_a_rank_that_stands_still_holds_up_the_others_until_it_goes_on(
    lab: Lab, kimi: Path, tmp_path: Path
) -> None:
    state, (first, second, rpc) = make_state(tmp_path / "h"), free_ports(3)
    leader = lab.start(state, external(kimi, 0, first, rpc), env=mask(0))
    follower = lab.start(state, external(kimi, 1, second, rpc), env=mask(1))
    wait_healthy(leader, first)
    wait_healthy(follower, second)
    for stopped, asked in ((follower, first), (leader, second)):
        stopped.process.send_signal(signal.SIGSTOP)
        assert call(asked, "/health")[0] == 200
        with pytest.raises(OSError, match="timed out"):
            _ask_briefly(asked)
        stopped.process.send_signal(signal.SIGCONT)
        assert chat(asked, "Hello", max_tokens=2)[0] == 200


def _ask_briefly(port: int) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        data=b'{"prompt":"x"}',
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=0.3)  # noqa: S310 - loopback


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            ("--enable-dbo", "--all2all-backend", "deepep_low_latency"),
            "Configuration mismatch detected for engine 1",
        ),
        (
            ("--all2all-backend", "deepep_high_throughput"),
            "Configuration mismatch detected for engine 1",
        ),
        (
            ("--headless",),
            "Remote engine 1 must not use --headless in external or hybrid dp lb mode",
        ),
    ],
)
def test_ranks_that_differ_bring_the_group_down(
    lab: Lab, kimi: Path, tmp_path: Path, flags: tuple[str, ...], expected: str
) -> None:
    state, (first, second, rpc) = make_state(tmp_path / "h"), free_ports(3)
    leader = lab.start(state, external(kimi, 0, first, rpc), env=mask(0))
    follower = lab.start(state, external(kimi, 1, second, rpc, *flags), env=mask(1))
    assert leader.wait() == 1
    assert expected in leader.output()
    if "mismatch" in expected:  # the others never got an answer and wait for five scaled minutes
        assert follower.wait() == 1


def test_a_rank_outside_of_the_leaders_range_is_unexpected(
    lab: Lab, kimi: Path, tmp_path: Path
) -> None:
    state, (first, second, rpc) = make_state(tmp_path / "h"), free_ports(3)
    leader = lab.start(state, external(kimi, 0, first, rpc), env=mask(0))
    lab.start(state, external(kimi, 5, second, rpc, size=8), env=mask(1))
    assert leader.wait() == 1
    assert "Message from engine with unexpected data parallel rank: 5" in leader.output()


def test_a_rank_that_is_there_twice_is_unexpected(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    states = [make_state(tmp_path / f"h{x}") for x in range(3)]
    ports = free_ports(4)
    leader = lab.start(states[0], external(kimi, 0, ports[0], ports[3], size=3))
    for x in (1, 2):
        lab.start(states[x], external(kimi, 1, ports[x], ports[3], size=3))
    assert leader.wait() == 1
    assert re.search(
        r"Unexpected HELLO message for remote engine 1 in CoreEngineState\.\w+ state",
        leader.output(),
    )


def test_without_rank_0_a_rank_gives_up_after_five_scaled_minutes(
    lab: Lab, kimi: Path, tmp_path: Path
) -> None:
    state, ports = make_state(tmp_path / "h", time_scale=0.001), free_ports(2)
    engine = lab.start(state, external(kimi, 1, ports[0], ports[1]), env=mask(1))
    assert engine.wait() == 1
    assert "Did not receive response from front-end process within 5 minutes" in engine.output()


def test_the_data_parallel_address_must_be_rank_0s_own(
    lab: Lab, kimi: Path, tmp_path: Path
) -> None:
    ports = free_ports(2)
    argv = [x.replace(HEAD, "192.0.2.77") for x in external(kimi, 0, ports[0], ports[1])]
    engine = lab.start(make_state(tmp_path / "h"), argv, env=mask(0))
    assert engine.wait() == 1
    assert (
        f"ZMQError: Cannot assign requested address (addr='tcp://192.0.2.77:{ports[1]}')"
        in engine.output()
    )


def test_two_pools_collide_on_one_rpc_port(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    states, ports = [make_state(tmp_path / x) for x in "ab"], free_ports(3)
    lab.start(states[0], external(kimi, 0, ports[0], ports[2]))
    time.sleep(0.4)
    second = lab.start(states[1], external(kimi, 0, ports[1], ports[2]))
    assert second.wait() == 1
    assert "zmq.error.ZMQError: Address already in use" in second.output()


def two_nodes(
    lab: Lab, kimi: Path, tmp_path: Path, follower_flags: tuple[str, ...]
) -> tuple[Engine, Engine, int]:
    states = [make_state(tmp_path / "n0", address=HEAD), make_state(tmp_path / "n1", address=OTHER)]
    port, rpc = free_ports(2)
    flags = ("-tp", "4", "-dp", "4", "-dpl", "2", "-dpa", HEAD, "-dpp", str(rpc))
    leader = lab.start(states[0], serve(kimi, *flags, "--port", str(port)))
    follower = lab.start(states[1], serve(kimi, *flags, *follower_flags))
    return leader, follower, port


def test_internal_balancing_spreads_over_two_hosts(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    leader, _, port = two_nodes(lab, kimi, tmp_path, ("--headless", "-dpr", "2"))
    wait_healthy(leader, port)
    for rank in range(4):
        assert (
            chat(port, "Hello", max_tokens=2, headers={"X-data-parallel-rank": str(rank)})[0] == 200
        )
    assert [x["dp_rank"] for x in journal(tmp_path / "n0")] == [0, 1]
    assert [x["dp_rank"] for x in journal(tmp_path / "n1")] == [2, 3]
    _, text = call(port, "/metrics")
    assert {f'engine="{rank}"' for rank in range(4)} <= set(re.findall(r'engine="\d"', text))


def test_a_follower_that_is_not_headless_is_refused(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    port = free_ports()[0]
    leader, _, _ = two_nodes(lab, kimi, tmp_path, ("-dpr", "2", "--port", str(port)))
    assert leader.wait() == 1
    assert (
        "Remote engine 2 must use --headless unless in external or hybrid dp lb mode"
        in leader.output()
    )


def test_hybrid_balancing_has_an_endpoint_per_host(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    states = [make_state(tmp_path / "n0", address=HEAD), make_state(tmp_path / "n1", address=OTHER)]
    first, second, rpc = free_ports(3)
    flags = (
        "-tp",
        "4",
        "-dp",
        "4",
        "-dpl",
        "2",
        "-dpa",
        HEAD,
        "-dpp",
        str(rpc),
        "--data-parallel-hybrid-lb",
    )
    leader = lab.start(states[0], serve(kimi, *flags, "--port", str(first)))
    other = lab.start(states[1], serve(kimi, *flags, "-dpr", "2", "--port", str(second)))
    wait_healthy(leader, first)
    wait_healthy(other, second)
    assert chat(second, "Hello", max_tokens=2, headers={"X-data-parallel-rank": "1"})[0] == 200
    assert journal(states[1])[-1]["dp_rank"] == 3


def test_multi_port_has_a_server_per_rank_and_a_supervisor(
    lab: Lab, kimi: Path, tmp_path: Path
) -> None:
    port, second, rpc, supervisor = free_ports(4)
    flags = ("-tp", "4", "-dp", "2", "-dpl", "2", "-dpm", "-dpp", str(rpc), "--port", str(port))
    engine = lab.start(
        make_state(tmp_path / "h"),
        serve(kimi, *flags, "--data-parallel-supervisor-port", str(supervisor)),
    )
    wait_healthy(engine, supervisor, path="/readyz")
    assert 'engine="0"' in call(port, "/metrics")[1]
    assert 'engine="1"' in call(second, "/metrics")[1]


def tensor_parallel(kimi: Path, node: int, master: int, *flags: str) -> list[str]:
    place = (
        "--nnodes",
        "2",
        "--node-rank",
        str(node),
        "--master-addr",
        HEAD,
        "--master-port",
        str(master),
    )
    return serve(kimi, "-tp", "16", *place, *flags)


def test_tensor_parallel_over_two_nodes(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    states, (port, master) = [make_state(tmp_path / x) for x in ("n0", "n1")], free_ports(2)
    head = lab.start(states[0], tensor_parallel(kimi, 0, master, "--port", str(port)))
    follower = lab.start(states[1], tensor_parallel(kimi, 1, master, "--headless"))
    wait_healthy(head, port)
    assert chat(port, "2+3?")[1]["choices"][0]["message"]["content"].endswith("5.")
    assert follower.process.poll() is None
    assert journal(states[1]) == []


def test_nodes_with_other_batches_hang_until_the_watchdog(
    lab: Lab, kimi: Path, tmp_path: Path
) -> None:
    states = [make_state(tmp_path / x, time_scale=0.005) for x in ("n0", "n1")]
    port, master = free_ports(2)
    told = ("--max-num-batched-tokens", "8192")
    lab.start(states[0], tensor_parallel(kimi, 0, master, "--port", str(port), *told))
    other = (*told[:1], "4096", "--headless")
    follower = lab.start(states[1], tensor_parallel(kimi, 1, master, *other))
    assert follower.wait() == 1
    assert "Watchdog caught collective operation timeout" in follower.output()


def test_a_node_alone_times_out(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    state, (port, master) = make_state(tmp_path / "n", time_scale=0.001), free_ports(2)
    head = lab.start(state, tensor_parallel(kimi, 0, master, "--port", str(port)))
    assert head.wait() == 1
    assert (
        "DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."
        in head.output()
    )


def test_a_node_without_its_master_times_out(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    state, (_, master) = make_state(tmp_path / "n", time_scale=0.001), free_ports(2)
    follower = lab.start(state, tensor_parallel(kimi, 1, master, "--headless"))
    assert follower.wait() == 1
    assert "The client socket has timed out after 600000ms" in follower.output()


def test_sglang_over_two_nodes(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    states, (first, second, dist) = [make_state(tmp_path / x) for x in ("n0", "n1")], free_ports(3)
    engines = [
        lab.start(
            states[node],
            ["python3", "-m", "sglang.launch_server", "--model-path", str(kimi), "--tp", "16", "--nnodes", "2",
             "--node-rank", str(node), "--dist-init-addr", f"{HEAD}:{dist}", "--port", str(port)],
            engine="sglang", version="0.5.9",
        )
        for node, port in enumerate((first, second))
    ]  # fmt: skip
    for engine, port in zip(engines, (first, second), strict=True):
        wait_healthy(engine, port)
    assert chat(first, "2+3?")[0] == 200
    assert call(second, "/v1/models")[0] == 404
    assert json.loads(call(first, "/server_info")[1])["nnodes"] == 2
