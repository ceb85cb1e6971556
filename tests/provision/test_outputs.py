from __future__ import annotations

import os
from pathlib import Path

import pytest

from infra.errors import HostsFailed, PrerequisiteError
from infra.provision.outputs import read_outputs


def pulumi_that(tmp_path: Path, script: str) -> dict[str, str]:
    """An environment whose `pulumi` is a script."""
    program = tmp_path / "pulumi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{tmp_path}{os.pathsep}{os.defpath}"}


def test_outputs_are_read(tmp_path: Path) -> None:
    environment = pulumi_that(tmp_path, """echo "$@" > said; echo '{"inventory": {"schema": 1}}'""")
    assert read_outputs("mine", tmp_path, environment) == {"inventory": {"schema": 1}}
    assert (tmp_path / "said").read_text().split()[:5] == [
        "stack",
        "output",
        "--json",
        "--stack",
        "mine",
    ]


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        ("error: no stack named 'mine' found", "scripts/init-stack mine"),
        (
            "error: get stack secrets manager: passphrase must be set",
            "Set PULUMI_CONFIG_PASSPHRASE",
        ),
        ("error: something else", "pulumi up --stack mine"),
    ],
)
def test_what_pulumi_says_gets_its_fix(tmp_path: Path, said: str, fix: str) -> None:
    environment = pulumi_that(tmp_path, f'echo "{said}" >&2; exit 6')
    with pytest.raises(PrerequisiteError) as caught:
        read_outputs("mine", tmp_path, environment)
    assert fix in caught.value.fix
    assert said.removeprefix("error: ") in caught.value.what


def test_no_command_line_names_the_script_that_gets_it(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="scripts/install-pulumi"):
        read_outputs("mine", tmp_path, {"PATH": str(tmp_path)})


def test_an_answer_that_is_not_json_is_told(tmp_path: Path) -> None:
    with pytest.raises(HostsFailed, match="not JSON"):
        read_outputs("mine", tmp_path, pulumi_that(tmp_path, "echo hello"))
