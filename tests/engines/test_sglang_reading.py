"""SGLang's command line read back: data-parallel attention, several hosts, prefill and decode."""

from __future__ import annotations

from infra.catalog.load import Catalog
from infra.engines.reading import Bind, Dial, Reading
from infra.engines.registry import ENGINES


def read(catalog: Catalog, words: str, **env: str) -> Reading:
    argv = ("python", "-m", "sglang.launch_server", *words.split(" "))
    return ENGINES["sglang"].read(argv, env, num_devices=8, flags=catalog.flags("sglang-0.5.9"))


def test_one_host(catalog: Catalog) -> None:
    reading = read(catalog, "--model-path /models/x --tp 8 --port 7100")
    assert (reading.dp_ranks, reading.devices, reading.http_port) == ((0,), tuple(range(8)), 7100)
    assert reading.binds == (Bind(name="http", port=7100),)


def test_the_default_port(catalog: Catalog) -> None:
    assert read(catalog, "--tp 8").http_port == 30000


def test_two_hosts(catalog: Catalog) -> None:
    common = "--tp 16 --nnodes 2 --dist-init-addr 10.0.0.1:12800 --port 7100"
    first, second = (read(catalog, f"{common} --node-rank {node}") for node in (0, 1))
    assert Bind(name="dist", port=12800, count=7) in first.binds
    assert second.dials == (Dial(name="dist", address="10.0.0.1", port=12800),)
    assert (first.dp_ranks, second.dp_ranks) == ((0,), ())
    assert first.devices == second.devices == tuple(range(8))
    assert first.is_leader
    assert not second.is_leader


def test_attention_ranks_divide_the_tensor_parallel_group(catalog: Catalog) -> None:
    common = "--tp 16 --dp-size 4 --enable-dp-attention --nnodes 2 --dist-init-addr 10.0.0.1:12800"
    assert read(catalog, f"{common} --node-rank 0").dp_ranks == (0, 1)
    assert read(catalog, f"{common} --node-rank 1").dp_ranks == (2, 3)


def test_plain_ranks_repeat_the_model(catalog: Catalog) -> None:
    reading = read(catalog, "--tp 4 --dp-size 2")
    assert (reading.dp_ranks, reading.devices) == ((0, 1), tuple(range(8)))


def test_only_prefill_binds_a_bootstrap_port(catalog: Catalog) -> None:
    words = "--tp 8 --disaggregation-bootstrap-port 12600 --disaggregation-mode"
    assert Bind(name="bootstrap", port=12600) in read(catalog, f"{words} prefill").binds
    assert [bind.name for bind in read(catalog, f"{words} decode").binds] == ["http"]


def test_a_mask_limits_devices(catalog: Catalog) -> None:
    assert read(catalog, "--tp 4", CUDA_VISIBLE_DEVICES="4,5,6,7").devices == (4, 5, 6, 7)
