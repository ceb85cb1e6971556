"""A stack provisioned by the real Pulumi command line in the emulated cloud."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.errors import HostsFailed
from infra.rehearsal.cloud.google_kinds import MACHINE
from infra.rehearsal.cloud.kind import values_at
from infra.rehearsal.cloud.machine_kinds import INSTANCE
from infra.rehearsal.cloud.scratch_project import make_scratch_project
from infra.rehearsal.installed import find_pulumi
from infra.rehearsal.pulumi_project import PulumiProject

UP = ("up", "--json", "--yes", "--skip-preview", "--skip-plugin-pre-install", "--non-interactive")
_LAST_LINES = 10
# Where a machine's address stands among its outputs; of several interfaces, the first one's.
_ADDRESSES: Mapping[str, str] = {
    INSTANCE: "privateIp",
    MACHINE: "networkInterfaces[].networkIp",
}
_DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
# The engine, its language host and the provider end together, whoever of them is killed.
_TOGETHER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudResult:
    """What `pulumi up` left behind.

    Args:
        outputs: of the stack, by name; `inventory` is the one there is.
        pulumi_dir: scratch copy of the project's Pulumi files, for `pulumi -C`.
        pulumi_env: a complete environment for it.
    """

    outputs: dict[str, object]
    pulumi_dir: Path
    pulumi_env: dict[str, str]


def provision_in_emulated_cloud(  # noqa: PLR0913 - each is one thing that a rehearsal decides
    stack: str,
    scratch: Path,
    *,
    spec_file: Path | None = None,
    pulumi_bin: Path | None = None,
    config: Mapping[str, str] | None = None,
    say: Callable[[str], None],
) -> CloudResult:
    """Run the project's own program for a stack against the emulated cloud.

    Args:
        stack: the stack's name.
        scratch: an empty or new folder; everything that is written lies in it.
        spec_file: the stack file, None for a shipped one.
        pulumi_bin: folder of the command line, None to find it.
        config: further configuration values (`ssh_user`, `vpc_cidr`, …) as `pulumi config set` takes them.
        say: told about each machine as it comes up.

    Raises:
        PrerequisiteError: there is no Pulumi command line.
        HostsFailed: Pulumi or the emulated cloud refused; the message is theirs.
    """
    project = make_scratch_project(
        stack,
        scratch,
        spec_file=spec_file,
        pulumi_bin=pulumi_bin or find_pulumi(),
        config=config or {},
    )
    outputs = bring_up(project, say)
    return CloudResult(
        outputs=outputs, pulumi_dir=project.folder, pulumi_env=dict(project.environment)
    )


def bring_up(project: PulumiProject, say: Callable[[str], None]) -> dict[str, object]:
    """Create the stack when it is new, run `pulumi up`; returns the stack's outputs.

    Raises:
        HostsFailed: Pulumi or the emulated cloud refused; what was made before stays in the state.
    """
    if not project.is_initialised:
        _run(project, ("stack", "init", project.stack, "--non-interactive"))
    return _run_up(project, say)


def _run(project: PulumiProject, words: tuple[str, ...]) -> str:
    done = subprocess.run(
        _program(words),
        cwd=project.folder,
        env=project.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )
    if done.returncode != 0:
        raise _failure(words, done.stderr.strip().splitlines()[-_LAST_LINES:])
    return done.stdout


def _run_up(project: PulumiProject, say: Callable[[str], None]) -> dict[str, object]:
    """`pulumi up`, one line of JSON per event; returns the stack's outputs."""
    words = (*UP, "--stack", project.stack)
    with subprocess.Popen(
        _program(words),
        cwd=project.folder,
        env=project.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            return _follow(process, words, say)
        except BaseException:
            process.kill()  # all of it is a scratch copy: nothing has to be finished or unlocked
            raise


def _program(words: tuple[str, ...]) -> tuple[str, ...]:
    """The command line, so that none of its processes outlives this one; Ctrl-C reaches only this one."""
    return (*_DIES_WITH_US, *(_TOGETHER if os.geteuid() == 0 else ()), "pulumi", *words)


def _follow(
    process: subprocess.Popen[str], words: tuple[str, ...], say: Callable[[str], None]
) -> dict[str, object]:
    outputs: dict[str, object] = {}
    errors: list[str] = []
    for event in _events(process):
        diagnostic = event.get("diagnosticEvent", {})
        if diagnostic.get("severity") == "error":
            errors += str(diagnostic.get("message")).strip().splitlines()
        made = event.get("resOutputsEvent", {}).get("metadata", {})
        new = made.get("new") or {}
        path = _ADDRESSES.get(made.get("type", ""))
        if path is not None and made.get("op") == "create":
            address = next(values_at(new.get("outputs", {}), path), None)
            say(f"{made['urn'].rpartition('::')[2]} runs at {address}")
        if made.get("type") == "pulumi:pulumi:Stack":
            outputs = new.get("outputs", {})
    stderr = process.stderr.read() if process.stderr else ""
    if process.wait() != 0:
        raise _failure(words, errors or stderr.strip().splitlines()[-_LAST_LINES:])
    return outputs


def _events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    for line in process.stdout or ():
        if line.startswith("{"):
            yield json.loads(line)


def _failure(words: tuple[str, ...], lines: list[str]) -> HostsFailed:
    what = "\n".join(dict.fromkeys(lines)) or "it said nothing."
    return HostsFailed(
        f"pulumi {words[0]}", what, "Nothing of it is real: mend the cause and rehearse again."
    )
