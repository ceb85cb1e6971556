"""The machines of a stack, and the policy that puts those of one NVLink domain into one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi import CustomTimeouts, ResourceOptions
from pulumi_gcp import compute

from infra.catalog.machine_types import MachineType
from infra.plan.topology import TopologyHost
from infra.provision.gcp.config import GoogleConfig

# Instead of the provider's 20 minutes each: large machines come and go slowly.
_WAIT = CustomTimeouts(create="30m", delete="60m")
# Of a boot volume: what a serving image of 20 GB is read at; hyperdisk-balanced has them apart from its size.
_IOPS, _THROUGHPUT_MB_S = 6000, 500
# By these a machine is known as a host of a stack.
STACK_LABEL, HOST_LABEL = "moe-infra-stack", "moe-infra-host"
_RESERVATION_KEY = "compute.googleapis.com/reservation-name"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """What all machines have in common.

    Args:
        image: self link.
        startup: the script that runs at every boot; None for none.
        interfaces: of one host.
        domains: number of the NVLink domain by host name; {} where domains end at the host.
        ready: what has to be there before the first boot.
    """

    config: GoogleConfig
    machine: MachineType
    image: str
    startup: str | None
    interfaces: list[dict[str, Any]]
    domains: Mapping[str, int]
    ready: tuple[pulumi.Resource, ...]


def machine_name(stack: str, host: str) -> str:
    """What Compute Engine calls the machine of a host; a project has one of a name in a zone."""
    return f"{stack}-{host}"


def domain_number(stack: str, policy: str) -> int | None:
    """The number of the NVLink domain of a placement policy of the stack; None for another policy, and for none.

    Args:
        stack: the stack's name.
        policy: as Compute Engine names it, by its link or "".
    """
    _, _, number = policy.rpartition("/")[2].rpartition(f"{stack}-domain-")
    return int(number) if number.isdecimal() else None


class Machines(pulumi.ComponentResource):
    """One machine for each host, named as the topology names it; `instances` holds them by host name.

    Machines are protected, so that nothing replaces or deletes them until the operator names them
    (`gcp.replace_machines`). A replacement gives the machine back before it takes another one: a reservation has no
    spare. The startup script and labels change in place, and a boot volume grows in place.
    """

    def __init__(
        self,
        stack: str,
        hosts: tuple[TopologyHost, ...],
        settings: MachineSettings,
        opts: ResourceOptions | None = None,
    ) -> None:
        super().__init__("moe-infra:gcp:Machines", stack, None, opts)
        self._stack, self._settings = stack, settings
        policies = {
            number: self._domain(number) for number in sorted(set(settings.domains.values()))
        }
        self.instances = {
            host.name: self._machine(host, policies.get(settings.domains.get(host.name, -1)))
            for host in hosts
        }
        ids = {name: each.id for name, each in self.instances.items()}
        self.register_outputs({"machines": ids})

    def _domain(self, number: int) -> compute.ResourcePolicy:
        config = self._settings.config
        return compute.ResourcePolicy(
            f"domain-{number}",
            name=f"{self._stack}-domain-{number}",
            project=config.project,
            region=config.region,
            group_placement_policy={
                "collocation": "COLLOCATED",
                "gpu_topology": self._settings.machine.gpu_topology,
            },
            opts=ResourceOptions(parent=self),
        )

    def _machine(
        self, host: TopologyHost, policy: compute.ResourcePolicy | None
    ) -> compute.Instance:
        config = self._settings.config
        is_replaced = host.name in config.replace_machines
        # A machine takes these at its launch alone; what an operator changed of them is refused beforehand, until one
        # machine is named. The newest image of a family would make every preview a replacement.
        disk = ("image", "type", "provisionedIops", "provisionedThroughput")
        kept = [
            *(f"bootDisk.initializeParams.{each}" for each in disk),
            *("machineType", "networkInterfaces", "reservationAffinity", "resourcePolicies"),
        ]
        if is_replaced and config.image:
            kept = []
        elif is_replaced:  # a name that is left in the configuration takes no newer image
            kept = kept[:1]
        return compute.Instance(
            host.name,
            name=machine_name(self._stack, host.name),
            project=config.project,
            zone=config.zone,
            machine_type=self._settings.machine.id,
            boot_disk=self._boot_disk(),
            network_interfaces=self._settings.interfaces,
            scheduling={
                "provisioning_model": "RESERVATION_BOUND",
                "instance_termination_action": "STOP",
                "on_host_maintenance": "TERMINATE",
                "automatic_restart": True,
            },
            reservation_affinity={
                "type": "SPECIFIC_RESERVATION",
                "specific_reservation": {"key": _RESERVATION_KEY, "values": [config.reservation]},
            },
            resource_policies=None if policy is None else policy.id,
            metadata=self._metadata(),
            labels={
                STACK_LABEL: self._stack,
                HOST_LABEL: host.name,
                "moe-infra-roles": "_".join(host.roles),
                **config.labels,
            },
            opts=ResourceOptions(
                parent=self,
                depends_on=list(self._settings.ready),
                delete_before_replace=True,
                ignore_changes=kept,
                custom_timeouts=_WAIT,
                protect=not is_replaced,
            ),
        )

    def _boot_disk(self) -> dict[str, Any]:
        return {
            "auto_delete": True,
            "initialize_params": {
                "image": self._settings.image,
                "size": self._settings.config.root_volume_gib,
                "type": self._settings.machine.boot_disk,
                "provisioned_iops": _IOPS,
                "provisioned_throughput": _THROUGHPUT_MB_S,
            },
        }

    def _metadata(self) -> dict[str, str]:
        """The key that lets the operator in and keeps the project's other keys out, and the boot script."""
        startup = self._settings.startup
        return {
            "ssh-keys": self._settings.config.ssh_key,
            "block-project-ssh-keys": "TRUE",
            "enable-oslogin": "FALSE",  # where a project has it on, keys of machines count for nothing
            **({} if startup is None else {"startup-script": startup}),
        }
