from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.errors import ProblemsFound
from infra.provision.aws.account import read_account
from infra.provision.aws.found import certificate_problems
from infra.provision.aws.ingress import IDLE_TIMEOUT_S
from infra.rehearsal.cloud.store import Resource, Store
from tests.provision.belongings import own_stack, their_balancer, their_network
from tests.provision.test_account import DEMAND, GOOD

Record = Callable[..., Any]
BALANCED = {"ingress": "internal-load-balancer"}


def test_an_internal_load_balancer_passes_clients_on_to_the_router_alone(
    record: Record, tmp_path: Path
) -> None:
    recorded = record("mine", root=own_stack(tmp_path, "h200-2n-tp16", **BALANCED))
    (balancer,) = recorded.of_type("LoadBalancer").values()
    assert (balancer["internal"], balancer["loadBalancerType"]) == (True, "network")
    (target,) = recorded.of_type("TargetGroupAttachment").values()
    hosts = {host["name"]: host["address"] for host in recorded.inventory["hosts"]}
    assert target["targetId"] == hosts[recorded.inventory["router"]["host"]]
    (listener,) = recorded.of_type("Listener").values()
    assert (listener["port"], listener["protocol"]) == (8000, "TCP")
    assert listener["tcpIdleTimeoutSeconds"] == IDLE_TIMEOUT_S
    (group,) = recorded.of_type("TargetGroup").values()
    assert group["healthCheck"] == {"path": "/health", "port": "8000", "protocol": "HTTP"}
    assert recorded.inventory["router"]["url"].startswith("http://router-")
    assert recorded.inventory["router"]["url"].endswith(".elb.us-east-1.amazonaws.com:8000")


def test_clients_reach_the_load_balancer_and_it_reaches_the_routers_port(
    record: Record, tmp_path: Path
) -> None:
    root = own_stack(tmp_path, "h200-2n-tp16", **BALANCED)
    rules = record("mine", root=root).of_type("SecurityGroupIngressRule")
    assert (rules["clients-in"]["cidrIpv4"], rules["clients-in"]["fromPort"]) == (
        "10.64.0.0/16",
        8000,
    )
    router = rules["router-in"]
    assert (router["fromPort"], router["toPort"]) == (8000, 8000)
    assert router["referencedSecurityGroupId"] == rules["clients-in"]["securityGroupId"]
    assert router["securityGroupId"] == rules["hosts-from-hosts"]["securityGroupId"]
    named = record("mine", root=root, clients_cidr="10.0.0.0/8")
    assert named.of_type("SecurityGroupIngressRule")["clients-in"]["cidrIpv4"] == "10.0.0.0/8"


def test_beside_a_local_zone_the_load_balancer_stands_in_the_parent_zone(
    record: Record, tmp_path: Path
) -> None:
    recorded = record("mine", root=own_stack(tmp_path, "gb200-2p1d", **BALANCED))
    (balancer,) = recorded.of_type("LoadBalancer").values()
    assert balancer["enableCrossZoneLoadBalancing"] is True
    assert recorded.inventory["router"]["url"].startswith("http://router-")


def test_without_an_ingress_nothing_of_it_is_made(record: Record) -> None:
    assert record("gb200-2p1d").of_type("LoadBalancer") == {}


def test_hosts_are_put_into_a_subnet_that_exists(record: Record) -> None:
    made: list[Resource] = []

    def prepare(store: Store) -> Mapping[str, str]:
        made.extend(their_network(store, region="us-east-2", zones=("use2-az1",)))
        return {"subnet_id": made[0].id}

    recorded = record("h200-tp8", prepare=prepare)
    for kind in ("Vpc", "Subnet", "NatGateway", "VpcEndpoint", "RouteTable"):
        assert recorded.of_type(kind) == {}, kind
    (template,) = recorded.of_type("LaunchTemplate").values()
    assert {each["subnetId"] for each in template["networkInterfaces"]} == {made[0].id}
    (group,) = recorded.of_type("SecurityGroup").values()
    assert group["vpcId"] == made[0].inputs["vpcId"]


