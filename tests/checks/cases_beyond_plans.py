"""Broken and right cases of rules about what a plan document does not hold: a stack's own fields, a pod's probes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class StackCase:
    """A stack with `--set` words that a rule finds fault with, and others that it passes; `says` is in the message."""

    stack: str
    broken: tuple[str, ...]
    right: tuple[str, ...]
    says: str


@dataclass(frozen=True)
class ManifestCase:
    """A manifest, or another `file`, that a rule finds fault with, and one that it passes; `says` is in the message."""

    broken: str
    right: str
    says: str
    file: str = "pod.yaml"


def pod(probes: str) -> str:
    """A pod of eight H200 that serves Kimi-K2.5, with probes."""
    return f"""\
apiVersion: v1
kind: Pod
metadata: {{name: kimi}}
spec:
  nodeSelector: {{nvidia.com/gpu.product: NVIDIA-H200}}
  containers:
    - name: engine
      image: vllm/vllm-openai:v0.22.1
      args: [moonshotai/Kimi-K2.5, --tensor-parallel-size, "8"]
      resources: {{limits: {{nvidia.com/gpu: 8}}}}
{probes}"""


def ranks(backend: str) -> str:
    """A set of sixteen pods, a rank and a device in each, with a transport between their experts."""
    return f"""\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: wide}}
spec:
  leaderWorkerTemplate:
    size: 16
    workerTemplate:
      spec:
        nodeSelector: {{nvidia.com/gpu.product: NVIDIA-H200}}
        containers:
          - name: engine
            image: vllm/vllm-openai:v0.22.1
            args: [moonshotai/Kimi-K2.5, --data-parallel-size, "16", --data-parallel-rank, $(LWS_WORKER_INDEX),
                   --data-parallel-address, $(LWS_LEADER_ADDRESS), --enable-expert-parallel,
                   --all2all-backend, {backend}]
            resources: {{limits: {{nvidia.com/gpu: 1}}}}
"""


_LIVENESS = "      livenessProbe: {httpGet: {path: /health, port: 8000}, initialDelaySeconds: 60}\n"
_STARTUP = "      startupProbe: {httpGet: {path: /health, port: 8000}, failureThreshold: 180, periodSeconds: 10}\n"

STACK_CASES: Mapping[str, StackCase] = {
    "closed-to-clients": StackCase(
        stack="gb200-2p1d",
        broken=("firewall=plan",),
        right=("firewall=plan", "clients=[203.0.113.0/24]"),
        says="lets no client dial router/0",
    ),
    "networks-unread": StackCase(
        stack="gb200-2p1d",
        broken=("monitors=[203.0.113.9]",),
        right=("firewall=plan", "monitors=[203.0.113.9]", "clients=[203.0.113.0/24]"),
        says="Nothing reads monitors",
    ),
    "load-target": StackCase(
        stack="h200-tp8",
        broken=(
            "weights.storage=shared-mount",
            "weights.load_target_s=60",
            "weights.storage=local",
        ),
        right=("weights.storage=local", "weights.load_target_s=600"),
        says="load_target_s is 60",
    ),
    "mapped-weights": StackCase(
        stack="h200-sglang-tp8",
        broken=("weights.storage=fsx-lustre",),
        right=("weights.storage=local",),
        says="SGLang maps the files of fsx-lustre, and they come page by page",
    ),
    "key-not-taken": StackCase(
        stack="h200-sglang-tp8",
        broken=("secrets.api_key.env=A_KEY",),
        right=("secrets.hf_token.env=A_TOKEN",),
        says="sglang takes a key as --api-key alone",
    ),
}

_MEMORY = """\
      volumeMounts: [{name: shm, mountPath: /dev/shm}]
  volumes: [{name: shm, emptyDir: {medium: Memory}}]
"""


def pair(size: int) -> str:
    """A set of pods of which two start the nodes of a rank."""
    return f"""\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: kimi}}
