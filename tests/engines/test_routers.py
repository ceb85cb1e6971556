"""The routers' command lines: what is written is read back, and foreign spellings are understood."""

from __future__ import annotations

import itertools

import pytest

from infra.catalog.load import Catalog
from infra.engines.reading import Bind, Dial
from infra.engines.routers import (
    Endpoint,
    RouterContext,
    longest_answer_s,
    read_router,
    write_router,
)
from infra.plan.compile import compile_file
from infra.spec.stack import KvTransfer, RouterName


def endpoint(role: str, host: int, port: int, bootstrap: int | None = None) -> Endpoint:
    return Endpoint(role=role, address=f"10.0.0.{host}", port=port, bootstrap_port=bootstrap)


def context(
    catalog: Catalog, name: RouterName, kv_transfer: KvTransfer | None, *endpoints: Endpoint
) -> RouterContext:
    return RouterContext(
        release=catalog.router(name),
        address="10.0.0.9",
        port=8000,
        metrics_address="127.0.0.1",
        prometheus_port=29000,
        longest_answer_s=7200,
        policy=None,
        kv_transfer=kv_transfer,
        endpoints=endpoints,
    )


PROXY = "/vllm-workspace/load_balance_proxy_server_example.py"
PAIR = (endpoint("prefill", 1, 7100), endpoint("decode", 2, 7100), endpoint("decode", 2, 7101))


@pytest.mark.parametrize(
    ("name", "kv"),
    [("vllm-router", "nixl"), ("sglang-router", "nixl"), ("ascend-proxy", "mooncake")],
)
def test_prefill_and_decode_are_read_back(
    name: RouterName, kv: KvTransfer, catalog: Catalog
) -> None:
    release = catalog.router(name)
    argv = write_router(name, context(catalog, name, kv, *PAIR))
    reading = read_router(
        argv, catalog.flags(release.flags_catalogue) if release.flags_catalogue else None
    )
    assert reading.unknown == ()
    assert [(dial.address, dial.port) for dial in reading.dials] == [
        (e.address, e.port) for e in PAIR
    ]
    assert reading.flags["prefill"] == ("http://10.0.0.1:7100",)
    assert reading.flags["decode"] == ("http://10.0.0.2:7100", "http://10.0.0.2:7101")
    assert Bind(name="http", port=8000) in reading.binds


@pytest.mark.parametrize("name", ["vllm-router", "sglang-router"])
def test_plain_workers_are_read_back(name: RouterName, catalog: Catalog) -> None:
    release = catalog.router(name)
    assert release.flags_catalogue is not None
    workers = (endpoint("unified", 1, 7100), endpoint("unified", 2, 7100))
    reading = read_router(
        write_router(name, context(catalog, name, None, *workers)),
        catalog.flags(release.flags_catalogue),
    )
    assert reading.unknown == ()
    assert reading.dials == tuple(
        Dial(name="http", address=e.address, port=e.port) for e in workers
    )
    assert Bind(name="prometheus", port=29000) in reading.binds


def test_a_bootstrap_port_follows_its_prefill_url(catalog: Catalog) -> None:
    pair = (endpoint("prefill", 1, 7100, 12600), endpoint("decode", 2, 7100))
    argv = write_router("vllm-router", context(catalog, "vllm-router", "mooncake", *pair))
    at = argv.index("--prefill")
    assert argv[at : at + 3] == ("--prefill", "http://10.0.0.1:7100", "12600")
    reading = read_router(argv, catalog.flags("vllm-router-0.1.17"))
    assert Dial(name="bootstrap", address="10.0.0.1", port=12600) in reading.dials


@pytest.mark.parametrize(
    ("url", "address", "port"),
    [
        ("http://10.0.0.1:7100", "10.0.0.1", 7100),
        ("http://Host.example:7100/v1", "host.example", 7100),
        ("http://host.example", "host.example", 80),
        ("http://[::1]:7100", "::1", 7100),
        ("https://host:7100", "host", 7100),
    ],
)
def test_urls_of_foreign_plans(url: str, address: str, port: int, catalog: Catalog) -> None:
    reading = read_router(
        ("vllm-router", "--worker-urls", url), catalog.flags("vllm-router-0.1.17")
    )
    assert reading.dials == (Dial(name="http", address=address, port=port),)


def test_the_proxys_lists_must_be_of_equal_length() -> None:
    argv = ("python", PROXY, "--prefiller-hosts", "a", "b", "--prefiller-ports", "1", "--decoder-hosts", "c",
            "--decoder-ports", "2")  # fmt: skip
    reading = read_router(argv, None)
    assert ("--prefiller-ports", "2 prefiller hosts but 1 ports") in reading.unknown


def test_the_proxy_refuses_unknown_words() -> None:
    assert read_router(("python", PROXY, "--prot", "1"), None).unknown[0][0] == "--prot"


@pytest.mark.parametrize("name", ["vllm-router", "sglang-router"])
def test_the_wheels_are_told_where_metrics_are_served_and_how_long_answers_last(
    name: RouterName, catalog: Catalog
) -> None:
    words = write_router(name, context(catalog, name, None, endpoint("unified", 1, 7100)))
    given = dict(itertools.pairwise(words))
    assert given["--prometheus-host"] == "127.0.0.1"
    assert given["--request-timeout-secs"] == "7200"


@pytest.mark.parametrize(
    ("sets", "num_tokens"),
    [
        ((), 131072),
        (("defaults.max_model_len=null",), 262144),  # the checkpoint's context
        (("roles.decode.max_model_len=8192", "roles.prefill.max_model_len=65536"), 8192),
    ],
)
def test_an_answer_may_last_as_long_as_its_role_lets_it(
    sets: tuple[str, ...], num_tokens: int, catalog: Catalog
) -> None:
    router = compile_file("vllm-shared-1p1d", catalog=catalog, sets=sets).plan.processes[-1]
    limit_s = int(router.argv[router.argv.index("--request-timeout-secs") + 1])
    assert limit_s == longest_answer_s(num_tokens) == 3600 + num_tokens


@pytest.mark.parametrize("name", ["vllm-router", "sglang-router", "ascend-proxy"])
def test_a_router_reads_what_its_parser_reads(name: RouterName, catalog: Catalog) -> None:
    release = catalog.router(name)
    lists = {
        "ascend-proxy": "--prefiller-host 10.0.0.1 --prefiller-p=7100 --decoder-hosts 10.0.0.2 --decoder-port 7101",
    }.get(name, "--prefill=http://10.0.0.1:7100 --decode http://10.0.0.2:7101")
    argv = (*release.program, *lists.split(" "), "--por", "9000")
    reading = read_router(
        argv, catalog.flags(release.flags_catalogue) if release.flags_catalogue else None
    )
    assert reading.unknown == ()
    assert reading.http_port == 9000
    assert reading.flags["prefill"] == ("http://10.0.0.1:7100",)
    assert reading.flags["decode"] == ("http://10.0.0.2:7101",)
