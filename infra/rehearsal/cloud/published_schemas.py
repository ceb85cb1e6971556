"""What AWS's own CloudFormation schemas say: which values a property takes.

`cloudformation.json` holds what concerns the emulated types, as cfn-lint carries it; `scripts/dump-cloudformation`
writes it. A type of pulumi-aws and one of CloudFormation are the same thing of the same API under names that differ
in the case of their first letter, and otherwise as `TYPES` says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("cloudformation.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class SameThing:
    """The CloudFormation type of a resource type.

    Args:
        name: e.g. `AWS::EC2::VPC`.
        section: property in which CloudFormation keeps the others, empty for none.
        renamed: pulumi-aws's name by CloudFormation's, where these differ in more than case.
    """

    name: str
    section: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)


_RULE = {
    "GroupId": "securityGroupId",
    "CidrIp": "cidrIpv4",
    "SourceSecurityGroupId": "referencedSecurityGroupId",
    "DestinationSecurityGroupId": "referencedSecurityGroupId",
    "SourcePrefixListId": "prefixListId",
    "DestinationPrefixListId": "prefixListId",
}
TYPES: Mapping[str, SameThing] = {
    "aws:ec2/vpc:Vpc": SameThing(name="AWS::EC2::VPC"),
    "aws:ec2/subnet:Subnet": SameThing(name="AWS::EC2::Subnet"),
    "aws:ec2/internetGateway:InternetGateway": SameThing(name="AWS::EC2::InternetGateway"),
    "aws:ec2/routeTable:RouteTable": SameThing(name="AWS::EC2::RouteTable"),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": SameThing(
        name="AWS::EC2::SubnetRouteTableAssociation"
    ),
    "aws:ec2/route:Route": SameThing(name="AWS::EC2::Route"),
    "aws:ec2/eip:Eip": SameThing(name="AWS::EC2::EIP"),
    "aws:ec2/natGateway:NatGateway": SameThing(
        name="AWS::EC2::NatGateway", renamed={"PrivateIpAddress": "privateIp"}
    ),
    "aws:ec2/securityGroup:SecurityGroup": SameThing(
        name="AWS::EC2::SecurityGroup",
        renamed={"GroupDescription": "description", "GroupName": "name"},
    ),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": SameThing(
        name="AWS::EC2::SecurityGroupIngress", renamed=_RULE
    ),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": SameThing(
        name="AWS::EC2::SecurityGroupEgress", renamed=_RULE
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": SameThing(name="AWS::EC2::VPCEndpoint"),
    "aws:ec2/placementGroup:PlacementGroup": SameThing(name="AWS::EC2::PlacementGroup"),
    "aws:ec2/launchTemplate:LaunchTemplate": SameThing(
        name="AWS::EC2::LaunchTemplate",
        section="LaunchTemplateData",
        renamed={"LaunchTemplateName": "name"},
    ),
    "aws:ec2/instance:Instance": SameThing(
        name="AWS::EC2::Instance",
        renamed={
            "ImageId": "ami",
            "PlacementGroupName": "placementGroup",
            "PrivateIpAddress": "privateIp",
        },
    ),
    "aws:iam/role:Role": SameThing(name="AWS::IAM::Role", renamed={"RoleName": "name"}),
    "aws:iam/rolePolicy:RolePolicy": SameThing(
        name="AWS::IAM::RolePolicy", renamed={"PolicyName": "name", "RoleName": "role"}
    ),
    "aws:iam/instanceProfile:InstanceProfile": SameThing(
        name="AWS::IAM::InstanceProfile", renamed={"InstanceProfileName": "name"}
    ),
    "aws:s3/bucket:Bucket": SameThing(name="AWS::S3::Bucket", renamed={"BucketName": "bucket"}),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": SameThing(
        name="AWS::S3::Bucket",
        section="PublicAccessBlockConfiguration",
        renamed={"BucketName": "bucket"},
    ),
    "aws:s3/bucketPolicy:BucketPolicy": SameThing(
        name="AWS::S3::BucketPolicy", renamed={"PolicyDocument": "policy"}
    ),
    "aws:fsx/lustreFileSystem:LustreFileSystem": SameThing(
        name="AWS::FSx::FileSystem", section="LustreConfiguration"
    ),
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": SameThing(
        name="AWS::FSx::DataRepositoryAssociation"
    ),
    "aws:efs/fileSystem:FileSystem": SameThing(name="AWS::EFS::FileSystem"),
    "aws:efs/mountTarget:MountTarget": SameThing(name="AWS::EFS::MountTarget"),
    "aws:lb/loadBalancer:LoadBalancer": SameThing(
        name="AWS::ElasticLoadBalancingV2::LoadBalancer",
        renamed={"Type": "loadBalancerType", "Scheme": "internal"},
    ),
    "aws:lb/targetGroup:TargetGroup": SameThing(name="AWS::ElasticLoadBalancingV2::TargetGroup"),
    "aws:lb/listener:Listener": SameThing(name="AWS::ElasticLoadBalancingV2::Listener"),
    "aws:kms/key:Key": SameThing(
        name="AWS::KMS::Key",
        renamed={"KeySpec": "customerMasterKeySpec", "PendingWindowInDays": "deletionWindowInDays"},
    ),
    "aws:eks/cluster:Cluster": SameThing(
        name="AWS::EKS::Cluster", renamed={"ResourcesVpcConfig": "vpcConfig"}
    ),
    "aws:eks/nodeGroup:NodeGroup": SameThing(
        name="AWS::EKS::Nodegroup", renamed={"NodeRole": "nodeRoleArn", "Subnets": "subnetIds"}
    ),
    "aws:eks/addon:Addon": SameThing(name="AWS::EKS::Addon"),
    "aws:eks/accessEntry:AccessEntry": SameThing(
        name="AWS::EKS::AccessEntry", renamed={"Username": "userName"}
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": SameThing(
        name="AWS::EKS::PodIdentityAssociation"
    ),
}


def published_values(token: str) -> Mapping[str, Mapping[str, object]]:
    """By property path: type, words, lengths, limits or pattern of its values."""
    values = _schemas().get(token, {}).get("values", {})
    return values if isinstance(values, Mapping) else {}


@cache
def _schemas() -> Mapping[str, Mapping[str, object]]:
    schemas: Mapping[str, Mapping[str, object]] = json.loads(FILE.read_text(encoding="utf-8"))[
        "types"
    ]
    return schemas
