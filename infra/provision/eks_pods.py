"""What pods are told of a cluster of the stack's own, some of it only when the cluster is made."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi

from infra.catalog.eks import EksParts
from infra.provision.cluster_config import EFA_HUGE_PAGES_MIB
from infra.provision.eks_config import EksFacts
from infra.provision.eks_nodes import POOL, POOL_LABEL
from infra.provision.first_boot import LUSTRE_FOLDER
from infra.provision.weight_store import StoreSettings, WeightStore
from infra.render.cluster_facts import (
    EFA_RESOURCE,
    BucketCopy,
    ClusterFacts,
    LustreVolume,
    WeightsVolume,
)

SERVICE_ACCOUNT = "engines"
# In the place of what is known late; no text of a document looks like these.
_SOURCE, _FILE_SYSTEM = "<<source of the weights>>", "<<file system of the weights>>"
_DNS_NAME, _MOUNT_NAME = "<<its DNS name>>", "<<its mount name>>"


def pod_facts(
    store: StoreSettings,
    parts: EksParts,
    *,
    facts: EksFacts,
    labels: Mapping[str, str],
    num_efa: int,
) -> ClusterFacts:
    """The facts of a cluster that is yet to be made.

    Args:
        store: where weights are kept.
        parts: of the cluster.
        facts: what the operator said of the cluster.
        labels: that the owner wants on every object.
        num_efa: EFA devices that a pod asks for; 0 where the stack stays on one host.
    """
    weights = _weights(store, parts)
    return ClusterFacts(
        namespace=facts.namespace,
        node_selector={POOL_LABEL: POOL},
        network={EFA_RESOURCE: num_efa} if num_efa else {},
        huge_pages_mib=EFA_HUGE_PAGES_MIB if num_efa else 0,
        weights=weights,
        labels=labels,
        node_tuning=facts.node_tuning,
        service_account=SERVICE_ACCOUNT if weights.kind == "copy" else "",
    )


def late_texts(weights: WeightStore) -> dict[str, pulumi.Input[str]]:
    """What stands in the places of `pod_facts`, once the weight store is made."""
    late: dict[str, pulumi.Input[str]] = {}
    source = weights.place.get("source")
    if source is not None:
        late[_SOURCE] = pulumi.Output.from_input(source).apply(str)
    if weights.lustre is not None:
        system = weights.lustre
        late[_FILE_SYSTEM], late[_DNS_NAME] = system.id, system.dns_name
        # the driver puts the two together as they are: the bucket's objects lie below this folder
        late[_MOUNT_NAME] = pulumi.Output.concat(system.mount_name, "/", LUSTRE_FOLDER)
    return late


def _weights(store: StoreSettings, parts: EksParts) -> WeightsVolume:
    if store.storage == "s3-to-nvme":
        folder = f"{parts.node_disks}{store.path}"
        copy = BucketCopy(source=_SOURCE, node_folder=folder, image=parts.copy_image)
        return WeightsVolume(kind="copy", copy=copy)
    if store.storage == "fsx-lustre":
        lustre = LustreVolume(
            file_system_id=_FILE_SYSTEM,
            dns_name=_DNS_NAME,
            mount_name=_MOUNT_NAME,
            capacity_gib=store.account.lustre.capacity_gib,
        )
        return WeightsVolume(kind="lustre", lustre=lustre)
    return WeightsVolume(kind="node")
