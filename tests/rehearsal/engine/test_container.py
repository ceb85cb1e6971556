"""What an engine misses in a container that was given its devices and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.plan.compile import compile_file
from infra.rehearsal.engine import network
from infra.rehearsal.engine.container import check_cards, check_shared_memory, check_transfer
from infra.rehearsal.engine.failures import Failed
from infra.rehearsal.engine.kv_transfer import KvTransfer, check_ascend_connector
from infra.rehearsal.engine.network import check_network, nccl_lines
from infra.rehearsal.engine.parallel import Parallel
from infra.rehearsal.engine.rdma_card import ucx_endpoint_lines
from infra.rehearsal.engine.world import World, read_world
from tests.rehearsal.engine.simulated_host import make_state

LIMIT_OF_DOCKER = str(8 << 20)
UNLIMITED = {"MOE_REHEARSAL_LOCKED_MEMORY": "unlimited"}
LIMITED = {"MOE_REHEARSAL_LOCKED_MEMORY": LIMIT_OF_DOCKER}


def place(*, tensor: int, ranks: int = 1) -> Parallel:
    return Parallel(
        mode="external", tensor=tensor, pipeline=1, context=1, size=ranks, local=1, first_rank=0, is_headless=False,
        num_nodes=1, node_rank=0, node_rank_within_dp=0, nodes_within_dp=1, master_address="", master_port=0,
        address="", rpc_port=0, experts_share=tensor * ranks, config_hash="",
    )  # fmt: skip


def container(
    folder: Path, accelerator: str, given: dict[str, str], *shown: str
) -> tuple[dict[str, str], World]:
    """The environment and world of a process whose container shows some device files."""
    dev = folder / "dev"
    for name in shown:
        (dev / name).parent.mkdir(parents=True, exist_ok=True)
        (dev / name).touch()
    state = make_state(folder / "state", accelerator=accelerator, num_devices=4)
    environ = {"MOE_REHEARSAL_STATE": str(state), "MOE_REHEARSAL_DEV": str(dev), **given}
    return environ, read_world(environ)


CARD, CHANNEL = "infiniband/rdma_cm", "nvidia-caps-imex-channels/channel0"


def test_without_cards_in_the_container_hosts_talk_over_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch script that forgets /dev/infiniband ends in slow engines, and `fab verify` reads it in these lines."""
    monkeypatch.setenv("UCX_LOG_LEVEL", "info")
    for name, shown, transport in (("with", [CARD], "IB"), ("without", [], "Socket")):
        _, world = container(tmp_path / name, "h200", UNLIMITED, *shown)
        assert any(f"Using network {transport}" in line for line in nccl_lines(world, 8))
        (line,) = ucx_endpoint_lines(world, "agent")
        assert ("mlx5_0" in line) == bool(shown)


def test_a_rack_needs_its_channel_in_the_container(tmp_path: Path) -> None:
    environ, world = container(tmp_path / "without", "gb200", UNLIMITED, CARD)
    with pytest.raises(Failed, match=r"Check the IMEX channel configuration"):
        check_cards(environ, world, place(tensor=4, ranks=2))
    check_cards(environ, world, place(tensor=4))  # of one host
    check_cards({**environ, "NCCL_MNNVL_ENABLE": "0"}, world, place(tensor=4, ranks=2))
    environ, world = container(tmp_path / "with", "gb200", UNLIMITED, CARD, CHANNEL)
    check_cards(environ, world, place(tensor=4, ranks=2))


def test_cards_need_memory_that_can_be_locked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    environ, world = container(tmp_path / "little", "h200", LIMITED, CARD)
    with pytest.raises(Failed, match="ibv_reg_mr_iova2 failed with error Cannot allocate memory"):
        check_cards(environ, world, place(tensor=4, ranks=2))
    with pytest.raises(Failed, match="NIXL_ERR_BACKEND"):
        check_transfer(environ, world, ())
    assert "current: 8192 kbytes" in capfd.readouterr().err
    environ, world = container(tmp_path / "all", "h200", UNLIMITED, CARD)
    check_cards(environ, world, place(tensor=4, ranks=2))
    check_transfer(environ, world, ())


def test_workers_of_one_rank_need_more_shared_memory_than_docker_gives(tmp_path: Path) -> None:
    environ, world = container(tmp_path, "h200", UNLIMITED, CARD)
    shared = tmp_path / "dev/shm"
    shared.symlink_to("/proc")  # of no size
    check_shared_memory(environ, world, place(tensor=1))
    with pytest.raises(Failed, match=r"/dev/shm/nccl-XXXXXX .*No space left on device"):
        check_shared_memory(environ, world, place(tensor=4))
    shared.unlink()
    shared.symlink_to(tmp_path)
    check_shared_memory(environ, world, place(tensor=4))


