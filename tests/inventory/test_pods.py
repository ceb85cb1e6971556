from __future__ import annotations

from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.errors import StackError
from infra.inventory.hosts import Inventory
from infra.inventory.pods import MAX_SET_NAME, OWN_ADDRESS, pod_addresses
from infra.plan.compile import compile_file
from infra.plan.process import Process
from infra.spec.stack import Workload

SETS: Workload = "leader-worker-set"
# Variables that hold what a process binds and advertises.
OWN = ("VLLM_HOST_IP", "VLLM_NIXL_SIDE_CHANNEL_HOST", "HCCL_IF_IP")


def test_a_group_is_a_set_and_its_hosts_are_pods_of_it() -> None:
    book = pod_addresses(
        "x", [("prefill/0", ["prefill-0"]), ("decode/0", ["decode-0", "decode-1"])], SETS
    )
    assert book.address("prefill-0", seen_from="decode-0") == "x-prefill-0-0.x-prefill-0"
    assert book.address("decode-0", seen_from="decode-1") == "x-decode-0-0.x-decode-0"
    assert book.address("decode-1", seen_from="decode-0") == "x-decode-0-0-1.x-decode-0"
    assert book.address("router", seen_from="router") == "x-router"
    assert book.facts("decode-1").address == "$(POD_IP)"


def test_two_groups_of_one_host_are_refused_with_the_field() -> None:
    with pytest.raises(StackError, match=r"placement: host-0 serves decode/0.*dedicated"):
        pod_addresses("x", [("prefill/0", ["host-0"]), ("decode/0", ["host-0"])], SETS)


@pytest.mark.parametrize("stack", ["2p1d", "My-stack", "my.stack", "my_stack", "x" * MAX_SET_NAME])
def test_a_name_that_no_set_can_have_is_refused(stack: str) -> None:
    with pytest.raises(StackError, match="Rename the stack file"):
        pod_addresses(stack, [("prefill/0", ["prefill-0"])], SETS)


def test_in_a_unit_no_name_holds_a_revision() -> None:
    groups = [("prefill/0", ["prefill-0"]), ("decode/0", ["decode-0", "decode-1"])]
    book = pod_addresses("x", groups, "disaggregated-set")
    assert dict(book.names) == {
        "prefill-0": "x-prefill-0",
        "decode-0": "x-decode-0",
        "decode-1": "x-decode-1",
    }
    longest = "x" * (MAX_SET_NAME - len("-0-00000000-prefill"))
    pod_addresses(longest, groups, "disaggregated-set")
    with pytest.raises(StackError, match=f"{longest}x-0-00000000-prefill would be the name"):
        pod_addresses(f"{longest}x", groups, "disaggregated-set")


def test_the_longest_name_is_accepted() -> None:
    stack = "x" * (MAX_SET_NAME - len("-prefill-0"))
    pod_addresses(stack, [("prefill/0", ["prefill-0"])], SETS)


@pytest.mark.parametrize(
    ("name", "moved"),
    [
        ("gb200-2p1d", "k8s-gb200-2p1d"),
        ("a3-2p1d", "k8s-a3-2p1d"),
        ("b200-sglang-tp8", "eks-b200-tp8"),
    ],
)
def test_in_pods_a_stack_runs_the_same_commands_with_names_for_addresses(
    name: str, moved: str, catalog: Catalog
) -> None:
    on_hosts = compile_file(name, catalog=catalog).plan
    in_pods = compile_file(moved, catalog=catalog).plan
    names = {host.address: in_pods.host(host.name).address for host in on_hosts.hosts}
    pairs = list(zip(in_pods.processes, on_hosts.processes, strict=True))
    for ours, theirs in pairs:
        if theirs.kind == "router":
            continue
        assert (ours.id, ours.dp_ranks, ours.devices, ours.binds, ours.connects, ours.mounts) == (
            theirs.id,
            theirs.dp_ranks,
            theirs.devices,
            theirs.binds,
            theirs.connects,
            theirs.mounts,
        )
        assert ours.argv == tuple(_renamed(word, names) for word in theirs.argv)
        own = {n: OWN_ADDRESS for n in OWN if n in theirs.env}
        assert ours.env == {**theirs.env, **own}
        assert ours.endpoint == _renamed(str(theirs.endpoint), names)
    for ours, theirs in pairs:
        if theirs.kind == "router":
            _same_router(ours, theirs, names)


def _same_router(ours: Process, theirs: Process, names: dict[str, str]) -> None:
    renamed = [_renamed(word, names) for word in theirs.argv]
    if "--host" in renamed:
        place = renamed.index("--host") + 1
        renamed[place] = renamed[place] if renamed[place] == "0.0.0.0" else OWN_ADDRESS
    assert list(ours.argv) == renamed
    assert (ours.host, ours.connects) == ("router", theirs.connects)


def _renamed(word: str, names: dict[str, str]) -> str:
    for address, name in names.items():
        if word == address or f"//{address}:" in word:
            return word.replace(address, name)
    return word


def test_an_inventory_is_refused_for_pods(catalog: Catalog) -> None:
    inventory = Inventory(path="mine.yml", hosts=())
    with pytest.raises(StackError, match=r"mine\.yml: The stack runs in pods"):
        compile_file("k8s-a3-2p1d", catalog=catalog, inventory=inventory)


def test_a_stack_of_shared_hosts_cannot_go_into_pods(catalog: Catalog) -> None:
    shared = str(Path(__file__).parents[1] / "stacks" / "vllm-shared-1p1d.yaml")
    with pytest.raises(StackError, match="a pod has its node's devices to itself"):
        compile_file(shared, catalog=catalog, sets=["platform=existing-kubernetes"])
