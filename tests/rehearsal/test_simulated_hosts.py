"""What simulated hosts hold is what the report says of them."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from infra.catalog.load import Catalog
from infra.launch.preflight.place_checks import given_sources
from infra.launch.preflight.scene import Scene
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
    *_, last = host.files[path].content.decode().splitlines()
    # the program as hosts see it, looked up where it lies here
    words = last
    for bind in host.binds:
        words = words.replace(bind.target, bind.source)
    assert words.startswith(f"exec {Path(sys.executable).resolve()} ")
    assert program == "python" or f" {sys.prefix}/bin/{program} " in words


@pytest.mark.parametrize(
    "stack", ["gb200-2p1d", "h200-2n-tp16", "mi355x-tp8", "a2-2n-dp4tp4", "a3-2p1d"]
)
def test_hosts_hold_what_containers_are_given(stack: str) -> None:
    """Otherwise every `up` would be refused there: the light preflight looks for it."""
    plan = compile_file(stack, catalog=CATALOG).plan
    scene = Scene(
        plan=plan, catalog=CATALOG, depth="light", hosts={}, running=frozenset(), recorded={}
    )
    for host in simulate_hosts(plan, CATALOG, PACE):
        folders = {str(parent) for path in host.files for parent in PurePosixPath(path).parents}
        given = {source.rstrip("/") for source in given_sources(scene, host.name)}
        assert given <= {*host.files, *folders}


@pytest.mark.parametrize(
    ("words", "exit_code", "says"),
    [
        ("show -p NTPSynchronized", 0, "NTPSynchronized=yes\n"),
        ("--frobnicate", 1, "/usr/bin/timedatectl: unrecognized option '--frobnicate'\n"),
        ("show -p", 1, "/usr/bin/timedatectl: option requires an argument -- 'p'\n"),
    ],
)
def test_the_clock_is_asked_as_the_real_tool_is(
    words: str, exit_code: int, says: str, tmp_path: Path
) -> None:
    """What is no question about the clock goes to the machine's own timedatectl, and so do mistakes."""
    (host, *_) = simulate_hosts(compile_file("h200-tp8", catalog=CATALOG).plan, CATALOG, PACE)
    program = tmp_path / "timedatectl"
    program.write_bytes(host.files["/usr/local/bin/timedatectl"].content)
    done = subprocess.run(
        ["sh", str(program), *words.split()], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (exit_code, says)


def test_hosts_begin_without_anything_that_the_product_installs() -> None:
    ours = ("/etc/moe-infra", "/etc/systemd/system/moe-", "/etc/sysctl.d/", "/var/lib/moe-infra")
    for host in simulate_hosts(compile_file("a3-2p1d", catalog=CATALOG).plan, CATALOG, PACE):
        assert [path for path in host.files if path.startswith(ours)] == []


def test_simulated_engines_need_as_much_beside_weights_as_the_rules_say() -> None:
    (host,) = simulate_hosts(compile_file("h200-tp8", catalog=CATALOG).plan, CATALOG, PACE)
    assert (
        json.loads(host.files[f"{STATE}/host.json"].content)["overhead_gib"] == OVERHEAD_GIB["vllm"]
    )
