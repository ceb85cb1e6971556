"""What containers, pods and jobs are given is read in every format, and what is too little or unused is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plan.foreign.importing import imported, judged

MODEL = "moonshotai/Kimi-K2.5 --tensor-parallel-size 8 --max-model-len 32768"
IMAGE = "vllm/vllm-openai:v0.22.1"
LITTLE = 64 << 20


def run(options: str, runtime: str = "docker") -> str:
    return f"{runtime} run --gpus all --network host {options} {IMAGE} {MODEL}\n"


def service(keys: str) -> str:
    return f'services:\n  engine: {{image: "{IMAGE}", network_mode: host, command: "--model {MODEL}"{keys}}}\n'


def pod(mounts: str, volumes: str, spec: str = "") -> str:
    words = ", ".join(f'"{word}"' for word in MODEL.split())
    container = f'{{name: vllm, image: "{IMAGE}", args: [{words}], volumeMounts: [{mounts}]}}'
    return (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: kimi}\n"
        f"spec: {{template: {{spec: {{{spec}containers: [{container}], volumes: [{volumes}]}}}}}}\n"
    )


SHM = "{name: shm, mountPath: /dev/shm}"
FILES: dict[str, tuple[str, str, int | None]] = {
    "docker": (run(""), "run.sh", LITTLE),
    "podman": (run("", "podman"), "run.sh", LITTLE),
    "private": (run("--ipc=private"), "run.sh", LITTLE),
    "small": (run("--shm-size 32m"), "run.sh", 32 << 20),
    "host": (run("--ipc host"), "run.sh", None),
    "size": (run("--shm-size=10g"), "run.sh", 10 << 30),
    "open": (run("--shm-size=$SIZE"), "run.sh", None),
    "volume": (run("-v /dev/shm:/dev/shm"), "run.sh", None),
    "tmpfs": (run("--tmpfs /dev/shm:rw,size=8g"), "run.sh", 8 << 30),
    "mount": (run("--mount type=tmpfs,target=/dev/shm,tmpfs-size=1g"), "run.sh", 1 << 30),
    "native": (f"vllm serve {MODEL}\n", "run.sh", None),
    "compose": (service(""), "compose.yaml", LITTLE),
    "compose-size": (service(', shm_size: "16gb"'), "compose.yaml", 16 << 30),
    "compose-host": (service(", ipc: host"), "compose.yaml", None),
    "compose-tmpfs": (service(', tmpfs: ["/dev/shm:size=2g"]'), "compose.yaml", 2 << 30),
    "compose-volume": (service(', volumes: ["/dev/shm:/dev/shm"]'), "compose.yaml", None),
    "pod": (pod("", ""), "pod.yaml", LITTLE),
    "pod-memory": (pod(SHM, "{name: shm, emptyDir: {medium: Memory}}"), "pod.yaml", None),
    "pod-limit": (
        pod(SHM, "{name: shm, emptyDir: {medium: Memory, sizeLimit: 32Mi}}"),
        "pod.yaml",
        32 << 20,
    ),
    "pod-host": (pod("", "", "hostIPC: true, "), "pod.yaml", None),
}


@pytest.mark.parametrize("name", FILES)
def test_shared_memory_is_read_and_judged(name: str, tmp_path: Path) -> None:
    text, file, size = FILES[name]
    (seat,) = imported(tmp_path, text, file).assembled.seats.values()
    container = seat.launch.container
    assert (container.shared_bytes if container else None) == size
    found = [p.rule for p in judged(tmp_path, text, file).problems if p.blocks]
    assert found == (["shared-memory"] if size is not None and size <= LITTLE else [])


@pytest.mark.parametrize(
    ("engine", "is_found"),
    [
        (f"{IMAGE} m/m --tensor-parallel-size 1", False),
        ("quay.io/ascend/vllm-ascend:v0.22.1rc1 vllm serve m/m --tensor-parallel-size 8", False),
        ("lmsysorg/sglang:v0.5.9 python3 -m sglang.launch_server --model-path m/m --tp 8", True),
        ("rocm/vllm:latest vllm serve m/m --tensor-parallel-size 8", True),
        (f"-e NCCL_SHM_DISABLE=1 {IMAGE} m/m --tensor-parallel-size 8", False),
    ],
    ids=["one-worker", "ascend", "sglang", "amd", "without-segments"],
)
def test_shared_memory_matters_to_workers_with_nccl(
    engine: str, is_found: bool, tmp_path: Path
) -> None:
    problems = judged(tmp_path, f"docker run --network host {engine}\n").problems
    assert ("shared-memory" in {problem.rule for problem in problems}) is is_found


BATCH = "#!/bin/bash\n#SBATCH --nodes={0}\n#SBATCH --gpus-per-node=8\n"
NODES = "".join(
    f"srun -N1 -w node{n} vllm serve m/m -tp 16 --nnodes 2 --node-rank {n} --master-addr node0 {more}&\n"
    for n, more in ((0, ""), (1, "--headless "))
)
RESERVED = "{deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 4, capabilities: [gpu]}]}}}"
COMPOSE = f'services: {{a: {RESERVED}, image: "{IMAGE}", ipc: host, command: --model m/m -tp 2}}}}'
CARDS = "--device /dev/davinci0 --device /dev/davinci1 --device /dev/davinci_manager"
ASCEND = "quay.io/ascend/vllm-ascend:v0.22.1rc1 vllm serve m/m"
SPARE = {
    "devices-of-docker": (
        f"docker run --gpus 8 --ipc host {IMAGE} m/m -tp 4\n",
        "run.sh",
        "devices-unused",
    ),
    "devices-of-compose": (COMPOSE, "compose.yaml", "devices-unused"),
    "devices-of-ascend": (f"docker run {CARDS} {ASCEND}\n", "run.sh", "devices-unused"),
    "nodes-of-slurm": (BATCH.format(4) + NODES, "job.sh", "hosts-unused"),
    "devices-of-slurm": (
        BATCH.format(1) + "srun vllm serve m/m -tp 4\n",
        "job.sh",
        "devices-unused",
    ),
    "devices-of-each-node": (
        BATCH.format(2) + NODES.replace("-tp 16", "-tp 8"),
        "job.sh",
        "devices-unused",
    ),
}
TWO = "CUDA_VISIBLE_DEVICES=0 vllm serve m/m & CUDA_VISIBLE_DEVICES=1 vllm serve m/m --port 8001"
USED = {
    "all-of-docker": (f"docker run --gpus 8 --ipc host {IMAGE} m/m -tp 8\n", "run.sh"),
    "all-whatever-they-are": (f"docker run --gpus all --ipc host {IMAGE} m/m -tp 4\n", "run.sh"),
    "two-engines-of-one": (f"docker run --gpus 2 --ipc host other bash -c '{TWO}'\n", "run.sh"),
    "nodes-of-slurm": (BATCH.format(2) + NODES, "job.sh"),
    "a-script-on-each-node": (BATCH.format(4) + "srun vllm serve m/m -tp 8\n", "job.sh"),
}


@pytest.mark.parametrize("name", SPARE)
def test_what_is_asked_for_and_unused_is_warned_of(name: str, tmp_path: Path) -> None:
    text, file, rule = SPARE[name]
    assert rule in {problem.rule for problem in judged(tmp_path, text, file).problems}


@pytest.mark.parametrize("name", USED)
def test_what_is_used_is_not(name: str, tmp_path: Path) -> None:
    rules = {problem.rule for problem in judged(tmp_path, *USED[name]).problems}
    assert not rules & {"devices-unused", "hosts-unused"}
