"""KV transfer: by hand, through the real routers, and through the stand-in of the Ascend proxy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from infra.errors import PrerequisiteError
from tests.needed import lacks
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

PREFILL_PARAMS = {"do_remote_decode": True, "do_remote_prefill": False}
PROMPT = "What is 20 + 22?"


def nixl(role: str, **more: Any) -> str:
    return json.dumps({"kv_connector": "NixlConnector", "kv_role": role, **more})


def start_vllm(
    lab: Lab, state: Path, model: Path, role: str, *flags: str, env: dict[str, str] | None = None
) -> tuple[Engine, int]:
    port, channel = free_ports(2)
    argv = [
        "vllm", "serve", str(model), "-tp", "8", "--port", str(port), "--served-model-name", "kimi",
        "--max-model-len", "8192", "--kv-transfer-config", nixl(role), *flags,
    ]  # fmt: skip
    environ = {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(channel),
        **(env or {}),
    }
    return lab.start(state, argv, env=environ, port=port), port


@pytest.fixture
def pair(lab: Lab, kimi: Path, tmp_path: Path) -> tuple[int, int]:
    prefill, first = start_vllm(lab, make_state(tmp_path / "p"), kimi, "kv_producer")
    decode, second = start_vllm(lab, make_state(tmp_path / "d"), kimi, "kv_consumer")
    wait_healthy(prefill, first)
    wait_healthy(decode, second)
    return first, second


def prefill_by_hand(port: int) -> dict[str, Any]:
    status, answer = chat(port, PROMPT, max_tokens=1, kv_transfer_params=PREFILL_PARAMS)
    assert status == 200
    params: dict[str, Any] = answer["kv_transfer_params"]
    return params


def test_decode_fetches_what_prefill_computed(pair: tuple[int, int], tmp_path: Path) -> None:
    params = prefill_by_hand(pair[0])
    assert {"do_remote_prefill", "remote_block_ids", "remote_engine_id", "remote_request_id", "remote_host",
            "remote_port", "tp_size"} <= set(params)  # fmt: skip
    assert params["remote_host"] == "127.0.0.1"
    status, answer = chat(pair[1], PROMPT, kv_transfer_params=params)
    assert status == 200
    assert answer["choices"][0]["message"]["content"].endswith("42.")
    assert journal(tmp_path / "d")[-1]["kv_from"] == f"127.0.0.1:{params['remote_port']}"
    assert journal(tmp_path / "p")[-1]["role"] == "kv_producer"


def test_blocks_are_fetched_once_and_must_exist(pair: tuple[int, int]) -> None:
    params = prefill_by_hand(pair[0])
    assert chat(pair[1], PROMPT, kv_transfer_params=params)[0] == 200
    status, answer = chat(pair[1], PROMPT, kv_transfer_params=params)
    assert status == 500
    assert answer["error"] == {
        "message": "Internal server error", "type": "InternalServerError", "param": None, "code": 500,
    }  # fmt: skip


def test_a_bare_request_to_a_vllm_decode_rank_is_computed_there(
    pair: tuple[int, int], tmp_path: Path
) -> None:
    assert chat(pair[1], PROMPT)[0] == 200
    assert journal(tmp_path / "d")[-1]["kv_from"] is None


def test_a_side_channel_on_localhost_is_not_found_from_elsewhere(
    pair: tuple[int, int], lab: Lab
) -> None:
    params = {**prefill_by_hand(pair[0]), "remote_host": "127.0.0.9"}
    status, _ = chat(pair[1], PROMPT, kv_transfer_params=params)
    assert status == 500
    assert "NIXL handshake with tcp://127.0.0.9" in lab.engines[1].output()


def test_a_base_port_gets_the_rank_added(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    port, rpc, base, above = free_ports(4)
    argv = [
        "vllm", "serve", str(kimi), "-tp", "4", "-dp", "2", "-dpl", "2", "--data-parallel-rpc-port", str(rpc),
        "--port", str(port), "--max-model-len", "8192", "--kv-transfer-config", nixl("kv_both"),
    ]  # fmt: skip
    env = {"VLLM_NIXL_SIDE_CHANNEL_PORT": str(base)}
    engine = lab.start(make_state(tmp_path / "h"), argv, env=env)
    wait_healthy(engine, port)
    seen = {
        rank: chat(port, PROMPT, max_tokens=1, kv_transfer_params=PREFILL_PARAMS,
                   headers={"X-data-parallel-rank": str(rank)})[1]["kv_transfer_params"]
        for rank in (0, 1)
    }  # fmt: skip
    assert [seen[rank]["remote_port"] for rank in (0, 1)] == [base, above]
    assert seen[0]["remote_host"] == "localhost"
    assert seen[0]["remote_engine_id"].endswith("_dp0")


def test_a_request_without_blocks_ends_a_decode_rank_and_one_without_a_host_waits_for_ever(
    lab: Lab, kimi: Path, tmp_path: Path
) -> None:
    prefill, first = start_vllm(lab, make_state(tmp_path / "p"), kimi, "kv_producer")
    decode, second = start_vllm(lab, make_state(tmp_path / "d"), kimi, "kv_consumer")
    wait_healthy(prefill, first)
    wait_healthy(decode, second)
    params = prefill_by_hand(first)
    lacking = {key: value for key, value in params.items() if key != "remote_host"}
    with pytest.raises(OSError, match="timed out"):
        ask_briefly(second, lacking)
    assert chat(second, PROMPT, kv_transfer_params={**params, "remote_block_ids": None})[0] == 500
    assert decode.wait() == 0


def ask_briefly(port: int, params: dict[str, Any]) -> None:
    body = {"model": "kimi", "prompt": PROMPT, "kv_transfer_params": params}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=0.5)  # noqa: S310 - loopback


@pytest.mark.parametrize(
    ("accelerator", "flags"),
    [
        ("h200", ("--kv-cache-dtype", "fp8")),
        ("h200", ("--dtype", "float16")),
        ("gb200", ()),  # where vLLM takes another attention back end by itself
    ],
)
def test_incompatible_engines_do_not_share_kv(
    lab: Lab, kimi: Path, tmp_path: Path, accelerator: str, flags: tuple[str, ...]
) -> None:
    prefill, first = start_vllm(lab, make_state(tmp_path / "p"), kimi, "kv_producer")
    state = make_state(tmp_path / "d", accelerator=accelerator)
    decode, second = start_vllm(lab, state, kimi, "kv_consumer", *flags)
    wait_healthy(prefill, first)
    wait_healthy(decode, second)
    assert chat(second, PROMPT, kv_transfer_params=prefill_by_hand(first))[0] == 500
    assert "NIXL compatibility hash mismatch. Local: " in decode.output()


def test_an_engine_without_its_side_channel_waits_for_ever(
    lab: Lab, kimi: Path, tmp_path: Path
) -> None:
    port = free_ports()[0]
    env = {"VLLM_NIXL_SIDE_CHANNEL_PORT": str(port)}
    first, first_port = start_vllm(lab, make_state(tmp_path / "p"), kimi, "kv_producer", env=env)
    wait_healthy(first, first_port)
    second, second_port = start_vllm(lab, make_state(tmp_path / "d"), kimi, "kv_consumer", env=env)
    said = f"zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:{port}')"
    deadline = time.monotonic() + 10
    while said not in second.output() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert "Exception in thread nixl_handshake_listener" in second.output()
    assert second.process.poll() is None
    with pytest.raises(OSError, match="refused"):
        call(second_port, "/health")


@contextmanager
def router(name: str, tmp_path: Path, *flags: str) -> Iterator[int]:
    """Start a real router's program; yield its port."""
    program = Path(sys.executable).parent / name
    if not program.exists():
        found = shutil.which(name)
        if found is None:
            what = f"{name} is not installed (dependency group `rehearsal`)."
            lacks(PrerequisiteError("tests", what, "Type: scripts/setup"))
        program = Path(found)
    port, prometheus = free_ports(2)
    launch = ["launch"] if name == "sglang-router" else []
    log = (tmp_path / "router.log").open("w")
    process = subprocess.Popen(
        [str(program), *launch, "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(prometheus),
         *flags],
        stdout=log, stderr=subprocess.STDOUT, cwd=tmp_path,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            assert process.poll() is None, (tmp_path / "router.log").read_text()
            try:
                if call(port, "/readiness")[0] == 200:
                    break
            except OSError:
                pass
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()
        log.close()


@pytest.mark.slow  # the real router
def test_through_the_real_vllm_router(pair: tuple[int, int], tmp_path: Path) -> None:
    urls = [f"http://127.0.0.1:{port}" for port in pair]
    flags = (
        "--vllm-pd-disaggregation",
        "--prefill",
        urls[0],
        "--decode",
        urls[1],
        "--policy",
        "round_robin",
    )
    with router("vllm-router", tmp_path, *flags, "--worker-startup-check-interval", "1") as port:
        status, answer = chat(port, PROMPT, model="kimi", max_tokens=60)
        assert status == 200, (tmp_path / "router.log").read_text()
        assert answer["choices"][0]["message"]["content"].endswith("42.")
        body = {"model": "kimi", "messages": [{"role": "user", "content": "1+1?"}], "stream": True}
        assert call(port, "/v1/chat/completions", body)[1].endswith("data: [DONE]\n\n")
    served = journal(tmp_path / "d")
    assert [x["kv_from"] is not None for x in served] == [True, True]
    assert "___prefill_addr_127.0.0.1" in served[0]["request_id"]
    assert [x["completion_tokens"] for x in journal(tmp_path / "p")] == [1, 1]


def start_sglang(lab: Lab, state: Path, model: Path, *flags: str) -> tuple[Engine, int]:
    port = free_ports()[0]
    argv = ["python3", "-m", "sglang.launch_server", "--model-path", str(model), "--tp", "8", "--port", str(port),
            "--host", "127.0.0.1", *flags]  # fmt: skip
    return lab.start(state, argv, engine="sglang", version="0.5.9"), port


@pytest.mark.slow  # the real router
def test_through_the_real_sglang_router(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    bootstrap = free_ports()[0]
    modes = ("--disaggregation-mode", "prefill", "--disaggregation-bootstrap-port", str(bootstrap))
    prefill, first = start_sglang(lab, make_state(tmp_path / "p"), kimi, *modes)
    decode, second = start_sglang(
        lab, make_state(tmp_path / "d"), kimi, "--disaggregation-mode", "decode"
    )
    wait_healthy(prefill, first)
    wait_healthy(decode, second)
    urls = [f"http://127.0.0.1:{port}" for port in (first, second)]
    flags = ("--pd-disaggregation", "--prefill", urls[0], str(bootstrap), "--decode", urls[1])
    with router("sglang-router", tmp_path, *flags) as port:
        status, answer = chat(port, PROMPT, model=str(kimi), max_tokens=60)
        assert status == 200, (tmp_path / "router.log").read_text()
        assert answer["choices"][0]["message"]["content"].endswith("42.")
    assert journal(tmp_path / "d")[-1]["kv_from"]
    assert journal(tmp_path / "p")[-1]["role"] == "kv_producer"


def test_sglang_without_a_room_or_a_bootstrap_server(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    state = make_state(tmp_path / "d", time_scale=0.001)
    decode, port = start_sglang(lab, state, kimi, "--disaggregation-mode", "decode")
    wait_healthy(decode, port)
    status, answer = chat(port, PROMPT)
    assert status == 400
    assert "Disaggregated request received without bootstrap room id." in answer["message"]
    where = {"bootstrap_host": "127.0.0.1", "bootstrap_port": free_ports()[0], "bootstrap_room": 7}
    status, answer = chat(port, PROMPT, **where)
    assert status == 500
    assert (
        "Could not fetch prefill parallel info from bootstrap_addr: 127.0.0.1" in answer["message"]
    )


def ascend(role: str, port: int) -> str:
    sizes = {"prefill": {"tp_size": 8, "dp_size": 2}, "decode": {"tp_size": 2, "dp_size": 8}}
    config = {"kv_connector": "MooncakeConnectorV1", "kv_role": role, "kv_port": port, "engine_id": role,
              "kv_connector_extra_config": sizes}  # fmt: skip
    return json.dumps(config)


def start_ascend(
    lab: Lab, state: Path, model: Path, role: str, hccn: Path
) -> tuple[Engine, int, int]:
    port, rpc = free_ports(2)
    kv_port = free_ports(16)[0]
    size = ("-tp", "8", "-dp", "2") if role == "kv_producer" else ("-tp", "2", "-dp", "8")
    argv = [
        "vllm", "serve", str(model), *size, "--enable-expert-parallel", "--port", str(port), "--data-parallel-rpc-port",
        str(rpc), "--served-model-name", "kimi", "--max-model-len", "8192", "--kv-transfer-config",
        ascend(role, kv_port),
    ]  # fmt: skip
    env = {"MOE_REHEARSAL_HCCN_CONF": str(hccn)}
    engine = lab.start(state, argv, engine="vllm-ascend", plugin="0.22.1rc1", env=env)
    return engine, port, kv_port


@pytest.fixture
def hccn(tmp_path: Path) -> Path:
    path = tmp_path / "hccn.conf"
    path.write_text("address_0=10.0.0.1\n")
    return path


def test_through_the_ascend_proxy(lab: Lab, kimi_w4a8: Path, tmp_path: Path, hccn: Path) -> None:
    states = [make_state(tmp_path / x, accelerator="ascend-a3", num_devices=16) for x in ("p", "d")]
    prefill, first, kv_port = start_ascend(lab, states[0], kimi_w4a8, "kv_producer", hccn)
    decode, second, _ = start_ascend(lab, states[1], kimi_w4a8, "kv_consumer", hccn)
    wait_healthy(prefill, first)
    wait_healthy(decode, second)
    port = free_ports()[0]
    argv = [
        "python3", "/workspace/load_balance_proxy_server_example.py", "--port", str(port), "--host", "127.0.0.1",
        "--prefiller-hosts", "127.0.0.1", "--prefiller-ports", str(first),
        "--decoder-hosts", "127.0.0.1", "--decoder-ports", str(second),
    ]  # fmt: skip
    proxy = lab.start(states[0], argv, engine="ascend-proxy", version="0.22.1rc1")
    wait_healthy(proxy, port, path="/healthcheck")
    status, answer = chat(port, PROMPT, model="kimi")
    assert (status, answer["choices"][0]["message"]["content"][-3:]) == (200, "42.")
    stream = {"model": "kimi", "messages": [{"role": "user", "content": "1+1?"}], "stream": True}
    assert call(port, "/v1/chat/completions", stream)[1].endswith("data: [DONE]\n\n")
    served = journal(states[1])
    assert len(served) == 2
    # a producer listens at kv_port + rank * TP
    assert {x["kv_from"] for x in served} <= {f"127.0.0.1:{kv_port + 8 * rank}" for rank in (0, 1)}
    # a request that did not come from a prefill kills an Ascend decode rank; its front end leaves with 0
    assert chat(second, PROMPT)[0] == 500
    assert decode.wait() == 0
    assert "a request without remote KV blocks reached a decode-only rank" in decode.output()
    assert chat(port, PROMPT, model="kimi")[0] == 500


def test_mooncake_reads_hccn_conf(lab: Lab, kimi_w4a8: Path, tmp_path: Path) -> None:
    state = make_state(tmp_path / "p", accelerator="ascend-a3", num_devices=16)
    engine, _, _ = start_ascend(lab, state, kimi_w4a8, "kv_producer", tmp_path / "nothing")
    assert engine.wait() == 1
    assert "TransferEngine initialization failed with ret_value: -1" in engine.output()


def test_the_proxy_wants_as_many_ports_as_hosts(lab: Lab, tmp_path: Path) -> None:
    argv = [
        "python",
        "load_balance_proxy_server_example.py",
        "--decoder-hosts",
        "a",
        "b",
        "--decoder-ports",
        "1",
    ]
    proxy = lab.start(make_state(tmp_path / "p"), argv, engine="ascend-proxy", version="0.22.1rc1")
    assert proxy.wait() == 1
    assert (
        "ValueError: Number of decoder hosts must match number of decoder ports" in proxy.output()
    )


def test_vllms_own_mooncake_asks_the_bootstrap_server(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    ports = free_ports(3)
    engines = []
    for role, port in zip(("kv_producer", "kv_consumer"), ports, strict=False):
        config = json.dumps({"kv_connector": "MooncakeConnector", "kv_role": role})
        argv = ["vllm", "serve", str(kimi), "-tp", "8", "--port", str(port), "--max-model-len", "8192",
                "--kv-transfer-config", config]  # fmt: skip
        env = {"VLLM_MOONCAKE_BOOTSTRAP_PORT": str(ports[2])}
        engines.append(lab.start(make_state(tmp_path / role), argv, env=env))
    for engine, port in zip(engines, ports, strict=False):
        wait_healthy(engine, port)
    workers = json.loads(call(ports[2], "/query")[1])
    transfer = {"transfer_id": "t1"}
    assert (
        chat(ports[0], PROMPT, max_tokens=1, kv_transfer_params={**PREFILL_PARAMS, **transfer})[0]
        == 200
    )
    params = {"do_remote_prefill": True, "do_remote_decode": False, **transfer,
              "remote_engine_id": workers["0"]["engine_id"],
              "remote_bootstrap_addr": f"http://127.0.0.1:{ports[2]}"}  # fmt: skip
    assert chat(ports[1], PROMPT, kv_transfer_params=params)[0] == 200
    assert journal(tmp_path / "kv_consumer")[-1]["kv_from"]
