"""Ports: one table of blocks, clear of each other and of what else listens on a host."""

from __future__ import annotations

from itertools import combinations

import pytest

from infra.plan.ports import (
    BLOCKS,
    EPHEMERAL_FIRST,
    EPHEMERAL_LAST,
    PortAllocator,
    PortBlockFullError,
)

FOREIGN = {
    "NodePorts": (30000, 32767),
    "Ascend direct transport": (20000, 35999),
    "Mooncake's rpc ports": (15000, 17000),
    "HCCL": (60000, 60031),
    "HCCL's default": (16666, 16666),
    "NCCL RAS": (28028, 28028),
    "the ephemeral range": (EPHEMERAL_FIRST, EPHEMERAL_LAST),
}


def overlap(first: tuple[int, int], second: tuple[int, int]) -> bool:
    return first[0] <= second[1] and second[0] <= first[1]


def test_blocks_do_not_overlap() -> None:
    ranges = {name: (block.first, block.last) for name, block in BLOCKS.items()}
    assert [(a, b) for a, b in combinations(ranges, 2) if overlap(ranges[a], ranges[b])] == []


@pytest.mark.parametrize("foreign", FOREIGN)
def test_blocks_of_engines_keep_clear_of(foreign: str) -> None:
    inside = [
        name
        for name, block in BLOCKS.items()
        if name != "prometheus" and overlap((block.first, block.last), FOREIGN[foreign])
    ]
    assert inside == []


def test_every_block_says_why_it_stands_there() -> None:
    assert all(len(block.why) > 10 for block in BLOCKS.values())
    assert all(1024 < block.first <= block.last <= 65535 for block in BLOCKS.values())


def test_hosts_are_counted_apart_and_ranges_together() -> None:
    allocator = PortAllocator()
    assert allocator.allocate("http", ("a",), 1) == 7100
    assert allocator.allocate("http", ("a",), 4) == 7101
    assert allocator.allocate("http", ("b",), 1) == 7100
    assert allocator.allocate("http", ("a", "b"), 2) == 7105
    assert allocator.allocate("http", ("b",), 1) == 7107


def test_a_port_that_somebody_chose_is_stepped_over() -> None:
    allocator = PortAllocator()
    allocator.reserve("a", 7101)
    assert allocator.allocate("http", ("a",), 1) == 7100
    assert allocator.allocate("http", ("a",), 1) == 7102
    allocator.reserve("b", 7102)
    assert allocator.allocate("http", ("b",), 4) == 7103


def test_a_full_block_is_an_error_with_its_numbers() -> None:
    allocator = PortAllocator()
    allocator.allocate("dp_rpc", ("a",), 79)
    with pytest.raises(PortBlockFullError) as caught:
        allocator.allocate("dp_rpc", ("a",), 1)
    assert caught.value.exit_code == 2
    assert "12400-12400 lie past the block 12321-12399 (79 ports)" in caught.value.what
    assert caught.value.where == "a"


def test_more_than_a_block_at_once_is_an_error() -> None:
    with pytest.raises(PortBlockFullError):
        PortAllocator().allocate("side_channel", ("a",), 2401)
