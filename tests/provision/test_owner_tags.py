"""Another owner or cost centre is written on what stands, and replaces nothing: weights lie on machines' own disks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pulumi.runtime.mocks import MockMonitor

from infra.provision.naming import OWNER_TAGS
from infra.rehearsal.cloud import operations
from infra.rehearsal.cloud.machine_kinds import INSTANCE

Record = Callable[..., Any]
IGNORED = tuple(f"tags.{name}" for name in OWNER_TAGS)


@pytest.fixture
def ignored(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, ...]]:
    """Paths whose changes the engine is told to ignore, by the resource's logical name."""
    found: dict[str, tuple[str, ...]] = {}
    register: Callable[..., Any] = MockMonitor.RegisterResource

    def noting(self: MockMonitor, request: Any) -> Any:
        if request.type.endswith(":LaunchTemplate"):
            found[request.name] = tuple(request.ignoreChanges)
        return register(self, request)

    monkeypatch.setattr(MockMonitor, "RegisterResource", noting)
    return found


def as_the_engine_compares(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs without what is ignored."""
    tags = {name: value for name, value in inputs["tags"].items() if name not in OWNER_TAGS}
    return {**inputs, "tags": tags}


@pytest.mark.parametrize(
    "stack", ["h200-tp8", pytest.param("eks-b200-tp8", marks=pytest.mark.slow)]
)
def test_another_owner_makes_no_other_version_of_a_launch_template(
    record: Record, ignored: dict[str, tuple[str, ...]], stack: str
) -> None:
    plain = record(stack)
    owned = record(stack, owner="team-b", cost_center="4711")
    templates = owned.of_type("LaunchTemplate")
    assert templates
    for name, inputs in templates.items():
        assert set(IGNORED) <= set(ignored[name])
        assert inputs["tags"]["owner"] == "team-b"
        before = plain.of_type("LaunchTemplate")[name]
        assert as_the_engine_compares(inputs) == as_the_engine_compares(before)


def test_machines_and_their_volumes_are_tagged_in_place(record: Record) -> None:
    plain = record("h200-tp8", owner="team-a", cost_center="").of_type("Instance")
    owned = record("h200-tp8", owner="team-c", cost_center="4711").of_type("Instance")
    for name, inputs in owned.items():
        assert inputs["tags"] == inputs["volumeTags"]
        assert {key: inputs["tags"][key] for key in OWNER_TAGS} == {
            "owner": "team-c",
            "cost_center": "4711",
        }
        changed, replaced = operations.changes(INSTANCE, plain[name], inputs)
        assert (changed, replaced) == (["tags", "volumeTags"], [])
