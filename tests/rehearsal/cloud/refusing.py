"""What the real command line says of input that is wrong, and that nothing was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from infra.rehearsal.cloud.scratch_project import RESERVATION, ScratchProject
from infra.rehearsal.cloud.store import read_account, write_account
from tests.rehearsal.cloud.command import Pulumi


def started(project: ScratchProject) -> Pulumi:
    pulumi = Pulumi(project.folder, project.environment, project.stack)
    assert pulumi("stack", "init").returncode == 0
    return pulumi


def refusal(pulumi: Pulumi, cloud: Path, config: Mapping[str, str]) -> str:
    """What `pulumi preview` says with some configuration; nothing was made."""
    words = [f"--config={key}={value}" for key, value in config.items()]
    done = pulumi("preview", *words)
    assert done.returncode != 0, done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert not (cloud / "resources").exists()
    return " ".join(done.stdout.split())


def reserve(project: ScratchProject, **changed: object) -> None:
    """Another reservation under the same id."""
    account = read_account(project.cloud)
    known = replace(account.reservations[RESERVATION], **changed)  # type: ignore[arg-type]  # fields by name
    write_account(project.cloud, replace(account, reservations={RESERVATION: known}))
