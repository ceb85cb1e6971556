"""What tasks read of a stack's Pulumi configuration without Pulumi."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import StackError
from infra.tasks.pulumi_config import config_path, configured, default_of


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("infra.tasks.pulumi_config.PROJECT", tmp_path)
    (tmp_path / "stacks").mkdir()
    return tmp_path


@pytest.mark.usefixtures("project")
def test_values_are_texts_and_secrets_are_left_out() -> None:
    assert configured("mine") == {}
    text = "config:\n  moe-infra:fsx_capacity_gib: 4800\n  moe-infra:key_name: {secure: abc}\n"
    config_path("mine").write_text(text, encoding="utf-8")
    assert configured("mine") == {"moe-infra:fsx_capacity_gib": "4800"}


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("text", ["config: [", "\x00"])
def test_a_file_that_is_no_yaml_is_told(text: str) -> None:
    config_path("mine").write_text(text, encoding="utf-8")
    with pytest.raises(StackError, match=r"Pulumi.mine.yaml: It cannot be read"):
        configured("mine")


def test_what_nobody_has_set_is_what_the_project_says() -> None:
    assert default_of("fsx_capacity_gib") == "4800"
