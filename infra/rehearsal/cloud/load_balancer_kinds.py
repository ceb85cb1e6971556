"""Load balancers of the emulated cloud: balancers, target groups, targets, listeners.

Source: AWS, Elastic Load Balancing API Reference, checked 2026-11-20.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from infra.rehearsal.cloud.kind import Kind, Link, Made, RefusedError, Request, network
from infra.rehearsal.cloud.network_kinds import SECURITY_GROUP, SUBNET, VPC
from infra.rehearsal.cloud.world import ZONES

LOAD_BALANCER = "aws:lb/loadBalancer:LoadBalancer"
TARGET_GROUP = "aws:lb/targetGroup:TargetGroup"
TARGET = "aws:lb/targetGroupAttachment:TargetGroupAttachment"
LISTENER = "aws:lb/listener:Listener"

_NAME = re.compile(r"(?!internal-)[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?")
_PROTOCOLS: Mapping[str, tuple[str, ...]] = {
    "network": ("TCP", "TLS", "UDP", "TCP_UDP"),
    "application": ("HTTP", "HTTPS"),
}
_SHORT = {"network": "net", "application": "app"}
_IDLE_S = (60, 6000)


def _arn(request: Request, noun: str) -> str:
    return f"arn:aws:elasticloadbalancing:{request.region}:{request.account_id}:{noun}"


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        what = f"The name '{name}' is not 1 to 32 letters, digits and inner hyphens."
        raise RefusedError("ValidationError", what)


def _make_load_balancer(request: Request) -> Made:
    name = request.text("name")
    _check_name(name)
    kind = request.text("loadBalancerType") or "application"
    if kind not in _PROTOCOLS:
        raise RefusedError("ValidationError", f"Load balancers of type {kind} are not emulated.")
    identities = request.inputs.get("subnets")
    subnets = [
        found
        for identity in (identities if isinstance(identities, list) else [])
        if (found := request.store.get(SUBNET, str(identity))) is not None
    ]
    zones = {str(each.outputs["availabilityZoneId"]) for each in subnets}
    needed = 2 if kind == "application" else 1
    if len(zones) < needed:
        what = f"At least {needed} subnets in different Availability Zones must be specified."
        raise RefusedError("ValidationError", what)
    if local := [zone for zone in zones if ZONES[zone].type == "local-zone"]:
        what = f"{kind} load balancers are not offered in {local[0]}."
        raise RefusedError("InvalidSubnet", what)
    arn = _arn(request, f"loadbalancer/{_SHORT[kind]}/{name}/{request.digits[:16]}")
    return Made(
        id=arn,
        computed={
            "arn": arn,
            "arnSuffix": arn.partition("loadbalancer/")[2],
            "dnsName": f"{name}-{request.digits[:8]}.elb.{request.region}.amazonaws.com",
            "vpcId": subnets[0].inputs.get("vpcId"),
            "zoneId": "Z0000000000000",
        },
    )


def _make_target_group(request: Request) -> Made:
    name = request.text("name")
    _check_name(name)
    arn = _arn(request, f"targetgroup/{name}/{request.digits[:16]}")
    return Made(id=arn, computed={"arn": arn, "arnSuffix": arn.rpartition(":")[2]})


def _make_target(request: Request) -> Made:
    group = request.linked(TARGET_GROUP, "targetGroupArn")
    target = request.text("targetId")
    if group is not None and group.inputs.get("targetType") == "ip":
        try:
            address = ipaddress.IPv4Address(target)
        except ValueError as error:
            raise RefusedError("InvalidTarget", f"'{target}' is not an address.") from error
        vpc = request.store.get(VPC, str(group.inputs.get("vpcId")))
        block = network(str(vpc.inputs["cidrBlock"]) if vpc else "0.0.0.0/0", "InvalidTarget")
        if address not in block:
            what = f"{address} is outside the network of the target group; availabilityZone must be 'all'."
            raise RefusedError("InvalidTarget", what)
    return Made(id=f"{request.text('targetGroupArn')}-{request.digits}", computed={})


def _check_certificate(request: Request, protocol: str) -> None:
    """Elastic Load Balancing API, CreateListener: a secure listener has a certificate, others have none."""
    arn, policy = request.text("certificateArn"), request.text("sslPolicy")
    if protocol not in ("TLS", "HTTPS"):
        if arn or policy:
            what = f"A certificate cannot be specified for {protocol} listeners"
            raise RefusedError("InvalidConfigurationRequest", what)
        return
    if not arn:
        what = f"A certificate must be specified for {protocol} listeners"
        raise RefusedError("ValidationError", what)
    if arn not in request.store.account.certificates:
        raise RefusedError("CertificateNotFound", f"Certificate ARN '{arn}' is not valid")


def _make_listener(request: Request) -> Made:
    balancer = request.linked(LOAD_BALANCER, "loadBalancerArn")
    kind = str(balancer.inputs.get("loadBalancerType") or "application") if balancer else "network"
    protocol, port = request.text("protocol"), request.text("port")
    if protocol not in _PROTOCOLS[kind]:
        what = f"Protocol {protocol} is not one of a {kind} load balancer: {', '.join(_PROTOCOLS[kind])}."
        raise RefusedError("ValidationError", what)
    for other in request.others(LISTENER):
        keys = ("loadBalancerArn", "port")
        if [str(other.inputs.get(key)) for key in keys] == [request.text(key) for key in keys]:
            raise RefusedError("DuplicateListener", f"A listener on port {port} exists already.")
    _check_certificate(request, protocol)
    idle = request.inputs.get("tcpIdleTimeoutSeconds")
    if idle is not None and (protocol != "TCP" or not _IDLE_S[0] <= int(str(idle)) <= _IDLE_S[1]):
        what = f"tcp.idle_timeout.seconds is for TCP listeners of network load balancers, {_IDLE_S[0]} to {_IDLE_S[1]}."
        raise RefusedError("ValidationError", what)
    arn = f"{request.text('loadBalancerArn').replace(':loadbalancer/', ':listener/')}/{request.digits[:16]}"
    return Made(id=arn, computed={"arn": arn})


KINDS: Mapping[str, Kind] = {
    LOAD_BALANCER: Kind(
        noun="ELBv2 Load Balancer",
        make=_make_load_balancer,
        auto_name="name",
        links=(
            Link(path="subnets[]", token=SUBNET, code="SubnetNotFound"),
            Link(path="securityGroups[]", token=SECURITY_GROUP, code="InvalidSecurityGroup"),
        ),
    ),
    TARGET_GROUP: Kind(
        noun="ELBv2 Target Group",
        make=_make_target_group,
        auto_name="name",
        links=(Link(path="vpcId", token=VPC, code="ValidationError"),),
    ),
    TARGET: Kind(
        noun="ELBv2 Target Group Attachment",
        make=_make_target,
        links=(Link(path="targetGroupArn", token=TARGET_GROUP, code="TargetGroupNotFound"),),
    ),
    LISTENER: Kind(
        noun="ELBv2 Listener",
        make=_make_listener,
        links=(
            Link(path="loadBalancerArn", token=LOAD_BALANCER, code="LoadBalancerNotFound"),
            Link(
                path="defaultActions[].targetGroupArn",
                token=TARGET_GROUP,
                code="TargetGroupNotFound",
            ),
        ),
    ),
}
