"""NVLink domains that a reservation may span: which machine lands in which is known after its launch alone.

One UltraServer is one domain (AWS, EKS User Guide, "ml-eks-nvidia-ultraserver"); EC2 tells a machine's own as the
`CapacityBlockId` of its topology (EC2 API, DescribeInstanceTopology), once the machine runs.
"""

from __future__ import annotations

import pulumi

from infra.plan.topology import Topology
from infra.provision.aws.found import FoundReservation


def warn_of_several_domains(topology: Topology, found: FoundReservation | None) -> None:
    """Tell the operator where machines of one group may land in two domains.

    Args:
        topology: the stack's hosts and groups.
        found: the reservation; None without one, or where nobody may look at it.
    """
    sizes = {
        host.name: host.accelerator.fabric.num_devices // host.accelerator.devices_per_host
        for host in topology.hosts
        if host.accelerator.fabric_spans_hosts
    }
    wide = [each.name for each in topology.groups if sum(host in sizes for host in each.hosts) > 1]
    largest = max(sizes.values(), default=0)
    if found is None or not wide or found.num_instances <= largest:
        return
    pulumi.log.warn(
        f"moe-infra:reservation_id: {found.id} holds {found.num_instances} machines, and one NVLink domain at most "
        f"{largest}: the hosts of {', '.join(wide)} may land in two. `fab preflight` refuses a group that spans two. "
        "Launch from a reservation of one UltraServer where you can."
    )
