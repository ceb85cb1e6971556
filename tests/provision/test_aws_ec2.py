from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.errors import ProblemsFound
from infra.provision.aws.ec2_stack import session_manager_proxy
from infra.provision.aws.launch_template import ROOT_IOPS, ROOT_MIB_PER_S
from infra.rehearsal.cloud.store import Store
from infra.spec.load import PROJECT
from tests.provision.belongings import own_stack

Record = Callable[..., Any]


def their_bucket(store: Store) -> dict[str, str]:
    store.account = replace(store.account, buckets=("their-weights",))
    return {"weights_bucket": "their-weights"}


def no_bucket(store: Store) -> dict[str, str]:
    store.account = replace(store.account, buckets=())
    return {}


IMAGE = "ami-000000000000000e3"


def of_an_operator(record: Record) -> Any:
    """A stack with an image, an open port and tags of the operator's own: one run shows that each is heeded."""
    return record(
        "gb200-2p1d",
        ami=IMAGE,
        ssh_user="admin",
        ssh_from_cidr="10.9.0.0/16",
        owner="serving",
        cost_center="42",
    )


def test_the_inventory_of_gb200_2p1d_has_its_six_hosts_in_order(record: Record) -> None:
    inventory = record("gb200-2p1d").inventory
    names = ["prefill-0", "prefill-1", "decode-0", "decode-1", "decode-2", "decode-3"]
    assert [host["name"] for host in inventory["hosts"]] == names
    assert len({host["address"] for host in inventory["hosts"]}) == 6
    address = inventory["hosts"][0]["address"]
    url = f"http://{address}:8000"
    assert inventory["router"] == {"host": "prefill-0", "port": 8000, "url": url}
    assert inventory["weights"]["storage"] == "s3-to-nvme"
    first = inventory["hosts"][0]
    assert first["roles"] == ["prefill"]
    assert first["user"] == "ec2-user"
    assert first["proxy_command"] is None or first["instance_id"] in first["proxy_command"]


def test_machines_are_hardened(record: Record) -> None:
    for template in record("gb200-2p1d").of_type("LaunchTemplate").values():
        assert template["metadataOptions"]["httpTokens"] == "required"
        (root,) = template["blockDeviceMappings"]
        assert root["ebs"]["encrypted"] == "true"
        assert root["ebs"]["volumeType"] == "gp3"
        assert (root["ebs"]["throughput"], root["ebs"]["iops"]) == (ROOT_MIB_PER_S, ROOT_IOPS)
        assert all("associatePublicIpAddress" not in each for each in template["networkInterfaces"])
        assert all(
            each["securityGroups"] and each["subnetId"] for each in template["networkInterfaces"]
        )


def test_an_ultraserver_is_entered_by_its_reservation_without_a_placement_group(
    record: Record,
) -> None:
    recorded = record("gb200-2p1d")
    assert recorded.of_type("PlacementGroup") == {}
    for template in recorded.of_type("LaunchTemplate").values():
        assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
        target = template["capacityReservationSpecification"]["capacityReservationTarget"]
        assert target == {"capacityReservationId": "cr-0123456789abcdef0"}
        assert "placement" not in template


def test_hosts_bought_on_demand_share_a_placement_group(record: Record) -> None:
    recorded = record("h200-2n-tp16")
    (group,) = recorded.of_type("PlacementGroup").values()
    assert group["strategy"] == "cluster"
    (template,) = recorded.of_type("LaunchTemplate").values()
    assert template["placement"]["groupName"].startswith("hosts-")
    assert "instanceMarketOptions" not in template


def test_efa_rules_refer_to_the_group_itself_and_nobody_else_gets_in(record: Record) -> None:
    recorded = record("gb200-2p1d", ssh_from_cidr="")
    rules = recorded.of_type("SecurityGroupIngressRule")
    itself = rules["hosts-from-hosts"]
    assert itself["securityGroupId"] == itself["referencedSecurityGroupId"]
    egress = recorded.of_type("SecurityGroupEgressRule")["hosts-to-hosts"]
    assert egress["securityGroupId"] == egress["referencedSecurityGroupId"]
    assert set(rules) == {"hosts-from-hosts", "endpoints-in"}
    assert all("cidrIpv4" not in rule for rule in rules.values())


def test_hosts_read_from_s3_what_others_keep_and_write_to_their_own_account_alone(
    record: Record,
) -> None:
    endpoints = record("gb200-2p1d").of_type("VpcEndpoint")
    reading, writing = json.loads(endpoints["s3"]["policy"])["Statement"]
    assert reading["Action"] == ["s3:Get*", "s3:List*"]
    assert "Condition" not in reading
    own = {"aws:ResourceAccount": "${aws:PrincipalAccount}"}
    assert writing["Condition"] == {"StringEquals": own}
    assert all("policy" not in one for name, one in endpoints.items() if name != "s3")


