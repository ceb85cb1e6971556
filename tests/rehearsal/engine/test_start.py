"""What keeps an engine from starting on its host: ports, devices, weights, the image it is not in."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.ports import free_ports
from tests.rehearsal.engine.simulated_host import (
    Lab,
    call,
    make_checkpoint,
    make_state,
    wait_healthy,
)

CUDA = "CUDA_VISIBLE_DEVICES"


def serve(model: Path, port: int, *flags: str) -> list[str]:
    return ["vllm", "serve", str(model), "--port", str(port), "--max-model-len", "8192", *flags]


def test_a_second_process_on_a_device_runs_out_of_memory(
    lab: Lab, kimi: Path, tmp_path: Path
) -> None:
    state, ports = make_state(tmp_path / "h", load_seconds=0.2), free_ports(3)
    first = lab.start(state, serve(kimi, ports[0], "-tp", "8"))
    wait_healthy(first, ports[0])
    second = lab.start(state, serve(kimi, ports[1], "-tp", "8"))
    assert second.wait() == 1
    assert "on startup is less than desired GPU memory utilization" in second.output()
    assert "torch.OutOfMemoryError: CUDA out of memory." in second.output()


def test_masked_processes_share_a_host(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    state, ports = make_state(tmp_path / "h", accelerator="mi325x"), free_ports(3)
    masks = ("0,1,2,3", "4,5,6,7")
    engines = [
        lab.start(state, serve(kimi, port, "-tp", "4"), env={"HIP_VISIBLE_DEVICES": mask})
        for port, mask in zip(ports, masks, strict=False)
    ]
    for engine, port in zip(engines, ports, strict=False):
        wait_healthy(engine, port)
    third = lab.start(
        state, serve(kimi, ports[2], "-tp", "4"), env={"HIP_VISIBLE_DEVICES": "1,2,3,4"}
    )
    assert third.wait() == 1


@pytest.mark.parametrize(
    ("accelerator", "env", "expected"),
    [
        ("h200", {CUDA: "0,1,2"}, "World size (8) is larger than the number of available GPUs (3)"),
        ("h200", {CUDA: "0,1,2,9,3,4,5,6"}, "number of available GPUs (3)"),
        ("h200", {"MOE_REHEARSAL_DEVICES": "0,1,2,3"}, "number of available GPUs (4)"),
        ("mi325x", {"HIP_VISIBLE_DEVICES": "0,1"}, "DP adjusted local rank 2 is out of bounds."),
    ],
)
def test_a_mask_hides_devices(
    lab: Lab, kimi: Path, tmp_path: Path, accelerator: str, env: dict[str, str], *, expected: str
) -> None:
    state = make_state(tmp_path / "h", accelerator=accelerator)
    engine = lab.start(state, serve(kimi, free_ports()[0], "-tp", "8"), env=env)
    assert engine.wait() == 1
    assert expected in engine.output()


def test_an_external_rank_without_devices_sees_none(
    lab: Lab, kimi_nvfp4: Path, tmp_path: Path
) -> None:
    state = make_state(tmp_path / "h", accelerator="gb200", num_devices=4)
    engine = lab.start(state, serve(kimi_nvfp4, free_ports()[0], "-tp", "1"), env={CUDA: ""})
    assert engine.wait() == 1
    assert "RuntimeError: No CUDA GPUs are available" in engine.output()


def test_a_port_in_use_is_refused(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        engine = lab.start(
            make_state(tmp_path / "h"), serve(kimi, listener.getsockname()[1], "-tp", "8")
        )
        assert engine.wait() == 1
    assert "OSError: [Errno 98] Address already in use" in engine.output()


def test_two_engines_share_a_port_without_a_word(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    port = free_ports()[0]
    first = lab.start(make_state(tmp_path / "h"), serve(kimi, port, "-tp", "8"))
    wait_healthy(first, port)
    first.process.send_signal(signal.SIGSTOP)
    second = lab.start(make_state(tmp_path / "g"), serve(kimi, port, "-tp", "8"))
    deadline = time.monotonic() + 10
    while "Application startup complete" not in second.output() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert second.process.poll() is None
    assert "Application startup complete" in second.output()


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (
            lambda f: (f / "model-00002-of-00004.safetensors").unlink(),
            "not initialized from checkpoint",
        ),
        (
            lambda f: (f / "model-00003-of-00004.safetensors").write_bytes(b"x"),
            "incomplete metadata, file not",
        ),
        (
            lambda f: [x.unlink() for x in f.glob("*.safetensors")],
            "Cannot find any model weights with",
        ),
        (
            lambda f: (f / "config.json").unlink(),
            "Invalid repository ID or local directory specified",
        ),
    ],
)
def test_damaged_weights_are_noticed(
    lab: Lab, tmp_path: Path, spoil: object, expected: str
) -> None:
    model = make_checkpoint(tmp_path / "weights")
    assert callable(spoil)
    spoil(model)
    engine = lab.start(make_state(tmp_path / "h"), serve(model, free_ports()[0], "-tp", "8"))
    assert engine.wait() == 1
    assert expected in engine.output()


def test_a_program_that_the_image_does_not_hold(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    argv = ["python3", "-m", "sglang.launch_server", "--model-path", str(kimi), "--tp", "8"]
    engine = lab.start(make_state(tmp_path / "h"), argv, engine="vllm")
    assert engine.wait() == 1
    assert "executable file not found in $PATH" in engine.output()


def test_a_vllm_image_finds_no_device_on_an_ascend_host(
    lab: Lab, kimi: Path, tmp_path: Path
) -> None:
    state = make_state(tmp_path / "h", accelerator="ascend-a3", num_devices=16)
    engine = lab.start(state, serve(kimi, free_ports()[0], "-tp", "16"))
    assert engine.wait() == 1
    assert "Failed to infer device type" in engine.output()


def test_it_runs_from_a_zip_file(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    package = Path(__file__).parents[3] / "infra" / "rehearsal" / "engine"
    archive = shutil.make_archive(str(tmp_path / "engine"), "zip", package)
    port = free_ports()[0]
    engine = lab.start(
        make_state(tmp_path / "h"), serve(kimi, port, "-tp", "8"), package=Path(archive)
    )
    wait_healthy(engine, port)


def test_sglang_serves_and_dies_by_its_signal(lab: Lab, kimi: Path, tmp_path: Path) -> None:
    port = free_ports()[0]
    argv = [
        "sglang",
        "serve",
        "--model-path",
        str(kimi),
        "--tp",
        "8",
        "--port",
        str(port),
        "--enable-metrics",
    ]
    engine = lab.start(make_state(tmp_path / "h"), argv, engine="sglang", version="0.5.9")
    wait_healthy(engine, port)
    body = {"messages": [{"role": "user", "content": "3*4?"}]}
    answer = json.loads(call(port, "/v1/chat/completions", body)[1])
    assert answer["choices"][0]["message"]["content"].endswith("The answer is 12.")
    native = json.loads(
        call(port, "/generate", {"text": "3*4=", "sampling_params": {"max_new_tokens": 4}})[1]
    )
    assert native["text"] == " 12"
    assert json.loads(call(port, "/get_model_info")[1])["model_path"] == str(kimi)
    assert json.loads(call(port, "/server_info")[1])["version"] == "0.5.9"
    assert "sglang:generation_tokens_total" in call(port, "/metrics")[1]
    engine.process.terminate()
    assert engine.wait() == -15


@pytest.mark.parametrize(
    ("accelerator", "env", "expected"),
    [
        ("h200", {"GLOO_SOCKET_IFNAME": "ib7"}, "Unable to find address for: ib7"),
        ("h200", {"NCCL_SOCKET_IFNAME": "ib"}, "Bootstrap : no socket interface found"),
        ("ascend-a3", {"HCCL_SOCKET_IFNAME": "ib7"}, "[HCCL_SOCKET_IFNAME] is invalid"),
        ("ascend-a3", {"HCCL_IF_IP": "192.0.2.77"}, "[HCCL_IF_IP] is invalid: 192.0.2.77"),
    ],
)
def test_collectives_need_an_interface_and_an_address_of_their_own(
    lab: Lab,
    kimi_w4a8: Path,
    tmp_path: Path,
    accelerator: str,
    env: dict[str, str],
    *,
    expected: str,
) -> None:
    state = make_state(tmp_path / "h", accelerator=accelerator, num_devices=16)
    engine = "vllm-ascend" if accelerator.startswith("ascend") else "vllm"
    plugin = "0.22.1rc1" if engine == "vllm-ascend" else ""
    model = kimi_w4a8 if plugin else make_checkpoint(tmp_path / "weights")
    argv = serve(model, free_ports()[0], "-tp", "16")
    started = lab.start(state, argv, engine=engine, plugin=plugin, env=env)
    assert started.wait() == 1
    assert expected in started.output()
