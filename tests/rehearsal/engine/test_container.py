"""What an engine misses in a container that was given its devices and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.rehearsal.engine.container import check_cards, check_shared_memory, check_transfer
from infra.rehearsal.engine.failures import Failed
from infra.rehearsal.engine.network import nccl_lines
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
        check_transfer(environ, world)
    assert "current: 8192 kbytes" in capfd.readouterr().err
    environ, world = container(tmp_path / "all", "h200", UNLIMITED, CARD)
    check_cards(environ, world, place(tensor=4, ranks=2))
    check_transfer(environ, world)


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
