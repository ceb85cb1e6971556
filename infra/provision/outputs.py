"""The outputs of a provisioned stack, asked of the Pulumi command line."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from infra.errors import HostsFailed, PrerequisiteError

_LAST_LINES = 5


def read_outputs(stack: str, folder: Path, environment: Mapping[str, str]) -> dict[str, object]:
    """The outputs of a stack by name, secrets left out.

    Args:
        stack: the stack's name.
        folder: the one that holds `Pulumi.yaml`.
        environment: complete; its PATH finds `pulumi`.

    Raises:
        PrerequisiteError: there is no Pulumi command line, no such stack, or its passphrase is missing.
        HostsFailed: Pulumi answered with something else.
    """
    program = shutil.which("pulumi", path=environment.get("PATH"))
    if program is None:
        raise PrerequisiteError(
            "pulumi", "The Pulumi command line is not on PATH.", "Type: scripts/install-pulumi"
        )
    done = subprocess.run(
        (program, "stack", "output", "--json", "--stack", stack, "--non-interactive"),
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = " ".join(done.stderr.strip().splitlines()[-_LAST_LINES:]).removeprefix("error: ")
        raise PrerequisiteError(
            f"pulumi stack output --stack {stack}", f"Pulumi said: {said}.", _fix(stack, said)
        )
    try:
        outputs = json.loads(done.stdout)
    except json.JSONDecodeError as error:
        what = f"Its answer is not JSON: {error}."
        raise HostsFailed(
            f"pulumi stack output --stack {stack}", what, "Look at it yourself."
        ) from error
    return dict(outputs)


def _fix(stack: str, said: str) -> str:
    """What to type for what Pulumi said."""
    if "no stack named" in said:
        return f"Type: scripts/init-stack {stack}, then pulumi up --stack {stack}"
    if "passphrase" in said:
        return "Set PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE."
    return f"Type: pulumi up --stack {stack}"
