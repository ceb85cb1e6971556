"""The order in which vLLM tries attention back ends where none is asked for (`attention/`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from infra.catalog.files import read_json

FILE = Path(__file__).parent / "attention" / "vllm.json"
Devices = Literal["blackwell", "cuda", "rocm-aiter", "rocm"]


class AttentionOrders(NamedTuple):
    """What is tried for dense multi-head latent attention.

    Args:
        orders: by devices, and AMD's by whether AITER is on: names in capitals, first choice first.
        dense_on_hopper_alone: those that other devices' classes name, too, and whose library is Hopper's.
    """

    orders: Mapping[Devices, tuple[str, ...]]
    dense_on_hopper_alone: frozenset[str]


@cache
def attention_orders() -> AttentionOrders:
    """The orders of every release that was read.

    Raises:
        CatalogueError: the file has another shape.
    """
    return read_json(FILE, _orders)


def _orders(document: Any) -> AttentionOrders:
    return AttentionOrders(
        orders={devices: tuple(names) for devices, names in document["orders"].items()},
        dense_on_hopper_alone=frozenset(document["dense_on_hopper_alone"]),
    )
