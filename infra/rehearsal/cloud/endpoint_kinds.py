"""Endpoints of the emulated cloud: services that a network reaches without the internet.

Refusals follow AWS PrivateLink, "Access an AWS service using an interface VPC endpoint"; one in a zone:
terraform-aws-modules/terraform-aws-vpc#583; of policies: EC2 API, "Error codes" (InvalidPolicyDocument).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.rehearsal.cloud.identity_kinds import check_resource_policy
from infra.rehearsal.cloud.kind import Kind, Link, Made, RefusedError, Request
from infra.rehearsal.cloud.network_kinds import (
    IN_VPC,
    ROUTE_TABLE,
    SECURITY_GROUP,
    SUBNET,
    VPC,
    ec2_arn,
)
from infra.rehearsal.cloud.world import GATEWAY_SERVICES, INTERFACE_SERVICES, ZONES

ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"


def _make_endpoint(request: Request) -> Made:
    kind = request.text("vpcEndpointType") or "Gateway"
    service = request.text("serviceName").removeprefix(f"com.amazonaws.{request.region}.")
    if service not in (GATEWAY_SERVICES if kind == "Gateway" else INTERFACE_SERVICES):
        what = f"The Vpc Endpoint Service '{request.text('serviceName')}' does not exist"
        raise RefusedError("InvalidServiceName", f"{what} as {kind} in {request.region}.")
    subnets = request.inputs.get("subnetIds")
    if kind == "Interface" and not subnets:
        raise RefusedError("InvalidParameter", "An interface endpoint needs subnetIds.")
    if kind == "Gateway" and subnets:
        raise RefusedError(
            "InvalidParameter", "A gateway endpoint takes routeTableIds, not subnetIds."
        )
    _check_zones(request, subnets if isinstance(subnets, list) else [], service)
    if request.inputs.get("privateDnsEnabled") is True:
        _check_private_names(request)
    if request.text("policy"):
        check_resource_policy(request.text("policy"), "InvalidPolicyDocument")
    identity = f"vpce-{request.digits}"
    return Made(
        id=identity,
        computed={
            "arn": ec2_arn(request, "vpc-endpoint", identity),
            "ownerId": request.account_id,
            "state": "available",
            "vpcEndpointType": kind,
        },
    )


def _check_zones(request: Request, subnets: Sequence[object], service: str) -> None:
    """An endpoint stands once in a zone, and in no Local Zone."""
    taken: set[object] = set()
    for subnet in subnets:
        found = request.store.get(SUBNET, str(subnet))
        zone_id = str(found.outputs["availabilityZoneId"]) if found is not None else ""
        if zone_id and ZONES[zone_id].type == "local-zone":
            raise RefusedError(
                "InvalidParameter", f"{service} is not offered in the zone of {subnet}."
            )
        if zone_id in taken:
            what = f"Found another VPC endpoint subnet in the availability zone of {subnet}."
            raise RefusedError("DuplicateSubnetsInSameZone", what)
        taken.add(zone_id)


def _check_private_names(request: Request) -> None:
    """Names of a service's own lead to its endpoint where the network answers names, and to one alone."""
    vpc = request.linked(VPC, "vpcId")
    attributes = {"enableDnsSupport": True, "enableDnsHostnames": False}  # and what they are unset
    if vpc is not None and not all(vpc.inputs.get(k, v) is True for k, v in attributes.items()):
        what = "Enabling private DNS requires both enableDnsSupport and enableDnsHostnames VPC attributes set to true"
        raise RefusedError("InvalidParameter", f"{what} for {vpc.id}")
    for other in request.others(ENDPOINT):
        if other.inputs.get("privateDnsEnabled") is True and all(
            other.inputs.get(key) == request.text(key) for key in ("vpcId", "serviceName")
        ):
            what = "private-dns-enabled cannot be set because there is already a conflicting DNS domain"
            raise RefusedError("InvalidParameter", f"{what} in the VPC {request.text('vpcId')}")


KINDS: Mapping[str, Kind] = {
    ENDPOINT: Kind(
        noun="EC2 VPC Endpoint",
        make=_make_endpoint,
        links=(
            IN_VPC,
            Link(path="routeTableIds[]", token=ROUTE_TABLE, code="InvalidRouteTableId.NotFound"),
            Link(path="subnetIds[]", token=SUBNET, code="InvalidSubnetId.NotFound"),
            Link(
                path="securityGroupIds[]",
                token=SECURITY_GROUP,
                code="InvalidSecurityGroupId.NotFound",
            ),
        ),
    ),
}
