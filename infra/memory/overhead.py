"""What an engine needs of a device beside weights and KV: activations, captured graphs, workspaces, communicators."""

from __future__ import annotations

from collections.abc import Mapping

from infra.catalog.schema import Family

# GiB inside the share of a device that the engine was given; judged on public start-up logs in docs/estimates.md.
# vLLM measures activations, graphs and everything else against that share. Calibrated on one start-up log:
# Kimi-K2-Thinking, TP8 on H200, 46.80 GiB of KV measured where arithmetic leaves 54.8 (vLLM recipe, 2025-11-06).
# SGLang's share is for weights and KV alone; what its devices hold before it takes stock (context, communicators)
# is all that is missing there (sglang model_runner.py, profile_max_num_token).
OVERHEAD_GIB: Mapping[Family, float] = {"vllm": 8.0, "sglang": 2.0}
