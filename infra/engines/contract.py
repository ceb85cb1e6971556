"""The seam between the compiler and an engine: what is asked, what is answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, Protocol

from infra.catalog.flags import FlagCatalogue
from infra.catalog.schema import Mount, Vendor
from infra.engines.group_settings import GroupSettings
from infra.engines.reading import Reading
from infra.engines.settings import Flag, Origin, RoleSettings, Variable
from infra.inventory.hosts import HostFacts
from infra.spec.stack import RoleName

PortName = Literal[
    "http",
    "dp_rpc",
    "master",
    "side_channel",
    "kv",
    "bootstrap",
    "supervisor",
    "dist",
    "prometheus",
]
PortScope = Literal["process", "leader", "group"]


# By vendor, the variables by which communication libraries are told an interface. NCCL and RCCL take a name as the
# beginning of one unless `=` stands before it (NCCL user guide, NCCL_SOCKET_IFNAME); Gloo, HCCL and vllm-ascend's TP
# groups take it whole or as it is (vllm-ascend, multi-node guides).
INTERFACE_VARIABLES: Mapping[Vendor, Mapping[str, str]] = {
    "nvidia": {"GLOO_SOCKET_IFNAME": "{}", "NCCL_SOCKET_IFNAME": "={}"},
    "amd": {"GLOO_SOCKET_IFNAME": "{}", "NCCL_SOCKET_IFNAME": "={}"},
    "ascend": {
        "GLOO_SOCKET_IFNAME": "{}",
        "HCCL_SOCKET_IFNAME": "{}",
        "TP_SOCKET_IFNAME": "{}",
    },
    "cpu": {"GLOO_SOCKET_IFNAME": "{}"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRequest:
    """A port that an engine asks for.

    Args:
        name: names the block in `plan/ports.py`.
        scope: `process`: each process its own; `leader`: one, free on the leader's host;
            `group`: one range, free on every host of the group.
        count: consecutive ports.
    """

    name: PortName
    scope: PortScope
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupContext:
    """What all processes of one replica share.

    Args:
        index: number of the group over all groups of the stack, prefill before decode.
        num_nodes: hosts of the group.
        leader_address: address of the host of rank 0, as its peers write it.
        ports: allocated ports of scope leader and group, the first of each range.
        peers: settings of every role of the stack.
    """

    settings: RoleSettings
    replica: int
    index: int
    num_nodes: int
    leader_address: str
    ports: Mapping[PortName, int]
    peers: Mapping[RoleName, RoleSettings]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessContext:
    """What one process has for itself.

    Args:
        facts: of its host.
        ports: allocated ports of scope process.
        devices: indices on the host, ascending.
        host_devices: how many devices the host has.
        ranks: data-parallel ranks whose core runs here.
        first_rank: first rank that its devices belong to.
        node: position of its host within the group.
        is_leader: whether it holds rank 0 on the group's first host.
    """

    group: GroupContext
    facts: HostFacts
    ports: Mapping[PortName, int]
    devices: tuple[int, ...]
    host_devices: int
    ranks: tuple[int, ...]
    first_rank: int
    node: int
    is_leader: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a command line and its environment."""

    flags: tuple[Flag, ...] = ()
    env: tuple[Variable, ...] = ()
    env_prepend: tuple[Variable, ...] = ()
    mounts: tuple[Mount, ...] = ()


class Engine(Protocol):
    """An engine family: places ranks, asks for ports, writes and reads command lines."""

    @property
    def owned_flags(self) -> Mapping[str, str]:
        """Canonical flag → the stack's field to use instead, or a sentence on what it follows from."""
        ...

    @property
    def owned_variables(self) -> Mapping[str, str]:
        """Environment variable → the stack's field to use instead, or such a sentence."""
        ...

    @property
    def group_settings(self) -> GroupSettings:
        """What processes of one group may be told differently."""
        ...

    def unit_devices(self, settings: RoleSettings) -> int:
        """Devices that must sit together on one host, or fill whole hosts."""
        ...

    def num_units(self, settings: RoleSettings) -> int:
        """Units in one replica."""
        ...

    def has_process_per_unit(self, settings: RoleSettings) -> bool:
        """Whether each unit is a process of its own; otherwise one process per host."""
        ...

    def ranks_on_node(self, settings: RoleSettings, node: int, num_nodes: int) -> tuple[int, ...]:
        """Ranks whose core runs on a host, when one unit spans `num_nodes` hosts."""
        ...

    def port_requests(
        self, settings: RoleSettings, *, num_nodes: int, local_ranks: int, is_leader: bool
    ) -> tuple[PortRequest, ...]:
        """What one process asks for; requests of scope leader and group are asked by every process."""
        ...

    def program(self, settings: RoleSettings) -> tuple[str, ...]:
        """The words before the flags, the model among them where it is positional."""
        ...

    def common_part(self, settings: RoleSettings, peers: Mapping[RoleName, RoleSettings]) -> Part:
        """What every process of the role gets, in the order in which it is written."""
        ...

    def group_part(self, context: GroupContext) -> Part:
        """What every process of one replica gets, written behind the own part of each."""
        ...

    def own_part(self, context: ProcessContext) -> Part:
        """What this process alone gets."""
        ...

    def read(
        self,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        *,
        num_devices: int,
        flags: FlagCatalogue,
    ) -> Reading:
        """What the command line says, to the engine of that release."""
        ...


def owned(name: str, value: object, why: str) -> Flag:
    """A flag that the compiler writes."""
    return Flag(name=name, value=value, origin=_written_because(why))  # type: ignore[arg-type]


def limit_flags(
    settings: RoleSettings, limits: Mapping[str, int | float | None]
) -> tuple[Flag, ...]:
    """The role's own limits under the engine's names; what it leaves open is the engine's to choose."""
    origin = Origin(kind="role", name=settings.role)
    return tuple(
        Flag(name=name, value=value, origin=origin)
        for name, value in limits.items()
        if value is not None
    )


def owned_variable(name: str, value: object, why: str) -> Variable:
    """A variable that the compiler writes."""
    return Variable(name=name, value=str(value), origin=_written_because(why))


def interface_variables(context: ProcessContext) -> tuple[Variable, ...]:
    """The interface that libraries meet by, for a group over hosts: left alone, each library guesses for itself.

    What catalogue, recipe or operator say of one stays.
    """
    settings = context.group.settings
    if context.group.num_nodes == 1:
        return ()
    why = "the host's interface: its group spans hosts"
    return tuple(
        owned_variable(name, spelling.format(context.facts.interface), why)
        for name, spelling in INTERFACE_VARIABLES[settings.accelerator.vendor].items()
        if name not in settings.env
    )


@cache
def _written_because(why: str) -> Origin:
    """One origin per reason: thousands of processes share a handful."""
    return Origin(kind="compiler", name="plan", detail=why)
