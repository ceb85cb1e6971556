"""The ways out that a refused change of the weight store names, followed to their end."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.errors import ProblemsFound
from tests.provision.belongings import own_stack

Record = Callable[..., Any]
LUSTRE = {"path": "/models", "storage": "fsx-lustre"}
STANDING = {
    "weights": {
        "storage": "fsx-lustre",
        "lustre": {"capacity_gib": 9600.0, "throughput": 1000.0, "efa": True},
    }
}
BUCKET = {"weights": {"storage": "s3-to-nvme", "source": "s3://weights-1234567/"}}
RIGHT = {"fsx_capacity_gib": "9600", "fsx_throughput": "1000", "fsx_efa": "true"}

pytestmark = pytest.mark.slow  # the program of a stack before and after each fix


def refusal(record: Record, stack: str, **words: Any) -> str:
    with pytest.raises(ProblemsFound) as caught:
        record(stack, **words)
    return str(caught.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"fsx_capacity_gib": "4800"},
        {"fsx_throughput": "500", "fsx_capacity_gib": "9600"},
        {"fsx_efa": "false"},
        {"fsx_efa": "false", "fsx_capacity_gib": "2400"},
    ],
)
def test_typing_what_is_said_ends_the_refusal(
    record: Record, tmp_path: Path, changed: dict[str, str]
) -> None:
    root = own_stack(tmp_path, "h200-tp8", weights=LUSTRE)
    config = {**RIGHT, **changed}
    told = refusal(record, "mine", root=root, previous=STANDING, **config)
    typed = re.findall(r"pulumi config set (\w+) (\S+) --stack mine", told)
    assert typed
    mended = {**config, **dict(typed)}
    assert record("mine", root=root, previous=STANDING, **mended).of_type("LustreFileSystem")


def test_a_bucket_of_the_stack_s_own_is_left_by_a_copy_with_another_name(
    record: Record, tmp_path: Path
) -> None:
    efs = {"path": "/models", "storage": "efs"}
    root = own_stack(tmp_path, "h200-tp8", weights=efs)
    told = refusal(record, "mine", root=root, previous=BUCKET)
    assert "Stay with s3-to-nvme" in told
    assert "change a copy of the stack file with another name" in told
    assert "pulumi destroy --exclude-protected --stack mine" in told

    # stay, with another kind of storage that reads the same bucket, or with the same
    for storage in ("s3-to-nvme", "fsx-lustre"):
        stays = own_stack(tmp_path / storage, "h200-tp8", weights={**efs, "storage": storage})
        assert record("mine", root=stays, previous=BUCKET).of_type("Bucket")
    # a copy: its state knows nothing of the bucket
    copy = root / "stacks" / "another.yaml"
    copy.write_text(yaml.safe_dump({"extends": "h200-tp8", "weights": efs}))
    assert record("another", root=root).of_type("FileSystem")


def test_a_bucket_of_the_operator_s_is_named_and_left(record: Record, tmp_path: Path) -> None:
    theirs = {"weights": {"storage": "s3-to-nvme", "source": "s3://their-weights/"}}
    root = own_stack(tmp_path, "h200-tp8", weights={"path": "/models", "storage": "efs"})
    told = refusal(record, "mine", root=root, previous=theirs)
    assert "go on naming a bucket of your own (weights_bucket)" in told

    def has_it(store: Any) -> dict[str, str]:
        store.account = replace(store.account, buckets=("their-weights",))
        return {"weights_bucket": "their-weights"}

    assert record("mine", root=root, previous=theirs, prepare=has_it).of_type("FileSystem")
