"""Reading what the last run exported while the engine saves the state that holds it."""

from __future__ import annotations

from types import SimpleNamespace

import pulumi
import pytest

from infra.errors import PrerequisiteError
from infra.provision import previous
from infra.provision.previous import read_previous_weights

# As the engine 3.259.0 answered in a test that read in the wrong moment.
CUT_SHORT = (
    "invoke of pulumi:pulumi:readStackOutputs failed: invocation of pulumi:pulumi:readStackOutputs "
    "returned an error: failed to load checkpoint: EOF\n"
)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What the engine answers, question by question; the last answer stands."""
    answers: list[object] = []

    def invoke(token: str, properties: object) -> object:
        assert (token, properties) == (previous.READ_OUTPUTS, {"name": "us/moe-infra/mine"})
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(value=answer)

    monkeypatch.setattr(pulumi.runtime, "invoke", invoke)
    monkeypatch.setattr(pulumi, "get_organization", lambda: "us")
    monkeypatch.setattr(pulumi, "get_project", lambda: "moe-infra")
    monkeypatch.setattr(previous, "PAUSE_S", 0.0)
    return answers


def test_a_state_that_is_being_written_is_read_again(engine: list[object]) -> None:
    engine += [Exception(CUT_SHORT), Exception(CUT_SHORT)]
    engine.append({"outputs": {"inventory": {"weights": {"kind": "s3"}}}})
    assert read_previous_weights("mine") == {"kind": "s3"}


def test_a_state_that_stays_unreadable_is_told(engine: list[object]) -> None:
    engine.append(Exception(CUT_SHORT))
    with pytest.raises(PrerequisiteError, match="failed to load checkpoint: EOF") as caught:
        read_previous_weights("mine")
    assert "pulumi stack export" in caught.value.fix


def test_any_other_failure_is_not_asked_again(engine: list[object]) -> None:
    engine += [Exception("passphrase must be set"), {"outputs": {}}]
    with pytest.raises(Exception, match="passphrase"):
        read_previous_weights("mine")


def test_a_stack_without_a_last_run_has_none(engine: list[object]) -> None:
    engine.append(None)
    assert read_previous_weights("mine") == {}
