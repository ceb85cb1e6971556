"""Networks of the emulated cloud: VPC, subnets, routes, gateways, security groups."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from infra.rehearsal.cloud.kind import Kind, Link, Made, RefusedError, Request, network
from infra.rehearsal.cloud.store import digits
from infra.rehearsal.cloud.world import ZONES

VPC = "aws:ec2/vpc:Vpc"
SUBNET = "aws:ec2/subnet:Subnet"
ZONE_GROUP = "aws:ec2/availabilityZoneGroup:AvailabilityZoneGroup"
INTERNET_GATEWAY = "aws:ec2/internetGateway:InternetGateway"
ROUTE_TABLE = "aws:ec2/routeTable:RouteTable"
ASSOCIATION = "aws:ec2/routeTableAssociation:RouteTableAssociation"
ROUTE = "aws:ec2/route:Route"
ADDRESS = "aws:ec2/eip:Eip"
NAT_GATEWAY = "aws:ec2/natGateway:NatGateway"
SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"
INGRESS_RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS_RULE = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"

IN_VPC = Link(path="vpcId", token=VPC, code="InvalidVpcID.NotFound")
_LARGEST_PREFIX, _SMALLEST_PREFIX = (
    16,
    28,
)  # of VPCs and subnets: AWS, VPC User Guide, "VPC CIDR blocks"


def ec2_arn(request: Request, noun: str, identity: str) -> str:
    """The ARN of an EC2 resource."""
    return f"arn:aws:ec2:{request.region}:{request.account_id}:{noun}/{identity}"


def _block(request: Request, code: str) -> ipaddress.IPv4Network:
    block = network(request.text("cidrBlock"), code)
    if not _LARGEST_PREFIX <= block.prefixlen <= _SMALLEST_PREFIX:
        raise RefusedError(
            code, f"The CIDR '{block}' is invalid: a block of /16 to /28 is required."
        )
    return block


def _make_vpc(request: Request) -> Made:
    _block(request, "InvalidVpc.Range")
    identity = f"vpc-{request.digits}"
    return Made(
        id=identity,
        computed={
            "arn": ec2_arn(request, "vpc", identity),
            "ownerId": request.account_id,
            "mainRouteTableId": f"rtb-{digits(identity + 'main')}",
            "defaultRouteTableId": f"rtb-{digits(identity + 'main')}",
            "defaultSecurityGroupId": f"sg-{digits(identity + 'default')}",
            "defaultNetworkAclId": f"acl-{digits(identity)}",
            "dhcpOptionsId": f"dopt-{digits(identity)}",
            "instanceTenancy": request.text("instanceTenancy") or "default",
        },
    )


def _make_subnet(request: Request) -> Made:
    block = _block(request, "InvalidSubnet.Range")
    vpc = request.linked(VPC, "vpcId")
    if vpc is not None and not block.subnet_of(
        network(str(vpc.inputs["cidrBlock"]), "InvalidVpc.Range")
    ):
        raise RefusedError(
            "InvalidSubnet.Range", f"The CIDR '{block}' is invalid: not within the VPC."
        )
    for other in request.others(SUBNET):
        taken = network(str(other.inputs["cidrBlock"]), "InvalidSubnet.Range")
        if other.inputs.get("vpcId") == request.text("vpcId") and block.overlaps(taken):
            raise RefusedError(
                "InvalidSubnet.Conflict", f"The CIDR '{block}' conflicts with another subnet."
            )
    zone = ZONES.get(request.text("availabilityZoneId"))
    if zone is None or zone.region != request.region:
        what = f"Value ({request.text('availabilityZoneId')}) for parameter availabilityZoneId is invalid."
        raise RefusedError(
            "InvalidParameterValue", f"{what} Subnets can be created in zones of {request.region}."
        )
    if zone.type == "local-zone" and request.store.get(ZONE_GROUP, zone.group) is None:
        raise RefusedError(
            "InvalidParameterValue", f"The zone {zone.name} is not opted in: {zone.group}."
        )
    identity = f"subnet-{request.digits}"
    return Made(
        id=identity,
        computed={
            "arn": ec2_arn(request, "subnet", identity),
            "ownerId": request.account_id,
            "availabilityZone": zone.name,
            "availabilityZoneId": zone.zone_id,
        },
    )


def _make_zone_group(request: Request) -> Made:
    group = request.text("groupName")
    if group not in {zone.group for zone in ZONES.values()}:
        raise RefusedError("InvalidParameterValue", f"Invalid availability zone group: {group}.")
    return Made(id=group, computed={})


def _make_internet_gateway(request: Request) -> Made:
    vpc = request.text("vpcId")
    if any(other.inputs.get("vpcId") == vpc for other in request.others(INTERNET_GATEWAY)):
        raise RefusedError("Resource.AlreadyAssociated", f"{vpc} has an internet gateway already.")
    identity = f"igw-{request.digits}"
    arn = ec2_arn(request, "internet-gateway", identity)
    return Made(id=identity, computed={"arn": arn, "ownerId": request.account_id})


def _make_route_table(request: Request) -> Made:
    identity = f"rtb-{request.digits}"
    arn = ec2_arn(request, "route-table", identity)
    return Made(id=identity, computed={"arn": arn, "ownerId": request.account_id})


def _check_same_network(request: Request, *ends: tuple[str, str]) -> None:
    """What two properties name is of one VPC; what is not named is passed over."""
    found = [each for token, path in ends if (each := request.linked(token, path)) is not None]
    if len({each.inputs.get("vpcId") for each in found}) > 1:
        what = " and ".join(each.id for each in found)
        raise RefusedError("InvalidParameterValue", f"{what} belong to different networks")


def _make_association(request: Request) -> Made:
    subnet = request.text("subnetId")
    if any(other.inputs.get("subnetId") == subnet for other in request.others(ASSOCIATION)):
        raise RefusedError(
            "Resource.AlreadyAssociated", f"{subnet} is associated with a route table already."
        )
    _check_same_network(request, (ROUTE_TABLE, "routeTableId"), (SUBNET, "subnetId"))
    return Made(id=f"rtbassoc-{request.digits}", computed={})


_TARGETS = (
    "gatewayId",
    "natGatewayId",
    "networkInterfaceId",
    "transitGatewayId",
    "vpcPeeringConnectionId",
)


def _make_route(request: Request) -> Made:
    table, destination = request.text("routeTableId"), request.text("destinationCidrBlock")
    if sum(bool(request.text(target)) for target in _TARGETS) != 1:
        raise RefusedError("InvalidParameterCombination", "A route has exactly one target.")
    for other in request.others(ROUTE):
        if (other.inputs.get("routeTableId"), other.inputs.get("destinationCidrBlock")) == (
            table,
            destination,
        ):
            raise RefusedError(
                "RouteAlreadyExists", f"{table} has a route to {destination} already."
            )
    _check_same_network(request, (ROUTE_TABLE, "routeTableId"), (INTERNET_GATEWAY, "gatewayId"))
    return Made(
        id=f"r-{table}{digits(destination)[:10]}",
        computed={"state": "active", "origin": "CreateRoute"},
    )


def _make_address(request: Request) -> Made:
    identity = f"eipalloc-{request.digits}"
    public = ipaddress.IPv4Address("203.0.113.0") + 1 + int(request.digits, 16) % 254
    return Made(
        id=identity,
        computed={
            "allocationId": identity,
            "arn": ec2_arn(request, "elastic-ip", identity),
            "publicIp": str(public),
        },
    )


def _make_nat_gateway(request: Request) -> Made:
    subnet = request.linked(SUBNET, "subnetId")
    vpc = subnet.inputs.get("vpcId") if subnet else None
    if not any(each.inputs.get("vpcId") == vpc for each in request.others(INTERNET_GATEWAY)):
        raise RefusedError(
            "Gateway.NotAttached", f"Network {vpc} has no Internet gateway attached."
        )
    if subnet is not None and ZONES[str(subnet.outputs["availabilityZoneId"])].type == "local-zone":
        raise RefusedError(
            "InvalidParameterValue", "NAT gateways are not offered in this Local Zone."
        )
    address = request.text("allocationId")
    if any(other.inputs.get("allocationId") == address for other in request.others(NAT_GATEWAY)):
        raise RefusedError("Resource.AlreadyAssociated", f"{address} is in use.")
    identity = f"nat-{request.digits}"
    computed = {
        "connectivityType": request.text("connectivityType") or "public",
        "associationId": f"eipassoc-{digits(identity + 'association')}",
        "networkInterfaceId": f"eni-{digits(identity)}",
    }
    return Made(id=identity, computed=computed)


def _make_security_group(request: Request) -> Made:
    name, vpc = request.text("name"), request.text("vpcId")
    for other in request.others(SECURITY_GROUP):
        if (other.inputs.get("name"), other.inputs.get("vpcId")) == (name, vpc):
            raise RefusedError(
                "InvalidGroup.Duplicate",
                f"The security group '{name}' already exists for VPC '{vpc}'.",
            )
    identity = f"sg-{request.digits}"
    arn = ec2_arn(request, "security-group", identity)
    return Made(id=identity, computed={"arn": arn, "ownerId": request.account_id})


_SOURCES = ("cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId")


def _make_rule(request: Request, token: str) -> Made:
    if sum(bool(request.text(source)) for source in _SOURCES) != 1:
        raise RefusedError(
            "InvalidParameterCombination", f"Exactly one of {', '.join(_SOURCES)} is required."
        )
    if request.text("ipProtocol") != "-1" and not (
        request.text("fromPort") and request.text("toPort")
    ):
        raise RefusedError(
            "InvalidParameterValue", "fromPort and toPort are required for this protocol."
        )
    groups = ("securityGroupId", "referencedSecurityGroupId")
    _check_same_network(request, *((SECURITY_GROUP, path) for path in groups))
    keys = ("securityGroupId", "ipProtocol", "fromPort", "toPort", *_SOURCES)
    own = [request.text(key) for key in keys]
    for other in request.others(token):
        if [str(other.inputs.get(key) or "") for key in keys] == own:
            raise RefusedError("InvalidPermission.Duplicate", "the specified rule already exists")
    identity = f"sgr-{request.digits}"
    arn = ec2_arn(request, "security-group-rule", identity)
    return Made(id=identity, computed={"arn": arn, "securityGroupRuleId": identity})


_RULE_LINKS = tuple(
    Link(path=path, token=SECURITY_GROUP, code="InvalidGroup.NotFound")
    for path in ("securityGroupId", "referencedSecurityGroupId")
)

KINDS: Mapping[str, Kind] = {
    VPC: Kind(
        noun="EC2 VPC",
        make=_make_vpc,
    ),
    SUBNET: Kind(
        noun="EC2 Subnet",
        make=_make_subnet,
        links=(IN_VPC,),
    ),
    ZONE_GROUP: Kind(
        noun="EC2 Availability Zone Group",
        make=_make_zone_group,
    ),
    INTERNET_GATEWAY: Kind(
        noun="EC2 Internet Gateway", make=_make_internet_gateway, links=(IN_VPC,)
    ),
    ROUTE_TABLE: Kind(
        noun="EC2 Route Table",
        make=_make_route_table,
        links=(IN_VPC,),
    ),
    ASSOCIATION: Kind(
        noun="EC2 Route Table Association",
        make=_make_association,
        links=(
            Link(path="routeTableId", token=ROUTE_TABLE, code="InvalidRouteTableID.NotFound"),
            Link(path="subnetId", token=SUBNET, code="InvalidSubnetID.NotFound"),
        ),
    ),
    ROUTE: Kind(
        noun="EC2 Route",
        make=_make_route,
        links=(
            Link(path="routeTableId", token=ROUTE_TABLE, code="InvalidRouteTableID.NotFound"),
            Link(path="gatewayId", token=INTERNET_GATEWAY, code="InvalidGatewayID.NotFound"),
            Link(
                path="natGatewayId",
                token=NAT_GATEWAY,
                code="InvalidNatGatewayID.NotFound",
                holds=False,  # its routes stay, as black holes (VPC User Guide, "Work with NAT gateways")
            ),
        ),
    ),
    ADDRESS: Kind(
        noun="EC2 EIP",
        make=_make_address,
    ),
    NAT_GATEWAY: Kind(
        noun="EC2 NAT Gateway",
        make=_make_nat_gateway,
        links=(
            Link(path="allocationId", token=ADDRESS, code="InvalidAllocationID.NotFound"),
            Link(path="subnetId", token=SUBNET, code="InvalidSubnetID.NotFound"),
        ),
    ),
    SECURITY_GROUP: Kind(
        noun="EC2 Security Group",
        make=_make_security_group,
        auto_name="name",
        links=(IN_VPC,),
    ),
    INGRESS_RULE: Kind(
        noun="VPC Security Group Rule",
        make=lambda request: _make_rule(request, INGRESS_RULE),
        links=_RULE_LINKS,
    ),
    EGRESS_RULE: Kind(
        noun="VPC Security Group Rule",
        make=lambda request: _make_rule(request, EGRESS_RULE),
        links=_RULE_LINKS,
    ),
}
