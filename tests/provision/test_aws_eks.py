"""A stack on a cluster of its own: what is made, and that its pods fit on its nodes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.instance_types import instance_type_names, read_instance_type
from infra.catalog.load import Catalog
from infra.catalog.network_cards import LAYOUT_POLICIES, LayoutPolicy
from infra.errors import ProblemsFound
from infra.rehearsal.cloud.network_kinds import SUBNET
from infra.rehearsal.cloud.store import Store
from tests.provision.belongings import REGION, make, own_stack, their_network
from tests.provision.kubernetes_program import put_kubectl, run_program, whole_cluster

Record = Callable[..., Any]
STACK = "eks-b200-tp8"
LUSTRE = {"weights": {"storage": "fsx-lustre"}}
# What differs from the shipped stack in ways that have nothing to do with each other: one run shows them all.
ROLES = (
    "arn:aws:iam::000000000000:role/rehearsal",
    "arn:aws:iam::000000000000:role/team/rehearsal",
    "arn:aws:iam::111111111111:role/rehearsal",
)
OFFICE = "203.0.113.0/24"
MOUNTED_AT_MAXIMUM = {
    "accelerator": "b200",
    "capacity": {"kind": "capacity-block", "network_layout": "maximum"},
    "weights": {"storage": "shared-mount"},
}
EXPORT = "fs-0123456789abcdef0.efs.us-east-2.amazonaws.com:/"
GB200 = {"platform": "aws-eks", "weights": {"storage": "s3-to-nvme"}}


def of_two_hosts(record: Record, tmp_path: Path) -> Any:
    """Two nodes on demand, whose weights lie on a file system."""
    return record("mine", root=own_stack(tmp_path, "h200-2n-tp16", platform="aws-eks", **LUSTRE))


def at_maximum(record: Record, tmp_path: Path) -> Any:
    """As many interfaces as a machine has, and weights on a mount."""
    root = own_stack(tmp_path, STACK, **MOUNTED_AT_MAXIMUM)
    return record("mine", root=root, weights_mount=EXPORT)


def ending(store: Store) -> dict[str, str]:
    ends = {
        name: replace(each, end="2099-12-01T11:30:00Z")
        for name, each in store.account.reservations.items()
    }
    store.account = replace(store.account, reservations=ends)
    return {}


def from_an_office(record: Record) -> Any:
    """A cluster with administrators of its own that an office dials, on a block that ends."""
    return record(STACK, prepare=ending, cluster_admins=", ".join(ROLES), api_from_cidr=OFFICE)


def in_their_network(record: Record) -> Any:
    """A cluster in subnets of theirs, dialled from inside."""
    return record(STACK, prepare=their_subnets, api_from_cidr="10.9.0.0/16")


def pods(recorded: Any) -> list[dict[str, Any]]:
    """Specifications of all pods with engines."""
    sets = recorded.of_type("LeaderWorkerSet").values()
    return [each["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"] for each in sets]


def group(recorded: Any) -> dict[str, Any]:
    found: dict[str, Any] = recorded.of_type("NodeGroup")["accelerators"]
    return found


def template(recorded: Any) -> dict[str, Any]:
    found: dict[str, Any] = recorded.of_type("LaunchTemplate")["accelerators"]
    return found


def policies_of(recorded: Any, role: str) -> set[str]:
    name = recorded.of_type("Role")[role]["name"]
    attached = recorded.of_type("RolePolicyAttachment").values()
    return {each["policyArn"].rpartition("/")[2] for each in attached if each["role"] == name}


def test_nodes_are_as_many_as_hosts_and_come_from_the_capacity_block_alone(record: Record) -> None:
    recorded = record(STACK)
    nodes, launched = group(recorded), template(recorded)
    assert nodes["capacityType"] == "CAPACITY_BLOCK"
    assert nodes["scalingConfig"] == {"desiredSize": 1, "minSize": 0, "maxSize": 1}
    assert launched["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert launched["capacityReservationSpecification"] == {
        "capacityReservationPreference": "capacity-reservations-only",
        "capacityReservationTarget": {"capacityReservationId": "cr-0123456789abcdef0"},
    }
    assert "placement" not in launched
    assert recorded.of_type("PlacementGroup") == {}
    (subnet,) = nodes["subnetIds"]
    assert recorded.of_type("Subnet")["hosts"]["availabilityZoneId"] == "use2-az1"
    assert subnet not in recorded.of_type("Cluster")["cluster"]["vpcConfig"]["subnetIds"]


def test_a_template_of_managed_nodes_leaves_out_what_eks_refuses(record: Record) -> None:
    for launched in record(STACK).of_type("LaunchTemplate").values():
        assert "iamInstanceProfile" not in launched
        assert "imageId" not in launched
        assert all("subnetId" not in each for each in launched.get("networkInterfaces", ()))
        assert base64.b64decode(launched["userData"]).decode().startswith("MIME-Version: 1.0")
        assert launched["metadataOptions"]["httpTokens"] == "required"


def has_interfaces_of(recorded: Any, name: str, layout: Any) -> bool:
    rows = template(recorded)["networkInterfaces"]
    made = [(row["networkCardIndex"], row["deviceIndex"], row["interfaceType"]) for row in rows]
    wanted = read_instance_type(name).interfaces(layout)
    assert all(len(row["securityGroups"]) == 2 for row in rows)
    return made == [(each.card, each.device, each.type) for each in wanted]


@pytest.mark.parametrize(
    ("accelerator", "name", "layout"),
    [
        ("b300", "p6-b300.48xlarge", "ip-saving"),
        ("b300", "p6-b300.48xlarge", "maximum"),
        ("h200", "p5en.48xlarge", "maximum"),
    ],
)
def test_interfaces_are_those_of_the_layout(
    record: Record, tmp_path: Path, accelerator: str, name: str, layout: str
) -> None:
    capacity = {"kind": "capacity-block", "network_layout": layout}
    root = own_stack(tmp_path, STACK, accelerator=accelerator, capacity=capacity)
    assert has_interfaces_of(record("mine", root=root), name, layout)


def test_interfaces_of_stacks_that_others_look_at_are_those_of_the_layout(
    record: Record, tmp_path: Path
) -> None:
    assert has_interfaces_of(record(STACK), "p6-b200.48xlarge", "ip-saving")
    assert has_interfaces_of(at_maximum(record, tmp_path / "b200"), "p6-b200.48xlarge", "maximum")
    assert has_interfaces_of(of_two_hosts(record, tmp_path / "h200"), "p5en.48xlarge", "ip-saving")


def test_on_demand_nodes_of_several_hosts_share_a_placement_group(
    record: Record, tmp_path: Path
) -> None:
    recorded = of_two_hosts(record, tmp_path)
    assert group(recorded)["capacityType"] == "ON_DEMAND"
    assert template(recorded)["placement"]["groupName"].startswith("nodes-")


@pytest.mark.parametrize("name", instance_type_names())
@pytest.mark.parametrize("layout", LAYOUT_POLICIES)
def test_the_first_card_has_one_address_by_every_layout(name: str, layout: LayoutPolicy) -> None:
    """The VPC CNI takes prefixes for pods on that card alone: a second interface there would have some, too."""
    interfaces = read_instance_type(name).interfaces(layout)
    assert [each.place for each in interfaces if each.card == 0 and each.has_address] == [(0, 0)]


def test_addresses_are_counted_by_interface_and_once_for_pods(
    record: Record, tmp_path: Path
) -> None:
    root = own_stack(tmp_path, STACK, **MOUNTED_AT_MAXIMUM)
    wanted = 8 + 48  # one for each of eight cards, and three prefixes on the first
    assert record("mine", root=root, prepare=with_nodes_in(26), weights_mount=EXPORT)  # 59
    with pytest.raises(ProblemsFound, match=f"hosts take {wanted}"):
        record("mine", root=root, prepare=with_nodes_in(27), weights_mount=EXPORT)


def with_nodes_in(size: int) -> Callable[[Store], dict[str, str]]:
    """A subnet of theirs of a size for nodes, and two for the control plane."""

    def prepare(store: Store) -> dict[str, str]:
        hosts, *others = their_network(store, zones=("use1-az1", "use1-az2", "use1-az4"))
        vpc = hosts.inputs["vpcId"]
        block, zone = f"10.9.200.0/{size}", "use1-az1"
        inputs = {"vpcId": vpc, "cidrBlock": block, "availabilityZoneId": zone}
        small = make(store, REGION, SUBNET, "small", **inputs)
        ids = ",".join(each.id for each in others)
        return {"subnet_id": small.id, "control_subnet_ids": ids}

    return prepare


def test_pods_fit_on_the_nodes(record: Record, tmp_path: Path) -> None:
    recorded = of_two_hosts(record, tmp_path)
    nodes = group(recorded)
    num_efa = sum(
        row["interfaceType"] != "interface" for row in template(recorded)["networkInterfaces"]
    )
    for pod in pods(recorded):
        assert pod["nodeSelector"].items() <= nodes["labels"].items()
        (taint,) = nodes["taints"]
        (toleration,) = pod["tolerations"]
        assert (toleration["key"], toleration["operator"]) == (taint["key"], "Exists")
        limits = pod["containers"][0]["resources"]["limits"]
        assert limits == {
            "nvidia.com/gpu": "8",
            "vpc.amazonaws.com/efa": str(num_efa),
            "hugepages-2Mi": "5120Mi",
        }
    assert (
        sum(
            each["spec"]["leaderWorkerTemplate"]["size"]
            for each in recorded.of_type("LeaderWorkerSet").values()
        )
        == nodes["scalingConfig"]["desiredSize"]
    )
    assert "efa-device-plugin" in recorded.of_type("Release")


def test_the_workload_is_the_one_of_a_cluster_that_exists(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands, devices and probes are the same; where weights lie and which nodes are chosen is not.

    So are images and variables where the stack says what AWS's network between hosts wants: of a cluster that somebody
    else made nobody knows that network.
    """
    ours = of_two_hosts(record, tmp_path)
    release = Catalog().release("vllm", "0.22.1")
    image = next(each.reference for each in release.images if each.network == "efa")
    fields = {
        "platform": "existing-kubernetes",
        "engine": {"name": "vllm", "version": release.version, "image": image},
        "defaults": {"env": {"FI_PROVIDER": "efa"}},
        **LUSTRE,
    }
    answers = whole_cluster()
    resources = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "16", "hugepages-2Mi": "5120Mi"}
    path = "/api/v1/nodes?labelSelector=moe-infra/pool%3Daccelerators"
    answers[path] = {
        "items": [
            {**each, "status": {**each["status"], "allocatable": resources}}
            for each in _nodes(answers)
        ]
    }
    put_kubectl(tmp_path / "bin", answers)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    theirs = run_program(
        "mine",
        tmp_path / "bin",
        root=own_stack(tmp_path, "h200-2n-tp16", **fields),
        node_selector="moe-infra/pool=accelerators",
        network_resource="vpc.amazonaws.com/efa=16",
        fsx_id="fs-0123456789abcdef0",
        fsx_dns_name="fs.example.com",
        fsx_mount_name="abcdefgh",
    )
    there = {
        (kind.rpartition(":")[2], name): each
        for (kind, name), each in theirs.resources.items()
        if "apiVersion" in each
    }
    here = {key: each for key, each in ours.resources.items() if "apiVersion" in each}
    volume = ("PersistentVolume", "weights")
    assert here.pop(volume)["spec"]["csi"]["driver"] == there.pop(volume)["spec"]["csi"]["driver"]
    assert here == there


