"""Structured formats: vllm-ascend's multi-node files, srt-slurm recipes, Kubernetes manifests; and what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import ProblemsFound
from tests.plan.foreign.importing import imported

ASCEND_INTERNAL = """\
test_name: "two nodes"
model: "Eco-Tech/Kimi-K2.5-W4A8"
num_nodes: 2
npu_per_node: 8
env_common: &env_common
  HCCL_BUFFSIZE: 512
  VLLM_USE_MODELSCOPE: true
  SERVER_PORT: 8080
deployment:
  -
    envs:
      <<: *env_common
    server_cmd: >
      vllm serve Eco-Tech/Kimi-K2.5-W4A8
        --port $SERVER_PORT
        --data-parallel-size 2
        --data-parallel-size-local 1
        --data-parallel-address $LOCAL_IP
        --data-parallel-rpc-port 13389
        --tensor-parallel-size 8
        --kv-transfer-config
        '{"kv_connector": "X",
        "kv_role": "kv_both"}'
  -
    envs:
      <<: *env_common
    server_cmd: >
      vllm serve Eco-Tech/Kimi-K2.5-W4A8
        --headless
        --data-parallel-size 2
        --data-parallel-size-local 1
        --data-parallel-start-rank 1
        --data-parallel-address $MASTER_IP
        --data-parallel-rpc-port 13389
        --tensor-parallel-size 8
"""

ASCEND_EXTERNAL = """\
test_name: "a process per rank"
model: "Eco-Tech/Kimi-K2.5-W4A8"
num_nodes: 2
npu_per_node: 16
routing:
  type: "disaggregated_prefill"
  groups:
    prefiller: [0]
    decoder: [1]
config:
  - {node_index: 0, port_start: 7100, dp_rpc_port: 12321, dp_size: 2, dp_size_local: 2, dp_rank_start: 0, tp_size: 8,
     dp_address: "${NODE_0_IP}"}
  - {node_index: 1, port_start: 7100, dp_rpc_port: 12321, dp_size: 4, dp_size_local: 4, dp_rank_start: 0, tp_size: 4,
     dp_address: "${NODE_1_IP}"}
env_common: &env_common
  SERVER_PORT: "${PORT}"
  ASCEND_RT_VISIBLE_DEVICES: "${VISIBLE_DEVICES}"
templates:
  - node_index: 0
    envs: {<<: *env_common}
    server_cmd_template: &words
      - --port
      - $SERVER_PORT
      - --data-parallel-size
      - ${DP_SIZE}
      - --data-parallel-rank
      - ${DP_RANK}
      - --data-parallel-address
      - ${DP_ADDRESS}
      - --data-parallel-rpc-port
      - ${DP_RPC_PORT}
      - --tensor-parallel-size
      - ${TP_SIZE}
  - node_index: 1
    envs: {<<: *env_common}
    server_cmd_template: *words
"""

SLURM = """\
name: "two prefill, one decode"
model: {path: "hf:moonshotai/Kimi-K2.5", container: "vllm/vllm-openai:v0.22.1", precision: "int4"}
resources:
  gpu_type: "h200"
  gpus_per_node: 8
  prefill_nodes: 1
  prefill_workers: 2
  gpus_per_prefill: 4
  decode_nodes: 2
  decode_workers: 1
frontend: {type: dynamo}
backend:
  type: vllm
  connector: nixl
  prefill_environment: {NCCL_DEBUG: "INFO"}
  vllm_config:
    prefill:
      tensor-parallel-size: 4
      enforce-eager: true
      trust_remote_code: false
    decode:
      data-parallel-size: 16
      enable-expert-parallel: true
"""

LEADER_WORKER_SET = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: kimi}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    workerTemplate:
      spec:
        nodeSelector: {nvidia.com/gpu.product: NVIDIA-H200}
        containers:
          - name: engine
            image: lmsysorg/sglang:v0.5.9
            env:
              - {name: OWN, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
              - {name: TOKEN, valueFrom: {secretKeyRef: {name: s, key: t}}}
            command: [python3, -m, sglang.launch_server]
            args:
              - --model-path=moonshotai/Kimi-K2.5
              - --tp=16
              - --nnodes=$(LWS_GROUP_SIZE)
              - --node-rank=$(LWS_WORKER_INDEX)
              - --dist-init-addr=$(LWS_LEADER_ADDRESS):20000
            resources: {limits: {nvidia.com/gpu: "8"}}
          - name: sidecar
            image: envoy:1
---
apiVersion: v1
kind: Service
metadata: {name: kimi}
"""

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: serve}
spec:
  replicas: 1
  template:
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.22.1
          command: ["/bin/bash", "-c"]
          args:
            - |
              export A=1
              exec vllm serve moonshotai/Kimi-K2.5 \\
                --tensor-parallel-size 8
          resources: {limits: {nvidia.com/gpu: 8}}
