"""The network of a stack: hosts in a private subnet beside their capacity, and the ways out of it."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions
from pulumi_aws import ec2, vpc

from infra.provision.aws.account import Account, control_subnets, gateway_subnet, host_subnet
from infra.provision.aws.found import FoundSubnet
from infra.provision.aws.zone import Zone
from infra.provision.naming import Tags

# What Session Manager needs: AWS, Systems Manager User Guide, "VPC endpoints".
SESSION_MANAGER_SERVICES = ("ssm", "ssmmessages", "ec2messages")
# Hosts read what others keep in S3: packages, images, weights. What they write stays in their own account, so that
# nothing leaves by a bucket of somebody else. (AWS, "Control access to VPC endpoints using endpoint policies";
# condition keys: IAM User Guide, "AWS global condition context keys".)
_READING = {
    "Effect": "Allow",
    "Principal": "*",
    "Action": ["s3:Get*", "s3:List*"],
    "Resource": "*",
}
_WRITING = {
    "Effect": "Allow",
    "Principal": "*",
    "Action": "s3:*",
    "Resource": "*",
    "Condition": {"StringEquals": {"aws:ResourceAccount": "${aws:PrincipalAccount}"}},
}
EVERYWHERE = "0.0.0.0/0"
ANY_PROTOCOL = "-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """Everything that a network is made from.

    Args:
        subnet: the operator's own for hosts; None to make a network.
        gateway_subnet: the operator's own for load balancers; None for that of hosts.
        outlives_hosts: whether a file system stands in the hosts' subnet that stays in the account: what it
            cannot be without stays, too.
        control_zones: ids of the two zones for the control plane of a cluster; empty without one.
        services: that are reached through interface endpoints.
    """

    account: Account
    zone: Zone
    subnet: FoundSubnet | None
    gateway_subnet: FoundSubnet | None
    outlives_hosts: bool
    tags: Tags
    control_zones: tuple[str, ...] = ()
    services: tuple[str, ...] = SESSION_MANAGER_SERVICES

    @property
    def blocks(self) -> str:
        """The addresses of the network that is made for hosts; of the operator's own, those of the hosts' subnet."""
        return self.subnet.cidr_block if self.subnet else str(self.account.vpc_cidr)


class StackNetwork(pulumi.ComponentResource):
    """VPC, subnets, routes and endpoints, or the operator's own; and the security group of hosts.

    Hosts have no public address; they reach out through a NAT gateway. In a Local Zone the gateway
    and the endpoints stand in the parent zone. `way_out` is what a host's first boot waits for,
    `member_rules` what anything that talks EFA waits for. In a subnet that exists, the way out and
    the endpoints are its owner's. `control_subnet_ids` are those made for a cluster's control plane, private too.
    """

    def __init__(self, name: str, settings: NetworkSettings) -> None:
        # older than the class's name, and part of the URN of every network that stands
        super().__init__("moe-infra:network:ClusterNetwork", name)
        self._tags = settings.tags
        self._child = ResourceOptions(parent=self)
        self._lasting = ResourceOptions(parent=self, retain_on_delete=settings.outlives_hosts)
        self.vpc_id: pulumi.Input[str]
        self.subnet_id: pulumi.Input[str]
        self.gateway_subnet_id: pulumi.Input[str]
        self.way_out: tuple[pulumi.Resource, ...] = ()
        self.control_subnet_ids: tuple[pulumi.Input[str], ...] = ()
        if settings.subnet is None:
            self._make_network(settings)
        else:
            self.vpc_id, self.subnet_id = settings.subnet.vpc_id, settings.subnet.id
            self.gateway_subnet_id = (settings.gateway_subnet or settings.subnet).id
        host_group, self.member_rules = self._host_group(settings.account.ssh_from)
        if settings.subnet is None:
            self._endpoints(settings, host_group)
        self.host_group_id = host_group.id
        self.register_outputs({})

    def _make_network(self, settings: NetworkSettings) -> None:
        account = settings.account
        self._vpc = ec2.Vpc(
            "vpc",
            cidr_block=str(account.vpc_cidr),
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags=self._tags.of("vpc"),
            opts=self._lasting,
        )
        self._hosts, self._gateways = self._subnets(settings)
        self._host_routes = self._route_table("hosts", self._hosts)
        self.way_out = (self._internet(),)
        self.vpc_id = self._vpc.id
        self.subnet_id, self.gateway_subnet_id = self._hosts.id, self._gateways.id
        self.control_subnet_ids = self._control_subnets(settings)

    def _control_subnets(self, settings: NetworkSettings) -> tuple[pulumi.Output[str], ...]:
        """A private subnet in each zone of a cluster's control plane."""
        blocks = control_subnets(settings.account.vpc_cidr)[1:]
        found = []
        for number, (zone_id, block) in enumerate(
            zip(settings.control_zones, blocks, strict=False)
        ):
            name = f"control-{number}"
            subnet = ec2.Subnet(
                name,
                vpc_id=self._vpc.id,
                availability_zone_id=zone_id,
                cidr_block=str(block),
                tags=self._tags.of(name),
                opts=self._child,
            )
            ec2.RouteTableAssociation(
                name, route_table_id=self._host_routes.id, subnet_id=subnet.id, opts=self._child
            )
            found.append(subnet.id)
        return tuple(found)

    def _subnets(self, settings: NetworkSettings) -> tuple[ec2.Subnet, ec2.Subnet]:
        """The subnet of hosts in the zone of the capacity, and the one of gateways."""
        account, zone = settings.account, settings.zone
        upper = gateway_subnet(account.vpc_cidr)
        if settings.control_zones:
            upper = control_subnets(account.vpc_cidr)[0]
        opted_in: list[pulumi.Resource] = []
        if zone.is_local:
            group = ec2.AvailabilityZoneGroup(
                "local-zone", group_name=zone.group, opt_in_status="opted-in", opts=self._child
            )
            opted_in.append(group)
        hosts = ec2.Subnet(
            "hosts",
            vpc_id=self._vpc.id,
            availability_zone_id=zone.zone_id,
            cidr_block=str(host_subnet(account.vpc_cidr)),
            tags=self._tags.of("hosts"),
            opts=ResourceOptions.merge(self._lasting, ResourceOptions(depends_on=opted_in)),
        )
        gateways = ec2.Subnet(
            "gateways",
            vpc_id=self._vpc.id,
            availability_zone_id=zone.gateway_zone_id,
            cidr_block=str(upper),
            tags=self._tags.of("gateways"),
            opts=self._child,
        )
        return hosts, gateways

    def _route_table(self, name: str, subnet: ec2.Subnet) -> ec2.RouteTable:
        table = ec2.RouteTable(
            name, vpc_id=self._vpc.id, tags=self._tags.of(name), opts=self._child
        )
        ec2.RouteTableAssociation(
            name, route_table_id=table.id, subnet_id=subnet.id, opts=self._child
        )
        return table

    def _internet(self) -> ec2.Route:
        """Internet gateway and NAT gateway; returns the default route of hosts."""
        gateway = ec2.InternetGateway(
            "internet", vpc_id=self._vpc.id, tags=self._tags.of("internet"), opts=self._child
        )
        gateway_routes = self._route_table("gateways", self._gateways)
        to_internet = ec2.Route(
            "gateways-to-internet",
            route_table_id=gateway_routes.id,
            destination_cidr_block=EVERYWHERE,
            gateway_id=gateway.id,
            opts=self._child,
        )
        address = ec2.Eip("nat", domain="vpc", tags=self._tags.of("nat"), opts=self._child)
        nat = ec2.NatGateway(
            "nat",
            allocation_id=address.allocation_id,
            subnet_id=self._gateways.id,
            tags=self._tags.of("nat"),
            # an address serves one gateway at a time
            opts=ResourceOptions(parent=self, depends_on=[to_internet], delete_before_replace=True),
        )
        return ec2.Route(
            "hosts-to-internet",
            route_table_id=self._host_routes.id,
            destination_cidr_block=EVERYWHERE,
            nat_gateway_id=nat.id,
            opts=self._child,
        )

    def _host_group(
        self, ssh_from: str | None
    ) -> tuple[ec2.SecurityGroup, tuple[pulumi.Resource, ...]]:
        """The hosts' security group, and the rules that let its members talk.

        EFA and EFA-enabled Lustre want a group whose members may exchange any traffic in both
        directions, by reference to the group itself (AWS, EC2 User Guide, "Get started with EFA").
        """
        group = self._group("hosts", "hosts of one stack", self._lasting)
        to_itself = {"security_group_id": group.id, "referenced_security_group_id": group.id}
        ingress = vpc.SecurityGroupIngressRule(
            "hosts-from-hosts",
            **to_itself,
            ip_protocol=ANY_PROTOCOL,
            tags=self._tags.of("hosts-from-hosts"),
            opts=self._lasting,
        )
        egress = vpc.SecurityGroupEgressRule(
            "hosts-to-hosts",
            **to_itself,
            ip_protocol=ANY_PROTOCOL,
            tags=self._tags.of("hosts-to-hosts"),
            opts=self._lasting,
        )
        vpc.SecurityGroupEgressRule(
            "hosts-to-anywhere",
            security_group_id=group.id,
            cidr_ipv4=EVERYWHERE,
            ip_protocol=ANY_PROTOCOL,
            tags=self._tags.of("hosts-to-anywhere"),
            opts=self._child,
        )
        if ssh_from is not None:
            self._let_in("ssh", group, port=22, source={"cidr_ipv4": ssh_from})
        return group, (ingress, egress)

    def _endpoints(self, settings: NetworkSettings, host_group: ec2.SecurityGroup) -> None:
        """S3 through the routes, other services through interfaces that only hosts may dial."""
        region = settings.account.region
        ec2.VpcEndpoint(
            "s3",
            vpc_id=self._vpc.id,
            service_name=f"com.amazonaws.{region}.s3",
            vpc_endpoint_type="Gateway",
            route_table_ids=[self._host_routes.id],
            policy=json.dumps({"Version": "2012-10-17", "Statement": [_READING, _WRITING]}),
            tags=self._tags.of("s3"),
            opts=self._child,
        )
        if not settings.services:
            return
        group = self._group("endpoints", "interface endpoints of one stack", self._child)
        self._let_in(
            "endpoints",
            group,
            port=443,
            source={"referenced_security_group_id": host_group.id},
        )
        for service in settings.services:
            ec2.VpcEndpoint(
                service,
                vpc_id=self._vpc.id,
                service_name=f"com.amazonaws.{region}.{service}",
                vpc_endpoint_type="Interface",
                subnet_ids=[self._gateways.id],
                security_group_ids=[group.id],
                private_dns_enabled=True,
                tags=self._tags.of(service),
                opts=self._child,
            )

    def _group(self, name: str, description: str, opts: ResourceOptions) -> ec2.SecurityGroup:
        return ec2.SecurityGroup(
            name,
            vpc_id=self.vpc_id,
            description=description,
            tags=self._tags.of(name),
            opts=opts,
        )

    def _let_in(
        self,
        name: str,
        group: ec2.SecurityGroup,
        *,
        port: int,
        source: dict[str, pulumi.Input[str]],
    ) -> vpc.SecurityGroupIngressRule:
        return vpc.SecurityGroupIngressRule(
            f"{name}-in",
            security_group_id=group.id,
            ip_protocol="tcp",
            from_port=port,
            to_port=port,
            tags=self._tags.of(f"{name}-in"),
            opts=self._child,
            **source,
        )
