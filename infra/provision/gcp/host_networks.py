"""The networks of a stack's hosts: two of ordinary interfaces, and one for RDMA between accelerators."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions
from pulumi_gcp import compute

from infra.catalog.machine_types import MachineType
from infra.provision.gcp.config import GoogleConfig

# The largest that Compute Engine takes, and what its blueprints for these machines set (cluster-toolkit@104708037).
MTU = 8896
SSH_PORT = "22"
# The longest name of a part of a network.
LONGEST_PART = "{stack}-further-inside"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """What the networks follow from.

    Args:
        ssh_from: blocks that may dial port 22.
    """

    config: GoogleConfig
    machine: MachineType
    ssh_from: tuple[str, ...]


class HostNetworks(pulumi.ComponentResource):
    """Networks, subnets, firewall and the way out.

    `interfaces` are those of one host, in the order in which Compute Engine wants them: gVNIC first, then MRDMA.
    `ready` is what has to be there before a first boot.
    """

    def __init__(
        self, stack: str, settings: NetworkSettings, opts: ResourceOptions | None = None
    ) -> None:
        super().__init__("moe-infra:gcp:HostNetworks", stack, None, opts)
        self._stack, self._settings = stack, settings
        config = settings.config
        hosts = self._network("hosts")
        further = self._network("further")
        subnets = {
            "GVNIC": [
                self._subnet("hosts", hosts, str(config.hosts_cidr)),
                self._subnet("further", further, str(config.further_cidr)),
            ],
            "MRDMA": self._rdma_subnets(),
        }
        self._let_in("hosts-inside", hosts, (str(config.hosts_cidr),))
        self._let_in("further-inside", further, (str(config.further_cidr),))
        if settings.ssh_from:
            self._let_in("ssh", hosts, settings.ssh_from, ports=(SSH_PORT,))
        self.ready = (self._way_out(hosts),)
        self.interfaces = [
            {"subnetwork": subnet.id, "nic_type": kind}
            for kind, each in subnets.items()
            for subnet in each
        ]
        self.register_outputs({"subnets": [each["subnetwork"] for each in self.interfaces]})

    def _rdma_subnets(self) -> list[compute.Subnetwork]:
        config, count = self._settings.config, self._settings.machine.num_rdma_interfaces
        profile = f"projects/{config.project}/global/networkProfiles/{config.zone}-vpc-roce"
        network = compute.Network(
            "rdma",
            name=f"{self._stack}-rdma",
            project=config.project,
            auto_create_subnetworks=False,
            mtu=MTU,
            network_profile=profile,
            opts=ResourceOptions(parent=self),
        )
        return [
            self._subnet(f"rdma-{index}", network, str(block))
            for index, block in enumerate(config.rdma_cidrs(count))
        ]

    def _network(self, name: str) -> compute.Network:
        return compute.Network(
            name,
            name=f"{self._stack}-{name}",
            project=self._settings.config.project,
            auto_create_subnetworks=False,
            mtu=MTU,
            opts=ResourceOptions(parent=self),
        )

    def _subnet(self, name: str, network: compute.Network, block: str) -> compute.Subnetwork:
        config = self._settings.config
        return compute.Subnetwork(
            name,
            name=f"{self._stack}-{name}",
            project=config.project,
            region=config.region,
            network=network.id,
            ip_cidr_range=block,
            opts=ResourceOptions(parent=self),
        )

    def _let_in(
        self,
        name: str,
        network: compute.Network,
        blocks: tuple[str, ...],
        ports: tuple[str, ...] = (),
    ) -> None:
        allowed = {"protocol": "tcp", "ports": list(ports)} if ports else {"protocol": "all"}
        compute.Firewall(
            name,
            name=f"{self._stack}-{name}",
            project=self._settings.config.project,
            network=network.id,
            direction="INGRESS",
            source_ranges=list(blocks),
            allows=[allowed],
            opts=ResourceOptions(parent=self),
        )

    def _way_out(self, network: compute.Network) -> compute.RouterNat:
        """Hosts have no public address; they reach images and hubs through a NAT."""
        config = self._settings.config
        router = compute.Router(
            "way-out",
            name=f"{self._stack}-way-out",
            project=config.project,
            region=config.region,
            network=network.id,
            opts=ResourceOptions(parent=self),
        )
        return compute.RouterNat(
            "way-out",
            name=f"{self._stack}-way-out",
            project=config.project,
            region=config.region,
            router=router.name,
            nat_ip_allocate_option="AUTO_ONLY",
            source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
            opts=ResourceOptions(parent=self),
        )
