#!/usr/bin/env bash
# One MI355X host: the container is started detached, then a client waits for it.
set -euo pipefail

MODEL=${MODEL:-moonshotai/Kimi-K2.5}
PORT=${PORT:-8000}
IMAGE=vllm/vllm-openai-rocm:v0.22.1

export VLLM_ROCM_USE_AITER=1

EXTRA=(
  --tool-call-parser kimi_k2
  --enable-auto-tool-choice
)
if [ "${REASONING:-1}" = 1 ]; then
  EXTRA+=(--reasoning-parser kimi_k2)
fi

docker run -d --name kimi --network=host --ipc=host \
  --device=/dev/kfd --device=/dev/dri --group-add video \
  -v "$HOME/.cache/huggingface:/root/.cache/huggingface" \
  -e VLLM_ROCM_USE_AITER -e HF_TOKEN=$HF_TOKEN \
  $IMAGE --model "$MODEL" \
  --tensor-parallel-size 8 \
  --block-size 1 \
  --max-num-batched-token 16384 \
  --port "$PORT" "${EXTRA[@]}"

until curl -sf "http://localhost:$PORT/health"; do sleep 5; done
