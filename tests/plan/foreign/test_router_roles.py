"""Roles are those that a router's or proxy's line gives, where engines are told `kv_both`; and rules judge by them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plan.foreign.importing import imported, judged

BOTH = """--kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'"""
HOSTS = [
    f"VLLM_NIXL_SIDE_CHANNEL_HOST=10.0.0.{n} vllm serve Qwen/Qwen3-32B -tp 8 --kv-cache-dtype {kv} {BOTH}\n"
    for n, kv in ((1, "fp8"), (2, "auto"))
]
PORTS = [
    f"CUDA_VISIBLE_DEVICES={n} VLLM_NIXL_SIDE_CHANNEL_PORT=560{n} "
    f"vllm serve m/m --port 8{n}00 --kv-cache-dtype {kv} {BOTH} &\n"
    for n, kv in ((1, "fp8"), (2, "auto"))
]
PROXY = "toy_proxy_server.py --port 8192 --prefiller-hosts localhost --prefiller-ports 8100 --decoder-hosts localhost"
COMPOSE = f"""\
services:
  first:
    image: vllm/vllm-openai:v0.22.1
    ipc: host
    command: --model m/m --kv-cache-dtype fp8 {BOTH}
  second:
    image: vllm/vllm-openai:v0.22.1
    ipc: host
    container_name: answers
    command: --model m/m {BOTH}
  front:
    image: router
    entrypoint: [vllm-router]
    command: --vllm-pd-disaggregation --prefill http://first:8000 --decode http://answers:8000
"""
POD = """\
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.22.1
          command: {words}
---
apiVersion: v1
kind: Service
metadata: {{name: {service}}}
spec: {{selector: {{app: {name}}}, ports: [{{port: 80, targetPort: 8000}}]}}
"""
CONFIG = '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'
MANIFEST = "".join(
    POD.format(
        name=name, service=service, words=["vllm", "serve", *words, "--kv-transfer-config", CONFIG]
    )
    for name, service, words in (
        ("one", "to-one", ["m/m", "--kv-cache-dtype", "fp8"]),
        ("two", "to-two", ["m/m"]),
    )
) + POD.format(
    name="front",
    service="to-front",
    words=[
        "vllm-router",
        "--vllm-pd-disaggregation",
        "--prefill",
        "http://to-one.default.svc:80",
        "--decode",
        "http://to-two:80",
    ],
)
FILES = {
    "vllm-router": (
        "".join(HOSTS)
        + "vllm-router --vllm-pd-disaggregation --prefill http://10.0.0.1:8000 --decode http://10.0.0.2:8000\n",
        "pd.sh",
    ),
    "toy-proxy": ("".join(PORTS) + f"python3 {PROXY} --decoder-ports 8200\n", "pd.sh"),
    "proxy-with-urls": (
        "".join(PORTS)
        + "python3 disagg_proxy_demo.py --model m --prefill localhost:8100 --decode localhost:8200\n",
        "pd.sh",
    ),
    "layerwise-proxy": (
        "".join(PORTS)
        + "python load_balance_proxy_layerwise_server_example.py --prefiller-hosts 10.1.1.1 --prefiller-ports 8100"
        " --decoder-hosts 10.1.1.2 --decoder-ports 8200\n",
        "pd.sh",
    ),
    "compose": (COMPOSE, "compose.yaml"),
    "pods": (MANIFEST, "pods.yaml"),
}


@pytest.mark.parametrize("name", FILES)
def test_roles_follow_from_the_line_that_lists_them(name: str, tmp_path: Path) -> None:
    text, file = FILES[name]
    processes = imported(tmp_path, text, file).assembled.plan.processes
    assert [p.role for p in processes if p.kind == "engine"] == ["prefill", "decode"]


@pytest.mark.parametrize("name", FILES)
def test_rules_about_roles_judge_by_them(name: str, tmp_path: Path) -> None:
    judgement = judged(tmp_path, *FILES[name])
    found = {problem.rule for problem in judgement.problems if problem.blocks}
    assert "roles-disagree" in found
    unjudged = {rule for row in judgement.not_judged for rule in row.rules}
    assert unjudged & {problem.rule for problem in judgement.problems} == set()


def test_what_an_engine_says_of_itself_counts_more(tmp_path: Path) -> None:
    told = "".join(HOSTS).replace("kv_both", "kv_consumer", 1).replace("kv_both", "kv_producer", 1)
    line = "vllm-router --vllm-pd-disaggregation --prefill http://10.0.0.1:8000 --decode http://10.0.0.2:8000\n"
    processes = imported(tmp_path, told + line, "pd.sh").assembled.plan.processes
    assert [(p.role, p.host) for p in processes if p.kind == "engine"] == [
        ("prefill", "prefill-0"),
        ("decode", "decode-0"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "vllm-router --vllm-pd-disaggregation --prefill http://10.9.9.1:8000 --decode http://10.9.9.2:8000\n",
        "vllm-router --worker-urls http://10.0.0.1:8000 http://10.0.0.2:8000\n",
    ],
    ids=["either", "no-roles"],
)
def test_roles_that_no_line_settles_stay_open(line: str, tmp_path: Path) -> None:
    text = "".join(HOSTS).replace("VLLM_NIXL_SIDE_CHANNEL_HOST=10.0.0", "OTHER=10.0.0")
    processes = imported(tmp_path, text + line, "pd.sh").assembled.plan.processes
    assert {p.role for p in processes if p.kind == "engine"} == {"unified"}


def test_a_follower_has_the_role_of_the_process_that_it_meets(tmp_path: Path) -> None:
    def node(last: int) -> str:
        command = f"vllm serve m/m --nnodes 2 --master-addr 10.0.{last}.1 -tp 16 {BOTH} --node-rank"
        return f"VLLM_HOST_IP=10.0.{last}.1 {command} 0\n{command} 1 --headless\n"

    line = "vllm-router --vllm-pd-disaggregation --prefill http://10.0.1.1:8000 --decode http://10.0.2.1:8000\n"
    recipe = imported(tmp_path, node(1) + node(2) + line, "pd.sh")
    groups = [p.group for p in recipe.assembled.plan.processes if p.kind == "engine"]
    assert groups == ["prefill/0", "prefill/0", "decode/0", "decode/0"]