def test_without_an_open_port_ssh_goes_through_session_manager(record: Record) -> None:
    host = record("gb200-2p1d", ssh_from_cidr="").inventory["hosts"][0]
    assert host["proxy_command"] == session_manager_proxy(host["instance_id"], "us-east-1")


def test_an_open_port_is_open_to_that_network_alone(record: Record) -> None:
    recorded = of_an_operator(record)
    rule = recorded.of_type("SecurityGroupIngressRule")["ssh-in"]
    assert (rule["fromPort"], rule["toPort"], rule["cidrIpv4"]) == (22, 22, "10.9.0.0/16")
    assert recorded.inventory["hosts"][0]["proxy_command"] is None


def test_the_local_zone_is_opted_into_and_gateways_stand_in_its_parent(record: Record) -> None:
    recorded = record("gb200-2p1d")
    subnets = recorded.of_type("Subnet")
    assert subnets["hosts"]["availabilityZoneId"] == "use1-dfw2-az1"
    assert subnets["gateways"]["availabilityZoneId"] == "use1-az6"
    assert recorded.of_type("AvailabilityZoneGroup")["local-zone"]["groupName"] == "us-east-1-dfw-2"
    assert record("h200-tp8").of_type("AvailabilityZoneGroup") == {}


def test_every_resource_that_takes_tags_says_whose_it_is(record: Record) -> None:
    recorded = of_an_operator(record)
    tagged = [inputs["tags"] for inputs in recorded.resources.values() if "tags" in inputs]
    assert len(tagged) > 20
    assert all(tags["moe-infra:stack"] == "gb200-2p1d" for tags in tagged)
    assert all((tags["owner"], tags["cost_center"]) == ("serving", "42") for tags in tagged)
    instances = recorded.of_type("Instance")
    decode = instances["decode-3"]["tags"]
    assert (decode["moe-infra:host"], decode["moe-infra:roles"]) == ("decode-3", "decode")
    assert decode["moe-infra:replicas"] == "decode/0"
    assert instances["prefill-1"]["tags"]["moe-infra:replicas"] == "prefill/1"


def test_hosts_may_read_weights_and_nothing_else(record: Record) -> None:
    recorded = record("gb200-2p1d")
    allowed = {
        name: {
            action
            for each in json.loads(policy["policy"])["Statement"]
            for action in _list(each["Action"])
        }
        for name, policy in recorded.of_type("RolePolicy").items()
    }
    assert allowed["read-weights"] == {"s3:ListBucket", "s3:GetBucketLocation", "s3:GetObject"}
    # nothing of ssm: but to say that the host is there; parameters are read by nobody
    sessions = allowed["session-manager"]
    assert {each for each in sessions if each.startswith("ssm:")} == {
        "ssm:UpdateInstanceInformation"
    }
    assert {each.partition(":")[0] for each in sessions} == {"ssm", "ssmmessages"}
    assert recorded.of_type("RolePolicyAttachment") == {}


def test_hosts_list_and_read_below_the_weights_prefix_alone(record: Record, tmp_path: Path) -> None:
    root = own_stack(
        tmp_path, "h200-tp8", weights={"path": "/models", "source": "s3://their-weights/kimi"}
    )
    named = record("mine", root=root, prepare=their_bucket)
    rows = json.loads(named.of_type("RolePolicy")["read-weights"]["policy"])["Statement"]
    by_action = {each["Action"]: each for each in rows}
    assert by_action["s3:ListBucket"]["Condition"] == {"StringLike": {"s3:prefix": "kimi/*"}}
    assert by_action["s3:GetObject"]["Resource"] == "arn:aws:s3:::their-weights/kimi/*"


def test_the_bucket_keeps_versions_for_a_while_and_no_parts_of_broken_uploads(
    record: Record,
) -> None:
    recorded = record("gb200-2p1d")
    (versioning,) = recorded.of_type("BucketVersioning").values()
    assert versioning["versioningConfiguration"] == {"status": "Enabled"}
    (lifecycle,) = recorded.of_type("BucketLifecycleConfiguration").values()
    (rule,) = lifecycle["rules"]
    assert rule["abortIncompleteMultipartUpload"] == {"daysAfterInitiation": 7}
    assert rule["noncurrentVersionExpiration"] == {"noncurrentDays": 30}
    assert rule["status"] == "Enabled"