def _nodes(answers: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = next(
        each["items"] for path, each in answers.items() if "nodes?" in path
    )
    return found


def test_a_stack_moves_by_one_field(record: Record, tmp_path: Path) -> None:
    recorded = record("mine", root=own_stack(tmp_path, "b200-sglang-tp8", platform="aws-eks"))
    assert recorded.inventory["platform"] == "aws-eks"
    assert recorded.inventory["weights"] == record("b200-sglang-tp8").inventory["weights"]


def test_roles_are_given_what_they_need_and_no_more(record: Record) -> None:
    recorded = record(STACK)
    assert policies_of(recorded, "control-plane") == {"AmazonEKSClusterPolicy"}
    assert policies_of(recorded, "nodes") == {
        "AmazonEKSWorkerNodePolicy",
        "AmazonEC2ContainerRegistryPullOnly",
    }
    assert policies_of(recorded, "vpc-cni") == {"AmazonEKS_CNI_Policy"}
    assert policies_of(recorded, "weights") == set()
    inline = {
        name: {
            action
            for statement in json.loads(each["policy"])["Statement"]
            for action in (
                statement["Action"]
                if isinstance(statement["Action"], list)
                else [statement["Action"]]
            )
        }
        for name, each in recorded.of_type("RolePolicy").items()
    }
    assert inline == {
        "read-weights": {"s3:ListBucket", "s3:GetBucketLocation", "s3:GetObject"},
        "use-key": {"kms:Encrypt", "kms:Decrypt", "kms:ListGrants", "kms:DescribeKey"},
    }


def test_pods_read_the_bucket_as_themselves(record: Record) -> None:
    recorded = record(STACK)
    (identity,) = recorded.of_type("PodIdentityAssociation").values()
    account = recorded.of_type("ServiceAccount")["engines"]
    (pod,) = pods(recorded)
    assert identity["serviceAccount"] == account["metadata"]["name"] == pod["serviceAccountName"]
    assert identity["namespace"] == account["metadata"]["namespace"]
    (copying,) = pod["initContainers"]
    assert copying["env"] == [
        {"name": "WEIGHTS_SOURCE", "value": recorded.inventory["weights"]["source"]}
    ]
    assert recorded.of_type("Key")["secrets"]["enableKeyRotation"] is True


def test_the_end_of_a_block_is_told_with_the_notice_of_managed_nodes(record: Record) -> None:
    said = from_an_office(record).said
    assert any("40 minutes before: EKS scales their group to zero" in each for each in said)


def test_roles_of_one_name_are_administrators_of_their_own(record: Record) -> None:
    entries = from_an_office(record).of_type("AccessEntry")
    assert sorted(each["principalArn"] for each in entries.values()) == sorted(ROLES)


def test_a_public_block_dials_the_api_over_the_internet_and_nobody_else(record: Record) -> None:
    recorded = from_an_office(record)
    reached = recorded.of_type("Cluster")["cluster"]["vpcConfig"]
    assert reached["publicAccessCidrs"] == [OFFICE]
    assert reached["endpointPrivateAccess"] is True
    rules = recorded.of_type("SecurityGroupIngressRule")
    assert all("cidrIpv4" not in each for each in rules.values())


def test_a_private_block_dials_the_api_inside_the_network_alone(record: Record) -> None:
    recorded = in_their_network(record)
    reached = recorded.of_type("Cluster")["cluster"]["vpcConfig"]
    assert reached["endpointPublicAccess"] is False
    assert "publicAccessCidrs" not in reached
    rule = recorded.of_type("SecurityGroupIngressRule")["api-in"]
    assert (rule["cidrIpv4"], rule["fromPort"]) == ("10.9.0.0/16", 443)


def their_subnets(store: Store) -> dict[str, str]:
    zones = ("use2-az1", "use2-az1", "use2-az2")
    hosts, first, second = their_network(store, region="us-east-2", zones=zones)
    return {"subnet_id": hosts.id, "control_subnet_ids": f"{first.id},{second.id}"}


def test_a_network_of_theirs_is_used_and_none_is_made(record: Record) -> None:
    recorded = in_their_network(record)
    assert recorded.of_type("Vpc") == recorded.of_type("Subnet") == {}
    reached = recorded.of_type("Cluster")["cluster"]["vpcConfig"]
    assert group(recorded)["subnetIds"] != reached["subnetIds"][:1]
    system = recorded.of_type("NodeGroup")["system"]
    assert system["subnetIds"] == reached["subnetIds"][:1]


def test_addons_are_pinned_and_pods_have_prefixes_of_addresses(record: Record) -> None:
    addons = record(STACK).of_type("Addon")
    assert set(addons) == {
        *("vpc-cni", "kube-proxy", "coredns", "eks-pod-identity-agent"),
        "eks-node-monitoring-agent",
    }
    assert all(each["addonVersion"].startswith("v") for each in addons.values())
    settings = json.loads(addons["vpc-cni"]["configurationValues"])
    assert settings["env"]["ENABLE_PREFIX_DELEGATION"] == "true"


def test_only_system_nodes_are_repaired_by_eks(record: Record) -> None:
    """A node with accelerators that is replaced has lost its weights, and a reservation may have no other."""
    groups = record(STACK).of_type("NodeGroup")
    repaired = {name: each["nodeRepairConfig"]["enabled"] for name, each in groups.items()}
    assert repaired == {"accelerators": False, "system": True}


def test_a_cluster_on_reserved_capacity_is_protected_and_upgraded_by_nobody_else(
    record: Record, tmp_path: Path
) -> None:
    reserved = record(STACK).of_type("Cluster")["cluster"]
    assert reserved["deletionProtection"] is True
    assert reserved["upgradePolicy"] == {"supportType": "EXTENDED"}
    root = own_stack(tmp_path, STACK, capacity={"kind": "on-demand"})
    bought = record("mine", root=root, kubernetes_support="standard").of_type("Cluster")["cluster"]
    assert bought["deletionProtection"] is False
    assert bought["upgradePolicy"] == {"supportType": "STANDARD"}


def test_lustre_is_mounted_through_its_driver(record: Record, tmp_path: Path) -> None:
    recorded = of_two_hosts(record, tmp_path)
    assert "aws-fsx-csi-driver" in recorded.of_type("Addon")
    volume = recorded.of_type("PersistentVolume")["weights"]["spec"]["csi"]
    assert volume["volumeHandle"] == recorded.inventory["weights"]["file_system"]
    assert volume["volumeAttributes"]["mountname"].endswith("/weights")
    assert " of the weights>>" not in json.dumps(list(recorded.resources.values()))
    assert recorded.of_type("PodIdentityAssociation") == {}
    assert "weights" not in recorded.of_type("Role")


def test_a_shared_mount_is_mounted_before_the_node_joins(record: Record, tmp_path: Path) -> None:
    recorded = at_maximum(record, tmp_path)
    script = base64.b64decode(template(recorded)["userData"]).decode()
    assert f"{EXPORT} /models efs tls," in script
    (pod,) = pods(recorded)
    assert {"name": "weights", "hostPath": {"path": "/models", "type": "Directory"}} in pod[
        "volumes"
    ]


def test_gb200_gets_its_domain_and_nodes_of_its_architecture(
    record: Record, tmp_path: Path
) -> None:
    recorded = record("mine", root=own_stack(tmp_path, "k8s-gb200-2p1d", **GB200))
    assert group(recorded)["amiType"] == "AL2023_ARM_64_NVIDIA"
    assert group(recorded)["capacityType"] == "CAPACITY_BLOCK"
    assert recorded.of_type("LaunchTemplate")["system"]["instanceType"] == "m7g.2xlarge"
    driver = recorded.of_type("Release")["dra-driver"]["values"]
    assert driver["resources"] == {"gpus": {"enabled": False}, "computeDomains": {"enabled": True}}
    assert len(recorded.of_type("ComputeDomain")) == 1
    zones = {name: each["availabilityZoneId"] for name, each in recorded.of_type("Subnet").items()}
    assert zones["hosts"] == "use1-dfw2-az1"
    assert {"use1-az6"} < {zones["control-0"], zones["control-1"], zones["gateways"]}
    assert any("eks-local-zone" in said or "Local Zone" in said for said in recorded.said)
