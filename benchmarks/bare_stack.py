"""The resources of a stack of p6-b300 hosts written down by hand: what `benchmarks/provisioning.py` compares with.

No topology, no catalogue, no check, no look-up but that of the image: the floor of a Pulumi program that makes them.
Run by Pulumi, with the number of hosts in `MOE_BENCHMARK_HOSTS`.
"""

import json
import os

import pulumi
from pulumi import ResourceOptions
from pulumi_aws import ec2, iam, s3, ssm, vpc

STACK = pulumi.get_stack()
NUM_HOSTS = int(os.environ["MOE_BENCHMARK_HOSTS"])
REGION = pulumi.Config("aws").require("region")
CONFIG = pulumi.Config("moe-infra")
ZONE = CONFIG.require("zone_id")
PARAMETER = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id"


def tags(name: str, **more: str) -> dict[str, str]:
    """The tags of one resource."""
    return {"Name": f"{STACK}/{name}", "moe-infra:stack": STACK, **more}


network = ec2.Vpc(
    "vpc",
    cidr_block="10.64.0.0/16",
    enable_dns_support=True,
    enable_dns_hostnames=True,
    tags=tags("vpc"),
)
hosts_subnet = ec2.Subnet(
    "hosts",
    vpc_id=network.id,
    availability_zone_id=ZONE,
    cidr_block="10.64.0.0/17",
    tags=tags("hosts"),
)
gateways_subnet = ec2.Subnet(
    "gateways",
    vpc_id=network.id,
    availability_zone_id=ZONE,
    cidr_block="10.64.128.0/17",
    tags=tags("gateways"),
)
tables = {}
for name, subnet in (("hosts", hosts_subnet), ("gateways", gateways_subnet)):
    tables[name] = ec2.RouteTable(name, vpc_id=network.id, tags=tags(name))
    ec2.RouteTableAssociation(name, route_table_id=tables[name].id, subnet_id=subnet.id)
internet = ec2.InternetGateway("internet", vpc_id=network.id, tags=tags("internet"))
to_internet = ec2.Route(
    "gateways-to-internet",
    route_table_id=tables["gateways"].id,
    destination_cidr_block="0.0.0.0/0",
    gateway_id=internet.id,
)
address = ec2.Eip("nat", domain="vpc", tags=tags("nat"))
nat = ec2.NatGateway(
    "nat",
    allocation_id=address.allocation_id,
    subnet_id=gateways_subnet.id,
    tags=tags("nat"),
    opts=ResourceOptions(depends_on=[to_internet]),
)
way_out = ec2.Route(
    "hosts-to-internet",
    route_table_id=tables["hosts"].id,
    destination_cidr_block="0.0.0.0/0",
    nat_gateway_id=nat.id,
)
group = ec2.SecurityGroup(
    "hosts", vpc_id=network.id, description="hosts of one stack", tags=tags("hosts")
)
itself = {"security_group_id": group.id, "referenced_security_group_id": group.id}
vpc.SecurityGroupIngressRule(
    "hosts-from-hosts", **itself, ip_protocol="-1", tags=tags("hosts-from-hosts")
)
vpc.SecurityGroupEgressRule(
    "hosts-to-hosts", **itself, ip_protocol="-1", tags=tags("hosts-to-hosts")
)
vpc.SecurityGroupEgressRule(
    "hosts-to-anywhere",
    security_group_id=group.id,
    cidr_ipv4="0.0.0.0/0",
    ip_protocol="-1",
    tags=tags("hosts-to-anywhere"),
)
for name, source, port, into in (
    ("ssh-in", {"cidr_ipv4": "10.0.0.0/8"}, 22, group),
    (
        "endpoints-in",
        {"referenced_security_group_id": group.id},
        443,
        ec2.SecurityGroup(
            "endpoints",
            vpc_id=network.id,
            description="interface endpoints of one stack",
            tags=tags("endpoints"),
        ),
    ),
):
    vpc.SecurityGroupIngressRule(
        name,
        security_group_id=into.id,
        ip_protocol="tcp",
        from_port=port,
        to_port=port,
        tags=tags(name),
        **source,
    )
    endpoints = into
ec2.VpcEndpoint(
    "s3",
    vpc_id=network.id,
    service_name=f"com.amazonaws.{REGION}.s3",
    vpc_endpoint_type="Gateway",
    route_table_ids=[tables["hosts"].id],
    policy=json.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Principal": "*",
                    "Action": ["s3:Get*", "s3:List*"],
                    "Resource": "*",
                },
                {
                    "Effect": "Allow",
                    "Principal": "*",
                    "Action": "s3:*",
                    "Resource": "*",
                    "Condition": {
                        "StringEquals": {"aws:ResourceAccount": "${aws:PrincipalAccount}"}
                    },
                },
            ],
        }
    ),
    tags=tags("s3"),
)
for service in ("ssm", "ssmmessages", "ec2messages"):
    ec2.VpcEndpoint(
        service,
        vpc_id=network.id,
        service_name=f"com.amazonaws.{REGION}.{service}",
        vpc_endpoint_type="Interface",
        subnet_ids=[gateways_subnet.id],
        security_group_ids=[endpoints.id],
        private_dns_enabled=True,
        tags=tags(service),
    )
