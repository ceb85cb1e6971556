"""How clients reach the router: a load balancer of the stack's own, or a listener on one that exists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pulumi
from pulumi import ResourceOptions
from pulumi_aws import ec2, lb, vpc

from infra.engines.serving import HEALTH
from infra.provision.aws.found import FoundLoadBalancer
from infra.provision.aws.stack_network import ANY_PROTOCOL, StackNetwork
from infra.provision.naming import Tags

# A long answer is silent while its prompt is read; a network load balancer forgets a connection after 350 s of
# silence unless it is told otherwise (AWS, Network Load Balancers, "Connection idle timeout": 60 to 6000 s).
IDLE_TIMEOUT_S = 3600
_PROTOCOLS: Mapping[str, str] = {"network": "TCP", "application": "HTTP"}
_TLS: Mapping[str, str] = {"network": "TLS", "application": "HTTPS"}
# TLS 1.2 and 1.3 (AWS, "Security policies for your Network Load Balancer"; application load balancers have it, too).
_TLS_POLICY = "ELBSecurityPolicy-TLS13-1-2-2021-06"


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressSettings:
    """Everything that an ingress is made from.

    Args:
        port: the one that clients use, at the load balancer and at the router.
        clients: block that may dial a load balancer of the stack's own.
        existing: the load balancer to use; None to make one.
        scheme: what clients speak; https without a certificate with a network load balancer alone
            (`load_balancer_problems`).
        certificate_arn: by which the load balancer ends TLS; None where it passes bytes on.
        name: that clients call; None for the load balancer's own.
        has_edge: whether a key is asked for there, on every path.
    """

    port: int
    clients: str
    existing: FoundLoadBalancer | None
    tags: Tags
    scheme: Literal["http", "https"]
    certificate_arn: str | None
    name: str | None
    has_edge: bool


class Ingress(pulumi.ComponentResource):
    """A listener that passes clients on to the router's host; `url` is what they call.

    The target is an address and not an instance: the load balancer may stand in the parent zone of a Local Zone.
    """

    def __init__(
        self,
        name: str,
        settings: IngressSettings,
        network: StackNetwork,
        router: ec2.Instance,
    ) -> None:
        super().__init__("moe-infra:ingress:Ingress", name)
        self._settings, self._network = settings, network
        self._child = ResourceOptions(parent=self)
        arn: pulumi.Input[str]
        dns_name: pulumi.Input[str]
        if settings.existing is None:
            balancer = self._load_balancer()
            arn, dns_name, kind = balancer.arn, balancer.dns_name, "network"
        else:
            found = settings.existing
            arn, dns_name, kind = found.arn, found.dns_name, found.type
            for number, group in enumerate(found.security_groups):
                self._let_in(f"router-from-{number}", network.host_group_id, group=group)
        self._listener(arn, kind, router)
        called = settings.name or dns_name
        self.url = pulumi.Output.concat(f"{settings.scheme}://", called, f":{settings.port}")
        self.register_outputs({})

    def _load_balancer(self) -> lb.LoadBalancer:
        """An internal one; its group lets clients in, and hosts let its group in."""
        tags, network = self._settings.tags, self._network
        group = ec2.SecurityGroup(
            "clients",
            vpc_id=network.vpc_id,
            description="load balancer of one stack",
            tags=tags.of("clients"),
            opts=self._child,
        )
        self._let_in("clients", group.id, block=self._settings.clients)
        self._let_in("router", network.host_group_id, group=group.id)
        vpc.SecurityGroupEgressRule(
            "clients-to-hosts",
            security_group_id=group.id,
            referenced_security_group_id=network.host_group_id,
            ip_protocol=ANY_PROTOCOL,
            tags=tags.of("clients-to-hosts"),
            opts=self._child,
        )
        return lb.LoadBalancer(
            "router",
            internal=True,
            load_balancer_type="network",
            subnets=[network.gateway_subnet_id],
            security_groups=[group.id],
            enable_cross_zone_load_balancing=True,
            tags=tags.of("router"),
            opts=self._child,
        )

    def _listener(self, arn: pulumi.Input[str], kind: str, router: ec2.Instance) -> None:
        settings, protocol = self._settings, _PROTOCOLS[kind]
        has_tls = settings.certificate_arn is not None
        targets = lb.TargetGroup(
            "router",
            vpc_id=self._network.vpc_id,
            target_type="ip",
            port=settings.port,
            protocol=protocol,
            health_check=self._health_check(kind),
            tags=settings.tags.of("router"),
            opts=self._child,
        )
        lb.TargetGroupAttachment(
            "router",
            target_group_arn=targets.arn,
            target_id=router.private_ip,
            port=settings.port,
            opts=self._child,
        )
        lb.Listener(
            "router",
            load_balancer_arn=arn,
            port=settings.port,
            protocol=_TLS[kind] if has_tls else protocol,
            certificate_arn=settings.certificate_arn,
            ssl_policy=_TLS_POLICY if has_tls else None,
            default_actions=[{"type": "forward", "target_group_arn": targets.arn}],
            # where it ends TLS, a network load balancer forgets after 350 s whatever it is told
            tcp_idle_timeout_seconds=IDLE_TIMEOUT_S if kind == "network" and not has_tls else None,
            tags=settings.tags.of("router"),
            opts=self._child,
        )

    def _health_check(self, kind: str) -> dict[str, str]:
        """What says that the target serves. An edge answers 401 to whoever has no key, as a load balancer has none.

        A network load balancer takes no such answer for good (elbv2, target group health checks: 200-399).
        """
        settings, port = self._settings, {"port": str(self._settings.port)}
        if not settings.has_edge:
            return {"protocol": "HTTP", "path": HEALTH, **port}
        if kind == "network":
            return {"protocol": "TCP", **port}
        return {"protocol": "HTTP", "path": HEALTH, "matcher": "401", **port}

    def _let_in(
        self,
        name: str,
        into: pulumi.Input[str],
        *,
        group: pulumi.Input[str] | None = None,
        block: str | None = None,
    ) -> None:
        """Let a group, or a block of addresses, dial the port."""
        port = self._settings.port
        vpc.SecurityGroupIngressRule(
            f"{name}-in",
            security_group_id=into,
            referenced_security_group_id=group,
            cidr_ipv4=block,
            ip_protocol="tcp",
            from_port=port,
            to_port=port,
            tags=self._settings.tags.of(f"{name}-in"),
            opts=self._child,
        )