@pytest.mark.parametrize(
    ("kind", "protocol", "zones"),
    [("network", "TCP", ("use1-az1",)), ("application", "HTTP", ("use1-az1", "use1-az2"))],
)
def test_a_load_balancer_that_exists_gets_a_listener(
    record: Record, tmp_path: Path, kind: str, protocol: str, zones: tuple[str, ...]
) -> None:
    arns: list[str] = []

    def prepare(store: Store) -> Mapping[str, str]:
        subnets = their_network(store, zones=zones)
        arns.append(their_balancer(store, subnets, loadBalancerType=kind).id)
        root = own_stack(tmp_path / "with", "h200-tp8", ingress={"existing": arns[0]})
        (root / "stacks" / "mine.yaml").replace(tmp_path / "project" / "stacks" / "mine.yaml")
        return {"subnet_id": subnets[0].id}

    recorded = record("mine", root=own_stack(tmp_path, "h200-tp8"), prepare=prepare)
    assert recorded.of_type("LoadBalancer") == {}
    (listener,) = recorded.of_type("Listener").values()
    assert (listener["loadBalancerArn"], listener["protocol"]) == (arns[0], protocol)
    rule = recorded.of_type("SecurityGroupIngressRule")["router-from-0-in"]
    assert rule["fromPort"] == 8000
    assert recorded.inventory["router"]["url"].startswith("http://theirs-")


@pytest.mark.parametrize(
    ("balancer", "is_beside", "said"),
    [
        ({}, False, "hosts are in a network made for them"),
        ({"internal": False}, True, "faces the internet"),
        ({"has_group": False}, True, "has no security group"),
    ],
)
def test_a_load_balancer_that_cannot_be_used_is_refused(
    record: Record, tmp_path: Path, balancer: dict[str, Any], is_beside: bool, said: str
) -> None:
    def prepare(store: Store) -> Mapping[str, str]:
        subnets = their_network(store)
        arn = their_balancer(store, subnets, **balancer).id
        root = own_stack(tmp_path / "with", "h200-tp8", ingress={"existing": arn})
        (root / "stacks" / "mine.yaml").replace(tmp_path / "project" / "stacks" / "mine.yaml")
        return {"subnet_id": subnets[0].id} if is_beside else {}

    with pytest.raises(ProblemsFound, match=said):
        record("mine", root=own_stack(tmp_path, "h200-tp8"), prepare=prepare)


@pytest.mark.parametrize(
    ("kind", "has_tls", "url"),
    [
        ("network", True, "https://theirs-"),
        ("application", False, "http://theirs-"),
        ("application", True, None),
    ],
)
def test_an_application_load_balancer_does_not_stand_before_an_edge_that_speaks_tls(
    record: Record, tmp_path: Path, kind: str, has_tls: bool, url: str | None
) -> None:
    (tmp_path / "clients.keys").write_text(f"a {'k' * 40}\n")
    tls = {"certificate": {"env": "C"}, "key": {"env": "K"}} if has_tls else "none"
    keys = {"file": str(tmp_path / "clients.keys")}
    edge = {"name": "haproxy", "tls": tls, "keys": keys}

    def prepare(store: Store) -> Mapping[str, str]:
        subnets = their_network(store, zones=("use1-az1", "use1-az2"))
        arn = their_balancer(store, subnets, loadBalancerType=kind).id
        root = own_stack(tmp_path / "with", "h200-tp8", ingress={"existing": arn}, edge=edge)
        (root / "stacks" / "mine.yaml").replace(tmp_path / "project" / "stacks" / "mine.yaml")
        return {"subnet_id": subnets[0].id}

    root = own_stack(tmp_path, "h200-tp8")
    if url is None:
        with pytest.raises(ProblemsFound, match="keys would travel in the clear"):
            record("mine", root=root, prepare=prepare)
    else:
        recorded = record("mine", root=root, prepare=prepare)
        assert recorded.inventory["router"]["url"].startswith(url)


@pytest.mark.parametrize(
    ("arn", "said"),
    [
        ("my-balancer", "is not the ARN of a load balancer"),
        (
            "arn:aws:elasticloadbalancing:us-west-2:000000000000:loadbalancer/net/x/0123456789abcdef",
            "is in us-west-2; the stack is in us-east-1",
        ),
        (
            "arn:aws:elasticloadbalancing:us-east-1:000000000000:loadbalancer/net/x/0123456789abcdef",
            "couldn't find resource",
        ),
    ],
)
def test_the_name_of_no_load_balancer_is_refused(
    record: Record, tmp_path: Path, arn: str, said: str
) -> None:
    with pytest.raises(ProblemsFound, match=said):
        record("mine", root=own_stack(tmp_path, "h200-tp8", ingress={"existing": arn}))