kept = ResourceOptions(protect=True, retain_on_delete=True)
bucket = s3.Bucket("weights", tags=tags("weights"), opts=kept)
s3.BucketPublicAccessBlock(
    "weights",
    bucket=bucket.id,
    block_public_acls=True,
    block_public_policy=True,
    ignore_public_acls=True,
    restrict_public_buckets=True,
    opts=kept,
)
s3.BucketPolicy(
    "weights",
    bucket=bucket.id,
    policy=bucket.arn.apply(
        lambda arn: json.dumps(
            {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Deny",
                        "Principal": "*",
                        "Action": "s3:*",
                        "Resource": [arn, f"{arn}/*"],
                        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                    }
                ],
            }
        )
    ),
    opts=kept,
)
s3.BucketVersioning(
    "weights", bucket=bucket.id, versioning_configuration={"status": "Enabled"}, opts=kept
)
s3.BucketLifecycleConfiguration(
    "weights",
    bucket=bucket.id,
    rules=[
        {
            "id": "left-over",
            "status": "Enabled",
            "filter": {"prefix": ""},
            "abort_incomplete_multipart_upload": {"days_after_initiation": 7},
            "noncurrent_version_expiration": {"noncurrent_days": 30},
        }
    ],
    opts=kept,
)
trust = {
    "Effect": "Allow",
    "Action": "sts:AssumeRole",
    "Principal": {"Service": "ec2.amazonaws.com"},
}
role = iam.Role(
    "hosts",
    assume_role_policy=json.dumps({"Version": "2012-10-17", "Statement": [trust]}),
    tags=tags("hosts"),
)
session_manager = iam.RolePolicyAttachment(
    "session-manager",
    role=role.name,
    policy_arn="arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore",
)
iam.RolePolicy(
    "read-weights",
    role=role.name,
    policy=bucket.id.apply(
        lambda name: json.dumps(
            {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Action": ["s3:ListBucket", "s3:GetBucketLocation"],
                        "Resource": f"arn:aws:s3:::{name}",
                    },
                    {
                        "Effect": "Allow",
                        "Action": "s3:GetObject",
                        "Resource": f"arn:aws:s3:::{name}/*",
                    },
                ],
            }
        )
    ),
)
profile = iam.InstanceProfile("hosts", role=role.name, tags=tags("hosts"))
placement = ec2.PlacementGroup("hosts", strategy="cluster", tags=tags("hosts"))
card = {
    "subnet_id": hosts_subnet.id,
    "security_groups": [group.id],
    "delete_on_termination": "true",
    "device_index": 0,
}
template = ec2.LaunchTemplate(
    "unified",
    image_id=ssm.get_parameter(name=PARAMETER).value,
    instance_type="p6-b300.48xlarge",
    key_name=CONFIG.require("key_name"),
    user_data="IyEvYmluL3NoCg==",
    iam_instance_profile={"arn": profile.arn},
    metadata_options={
        "http_endpoint": "enabled",
        "http_tokens": "required",
        "http_put_response_hop_limit": 1,
    },
    block_device_mappings=[
        {
            "device_name": "/dev/xvda",
            "ebs": {
                "volume_type": "gp3",
                "volume_size": 300,
                "iops": 6000,
                "throughput": 500,
                "encrypted": "true",
                "delete_on_termination": "true",
            },
        }
    ],
    network_interfaces=[
        {**card, "network_card_index": 0, "interface_type": "interface"},
        *(
            {**card, "network_card_index": number, "interface_type": "efa-only"}
            for number in range(1, 17)
        ),
    ],
    placement={"group_name": placement.name},
    tag_specifications=[
        {"resource_type": kind, "tags": tags("unified")} for kind in ("volume", "network-interface")
    ],
    update_default_version=True,
    tags=tags("unified"),
)
instances = {
    f"unified-{number}": ec2.Instance(
        f"unified-{number}",
        launch_template={"id": template.id, "version": template.latest_version.apply(str)},
        tags=tags(f"unified-{number}"),
        opts=ResourceOptions(depends_on=[way_out, session_manager], delete_before_replace=True),
    )
    for number in range(NUM_HOSTS)
}
pulumi.export(
    "inventory",
    {name: {"id": each.id, "address": each.private_ip} for name, each in instances.items()},
)
