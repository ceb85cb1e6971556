"""A lab that stops what a test started, and checkpoints that many tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rehearsal.engine.simulated_host import Lab, make_checkpoint


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    started = Lab(tmp_path)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def kimi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kimi-K2.5 INT4 with its vision tower."""
    return make_checkpoint(tmp_path_factory.mktemp("weights") / "kimi-k2.5")


@pytest.fixture(scope="session")
def kimi_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kimi-K2-Thinking: the same without vision."""
    return make_checkpoint(
        tmp_path_factory.mktemp("weights") / "kimi-k2-thinking", has_vision=False, total_gb=594.2
    )


@pytest.fixture(scope="session")
def kimi_nvfp4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(
        tmp_path_factory.mktemp("weights") / "nvfp4", scheme="nvfp4", total_gb=591
    )


@pytest.fixture(scope="session")
def kimi_w4a8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("weights") / "w4a8", scheme="w4a8", total_gb=540)


@pytest.fixture(scope="session")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An Eagle3 draft of 6 GB."""
    return make_checkpoint(
        tmp_path_factory.mktemp("weights") / "eagle3", scheme="none", has_vision=False, total_gb=6
    )
