"""A torch of a simulated host: as much of it as adding up over a group takes. Nothing is computed on a device.

A tensor has one value, which all of its elements share. What differs from the real one's behaviour (recorded with
torch 2.11.0 and gloo) is said in `distributed`. It says that it is a stand-in in its release, which
`fab preflight` prints.
"""

from __future__ import annotations

import time

from . import cuda as cuda
from . import cuda as npu
from .simulated import NOTICE, faults

__all__ = ["Tensor", "cuda", "empty", "float32", "npu"]
__version__ = f"0 ({NOTICE})"
float32 = "torch.float32"
FOREVER_S = 3600

if faults().get("collective_silent"):  # a disk, a driver or a library that does not answer
    time.sleep(FOREVER_S)


class Tensor:
    """Elements that are all alike.

    Args:
        count: of elements.
        value: of each.
        num_wrong: elements that hold something else.
    """

    def __init__(self, count: int, value: float) -> None:
        """Take what all elements are."""
        self.count = count
        self.value = value
        self.num_wrong = 0

    def fill_(self, value: float) -> Tensor:
        """Make all elements this."""
        self.value, self.num_wrong = value, 0
        return self

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]  # torch compares by element, too
        """One for each element that is something else."""
        differing = self.count if self.value != other else self.num_wrong
        return Tensor(1, differing)

    __hash__ = None  # type: ignore[assignment]  # as of everything that is compared by element

    def sum(self) -> Tensor:
        """The sum of a comparison."""
        return self

    def item(self) -> float:
        """The one value."""
        return self.value


def empty(count: int, *, dtype: str, device: str) -> Tensor:
    """Elements on a device."""
    del dtype, device
    return Tensor(count, 0.0)
