"""The outputs of a provisioned stack, asked of the Pulumi command line."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.errors import HostsFailed, PrerequisiteError

_LAST_LINES = 5
_MOST_NAMED = 4


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
    return _asked(("output", "--json"), stack, folder, environment)


def refuse_gone_machines(
    outputs: Mapping[str, object], stack: str, folder: Path, environment: Mapping[str, str]
) -> None:
    """Refuse outputs whose machines are no longer in Pulumi's state: `destroy` with exclusions leaves the outputs.

    Raises:
        PrerequisiteError: machines are gone; or as `read_outputs`.
        HostsFailed: as `read_outputs`.
    """
    inventory = outputs.get("inventory")
    hosts = inventory.get("hosts") if isinstance(inventory, Mapping) else None
    told = {
        str(host["instance_id"]): str(host["name"])
        for host in (hosts if isinstance(hosts, list) else [])
        if isinstance(host, Mapping) and host.get("instance_id")
    }
    if not told:
        return
    deployment = _asked(("export",), stack, folder, environment).get("deployment")
    rows = deployment.get("resources") if isinstance(deployment, Mapping) else None
    held = {str(row.get("id")) for row in (rows if isinstance(rows, list) else [])}
    gone = [name for identity, name in told.items() if identity not in held]
    if gone:
        more = f" and {len(gone) - _MOST_NAMED} more" if len(gone) > _MOST_NAMED else ""
        named = f"{', '.join(gone[:_MOST_NAMED])}{more}"
        what = f"The outputs name machines that are no longer in Pulumi's state, so they were given back: {named}."
        raise PrerequisiteError(
            f"pulumi stack output --stack {stack}", what, f"Type: pulumi up --stack {stack}"
        )


def _asked(
    words: Sequence[str], stack: str, folder: Path, environment: Mapping[str, str]
) -> dict[str, object]:
    """The JSON document that `pulumi stack` prints for some words."""
    program = shutil.which("pulumi", path=environment.get("PATH"))
    if program is None:
        raise PrerequisiteError(
            "pulumi", "The Pulumi command line is not on PATH.", "Type: scripts/install-pulumi"
        )
    asked = f"pulumi stack {words[0]} --stack {stack}"
    done = subprocess.run(
        (program, "stack", *words, "--stack", stack, "--non-interactive"),
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = " ".join(done.stderr.strip().splitlines()[-_LAST_LINES:]).removeprefix("error: ")
        raise PrerequisiteError(asked, f"Pulumi said: {said}.", _fix(stack, said))
    try:
        return dict(json.loads(done.stdout))
    except json.JSONDecodeError as error:
        what = f"Its answer is not JSON: {error}."
        raise HostsFailed(asked, what, "Look at it yourself.") from error


def _fix(stack: str, said: str) -> str:
    """What to type for what Pulumi said."""
    if "no stack named" in said:
        return f"Type: scripts/init-stack {stack}, then pulumi up --stack {stack}"
    if "passphrase" in said:
        return "Set PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE."
    return f"Type: pulumi up --stack {stack}"
