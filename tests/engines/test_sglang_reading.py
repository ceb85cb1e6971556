"""SGLang's command line read back: data-parallel attention, several hosts, prefill and decode."""

from __future__ import annotations

from infra.catalog.load import Catalog
from infra.engines.reading import Bind, Dial, Reading
from infra.engines.registry import ENGINES
from infra.plan.compile import compile_file


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


def test_two_servers_of_one_host_stand_beside_each_other(catalog: Catalog) -> None:
    assert read(catalog, "--tp 4 --base-gpu-id 4").devices == (4, 5, 6, 7)
    assert read(catalog, "--tp 2 --base-gpu-id 1 --gpu-id-step 4").devices == (1, 5)
    assert read(catalog, "--tp 4 --base-gpu-id 6").devices == (6, 7)
    masked = read(catalog, "--tp 2 --base-gpu-id 2", CUDA_VISIBLE_DEVICES="4,5,6,7")
    assert masked.devices == (6, 7)


def test_processes_meet_at_the_nccl_port_where_they_are_told_no_other(catalog: Catalog) -> None:
    assert Bind(name="nccl", port=29500) in read(catalog, "--tp 8 --nccl-port 29500").binds
    told = read(catalog, "--tp 8 --nccl-port 29500 --dist-init-addr 10.0.0.1:5000")
    assert "nccl" not in {bind.name for bind in told.binds}


def test_attention_ranks_of_one_host_meet_beside_its_http_port(catalog: Catalog) -> None:
    ranks = "--tp 8 --dp 8 --enable-dp-attention"
    assert Bind(name="dist", port=30233, count=6) in read(catalog, ranks).binds
    high = read(catalog, f"{ranks} --port 65500")
    assert Bind(name="dist", port=65267, count=6) in high.binds
    assert [bind.name for bind in read(catalog, "--tp 8 --dp 8").binds] == ["http"]


def test_every_node_of_prefill_is_told_where_the_first_is_met_by_decode(catalog: Catalog) -> None:
    """Before 0.5.12 a node registers with the first host at its own port, or at the default one."""
    sets = ("roles.prefill.tensor_parallel=16",)
    plan = compile_file("sglang-pd-nixl", catalog=catalog, sets=sets).plan
    nodes = [process for process in plan.processes if process.role == "prefill"]
    told = [
        process.argv[process.argv.index("--disaggregation-bootstrap-port") + 1] for process in nodes
    ]
    assert len(nodes) == 2
    assert told == [told[0]] * 2
    names = [{bind.name for bind in process.binds} for process in nodes]
    assert [("bootstrap" in found) for found in names] == [True, False]