"""

DISAGGREGATED_SET = """\
apiVersion: disaggregatedset.x-k8s.io/v1
kind: DisaggregatedSet
metadata: {name: pd}
spec:
  roles:
    - name: prefill
      spec:
        replicas: 2
        leaderWorkerTemplate:
          size: 1
          workerTemplate:
            spec:
              containers:
                - {name: e, image: "vllm/vllm-openai:v0.22.1", args: [moonshotai/Kimi-K2.5, -tp, "8"]}
    - name: decode
      spec:
        replicas: 1
        leaderWorkerTemplate:
          size: 1
          workerTemplate:
            spec:
              containers:
                - {name: e, image: "vllm/vllm-openai:v0.22.1", args: [moonshotai/Kimi-K2.5, -tp, "8"]}
"""


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 8)}]\n" for i in range(9)
)


def test_ascend_nodes_get_what_the_runner_gives_them(tmp_path: Path) -> None:
    recipe = imported(tmp_path, ASCEND_INTERNAL, "two.yaml")
    plan = recipe.assembled.plan
    first, second = plan.processes
    assert (first.group, second.group) == ("unified/0", "unified/0")
    assert first.endpoint == "http://192.0.2.1:8080"
    assert second.argv[second.argv.index("--data-parallel-address") + 1] == "192.0.2.1"
    assert first.env["HCCL_IF_IP"] == "192.0.2.1"
    assert first.env["VLLM_USE_MODELSCOPE"] == "True"
    assert plan.engine.name == "vllm-ascend"
    assert recipe.facts.accelerator.id == "ascend-a2"
    assert recipe.assembled.knows_addresses
    assert not recipe.assembled.incomplete


def test_what_all_nodes_share_is_theirs_where_they_do_not_name_it(tmp_path: Path) -> None:
    shared = ASCEND_INTERNAL.replace("    envs:\n      <<: *env_common\n", "", 1)
    own = shared.replace("<<: *env_common", "HCCL_BUFFSIZE: 256")
    assert shared != ASCEND_INTERNAL
    plan = imported(tmp_path, own, "two.yaml").assembled.plan
    assert [process.env["HCCL_BUFFSIZE"] for process in plan.processes] == ["512", "256"]
    assert [process.env["SERVER_PORT"] for process in plan.processes] == ["8080", "8080"]


def test_words_of_a_folded_command_keep_their_lines(tmp_path: Path) -> None:
    seat = imported(tmp_path, ASCEND_INTERNAL, "two.yaml").assembled.seats["unified-0/0"]
    lines = {word.text: word.line for word in seat.words}
    assert lines["vllm"] == 14
    assert lines["--tensor-parallel-size"] == 20
    assert lines["--kv-transfer-config"] == 21


def test_ascend_ranks_are_expanded_from_templates(tmp_path: Path) -> None:
    plan = imported(tmp_path, ASCEND_EXTERNAL, "ranks.yaml").assembled.plan
    assert [(p.id, p.role, p.dp_ranks, p.devices[0], p.endpoint) for p in plan.processes[:-1]] == [
        ("prefill-0/0", "prefill", (0,), 0, "http://192.0.2.1:7100"),
        ("prefill-0/1", "prefill", (1,), 8, "http://192.0.2.1:7101"),
        ("decode-0/0", "decode", (0,), 0, "http://192.0.2.2:7100"),
        ("decode-0/1", "decode", (1,), 4, "http://192.0.2.2:7101"),
        ("decode-0/2", "decode", (2,), 8, "http://192.0.2.2:7102"),
        ("decode-0/3", "decode", (3,), 12, "http://192.0.2.2:7103"),
    ]
    router = plan.processes[-1]
    assert router.kind == "router"
    assert len(router.connects) == 6


def test_srt_slurm_workers_are_placed_as_srtctl_places_them(tmp_path: Path) -> None:
    recipe = imported(tmp_path, SLURM, "slurm.yaml")
    plan = recipe.assembled.plan
    assert [(p.host, p.role, p.replica, p.dp_ranks, p.devices) for p in plan.processes] == [
        ("prefill-0", "prefill", 0, (0,), (0, 1, 2, 3)),
        ("prefill-0", "prefill", 1, (0,), (4, 5, 6, 7)),
        ("decode-0", "decode", 0, tuple(range(8)), tuple(range(8))),
        ("decode-1", "decode", 0, tuple(range(8, 16)), tuple(range(8))),
    ]
    assert plan.processes[0].env["NCCL_DEBUG"] == "INFO"
    assert "--enforce-eager" in plan.processes[0].argv
    assert "--trust-remote-code" not in plan.processes[0].argv
    assert plan.processes[2].binds[0].name == "dp_rpc"
    assert recipe.facts.accelerator.id == "h200"
    assert recipe.facts.unknown == frozenset()


def test_flags_of_an_srt_slurm_recipe_are_at_their_lines(tmp_path: Path) -> None:
    seat = imported(tmp_path, SLURM, "slurm.yaml").assembled.seats["prefill-0/0"]
    lines = {word.text: word.line for word in seat.words}
    assert lines["--tensor-parallel-size"] == 18
    assert lines["--enforce-eager"] == 19


def test_pods_of_a_leader_worker_set_are_hosts(tmp_path: Path) -> None:
    recipe = imported(tmp_path, LEADER_WORKER_SET, "lws.yaml")
    plan = recipe.assembled.plan
    assert [(p.group, p.host) for p in plan.processes] == [
        ("unified/0", "unified-0"),
        ("unified/0", "unified-1"),
        ("unified/1", "unified-2"),
        ("unified/1", "unified-3"),
    ]
    assert plan.processes[1].connects[0].to == "unified-0/0"
    assert plan.processes[1].env["OWN"] == "192.0.2.2"
    assert "TOKEN" not in plan.processes[1].env
    assert {host.num_devices for host in plan.hosts} == {8}
    assert recipe.facts.accelerator.id == "h200"
    assert any(row.text == "container sidecar" for row in recipe.not_understood)


def test_a_script_in_a_pod_is_followed_with_its_lines(tmp_path: Path) -> None:
    recipe = imported(tmp_path, DEPLOYMENT, "serve.yaml")
    (process,) = recipe.assembled.plan.processes
    assert process.argv[:3] == ("vllm", "serve", "moonshotai/Kimi-K2.5")
    assert process.env == {"A": "1"}
    seat = recipe.assembled.seats[process.id]
    assert [word.line for word in seat.words] == [15, 15, 15, 16, 16]


def test_roles_of_a_disaggregated_set(tmp_path: Path) -> None:
    plan = imported(tmp_path, DISAGGREGATED_SET, "pd.yaml").assembled.plan
    assert [(p.role, p.replica) for p in plan.processes] == [
        ("prefill", 0),
        ("prefill", 1),
        ("decode", 0),
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: 1\n", "no format"),
        ("- x\n", "no format"),
        ("a: [\n", "not YAML"),
        ("{{ template }}\n- : x\n", "not YAML"),
        (BOMB, "expands"),
        ("[" * 300 + "]" * 300, "expands"),
        ("[" * 490_000 + "]" * 490_000, "deep"),
        ("- " * 490_000 + "x", "deep"),
        ("---\na: 1\n" * 70, "documents"),
        ("apiVersion: v1\nkind: Service\n", "no engine"),
        ("a: !!python/name:os.system x\n", "not YAML"),
    ],
)  # fmt: skip
def test_what_is_no_recipe_is_one_error(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(ProblemsFound) as caught:
        imported(tmp_path, text, "x.yaml")
    assert what in caught.value.what


def test_too_many_pods_are_cut_and_said(tmp_path: Path) -> None:
    text = DEPLOYMENT.replace("replicas: 1", "replicas: 100000000")
    recipe = imported(tmp_path, text, "many.yaml")
    assert len(recipe.assembled.plan.processes) == 512
    assert any(row.text == "replicas" for row in recipe.not_understood)


def test_a_wrappers_own_flag_is_told_with_an_equals_sign_too(tmp_path: Path) -> None:
    text = (
        "python3 -m dynamo.vllm --model moonshotai/Kimi-K2.5 --disaggregation_mode=decode -tp 8\n"
    )
    (process,) = imported(tmp_path, text, "serve.sh").assembled.plan.processes
    assert process.role == "decode"
