"""Rules about expert parallelism: transports between experts, balancing, overlapped batches."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalog.schema import Vendor
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_int, as_map

# vllm distributed/device_communicators/all2all.py@0.22.1: what each back end is built on.
BACKEND_VENDORS: tuple[tuple[str, Vendor], ...] = (
    ("deepep", "nvidia"),
    ("flashinfer", "nvidia"),
    ("nixl_ep", "nvidia"),
    ("moonep", "nvidia"),
    ("mori", "amd"),
)
OVERLAPPING = ("deepep_low_latency", "deepep_high_throughput")


def all2all_backend_runs(view: PlanView) -> Iterator[Finding]:
    """The transport between experts is built for the accelerator."""
    for process in view.variants:
        backend = str(view.flags(process).get("all2all-backend") or "")
        needed = next((v for name, v in BACKEND_VENDORS if backend.startswith(name)), None)
        accelerator = view.accelerator(process)
        if needed is not None and accelerator.vendor != needed:
            what = f"all2all-backend {backend} needs {needed} devices; {accelerator.id} is {accelerator.vendor}."
            fix = "Leave it out: allgather_reducescatter runs on every accelerator."
            field = f"roles.{process.role}.flags.all2all-backend"
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def overlapped_batches_transport(view: PlanView) -> Iterator[Finding]:
    """Dual-batch overlap runs on a DeepEP transport alone; vllm-ascend has switched it off since 0.22."""
    for process in view.variants:
        flags = view.flags(process)
        backend = flags.get("all2all-backend")
        overlaps = bool(flags.get("enable-dbo")) or as_int(flags.get("ubatch-size"), 0) > 1
        if overlaps and backend not in OVERLAPPING:
            what = f"Dual-batch overlap needs a DeepEP transport; all2all-backend is {backend or 'the default'}."
            fix = f"Use all2all-backend {' or '.join(OVERLAPPING)}, or remove enable-dbo."
            field = f"roles.{process.role}.flags.enable-dbo"
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def expert_balancing_possible(view: PlanView) -> Iterator[Finding]:
    """Expert load balancing needs expert parallelism over more than one device, and no Ascend device."""
    for process in view.variants:
        flags, field = view.flags(process), f"roles.{process.role}.flags.enable-eplb"
        redundant = as_int(as_map(flags.get("eplb-config")).get("num_redundant_experts"), 0)
        devices = view.size(process, "tensor-parallel-size") * view.readings[process.id].group_size
        what = fix = ""
        if not flags.get("enable-eplb"):
            if redundant:
                what = f"num_redundant_experts is {redundant} and expert load balancing is off."
                fix = "Add enable-eplb, or remove eplb-config."
        elif view.accelerator(process).vendor == "ascend":
            what = "vLLM's expert load balancing does not run on Ascend."
            fix = "Use additional-config eplb_config with DYNAMIC_EPLB=true."
        elif not flags.get("enable-expert-parallel"):
            what, fix = "EPLB needs expert parallelism.", "Set expert_parallel: true."
        elif devices <= 1:
            what = "EPLB needs tensor or data parallelism above 1."
            fix = "Remove enable-eplb."
        if what:
            yield Finding(field=field, what=what, fix=fix, process=process.id)
