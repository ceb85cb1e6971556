"""Every resource of every stack in a cloud, as its golden file has it; `--update-golden` writes them anew.

Read the difference as the person who pays for the machines.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.spec.load import load_stack, stack_names
from tests.provision.kubernetes_program import readable as readable_objects

Record = Callable[..., Any]
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "cloud"
PLATFORMS = {name: load_stack(name).spec.platform for name in stack_names()}
ON_AWS = sorted(name for name, platform in PLATFORMS.items() if platform == "aws-ec2")
ON_EKS = sorted(name for name, platform in PLATFORMS.items() if platform == "aws-eks")
ON_GOOGLE = sorted(name for name, platform in PLATFORMS.items() if platform == "gcp-gce")
OBJECTS = GOLDEN.with_name("kubernetes")


def readable(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Properties as a reader wants them: the first boot's script by lines, not in base64."""
    shown = dict(inputs)
    if "startup-script" in shown.get("metadata", {}):
        script = shown["metadata"]["startup-script"].splitlines()
        shown["metadata"] = {**shown["metadata"], "startup-script": script}
    if "userData" in shown:
        shown["userData"] = base64.b64decode(shown["userData"]).decode().splitlines()
    return shown


def golden_text(recorded: Any) -> str:
    """JSON of all resources by type and name: one line for each property, one for each row of a list."""
    document = {
        f"{kind} {name}": readable(inputs)
        for (kind, name), inputs in sorted(recorded.resources.items())
    }
    document["inventory"] = recorded.inventory
    blocks = []
    for title, properties in document.items():
        lines = [f"  {json.dumps(name)}: {_value(value)}" for name, value in properties.items()]
        blocks.append(f"{json.dumps(title)}: {{\n" + ",\n".join(sorted(lines)) + "\n}")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def _value(value: object) -> str:
    if isinstance(value, list) and len(value) > 1:
        rows = ",\n".join(f"    {json.dumps(row, sort_keys=True)}" for row in value)
        return f"[\n{rows}\n  ]"
    return json.dumps(value, sort_keys=True)


@pytest.mark.parametrize("stack", ON_AWS)
def test_the_resources_of_a_stack_are_those_of_its_golden_file(
    record: Record, stack: str, update_golden: bool
) -> None:
    recorded = record(stack)
    names = [host["name"] for host in recorded.inventory["hosts"]]
    assert sorted(recorded.of_type("Instance")) == sorted(names)
    assert len(recorded.of_type("LaunchTemplate")) == len({name.split("-")[0] for name in names})
    path = GOLDEN / f"{stack}.json"
    text = golden_text(recorded)
    if update_golden:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert json.loads(text)["inventory"] == recorded.inventory
    assert text == path.read_text(encoding="utf-8"), "pytest --update-golden writes it anew"


@pytest.mark.parametrize("stack", ON_EKS)
def test_the_cluster_and_the_objects_of_a_stack_are_those_of_its_golden_files(
    record: Record, stack: str, update_golden: bool
) -> None:
    recorded = record(stack)
    objects = {key: each for key, each in recorded.resources.items() if "apiVersion" in each}
    cloud = {key: each for key, each in recorded.resources.items() if key not in objects}
    texts = {
        GOLDEN / f"{stack}.json": golden_text(replace(recorded, resources=cloud)),
        OBJECTS / f"{stack}.json": json.dumps(readable_objects(objects), indent=1, sort_keys=True)
        + "\n",
    }
    for path, text in texts.items():
        if update_golden:
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), "pytest --update-golden writes it anew"


@pytest.mark.parametrize("stack", ON_GOOGLE)
def test_the_resources_of_a_stack_at_google_are_those_of_its_golden_file(
    record: Record, stack: str, update_golden: bool
) -> None:
    path, text = GOLDEN / f"{stack}.json", golden_text(record(stack))
    if update_golden:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "pytest --update-golden writes it anew"


def test_every_golden_file_is_of_a_stack() -> None:
    shipped = sorted((*ON_AWS, *ON_EKS, *ON_GOOGLE))
    assert sorted(path.stem for path in GOLDEN.glob("*.json")) == shipped
