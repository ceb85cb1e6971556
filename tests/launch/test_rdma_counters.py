"""What cards' counters tell of the way that KV has taken."""

from __future__ import annotations

import pytest

from infra.engines.transport_signs import Transport
from infra.engines.transports import Told
from infra.launch.proof.rdma_counters import (
    LEAST_BYTES,
    PACKET_BYTES,
    Moved,
    card_bytes,
    device_bytes,
    judge_moved,
    moved_between,
)

PORT = "/sys/class/infiniband/{}/ports/1/{}"
STILL = Moved(num_bytes=0, devices=("mlx5_0",))


def told(transport: Transport) -> list[Told]:
    return [Told(library="UCX", transport=transport, line=f"a line of {transport}")]


def test_port_counters_are_words_and_efas_are_bytes() -> None:
    files = {
        PORT.format("mlx5_0", "counters/port_xmit_data"): "100\n",
        PORT.format("mlx5_0", "counters/port_rcv_data"): "25\n",
        PORT.format("rdmap85s0", "hw_counters/rdma_read_bytes"): "7\n",
        PORT.format("mlx5_1", "counters/port_xmit_data"): "N/A\n",
        "/proc/meminfo": "5\n",
    }
    assert card_bytes(files) == {"mlx5_0": 500, "rdmap85s0": 7}
    assert card_bytes({}) == {}


def test_an_ascend_device_counts_packets() -> None:
    text = "roce_rx_rc_pkt_num:2\nroce_tx_rc_pkt_num:3\n"
    assert device_bytes({"device 0": text, "device 1": "Cmd execute failed!"}) == {
        "device 0": 5 * PACKET_BYTES
    }


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {}, Moved(num_bytes=0, devices=())),
        ({"a": 5}, {"a": 5}, Moved(num_bytes=0, devices=("a",))),
        ({"a": 5, "b": 1}, {"a": 9, "b": 3}, Moved(num_bytes=6, devices=("a", "b"))),
        ({"a": 50}, {"a": 4}, Moved(num_bytes=4, devices=("a",))),  # the driver was loaded anew
        ({}, {"a": 4}, Moved(num_bytes=0, devices=())),
    ],
)
def test_what_was_carried_between_two_looks(
    before: dict[str, int], after: dict[str, int], expected: Moved
) -> None:
    assert moved_between(before, after) == expected


@pytest.mark.parametrize(
    ("moved", "lines", "named", "is_fabric", "ok", "words"),
    [
        (Moved(num_bytes=LEAST_BYTES, devices=("a",)), [], [], False, True, "0.1 MiB over a"),
        (STILL, told("rdma"), [], False, False, "a line of rdma"),
        (STILL, told("rdma"), [], True, False, "KV is said to go by RDMA"),
        (STILL, [], ["mlx5_0:1"], False, False, "the plan names mlx5_0:1"),
        (STILL, told("ascend"), [], False, False, "a line of ascend"),
        # a fabric of accelerators carries KV past these counters, and so does what the log names
        (STILL, [], ["mlx5_0:1"], True, None, "nothing says by what KV goes"),
        (STILL, told("ascend"), [], True, None, "nothing says by what KV goes"),
        (STILL, told("nvlink"), ["mlx5_0:1"], False, None, "KV goes elsewhere"),
        (STILL, told("socket"), ["mlx5_0:1"], False, None, "KV goes elsewhere"),
        (STILL, [], [], False, None, "nothing says by what KV goes"),
        (
            Moved(num_bytes=0, devices=()),
            told("rdma"),
            [],
            False,
            None,
            "no card of this host tells",
        ),
    ],
)
def test_counters_that_stand_still_are_held_against_what_is_said(  # noqa: PLR0917 - a table
    moved: Moved, lines: list[Told], named: list[str], is_fabric: bool, ok: bool | None, words: str
) -> None:
    found, detail = judge_moved(moved, lines, named, is_fabric=is_fabric)
    assert found is ok
    assert words in detail
