"""Rules about what accelerators of different hosts share: one kind per group, one NVLink domain, one pod."""

from __future__ import annotations

from collections.abc import Iterator

from infra.checks.view import Finding, PlanView

# vllm distributed/device_communicators/all2all.py@0.22.1: they move tokens through memory that every rank maps.
NVLINK_TRANSPORTS = ("flashinfer_all2allv", "flashinfer_nvlink")


def groups_of_one_kind(view: PlanView) -> Iterator[Finding]:
    """The hosts of a group carry one accelerator: its driver and its collectives are one family's."""
    for group, members in view.groups.items():
        kinds = {view.accelerator(process).id: process for process in reversed(members)}
        if len(kinds) > 1:
            what = f"{group} runs on {' and '.join(sorted(kinds))}."
            fix = "Give a group hosts of one kind; prefill and decode may differ from each other."
            field = f"roles.{members[0].role}.accelerator"
            yield Finding(field=field, what=what, fix=fix, process=next(iter(kinds.values())).id)


def groups_within_domain(view: PlanView) -> Iterator[Finding]:
    """Experts that exchange tokens over NVLink lie in one NVLink domain."""
    for group, members in view.groups.items():
        first = members[0]
        backend = str(view.flags(first).get("all2all-backend") or "")
        fabric = view.accelerator(first).fabric
        if fabric.kind != "nvlink" or not backend.startswith(NVLINK_TRANSPORTS):
            continue
        held = {(p.host, device) for p in members for device in view.readings[p.id].devices}
        if len(held) > fabric.num_devices:
            what = (
                f"{group} has {len(held)} devices; all2all-backend {backend} reaches the {fabric.num_devices} of one "
                f"NVLink domain of {view.accelerator(first).id}."
            )
            fix = "Use allgather_reducescatter or a DeepEP transport, or a smaller group."
            field = f"roles.{first.role}.flags.all2all-backend"
            yield Finding(field=field, what=what, fix=fix, process=first.id)


def ranks_share_pod(view: PlanView) -> Iterator[Finding]:
    """On Kubernetes, the ranks of a node that exchange experts by DeepEP share a pod: it maps memory by CUDA IPC."""
    if not view.plan.platform.endswith(("kubernetes", "eks")):
        return
    for group, members in view.groups.items():
        first = members[0]
        backend = str(view.flags(first).get("all2all-backend") or "")
        # a host of such a plan is a pod; one that several ranks share is what is wanted
        pods = {process.host for process in members}
        if not backend.startswith("deepep") or len(members) == 1 or len(pods) < len(members):
            continue
        held = len(view.readings[first.id].devices)
        if held < view.accelerator(first).devices_per_host:
            what = f"{group} has a pod per rank ({held} devices), and {backend} maps memory of a node's other ranks."
            fix = "Use one pod per node: load_balancing hybrid or multi-port."
            field = f"roles.{first.role}.load_balancing"
            yield Finding(field=field, what=what, fix=fix, process=first.id)
