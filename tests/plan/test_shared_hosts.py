"""Two stacks on the same hosts: one leaves the first devices to the other, and their ports do not meet."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.errors import ProblemsFound
from infra.plan.compile import compile_file
from infra.plan.process import Plan

HALF = ("roles.unified.tensor_parallel=4",)


def taken(plan: Plan, host: str) -> tuple[set[int], set[int]]:
    """Devices and ports of a host, the clients' port apart: that one is the operator's."""
    processes = plan.on_host(host)
    ports = {b.port + i for p in processes for b in p.binds for i in range(b.count)}
    return {d for p in processes for d in p.devices}, ports


def test_one_stack_takes_the_first_devices_and_the_other_the_rest(catalog: Catalog) -> None:
    first = compile_file("h200-tp8", catalog=catalog, sets=(*HALF, "roles.unified.devices_idle=4"))
    sets = (*HALF, "leave_devices=4", "port=8100")
    second = compile_file("h200-tp8", catalog=catalog, sets=sets)
    devices, ports = taken(first.plan, "unified-0")
    other_devices, other_ports = taken(second.plan, "unified-0")
    assert (devices, other_devices) == ({0, 1, 2, 3}, {4, 5, 6, 7})
    assert ports.isdisjoint(other_ports)


@pytest.mark.parametrize(
    ("stack", "num_devices"),
    [("h200-tp8", 4), ("vllm-shared-1p1d", 8)],
)
def test_a_rank_that_does_not_fit_beside_what_is_left_is_refused(
    stack: str, num_devices: int, catalog: Catalog
) -> None:
    with pytest.raises(ProblemsFound, match="left to another stack"):
        compile_file(stack, catalog=catalog, sets=(f"leave_devices={num_devices}",))


def test_ports_of_every_block_start_beyond_what_the_left_devices_may_take(
    catalog: Catalog,
) -> None:
    one = compile_file("vllm-shared-1p1d", catalog=catalog, sets=("accelerator=b300",)).plan
    sets = ("roles.prefill.tensor_parallel=2", "roles.decode.tensor_parallel=2")
    half = compile_file(
        "vllm-shared-1p1d", catalog=catalog, sets=(*sets, "roles.decode.devices_idle=4")
    ).plan
    rest = compile_file(
        "vllm-shared-1p1d", catalog=catalog, sets=(*sets, "leave_devices=4", "port=8100")
    ).plan
    assert taken(one, "host-0")[0] == set(range(8))
    devices, ports = taken(half, "host-0")
    other_devices, other_ports = taken(rest, "host-0")
    assert devices.isdisjoint(other_devices)
    assert devices | other_devices == set(range(8))
    assert ports.isdisjoint(other_ports)
