"""Account facts of a stack, read from `pulumi config` and judged together before anything is created."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.catalog.instance_types import CapacityKind
from infra.catalog.lustre_sizes import LustreSettings, lustre_problem
from infra.errors import Problem, ProblemsFound
from infra.provision.address_blocks import is_the_world
from infra.provision.aws.account_keys import KEYS, Key
from infra.provision.aws.zone import zone_example
from infra.provision.config_problems import (
    PROJECT_NAME,
    REGION,
    account_problem,
)
from infra.provision.naming import OWNER_TAGS
from infra.provision.own_config import read_keys

RESERVED_ADDRESSES = 5  # of every subnet: AWS, VPC User Guide, "Subnet CIDR blocks"
SMALLEST_ROOT_GIB = 100  # serving images do not fit the 75 GiB of the DLAMI's own root


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What only the owner of the account knows about one stack.

    Args:
        account_id: which the credentials must be of; None for any.
        reservation_id: None on demand.
        key_name: None where nobody logs in to the machines.
        ami: None for the current image of the instance type.
        user: SSH login; None for the image's own.
        interface: name that the image gives to the primary network interface.
        ssh_from: CIDR block that may dial port 22; None when SSH goes through Session Manager.
        kms_key_arn: key that encrypts disks and stored weights; None for AWS's own.
        weights_bucket: an existing bucket; None to create one.
        weights_mount: what is mounted under the weights' path of a shared mount, as `mount` names it; None
            when the image does it.
        subnet_id: an existing subnet for hosts; None to make a network.
        gateway_subnet_id: an existing subnet for a load balancer; None for that of hosts.
        clients: who may dial the load balancer; None for the network that is made for hosts, or the hosts' own subnet.
        certificate_arn: by which a load balancer ends TLS; None where it passes bytes on.
        clients_name: DNS name that clients call it by; None for its own.
        notice_topic: ARN of the SNS topic that hears of the end of a block; None for nobody.
        replace_machines: hosts whose machines `pulumi up` may give back and launch anew.
        tags: further tags of every resource.
    """

    account_id: str | None
    region: str
    zone_id: str
    reservation_id: str | None
    key_name: str | None
    ami: str | None
    user: str | None
    interface: str
    ssh_from: str | None
    vpc_cidr: ipaddress.IPv4Network
    kms_key_arn: str | None
    weights_bucket: str | None
    weights_mount: str | None
    subnet_id: str | None
    gateway_subnet_id: str | None
    clients: str | None
    certificate_arn: str | None
    clients_name: str | None
    lustre: LustreSettings
    root_volume_gib: int
    notice_topic: str | None
    replace_machines: tuple[str, ...]
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a stack asks of the account.

    Args:
        num_addresses: what its hosts take from their subnet, all together.
        has_login: whether its machines are logged in to, and start from an image of their own: those of a cluster are
            not, and their image is the cluster's business.
        quotas: vCPUs that its machines hold against quotas of the account, by the quota's code.
        speaks_tls: whether what clients dial on its hosts ends their TLS.
    """

    stack: str
    capacity: CapacityKind
    num_hosts: int
    num_addresses: int
    uses_lustre: bool
    wants_load_balancer: bool
    quotas: Mapping[str, int] = field(default_factory=dict)
    has_login: bool = True
    speaks_tls: bool = False

    def num_new_addresses(self, num_standing: int) -> int:
        """Addresses that hosts will yet take, when so many stand and have taken theirs."""
        new = max(self.num_hosts - num_standing, 0)
        return -(-self.num_addresses * new // max(self.num_hosts, 1))

    @property
    def is_reserved(self) -> bool:
        """Whether machines come from a reservation."""
        return self.capacity != "on-demand"


# Every key that `Pulumi.yaml` declares, besides those in `KEYS`.
_FURTHER_NAMES = (
    "ssh_user",
    "ssh_from_cidr",
    "clients_cidr",
    "interface",
    "vpc_cidr",
    "root_volume_gib",
    "fsx_capacity_gib",
    "fsx_throughput",
    "fsx_efa",
    *OWNER_TAGS,
)
CONFIG_NAMES = (*(key.name for key in KEYS if ":" not in key.name), *_FURTHER_NAMES)


def read_values() -> dict[str, str]:
    """The configuration of the selected stack as Pulumi gives it, by full key.

    Raises:
        ProblemsFound: values that are set as secrets.
    """
    keys = (*(f"{PROJECT_NAME}:{name}" for name in CONFIG_NAMES), "aws:region")
    return read_keys(keys)


def read_account(values: Mapping[str, str], demand: Demand) -> Account:
    """The account facts from configuration values by full key (`aws:region`, `moe-infra:zone_id`).

    Empty values count as not set.

    Raises:
        ProblemsFound: every value that is missing or wrong, each with the command to type.
    """
    known = {
        name.removeprefix(f"{PROJECT_NAME}:"): value
        for name, value in values.items()
        if value != ""
    }
    problems = [
        *(problem for key in KEYS if (problem := _key_problem(key, known, demand))),
        *_address_problems(known, demand),
        *_number_problems(known, demand),
    ]
    if problems:
        raise ProblemsFound(tuple(problems))
    return Account(
        account_id=known.get("account_id"),
        region=known["aws:region"],
        zone_id=known["zone_id"],
        reservation_id=known.get("reservation_id") if demand.is_reserved else None,
        key_name=known.get("key_name"),
        ami=known.get("ami"),
        user=known.get("ssh_user"),
        interface=known["interface"],
        ssh_from=known.get("ssh_from_cidr") if demand.has_login else None,
        vpc_cidr=ipaddress.IPv4Network(known["vpc_cidr"]),
        kms_key_arn=known.get("kms_key_arn"),
        weights_bucket=known.get("weights_bucket"),
        weights_mount=known.get("weights_mount"),
        notice_topic=known.get("notice_topic"),
        subnet_id=known.get("subnet_id"),
        gateway_subnet_id=known.get("gateway_subnet_id"),
        clients=known.get("clients_cidr"),
        certificate_arn=known.get("certificate_arn"),
        clients_name=known.get("clients_name"),
        lustre=_lustre(known),
        root_volume_gib=int(known["root_volume_gib"]),
        replace_machines=tuple(filter(None, known.get("replace_machines", "").split(","))),
        tags={name: known[name] for name in OWNER_TAGS if name in known},
    )


def host_subnet(vpc_cidr: ipaddress.IPv4Network) -> ipaddress.IPv4Network:
    """The lower half of the VPC's block, for hosts."""
    return next(vpc_cidr.subnets())


