"""Machines that stand, held against another configuration: what they took at their launch alone is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.errors import ProblemsFound
from infra.rehearsal.cloud.machine_kinds import INSTANCE, TEMPLATE
from infra.rehearsal.cloud.network_kinds import SUBNET
from infra.rehearsal.cloud.running_machines import Machine, hidden_machines
from infra.rehearsal.cloud.store import Resource, Store
from tests.provision.belongings import own_stack

Record = Callable[..., Any]
MOUNTED = {"path": "/models", "storage": "shared-mount"}


def launched(recorded: Any) -> Callable[[Store], Mapping[str, str]]:
    """The machines of a first `up`, with the templates that they were launched from, and their subnet."""

    def put(store: Store) -> Mapping[str, str]:
        for number, inputs in enumerate(recorded.of_type("LaunchTemplate").values()):
            keep(store, TEMPLATE, f"lt-{number}", {**inputs, "name": f"lt-{number}"})
            subnet_id = inputs["networkInterfaces"][0]["subnetId"]
        subnet = recorded.of_type("Subnet")["hosts"]
        apart = {**subnet, "vpcId": "vpc-earlier"}  # the program's own network is made beside it
        keep(store, SUBNET, subnet_id, apart, **subnet, availabilityZone="a", region="us-east-2")
        for name, inputs in recorded.of_type("Instance").items():
            machine = Machine(
                id=f"i-{name}",
                subnet_id=subnet_id,
                reservation="",
                addresses=["10.64.0.9"],
                tags=inputs["tags"],
            )
            keep(store, INSTANCE, machine.id, inputs, hidden=hidden_machines([machine]))
        return {}

    return put


def keep(
    store: Store,
    token: str,
    identity: str,
    inputs: Mapping[str, object],
    hidden: Mapping[str, object] | None = None,
    **outputs: object,
) -> None:
    store.put(
        Resource(
            type=token,
            id=identity,
            urn="",
            inputs=dict(inputs),
            outputs=outputs,
            hidden=dict(hidden or {}),
        )
    )


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("192.0.2.1:/old", "192.0.2.1:/old", None),
        (
            "192.0.2.1:/old",
            "192.0.2.2:/new",
            r"weights_mount \(192.0.2.1:/old; now 192.0.2.2:/new\)",
        ),
        ("", "", None),  # the image mounts the place, and no script is told of the weights
    ],
)
def test_a_mount_is_that_of_the_launch(
    record: Record, tmp_path: Path, before: str, after: str, said: str | None
) -> None:
    root = own_stack(tmp_path, "h200-2n-tp16", weights=MOUNTED)
    standing = launched(record("mine", root=root, weights_mount=before))
    if said is None:
        record("mine", root=root, prepare=standing, weights_mount=after)
        return
    with pytest.raises(ProblemsFound, match=said) as refused:
        record("mine", root=root, prepare=standing, weights_mount=after)
    assert [each.rule for each in refused.value.problems] == ["machines-stand"]


def test_another_place_of_the_weights_is_refused(record: Record, tmp_path: Path) -> None:
    standing = launched(record("mine", root=own_stack(tmp_path / "a", "h200-tp8")))
    root = own_stack(tmp_path / "b", "h200-tp8", weights={"path": "/data", "storage": "s3-to-nvme"})
    with pytest.raises(ProblemsFound, match=r"another weights.path \(/models; now /data\)"):
        record("mine", root=root, prepare=standing)