def test_in_a_network_of_theirs_a_local_zone_needs_a_subnet_for_the_load_balancer(
    record: Record, tmp_path: Path
) -> None:
    zones, region = ("use1-dfw2-az1", "use1-az6"), "us-east-1"
    root = own_stack(tmp_path, "gb200-2p1d", **BALANCED)
    made: list[Resource] = []

    def hosts_alone(store: Store) -> Mapping[str, str]:
        return {"subnet_id": their_network(store, region=region, zones=zones)[0].id}

    def both(store: Store) -> Mapping[str, str]:
        made.extend(their_network(store, region=region, zones=zones))
        return {"subnet_id": made[0].id, "gateway_subnet_id": made[1].id}

    with pytest.raises(ProblemsFound, match="name a subnet of use1-az6"):
        record("mine", root=root, prepare=hosts_alone)
    (balancer,) = record("mine", root=root, prepare=both).of_type("LoadBalancer").values()
    assert balancer["subnets"] == [made[1].id]


def test_before_an_edge_no_health_check_needs_a_key(record: Record, tmp_path: Path) -> None:
    (tmp_path / "clients.keys").write_text(f"a {'k' * 40}\n")
    edge = {"name": "haproxy", "tls": {"certificate": {"env": "C"}, "key": {"env": "K"}}}
    keys = {"keys": {"file": str(tmp_path / "clients.keys")}}
    root = own_stack(tmp_path, "h200-2n-tp16", **BALANCED, edge={**edge, **keys})
    recorded = record("mine", root=root)
    (group,) = recorded.of_type("TargetGroup").values()
    assert (group["protocol"], group["healthCheck"]) == ("TCP", {"port": "8000", "protocol": "TCP"})
    assert recorded.inventory["router"]["url"].startswith("https://router-")


CERTIFICATE = "arn:aws:acm:us-east-1:000000000000:certificate/01234567-89ab-cdef-0123-456789abcdef"
NAMED = {"certificate_arn": CERTIFICATE, "clients_name": "kimi.example.com"}


def certified(store: Store) -> Mapping[str, str]:
    store.account = replace(store.account, certificates=(CERTIFICATE,))
    return {}


def test_a_load_balancer_ends_tls_with_a_certificate(record: Record, tmp_path: Path) -> None:
    root = own_stack(tmp_path, "h200-2n-tp16", **BALANCED)
    recorded = record("mine", root=root, prepare=certified, **NAMED)
    (listener,) = recorded.of_type("Listener").values()
    assert (listener["protocol"], listener["certificateArn"]) == ("TLS", CERTIFICATE)
    assert listener["sslPolicy"].startswith("ELBSecurityPolicy-TLS13-1-2")
    assert "tcpIdleTimeoutSeconds" not in listener  # elbv2 takes none with TLS
    (group,) = recorded.of_type("TargetGroup").values()
    assert group["protocol"] == "TCP"
    assert recorded.inventory["router"]["url"] == "https://kimi.example.com:8000"


@pytest.mark.parametrize(
    "case",  # ingress, configuration, what is said, and of which key
    [
        ("none", NAMED, "The stack has no load balancer", "certificate_arn"),
        (
            "internal-load-balancer",
            {"certificate_arn": CERTIFICATE},
            "one of the two is not set",
            "clients_name",
        ),
        (
            "internal-load-balancer",
            {"clients_name": "kimi.example.com"},
            "one of the two",
            "certificate_arn",
        ),
        (
            "internal-load-balancer",
            {**NAMED, "certificate_arn": CERTIFICATE.replace("east-1", "west-2")},
            "in us-west-2; the stack is in us-east-1",
            "certificate_arn",
        ),
        (
            "internal-load-balancer",
            {**NAMED, "clients_name": "kimi"},
            "kimi is not the DNS name",
            "clients_name",
        ),
    ],
)
def test_a_certificate_that_nobody_could_use_is_refused(
    record: Record, tmp_path: Path, case: tuple[str, dict[str, str], str, str]
) -> None:
    ingress, config, said, key = case
    root = own_stack(tmp_path, "h200-2n-tp16", ingress=ingress)
    with pytest.raises(ProblemsFound, match=said) as refused:
        record("mine", root=root, prepare=certified, **config)
    assert [each.field for each in refused.value.problems] == [f"moe-infra:{key}"]


def test_an_edge_that_ends_tls_itself_takes_no_certificate_at_the_load_balancer() -> None:
    account = read_account(
        {**GOOD, "moe-infra:certificate_arn": CERTIFICATE, "moe-infra:clients_name": "a.example"},
        DEMAND,
    )
    (found,) = certificate_problems(account, has_ingress=True, speaks_tls=True, stack="mine")
    assert "The edge ends TLS itself" in found.what
    assert "pulumi config rm certificate_arn" in found.fix
    assert not [*certificate_problems(account, has_ingress=True, speaks_tls=False, stack="mine")]
