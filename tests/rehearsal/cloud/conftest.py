"""An emulated account, asked on plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from infra.errors import PrerequisiteError
from infra.rehearsal.cloud import operations
from infra.rehearsal.cloud.kind import RefusedError
from infra.rehearsal.cloud.machine_kinds import INSTANCE, PLACEMENT_GROUP, TEMPLATE
from infra.rehearsal.cloud.network_kinds import (
    EGRESS_RULE,
    INGRESS_RULE,
    SECURITY_GROUP,
    SUBNET,
    VPC,
)
from infra.rehearsal.cloud.scratch_project import ScratchProject, make_scratch_project
from infra.rehearsal.cloud.store import Account, Reservation, Resource, Store, write_account
from infra.rehearsal.installed import find_pulumi
from tests.needed import lacks
from tests.rehearsal.cloud.command import EKS_STACK, STACK
from tests.rehearsal.cloud.operations_page import NEXT, Typist
from tests.rehearsal.cloud.warm_python import WarmPython, start_warm_python

IMAGE = "ami-000000000000000e0"  # x86_64
ARM_IMAGE = "ami-000000000000000e3"
BLOCK = "cr-0000000000000000b"
ULTRASERVER = "cr-0000000000000000c"
ACCOUNT = Account(
    key_pairs=("mine",),
    buckets=("their-weights",),
    reservations={
        BLOCK: Reservation(
            kind="capacity-block",
            instance_type="p5en.48xlarge",
            zone_id="use1-az2",
            num_instances=1,
        ),
        ULTRASERVER: Reservation(
            kind="ultraserver",
            instance_type="p6e-gb200.36xlarge",
            zone_id="use1-dfw2-az1",
            num_instances=9,
        ),
    },
)


@dataclass
class Cloud:
    """One account in us-east-1; `make` registers as the engine would."""

    folder: Path
    store: Store
    names: list[str] = field(default_factory=list)

    def make(self, token: str, **inputs: object) -> Resource:
        """Make a resource under a name of its own."""
        urn = f"urn:pulumi:test::moe-infra::{token}::resource-{len(self.names)}"
        self.names.append(urn)
        failures = operations.check(token, urn, inputs, {})
        assert failures == []
        return operations.create(self.store, "us-east-1", urn, inputs)

    def refusal(self, token: str, **inputs: object) -> str:
        """What the cloud says when it refuses."""
        with pytest.raises(RefusedError) as caught:
            self.make(token, **inputs)
        return str(caught.value)

    def network(
        self, *, zone: str = "use1-az1", block: str = "10.0.0.0/24"
    ) -> tuple[Resource, Resource]:
        """A subnet in a zone and a security group, in a VPC of their own."""
        vpc = self.make(VPC, cidrBlock="10.0.0.0/16")
        subnet = self.make(SUBNET, vpcId=vpc.id, cidrBlock=block, availabilityZoneId=zone)
        return subnet, self.make(SECURITY_GROUP, vpcId=vpc.id)

    def talking(self, group: Resource) -> None:
        """Let the members of a group exchange any traffic."""
        for token in (INGRESS_RULE, EGRESS_RULE):
            rule = {"securityGroupId": group.id, "referencedSecurityGroupId": group.id}
            self.make(token, **rule, ipProtocol="-1")

    def template(self, subnet: Resource, group: Resource, **changed: object) -> Resource:
        """A launch template of a p5en host with one interface."""
        inputs: dict[str, object] = {
            "imageId": IMAGE,
            "instanceType": "p5en.48xlarge",
            "keyName": "mine",
            "networkInterfaces": [interface(subnet, group)],
        }
        return self.make(TEMPLATE, **{**inputs, **changed})

    def launch(self, template: Resource) -> Resource:
        """One instance of a template."""
        return self.make(INSTANCE, launchTemplate={"id": template.id, "version": "1"})

    def launch_refusal(self, template: Resource) -> str:
        """What the cloud says instead of launching."""
        return self.refusal(INSTANCE, launchTemplate={"id": template.id, "version": "1"})

    def placement_group(self) -> Resource:
        """A cluster placement group."""
        return self.make(PLACEMENT_GROUP, strategy="cluster")


def interface(subnet: Resource, group: Resource, **changed: object) -> dict[str, object]:
    """One interface of a launch template."""
    row = {
        "networkCardIndex": 0,
        "deviceIndex": 0,
        "subnetId": subnet.id,
        "securityGroups": [group.id],
    }
    return {**row, "interfaceType": "interface", **changed}


@pytest.fixture(scope="module")
def pulumi_bin() -> Path:
    try:
        return find_pulumi()
    except PrerequisiteError as error:
        lacks(error)


@pytest.fixture(scope="session")
def warm_python() -> Iterator[WarmPython]:
    # not pytest's own folder: the path of a socket is short
    with TemporaryDirectory(prefix="warm-") as folder:
        started = start_warm_python(Path(folder))
        yield started
        started.end()


@pytest.fixture
def make_project(
    pulumi_bin: Path, warm_python: WarmPython, tmp_path: Path
) -> Callable[..., ScratchProject]:
    """Make a scratch project, whose programs run in copies of a Python that is warm."""

    def make(stack: str = STACK, spec_file: Path | None = None, **config: str) -> ScratchProject:
        project = make_scratch_project(
            stack, tmp_path / "scratch", spec_file=spec_file, pulumi_bin=pulumi_bin, config=config
        )
        warm_python.put_environment(project.folder / ".venv")
        return project

    return make


@pytest.fixture
def cloud(tmp_path: Path) -> Cloud:
    write_account(tmp_path, ACCOUNT)
    return Cloud(folder=tmp_path, store=Store(tmp_path))


@pytest.fixture
def typist(make_project: Callable[..., ScratchProject]) -> Typist:
    """Somebody who has bought a block of UltraServers and set nothing up."""
    return _somebody(make_project(), {"KEY": "key_name", "RESERVATION": "reservation_id"})


@pytest.fixture
def eks_typist(make_project: Callable[..., ScratchProject]) -> Typist:
    """Somebody who has bought a block for a cluster on EKS and set nothing up."""
    asked = {
        "RESERVATION": "reservation_id",
        "ROLE": "cluster_admins",
        "BLOCK": "api_from_cidr",
    }
    return _somebody(make_project(EKS_STACK), asked)


def _somebody(project: ScratchProject, asked: Mapping[str, str]) -> Typist:
    """Whoever is asked for some configuration keys, which pages set to capital words."""
    path = project.folder / "stacks" / f"Pulumi.{project.stack}.yaml"
    document = yaml.safe_load(path.read_text())
    names = {word: document["config"].pop(f"moe-infra:{key}") for word, key in asked.items()}
    path.write_text(yaml.safe_dump(document))
    return Typist(project, {**names, "NEXT_RESERVATION": NEXT})
