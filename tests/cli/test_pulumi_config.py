"""What tasks read of a stack's Pulumi configuration without Pulumi."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from infra.errors import ProblemsFound, StackError
from infra.spec.load import PROJECT
from infra.tasks.pulumi_config import config_path, configured, default_of

NAMES = ("fsx_capacity_gib", "owner", "namespace")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("infra.tasks.pulumi_config.PROJECT", tmp_path)
    (tmp_path / "stacks").mkdir()
    shutil.copy(PROJECT / "Pulumi.yaml", tmp_path)
    return tmp_path


def write(text: str) -> None:
    config_path("mine").write_text(text, encoding="utf-8")


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("text", ["", "config:\n", "config: []\n", "- a\n"])
def test_a_file_that_sets_nothing_and_none_at_all_are_the_same(text: str) -> None:
    assert configured("mine", NAMES) == {}
    write(text)
    assert configured("mine", NAMES) == {}


@pytest.mark.usefixtures("project")
def test_values_are_texts_of_the_keys_that_are_asked_for() -> None:
    write(
        "config:\n"
        "  moe-infra:fsx_capacity_gib: 4800\n"
        "  moe-infra:owner:\n"
        '  moe-infra:namespace: ""\n'
        "  moe-infra:key_name: {secure: abc}\n"
    )
    assert configured("mine", NAMES) == {"fsx_capacity_gib": "4800"}


@pytest.mark.usefixtures("project")
def test_a_secret_is_refused_as_pulumi_up_refuses_it_and_not_told_as_missing() -> None:
    write("config:\n  moe-infra:owner: {secure: abc}\n  moe-infra:namespace: [a]\n")
    with pytest.raises(ProblemsFound) as caught:
        configured("mine", NAMES)
    secret, nested = map(str, caught.value.problems)
    assert "stacks/Pulumi.mine.yaml" in secret
    assert "moe-infra:owner: It is set as a secret" in secret
    assert "pulumi config set owner VALUE --plaintext --stack mine" in secret
    assert "moe-infra:namespace: It is a list or a map" in nested


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("text", ["config: [", "\x00"])
def test_a_file_that_is_no_yaml_is_told(text: str) -> None:
    write(text)
    with pytest.raises(StackError, match=r"Pulumi.mine.yaml: It cannot be read"):
        configured("mine", NAMES)


def test_what_nobody_has_set_is_what_the_project_says() -> None:
    assert default_of("fsx_capacity_gib") == "4800"


@pytest.mark.usefixtures("project")
def test_a_key_that_nothing_reads_is_refused_with_the_nearest() -> None:
    write("config:\n  moe-infra:namespce: a\n  kubernetes:context: b\n  aws:region: us-east-2\n")
    with pytest.raises(ProblemsFound) as caught:
        configured("mine", NAMES)
    assert str(caught.value) == (
        "stacks/Pulumi.mine.yaml moe-infra:namespce: Nothing reads this key. "
        "Did you mean namespace, key_name or interface? Set that, and take this key away: "
        "pulumi config rm namespce --stack mine [account-fact]"
    )
