"""Builds what a simulated engine finds on a simulated host, and starts engines on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[3]
PACKAGE = REPOSITORY / "infra" / "rehearsal" / "engine"
CATALOGUES = REPOSITORY / "infra" / "catalog"
KIMI_TEXT = {
    "model_type": "kimi_k2",
    "num_hidden_layers": 61,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "n_routed_experts": 384,
    "max_position_embeddings": 262144,
    "hidden_size": 7168,
}
QUANTIZATION: Mapping[str, dict[str, Any]] = {
    "int4": {"quant_method": "compressed-tensors"},
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
}
# vendor, generation, MiB of a device, whether the fabric spans hosts
HOSTS: Mapping[str, tuple[str, str, int, bool]] = {
    "h200": ("nvidia", "hopper", 143771, False),
    "gb200": ("nvidia", "blackwell", 189471, True),
    "mi300x": ("amd", "cdna3", 196592, False),
    "mi325x": ("amd", "cdna3", 262144, False),
    "ascend-a3": ("ascend", "ascend-a3", 65536, True),
}


def make_checkpoint(
    folder: Path, *, scheme: str = "int4", has_vision: bool = True, total_gb: float = 595.1
) -> Path:
    """Write a Kimi-shaped checkpoint with sparse weight files; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {"architectures": ["KimiK25ForConditionalGeneration"]}
    text = dict(KIMI_TEXT)
    if scheme in QUANTIZATION:
        text["quantization_config"] = QUANTIZATION[scheme]
    if has_vision:
        config.update({"model_type": "kimi_k25", "text_config": text, "vision_config": {}})
    else:
        config.update(text)
    (folder / "config.json").write_text(json.dumps(config))
    if scheme == "w4a8":
        (folder / "quant_model_description.json").write_text("{}")
    total = int(total_gb * 1e9)
    sizes = [total // 4] * 3 + [total - 3 * (total // 4)]
    files = []
    for index, size in enumerate(sizes):
        name = f"model-{index + 1:05d}-of-00004.safetensors"
        with (folder / name).open("wb") as file:
            file.truncate(size)
        files.append({"name": name, "size_bytes": size})
    manifest = {
        "schema_version": 1,
        "repository": "moonshotai/Kimi-K2.5",
        "revision": "0" * 40,
        "files": files,
        "expert_bytes": int(total * 0.959),
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def make_state(
    folder: Path, *, accelerator: str = "h200", num_devices: int = 8, **more: Any
) -> Path:
    """Write ``host.json``; return the state folder."""
    folder.mkdir(parents=True, exist_ok=True)
    vendor, generation, memory, spans_hosts = HOSTS[accelerator]
    host = {
        "schema_version": 1,
        "host": folder.name,
        "address": "127.0.0.1",
        "vendor": vendor,
        "accelerator": accelerator,
        "generation": generation,
        "fabric_spans_hosts": spans_hosts,
        "product_name": accelerator.upper(),
        "memory_mib": memory,
        "num_devices": num_devices,
        "driver_version": "1",
        "architecture": "x86_64",
        "time_scale": 0.02,
        "load_seconds": 0.02,
        "image": "",
    }
    (folder / "host.json").write_text(json.dumps({**host, **more}))
    return folder


@dataclass
class Engine:
    """A started program and what it printed so far."""

    process: subprocess.Popen[str]
    output_path: Path
    port: int | None = None

    def output(self) -> str:
        """Return stdout and stderr so far."""
        return self.output_path.read_text()

    def wait(self, seconds: float = 10.0) -> int:
        """Return the exit code."""
        return self.process.wait(seconds)


@dataclass
class Lab:
    """Starts programs and stops all of them at the end."""

    folder: Path
    engines: list[Engine] = field(default_factory=list)

    def start(
        self,
        state: Path,
        argv: Sequence[str],
        *,
        engine: str = "vllm",
        version: str = "0.22.1",
        plugin: str = "",
        env: Mapping[str, str] | None = None,
        port: int | None = None,
        package: Path = PACKAGE,
    ) -> Engine:
        """Start a program on a simulated host."""
        path = self.folder / f"engine-{len(self.engines)}.log"
        environment = {
            "PATH": os.environ["PATH"],
            "MOE_REHEARSAL_STATE": str(state),
            "MOE_REHEARSAL_CATALOGUES": str(CATALOGUES),
            "MOE_REHEARSAL_ENGINE": engine,
            "MOE_REHEARSAL_ENGINE_VERSION": version,
            "MOE_REHEARSAL_PLUGIN_VERSION": plugin,
            **(env or {}),
        }
        with path.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(package), *argv],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
            )
        started = Engine(process, path, port)
        self.engines.append(started)
        return started

    def stop(self) -> None:
        """Stop what was started."""
        for engine in self.engines:
            if engine.process.poll() is None:
                engine.process.send_signal(signal.SIGKILL)
            engine.process.wait()


def call(
    port: int,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    host: str = "127.0.0.1",
) -> tuple[int, str]:
    """Send a request; return status and text."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://{host}:{port}{path}",
        data=data,
        headers={"Content-Type": "application/json", **(headers or {})},
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        return int(error.code), error.read().decode()


def chat(port: int, content: Any, **more: Any) -> tuple[int, Any]:
    """Send a chat request; return status and document."""
    headers = more.pop("headers", None)
    body = {"messages": [{"role": "user", "content": content}], **more}
    status, text = call(port, "/v1/chat/completions", body, headers)
    return status, json.loads(text)


def wait_healthy(engine: Engine, port: int, seconds: float = 10.0, path: str = "/health") -> None:
    """Wait until a port answers 200; fail with the program's output when it ends before."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if engine.process.poll() is not None:
            raise AssertionError(f"left with {engine.process.returncode}:\n{engine.output()}")
        try:
            if call(port, path)[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.02)
    raise AssertionError(f"not healthy in {seconds} s:\n{engine.output()}")


def journal(state: Path) -> list[dict[str, Any]]:
    """Return the served requests of a host."""
    path = state / "requests.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
