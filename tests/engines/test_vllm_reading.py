"""vLLM's modes read back: the verdicts of its own `create_engine_config`, run on 2026-11-20."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.engines.reading import Bind, Dial, Reading
from infra.engines.registry import ENGINES

NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_producer"}'
MOONCAKE = '{"kv_connector":"MooncakeConnector","kv_role":"kv_producer"}'
ASCEND = '{"kv_connector":"MooncakeConnectorV1","kv_role":"%s","kv_port":"61000"}'


class Reader:
    """Reads words of a command line on a host of eight devices."""

    def __init__(self, catalog: Catalog) -> None:
        self._flags = catalog.flags("vllm-0.22.1")

    def __call__(self, words: str, *more: str, **env: str) -> Reading:
        argv = ("vllm", "serve", "/models/x", *(word for word in words.split(" ") if word), *more)
        return ENGINES["vllm"].read(argv, env, num_devices=8, flags=self._flags)


@pytest.fixture
def read(catalog: Catalog) -> Reader:
    return Reader(catalog)


def test_single(read: Reader) -> None:
    reading = read("--port 7100 -tp 8")
    assert (reading.dp_ranks, reading.devices) == ((0,), tuple(range(8)))
    assert reading.binds == (Bind(name="http", port=7100),)
    assert reading.dials == ()
    assert reading.flags["model"] == "/models/x"


def test_defaults(read: Reader) -> None:
    reading = read("")
    assert (reading.http_port, reading.devices, reading.group_size) == (8000, (0,), 1)


def test_internal_on_one_host_binds_no_handshake_port(read: Reader) -> None:
    reading = read("-tp 2 -dp 4")
    assert reading.dp_ranks == (0, 1, 2, 3)
    assert [bind.name for bind in reading.binds] == ["http"]


def test_internal_over_hosts(read: Reader) -> None:
    common = "-tp 4 -dp 4 --data-parallel-size-local 2 --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 12321"
    leader = read(common)
    follower = read(f"{common} --headless --data-parallel-start-rank 2")
    assert (leader.dp_ranks, follower.dp_ranks) == ((0, 1), (2, 3))
    assert Bind(name="dp_rpc", port=12321) in leader.binds
    assert (follower.http_port, follower.binds) == (None, ())
    assert follower.dials == (Dial(name="dp_rpc", address="10.0.0.1", port=12321),)
    assert leader.devices == follower.devices == tuple(range(8))


def test_a_start_rank_without_headless_is_hybrid(read: Reader) -> None:
    reading = read("-tp 4 -dp 4 --data-parallel-size-local 2 --data-parallel-start-rank 2")
    assert reading.http_port == 8000
    assert getattr(reading.extra["parallel"], "mode", "") == "hybrid"


def test_external(read: Reader) -> None:
    common = "-tp 1 -dp 16 --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 13390"
    leader = read(f"{common} --data-parallel-rank 0", CUDA_VISIBLE_DEVICES="0")
    other = read(f"{common} --data-parallel-rank 3", CUDA_VISIBLE_DEVICES="3")
    assert (leader.dp_ranks, other.dp_ranks) == ((0,), (3,))
    assert (leader.devices, other.devices) == ((0,), (3,))
    assert Bind(name="dp_rpc", port=13390) in leader.binds
    assert other.dials == (Dial(name="dp_rpc", address="10.0.0.1", port=13390),)
    assert leader.is_leader
    assert not other.is_leader


def test_external_ranks_without_a_mask_all_take_the_first_device(read: Reader) -> None:
    assert read("-dp 4 --data-parallel-rank 3").devices == (0,)


def test_multi_port(read: Reader) -> None:
    words = "-tp 2 -dp 4 --data-parallel-multi-port-external-lb --data-parallel-size-local 4 --port 7100"
    reading = read(f"{words} --data-parallel-supervisor-port 12500")
    assert Bind(name="http", port=7100, count=4) in reading.binds
    assert Bind(name="supervisor", port=12500) in reading.binds


def test_tensor_parallel_over_hosts(read: Reader) -> None:
    common = "-tp 16 --nnodes 2 --master-addr 10.0.0.1 --master-port 12400"
    leader, follower = read(f"{common} --node-rank 0"), read(f"{common} --node-rank 1 --headless")
    assert (leader.dp_ranks, follower.dp_ranks) == ((0,), ())
    assert Bind(name="master", port=12400) in leader.binds
    assert follower.dials == (Dial(name="master", address="10.0.0.1", port=12400),)
    assert leader.devices == follower.devices == tuple(range(8))


def test_ranks_inferred_from_the_node(read: Reader) -> None:
    reading = read("-tp 4 -dp 4 --nnodes 2 --node-rank 1 --master-addr 10.0.0.1")
    assert reading.dp_ranks == (2, 3)
    assert reading.devices == tuple(range(8))


def test_nixl_adds_the_rank_to_its_base(read: Reader) -> None:
    reading = read(
        "-dp 16 --data-parallel-rank 3 --kv-transfer-config",
        NIXL,
        VLLM_NIXL_SIDE_CHANNEL_PORT="17600",
    )
    assert Bind(name="side_channel", port=17603) in reading.binds


def test_nixls_default_base(read: Reader) -> None:
    assert Bind(name="side_channel", port=5600) in read("--kv-transfer-config", NIXL).binds


def test_upstream_mooncake_binds_one_bootstrap_port(read: Reader) -> None:
    reading = read("--kv-transfer-config", MOONCAKE, VLLM_MOONCAKE_BOOTSTRAP_PORT="12600")
    assert Bind(name="bootstrap", port=12600) in reading.binds


@pytest.mark.parametrize(
    ("words", "port", "count"),
    [
        ("-tp 8 -dp 2 --data-parallel-rank 0", 61000, 8),
        ("-tp 8 -dp 2 --data-parallel-rank 1", 61008, 8),
        ("-tp 2 -dp 4", 61000, 8),
        ("-tp 16 --nnodes 2 --node-rank 0", 61000, 8),
        ("-tp 16 --nnodes 2 --node-rank 1 --headless", 61008, 8),
    ],
)
def test_ascends_mooncake_binds_a_port_per_device(
    words: str, port: int, count: int, read: Reader
) -> None:
    reading = read(f"{words} --kv-transfer-config", ASCEND % "kv_producer")
    assert Bind(name="kv", port=port, count=count) in reading.binds


def test_ascends_consumer_binds_none(read: Reader) -> None:
    reading = read("--kv-transfer-config", ASCEND % "kv_consumer")
    assert [bind.name for bind in reading.binds] == ["http"]


def test_masks_of_every_vendor(read: Reader) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"):
        assert read("-tp 2", **{name: "6, 4,5"}).devices == (4, 6)


def test_refused_words_are_kept_with_the_reason(read: Reader) -> None:
    assert read("--prot 1").unknown == (("--prot", "unrecognized arguments: --prot"),)


def test_p2p_nccl_listens_for_each_worker(read: Reader) -> None:
    config = '{"kv_connector":"P2pNcclConnector","kv_role":"%s","kv_port":21001}'
    for role in ("kv_producer", "kv_consumer"):
        binds = read("-tp 4", "--kv-transfer-config", config % role).binds
        assert Bind(name="kv", port=21001, count=4) in binds
