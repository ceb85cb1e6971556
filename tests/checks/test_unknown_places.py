"""What is wrong wherever the hosts are is found in a file that does not say where they are; the rest is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plan.foreign.importing import judged

PIPELINE = "vllm serve moonshotai/Kimi-K2.5 -tp 8 -pp 2 --nnodes 2"
HALVES = "vllm serve moonshotai/Kimi-K2.5 -tp 4 -pp 2 --nnodes 2"
SGLANG = "python3 -m sglang.launch_server --model-path moonshotai/Kimi-K2.5 --tp 16 --nnodes 2"
RANKS = "vllm serve moonshotai/Kimi-K2.5 --data-parallel-size 16 --data-parallel-size-local 8"
FOLLOWERS = f"{RANKS} --headless --data-parallel-start-rank 8"
SERVICE = """\
  {0}:
    image: vllm/vllm-openai:v0.22.1
    network_mode: host
    ipc: host
    command: --model moonshotai/Kimi-K2.5 -tp 16 --nnodes 2 --node-rank {1}"""
WIDE = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: wide}}
spec:
  leaderWorkerTemplate:
    size: 2
    workerTemplate:
      spec:
        hostIPC: true
        containers:
          - name: engine
            image: vllm/vllm-openai:v0.22.1
            command: [bash, -c]
            args:
              - |
                if [ "$LWS_WORKER_INDEX" = 0 ]; then H=; else H="--headless --data-parallel-start-rank 8"; fi
                vllm serve m/m --data-parallel-size {} --data-parallel-size-local 8 \\
                  --data-parallel-address $LWS_LEADER_ADDRESS $H
            resources: {{limits: {{nvidia.com/gpu: 8}}}}
"""
COMPOSE = ("services:", SERVICE.format("node0", "0"), SERVICE.format("node1", "1 --headless"))
PREFILL, DECODE = (
    f"""--kv-transfer-config '{{"kv_connector":"NixlConnector","kv_role":"{role}"}}'"""
    for role in ("kv_producer", "kv_consumer")
)
ITSELF = ("dangling-connect", "its own host")
ROUTER = "python -m sglang_router.launch_router --worker-urls http://10.0.0.7:30000"
# name → (rule, its words), then the file's lines
WRONG: dict[str, tuple[tuple[str, str], tuple[str, ...]]] = {
    "default": (ITSELF, (f"{PIPELINE} --node-rank 0", f"{PIPELINE} --node-rank 1 --headless")),
    "sglang": (
        ITSELF,
        (
            f"{SGLANG} --node-rank 0 --dist-init-addr 127.0.0.1:5000",
            f"{SGLANG} --node-rank 1 --dist-init-addr localhost:5000",
        ),
    ),
    "another-port": (
        ("dangling-connect", "binds head:5000"),
        (
            f"{SGLANG} --node-rank 0 --dist-init-addr head:5000",
            f"{SGLANG} --node-rank 1 --dist-init-addr head:5001",
        ),
    ),
    "another-port-by-name": (
        ("dangling-connect", "binds 10.0.0.1:5000"),
        (
            f"{SGLANG} --node-rank 0 --dist-init-addr 10.0.0.1:5000",
            f"{SGLANG} --node-rank 1 --dist-init-addr head:5001",
        ),
    ),
    "another-address": (
        ("dangling-connect", "binds 10.0.0.1"),
        (
            f"{PIPELINE} --node-rank 0 --master-addr 10.0.0.1",
            f"{PIPELINE} --node-rank 1 --headless --master-addr 10.0.0.2",
        ),
    ),
    "ranks": (ITSELF, (RANKS, FOLLOWERS)),
    "every-address": (
        ITSELF,
        (
            f"{RANKS} --data-parallel-address 0.0.0.0",
            f"{FOLLOWERS} --data-parallel-address 0.0.0.0",
        ),
    ),
    "leader-alone-on-loopback": (
        ("leader-address", "which no other host reaches"),
        (f"{PIPELINE} --node-rank 0", f"{PIPELINE} --node-rank 1 --headless --master-addr head"),
    ),
    "one-file-for-each-node": (
        ("leader-address", "each would wait at its own"),
        (f"{PIPELINE} --node-rank $NODE",),
    ),
    "compose": (ITSELF, COMPOSE),
    "side-channel": (
        ("side-channel-host", "is localhost"),
        (f"vllm serve m/m -tp 8 {PREFILL}", f"vllm serve m/m -tp 8 {DECODE}"),
    ),
    "own-name": (
        ("host-variable", "VLLM_HOST_IP=127.0.0.1"),
        (
            f"VLLM_HOST_IP=127.0.0.1 {PIPELINE} --node-rank 0 --master-addr 10.0.0.1",
            f"{PIPELINE} --node-rank 1 --headless --master-addr 10.0.0.1",
        ),
    ),
    "endpoint": (
        ("loopback-endpoint", "listens on 127.0.0.1 by default"),
        ("python -m sglang.launch_server --model-path m/m --port 30000", ROUTER),
    ),
}
SERVER = "python3 -m sglang.launch_server --model-path m/m --tp 8"
PAIR = (
    f"{SERVER} --disaggregation-mode prefill --disaggregation-bootstrap-port 9889 --host {{0}} --port 30000",
    f"{SERVER} --disaggregation-mode decode --host {{1}} --port 30000",
)
PAIR_ROUTER = "python3 -m sglang_router.launch_router --pd-disaggregation"
LISTED = "--prefill http://10.0.0.1:{} {} --decode http://10.0.0.2:{}"


