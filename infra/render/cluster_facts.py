"""What only the owner of a Kubernetes cluster knows about one stack: the pod documents are compiled with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

NodeTuningChoice = Literal["apply", "rollback", "none"]
EFA_RESOURCE = "vpc.amazonaws.com/efa"


@dataclass(frozen=True, slots=True, kw_only=True)
class LustreVolume:
    """A file system of FSx for Lustre, bound statically."""

    file_system_id: str
    dns_name: str
    mount_name: str
    capacity_gib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketCopy:
    """Weights that a pod copies from a bucket to its node's own disks before its engines start.

    Args:
        source: `s3://BUCKET/PREFIX/`; below it lies `<checkpoint>/<revision>`, as on hosts.
        node_folder: of the node, that takes them.
        image: with the AWS command line.
    """

    source: str
    node_folder: str
    image: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsVolume:
    """Where a pod finds the weights.

    Args:
        kind: `node` for a folder that every node has; `claim` for a claim that exists in the namespace; `copy` for
            the node's own disks.
        claim: its name, "" for the other kinds.
        lustre: None for the other kinds.
        copy: None for the other kinds.
    """

    kind: Literal["node", "claim", "lustre", "copy"]
    claim: str = ""
    lustre: LustreVolume | None = None
    copy: BucketCopy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """Facts of a cluster.

    Args:
        namespace: where everything of the stack lies.
        node_selector: labels of the nodes that carry the stack's accelerator.
        network: resources of the fabric that each pod asks for, by name (`rdma/hca`, `vpc.amazonaws.com/efa`).
        huge_pages_mib: of 2 MiB pages that each pod asks for; 0 for none.
        weights: where they are.
        labels: what the owner wants to see on every object (`owner`, `cost_center`).
        node_tuning: whether nodes are tuned, brought back to what was found, or left alone.
        node_tuning_image: what the pods that do it run in, "" for the catalogue's.
        service_account: of pods with engines, "" where they need none: what it may do in the cloud, they may.
    """

    namespace: str
    node_selector: Mapping[str, str]
    network: Mapping[str, int]
    huge_pages_mib: int
    weights: WeightsVolume
    labels: Mapping[str, str]
    node_tuning: NodeTuningChoice
    node_tuning_image: str = ""
    service_account: str = ""
