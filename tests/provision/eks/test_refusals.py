"""What a cluster on EKS cannot be, refused before anything is registered, with the fix."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.eks import read_eks_parts
from infra.errors import PrerequisiteError, ProblemsFound
from infra.provision.aws.eks.config import EksFacts, admin_problem
from infra.provision.aws.eks.rules import control_zones, local_zone_problem, upgrade_problem
from infra.provision.aws.zone import Zone
from infra.rehearsal.cloud.cluster_kinds import CLUSTER, NODE_GROUP
from infra.rehearsal.cloud.machine_kinds import TEMPLATE
from infra.rehearsal.cloud.network_kinds import SUBNET as SUBNET_TYPE
from infra.rehearsal.cloud.store import OwnKey, Resource, Store
from tests.provision.belongings import REGION, own_stack, their_network
from tests.provision.recorded_runs import Recorder

Record = Callable[..., Any]
Prepare = Callable[[Store], Mapping[str, str]]
STACK = "eks-b200-tp8"
SUBNET = "subnet-0123456789abcdef0"
ROLE = "arn:aws:iam::000000000000:role/rehearsal"


@pytest.mark.parametrize(
    ("config", "what", "fix"),
    [
        ({"api_from_cidr": ""}, "Not set: the block of your own network", "config set api_from_cidr"),
        ({"api_from_cidr": "0.0.0.0/0"}, "lets everybody dial", "config set api_from_cidr"),
        ({"api_from_cidr": "0.0.0.0/1"}, "lets everybody dial", "config set api_from_cidr"),
        ({"api_from_cidr": "10.0.0.0/8"}, "could not reach the cluster", "config set api_from_cidr"),
        ({"api_from_cidr": "my-office"}, "is not a block of addresses", "config set api_from_cidr"),
        ({"cluster_admins": ""}, "Not set: the IAM roles", "config set cluster_admins"),
        ({"cluster_admins": "platform"}, "is not the ARN of an IAM role", "config set cluster_admins"),
        (
            {"cluster_admins": ROLE.replace("rehearsal", "others")},
            "role/rehearsal runs this and is not among them",
            "config set cluster_admins",
        ),
        ({"cluster_admins": f"{ROLE},"}, "A comma in it has no role", "config set cluster_admins"),
        ({"cluster_admins": f",{ROLE}"}, "A comma in it has no role", "config set cluster_admins"),
        ({"cluster_admins": ","}, "A comma in it has no role", "config set cluster_admins"),
        ({"cluster_admins": f"{ROLE}, {ROLE}"}, "is in it 2 times", "config set cluster_admins"),
        ({"ami": "ami-0123456789abcdef0"}, "does not read it", "config rm ami"),
        ({"interface": "ens5"}, "does not read it", "config rm interface"),
        ({"kubernetes_context": "mine"}, "does not read it", "config rm kubernetes_context"),
        ({"fsx_efa": "true"}, "does not read it", "config rm fsx_efa"),
        ({"replace_machines": "unified-0"}, "does not read it", "config rm replace_machines"),
        ({"account_id": "210987654321"}, "Your credentials are those of account", "the right profile"),
        ({"kubernetes_support": "long"}, "is not one of extended and", "kubernetes_support extended"),
        ({"kubernetes_version": "latest"}, "is not a version such as", "kubernetes_version 1.35"),
        ({"kubernetes_version": "1.32"}, "1.33 is the least", "kubernetes_version 1.35"),
        ({"kubernetes_version": "1.99"}, "There is no add-on vpc-cni", "kubernetes_version 1.35"),
        ({"vpc_cidr": "10.64.0.0/24"}, "too small for a cluster", "config set vpc_cidr 10.64.0.0/16"),
        ({"namespace": "My_Team"}, "is not a name of a namespace", "config set namespace serving"),
        ({"namespace": "kube-system"}, "is the cluster's own", "config set namespace serving"),
        ({"namespace": "lws-system"}, "is the cluster's own", "config set namespace serving"),
        ({"node_tuning": "later"}, "is none of apply, rollback, none", "config set node_tuning"),
        ({"owner": "two words"}, "cannot be a label", "config set owner"),
        ({"control_subnet_ids": "subnet-1"}, "is not two ids of subnets", "control_subnet_ids"),
        (
            {"subnet_id": SUBNET, "control_subnet_ids": f"{SUBNET},{SUBNET[:-1]}1,{SUBNET}"},
            "is not two ids of subnets",
            "control_subnet_ids",
        ),
        ({"reservation_id": ""}, "Not set: the capacity reservation", "reservation_id cr-"),
        ({"zone_id": "use2-az2"}, "is in us-east-2a; zone use2-az2", "config set zone_id"),
    ],
)  # fmt: skip
def test_a_fact_that_is_missing_or_wrong_names_the_command(
    record: Record, config: dict[str, str], what: str, fix: str
) -> None:
    with pytest.raises(ProblemsFound) as refused:
        record(STACK, **config)
    found = [problem for problem in refused.value.problems if what in problem.what]
    assert found, str(refused.value)
    assert fix in found[0].fix


def test_nothing_is_registered_when_something_is_refused(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.provision.recorded_runs._EmulatedCloud.new_resource", None)
    with pytest.raises(ProblemsFound) as refused:
        record(STACK, api_from_cidr="", reservation_id="", cluster_admins="")
    fields = {problem.field for problem in refused.value.problems}
    assert fields == {
        f"moe-infra:{key}" for key in ("api_from_cidr", "cluster_admins", "reservation_id")
    }


def test_a_machine_that_cannot_log_in_to_the_cluster_is_refused(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PrerequisiteError, match="There is no `aws` on PATH") as refused:
        record(STACK, namespace="never-recorded")
    assert "Nothing was created" in str(refused.value)


@pytest.mark.parametrize(
    ("storage", "what"),
    [
        ("local", "Nodes of a cluster are new"),
        ("pvc", "has no claim"),
        ("efs", "not mounted into pods"),
        ("shared-mount", "mounts nothing"),
    ],
)
def test_storage_that_new_nodes_cannot_have_is_refused(
    record: Record, tmp_path: Path, storage: str, what: str
) -> None:
    root = own_stack(tmp_path, STACK, weights={"storage": storage})
    with pytest.raises(ProblemsFound, match=what):
        record("mine", root=root)


def test_an_addon_below_its_floor_is_refused(record: Record) -> None:
    def older(store: Store) -> dict[str, str]:
        store.account = replace(store.account, addons={"vpc-cni": "v1.18.4-eksbuild.1"})
        return {}

    with pytest.raises(ProblemsFound, match=r"v1\.18\.4-eksbuild\.1 on EKS; 1\.18\.5 is the least"):
        record(STACK, prepare=older)


def test_a_local_zone_is_warned_of_by_the_rules_and_by_the_zone(record: Record) -> None:
    recorded = record("eks-gb200-2p1d")
    told = [line for line in recorded.said if "eks-local-zone" in line]
    assert any("use1-dfw2-az1 is a Local Zone" in line for line in told)
    assert all(line.startswith("warn") for line in told)
    zone = Zone(zone_id="use1-dfw2-az1", name="x", group="y", parent_zone_id="use1-az6")
    problem = local_zone_problem(zone, (), "mine")
    assert problem is not None
    assert not problem.blocks


def in_zones(*zones: str, size: int = 24) -> Callable[[Store], dict[str, str]]:
    """Subnets of theirs: the first for nodes, the others for the control plane."""

    def make(store: Store) -> dict[str, str]:
        hosts, *others = their_network(store, region="us-east-2", zones=zones, size=size)
        return {"subnet_id": hosts.id, "control_subnet_ids": ",".join(each.id for each in others)}

    return make


def test_control_subnets_stand_in_two_zones(record: Record) -> None:
    with pytest.raises(ProblemsFound, match=r"Both are in use2-az2; a control plane wants two"):
        record(STACK, prepare=in_zones("use2-az1", "use2-az2", "use2-az2"))


def test_the_first_control_subnet_holds_the_system_nodes_too(record: Record) -> None:
    """Two nodes of 49 addresses each, and 6 of the control plane; a subnet of 64 leaves 59."""
    with pytest.raises(ProblemsFound, match="has 59 free addresses; control plane and 2 system"):
        record(STACK, prepare=in_zones("use2-az1", "use2-az1", "use2-az2", size=26))


def test_control_subnets_are_private(record: Record) -> None:
    def public(store: Store) -> dict[str, str]:
        values = in_zones("use2-az1", "use2-az1", "use2-az2")(store)
        subnet = store.get(SUBNET_TYPE, values["control_subnet_ids"].split(",")[1])
        assert subnet is not None
        store.put(replace(subnet, inputs={**subnet.inputs, "mapPublicIpOnLaunch": True}))
        return values

    with pytest.raises(ProblemsFound, match="gives its machines public addresses"):
        record(STACK, prepare=public)


def test_too_few_addresses_for_nodes_and_their_pods_are_refused(record: Record) -> None:
    """A node takes 49: its own, and three prefixes for pods."""
    with pytest.raises(ProblemsFound, match=r"has 11 free addresses; hosts take 49"):
        record(STACK, prepare=in_zones("use2-az1", "use2-az1", "use2-az2", size=28))


def facts(version: str = "1.35") -> EksFacts:
    return EksFacts(
        kubernetes_version=version,
        names_version=True,
        support="EXTENDED",
        api_from=ipaddress.IPv4Network("198.51.100.0/24"),
        admins=("arn:aws:iam::123456789012:role/team/platform",),
        control_subnet_ids=(),
        namespace="mine",
        node_tuning="apply",
        node_tuning_image="",
    )


@pytest.mark.parametrize(
    ("standing", "wanted", "capacity", "what"),
    [
        ("", "1.35", "capacity-block", None),
        ("1.35", "1.35", "capacity-block", None),
        ("1.34", "1.35", "on-demand", None),
        ("1.33", "1.35", "on-demand", "by one minor version"),
        ("1.35", "1.34", "on-demand", "never down"),
        ("1.34", "1.35", "capacity-block", "cannot be upgraded while they run"),
        ("1.34", "1.35", "ultraserver", "cannot be upgraded while they run"),
    ],
)
def test_a_cluster_goes_up_one_version_at_a_time_and_blocks_only_when_empty(
    standing: str, wanted: str, capacity: Any, what: str | None
) -> None:
    problem = upgrade_problem(standing, facts(wanted), capacity, "mine")
    assert (problem is None) == (what is None)
    assert problem is None or (what or "") in problem.what


def standing(stack: str, name: str = STACK) -> Callable[[Store], dict[str, str]]:
    """A cluster of a name that stands in the account, and belongs to a stack."""

    def put(store: Store) -> dict[str, str]:
        inputs: dict[str, object] = {"name": name, "tags": {"moe-infra:stack": stack}}
        outputs: dict[str, object] = {"version": "1.34"}
        resource = Resource(
            type=CLUSTER, id=name, urn="", inputs=inputs, outputs=outputs, hidden={}
        )
        store.put(resource)
        return {}

    return put


def test_an_upgrade_of_nodes_of_a_block_that_run_is_refused(record: Record) -> None:
    with pytest.raises(
        ProblemsFound, match=r"unprotect 'urn:.*destroy --exclude-protected --stack eks-b200-tp8"
    ):
        record(STACK, prepare=standing(STACK), kubernetes_version="1.35")


def running(
    recorded: Any, changed: Mapping[str, object] | None = None, stack: str = STACK
) -> Callable[[Store], dict[str, str]]:
    """A cluster with its nodes, as an `up` has left it; in other words of the template where they are given."""

    def put(store: Store) -> dict[str, str]:
        standing(stack, stack)(store)
        inputs: dict[str, object] = {
            **recorded.of_type("LaunchTemplate")["accelerators"],
            **(changed or {}),
        }
        template = Resource(
            type=TEMPLATE, id="lt-0123", urn="", inputs=inputs, outputs={}, hidden={}
        )
        store.put(template)
        group: dict[str, Any] = {
            "clusterName": stack,
            "nodeGroupName": "accelerators-0123456",
            "scalingConfig": {"desiredSize": 1, "minSize": 1, "maxSize": 1},
            "launchTemplate": {"id": template.id, "version": "1"},
        }
        outputs: dict[str, object] = {"version": "1.34"}
        name = f"{stack}:accelerators-0123456"
        resource = Resource(
            type=NODE_GROUP, id=name, urn="", inputs=group, outputs=outputs, hidden={}
        )
        store.put(resource)
        return {}

    return put


KEY_ARN = "arn:aws:kms:us-east-2:000000000000:key/01234567-89ab-cdef-0123-456789abcdef"


@pytest.mark.parametrize(
    ("changed", "config", "what"),
    [
        ({}, {"root_volume_gib": "400"}, "run with another root_volume_gib, and EKS"),
        ({"instanceType": "p5en.48xlarge"}, {}, "run with another instance type, and EKS"),
        ({}, {"kms_key_arn": KEY_ARN}, "run with another kms_key_arn, and EKS"),
    ],
)
def test_another_template_for_nodes_of_a_block_that_run_is_refused(
    record: Record, changed: dict[str, object], config: dict[str, str], what: str
) -> None:
    with pytest.raises(ProblemsFound, match=what) as refused:
        record(STACK, prepare=with_key(running(record(STACK), changed)), **config)
    assert len(refused.value.problems) == 1


def with_key(prepare: Prepare, arn: str = KEY_ARN) -> Prepare:
    """The same account with a key of KMS."""

    def put(store: Store) -> Mapping[str, str]:
        store.account = replace(store.account, keys={arn: OwnKey()})
        return prepare(store)

    return put


def test_nodes_outside_of_blocks_keep_their_key_and_the_operator_is_told(
    record: Record, recorder: Recorder, tmp_path: Path
) -> None:
    root = own_stack(tmp_path, STACK, capacity={"kind": "on-demand"})
    arn = KEY_ARN.replace("us-east-2", REGION)
    before = with_key(running(record("mine", root=root), stack="mine"), arn)
    others = ROLE.replace("rehearsal", "others")  # so that it ends there
    with pytest.raises(ProblemsFound):
        record("mine", root=root, prepare=before, kms_key_arn=arn, cluster_admins=others)
    (told,) = [line for line in recorder.said if "stay encrypted with AWS's own key" in line]
    assert "node group accelerators" in told


def test_another_mount_under_nodes_of_a_block_that_run_is_refused(
    record: Record, tmp_path: Path
) -> None:
    weights = {"path": "/models", "storage": "shared-mount"}
    root = own_stack(tmp_path, STACK, weights=weights)
    launched = record("mine", root=root, weights_mount="192.0.2.1:/old")

    before = running(launched, stack="mine")
    with pytest.raises(ProblemsFound, match="run with another weights_mount, and EKS"):
        record("mine", root=root, prepare=before, weights_mount="192.0.2.2:/new")


@pytest.mark.parametrize("changed", [{}, {"userData": "TUlNRS1WZXJzaW9uOiAxLjAK"}])
def test_nodes_of_a_block_that_stay_as_they_are_are_no_problem(
    record: Record, changed: dict[str, object]
) -> None:
    """A byte of first boot that an upgrade of this project changes is nothing that an operator chose."""
    with pytest.raises(ProblemsFound) as refused:
        record(
            STACK,
            prepare=running(record(STACK), changed),
            cluster_admins=ROLE.replace("rehearsal", "others"),
        )
    assert [each.field for each in refused.value.problems] == ["moe-infra:cluster_admins"]


def test_a_cluster_of_that_name_that_is_not_the_stack_s_is_refused(record: Record) -> None:
    with pytest.raises(ProblemsFound, match="it is not this stack's"):
        record(STACK, prepare=standing("another"), kubernetes_version="1.34")


@pytest.mark.parametrize(
    ("caller", "is_known"),
    [
        ("arn:aws:sts::123456789012:assumed-role/platform/me", True),
        ("arn:aws:iam::123456789012:role/team/platform", True),
        ("arn:aws:sts::123456789012:assumed-role/other/me", False),
        ("arn:aws:sts::210987654321:assumed-role/platform/me", False),
        ("arn:aws:iam::123456789012:user/me", False),
    ],
)
def test_whoever_runs_it_is_an_administrator(caller: str, is_known: bool) -> None:
    assert (admin_problem(caller, facts(), "mine") is None) == is_known


def test_who_may_not_ask_is_warned_and_goes_on(record: Record) -> None:
    def forbidden(store: Store) -> dict[str, str]:
        asked = ("getCallerIdentity", "getAddonVersion", "getParameter")
        store.account = replace(store.account, forbidden=asked)
        return {}

    recorded = record(STACK, prepare=forbidden)
    assert "addonVersion" not in recorded.of_type("Addon")["vpc-cni"]
    assert any("you may not ask" in said for said in recorded.said)


def test_the_control_plane_leaves_out_zones_that_eks_does() -> None:
    zone = Zone(zone_id="use1-az3", name="x", group="y", parent_zone_id=None)
    others = ("use1-az3", "use1-az2", "use1-az1")
    assert control_zones(zone, others, read_eks_parts()) == ("use1-az1", "use1-az2")
