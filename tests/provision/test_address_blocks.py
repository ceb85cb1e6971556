from __future__ import annotations

import pytest

from infra.provision.address_blocks import is_the_world


@pytest.mark.parametrize(
    "block", ["0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1", "64.0.0.0/7", "::/0", "0::/0", "2000::/3"]
)
def test_the_world_in_one_block_or_in_two(block: str) -> None:
    assert is_the_world(block)


@pytest.mark.parametrize(
    "block",
    ["10.0.0.0/8", "198.51.100.0/24", "192.0.2.1/32", "fc00::/7", "2001:db8::/32", "", "sg-1"],
)
def test_networks_of_somebody_and_what_is_none(block: str) -> None:
    assert not is_the_world(block)
