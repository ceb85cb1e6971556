"""Which image a role runs in, what it is given of an image's shell, and what it reaches other hosts over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.engines.contract import INTERFACE_VARIABLES
from infra.inventory.hosts import Inventory, InventoryHost
from infra.plan.compile import compile_file, compile_stack
from infra.plan.process import Plan, Process
from infra.spec.load import load_stack, stack_names
from infra.spec.stack import KUBERNETES
from tests.plan.generated import CATALOG

ROOT = Path(__file__).parents[2]
STACKS = (*stack_names(), *(str(path) for path in sorted((ROOT / "tests/stacks").glob("*.yaml"))))
ON_HOSTS = [name for name in STACKS if load_stack(name).spec.platform not in KUBERNETES]
AWS = "public.ecr.aws/deep-learning-containers/"


def plan_of(name: str, *sets: str) -> Plan:
    path = ROOT / "tests/stacks" / f"{name}.yaml"
    return compile_stack(
        load_stack(str(path) if path.exists() else name, sets), catalog=CATALOG
    ).plan


def kv_config(process: Process) -> Mapping[str, object]:
    config: Mapping[str, object] = json.loads(
        process.argv[process.argv.index("--kv-transfer-config") + 1]
    )
    return config


@pytest.mark.parametrize("name", STACKS)
def test_a_process_has_what_a_shell_of_its_image_has(name: str) -> None:
    """With a recipe or without: the loader looks where only `~/.bashrc` of the image would have it look."""
    plan = compile_file(name, catalog=CATALOG).plan
    images = CATALOG.release(plan.engine.name, plan.engine.version).images
    shell = next((each.shell for each in images if each.reference == plan.engine.image), {})
    for process in plan.processes:
        if process.kind == "engine":
            for variable, value in shell.items():
                assert process.env_prepend[variable].split(":")[-1] == value


def test_folders_that_are_searched_join_and_a_preload_is_replaced() -> None:
    sets = ("defaults.env.LD_LIBRARY_PATH=/opt/own", "defaults.env.LD_PRELOAD=/opt/own.so")
    process = plan_of("a3-2p1d", *sets).processes[0]
    own, of_recipe, of_image = process.env_prepend["LD_LIBRARY_PATH"].split(":")
    assert (own, of_image) == ("/opt/own", "/usr/local/lib")
    assert of_recipe.endswith("/site-packages/mooncake")
    assert process.env_prepend["LD_PRELOAD"] == "/opt/own.so"


@pytest.mark.parametrize("name", ON_HOSTS)
def test_groups_over_hosts_name_the_interface_of_each_host(name: str) -> None:
    compiled = compile_file(name, catalog=CATALOG)
    names = [(host.name, host.roles) for host in compiled.plan.hosts]
    inventory = Inventory(
        path="inventory.yml", hosts=tuple(_host(i, *n) for i, n in enumerate(names))
    )
    plan = compile_file(name, catalog=CATALOG, inventory=inventory).plan
    groups: dict[str, set[str]] = {}
    for process in plan.processes:
        groups.setdefault(process.group, set()).add(process.host)
    for process in plan.processes:
        if process.kind == "engine" and len(groups[process.group]) > 1:
            vendor = CATALOG.accelerator(plan.host(process.host).accelerator).vendor
            for variable, spelling in INTERFACE_VARIABLES[vendor].items():
                assert process.env[variable] == spelling.format(f"ens{process.host}")


def test_a_group_on_one_host_names_no_interface_and_an_own_name_stays() -> None:
    (process,) = plan_of("h200-tp8").processes
    assert not [name for name in process.env if name.endswith("_SOCKET_IFNAME")]
    sets = ("defaults.env.NCCL_SOCKET_IFNAME=^docker0",)
    for process in plan_of("vllm-internal-2n", *sets).processes:
        assert process.env["NCCL_SOCKET_IFNAME"] == "^docker0"
        assert process.env_origins["NCCL_SOCKET_IFNAME"].kind == "operator"
        assert process.env["GLOO_SOCKET_IFNAME"] == "eth0"


@pytest.mark.parametrize(
    ("name", "is_over_efa"),
    [
        ("h200-2n-tp16", True), ("vllm-external-2n", True), ("vllm-pipeline-2n", True), ("sglang-2n-tp16", True),
        ("vllm-shared-1p1d", True), ("sglang-pd-nixl", True), ("h200-tp8", False), ("b200-sglang-tp8", False),
        ("vllm-shared-replicas", False),
        # hosts of a rack share their NVLink fabric
        ("gb200-2p1d", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("platform", ["aws-ec2", "existing-hosts"])
def test_what_leaves_a_host_over_efa_runs_in_an_image_that_speaks_to_it(
    name: str, is_over_efa: bool, platform: str
) -> None:
    plan = plan_of(name, f"platform={platform}")
    is_over_efa &= platform == "aws-ec2"
    assert plan.engine.image.startswith(AWS) == is_over_efa
    for process in plan.processes:
        if process.kind == "engine":
            assert process.env.get("FI_PROVIDER") == ("efa" if is_over_efa else None)


def test_kv_goes_over_libfabric_on_efa_and_as_nixl_chooses_elsewhere() -> None:
    for platform, backends in (
        ("aws-ec2", {"kv_connector_extra_config": {"backends": ["LIBFABRIC"]}}),
        ("existing-hosts", {}),
    ):
        plan = plan_of("vllm-shared-1p1d", f"platform={platform}")
        for process in (each for each in plan.processes if each.kind == "engine"):
            own = {"kv_connector", "kv_role", "kv_load_failure_policy"}
            config = kv_config(process)
            assert {key: value for key, value in config.items() if key not in own} == backends
        plan = plan_of("sglang-pd-nixl", f"platform={platform}")
        told = {each.env.get("SGLANG_DISAGGREGATION_NIXL_BACKEND") for each in plan.processes[:2]}
        assert told == {"LIBFABRIC" if backends else None}


def test_an_own_image_stays() -> None:
    plan = plan_of("h200-2n-tp16", "engine.image=registry.example.com/vllm:own")
    assert plan.engine.image == "registry.example.com/vllm:own"


def test_every_network_is_whole() -> None:
    catalog = Catalog()
    for network in catalog.networks():
        assert network.user_space
        assert network.nixl_backends
        assert set(network.chosen_by) <= set(network.env)


def _host(index: int, name: str, roles: tuple[str, ...]) -> InventoryHost:
    return InventoryHost(
        name=name, groups=roles, address=f"192.0.2.{index + 1}", service_address=f"192.0.2.{index + 1}", port=22,
        user=None, private_key_file=None, ssh_arguments=(), host_key=None, interface=f"ens{name}", rdma_devices=(),
        instance_id=None,
    )  # fmt: skip
