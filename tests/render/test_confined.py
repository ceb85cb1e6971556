"""A router is given no more than it needs, and an engine's container no right that its vendor does not ask for."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.engines.reading import Bind
from infra.plan.compile import compile_file
from infra.plan.process import Plan, Process
from infra.render.cloud_metadata import metadata_table
from infra.render.container import STRANGER
from infra.render.host_state import host_state
from infra.render.process_launch import router_release
from infra.render.units import CONFINED, process_unit
from infra.render.wanted_tuning import Tuning
from tests.needed import need_program, need_root

CATALOG = Catalog()
ROOT = Path(__file__).resolve().parents[2]
FILES = [*sorted(ROOT.glob("stacks/[!P]*.yaml")), *sorted(ROOT.glob("tests/stacks/*.yaml"))]
STACKS = [path.stem for path in FILES if "platform: existing-kubernetes" not in path.read_text()]
ROUTED = [path.stem for path in FILES if path.stem in STACKS and "\nrouter:" in path.read_text()]
MOST_EXPOSED = 3.0  # of systemd's ten


@cache
def plan_of(stack: str) -> Plan:
    return compile_file(stack, catalog=CATALOG).plan


def router_of(plan: Plan) -> Process:
    return next(process for process in plan.processes if process.kind == "router")


def is_native(plan: Plan, process: Process) -> bool:
    package = router_release(process, CATALOG).package
    return plan.runtime == "native" or package is not None


def files_of(plan: Plan, host: str) -> dict[str, str]:
    tuning = Tuning(profile=CATALOG.tuning(plan.tuning))
    state = host_state(plan, host, tuning=tuning, catalog=CATALOG)
    return {item.target: str(item.details.get("content", "")) for item in state.of_groups("files")}


def run_words(script: str) -> list[str]:
    """The words of the one `docker run` or `podman run` of a launch script."""
    return shlex.split(script[script.index("exec ") :].replace("\\\n", ""))


def values(words: list[str], option: str) -> list[str]:
    return [value for name, value in pairwise(words) if name == option]


def with_port(plan: Plan, port: int) -> Plan:
    """The plan whose router serves there."""
    moved = replace(router_of(plan), binds=(Bind(name="http", port=port),))
    others = tuple(process for process in plan.processes if process.kind != "router")
    return replace(plan, processes=(*others, moved))


def exposure(unit: str, folder: Path) -> float:
    """What systemd itself makes of a unit."""
    need_program("systemd-analyze", "systemd")
    path = folder / "moe-x-router@.service"
    path.write_text(re.sub(r"Exec(Start|Stop)\w*=.*", "ExecStart=/bin/true", unit, count=1))
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=20)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stderr
    return float(found[1])


def test_there_are_routers_of_each_kind() -> None:
    kinds = {is_native(plan_of(stack), router_of(plan_of(stack))) for stack in ROUTED}
    assert kinds == {True, False}


@pytest.mark.parametrize("stack", ROUTED)
@pytest.mark.parametrize("port", [8000, 443])
def test_a_router_does_not_run_as_root(stack: str, port: int, tmp_path: Path) -> None:
    plan = with_port(plan_of(stack), port)
    router = router_of(plan)
    files = files_of(plan, router.host)
    unit = files[f"/etc/systemd/system/moe-{stack}-router@.service"]
    if is_native(plan, router):
        assert exposure(unit, tmp_path) <= MOST_EXPOSED
        assert ("CAP_NET_BIND_SERVICE" in unit) is (port < 1024)
        return
    words = run_words(files[f"/etc/moe-infra/{stack}/router-0/launch"])
    assert "--read-only" in words
    assert values(words, "--cap-drop") == ["ALL"]
    assert values(words, "--cap-add") == (["NET_BIND_SERVICE"] if port < 1024 else [])
    assert values(words, "--user") == ([] if port < 1024 else [f"{STRANGER}:{STRANGER}"])
    assert "no-new-privileges" in values(words, "--security-opt")


def test_the_measure_tells_a_unit_that_is_open(tmp_path: Path) -> None:
    assert exposure(process_unit("s", "engine", "native", (), binds_low_port=False), tmp_path) > 9


@pytest.mark.parametrize("stack", STACKS)
def test_an_engines_container_keeps_what_its_vendor_asks_for(stack: str) -> None:
    plan = plan_of(stack)
    for process in plan.processes:
        if process.kind != "engine" or plan.runtime == "native":
            continue
        number = process.id.rpartition("/")[2]
        script = files_of(plan, process.host)[f"/etc/moe-infra/{stack}/engine-{number}/launch"]
        words = run_words(script)
        access = CATALOG.accelerator(plan.host(process.host).accelerator).container
        assert values(words, "--cap-drop") == ["ALL"]
        assert set(values(words, "--cap-add")) == set(access.capabilities)
        assert "no-new-privileges" in values(words, "--security-opt")
        assert "--privileged" not in words


def test_secrets_reach_a_router_that_is_nobody() -> None:
    """By systemd's credentials, or by root's copy where systemd is older than they are."""
    unit = process_unit("s", "router", "native", ("api_key",), binds_low_port=False)
    assert "LoadCredential=api_key:/etc/moe-infra/s/credentials/api_key" in unit
    copy = next(line for line in unit.splitlines() if line.startswith("ExecStartPre=+/bin/sh -c"))
    assert 'test -n "$$CREDENTIALS_DIRECTORY" ||' in copy  # newer ones copy nothing
    assert {"RuntimeDirectory=moe-s-router-%i", "RuntimeDirectoryMode=0700"} < set(unit.split("\n"))
    assert set(CONFINED) < set(unit.split("\n"))
    bare = process_unit("s", "router", "native", (), binds_low_port=False)
    assert "ExecStartPre=+/bin/sh -c" not in bare


def test_stacks_of_one_host_have_metadata_tables_of_their_own() -> None:
    names = [metadata_table(stack) for stack in ("a-b", "a.b", "a_b")]
    assert len(set(names)) == len(names)
    need_root("nft loads rules in a network namespace of its own")
    need_program("nft", "nftables")
    for name in names:
        text = f"table {name} {{\n}}\n"
        shell = f"nft -f - && nft delete table {name}"
        subprocess.run(["unshare", "--net", "sh", "-c", shell], input=text, text=True, check=True)