def pair(first: str, second: str, ports: tuple[int, int, int]) -> tuple[str, ...]:
    """Prefill and decode on two hosts, and a router that lists ports of prefill, its bootstrap, and decode."""
    return (
        *(line.format(first, second) for line in PAIR),
        f"{PAIR_ROUTER} {LISTED.format(*ports)}",
    )


KNOWN, OPEN = ("10.0.0.1", "10.0.0.2"), ("0.0.0.0", "0.0.0.0")
for hosts, how in ((KNOWN, ""), (OPEN, "-of-any-host")):
    WRONG |= {
        f"bootstrap{how}": (
            ("router-endpoints", "bootstrap port 8998 of 10.0.0.1"),
            pair(*hosts, (30000, 8998, 30000)),
        ),
        f"endpoints-port{how}": (
            ("router-endpoints", "lists http://10.0.0.2:30001"),
            pair(*hosts, (30000, 9889, 30001)),
        ),
    }
WRONG["two-decodes"] = (
    ("router-endpoints", "lists http://10.0.0.1:30000 as prefill"),
    tuple(
        line.replace("mode prefill", "mode decode") for line in pair(*KNOWN, (30000, 9889, 30000))
    ),
)
RUN = "docker run --network host --ipc=host --gpus all -e VLLM_NIXL_SIDE_CHANNEL_HOST=10.0.0.{} vllm/vllm-openai:{}"
WRONG["releases-of-a-pair"] = (
    ("roles-disagree", "prefill runs 0.22.1 and decode 0.21.0"),
    (
        f"{RUN.format(1, 'v0.22.1')} m/m -tp 8 {PREFILL}",
        f"{RUN.format(2, 'v0.21.0')} m/m -tp 8 {DECODE}",
    ),
)
RANKS_OF_ATTENTION = (
    "python3 -m sglang.launch_server --model-path m/m --tp 4 --dp 4 --enable-dp-attention"
)
WRONG["ranks-of-two-servers"] = (
    ("port-twice", "30234 is claimed by dist"),
    tuple(
        f"{RANKS_OF_ATTENTION} --base-gpu-id {first} --port {port} &"
        for first, port in ((0, 30000), (4, 30001))
    ),
)
MAY_BE_RIGHT: dict[str, tuple[str, ...]] = {
    "named": (
        f"{PIPELINE} --node-rank 0 --master-addr head",
        f"{PIPELINE} --node-rank 1 --headless --master-addr head",
    ),
    "name-and-address": (
        f"{PIPELINE} --node-rank 0 --master-addr head",
        f"{PIPELINE} --node-rank 1 --headless --master-addr 10.0.0.1",
    ),
    "one-host": (
        f"CUDA_VISIBLE_DEVICES=0,1,2,3 {HALVES} --node-rank 0 &",
        f"CUDA_VISIBLE_DEVICES=4,5,6,7 {HALVES} --node-rank 1 --headless &",
    ),
    "ranks-of-one-host": (
        "CUDA_VISIBLE_DEVICES=0 vllm serve m/m --data-parallel-size 2 --data-parallel-rank 0 &",
        "CUDA_VISIBLE_DEVICES=1 vllm serve m/m --data-parallel-size 2 --data-parallel-rank 1 --port 8001 &",
    ),
    "open": (f"{PIPELINE} --node-rank $NODE --master-addr $HEAD",),
    "roles-of-one-host": (
        f"CUDA_VISIBLE_DEVICES=0 vllm serve m/m --port 8100 {PREFILL} &",
        f"CUDA_VISIBLE_DEVICES=1 VLLM_NIXL_SIDE_CHANNEL_PORT=5601 vllm serve m/m --port 8200 {DECODE} &",
    ),
    "listed-rightly": pair(*KNOWN, (30000, 9889, 30000)),
    "listed-rightly-anywhere": pair(*OPEN, (30000, 9889, 30000)),
    "a-part-of-what-is-listed": (*pair(*OPEN, (30000, 8998, 30000))[1:],),
    "ranks-of-two-servers-apart": (
        f"{RANKS_OF_ATTENTION} --port 30000 &",
        f"{RANKS_OF_ATTENTION} --base-gpu-id 4 --port 31000 &",
    ),
    "every-endpoint": ("python -m sglang.launch_server --model-path m/m --host 0.0.0.0", ROUTER),
}


@pytest.mark.parametrize("name", WRONG)
def test_it_is_found_wherever_the_hosts_are(name: str, tmp_path: Path) -> None:
    (rule, says), lines = WRONG[name]
    file = "compose.yaml" if lines == COMPOSE else "serve.sh"
    judgement = judged(tmp_path, "\n".join(lines), file)
    errors = [problem for problem in judgement.problems if problem.blocks]
    assert {problem.rule for problem in errors} == {rule}
    assert says in errors[0].what
    assert rule not in {each for row in judgement.not_judged for each in row.rules}


def test_a_set_of_pods_has_all_ranks_that_it_will_ever_have(tmp_path: Path) -> None:
    text = WIDE.format(32)
    told = [
        problem.what for problem in judged(tmp_path, text, "set.yaml").problems if problem.blocks
    ]
    assert len(told) == 1
    assert "ranks 16, 17" in told[0]
    fitting = judged(tmp_path, WIDE.format(16), "set.yaml").problems
    assert [str(problem) for problem in fitting if problem.blocks] == []


@pytest.mark.parametrize("name", MAY_BE_RIGHT)
def test_what_may_be_right_is_left(name: str, tmp_path: Path) -> None:
    judgement = judged(tmp_path, "\n".join(MAY_BE_RIGHT[name]))
    assert [str(problem) for problem in judgement.problems if problem.blocks] == []
