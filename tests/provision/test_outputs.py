from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from infra.errors import HostsFailed, PrerequisiteError
from infra.provision.outputs import read_outputs, refuse_gone_machines


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


@pytest.mark.parametrize(
    ("held", "gone"),
    [
        (["i-1", "i-2"], ""),
        (["i-1"], "decode-1"),
        ([], "decode-0, decode-1"),
    ],
)
def test_machines_that_the_state_no_longer_has_are_told(
    tmp_path: Path, held: list[str], gone: str
) -> None:
    state = {"deployment": {"resources": [{"id": each, "urn": "x"} for each in held]}}
    environment = pulumi_that(tmp_path, f"echo '{json.dumps(state)}'")
    hosts = [{"name": f"decode-{n}", "instance_id": f"i-{n + 1}"} for n in range(2)]
    outputs = {"inventory": {"hosts": hosts}}
    if not gone:
        refuse_gone_machines(outputs, "mine", tmp_path, environment)
        return
    with pytest.raises(PrerequisiteError, match=f"given back: {gone}") as caught:
        refuse_gone_machines(outputs, "mine", tmp_path, environment)
    assert caught.value.fix == "Type: pulumi up --stack mine"


def test_hosts_without_machines_of_their_own_are_not_looked_up(tmp_path: Path) -> None:
    hosts = [{"name": "decode-0", "instance_id": None}]
    refuse_gone_machines({"inventory": {"hosts": hosts}}, "mine", tmp_path, {"PATH": ""})
    refuse_gone_machines({}, "mine", tmp_path, {"PATH": ""})
