"""Runs the configuration code of the simulated engines in this process and returns its verdict."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from infra.rehearsal.engine import sglang_config, vllm_config
from infra.rehearsal.engine.failures import Failed, Refused
from infra.rehearsal.engine.settings import Release, Settings
from infra.rehearsal.engine.world import World, read_world
from tests.rehearsal.engine.simulated_host import make_state


def world(tmp_path: Path, environ: Mapping[str, str], **host: object) -> World:
    """Return a simulated host's world."""
    state = make_state(tmp_path / "host", **host)  # type: ignore[arg-type]
    return read_world({**environ, "MOE_REHEARSAL_STATE": str(state)})


def configure_vllm(
    text: str, release: Release, world: World, environ: Mapping[str, str]
) -> Settings:
    """Parse and configure ``vllm serve``; raise what it would print."""
    args, _ = vllm_config.parse_arguments(shlex.split(text), release)
    settings, _ = vllm_config.configure(args, release, world, dict(environ))
    return vllm_config.fit(settings, args, world)


def configure_sglang(text: str, release: Release, world: World) -> Settings:
    """Parse and configure an SGLang server."""
    args = sglang_config.parse_arguments(shlex.split(text), "launch_server.py", release)
    settings, _ = sglang_config.configure(args, release, world, {})
    return sglang_config.fit(settings, world)


def verdict_of(failure: BaseException) -> str:
    """Return exit code and text in one line of words."""
    assert isinstance(failure, Refused | Failed)
    text = failure.text if isinstance(failure, Refused) else f"{failure.kind}: {failure.message}"
    return f"exit {failure.exit_code}: {' '.join(text.split())}"
