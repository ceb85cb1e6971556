"""What pods are told of a cluster of the stack's own that is yet to be made."""

from __future__ import annotations

from collections.abc import Mapping

from infra.catalog.eks import EksParts
from infra.catalog.figures import StorageKind
from infra.provision.cluster.config import EFA_HUGE_PAGES_MIB
from infra.provision.naming import POOL, POOL_LABEL
from infra.render.cluster_facts import (
    EFA_RESOURCE,
    BucketCopy,
    ClusterFacts,
    LustreVolume,
    NodeTuningChoice,
    WeightsVolume,
)

SERVICE_ACCOUNT = "engines"
# In the place of what is known late; no text of a document looks like these.
SOURCE, FILE_SYSTEM = "<<source of the weights>>", "<<file system of the weights>>"
DNS_NAME, MOUNT_NAME = "<<its DNS name>>", "<<its mount name>>"


def pod_facts(
    weights: WeightsVolume,
    *,
    namespace: str,
    node_tuning: NodeTuningChoice,
    labels: Mapping[str, str],
    num_efa: int,
) -> ClusterFacts:
    """The facts of a cluster that is yet to be made.

    Args:
        weights: of `weights_volume`.
        namespace: of the stack.
        node_tuning: what becomes of nodes.
        labels: that the owner wants on every object.
        num_efa: EFA devices that a pod asks for; 0 where the stack stays on one host.
    """
    return ClusterFacts(
        namespace=namespace,
        node_selector={POOL_LABEL: POOL},
        network={EFA_RESOURCE: num_efa} if num_efa else {},
        huge_pages_mib=EFA_HUGE_PAGES_MIB if num_efa else 0,
        weights=weights,
        labels=labels,
        node_tuning=node_tuning,
        service_account=SERVICE_ACCOUNT if weights.kind == "copy" else "",
    )


def weights_volume(
    storage: StorageKind, path: str, *, lustre_gib: int, parts: EksParts
) -> WeightsVolume:
    """Where pods find the weights, with what is known late in its place.

    Args:
        storage: that keeps them.
        path: where they lie on a host.
        lustre_gib: size of a file system of FSx, where they lie on one.
        parts: of the cluster.
    """
    if storage == "s3-to-nvme":
        folder = f"{parts.node_disks}{path}"
        copy = BucketCopy(source=SOURCE, node_folder=folder, image=parts.copy_image)
        return WeightsVolume(kind="copy", copy=copy)
    if storage == "fsx-lustre":
        lustre = LustreVolume(
            file_system_id=FILE_SYSTEM,
            dns_name=DNS_NAME,
            mount_name=MOUNT_NAME,
            capacity_gib=lustre_gib,
        )
        return WeightsVolume(kind="lustre", lustre=lustre)
    return WeightsVolume(kind="node")