def test_what_holds_weights_answers_over_tls_alone(record: Record, tmp_path: Path) -> None:
    plain = {"Bool": {"aws:SecureTransport": "false"}}
    (bucket,) = record("gb200-2p1d").of_type("BucketPolicy").values()
    root = own_stack(tmp_path, "h200-tp8", weights={"path": "/models", "storage": "efs"})
    shared = record("mine", root=root)
    (system,) = shared.of_type("FileSystemPolicy").values()
    for policy in (bucket["policy"], system["policy"]):
        denied = [each for each in json.loads(policy)["Statement"] if each["Effect"] == "Deny"]
        assert [each["Condition"] for each in denied] == [plain]
    boots = [each["userData"] for each in shared.of_type("LaunchTemplate").values()]
    assert all(" efs tls," in base64.b64decode(each).decode() for each in boots)


def test_an_existing_bucket_is_used_and_none_is_created(record: Record, tmp_path: Path) -> None:
    recorded = record("gb200-2p1d", prepare=their_bucket)
    assert recorded.of_type("Bucket") == {}
    assert recorded.inventory["weights"]["source"] == "s3://their-weights/"
    root = own_stack(
        tmp_path, "h200-tp8", weights={"path": "/models", "source": "s3://their-weights/kimi"}
    )
    named = record("mine", root=root)
    assert named.inventory["weights"]["source"] == "s3://their-weights/kimi/"
    assert "their-weights/kimi/*" in named.of_type("RolePolicy")["read-weights"]["policy"]


def test_a_bucket_that_the_stack_names_and_nobody_has_is_told_where_it_is_named(
    record: Record, tmp_path: Path
) -> None:
    weights = {"path": "/models", "source": "s3://nobody-s/kimi"}
    with pytest.raises(ProblemsFound) as caught:
        record("mine", root=own_stack(tmp_path, "h200-tp8", weights=weights), prepare=no_bucket)
    (problem,) = caught.value.problems
    assert (problem.file, problem.field) == ("stacks/mine.yaml", "weights.source")
    assert "There is no bucket nobody-s" in problem.what


@pytest.mark.parametrize("has_efa", ["true", "false"])
def test_lustre_is_filled_from_the_bucket(record: Record, tmp_path: Path, has_efa: str) -> None:
    root = own_stack(tmp_path, "h200-tp8", weights={"path": "/models", "storage": "fsx-lustre"})
    recorded = record("mine", root=root, fsx_efa=has_efa)
    (system,) = recorded.of_type("LustreFileSystem").values()
    assert (system["storageCapacity"], system["perUnitStorageThroughput"]) == (4800, 1000)
    (association,) = recorded.of_type("DataRepositoryAssociation").values()
    assert association["dataRepositoryPath"] == recorded.inventory["weights"]["source"]
    assert recorded.inventory["weights"]["file_system"].startswith("fs-")


def test_local_weights_need_no_store(record: Record, tmp_path: Path) -> None:
    root = own_stack(tmp_path, "h200-tp8", weights={"path": "/models", "storage": "local"})
    recorded = record("mine", root=root)
    assert recorded.of_type("Bucket") == {}
    assert list(recorded.of_type("RolePolicy")) == ["session-manager"]
    assert recorded.inventory["weights"] == {"storage": "local", "path": "/models"}


def test_a_pinned_image_is_taken_as_it_is(record: Record) -> None:
    recorded = of_an_operator(record)
    assert {each["imageId"] for each in recorded.of_type("LaunchTemplate").values()} == {IMAGE}
    assert recorded.inventory["hosts"][0]["user"] == "admin"


def test_hosts_with_two_roles_are_one_node_group(record: Record, tmp_path: Path) -> None:
    fields = {"platform": "aws-ec2", "capacity": {"kind": "on-demand"}}
    root = own_stack(
        tmp_path, str(PROJECT / "tests" / "stacks" / "vllm-shared-1p1d.yaml"), **fields
    )
    recorded = record("mine", root=root)
    assert list(recorded.of_type("LaunchTemplate")) == ["prefill-decode"]
    assert recorded.inventory["hosts"][0]["roles"] == ["prefill", "decode"]


def test_no_machine_is_bought_for_a_stack_that_a_rule_refuses(
    record: Record, tmp_path: Path
) -> None:
    root = own_stack(tmp_path, "h200-tp8", roles={"unified": {"max_model_len": 1000000}})
    with pytest.raises(ProblemsFound) as caught:
        record("mine", root=root)
    assert "context-length" in {problem.rule for problem in caught.value.problems}


def test_nothing_is_registered_when_something_is_missing(record: Record) -> None:
    with pytest.raises(ProblemsFound) as caught:
        record("gb200-2p1d", reservation_id="", key_name="")
    fields = [problem.field for problem in caught.value.problems]
    assert fields == ["moe-infra:key_name", "moe-infra:reservation_id"]


def _list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
