"""The program of a stack, run for a test: in the emulated cloud (`record`) or in a cluster (`provisioned`).

What is heavy is imported where it is used: the process that hands tests to workers reads this file, too, and runs none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from infra.catalog.load import Catalog
    from tests.provision.cluster.answers import Cluster
    from tests.provision.kubernetes_program import Made
    from tests.provision.recorded_runs import Prepare, Recorded, Recorder

# ruff: noqa: PLC0415


def pytest_pycollect_makemodule() -> None:
    """Before a module of this folder is read, all that its tests will load."""
    import tests.provision.loaded_packages  # noqa: F401


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """The shipped catalogue, each file read once for all programs."""
    from tests.provision.kubernetes_program import CATALOG

    return CATALOG


@pytest.fixture(scope="session")
def recorder(catalog: Catalog) -> Recorder:
    """Runs of stacks in the emulated cloud."""
    from tests.provision.recorded_runs import Recorder

    return Recorder(catalog=catalog, said=[])


@pytest.fixture(scope="session")
def log_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the AWS command line, which nobody asks anything here."""
    folder = tmp_path_factory.mktemp("log-in")
    (folder / "aws").write_text("#!/bin/sh\nexit 1\n")
    (folder / "aws").chmod(0o755)
    return folder


@pytest.fixture
def record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorder: Recorder, log_in: Path
) -> Callable[..., Recorded]:
    """Run the program of a stack; keyword arguments are further configuration values.

    `prepare` makes what the account has already; `previous` is the inventory of the last run.
    """
    import pulumi

    from infra.spec.load import PROJECT
    from tests.provision.recorded_runs import Run, nothing

    clouds = (tmp_path / f"cloud-{number}" for number in itertools.count())
    monkeypatch.setenv("PATH", str(log_in), prepend=":")
    for severity in ("info", "warn"):
        monkeypatch.setattr(
            pulumi.log,
            severity,
            lambda text, *_, kind=severity: recorder.said.append(f"{kind}: {text}"),
        )

    def run(
        stack: str,
        *,
        root: Path = PROJECT,
        prepare: Prepare = nothing,
        previous: Mapping[str, Any] | None = None,
        **config: str,
    ) -> Recorded:
        asked = Run(stack=stack, root=root, prepare=prepare, previous=previous or {}, config=config)
        return recorder.record(asked, next(clouds))

    return run


@pytest.fixture(scope="session")
def made_in_clusters() -> dict[object, Made]:
    """Runs of stacks in clusters: many tests look at the same one."""
    return {}


@pytest.fixture
def provisioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_in_clusters: dict[object, Made]
) -> Cluster:
    """Run the program of a stack in a cluster that answers so; keyword arguments are configuration values."""
    from infra.spec.load import PROJECT
    from tests.provision import kubernetes_program

    def run(
        stack: str, answers: dict[str, Any] | None = None, root: Path = PROJECT, **more: str
    ) -> Made:
        found = kubernetes_program.whole_cluster() if answers is None else answers
        key = kubernetes_program.run_key(stack, found, root, more)
        if key not in made_in_clusters:
            folder = tmp_path / "bin"
            kubernetes_program.put_kubectl(folder, found)
            monkeypatch.setenv("PATH", str(folder), prepend=":")
            made_in_clusters[key] = kubernetes_program.run_program(stack, folder, root, **more)
        return made_in_clusters[key]

    return run
