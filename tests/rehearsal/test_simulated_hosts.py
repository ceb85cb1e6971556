"""What simulated hosts hold is what the report says of them."""

from __future__ import annotations

import importlib.metadata
import json
import sys

import pytest

from infra.catalog.load import Catalog
from infra.memory.overhead import OVERHEAD_GIB
from infra.plan.compile import compile_file
from infra.rehearsal.simulated_hosts import STATE, Pace, simulate_hosts
from infra.render.host_paths import ROUTER_ENVIRONMENTS

PACE = Pace(time_scale=0.02, load_seconds=0.3)
CATALOG = Catalog()
WHEELS = [name for name in CATALOG.ids("routers") if CATALOG.router(name).package is not None]


@pytest.mark.parametrize("name", WHEELS)
def test_a_router_that_is_called_real_is_the_catalogued_release(name: str) -> None:
    release = CATALOG.router(name)
    package, _, version = str(release.package).partition("==")
    assert version == release.version
    assert importlib.metadata.version(package) == release.version


@pytest.mark.parametrize("name", WHEELS)
def test_hosts_start_the_wheel_itself(name: str) -> None:
    release = CATALOG.router(name)
    (host, *_) = simulate_hosts(compile_file("h200-tp8", catalog=CATALOG).plan, CATALOG, PACE)
    program = release.program[0]
    path = f"{ROUTER_ENVIRONMENTS}/{name}-{release.version}/bin/{program}"
    script = host.files[path].content
    assert f"exec {sys.prefix}/bin/{program} ".encode() in script


def test_hosts_begin_without_anything_that_the_product_installs() -> None:
    ours = ("/etc/moe-infra", "/etc/systemd/system/moe-", "/etc/sysctl.d/", "/var/lib/moe-infra")
    for host in simulate_hosts(compile_file("a3-2p1d", catalog=CATALOG).plan, CATALOG, PACE):
        assert [path for path in host.files if path.startswith(ours)] == []


def test_simulated_engines_need_as_much_beside_weights_as_the_rules_say() -> None:
    (host,) = simulate_hosts(compile_file("h200-tp8", catalog=CATALOG).plan, CATALOG, PACE)
    assert (
        json.loads(host.files[f"{STATE}/host.json"].content)["overhead_gib"] == OVERHEAD_GIB["vllm"]
    )
