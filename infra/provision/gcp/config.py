"""The object `gcp` of a stack's configuration: what only the operator of a Google project knows."""

from __future__ import annotations

import ipaddress
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infra.errors import Problem, ProblemsFound
from infra.provision.address_blocks import is_the_world
from infra.provision.config_problems import PROJECT_NAME, account_problem, unread_problem
from infra.provision.naming import OWNER_TAGS
from infra.provision.own_config import read_own_values
from infra.spec.load import PROJECT
from infra.spec.nearest import nearest
from infra.spec.plain_yaml import read_yaml

NAME = "gcp"
_NETWORK = "10.64.0.0/16"
_ROOT_GIB, SMALLEST_ROOT_GIB = "300", 100
# Half for hosts, a quarter for their second interface, a quarter in eight parts for the subnets of RDMA interfaces.
_PREFIXES = range(8, 23)
_OWN = tuple(map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
# Of every subnet: Google, VPC, "Subnets", unusable addresses.
_RESERVED, _PARTS = 4, 32
_BLOCK = r"\d{1,3}(\.\d{1,3}){3}(/\d{1,2})?"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    """One key of the object: what it looks like, and what to type instead."""

    name: str
    pattern: str
    example: str
    meaning: str
    is_required: bool = False


_RESOURCE = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
_KEYS: Mapping[str, _Key] = {
    key.name: key
    for key in (
        _Key(
            name="project",
            pattern=r"[a-z][-a-z0-9]{4,28}[a-z0-9]",
            example="my-project",
            meaning="the id of the project",
            is_required=True,
        ),
        _Key(
            name="zone",
            pattern=r"[a-z]+-[a-z]+[0-9]+-[a-z]",
            example="us-central1-a",
            meaning="the zone of the capacity",
            is_required=True,
        ),
        _Key(
            name="reservation",
            pattern=_RESOURCE,
            example="my-reservation",
            meaning="the name of the reservation to launch into, in the same project",
            is_required=True,
        ),
        _Key(
            name="ssh_key",
            pattern=r"[a-z_][a-z0-9_-]{0,31}:(ssh-ed25519|ecdsa-sha2-nistp(256|384|521)|ssh-rsa) [A-Za-z0-9+/=]+( .*)?",
            example='"$USER:$(cat ~/.ssh/id_ed25519.pub)"',
            meaning="LOGIN:PUBLIC KEY (ssh-ed25519, ecdsa-sha2-… or ssh-rsa), whose private key your SSH agent holds",
            is_required=True,
        ),
        _Key(
            name="ssh_from_cidr",
            pattern=_BLOCK,
            example="192.0.2.0/24",
            meaning="the block of your network that may dial port 22",
        ),
        _Key(
            name="image",
            pattern=r"projects/[-a-z0-9]+/global/images/" + _RESOURCE,
            example="projects/my-project/global/images/my-image",
            meaning="the machine image to pin",
        ),
        _Key(
            name="interface",
            pattern=r"[a-z][a-z0-9]{1,14}",
            example="enp0s3",
            meaning="what the image calls the first interface",
        ),
        _Key(
            name="vpc_cidr",
            pattern=_BLOCK,
            example=_NETWORK,
            meaning="the address block of the networks, /8 to /22",
        ),
        _Key(
            name="root_volume_gib",
            pattern=r"[0-9]{1,5}",
            example=_ROOT_GIB,
            meaning="the boot volume of a host, a whole number of GiB",
        ),
        _Key(
            name="replace_machines",
            pattern=r"[a-z0-9-]+(,[a-z0-9-]+)*",
            example="decode-0",
            meaning="names of hosts, with commas between",
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GoogleConfig:
    """Facts of the operator's project.

    Args:
        ssh_key: `LOGIN:PUBLIC KEY`.
        ssh_from: block that may dial port 22; None for Identity-Aware Proxy alone.
        interface: what the image calls the first one; None for the machine type's own.
        image: pinned; None for the newest of the machine type's family.
        hosts_cidr: of the hosts' first interface, further_cidr of their second, rdma_cidrs of the RDMA interfaces.
        labels: of the operator's own.
    """

    project: str
    zone: str
    reservation: str
    ssh_key: str
    ssh_from: str | None
    image: str | None
    interface: str | None
    vpc_cidr: ipaddress.IPv4Network
    root_volume_gib: int
    replace_machines: tuple[str, ...]
    labels: Mapping[str, str]

    @property
    def region(self) -> str:
        """The region of the zone."""
        return self.zone.rpartition("-")[0]

    @property
    def login(self) -> str:
        """The user whom the key lets in."""
        return self.ssh_key.partition(":")[0]

    @property
    def hosts_cidr(self) -> ipaddress.IPv4Network:
        """The lower half of the block, for the interface that carries ordinary traffic."""
        return next(self.vpc_cidr.subnets())

    @property
    def further_cidr(self) -> ipaddress.IPv4Network:
        """The third quarter, for the second interface."""
        return list(self.vpc_cidr.subnets(prefixlen_diff=2))[2]

    def rdma_cidrs(self, count: int) -> tuple[ipaddress.IPv4Network, ...]:
        """The fourth quarter in eight parts, of which the first `count`: one for each RDMA interface."""
        quarter = list(self.vpc_cidr.subnets(prefixlen_diff=2))[3]
        return tuple(quarter.subnets(prefixlen_diff=3))[:count]


def read_google_config(stack: str, num_hosts: int) -> GoogleConfig:
    """The object `gcp` and the owner's labels of the selected stack.

    Args:
        stack: the stack's name.
        num_hosts: that the networks have to hold.

    Raises:
        ProblemsFound: every value that is missing or wrong, each with the command to type.
    """
    given = _read_object(stack)
    labels = {name: value for name, value in read_own_values(OWNER_TAGS).items() if value}
    known = {str(name): str(value) for name, value in given.items() if value not in ("", None)}
    problems = (
        *_problems(known, stack),
        *_network_problems(known, stack, num_hosts),
        *_label_problems(labels, stack),
        *_unread_problems(stack),
    )
    if problems:
        raise ProblemsFound(problems)
    return GoogleConfig(
        project=known["project"],
        zone=known["zone"],
        reservation=known["reservation"],
        ssh_key=known["ssh_key"],
        ssh_from=str(_network(known["ssh_from_cidr"])) if "ssh_from_cidr" in known else None,
        image=known.get("image"),
        interface=known.get("interface"),
        vpc_cidr=ipaddress.IPv4Network(known.get("vpc_cidr", _NETWORK)),
        root_volume_gib=int(known.get("root_volume_gib", _ROOT_GIB)),
        replace_machines=tuple(filter(None, known.get("replace_machines", "").split(","))),
        labels=labels,
    )


def _read_object(stack: str) -> Mapping[str, object]:
    """The object as Pulumi hands it to a program, which is JSON.

    Raises:
        ProblemsFound: a part of the object is set as a secret, or the value is no object.
    """
    text = read_own_values((NAME,))[NAME]
    try:
        given = json.loads(text or "{}")
    except ValueError:
        given = None
    if not isinstance(given, dict):
        fix = f"Type: pulumi config rm {NAME} --stack {stack}. Then set each key by its path."
        raise ProblemsFound((config_problem("", "It is no object of keys.", "", stack, fix),))
    return given


def _label_problems(labels: Mapping[str, str], stack: str) -> Iterator[Problem]:
    """Values that Compute Engine takes as no label."""
    for name, value in labels.items():
        if not re.fullmatch(r"[-_a-z0-9]{1,63}", value):
            what = f"{value} cannot be a label at Google: lower-case letters, digits, - and _."
            yield account_problem(f"{PROJECT_NAME}:{name}", what, "my-team", stack)


def _problems(known: Mapping[str, str], stack: str) -> Iterator[Problem]:
    for name in sorted(set(known) - set(_KEYS)):
        path = shlex.quote(f"{NAME}[{json.dumps(name)}]")
        fix = f"{nearest(name, tuple(_KEYS))} Type: pulumi config rm --path {path} --stack {stack}"
        yield config_problem(name, "Nothing reads this key.", "", stack, fix)
    for key in _KEYS.values():
        value = known.get(key.name)
        if value is None and key.is_required:
            yield config_problem(key.name, f"Not set: {key.meaning}.", key.example, stack)
        if value is not None and not re.fullmatch(key.pattern, value):
            yield config_problem(key.name, f"{value} is not {key.meaning}.", key.example, stack)
    size = known.get("root_volume_gib", _ROOT_GIB)
    if size.isdecimal() and int(size) < SMALLEST_ROOT_GIB:
        what = f"{size} GiB do not hold a serving image; {SMALLEST_ROOT_GIB} are the least."
        yield config_problem("root_volume_gib", what, _ROOT_GIB, stack)


def _unread_problems(stack: str) -> Iterator[Problem]:
    """Keys of other platforms that somebody has set: whoever did so believes in a value that is passed over."""
    declared = read_yaml(PROJECT / "Pulumi.yaml")["config"]
    others = {
        name: str(each["default"]).lower()
        if isinstance(each["default"], bool)
        else str(each["default"])
        for name, each in declared.items()
        if name not in (NAME, *OWNER_TAGS)
    }
    values = read_own_values(others)
    for name, default in others.items():
        if values[name] not in ("", default):
            yield unread_problem(name, values[name], "gcp-gce", stack)


def _network_problems(known: Mapping[str, str], stack: str, num_hosts: int) -> Iterator[Problem]:
    """Blocks that Compute Engine has no networks for, or that are not the operator's; other forms are told already."""
    text = known.get("vpc_cidr", _NETWORK)
    if re.fullmatch(_BLOCK, text):
        network = _network(text)
        if (
            network is None
            or network.prefixlen not in _PREFIXES
            or not any(map(network.subnet_of, _OWN))
        ):
            what = f"{text} is no block of /8 to /22 in {', '.join(map(str, _OWN))}."
            yield config_problem("vpc_cidr", what, _NETWORK, stack)
        elif num_hosts > (room := network.num_addresses // _PARTS - _RESERVED):
            what = f"{text} leaves {room} addresses to each RDMA interface; the stack has {num_hosts} hosts."
            yield config_problem("vpc_cidr", what, _NETWORK, stack)
    block = known.get("ssh_from_cidr", "")
    if re.fullmatch(_BLOCK, block) and (_network(block) is None or is_the_world(block)):
        what = f"{block} is not a block of your own network that may dial port 22."
        yield config_problem("ssh_from_cidr", what, "192.0.2.0/24", stack)


def _network(text: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(text)
    except ValueError:
        return None


def config_problem(name: str, what: str, example: str, stack: str, fix: str = "") -> Problem:
    """A problem of one key of the object, with the command that sets it where no other fix is named."""
    return Problem(
        rule="account-fact",
        severity="error",
        file=f"stacks/Pulumi.{stack}.yaml",
        field=f"{PROJECT_NAME}:{NAME}{'.' * bool(name)}{name}",
        what=what,
        fix=fix or f"Type: pulumi config set --path {NAME}.{name} {example} --stack {stack}",
    )
