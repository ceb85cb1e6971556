"""What engines compile outlives their containers, and is never another image's."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from infra.agent.caches import FOLDER
from infra.catalog.load import Catalog
from infra.catalog.schema import Release
from infra.plan.compile import compile_file
from infra.render.compile_cache import (
    CACHE_MOUNT,
    CONTAINER_FOLDER,
    cache_lines,
    cache_variables,
)
from infra.render.host_state import host_state
from infra.render.wanted_tuning import Tuning

ENGINES = ("vllm", "vllm-ascend", "sglang")
RELEASES = [(name, version) for name in ENGINES for version in Catalog().ids(f"engines/{name}")]


def files_of(stack: str, catalog: Catalog, *sets: str) -> dict[str, str]:
    """The files of a stack's first host, by path."""
    plan = compile_file(stack, catalog=catalog, sets=sets).plan
    tuning = Tuning(profile=catalog.tuning(plan.tuning))
    state = host_state(plan, plan.hosts[0].name, tuning=tuning, catalog=catalog)
    return {item.target: str(item.details.get("content")) for item in state.of_groups("files")}


@pytest.mark.parametrize(("engine", "version"), RELEASES)
def test_every_release_says_where_its_caches_lie(
    engine: str, version: str, catalog: Catalog
) -> None:
    """Its own variables are those that its package reads; the rest are libraries'."""
    release: Release = catalog.release(engine, version)
    assert release.compile_caches.keys() == set(release.vendors) - {"cpu"}
    read = catalog.environment_names(release.envs_catalogues).names
    for variables in release.compile_caches.values():
        own = {name for name in variables if name.startswith(("VLLM_", "SGLANG_"))}
        assert own
        assert own <= read
        assert len(set(variables.values())) == len(variables)
        assert {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"} <= variables.keys()
        # the modules that an image holds would not be found any more
        assert "AITER_JIT_DIR" not in variables


def test_a_container_is_told_of_its_caches_and_given_their_folder(catalog: Catalog) -> None:
    files = files_of("h200-tp8", catalog)
    folder = "/etc/moe-infra/h200-tp8/engine-0"
    assert f"\nVLLM_CACHE_ROOT={CONTAINER_FOLDER}/vllm\n" in files[f"{folder}/environment"]
    assert (
        f"\nFLASHINFER_WORKSPACE_BASE={CONTAINER_FOLDER}/flashinfer\n"
        in files[f"{folder}/environment"]
    )
    assert CACHE_MOUNT in files[f"{folder}/launch"]
    assert f"{FOLDER}/h200-tp8/compile/h200/" in files[f"{folder}/launch"]


def test_what_the_operator_says_stays(catalog: Catalog) -> None:
    files = files_of("h200-tp8", catalog, "defaults.env.VLLM_CACHE_ROOT=/data/mine")
    text = files["/etc/moe-infra/h200-tp8/engine-0/environment"]
    assert "\nVLLM_CACHE_ROOT=/data/mine\n" in text
    assert text.count("VLLM_CACHE_ROOT=") == 1
    assert f"\nTRITON_CACHE_DIR={CONTAINER_FOLDER}/triton\n" in text


def test_without_a_container_nothing_is_lost(catalog: Catalog) -> None:
    plan = compile_file("vllm-native", catalog=catalog).plan
    assert {tuple(cache_variables(plan, each, catalog)) for each in plan.processes} == {()}
    launch = files_of("vllm-native", catalog)["/etc/moe-infra/vllm-native/engine-0/launch"]
    assert "cache" not in launch


def test_a_router_compiles_nothing(catalog: Catalog) -> None:
    plan = compile_file("a3-2p1d", catalog=catalog).plan
    router = next(each for each in plan.processes if each.kind == "router")
    assert cache_variables(plan, router, catalog) == {}


def said(folder: Path, image: str, runtime: str = "docker") -> str:
    """What a launch script would mount, of an image with that id; "" for an image that is not there."""
    program = folder / "bin" / runtime
    program.parent.mkdir(parents=True, exist_ok=True)
    shows = f'test "$*" = "image inspect --format {{{{.Id}}}} an/image:tag" && echo {image}'
    program.write_text(f"#!/bin/sh\n{shows if image else 'exit 1'}\n")
    program.chmod(0o755)
    lines = "\n".join(
        cache_lines("docker" if runtime == "docker" else "podman", "an/image:tag", "s", "h200")
    )
    script = f"set -eu\n{lines.replace(FOLDER, str(folder))}\nprintf '%s\\n' {CACHE_MOUNT}"
    env: Mapping[str, str] = {"PATH": f"{program.parent}:/usr/bin:/bin"}
    done = subprocess.run(
        ["/bin/sh", "-c", script], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("runtime", ["docker", "podman"])
def test_every_image_has_a_folder_of_its_own(runtime: str, tmp_path: Path) -> None:
    """A tag that means another image than before reads nothing of the one before."""
    prefix = "sha256:" if runtime == "docker" else ""  # podman prints none
    words = [said(tmp_path, f"{prefix}{image}", runtime) for image in ("aa", "bb", "aa")]
    source = f"--mount=type=bind,source={tmp_path}/s/compile/h200/%s,target={CONTAINER_FOLDER}"
    assert words == [source % "aa", source % "bb", source % "aa"]
    assert (tmp_path / "s" / "compile" / "h200" / "aa").is_dir()


def test_where_there_can_be_no_folder_the_engine_starts_without(tmp_path: Path) -> None:
    assert said(tmp_path, "") == ""
    (tmp_path / "s").write_text("a file")
    assert said(tmp_path, "aa") == ""
