"""What vLLM 0.22.1 lacks for several data-parallel ranks on processors: two collectives, over gloo.

`CpuCommunicator` inherits `all_gatherv` and `reduce_scatterv` from DeviceCommunicatorBase, where both raise
NotImplementedError (distributed/device_communicators/base_device_communicator.py). With them lent, as a plugin of the
engine's own kind, everything else of a group of ranks is the released engine: handshake, coordinator, waves of steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

RECORD = {
    "METADATA": "Metadata-Version: 2.1\nName: moe-lent-collectives\nVersion: 1\n",
    "entry_points.txt": "[vllm.general_plugins]\nlent_collectives = moe_lent_collectives:register\n",
}


def lend(folder: Path) -> None:
    """Write the plugin to a folder, for an engine's PYTHONPATH."""
    record = folder / "moe_lent_collectives-1.dist-info"
    record.mkdir(parents=True, exist_ok=True)
    for name, text in RECORD.items():
        (record / name).write_text(text, encoding="utf-8")
    own = Path(__file__).read_text(encoding="utf-8")
    (folder / "moe_lent_collectives.py").write_text(own, encoding="utf-8")


def register() -> None:
    """Called by the engine in each of its processes."""
    from vllm.distributed.device_communicators import (  # type: ignore[import-not-found]  # noqa: PLC0415 - the engine's
        cpu_communicator,
    )

    cpu_communicator.CpuCommunicator.all_gatherv = all_gatherv
    cpu_communicator.CpuCommunicator.reduce_scatterv = reduce_scatterv


def all_gatherv(self: Any, input_: Any, dim: int = 0, sizes: list[int] | None = None) -> Any:
    """Every rank's rows, one after the other; `sizes` are their numbers by rank."""
    import torch  # type: ignore[import-not-found]  # noqa: PLC0415 - likewise

    if isinstance(input_, list):
        return [all_gatherv(self, each, dim, sizes) for each in input_]
    counts = sizes or [input_.shape[0]] * self.world_size
    padded = torch.zeros((max(counts), *input_.shape[1:]), dtype=input_.dtype)
    padded[: input_.shape[0]] = input_
    parts = [torch.empty_like(padded) for _ in counts]
    torch.distributed.all_gather(parts, padded, group=self.cpu_group)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


def reduce_scatterv(self: Any, input_: Any, dim: int = -1, sizes: list[int] | None = None) -> Any:
    """This rank's rows of the sum over all ranks."""
    import torch  # noqa: PLC0415 - likewise

    if dim not in (0, -1) or sizes is None:
        message = f"not lent: reduce_scatterv along {dim}, sizes {sizes}"
        raise NotImplementedError(message)
    total = input_.float()
    torch.distributed.all_reduce(total, group=self.cpu_group)
    first = sum(sizes[: self.rank_in_group])
    return total[first : first + sizes[self.rank_in_group]].to(input_.dtype)