def gateway_subnet(vpc_cidr: ipaddress.IPv4Network) -> ipaddress.IPv4Network:
    """The upper half of the VPC's block, for the NAT gateway and the endpoints."""
    return list(vpc_cidr.subnets())[1]


def control_subnets(
    vpc_cidr: ipaddress.IPv4Network,
) -> tuple[ipaddress.IPv4Network, ipaddress.IPv4Network, ipaddress.IPv4Network]:
    """The upper half where a cluster is in it: the gateways' block, and two for the cluster's control plane."""
    gateways, rest = gateway_subnet(vpc_cidr).subnets()
    first, second = rest.subnets()
    return gateways, first, second


def _key_problem(key: Key, known: Mapping[str, str], demand: Demand) -> Problem | None:
    value = known.get(key.name)
    is_required = (
        key.is_required
        or (key.is_of_login and demand.has_login)
        or (key.name == "reservation_id" and demand.is_reserved)
    )
    example = zone_example(known.get(REGION)) if key.name == "zone_id" else key.example
    if value is None and is_required:
        return _problem(key.full_name, f"Not set: {key.meaning}.", example, demand)
    if value is not None and not re.fullmatch(key.pattern, value):
        return _problem(key.full_name, f"{value} is not {key.meaning}.", example, demand)
    return None


def _address_problems(known: Mapping[str, str], demand: Demand) -> list[Problem]:
    problems = []
    for key, whom in (("ssh_from_cidr", "port 22"), ("clients_cidr", "the load balancer")):
        block = known.get(key)
        if block is not None and (_network(block) is None or is_the_world(block)):
            what = f"{block} is not a block of your own network that may dial {whom}."
            problems.append(_problem(f"{PROJECT_NAME}:{key}", what, "10.0.0.0/8", demand))
    if known.get("gateway_subnet_id") and not known.get("subnet_id"):
        problems.append(lacking_subnet_problem(demand.stack))
    network = _network(known["vpc_cidr"])
    if network is None or not 16 <= network.prefixlen <= 27:  # noqa: PLR2004 - AWS's limits, less one for the halves
        what = f"{known['vpc_cidr']} is not an address block of /16 to /27."
        problems.append(_problem(f"{PROJECT_NAME}:vpc_cidr", what, "10.64.0.0/16", demand))
    elif known.get("subnet_id") is None and demand.num_addresses > (
        room := host_subnet(network).num_addresses - RESERVED_ADDRESSES
    ):
        what = f"{network} leaves {room} addresses to hosts; they take {demand.num_addresses}."
        problems.append(_problem(f"{PROJECT_NAME}:vpc_cidr", what, "10.64.0.0/16", demand))
    return problems


def _number_problems(known: Mapping[str, str], demand: Demand) -> list[Problem]:
    names = (
        "root_volume_gib",
        *(("fsx_capacity_gib", "fsx_throughput") if demand.uses_lustre else ()),
    )
    problems = [
        _problem(f"{PROJECT_NAME}:{name}", f"{known[name]} is not a whole number.", "1200", demand)
        for name in names
        if not known[name].isdecimal()
    ]
    if not problems and int(known["root_volume_gib"]) < SMALLEST_ROOT_GIB:
        what = f"{known['root_volume_gib']} GiB do not hold a serving image; {SMALLEST_ROOT_GIB} are the least."
        problems.append(_problem(f"{PROJECT_NAME}:root_volume_gib", what, "300", demand))
    if not problems and demand.uses_lustre and (wrong := lustre_problem(_lustre(known))):
        key = "fsx_throughput" if wrong.is_tier else "fsx_capacity_gib"
        problems.append(_problem(f"{PROJECT_NAME}:{key}", wrong.what, str(wrong.instead), demand))
    return problems


def _lustre(known: Mapping[str, str]) -> LustreSettings:
    return LustreSettings(
        capacity_gib=int(known["fsx_capacity_gib"]),
        throughput=int(known["fsx_throughput"]),
        has_efa=known["fsx_efa"] == "true",
    )


def _network(text: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(text)
    except ValueError:
        return None


def lacking_subnet_problem(stack: str) -> Problem:
    """A key that goes with a network of the operator's is set, and no such network."""
    what = "It goes with a network of yours, and no subnet_id is set."
    return account_problem(f"{PROJECT_NAME}:subnet_id", what, "subnet-0123456789abcdef0", stack)


def _problem(key: str, what: str, example: str, demand: Demand) -> Problem:
    return account_problem(key, what, example, demand.stack)
