"""How long `fab import DIR` takes for 500 recipes: every format, from one process to forty.

    python benchmarks/import_recipes.py [COUNT]

The files are generated; they resemble the published ones in form, length and number of processes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from infra.catalog.load import Catalog
from infra.checks.foreign import judge_recipe
from infra.plan.foreign.assumed import Told
from infra.plan.foreign.imported_recipe import import_recipe

COUNT = 500
GOAL_S = 30.0
KIMI = "moonshotai/Kimi-K2.5"
NOISE = "\n".join(
    f'if [ "$STEP_{i}" = yes ]; then echo step {i}; mkdir -p /tmp/{i}; fi' for i in range(40)
)


def container(index: int) -> str:
    """A `docker run` of one engine among the usual shell around it."""
    return (
        f"#!/bin/bash\nset -euo pipefail\nPORT=${{PORT:-{8000 + index}}}\nARGS=(--tensor-parallel-size 8)\n{NOISE}\n"
        'ARGS+=(--port "$PORT" --trust-remote-code --max-model-len 65536)\n'
        "docker run --gpus all --ipc=host --net=host -v /models:/models -e NCCL_DEBUG=WARN \\\n"
        f'  vllm/vllm-openai:v0.22.1 {KIMI} "${{ARGS[@]}}" --compilation-config \\\n'
        '  \'{"cudagraph_mode": "FULL_DECODE_ONLY"}\' --tool-call-parser kimi_k2 --enable-auto-tool-choice\n'
    )


def ranks(index: int) -> str:
    """Sixteen ranks in a loop."""
    return (
        f"export HCCL_BUFFSIZE={200 + index}\n{NOISE}\nfor i in $(seq 0 15); do\n"
        "ASCEND_RT_VISIBLE_DEVICES=$i nohup vllm serve Eco-Tech/Kimi-K2.5-W4A8 --port $((7100+i)) \\\n"
        "  --data-parallel-size 16 --data-parallel-rank $i --data-parallel-address 10.0.0.1 \\\n"
        "  --data-parallel-rpc-port 12321 --enable-expert-parallel --quantization ascend > $i.log 2>&1 &\ndone\nwait\n"
    )


def manifest(index: int) -> str:
    """A LeaderWorkerSet of two groups of two pods."""
    pod = (
        "      spec:\n        containers:\n          - name: engine\n            image: lmsysorg/sglang:v0.5.9\n"
        "            command: [python3, -m, sglang.launch_server]\n            args:\n"
        f"              - --model-path={KIMI}\n              - --tp=16\n              - --port={30000 + index}\n"
        "              - --nnodes=$(LWS_GROUP_SIZE)\n              - --node-rank=$(LWS_WORKER_INDEX)\n"
        "              - --dist-init-addr=$(LWS_LEADER_ADDRESS):20000\n"
        '            resources: {limits: {nvidia.com/gpu: "8"}}\n'
    )
    return (
        "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: kimi}\nspec:\n  replicas: 2\n"
        f"  leaderWorkerTemplate:\n    size: 2\n    leaderTemplate:\n{pod}    workerTemplate:\n{pod}"
    )


def nightly(index: int) -> str:
    """Forty processes over four nodes and a proxy, from templates."""
    rows = [(0, 2, 2, 0, 8), (1, 2, 2, 0, 8), (2, 32, 16, 0, 1), (2, 32, 16, 16, 1)]
    config = "".join(
        f"  - {{node_index: {i}, port_start: 7100, dp_rpc_port: {12321 + index}, dp_size: {size}, "
        f"dp_size_local: {local}, dp_rank_start: {start}, tp_size: {tensor}, "
        f'dp_address: "${{NODE_{leader}_IP}}"}}\n'
        for i, (leader, size, local, start, tensor) in enumerate(rows)
    )
    words = "".join(
        f"      - {word}\n"
        for word in (
            "--port", "${PORT}", "--data-parallel-size", "${DP_SIZE}", "--data-parallel-rank", "${DP_RANK}",
            "--data-parallel-address", "${DP_ADDRESS}", "--data-parallel-rpc-port", "${DP_RPC_PORT}",
            "--tensor-parallel-size", "${TP_SIZE}", "--enable-expert-parallel", "--quantization", "ascend",
        )
    )  # fmt: skip
    templates = "".join(
        f'  - envs: {{ASCEND_RT_VISIBLE_DEVICES: "${{VISIBLE_DEVICES}}"}}\n    server_cmd_template:\n{words}'
        for _ in rows
    )
    return (
        'model: "Eco-Tech/Kimi-K2.5-W4A8"\nnum_nodes: 4\nnpu_per_node: 16\nrouting:\n  type: disaggregated_prefill\n'
        f"  groups: {{prefiller: [0, 1], decoder: [2, 3]}}\nconfig:\n{config}templates:\n{templates}"
    )


def slurm(index: int) -> str:
    """Two prefill workers and a wide decode worker."""
    return (
        f'name: run-{index}\nmodel: {{path: "hf:{KIMI}", container: "vllm/vllm-openai:v0.22.1", precision: int4}}\n'
        "resources: {gpu_type: gb200, gpus_per_node: 4, prefill_nodes: 2, prefill_workers: 2, decode_nodes: 4, "
        "decode_workers: 1}\nbackend:\n  type: vllm\n  vllm_config:\n"
        "    prefill: {tensor-parallel-size: 4, enforce-eager: true, trust-remote-code: true}\n"
        "    decode: {data-parallel-size: 16, enable-expert-parallel: true, max-num-seqs: 256}\n"
    )


KINDS: tuple[tuple[str, str, Callable[[int], str]], ...] = (
    ("docker run in a script", ".sh", container),
    ("16 ranks in a loop", ".sh", ranks),
    ("LeaderWorkerSet, 4 pods", ".yaml", manifest),
    ("vllm-ascend, 36 ranks and a proxy", ".yaml", nightly),
    ("srt-slurm, 6 processes", ".yaml", slurm),
)


def main() -> None:
    """Import and judge as many recipes as asked for, a fifth of each kind."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    catalog, each = Catalog(), count // len(KINDS)
    print("| recipe | files | processes | seconds of the processor | ms per recipe |")
    print("|---|---|---|---|---|")
    total, files, processes = 0.0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for name, suffix, write in KINDS:
            paths = [Path(folder, f"{write.__name__}-{index}{suffix}") for index in range(each)]
            for index, path in enumerate(paths):
                path.write_text(write(index), encoding="utf-8")
            begun, found = time.process_time(), 0
            for path in paths:
                recipe = import_recipe(path, Told(), {}, catalog)
                judge_recipe(recipe, catalog)
                found += len(recipe.assembled.plan.processes)
            spent = time.process_time() - begun
            print(f"| {name} | {each} | {found} | {spent:.2f} | {1000 * spent / each:.1f} |")
            total, files, processes = total + spent, files + each, processes + found
    print(f"| together | {files} | {processes} | {total:.2f} | {1000 * total / files:.1f} |")
    print(f"\nGoal: under {GOAL_S:.0f} s on one core; {GOAL_S / total:.1f} times as fast.")


if __name__ == "__main__":
    main()