spec:
  leaderWorkerTemplate:
    size: {size}
    workerTemplate:
      spec:
        hostIPC: true
        containers:
          - name: engine
            image: vllm/vllm-openai:v0.22.1
            command: [bash, -c]
            args:
              - |
                if [ "$LWS_WORKER_INDEX" = 1 ]; then H=--headless; else H=; fi
                if [ "$LWS_WORKER_INDEX" -lt 2 ]; then
                vllm serve moonshotai/Kimi-K2.5 -tp 16 --nnodes 2 --node-rank $LWS_WORKER_INDEX \\
                  --master-addr $LWS_LEADER_ADDRESS $H
                else sleep infinity; fi
            resources: {{limits: {{nvidia.com/gpu: 8}}}}
"""


def led(policy: str) -> str:
    """A leader that is asked over HTTP whether it is ready, with a worker."""
    container = """\
          - name: engine
            image: vllm/vllm-openai:v0.22.1
            args: [moonshotai/Kimi-K2.5, -tp, "8", -pp, "2", --nnodes, "2", --node-rank, $(LWS_WORKER_INDEX),
                   --master-addr, $(LWS_LEADER_ADDRESS), {}]
            resources: {{limits: {{nvidia.com/gpu: 8}}}}
"""
    return f"""\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: kimi}}
spec:
  startupPolicy: {policy}
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        hostIPC: true
        containers:
{container.format('--port, "8000"')}            readinessProbe: {{httpGet: {{path: /health, port: 8000}}}}
    workerTemplate:
      spec:
        hostIPC: true
        containers:
{container.format("--headless")}"""


def nodes(options: str) -> str:
    """Two hosts of one rank, in containers with options."""
    run = f"docker run --gpus all --ipc=host {options} vllm/vllm-openai:v0.22.1 moonshotai/Kimi-K2.5 -tp 16"
    meeting = "--nnodes 2 --master-addr 10.0.0.1 --node-rank"
    return f"{run} {meeting} 0\n{run} {meeting} 1 --headless\n"


MANIFEST_CASES: Mapping[str, ManifestCase] = {
    "container-network": ManifestCase(
        broken=nodes("-p 8000:8000 -p 29501:29501"),
        right=nodes("--network host"),
        says="unified-1/0 runs in docker's own bridge network",
        file="serve.sh",
    ),
    "group-releases": ManifestCase(
        broken=nodes("--network host").replace("v0.22.1", "v0.21.0", 1),
        right=nodes("--network host"),
        says="run different releases: 0.21.0, 0.22.1",
        file="serve.sh",
    ),
    "pod-names": ManifestCase(
        broken=pair(2).replace("hostIPC: true", "hostNetwork: true\n        hostIPC: true"),
        right=pair(2).replace(
            "hostIPC: true",
            "hostNetwork: true\n        dnsPolicy: ClusterFirstWithHostNet\n        hostIPC: true",
        ),
        says="has hostNetwork without dnsPolicy",
    ),
    "pods-in-turn": ManifestCase(
        broken=led("LeaderReady"),
        right=led("LeaderCreated"),
        says="LeaderReady creates them when it is ready",
    ),
    "shared-memory": ManifestCase(
        broken=pod(""),
        right=pod(_MEMORY),
        says="its container's /dev/shm holds 64 MiB",
    ),
    "devices-unused": ManifestCase(
        broken=pod("").replace('--tensor-parallel-size, "8"', '--tensor-parallel-size, "4"'),
        right=pod(""),
        says="asks for 8 devices and uses 4",
    ),
    "hosts-unused": ManifestCase(
        broken=pair(3),
        right=pair(2),
        says="kimi asks for 3 hosts, and engines start on 2",
    ),
    "pod-per-rank": ManifestCase(
        broken=ranks("deepep_low_latency"),
        right=ranks("allgather_reducescatter"),
        says="has a pod per rank (1 devices)",
    ),
    "probe-patience": ManifestCase(
        broken=pod(_LIVENESS),
        right=pod(_LIVENESS + _STARTUP),
        says="is killed after 90 s without an answer",
    ),
}