def load_mooncake(plugin: str) -> None:
    """What a rank of vllm-ascend does with its connector, in a container."""
    sizes = {side: {"tp_size": 8, "dp_size": 2} for side in ("prefill", "decode")}
    kv = KvTransfer(
        connector="ascend-mooncake", role="kv_producer", engine_id="0", port=36000, extra=sizes,
        fails_on_load_error=True,
    )  # fmt: skip
    check_ascend_connector(kv, place(tensor=8, ranks=2), plugin)


def test_mooncake_is_found_where_the_catalogue_says_that_the_image_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start without the folder that only `~/.bashrc` of the image names ends at once (vllm-ascend issue 6949)."""
    (tmp_path / "hccn.conf").touch()
    monkeypatch.setenv("MOE_REHEARSAL_HCCN_CONF", str(tmp_path / "hccn.conf"))
    monkeypatch.setenv("MOE_REHEARSAL_LOCKED_MEMORY", "unlimited")
    image = tmp_path / "image"
    (image / "usr/local/lib").mkdir(parents=True)
    (image / "usr/local/lib/ascend_transport.so").touch()
    plan = compile_file("a3-2p1d", catalog=Catalog()).plan
    told = plan.processes[0].env_prepend["LD_LIBRARY_PATH"]
    of_recipe, _, of_image = told.rpartition(":")
    for searched in ("", of_recipe):
        monkeypatch.setenv("LD_LIBRARY_PATH", searched)
        with pytest.raises(Failed, match=r"ascend_transport\.so: cannot open shared object file"):
            load_mooncake(plan.engine.version)
        load_mooncake("0.23.0")  # which has a wheel
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{of_recipe}:{image}{of_image}")
    load_mooncake(plan.engine.version)


def efa_world(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, has_libraries: bool
) -> tuple[dict[str, str], World]:
    libraries = [folder / "libfabric.so.1", folder / "libnccl-net-ofi.so"]
    folder.mkdir()
    for path in libraries if has_libraries else []:
        path.touch()
    monkeypatch.setattr("infra.rehearsal.engine.world.EFA_LIBRARIES", tuple(map(str, libraries)))
    environ, _ = container(folder, "h200", {**UNLIMITED, "FI_PROVIDER": "efa"}, CARD)
    state = Path(environ["MOE_REHEARSAL_STATE"]) / "host.json"
    state.write_text(state.read_text().replace('"vendor"', '"network": "efa", "vendor"', 1))
    return environ, read_world(environ)


def test_without_what_speaks_to_efa_hosts_talk_over_sockets_and_kv_does_not_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As vllm-project/vllm issue 55635 has it: the cards are in the container, and nothing there knows them."""
    environ, world = efa_world(tmp_path / "stock", monkeypatch, has_libraries=False)
    assert any("Using network Socket" in line for line in nccl_lines(world, 16))
    with pytest.raises(Failed, match="NIXL_ERR_BACKEND"):
        check_transfer(environ, world, ["LIBFABRIC"])
    environ, world = efa_world(tmp_path / "aws", monkeypatch, has_libraries=True)
    assert any("Using network AWS Libfabric" in line for line in nccl_lines(world, 16))
    check_transfer(environ, world, ["LIBFABRIC"])


@pytest.mark.parametrize(
    ("accelerator", "told", "library"),
    [
        ("h200", {}, "NCCL"),
        ("h200", {"NCCL_SOCKET_IFNAME": "ib"}, "NCCL"),
        ("h200", {"NCCL_SOCKET_IFNAME": "=eth0"}, None),
        ("h200", {"NCCL_SOCKET_IFNAME": "^lo,docker"}, None),
        ("h200", {"NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "ib0"}, "Gloo"),
        ("ascend-a3", {}, "HCCL"),
        ("ascend-a3", {"HCCL_SOCKET_IFNAME": "eth0"}, None),
        ("ascend-a3", {"HCCL_IF_IP": "127.0.0.1"}, None),
    ],
)
def test_hosts_with_two_interfaces_meet_by_the_one_that_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    accelerator: str,
    told: dict[str, str],
    library: str | None,
) -> None:
    """Left to guess, NCCL takes what begins with `ib`, and HCCL the first name: no peer reaches either here."""
    environ, world = container(tmp_path, accelerator, UNLIMITED)
    addresses = {
        "lo": "127.0.0.1",
        "eth0": world.address,
        "ib0": "169.254.78.1",
        "bond1": "169.254.78.1",
    }
    names = ["lo", "eth0", "bond1" if world.vendor == "ascend" else "ib0"]
    monkeypatch.setattr("socket.if_nameindex", lambda: list(enumerate(names)))
    monkeypatch.setattr(network, "_address", lambda name: addresses.get(name, ""))
    over_hosts = place(tensor=world.host_devices, ranks=2)
    check_network({}, place(tensor=world.host_devices), world)
    if library is None:
        check_network({**environ, **told}, over_hosts, world)
        return
    with pytest.raises(Failed, match=rf"(?s){library}.*169\.254\.78\.1"):
        check_network({**environ, **told}, over_hosts, world)
